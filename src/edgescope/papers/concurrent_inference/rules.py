"""The paper's rules checked one by one on a machine's own cells: holds, fails, is unsure, cannot be measured.

A rule speaks of many series (a model at a precision and batch over P, say). Each series is for it, against it or
within the noise; the rule holds where most are for it and none against it, fails with the first that is surely
against it, and is unsure where half or more are within the noise. The counts and the figures are given, so that a
reader may weigh them otherwise. A rule whose counter or cells are missing is not measurable here, and which are missing
is said. The checks themselves: concurrent_scaling, concurrent_memory, concurrent_power.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from edgescope.papers.concurrent_inference import rules_memory, rules_power, rules_scaling
from edgescope.papers.concurrent_inference.paper import paper
from edgescope.papers.concurrent_inference.rule import Checked, Found, View, unknown

CHECKS: Mapping[str, Callable[[View], Found]] = {
    "cores": rules_scaling.cores,
    "batch": rules_scaling.batch,
    "per_process": rules_scaling.per_process,
    "memory_linear": rules_memory.linear,
    "memory_rule": rules_memory.rule,
    "memory_limit": rules_memory.limit,
    "memory_precision": rules_memory.precision,
    "best_precision": rules_scaling.best_precision,
    "energy_precision": rules_power.energy_precision,
    "fallback": rules_scaling.fallback,
    "power_plateau": rules_power.plateau,
    "fcn_power": rules_power.fcn,
    "activity": rules_power.activity,
    "sm_processes": rules_power.sm_processes,
    "issue": rules_power.issue,
    "tensor_int8": rules_power.tensor_int8,
    "launch": rules_scaling.launch,
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
