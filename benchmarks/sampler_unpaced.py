"""The sampler's process as it would be without any pacing: the arm that shows what pacing saves."""

import sys

from edgescope.telemetry import watcher

if __name__ == "__main__":
    watcher._CPU_BUDGET = watcher._WALL_BUDGET = watcher._DEAR_S = float("inf")
    sys.exit(watcher.main())
