"""The program of the child that probes: `python -I -S probing.py PROBE.py ...`, started by devices.prober.

A line of stdin names a probe by its number; the answer is its seconds, or None. The child ends with stdin, so with its
parent. It waits while the trial is measured, on a board whose memory is small: it imports neither this package nor what
an installation adds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

Probe = Callable[[], "float | None"]


def probe(path: str) -> Probe:
    """Return the probe of a module, which makes it by its function `prepared`."""
    module: dict[str, Callable[[], Probe]] = {}
    with open(path) as file:
        exec(compile(file.read(), path, "exec", dont_inherit=True), module)
    return module["prepared"]()


def main(paths: Sequence[str]) -> None:
    """Probe whenever asked."""
    probes = [probe(path) for path in paths]
    for line in sys.stdin:
        print(probes[int(line)](), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
