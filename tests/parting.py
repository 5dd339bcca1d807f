"""A run in parts, each a process that knows nothing of the others: `--part 1/2` reads half of the files, so to speak.

Of pytest-xdist's workers each reads all tests, and six messages tell of each test: 2 ms, which most tests do not take.

python tests/parting.py FOLDER     # before all parts: joins what each part wrote of the last run, for all to read
"""

import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path

import pytest

HEAVY = ("torch", "scipy")
"""Packages whose import takes a second: what names one goes to the same part, so that one part imports it."""
SPENT = "spent.json"
"""CPU seconds of each file in earlier runs, by its path: made once before all parts, so that they agree."""
ROOT = Path(__file__).parent.parent


def part(text: str) -> tuple[int, int]:
    """Return the part and the number of parts in `1/2`."""
    which, _, of = text.partition("/")
    if not 1 <= int(which) <= int(of):
        raise ValueError(f"no part of a run: {text}")
    return int(which), int(of)


def parted(costs: Mapping[frozenset[Path], float], of: int) -> list[set[Path]]:
    """Return the files in parts of about one cost: the dearest group first, each to the part that has least."""
    parts, taken = [set[Path]() for _ in range(of)], [0.0] * of
    for group in sorted(costs, key=lambda group: (-costs[group], min(group))):
        least = taken.index(min(taken))
        parts[least] |= group
        taken[least] += costs[group]
    return parts


def costs(files: Iterable[Path], spent: Mapping[str, float]) -> dict[frozenset[Path], float]:
    """Return what each group of files costs, in seconds if they are known: a file by its bytes if it is new."""
    groups, sizes = defaultdict(set), {file: file.stat().st_size for file in files}
    for file in sizes:
        text = file.read_text(encoding="utf-8")
        groups[next((name for name in HEAVY if re.search(rf"\b{name}\b", text)), str(file))].add(file)
    known = {file: spent[name(file)] for file in sizes if name(file) in spent}
    a_byte = sum(known.values()) / sum(sizes[file] for file in known) if known else 1.0
    each = {file: known.get(file, size * a_byte) for file, size in sizes.items()}
    return {frozenset(group): sum(each[file] for file in sorted(group)) for group in groups.values()}


def name(file: Path) -> str:
    """Return a file's path as it is noted."""
    return str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else str(file)


def noted(file: Path) -> dict[str, float]:
    """Return the seconds in a file of them; {} where there is none that can be read."""
    try:
        return {str(test): float(seconds) for test, seconds in json.loads(file.read_bytes()).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def joined(folder: Path) -> None:
    """Write what all parts noted into one file in `folder`; each has a folder in it."""
    every = {key: value for file in sorted(folder.glob(f"*/{SPENT}")) for key, value in noted(file).items()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SPENT).write_text(json.dumps(every), encoding="utf-8")


class Spent:
    """Notes the CPU seconds that the tests of each file take, their file's reading included."""

    def __init__(self, folder: Path) -> None:
        """`folder` is this part's own."""
        self.file, self.seconds = folder / SPENT, defaultdict[str, float](float)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, object, object]:
        """Count the reading of a file."""
        begin = time.process_time()
        try:
            return (yield)
        finally:
            if isinstance(collector, pytest.Module):
                self.seconds[name(collector.path)] += time.process_time() - begin

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Count a test with all that pytest does for it."""
        begin = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[name(item.path)] += time.process_time() - begin

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Keep the seconds for the next run, if this one was not cut short."""
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(json.dumps(self.seconds), encoding="utf-8")


if __name__ == "__main__":
    joined(Path(sys.argv[1]))
