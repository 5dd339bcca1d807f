"""Places to compute: what is asked of them, and that what was stored before they were members keeps its name."""

import dataclasses

import pytest

from edgescope import registry
from edgescope.errors import UnavailableError
from edgescope.records import Place, Trial
from edgescope.registry import PLACES, Entry, Family, place


@pytest.mark.wings
def test_each_built_in_place_is_called_as_the_registry_calls_it():
    assert [place(name).name for name in PLACES] == list(PLACES)
    assert {name for name in PLACES if place(name).is_host} == {"cpu"}
    assert {name for name in PLACES if place(name).cuda} == {"cuda"}


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ({}, "660f2db3642aba8d"),
        ({"device": "cuda"}, "9328d4edd6120c20"),
        ({"device": "cuda", "sharing": "mps", "processes": 2}, "b414a0d2d990ec91"),
    ],
)
def test_a_trial_keeps_the_id_it_had_when_devices_were_words(keys, name):
    assert Trial(model="m", backend="onnxruntime", **keys).id == name


def test_of_what_is_no_place_nothing_is_known():
    """An engine may report any name as the device it ran on."""
    assert place("GPU,CPU") == Place("GPU,CPU")
    assert not any(value is True for value in dataclasses.asdict(place("GPU,CPU")).values())
    assert place("GPU,CPU").called("openvino") == "GPU,CPU"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("edgescope.records.trial:CUDA", ""),
        ("edgescope.records.trial:Place", "is a type"),
        ("no_such_package:PLACE", "E-NAME-2"),
    ],
)
def test_an_entry_of_the_family_names_a_place(target, why):
    check = PLACES._check
    if not why:
        assert check(Entry(target)) is None
        return
    with pytest.raises((ValueError, UnavailableError), match=why):
        check(Entry(target))


class Added(Family):
    """A family with one plug-in."""

    @property
    def plugins(self):
        return {"npu": Entry(f"{__name__}:NPU")}


NPU = Place("npu", "NPU", sensors=("loadavg",), names={"torch": "xpu"})


@pytest.fixture
def npu(monkeypatch):
    """A place that a package adds."""
    monkeypatch.setattr(registry, "PLACES", Added("edgescope.places", dict(PLACES._built_in)))
    place.cache_clear()
    yield NPU
    place.cache_clear()


def test_the_engines_that_a_place_names_run_on_it(npu):
    assert registry.runs_on("torch_eager") == ("cpu", "cuda", "npu")
    assert registry.runs_on("openvino") == ("cpu", "intel_gpu", "intel_npu")
    assert registry.runs_on("tensorrt") == ("cuda",)
    assert registry.home("torch_eager") == "cpu"


def test_a_trial_may_name_it_where_it_is_installed(npu):
    trial = Trial(model="m", backend="torch_eager", device="npu")
    assert trial.place is npu and trial.label == "torch_eager npu fp32 b1"
