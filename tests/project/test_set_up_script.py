"""The script that times the Makefile's environment: the ratio, what differs, and that it begins with nothing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import set_up


def made(seconds, **packages):
    return set_up.Made(seconds, 1.0, 10**9, packages)


def test_the_ratio_is_of_medians_and_other_versions_are_named():
    earlier = [made(100.0, numpy="1", tomli="2") for _ in range(2)] + [made(900.0, numpy="1", tomli="2")]
    now = [made(30.0, numpy="2", twine="6") for _ in range(3)]
    found = set_up.figures(earlier, now)
    assert found["ratio"] == 0.3
    assert found["differ"] == {"numpy": ["1", "2"], "tomli": ["2", None], "twine": [None, "6"]}


def test_a_run_sees_no_cache_no_uv_and_no_other_environment(monkeypatch, tmp_path):
    (tmp_path / "uv").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin")
    monkeypatch.setenv("VIRTUAL_ENV", "/of/another")
    found = set_up.bare(Path("/new"))
    assert found["PATH"] == "/usr/bin" and "VIRTUAL_ENV" not in found
    assert found["PIP_CACHE_DIR"] == "/new/pip" and found["UV_CACHE_DIR"] == "/new/uv"
