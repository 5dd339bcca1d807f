"""The paper's rules checked one by one on a machine's own cells: holds, fails, is unsure, cannot be measured.

A rule speaks of many series (a model at a precision and batch over P, say). Each series is for it, against it or
within the noise; the rule holds where most are for it and none against it, fails with the first that is surely
against it, and is unsure where half or more are within the noise. The counts and the figures are given, so that a
reader may weigh them otherwise. A rule whose counter or cells are missing is not measurable here, and which are missing
is said. The checks themselves: concurrent_scaling, concurrent_memory, concurrent_power.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from edgescope.analysis import concurrent_memory, concurrent_power, concurrent_scaling
from edgescope.analysis.concurrent_paper import paper
from edgescope.analysis.rule_answer import Checked, Found, View, unknown

CHECKS: Mapping[str, Callable[[View], Found]] = {
    "cores": concurrent_scaling.cores,
    "batch": concurrent_scaling.batch,
    "per_process": concurrent_scaling.per_process,
    "memory_linear": concurrent_memory.linear,
    "memory_rule": concurrent_memory.rule,
    "memory_limit": concurrent_memory.limit,
    "memory_precision": concurrent_memory.precision,
    "best_precision": concurrent_scaling.best_precision,
    "energy_precision": concurrent_power.energy_precision,
    "fallback": concurrent_scaling.fallback,
    "power_plateau": concurrent_power.plateau,
    "fcn_power": concurrent_power.fcn,
    "activity": concurrent_power.activity,
    "sm_processes": concurrent_power.sm_processes,
    "issue": concurrent_power.issue,
    "tensor_int8": concurrent_power.tensor_int8,
    "launch": concurrent_scaling.launch,
}


def rules(view: View) -> tuple[Checked, ...]:
    """Return every rule of the paper with its answer, in the paper's order."""
    if not any(c.ok for c in view.cells):
        return tuple(Checked(rule, unknown("no cell finished")) for rule in paper().rules)
    return tuple(Checked(rule, CHECKS[rule.key](view)) for rule in paper().rules)


def counts(checked: Sequence[Checked]) -> dict[str, int]:
    """Return how many rules have which answer."""
    out: dict[str, int] = {}
    for each in checked:
        out[each.found.answer.value] = out.get(each.found.answer.value, 0) + 1
    return out
