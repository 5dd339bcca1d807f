"""How long should a turn be? One pair's blocks, with turns of 50, 100 and 200 ms, alternating.

Of each pair it gives the standard error of the mean log ratio, times the root of the seconds that its turns took, the
pauses between them included: the smaller, the narrower an interval is after the same time. One pair has only one process
a side, so what differs between processes is not in it.

python benchmarks/turn_length.py --pairs 6
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import replace

from peers import publish

from edgescope.analysis.cells import alternation
from edgescope.isolate import fresh
from edgescope.isolate.persistent import PersistentChild
from edgescope.records import Trial
