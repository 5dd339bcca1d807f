"""Results made by the tests of the reading half serve those of papers, too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "report"))

from analysis.conftest import make  # noqa: F401
