"""docs/your-model.md: its Python runs, in one process from top to bottom."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "your-model.md"


def test_the_code_of_the_page_runs(tmp_path):
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pick: " in done.stdout and "report.html" in done.stdout
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert re.search(r"Status\.(OK|UNSTABLE)", done.stdout)
