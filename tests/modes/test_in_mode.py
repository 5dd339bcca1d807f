"""A setting held around a block: of which devices it is, and that it is left whatever happens."""

import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

import edgescope.modes.enter  # noqa: F401 (its module is taken from sys.modules: a function has its name)
from edgescope.errors import UsageError
from edgescope.process import Launch

holding = sys.modules["edgescope.modes.enter"]


@pytest.fixture
def held(monkeypatch):
    """What happens to modes: found among which devices, entered, left."""
    did = []
    launches = {"fast": Launch(), "cpus=0": Launch(("taskset", "1")), "env": Launch(env={"A": "1"})}

    def find(name, devices):
        did.append(("found", name, devices))
        return SimpleNamespace(name=name, launch=lambda: launches[name])

    @contextmanager
    def entered(mode):
        did.append(("entered", mode.name))
        try:
            yield mode
        finally:
            did.append(("left", mode.name))

    monkeypatch.setattr(holding, "present", lambda: "what is here")
    monkeypatch.setattr(holding.catalog, "find", find)
    monkeypatch.setattr(holding, "entered", entered)
    return did


@pytest.mark.parametrize(("given", "among"), [((), "what is here"), ((None,), "what is here"), (({},), {})])
def test_a_setting_is_one_of_the_devices_that_are_given_or_here(held, given, among):
    with holding.in_mode("fast", *given) as mode:
        held.append("block")
        assert mode.name == "fast"
    assert held == [("found", "fast", among), ("entered", "fast"), "block", ("left", "fast")]


def test_it_is_left_when_the_block_fails(held):
    with pytest.raises(ZeroDivisionError), holding.in_mode("fast", {}):
        raise ZeroDivisionError
    assert held[1:] == [("entered", "fast"), ("left", "fast")]


@pytest.mark.parametrize("name", ["cpus=0", "env"])
def test_what_only_a_new_process_can_have_is_refused_and_left(held, name):
    with pytest.raises(UsageError) as caught, holding.in_mode(name, {}):
        pytest.fail("it was entered")
    assert caught.value.code == "E-MODE-11" and held[1:] == [("entered", name), ("left", name)]
