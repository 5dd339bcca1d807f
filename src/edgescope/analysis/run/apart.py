"""Whether a hypervisor has put the CPUs of a run apart: on cores that share no cache, or on two sockets.

Cores that share a cache pass a line on in 16 to 72 ns (a Xeon Phi's in 91), those of two groups or sockets in 84 to 200
(https://github.com/nviennot/core-to-core-latency). On a machine of one's own the latency is a fact of
the board; a virtual machine's CPUs are moved, so there it says what the machine is like now.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgescope.records import Machine, Measured, Result

METRIC = "core_to_core_s"
LIMIT_S = 80e-9


def virtual(machine: Machine) -> bool:
    """Return whether the machine says that it is a virtual one."""
    facts = machine.stable.get("cpu")
    kind = facts.get("virtualised") if isinstance(facts, Mapping) else None
    return isinstance(kind, str) and kind != "no"


def apart(machine: Machine, core_to_core_s: float | None) -> bool:
    """Return whether a virtual machine's CPUs are further apart than cores that share a cache."""
    return core_to_core_s is not None and core_to_core_s > LIMIT_S and virtual(machine)


def apart_s(result: Result) -> float | None:
    """Return the latency of a run on the CPU whose CPUs were apart at its beginning or its end, else None."""
    found = result.metrics.get(METRIC)
    if result.trial.device != "cpu" or not isinstance(found, Measured):
        return None
    return found.value if apart(result.machine, found.value) else None
