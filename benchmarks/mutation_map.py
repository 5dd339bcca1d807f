"""Which tests run which line: the tests once under coverage, each in a context of its own.

Also the pytest plugin that does it (`pytest -p mutation_map`), in the process that pytest runs in: lines that only a
child process runs belong to no test.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import coverage
import pytest

HERE = Path(__file__).resolve().parent
EVERY_MODULE = ("tests/project/test_imports.py", "tests/project/test_frozen.py")
"""Tests that look at whole modules: tried for what importing a file runs."""
OTHER_PROCESSES = ("telemetry", "isolate", "bench", "store")
"""Packages whose lines also run in child processes: for a line without a test, all tests of the package are tried."""
BUDGET_S = 8.0
"""CPU seconds of the tests of one mutant together."""


@dataclass
class Map:
    """Tests by file and line, the CPU seconds each took, those that time themselves, and the commit they are of."""

    lines: dict[str, dict[str, list[str]]]
    seconds: dict[str, float]
    alone: list[str]
    commit: str
    source: Path

    @classmethod
    def made(cls, work: Path, lay_out: Callable[[], None], tests: Sequence[str], jobs: int) -> Map:
        """The map in this folder: each file or folder of `tests` is run once, `jobs` at a time; the rest is read."""
        if not (work / "tree").exists():
            lay_out()
        if absent := [path for path in tests if not (work / "tree" / path).exists()]:
            raise SystemExit(f"these tests do not exist: {', '.join(absent)}")
        with ThreadPool(jobs) as pool:
            written = pool.map(lambda path: _part(work, path), tests, chunksize=1)
        parts = [json.loads(path.read_text()) for path in written]
        lines: dict[str, dict[str, list[str]]] = {}
        for part in parts:
            for module, by_line in part["lines"].items():
                for line, running in by_line.items():
                    lines.setdefault(module, {}).setdefault(line, []).extend(running)
        seconds = {test: took for part in parts for test, took in part["seconds"].items()}
        alone = [test for part in parts for test in part["alone"]]
        return cls(lines, seconds, alone, (work / "commit").read_text(), work / "tree/src/edgescope")

    def tests(self, module: str, line: int) -> list[str]:
        """Tests for a change of this line: the package's own first, then the quickest, within the budget."""
        package = package_of(module)

        def own(test: str) -> bool:
            return any(word in test for word in (f"/{package}/", f"/test_{package}", f"[{package}]"))

        found, chosen, spent = self._running(module, line), [], 0.0
        if not found and package in OTHER_PROCESSES:
            found = {t for t in self.seconds if own(t)}
        for test in sorted(found, key=lambda t: (not own(t), self.seconds[t], t)):
            if spent + self.seconds[test] <= BUDGET_S:
                chosen.append(test)
                spent += self.seconds[test]
        return chosen

    def _running(self, module: str, line: int) -> set[str]:
        """Passing tests that run the statement of this line; where an import runs it, any line of the file.

        A test of constants alone runs no line of their file, so then the tests named after the file are tried, too.
        """
        rows = self.lines.get(module, {})
        span = statement((self.source / module).read_text(), line)
        wanted = rows.values() if span is None else [rows.get(str(n), []) for n in span]
        found = {t for tests in wanted for t in tests if t in self.seconds}
        if span:
            return found
        stem, package = Path(module).stem, package_of(module)
        named = (*EVERY_MODULE, *(f"tests/{package}/test_{name}" for name in (stem, f"{package}_{stem}")))
        return found | {t for t in self.seconds if t.startswith(named)}


def _part(work: Path, path: str) -> Path:
    """Run the tests of one file or folder under coverage, unless that was done; return where it is written."""
    part = work / "map" / f"{path.replace('/', '.')}.json"
    if not part.exists():
        part.parent.mkdir(exist_ok=True)
        paths = [str(work / "tree/src"), str(HERE), os.environ.get("PYTHONPATH", "")]
        env = os.environ | {"MUTATION_MAP": str(part), "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "mutation_map", path]
        wanted = ["-m", "not gpu and not jetson and not slow"]
        subprocess.run([*command, *wanted], cwd=work / "tree", env=env, check=False)
    return part


def package_of(module: str) -> str:
    """`stats/intervals.py` belongs to stats, `store.py` to store."""
    return module.split("/", maxsplit=1)[0].removesuffix(".py")


@lru_cache(maxsize=8)
def _statements(source: str) -> list[tuple[range, bool]]:
    """Lines of each statement (its head, if compound) and whether it lies in a function; outer ones first."""
    return list(_walk(ast.parse(source), inside=False))


def _walk(node: ast.AST, *, inside: bool) -> Iterator[tuple[range, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            body = getattr(child, "body", None)
            end = body[0].lineno - 1 if body else child.end_lineno or child.lineno
            yield range(child.lineno, max(end, child.lineno) + 1), inside
        yield from _walk(child, inside=inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def statement(source: str, line: int) -> range | None:
    """Lines of the statement at this line, or None where importing the file runs it."""
    around = [(span, inside) for span, inside in _statements(source) if line in span]
    return around[-1][0] if around and around[-1][1] else None


_cover: coverage.Coverage
_seconds: dict[str, float] = {}
_failed: set[str] = set()
_alone: set[str] = set()


def pytest_sessionstart() -> None:
    """Begin before any test file imports edgescope."""
    global _cover  # noqa: PLW0603 - a plugin of functions has nowhere else
    _cover = coverage.Coverage(data_file=None, source_pkgs=["edgescope"])
    _cover.start()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Note which tests time themselves, once conftest.py has marked them."""
    _alone.update(i.nodeid for i in items if i.get_closest_marker("alone"))


def pytest_runtest_logstart(nodeid: str) -> None:
    """Give each test its context, and begin its time."""
    _cover.switch_context(nodeid)
    _seconds[nodeid] = -sum(os.times()[:4])


def pytest_runtest_logreport(report: Any) -> None:
    """Note what has failed."""
    if not report.passed:
        _failed.add(report.nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    """End its time: of the CPU, by it and its processes, since the clock's depends on what else runs here."""
    _seconds[nodeid] = round(_seconds[nodeid] + sum(os.times()[:4]), 3)


def pytest_sessionfinish() -> None:
    """Write the map; a test that failed or was skipped is not in it."""
    _cover.stop()
    data = _cover.get_data()
    lines = {}
    for file in data.measured_files():
        by_line = data.contexts_by_lineno(file)
        lines[file.split("/edgescope/", 1)[1]] = {n: [t for t in ts if t] for n, ts in by_line.items()}
    page = {
        "lines": lines,
        "seconds": {t: s for t, s in _seconds.items() if t not in _failed},
        "alone": sorted(_alone),
    }
    Path(os.environ["MUTATION_MAP"]).write_text(json.dumps(page))
