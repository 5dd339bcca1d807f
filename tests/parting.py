"""A run in parts, each a process that knows nothing of the others: `--part 1/2` reads every second file, so to speak.

Of pytest-xdist's workers each reads all tests, and six messages tell of each test: 2 ms, which most tests do not take.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path


def part(text: str) -> tuple[int, int]:
    """Return the part and the number of parts in `1/2`."""
    which, _, of = text.partition("/")
    if not 1 <= int(which) <= int(of):
        raise ValueError(f"no part of a run: {text}")
    return int(which), int(of)


def parted(sizes: Mapping[Path, int], of: int) -> list[set[Path]]:
    """Return the files in parts of about one size: the largest first, each to the part that has least."""
    parts, taken = [set[Path]() for _ in range(of)], [0] * of
    for file in sorted(sizes, key=lambda file: (-sizes[file], file)):
        least = taken.index(min(taken))
        parts[least].add(file)
        taken[least] += sizes[file]
    return parts


def sizes(files: Iterable[Path]) -> dict[Path, int]:
    """Return the bytes of each file."""
    return {file: file.stat().st_size for file in files}
