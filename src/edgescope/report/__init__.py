"""Results to a page, a Markdown table or a CSV: the file's suffix says which.

All three print the same table of variants (analysis.cells.variants); the HTML page adds plots and all that
defends the choice. Formats are data: suffix -> the module whose `write(results, path, ...)` makes it.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.analysis.cells.objective import FASTEST, Wanted
from edgescope.errors import UsageError
from edgescope.store import whole_file

if TYPE_CHECKING:
    from edgescope.records import Result

FORMATS: Mapping[str, str] = {
    ".html": "edgescope.report.html",
    ".htm": "edgescope.report.html",
    ".md": "edgescope.report.markdown",
    ".csv": "edgescope.report.csv_table",
}


def write(
    results: Iterable[Result], path: Path, *, title: str = "", command: str = "", wanted: Wanted = FASTEST
) -> Path:
    """Write a report in the format of `path`'s suffix and return the path; UsageError for another suffix.

    `results` with their raw rows (Store.full) give plots and pooled percentiles. `command` is what made this
    file, printed in it.
    """
    module = importlib.import_module(FORMATS[writable(path)])
    written: Path = module.write(results, path, title=title, command=command, wanted=wanted)
    return written


def rendered(found: object, path: Path, formats: Mapping[str, str], command: str) -> Path:
    """Write what the module of `path`'s suffix makes of an analysis and return the path; errors as in `writable`."""
    module = importlib.import_module(formats[writable(path, formats)])
    whole_file.write_text(path, module.render(found, command))
    return path


def writable(path: Path, suffixes: Collection[str] = FORMATS) -> str:
    """Return the path's suffix, one of `suffixes`; UsageError for another, or a path that cannot be written."""
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise UsageError(
            "E-REPORT-1",
            f"no report is written as {path.suffix!r}",
            evidence=f"known: {', '.join(suffixes)}",
            fix=f"another ending, as in {path.stem or 'report'}.html",
        )
    try:
        whole_file.writable(path)
    except OSError as error:
        raise UsageError(
            "E-REPORT-3", f"the report {path} cannot be written", evidence=str(error), fix="another path"
        ) from error
    return suffix
