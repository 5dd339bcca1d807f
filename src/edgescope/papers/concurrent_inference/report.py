"""The concurrent-inference sweep as a page, as Markdown, CSV or JSON: the file's suffix says which.

All read the same Concurrent, so a figure and the number beside it cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgescope.papers.concurrent_inference.table import Concurrent
from edgescope.report import rendered

FORMATS: Mapping[str, str] = {
    ".html": "edgescope.papers.concurrent_inference.report_html",
    ".htm": "edgescope.papers.concurrent_inference.report_html",
    ".md": "edgescope.papers.concurrent_inference.report_text",
    ".csv": "edgescope.papers.concurrent_inference.report_csv",
    ".json": "edgescope.papers.concurrent_inference.report_json",
}
CALL = "edgescope.papers.concurrent_inference.report.write(concurrent(results), path)"


def write(found: Concurrent, path: Path, command: str = "") -> Path:
    """Write the table in the format of `path`'s suffix and return the path; UsageError for another suffix.

    `command` is what made this file, printed in it; without one the call is.
    """
    return rendered(found, path, FORMATS, command or CALL)
