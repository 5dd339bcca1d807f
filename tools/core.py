"""A copy of this repository without the wings: what a board that needs none of them would install.

    python tools/core.py FOLDER

The tests of the wings stay behind, too, and those of the whole: of the project itself (its pages, scripts and tables)
and of other people's files (tests/field), which ask by the command line. The rest is run on the copy by
`make test-core`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEFT = ("src/edgescope/wings/", "tests/wings/", "tests/project/", "tests/field/")


def copy(folder: Path) -> Path:
    """Copy every file that git tracks or would, but the wings, to `folder`, which is emptied first; return it."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    shutil.rmtree(folder, ignore_errors=True)
    for name in filter(None, names):
        if not name.startswith(LEFT) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


if __name__ == "__main__":
    copy(Path(sys.argv[1]))
