"""The sampler's process as it would be without any pacing: the arm that shows what pacing saves."""

import sys

from edgescope.telemetry import watcher

if __name__ == "__main__":
    watcher._CPU_BUDGET = watcher._WALL_BUDGET = watcher._DEAR_S = float("inf")
    watcher.Reader.silent = False  # type: ignore[assignment, method-assign]  # a tick for every source, here or not
    sys.exit(watcher.main())
