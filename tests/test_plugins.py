"""Members that an installed package adds: the example in examples/plugin works, and a broken one harms nothing."""

import functools
import json
import os
import shutil
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from edgescope import registry
from edgescope.errors import UnavailableError, UsageError
from edgescope.models import zoo
from edgescope.models.zoo import tomllib
from edgescope.registry import Entry, Family

PLUGIN = Path(__file__).parent.parent / "examples" / "plugin"


def installed(folder, groups):
    """Write what pip writes of a package with these entry points: group -> name -> value."""
    about = folder / "edgescope_example-0.1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: edgescope-example\nVersion: 0.1.0\n")
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{k} = {v}" for k, v in points.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def example(tmp_path):
    """A folder for PYTHONPATH that holds the example package, installed as its pyproject.toml says."""
    groups = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]["entry-points"]
    shutil.copytree(PLUGIN / "edgescope_example", tmp_path / "site" / "edgescope_example")
    (tmp_path / "site" / "broken_plugin.py").write_text("raise RuntimeError('it does not start')")
    (tmp_path / "site" / "slow_net.py").write_text(NET)
    return installed(tmp_path / "site", groups)


NET = """
import torch
from torch import nn


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)), (torch.rand(1, 3, 8, 8),)
"""


def edgescope(site, *words):
    return subprocess.run(
        [sys.executable, "-m", "edgescope", *words],
        cwd=site,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


def listed(site):
    """What `backends` says where PyTorch is not installed, whose import takes seconds."""
    code = "import sys; sys.modules['torch'] = None; from edgescope.cli.main import main; main(['backends', '--json'])"
    env = os.environ | {"PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_the_example_adds_a_backend_that_is_listed_and_measured(example, tmp_path):
    rows = {row["name"]: row for row in listed(example)}
    assert rows["onnx_reference"]["available"] and rows["onnx_reference"]["devices"] == ["cpu", "simulated"]
    words = ("slow_net:net", "--backend", "onnx_reference", "--max-queries", "200", "--json")
    done = edgescope(example, "bench", *words, "--store", str(tmp_path / "store"))
    assert done.returncode in (0, 1), done.stderr  # 1: a busy machine made it unstable
    (path,) = (tmp_path / "store").rglob("result.json")
    found = json.loads(path.read_text())
    assert found["status"] in ("ok", "unstable"), found["reason"]
    assert found["verification"]["passed"] is True
    assert found["effective"]["precision"] == "fp32" and "float32" in found["effective"]["evidence"]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["onnx_reference", "torch_eager"])
def test_the_example_adds_a_place_that_is_measured_on(example, tmp_path, backend):
    """Its own backend keeps inputs there; an engine of edgescope runs there because the place says its name for it."""
    io = "device" if backend == "onnx_reference" else "host"
    words = (
        "slow_net:net",
        "--backend",
        backend,
        "--device",
        "simulated",
        "--io",
        io,
        "--max-queries",
        "200",
    )
    done = edgescope(example, "bench", *words, "--store", str(tmp_path / "store"))
    assert done.returncode in (0, 1), done.stderr
    (path,) = (tmp_path / "store").rglob("result.json")
    found = json.loads(path.read_text())
    assert found["status"] in ("ok", "unstable"), found["reason"]
    assert found["verification"]["passed"] is True
    assert found["trial"]["device"] == found["effective"]["device"] == "simulated"
    shown = edgescope(example, "list", "--store", str(tmp_path / "store"))
    assert f"{backend} simulated fp32" in shown.stdout


@pytest.mark.process
def test_a_place_of_a_package_is_asked_what_it_can_do(example):
    code = """
from edgescope import registry
from edgescope.records import Trial
from edgescope.search.candidates import of_device
from edgescope.study.rules import conflicts
there = Trial(model="m", backend="onnx_reference", device="simulated", io="device", sharing="mps", processes=2)
print(registry.runs_on("onnx_reference"), registry.runs_on("torch_eager"), registry.runs_on("tensorrt"))
print([c.label for c in of_device("simulated")])
print([c.keys for c in conflicts(there)])
"""
    env = os.environ | {"PYTHONPATH": str(example)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "('cpu', 'simulated') ('cpu', 'cuda', 'simulated') ('cuda',)",
        "['onnx_reference fp32']",
        "[('sharing', 'device')]",
    ]


@pytest.mark.process
def test_the_example_refuses_what_it_cannot_do(example, tmp_path):
    words = ("slow_net:net", "--backend", "onnx_reference", "--precision", "int8")
    done = edgescope(example, "bench", *words, "--store", str(tmp_path / "store"))
    assert "unsupported" in done.stdout and "its operators compute in fp32" in " ".join(done.stdout.split())


@pytest.mark.process
def test_the_examples_class_data_joins_that_of_the_others(example):
    """A study is told its precisions, optimize tries it, and a result names its package, without its engine."""
    code = """
import sys
sys.modules["onnx"] = None
from edgescope.devices import manifest
from edgescope.records import Trial
from edgescope.search.candidates import of_device
from edgescope.study.rules import conflicts
print(of_device("cpu")[-1].label)
print(next(conflicts(Trial(model="m", backend="onnx_reference", precision="int8"))).what)
"""
    env = os.environ | {"PYTHONPATH": str(example)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "onnx_reference fp32",
        "onnx_reference has no int8 on cpu: it has fp32",
    ]


@pytest.mark.slow
def test_the_example_adds_a_device_whose_channels_the_doctor_sees(example):
    report = json.loads(edgescope(example, "doctor", "--json").stdout)
    assert report["devices"]["loadavg"] == ""
    mine = {m["name"]: m for m in report["metrics"] if m["device"] == "loadavg"}
    assert set(mine) == {"loadavg_1min", "loadavg_5min", "loadavg_15min"}
    assert all(m["status"] == "measured" and m["value"] >= 0 for m in mine.values())


@pytest.mark.process
def test_the_example_adds_a_verb_with_a_page_and_a_metric(example, tmp_path):
    """No line of edgescope names them: the verb is in the help and in Python, the metric in results and constraints."""
    store = str(tmp_path / "store")
    words = ("bench", "null", "--backend", "null", "--max-queries", "200", "--store", store)
    assert "null fp32" in edgescope(example, *words).stdout
    done = edgescope(example, "tail", "--store", store, "-o", str(tmp_path / "tail.html"))
    assert done.returncode == 0 and "p75" in done.stdout, done.stderr
    assert "How long the tails are" in (tmp_path / "tail.html").read_text()
    (row,) = json.loads(edgescope(example, "list", "--store", store, "--json").stdout)
    found = {
        name: row["metrics"][name]["value"] for name in ("latency_p50_s", "latency_p75_s", "latency_p99_s")
    }
    assert found["latency_p50_s"] <= found["latency_p75_s"] <= found["latency_p99_s"]
    assert "tail" in edgescope(example, "--help").stdout
    code = "import edgescope; print(edgescope.tail.__module__, 'tail' in dir(edgescope))"
    env = os.environ | {"PYTHONPATH": str(example)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["edgescope_example.tail", "True"]


BAD = {
    "edgescope.verbs": {"crooked": "edgescope_example:BACKEND"},
    "edgescope.metrics": {"no_table": "edgescope_example:DEVICE"},
    "edgescope.backends": {"openvino": "edgescope_example:BACKEND", "bad": "broken_plugin:BACKEND"},
    "edgescope.devices": {"gone": "edgescope_example:NOTHING"},
}


@pytest.mark.slow
def test_a_broken_plugin_is_named_and_breaks_nothing(example, tmp_path):
    shutil.rmtree(example / "edgescope_example-0.1.0.dist-info")
    installed(example, BAD)
    rows = listed(example)
    bad = {row["name"]: row["reason"] for row in rows if "edgescope-example" in row["summary"]}
    assert bad == {
        "openvino": "openvino is the name of a built-in member",
        "bad": "RuntimeError: it does not start",
    }
    assert sum(row["name"] == "openvino" and row["available"] for row in rows) == 1
    missing = json.loads(edgescope(example, "doctor", "--json").stdout)["missing"]
    assert {f["text"].split()[-1] for f in missing if f["code"] == "E-PLUGIN-1"} == {
        "openvino",
        "bad",
        "gone",
        "crooked",
        "no_table",
    }
    done = edgescope(example, "bench", "null", "--backend", "bad", "--store", str(tmp_path / "store"))
    assert (
        done.returncode != 0
        and "E-PLUGIN-1" in done.stderr
        and "it does not start" in " ".join(done.stderr.split())
    )
    words = ("null", "--backend", "null", "--max-queries", "200", "--store", str(tmp_path / "store"))
    done = edgescope(example, "bench", *words)
    assert "null fp32" in done.stdout and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("target", "whole"), [("edgescope.cli.bench", True), ("edgescope.backends.base:NullBackend", False)]
)
def test_a_verbs_member_configures_and_runs(target, whole):
    if whole:
        assert registry._commands(Entry(target)).run
    else:
        with pytest.raises(AttributeError, match="configure"):
            registry._commands(Entry(target))


def family(monkeypatch, **points):
    found = [EntryPoint(name, value, "g") for name, value in points.items()]
    monkeypatch.setattr(registry, "_entry_points", lambda group: found)
    return Family("g", {"here": Entry("edgescope.backends.base:NullBackend")})


ENTRY = Entry("no_such_package:Engine", "pip install it")
CRASH = Entry("crashing_engine:Engine")
TWICE = [EntryPoint("twice", f"{__name__}:ENTRY", "g"), EntryPoint("twice", f"{__name__}:CRASH", "g")]


def test_plugins_come_after_what_is_built_in(monkeypatch):
    found = family(monkeypatch, more=f"{__name__}:ENTRY")
    assert list(found) == ["here", "more"] and len(found) == 2 and found["more"] is ENTRY
    assert not found.broken
    with pytest.raises(UnavailableError, match=r"E-NAME-2.*Try: pip install it"):
        registry.load(found, "more", "backend")
    with pytest.raises(UsageError, match="known: here, more"):
        registry.load(found, "nothing", "backend")


def test_the_first_of_two_plugins_with_a_name_is_kept(monkeypatch):
    monkeypatch.setattr(registry, "_entry_points", lambda group: TWICE)
    found = Family("g", {})
    assert found["twice"] is ENTRY
    assert [b.why for b in found.broken] == ["another package has added twice"]


def test_an_entry_point_names_an_entry(monkeypatch):
    (found,) = family(monkeypatch, odd=f"{__name__}:NET").broken
    assert f"{__name__}:NET is a str" in found.why


def test_an_engine_of_a_plugin_may_raise_anything_while_it_is_imported(monkeypatch, tmp_path):
    (tmp_path / "crashing_engine.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    found = family(monkeypatch, crash=f"{__name__}:CRASH")
    with pytest.raises(UnavailableError, match=r"E-PLUGIN-2.*ZeroDivisionError"):
        registry.load(found, "crash", "backend")


def test_a_device_that_cannot_be_made_is_left_out(monkeypatch):
    family(monkeypatch, crash=f"{__name__}:ENTRY")
    check = registry.DEVICES._check
    found = Family("g", {}, check)
    assert not list(found) and "no_such_package" in found.broken[0].why


def test_a_built_in_name_asks_nobody(monkeypatch):
    def asked(group):
        raise AssertionError("the installed packages were read")

    monkeypatch.setattr(registry, "_entry_points", asked)
    found = Family("g", {"here": ENTRY})
    assert "here" in found and registry.entry(found, "here", "backend") is ENTRY


def test_a_kind_of_model_is_named_alone_or_before_a_colon(monkeypatch):
    monkeypatch.setattr(registry, "_entry_points", lambda group: [EntryPoint("kind", "x:y", group)])
    monkeypatch.setattr(Family, "_checked", lambda self, point, found: ENTRY)
    kinds = Family("edgescope.models", dict(zoo.MODELS._built_in))
    monkeypatch.setattr(zoo, "MODELS", kinds)
    assert zoo._family("kind") == zoo._family("kind:name") == "kind"
    assert zoo._family("other:name") == "callable"


@pytest.mark.parametrize("every", registry.FAMILIES, ids=lambda f: f.group)
def test_without_plugins_a_second_look_costs_nothing(every):
    list(every)
    look = functools.partial(list, every)
    start = time.thread_time()
    for _ in range(100):
        look()
    assert time.thread_time() - start < 0.05
