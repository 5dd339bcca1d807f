"""docs/how-to/your-model.md: its Python runs, in one process from top to bottom."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "your-model.md"


@pytest.mark.slow
def test_the_code_of_the_page_runs(shorter, capsys):
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    exec(code, {"__name__": "__main__"})
    said = capsys.readouterr().out
    assert "pick: " in said and "report.html" in said
    assert Path("report.html").stat().st_size > 10_000
    assert re.search(r"Status\.(OK|UNSTABLE)", said)
