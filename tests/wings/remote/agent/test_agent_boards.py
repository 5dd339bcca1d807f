"""The agent on every shipped recording (constructed): what it says equals what the toolkit reads there itself."""

import json

import pytest

from edgescope.devices import recording, replay
from edgescope.wings.jetson.device import JetsonDevice
from edgescope.wings.jetson.guards import Cooling
from edgescope.wings.jetson.rails import Rails
from edgescope.wings.jetson.soc import Gpu
from edgescope.wings.remote import edgescope_agent as agent
from edgescope.wings.remote.board import Tree


@pytest.fixture(params=recording.shipped())
def root(request, tmp_path):
    """The tree of one recorded board."""
    where = tmp_path / "board"
    replay.materialise(recording.read(recording.find(request.param)), where)
    return where


def told(root, tmp_path):
    return agent.Agent(None, None, str(root), str(tmp_path)).facts({})


@pytest.mark.slow
def test_the_facts_that_are_sent_are_all_that_the_toolkit_reads(root, tmp_path):
    tree = Tree(tmp_path / "tree")
    tree.write(told(root, tmp_path))
    (stable, state), (here_stable, here_state) = (JetsonDevice(r).machine() for r in (root, tree.root))

    def plain(facts):
        return json.loads(json.dumps(facts).replace(str(tree.root), "").replace(str(root), ""))

    assert plain(here_stable) == plain(stable)
    for name in state:
        assert plain(here_state[name]) == plain(state[name]), name


def values(source):
    return {name: value for name, _, value in source.read() if isinstance(value, float)}


def test_the_channels_are_those_of_the_toolkit(root):
    mine = {g.name: g.read() for g in agent.sensors(str(root), lambda: 0.0)}
    mine = {name: value for name, value in mine.items() if value is not None}
    for source in (Rails, Gpu, Cooling):
        expected = values(source(str(root)))
        expected.pop("rails_power_w", None)  # the sum is formed on the host
        assert {name: mine.get(name) for name in expected} == pytest.approx(expected), source.__name__


def test_no_channel_of_a_rail_is_made_up(root):
    known = {c.name for c in Rails(str(root)).channels()}
    assert {g.name for g in agent.rails(str(root))} <= known
