"""A document as JSON: its data, every figure unrounded with its unit, ends and count."""

from __future__ import annotations

import json

from edgescope.records.codec import to_plain
from edgescope.report.document import Document


def text(document: Document) -> str:
    """Return the data of a document as JSON."""
    return json.dumps(to_plain(dict(document.data)), indent=1)


def render(document: Document) -> str:
    """Return the file."""
    return text(document) + "\n"
