"""Writes answers to files: a Document (document.py), or the report of results, in the format of the file's suffix.

Formats are data: suffix -> `module:function` that makes the text of a document.
"""

from __future__ import annotations

import importlib
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.errors import UsageError
from edgescope.store import files

if TYPE_CHECKING:  # what judges results takes longer to load than a page to write
    from edgescope.analysis.cells.objective import Wanted
    from edgescope.records import Result
    from edgescope.report.document import Document
    from edgescope.search.candidates import NotHere

RENDERERS: Mapping[str, str] = {
    ".html": "edgescope.report.html:render",
    ".htm": "edgescope.report.html:render",
    ".md": "edgescope.report.data:markdown",
    ".csv": "edgescope.report.data:csv_file",
    ".json": "edgescope.report.data:json_file",
}
#: Suffixes of a report of results; there is no .json, because the results themselves are JSON.
FORMATS = (".html", ".htm", ".md", ".csv")


def write(
    results: Iterable[Result],
    path: Path,
    *,
    title: str = "",
    command: str = "",
    wanted: Wanted | None = None,
    missing: Sequence[NotHere] = (),
) -> Path:
    """Write the report of these results' variants and return the path; UsageError for another suffix.

    `results` with their raw rows (Store.full) give plots and pooled percentiles. `command` made this file and is
    printed in it; `missing` are the candidates that were not tried.
    """
    from edgescope.report import variants
    from edgescope.report.chapter import chapters

    writable(path, FORMATS)
    found = chapters(results, *([wanted] if wanted else []))
    page = variants.document(found, title=title, command=command or made_by(path), missing=missing)
    return save(page, path)


def save(document: Document, path: Path) -> Path:
    """Write a document in the format of the suffix and return the path; errors as in `writable`."""
    module, _, name = RENDERERS[writable(path, RENDERERS)].partition(":")
    render: Callable[[Document], str] = getattr(importlib.import_module(module), name)
    path.parent.mkdir(parents=True, exist_ok=True)
    return files.write_text(path, render(document))


def made_by(path: Path) -> str:
    """Return the running edgescope command, or the one that would write `path` from the default store."""
    if Path(sys.argv[0]).name == "edgescope":
        return shlex.join(["edgescope", *sys.argv[1:]])
    return shlex.join(["edgescope", "report", "--output", path.name])


def writable(path: Path, suffixes: Collection[str] = FORMATS) -> str:
    """Return the path's suffix, one of `suffixes`; UsageError for another, or a path that cannot be written."""
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise UsageError(
            "E-REPORT-1",
            f"a report cannot be written as {path.suffix!r}",
            evidence=f"known: {', '.join(suffixes)}",
            fix=f"another ending, as in {path.stem or 'report'}.html",
        )
    try:
        files.writable(path)
    except OSError as error:
        raise UsageError(
            "E-REPORT-3", f"the report {path} cannot be written", evidence=str(error), fix="another path"
        ) from error
    return suffix
