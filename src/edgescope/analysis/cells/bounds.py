"""How far a fresh process may lie from those that were measured: the end of a figure that a constraint is judged on.

An order-statistic bound of p99 covers what varies within a process. Another process has its pages and threads
elsewhere, and lies off by more than that. Of k processes with logs of mean m and spread s, a further one
stays below

    exp(m + t(0.95, v) s sqrt(1 + 1/k))      with 95 % confidence, v degrees of freedom

(the usual prediction bound, on logs). Few cells have enough replicates to know their own s, so what the other
replicated cells of the machine say is added as if it were PRIOR_DOF further degrees of freedom (the moderated
variance of limma, Smyth 2004). Two things keep that from narrowing a bound that it should not. A cell's own
processes are not among the others. And where a cell spreads by more than the others do, the bound from its
own processes alone stands where it is wider: nothing says that all cells of a machine spread alike. A cell
with a single process has a bound as well, as soon as some cells have more; where none has, the bound covers
one process alone, and what says so is None here.

How often these bounds hold is simulated in benchmarks/fresh_coverage.py. A single process whose cell spreads
by more than those it borrows from is the one case that nothing measured can warn of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgescope.stats.special import t_quantile

CONFIDENCE = 0.95
#: How many degrees of freedom the other cells' spread may count for: limma's prior for spreads that differ by 1.9 times
#: either way (one standard deviation: trigamma(2 / 2) is the variance of the logs of variances).
PRIOR_DOF = 2.0


@dataclass(frozen=True)
class Spread:
    """What fresh processes of one cell differ by, pooled over cells: the standard deviation of logs."""

    sd: float
    dof: float


def pooled(groups: Iterable[Sequence[float]]) -> Spread | None:
    """Return the spread within groups of positive values, each the processes of one cell; None without any two."""
    total, dof = 0.0, 0
    for values in groups:
        if len(values) > 1:
            logs = [math.log(v) for v in values]
            mean = sum(logs) / len(logs)
            total += sum((x - mean) ** 2 for x in logs)
            dof += len(logs) - 1
    return Spread(math.sqrt(total / dof), dof) if dof else None


def moderated(values: Sequence[float], machine: Spread | None) -> Spread | None:
    """Return the spread of one cell's processes, steadied by that of the machine's other cells.

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
    """Return what the spread of others tells of one cell's, in degrees of freedom.

    The variance of the logs of variances is about 2 / dof, and two add:
    how cells differ, and how well `others` is known.
    """
    return 1.0 / (1.0 / PRIOR_DOF + 1.0 / others.dof)


def _without(machine: Spread | None, own: Spread | None) -> Spread | None:
    """Return what is left of a pooled spread without one cell's own; None where nothing is."""
    if machine is None or own is None:
        return machine
    dof = machine.dof - own.dof
    squares = machine.dof * machine.sd**2 - own.dof * own.sd**2
    return Spread(math.sqrt(max(0.0, squares) / dof), dof) if dof > 0 else None


def _reach(spread: Spread) -> float:
    return t_quantile(CONFIDENCE, spread.dof) * spread.sd


def fresh(values: Sequence[float], machine: Spread | None) -> tuple[float, float] | None:
    """Return between what a further process lies: below the first and above the second with 5 % each.

    `values`: positive, one a process; `machine`: pooled over all cells, this one included. None where nothing is known
    of what lies between processes.
    """
    spread = moderated(values, machine)
    if spread is None or len(values) == 0:
        return None
    mean = sum(math.log(v) for v in values) / len(values)
    reach = _reach(spread) * math.sqrt(1 + 1 / len(values))
    return math.exp(mean - reach), math.exp(mean + reach)


def apart(a: Sequence[float], b: Sequence[float], machine: Spread | None) -> bool | None:
    """Whether the means of two cells' processes differ for sure (95 %); None where nothing is known of the spread."""
    first, second = moderated(a, machine), moderated(b, machine)
    if first is None or second is None or not a or not b:
        return None
    gap = abs(sum(map(math.log, a)) / len(a) - sum(map(math.log, b)) / len(b))
    error = math.sqrt(first.sd**2 / len(a) + second.sd**2 / len(b))
    return gap > t_quantile(0.975, min(first.dof, second.dof)) * error
