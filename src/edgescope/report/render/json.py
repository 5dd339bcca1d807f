"""A document as JSON: its data, every figure unrounded with its unit, ends and count."""

from __future__ import annotations

import json
from collections.abc import Iterable

from edgescope.records.codec import to_plain
from edgescope.report.document import Document


def text(document: Document) -> str:
    """Return the data of a document as JSON."""
    return json.dumps(to_plain(dict(document.data)), indent=1)


def joined(name: str, documents: Iterable[Document]) -> str:
    """Return {name: [the data of each document]} as JSON."""
    return json.dumps({name: [to_plain(dict(d.data)) for d in documents]}, indent=1)


def render(document: Document) -> str:
    """Return the file."""
    return text(document) + "\n"
