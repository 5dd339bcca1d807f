"""The tests that need an NVIDIA GPU, as one table: what passed, what failed, and what was not run, with its reason.

    make test-gpu                                  # in .venv; writes published/gpu_suite.json with the commit
    make test-gpu GPU_PYTHON=python3               # an interpreter with NVIDIA's own torch, as on a Jetson
    python benchmarks/gpu_suite.py --no-publish -k cuda_graph

Nothing is run again: a test of a GPU that fails by chance is to be mended. Exit status: 0 all that ran passed,
1 a test failed, 5 none ran (no GPU, or no engine that drives it): that is no pass.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import facts
import pytest

ROOT = Path(__file__).resolve().parent.parent
OUTCOMES = ("passed", "failed", "skipped")
NONE_RAN = 5


@dataclass(eq=False)  # pytest keeps its plugins in sets
class Outcomes:
    """A pytest plugin that keeps what became of each test: one outcome each, and why it failed or was skipped."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be read is a failure: its tests would be missing without a word."""
        if report.failed:
            self._note(report.nodeid, "failed", _last_line(report))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test is skipped or fails in any of its three parts; it passes where its call does."""
        if report.failed:
            self._note(report.nodeid, "failed", _last_line(report), report.duration)
        elif report.skipped:
            why = report.longrepr[2].removeprefix("Skipped: ")
            self._note(report.nodeid, "skipped", why.replace(f"{ROOT}/", ""))  # the table is published
        elif report.when == "call":
            self._note(report.nodeid, "passed", "", report.duration)

    def _note(self, test: str, outcome: str, why: str, seconds: float = 0.0) -> None:
        if self.rows.get(test, {}).get("outcome") != "failed":
            self.rows[test] = {"test": test, "outcome": outcome, "why": why, "s": round(seconds, 2)}


def _last_line(report: Any) -> str:
    """Return what a failure says in one line: the error's own, if there is one."""
    crash = getattr(report.longrepr, "reprcrash", None)
    words = crash.message if crash is not None else str(report.longrepr).strip()
    return str(words).splitlines()[0][:200] if words else ""


def counted(rows: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return how many tests of each file had each outcome."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(OUTCOMES, 0))
    for row in rows:
        found[row["test"].partition("::")[0]][row["outcome"]] += 1
    return dict(found)


def table(rows: list[dict[str, Any]]) -> str:
    """Return one line a file, the sum, then every test that failed and each reason why one was skipped."""
    files = counted(rows)
    wide = max((len(name) for name in files), default=4)
    every = {o: sum(one[o] for one in files.values()) for o in OUTCOMES}
    lines = [f"{'file':{wide}} " + " ".join(f"{o:>8}" for o in OUTCOMES)]
    lines += [
        f"{name:{wide}} " + " ".join(f"{one[o] or '-':>8}" for o in OUTCOMES)
        for name, one in [*sorted(files.items()), ("all", every)]
    ]
    lines += [f"failed: {r['test']}\n    {r['why']}" for r in rows if r["outcome"] == "failed"]
    why: dict[str, int] = defaultdict(int)
    for row in rows:
        if row["outcome"] == "skipped":
            why[row["why"]] += 1
    return "\n".join([*lines, *(f"skipped {n}: {reason}" for reason, n in sorted(why.items()))])


def status(rows: list[dict[str, Any]]) -> int:
    """Return the exit status: what was not run is no pass."""
    outcomes = {row["outcome"] for row in rows}
    return 1 if "failed" in outcomes else 0 if "passed" in outcomes else NONE_RAN


def files() -> list[str]:
    """Return the files that have such tests: the others' packages need not be there."""
    return [
        str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.gpu" in path.read_text()
    ]


def main() -> int:
    """Run the tests, print the table, and keep it unless nothing ran."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--no-publish", action="store_true", help="print the table only")
    parser.add_argument(
        "-k", default="", help="only tests whose names match, as pytest takes it; not published"
    )
    args = parser.parse_args()
    found = Outcomes()
    words = ["-m", "gpu", "-p", "no:rerunfailures", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    words += ["--continue-on-collection-errors", *(["-k", args.k] if args.k else [])]
    ended = pytest.main([*words, *files()], plugins=[found])
    rows = list(found.rows.values())
    print(table(rows))
    code = status(rows)
    if ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        print(f"pytest ended with {ended!r}: the table is not whole", file=sys.stderr)
        return int(ended)
    if not (args.no_publish or args.k or code == NONE_RAN):
        path = facts.write("gpu_suite", {"files": counted(rows), "tests": rows}, met=code == 0)
        print(f"written to {path.relative_to(ROOT)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
