"""Which engines are taken, which are refused, and that a full disk leaves nothing."""

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope import cache
from edgescope.errors import StoreError, UnsupportedError
from edgescope.wings.tensorrt import engine_file
from edgescope.wings.tensorrt.engine_file import EngineFacts

FACTS = EngineFacts(
    model="resnet50",
    onnx_sha256="a" * 64,
    tensorrt="10.3.0.30",
    compute_capability="8.7",
    program="tensorrt",
    precision="fp16",
    device="Orin",
    flags={"workspace_mb": 512},
    profile={"input": [[1, 3, 8, 8], [4, 3, 8, 8], [8, 3, 8, 8]]},
    build_s=12.5,
)
HERE = {"tensorrt": "10.3.0.30", "compute_capability": "8.7"}


@pytest.fixture
def engine(tmp_path):
    path = tmp_path / engine_file.key(FACTS)
    engine_file.write(path, b"an engine", FACTS)
    return path


def test_what_was_written_is_read_back_and_taken_here(engine):
    facts = engine_file.check(engine, **HERE)
    assert (facts.bytes, facts.build_s, facts.flags) == (9, 12.5, {"workspace_mb": 512})
    assert facts.built_at
    assert engine_file.sidecar(engine).name == f"{engine.name}.json"


@pytest.mark.parametrize(
    ("built", "here", "taken"),
    [
        ("10.3.0.30", "10.3.0", True),
        ("8.2.1", "8.2.1.8", True),
        ("8.2.1.8", "8.2.1.9", False),
        ("8.2.1", "8.2.2", False),
        ("8.2", "8.2", False),
    ],
)
def test_versions_must_agree_in_every_part_both_name(tmp_path, built, here, taken):
    path = tmp_path / "m.engine"
    engine_file.write(path, b"x", replace(FACTS, tensorrt=built))
    found = engine_file.cached(path, tensorrt=here, compute_capability="8.7")
    assert (found is not None) == taken


def test_a_foreign_engine_is_refused_with_both_boards_and_the_command(engine):
    with pytest.raises(UnsupportedError) as caught:
        engine_file.check(engine, tensorrt="8.2.1.8", compute_capability="5.3")
    text = str(caught.value)
    assert caught.value.code == "E-ENG-1"
    for part in ("8.7", "10.3.0.30", "5.3", "8.2.1.8", "Orin"):
        assert part in text
    assert "edgescope bench resnet50 --backend tensorrt --device cuda --precision fp16 --batch 4" in text


@pytest.mark.parametrize(
    ("built", "here", "taken"),
    [
        ("Orin (Orin Nano)", "Orin (AGX Orin)", False),
        ("Orin", "Orin", True),
        ("", "Orin", True),
        ("Orin", "", True),
    ],
)
def test_gpus_of_one_compute_capability_are_told_apart_by_name(tmp_path, built, here, taken):
    path = tmp_path / "m.engine"
    engine_file.write(path, b"x", replace(FACTS, device=built))
    assert (engine_file.cached(path, **HERE, device=here) is not None) == taken
    if not taken:
        with pytest.raises(UnsupportedError, match=r"E-ENG-1.*Orin Nano.*AGX Orin"):
            engine_file.check(path, **HERE, device=here)


def test_a_gpu_has_its_boards_name_where_a_device_tree_tells(tmp_path):
    assert engine_file.gpu("Orin", tmp_path) == "Orin"
    tree = tmp_path / "proc/device-tree"
    tree.mkdir(parents=True)
    (tree / "model").write_bytes(b"NVIDIA Jetson AGX Orin\0")
    assert engine_file.gpu("Orin", tmp_path) == "Orin (NVIDIA Jetson AGX Orin)"
    assert engine_file.gpu("", tmp_path) == ""


def test_no_engine_no_sidecar_and_a_damaged_engine_are_refused(engine, tmp_path):
    bare = tmp_path / "bare.engine"
    for make in (lambda: None, lambda: bare.write_bytes(b"an engine")):
        make()
        with pytest.raises(UnsupportedError, match="E-ENG-2"):
            engine_file.check(bare, **HERE)
    engine.write_bytes(b"an engjne")
    with pytest.raises(UnsupportedError, match=r"E-ENG-2: .*not the "):
        engine_file.check(engine, **HERE)
    assert engine_file.cached(engine, **HERE) is None


def test_the_header_that_ultralytics_writes_is_named(engine):
    header = json.dumps({"author": "Ultralytics", "task": "detect"}).encode()
    engine.write_bytes(len(header).to_bytes(4, "little") + header + b"an engine")
    with pytest.raises(UnsupportedError, match=r"E-ENG-2.*header.*Ultralytics"):
        engine_file.read(engine)


@given(st.binary(max_size=64))
def test_any_bytes_are_an_engine_or_a_header_but_never_a_crash(tmp_path, content):
    path = tmp_path / "any.engine"
    path.write_bytes(content)
    assert engine_file.foreign_header(path) is None or content[4:5] == b"{"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["model", "tensorrt", "profile", "bytes", "sha256", "flags", "later"])


@given(st.dictionaries(NAMES, JSON) | JSON)
@settings(max_examples=50)
@pytest.mark.slow
def test_a_sidecar_of_anything_is_refused_not_a_crash(tmp_path, told):
    path = tmp_path / "any.engine"
    path.write_bytes(b"x")
    engine_file.sidecar(path).write_text(json.dumps(told))
    with pytest.raises(UnsupportedError, match="E-ENG-2"):
        engine_file.check(path, **HERE)


def test_a_sidecar_of_a_later_version_is_still_read(engine):
    side = engine_file.sidecar(engine)
    side.write_text(json.dumps(json.loads(side.read_text()) | {"later": 1}))
    assert engine_file.read(engine).model == "resnet50"


def test_the_key_depends_on_the_question_and_the_board_and_on_nothing_else():
    keys = {
        engine_file.key(replace(FACTS, **{name: value}))
        for name, value in {
            "onnx_sha256": "b" * 64,
            "tensorrt": "10.4.0.1",
            "compute_capability": "8.6",
            "precision": "int8",
            "program": "trtexec",
            "flags": {},
            "profile": {},
        }.items()
    }
    assert len(keys | {engine_file.key(FACTS)}) == 8
    assert engine_file.key(replace(FACTS, build_s=1.0, built_at="now", bytes=3)) == engine_file.key(FACTS)


@pytest.mark.parametrize("full_at", ["engine", "sidecar"])
def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch, full_at):
    path = tmp_path / "m.engine"
    write_bytes = Path.write_bytes

    def full(self, data):
        if (self.suffix == ".json") == (full_at == "sidecar"):
            write_bytes(self, data[:3])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_bytes(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StoreError, match=r"E-CACHE-2.*No space left"):
        engine_file.write(path, b"an engine", FACTS)
    assert list(tmp_path.iterdir()) == []


def test_read_json_of_the_cache_is_what_the_sidecar_holds(engine):
    assert cache.read_json(engine_file.sidecar(engine))["program"] == "tensorrt"
