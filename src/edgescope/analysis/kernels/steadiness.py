"""Whether the inferences of a trace were steady: the verdict that a trace allows by itself.

A trace does not say what else its machine did, at which clocks and how hot, so the best that it can be called is
UNKNOWN. It is called DISTURBED where its inferences became clearly slower or faster within it.
"""

from __future__ import annotations

import numpy as np

from edgescope.analysis.kernels.inferences import Inferences
from edgescope.records import Trust, Verdict

#: Inferences of a process from which two halves are compared.
FEWEST = 8
#: Halves whose medians differ by more than this factor are not of one speed.
APART = 1.2
WHY = "a trace does not say what else its machine did"


def steadiness(found: Inferences) -> Verdict:
    """Return DISTURBED where the halves of a process's inferences differ by more than APART, else UNKNOWN, with why."""
    if not len(found):
        return Verdict(Trust.UNKNOWN, ("the trace marks no inferences", WHY))
    ratios = [r for p in np.unique(found.process).tolist() if (r := _ratio(found.of_process(p))) is not None]
    if not ratios:
        return Verdict(
            Trust.UNKNOWN, (f"{len(found):,} inferences are too few to tell whether they were steady", WHY)
        )
    worst = max(ratios, key=lambda r: max(r, 1 / r))
    words = (
        f"the second half of {len(found):,} inferences took {worst:.2f} times as long as the first (medians)"
    )
    if max(worst, 1 / worst) > APART:
        return Verdict(Trust.DISTURBED, (words,))
    return Verdict(Trust.UNKNOWN, (words, WHY))


def _ratio(found: Inferences) -> float | None:
    """Return the median of the second half over that of the first; None for few inferences, or without length."""
    length = (found.end - found.start)[np.argsort(found.start, kind="stable")]
    half = len(length) // 2
    if len(length) < FEWEST:
        return None
    first, second = (float(np.median(part)) for part in (length[:half], length[-half:]))
    return second / first if first > 0 and second > 0 else None
