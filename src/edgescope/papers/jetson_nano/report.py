"""The study's table as a page, as Markdown and as CSV: the file's suffix says which.

The three read the same NanoTable, so a figure and the number beside it cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgescope.papers.jetson_nano.table import NanoTable
from edgescope.report import rendered

FORMATS: Mapping[str, str] = {
    ".html": "edgescope.papers.jetson_nano.report_html",
    ".htm": "edgescope.papers.jetson_nano.report_html",
    ".md": "edgescope.papers.jetson_nano.report_text",
    ".csv": "edgescope.papers.jetson_nano.report_csv",
}
CALL = "edgescope.papers.jetson_nano.report.write(nano_table(results), path)"


def write(found: NanoTable, path: Path, command: str = "") -> Path:
    """Write the table in the format of `path`'s suffix and return the path; UsageError for another suffix.

    `command` is what made this file, printed in it; without one the call is.
    """
    return rendered(found, path, FORMATS, command or CALL)
