"""Whether a hypervisor has put the CPUs of a run apart: on two sockets.

On a machine of one's own the latency is a fact of the board; a virtual machine's CPUs are moved, so there it says what
the machine is like now. The limit is above what the CPUs of one socket need (up to 0.17 us of an Intel Xeon's 16) and
below what those of two sockets do (0.2 us and more of an AMD EPYC's): benchmarks/probes.py distance. Those of two
groups of an EPYC's socket need as long as a Xeon's of one, so they pass.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgescope.records import Machine, Measured, Result

METRIC = "core_to_core_s"
LIMIT_S = 180e-9


def virtual(machine: Machine) -> bool:
    """Return whether the machine says that it is a virtual one."""
    facts = machine.stable.get("cpu")
    kind = facts.get("virtualised") if isinstance(facts, Mapping) else None
    return isinstance(kind, str) and kind != "no"


def apart(machine: Machine, core_to_core_s: float | None) -> bool:
    """Return whether a virtual machine's CPUs are further apart than those of one socket."""
    return core_to_core_s is not None and core_to_core_s > LIMIT_S and virtual(machine)


def apart_s(result: Result) -> float | None:
    """Return the latency of a run on the CPU whose CPUs were apart at its beginning and its end, else None."""
    found = result.metrics.get(METRIC)
    if not result.trial.place.is_host or not isinstance(found, Measured):
        return None
    return found.value if apart(result.machine, found.value) else None
