"""Whether a hypervisor has the CPUs apart: only a virtual machine's, only where two CPUs answered, only on the CPU."""

from dataclasses import replace

import pytest

from edgescope.analysis.run.slowdowns import CORE_TO_CORE, apart, apart_s, virtual
from edgescope.records import Absent, Machine, Measured, Trial
from making import result


def machine(kind):
    return Machine({"cpu": {"virtualised": kind}}, {})


@pytest.mark.parametrize(
    ("kind", "is_virtual"),
    [
        ("yes", True),
        ("yes (QEMU)", True),
        ("xen", True),
        ("no", False),
        ({"absent": "?"}, False),
        (None, False),
    ],
)
def test_a_machine_is_virtual_where_it_says_so(kind, is_virtual):
    assert virtual(machine(kind)) is is_virtual
    assert apart(machine(kind), 207e-9) is is_virtual


def test_a_machine_without_facts_is_not_virtual():
    assert not virtual(Machine({}, {})) and not virtual(Machine({"cpu": "?"}, {}))


def test_cpus_of_one_socket_are_not_apart():
    assert not apart(machine("yes"), 160e-9) and apart(machine("yes"), 200e-9)
    assert not apart(machine("yes"), None)


def test_a_run_says_how_far_they_were_apart_where_they_were():
    def run(field, kind="yes", device="cpu"):
        made = result(Trial(model="null", device=device), metrics={CORE_TO_CORE: field} if field else {})
        return apart_s(replace(made, machine=machine(kind)))

    far = Measured(207e-9, "s")
    assert run(far) == 207e-9 and run(far, kind="no") is None and run(far, device="cuda") is None
    assert run(Measured(25e-9, "s")) is None and run(Absent("one CPU")) is None and run(None) is None
