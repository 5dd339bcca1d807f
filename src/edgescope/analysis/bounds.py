"""How far a fresh process may lie from those that were measured: the end of a figure that a constraint is judged on.

An order-statistic bound of p99 covers what varies within a process. Another process has its pages and threads
elsewhere, and lies off by more than that. Of k processes with logs of mean m and spread s, a further one stays below

    exp(m + t(0.95, v) s sqrt(1 + 1/k))      with 95 % confidence, v degrees of freedom

(the usual prediction bound, on logs). Few cells have enough replicates to know their own s, so what all replicated
cells of the machine say is added as if it were PRIOR_DOF further degrees of freedom (the moderated variance of limma,
Smyth 2004). A cell with a single process then has a bound as well, as soon as some cells have more; where none has, the
bound covers one process alone, and what says so is None here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgescope.stats.special import t_quantile

CONFIDENCE = 0.95
#: How many degrees of freedom the other cells' spread may count for.
PRIOR_DOF = 8


@dataclass(frozen=True)
class Spread:
    """What fresh processes of one cell differ by, pooled over cells: the standard deviation of logs."""

    sd: float
    dof: int


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
    """Return the spread of one cell's processes, steadied by that of the machine's other cells."""
    own = pooled([values])
    if machine is None or own is None:
        return own or (machine and Spread(machine.sd, min(machine.dof, PRIOR_DOF)))
    prior = min(machine.dof, PRIOR_DOF)
    dof = prior + own.dof
    return Spread(math.sqrt((prior * machine.sd**2 + own.dof * own.sd**2) / dof), dof)


def fresh(values: Sequence[float], machine: Spread | None) -> tuple[float, float] | None:
    """Return between what a further process lies: below the first and above the second with 5 % each.

    `values`: positive, one a process. None where nothing is known of what lies between processes.
    """
    spread = moderated(values, machine)
    if spread is None or len(values) == 0:
        return None
    mean = sum(math.log(v) for v in values) / len(values)
    reach = t_quantile(CONFIDENCE, spread.dof) * spread.sd * math.sqrt(1 + 1 / len(values))
    return math.exp(mean - reach), math.exp(mean + reach)


def apart(a: Sequence[float], b: Sequence[float], machine: Spread | None) -> bool | None:
    """Whether the means of two cells' processes differ for sure (95 %); None where nothing is known of the spread."""
    first, second = moderated(a, machine), moderated(b, machine)
    if first is None or second is None or not a or not b:
        return None
    gap = abs(sum(map(math.log, a)) / len(a) - sum(map(math.log, b)) / len(b))
    error = math.sqrt(first.sd**2 / len(a) + second.sd**2 / len(b))
    return gap > t_quantile(0.975, min(first.dof, second.dof)) * error
