"""Prediction bounds for a fresh process: the end of a figure on which a constraint is judged.

An order-statistic bound of p99 covers the variation within a process. Another process has its pages and threads
elsewhere, and differs by more than that. Of k processes with logs of mean m and spread s, a further one stays below

    exp(m + t(0.95, v) s sqrt(1 + 1/k))      with 95 % confidence, v degrees of freedom

(the usual prediction bound, on logs). Few cells have enough replicates to know their own s, so the spread of the
machine's other replicated cells is added as PRIOR_DOF further degrees of freedom (the moderated variance of limma,
Smyth 2004). Two rules keep that from narrowing a bound that it should not. A cell's own processes are not among the
others. And if a cell spreads by more than the others do, the bound from its own processes alone counts if it is
wider: nothing says that all cells of a machine spread alike. A cell with a single process has a bound as well, as
soon as some cells have more; if none has, the functions here return None, because a bound would cover one process
only.

How often these bounds hold is simulated in benchmarks/intervals.py (fresh_means). One case cannot be seen in any
measurement: a single process whose cell spreads by more than the cells it borrows from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgescope.stats.pairs import SAME_WITHIN, Judgement
from edgescope.stats.special import t_quantile

CONFIDENCE = 0.95
#: How many degrees of freedom the other cells' spread may count for: limma's prior for spreads that differ by 1.9 times
#: either way (one standard deviation: trigamma(2 / 2) is the variance of the logs of variances).
PRIOR_DOF = 2.0


@dataclass(frozen=True)
class Spread:
    """The standard deviation of logs between fresh processes of one cell, pooled over cells."""

    sd: float
    dof: float


def pooled(groups: Iterable[Sequence[float]]) -> Spread | None:
    """Return the spread within groups of positive values, one group per cell; None if no group has two values."""
    total, dof = 0.0, 0
    for values in groups:
        if len(values) > 1:
            logs = [math.log(v) for v in values]
            mean = sum(logs) / len(logs)
            total += sum((x - mean) ** 2 for x in logs)
            dof += len(logs) - 1
    return Spread(math.sqrt(total / dof), dof) if dof else None


def moderated(values: Sequence[float], machine: Spread | None) -> Spread | None:
    """Return the spread of one cell's processes, moderated by the spread of the machine's other cells.

    `machine` is pooled over all cells, this one included.
    """
    own = pooled([values])
    others = _without(machine, own)
    if own is None or others is None:
        return own or (others and Spread(others.sd, _prior(others)))
    prior = _prior(others)
    dof = prior + own.dof
    both = Spread(math.sqrt((prior * others.sd**2 + own.dof * own.sd**2) / dof), dof)
    return max(own, both, key=_reach) if own.sd > others.sd else both


def _prior(others: Spread) -> float:
    """Return the degrees of freedom that the spread of the other cells counts for.

    The variance of the logs of variances is about 2 / dof, and two add:
    how cells differ, and how well `others` is known.
    """
    return 1.0 / (1.0 / PRIOR_DOF + 1.0 / others.dof)


def _without(machine: Spread | None, own: Spread | None) -> Spread | None:
    """Return the pooled spread without one cell's own share, or None if nothing is left."""
    if machine is None or own is None:
        return machine
    dof = machine.dof - own.dof
    squares = machine.dof * machine.sd**2 - own.dof * own.sd**2
    return Spread(math.sqrt(max(0.0, squares) / dof), dof) if dof > 0 else None


def _reach(spread: Spread) -> float:
    return t_quantile(CONFIDENCE, spread.dof) * spread.sd


def fresh(values: Sequence[float], machine: Spread | None) -> tuple[float, float] | None:
    """Return the 90 % prediction interval of a further process: it lies outside each end with 5 %.

    `values`: positive, one per process; `machine`: pooled over all cells, this one included. None if nothing is known
    about the spread between processes.
    """
    spread = moderated(values, machine)
    if spread is None or len(values) == 0:
        return None
    mean = sum(math.log(v) for v in values) / len(values)
    reach = _reach(spread) * math.sqrt(1 + 1 / len(values))
    return math.exp(mean - reach), math.exp(mean + reach)


def compared(a: Sequence[float], b: Sequence[float], machine: Spread | None) -> Judgement | None:
    """Return FASTER if the means of two cells' processes differ significantly (95 %), SAME if they surely do not.

    SAME asks the 90 % interval of their ratio to lie within SAME_WITHIN. None if the spread is not known.
    """
    first, second = moderated(a, machine), moderated(b, machine)
    if first is None or second is None or not a or not b:
        return None
    gap = abs(sum(map(math.log, a)) / len(a) - sum(map(math.log, b)) / len(b))
    error = math.sqrt(first.sd**2 / len(a) + second.sd**2 / len(b))
    dof = min(first.dof, second.dof)
    if gap > t_quantile(0.975, dof) * error:
        return Judgement.FASTER
    alike = gap + t_quantile(0.95, dof) * error <= math.log1p(SAME_WITHIN)
    return Judgement.SAME if alike else Judgement.AMBIGUOUS
