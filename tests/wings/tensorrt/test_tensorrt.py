"""The backend on fake boards of every version; outputs are real, computed by ONNX Runtime on fake device memory."""

import json
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import data_sets
from edgescope import cache, registry
from edgescope.backends.base import Phased, Spec, Staged
from edgescope.errors import (
    DeviceError,
    SafetyError,
    StoreError,
    UnavailableError,
    UnsupportedError,
    UsageError,
)
from edgescope.wings.tensorrt import engine_file

VERSIONS = ["8.5.2.2", "8.6.1.6", "10.3.0.30", "11.4.1.2"]


def inputs(n=1, seed=0):
    return {"image": np.random.default_rng(seed).normal(0, 1, (n, 3, 12, 12)).astype("float32")}


def truth(model, batch):
    path = model.onnx(Path("unused"))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(batch))[0]


def spec(precision="fp32", batch=1, io="host", **options):
    return Spec(precision, batch, io=io, options=options, device="cuda")


def prepare(board, model, asked):
    return board.backend.TensorRt().prepare(model, asked, cache.folder("artifacts"))


def load(board, model, asked):
    backend = board.backend.TensorRt()
    return backend.load(backend.prepare(model, asked, cache.folder("artifacts")))


def answer(session, batch):
    """What the session says, kept beyond its next call."""
    staged = session.stage(batch)
    return np.array(session.fetch(session(staged))[0])


@pytest.mark.parametrize("io", ["host", "pinned", "device"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_answers_rightly_wherever_the_inputs_lie(board, network, version, io):
    here, model = board(version), network()
    session = load(here, model, spec(io=io))
    assert isinstance(session, Staged)
    assert isinstance(session, Phased)
    for seed in range(3):
        np.testing.assert_allclose(
            answer(session, inputs(seed=seed)), truth(model, inputs(seed=seed)), atol=1e-5
        )
    session.close()
    assert not here.cuda.device
    assert not here.cuda.queues


def test_pinned_memory_goes_back_when_the_session_and_its_outputs_are_gone(board, network):
    here, model = board(), network()
    session = load(here, model, spec())
    outputs = session(inputs())
    assert here.cuda.pinned
    session.close()
    del session, outputs
    assert not here.cuda.pinned


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "int8"])
def test_the_precision_asked_for_is_read_back_from_the_layers(board, network, version, precision):
    session = load(board(version), data_sets.untrained(network()), spec(precision))
    session(inputs())
    effective = session.effective()
    assert (effective.device, effective.precision) == ("cuda", precision)
    assert "Orin (compute capability 8.7)" in effective.evidence
    assert f"TensorRT {version}" in effective.evidence


def test_a_tensorrt_of_numbered_bindings_is_refused_with_the_other_way(board):
    with pytest.raises(ImportError, match=r"TensorRT 8\.4\.1\.5 is too old.*trtexec"):
        board("8.4.1.5")


def test_an_engine_that_chose_another_precision_is_found_out(board, network):
    here, model = board(), network()
    here.trt.precision_done = "Float"
    session = load(here, model, spec("fp16"))
    assert session.effective().precision == "fp32"
    here.trt.names_only = True
    session = load(here, model, spec("fp16", workspace_mb=1))
    assert session.effective().precision == "unknown"


def flags_of(here):
    return {flag.name for flag in here.trt.configs[-1]._flags}


def test_tf32_is_off_for_fp32_and_precision_flags_are_gone_in_11(board, network):
    model = network()
    for version in ("8.5.2.2", "10.3.0.30", "11.4.1.2"):
        here = board(version)
        weak = version != "11.4.1.2"
        for precision, wanted in (("fp32", set()), ("tf32", {"TF32"}), ("fp16", {"FP16"} if weak else set())):
            prepare(here, model, spec(precision))
            assert flags_of(here) == wanted, (version, precision)


def test_workspace_is_all_unless_it_is_limited(board, network):
    model = network()
    new = board("8.5.2.2")
    prepare(new, model, spec())
    assert new.trt.configs[-1]._pools == {}
    prepare(new, model, spec(workspace_mb=64))
    assert new.trt.configs[-1]._pools == {"WORKSPACE": 64 << 20}


@pytest.mark.parametrize(("version", "flag"), [("8.6.1.6", 1), ("10.3.0.30", 0), ("11.4.1.2", 0)])
def test_the_network_is_explicit_batch_where_that_must_be_said(board, network, version, flag):
    here = board(version)
    prepare(here, network(), spec())
    assert here.trt.network_flags == [flag]


def test_an_engine_is_built_once_and_knows_how_long_it_took(board, network):
    here, model = board(), network()
    here.trt.build_s = 0.05
    first = prepare(here, model, spec())
    second = prepare(here, model, spec())
    assert here.trt.builds == 1
    assert first.path == second.path
    assert first.build_s == second.build_s >= 0.05
    facts = engine_file.read(first.path)
    assert facts.profile == {"image": [[1, 3, 12, 12]] * 3}
    assert (facts.program, facts.precision, facts.device) == ("tensorrt", "fp32", "Orin")
    for other in (spec("fp16"), spec(batch=2), spec(workspace_mb=9), spec(builder_level=5)):
        prepare(here, model, other)
    assert here.trt.builds == 5
    load(here, model, spec(graph=True))
    assert here.trt.builds == 5, "launching as a graph needs no engine of its own"


def test_another_board_or_tensorrt_builds_its_own(board, network):
    model = network()
    paths = set()
    for version, capability in (("10.3.0.30", "8.7"), ("10.4.0.26", "8.7"), ("10.3.0.30", "8.6")):
        here = board(version, capability=capability)
        paths.add(prepare(here, model, spec()).path)
        assert here.trt.builds == 1
    assert len(paths) == 3


def test_a_foreign_engine_is_refused_when_it_is_loaded(board, network):
    model = network()
    artifact = prepare(board("8.5.2.2", capability="7.2", name="Xavier"), model, spec())
    with pytest.raises(UnsupportedError, match=r"E-ENG-1.*Xavier.*7\.2.*8\.5\.2\.2.*Orin.*8\.7.*10\.3"):
        board("10.3.0.30").backend.TensorRt().load(artifact)


def test_a_damaged_engine_in_the_cache_is_built_again(board, network):
    here, model = board(), network()
    artifact = prepare(here, model, spec())
    artifact.path.write_bytes(artifact.path.read_bytes()[:-1])
    prepare(here, model, spec())
    assert here.trt.builds == 2


def test_kernel_timings_are_kept_for_the_next_build_of_this_tensorrt(board, network):
    model = network()
    here = board()
    told = [
        prepare(here, model, spec(precision)).notes["engine"]["flags"]["timings"]
        for precision in ("fp32", "fp16")
    ]
    assert told == ["empty", "used"]
    assert here.trt.timed == 1
    kept = sorted(cache.folder("tensorrt").glob("*.cache"))
    assert len(kept) == 1
    assert "10.3.0.30-8.7-Orin" in kept[0].name
    without = prepare(here, model, spec("tf32", timing_cache=False))
    assert "DISABLE_TIMING_CACHE" in flags_of(here)
    assert without.notes["engine"]["flags"]["timings"] == "off"
    kept[0].write_bytes(b"damaged")
    damaged = prepare(here, model, spec("tf32"))
    assert kept[0].read_bytes().startswith(b"timings of 10.3.0.30")
    assert damaged.notes["engine"]["flags"]["timings"] == "empty"


def test_batches_within_the_profile_may_change_from_call_to_call(board, network):
    here, model = board(), network()
    for options in ({}, {"graph": True}):
        session = load(here, model, spec(batch=2, profile_min=1, profile_opt=2, profile_max=4, **options))
        for n in (2, 4, 1, 1, 4):
            np.testing.assert_allclose(session(inputs(n))[0], truth(model, inputs(n)), atol=1e-5)
        with pytest.raises(UsageError, match=r"E-TRT-3.*5x3x12x12.*outside the profile"):
            session(inputs(5))
        np.testing.assert_allclose(session(inputs(2))[0], truth(model, inputs(2)), atol=1e-5)
        session.close()
    assert not here.cuda.executables


@pytest.mark.parametrize("io", ["host", "device"])
@pytest.mark.parametrize("version", ["8.5.2.2", "10.3.0.30"])
@pytest.mark.parametrize("cuda", [10020, 11040, 13000])
def test_a_graph_is_captured_once_and_launched_from_then_on(board, network, version, io, cuda):
    here, model = board(version, runtime=cuda), network()
    session = load(here, model, spec(io=io, graph=True))
    batch = session.stage(inputs(seed=1))
    for _ in range(3):
        np.testing.assert_allclose(session.fetch(session(batch))[0], truth(model, inputs(seed=1)), atol=1e-5)
    assert here.cuda.calls["cudaStreamBeginCapture"] == 1
    assert here.cuda.calls["cudaGraphLaunch"] == 2
    assert "CUDA graph" in session.effective().evidence
    np.testing.assert_allclose(answer(session, inputs(seed=2)), truth(model, inputs(seed=2)), atol=1e-5)
    session.close()
    assert not here.cuda.executables
    assert not here.cuda.graphs


def test_device_inputs_beyond_the_graphs_kept_are_still_answered(board, network):
    here, model = board(), network()
    session = load(here, model, spec(io="device", graph=True))
    staged = [session.stage(inputs(seed=i)) for i in range(20)]
    for i, batch in enumerate(staged):
        np.testing.assert_allclose(session.fetch(session(batch))[0], truth(model, inputs(seed=i)), atol=1e-5)
    assert len(here.cuda.executables) <= 16


def test_an_engine_that_cannot_be_captured_is_refused_and_leaves_the_stream_usable(board, network):
    here, model = board(), network()
    here.trt.uncapturable = True
    session = load(here, model, spec(graph=True))
    with pytest.raises(UnsupportedError, match=r"E-TRT-11.*graph=false"):
        session(inputs())
    assert not here.cuda.capturing
    session.close()


def test_phases_come_from_device_events(board, network):
    here, model = board(), network()
    session = load(here, model, spec())
    session(inputs())
    phases = session.phases(inputs())
    assert min(phases.h2d_ns, phases.compute_ns, phases.d2h_ns, phases.enqueue_ns) > 0
    assert phases.h2d_ns + phases.compute_ns + phases.d2h_ns <= phases.latency_ns
    assert phases.enqueue_ns < phases.latency_ns
    session.close()
    assert not here.cuda.events
    on_device = load(here, model, spec(io="device"))
    phases = on_device.phases(on_device.stage(inputs()))
    assert phases.compute_ns > 0


def test_enqueue_is_the_compute_call_alone(board, network, monkeypatch):
    """Slow copies and a slow filling of pinned memory must not be in it, a slow enqueue must."""
    here, model = board(), network()
    session = load(here, model, spec())
    session(inputs())
    lane = session.idle[0]

    def slow(wrapped):
        def call(*arguments):
            time.sleep(0.03)
            return wrapped(*arguments)

        return call

    monkeypatch.setattr(lane.cuda, "to_device", slow(lane.cuda.to_device))
    monkeypatch.setattr(lane.cuda, "to_host", slow(lane.cuda.to_host))
    monkeypatch.setattr(lane.cuda, "record", slow(lane.cuda.record))
    assert session.phases(inputs()).enqueue_ns < 25_000_000
    monkeypatch.setattr(lane.io, "enqueue", slow(lane.io.enqueue))
    assert session.phases(inputs()).enqueue_ns >= 30_000_000
    session.close()


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_precision_without_kernels_is_refused_before_anything_is_exported(board, network, precision):
    here, model = board("8.5.2.2", name="NVIDIA Tegra X1", capability="5.3"), network()
    here.trt.fast[precision] = False
    with pytest.raises(
        UnsupportedError, match=rf"E-PREC-1.*no {precision} on this board \(NVIDIA Tegra X1\)"
    ):
        prepare(here, model, spec(precision))
    assert here.trt.builds == 0
    assert not list(cache.folder("artifacts").iterdir())
    prepare(here, model, spec("fp32"))


def test_what_tensorrt_is_not_asked_for_is_refused(board, network):
    here, model = board(), network()
    with pytest.raises(UnsupportedError, match=r"E-PREC-1.*bf16"):
        prepare(here, model, spec("bf16"))
    with pytest.raises(UnsupportedError, match="E-TRT-1"):
        prepare(here, model, Spec(device="cpu"))


def test_a_dla_core_shares_the_work_with_the_gpu_and_says_how_much(board, network):
    here, model = board("8.5.2.2"), network()
    here.trt.dla_cores = 2
    session = load(here, model, spec("fp16", dla=1))
    assert "GPU_FALLBACK" in flags_of(here)
    assert here.trt.runtime_dla[-1] == 1
    effective = session.effective()
    assert (effective.device, effective.precision) == ("cuda", "fp16")
    assert "1 subgraphs on the DLA, 2 of 4 ONNX nodes" in effective.evidence
    with pytest.raises(UnsupportedError, match=r"E-TRT-13.*DLA core 2"):
        prepare(here, model, spec("fp16", dla=2))
    with pytest.raises(UnsupportedError, match=r"E-PREC-1.*DLA"):
        prepare(here, model, spec("fp32", dla=0))
    with pytest.raises(UnsupportedError, match="E-TRT-13"):
        prepare(board("11.4.1.2"), model, spec("fp16", dla=0))


@pytest.mark.parametrize("version", ["8.5.2.2", "10.3.0.30"])
def test_an_unknown_operator_is_named_with_its_node_and_opset(board, network, version):
    here, model = board(version), network(relu="Softplus")
    here.trt.unsupported.add("Softplus")
    with pytest.raises(UnsupportedError) as caught:
        prepare(here, model, spec())
    text = str(caught.value)
    assert caught.value.code == "E-TRT-2"
    for part in ("node act1 (Softplus)", "No importer", "opset 13", version):
        assert part in text


def test_a_file_of_a_later_opset_is_refused_by_an_old_tensorrt(board, network):
    with pytest.raises(UnsupportedError, match=r"E-TRT-2.*opset 18 is newer than 17"):
        prepare(board("8.5.2.2"), network(opset=18), spec())


def test_a_closed_batch_is_taken_as_it_is(board, network):
    here, model = board(), network(batch=2)
    session = load(here, model, spec(batch=2))
    np.testing.assert_allclose(session(inputs(2))[0], truth(model, inputs(2)), atol=1e-5)
    with pytest.raises(UsageError, match=r"E-TRT-3.*--batch 2"):
        prepare(here, model, spec(batch=3))


@pytest.mark.parametrize(
    ("said", "error", "code"),
    [
        ("Could not find any implementation for node conv1", DeviceError, "E-TRT-4"),
        ("Requested amount of GPU memory could not be allocated: out of memory", SafetyError, "E-TRT-6"),
    ],
)
def test_a_build_that_fails_says_what_tensorrt_said_and_leaves_nothing(board, network, said, error, code):
    here, model = board(), network()
    here.trt.fail = said
    with pytest.raises(error, match=rf"{code}.*{said[:30]}"):
        prepare(here, model, spec())
    assert not list(cache.folder("artifacts").glob("*.engine*"))


def test_a_full_disk_during_a_build_leaves_nothing(board, network, monkeypatch):
    here, model = board(), network()
    write = Path.write_bytes

    def full(self, data):
        if self.suffix == ".engine":
            write(self, data[:10])
            raise OSError(28, "No space left on device")
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StoreError, match=r"E-CACHE-2.*No space left"):
        prepare(here, model, spec())
    assert not list(cache.folder("artifacts").glob("*"))


def test_a_long_build_gives_signs_of_life(board, network, monkeypatch, capsys):
    here, model = board(), network()
    here.trt.build_s = 0.3
    monkeypatch.setattr(here.part("build"), "EVERY_S", 0.05)
    prepare(here, model, spec())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 3
    assert "tensorrt 10.3.0.30: building small-13-N-Relu" in lines[0]
    assert threading.active_count() < 10


def test_a_build_can_be_given_a_limit_where_tensorrt_can_be_stopped(board, network):
    here, model = board(), network()
    here.trt.build_s = 30
    start = time.monotonic()
    with pytest.raises(DeviceError, match=r"E-TRT-5.*within 1 s"):
        prepare(here, model, spec(build_timeout=1))
    assert time.monotonic() - start < 15
    with pytest.raises(UnsupportedError, match=r"E-TRT-16.*build_timeout.*--timeout"):
        prepare(board("8.6.1.6"), model, spec(build_timeout=1))
    with pytest.raises(UnsupportedError, match=r"E-TRT-16.*builder_level"):
        prepare(board("8.5.2.2"), model, spec(builder_level=1))


@pytest.mark.parametrize(
    "options",
    [
        {"workspace_mb": 0},
        {"workspace_mb": "much"},
        {"dla": -1},
        {"dla": True},
        {"graph": 1},
        {"timing_cache": "yes"},
        {"profile_max": 1, "profile_opt": 2},
        {"profile_min": 2, "profile_max": 4},
        {"unheard_of": 1},
    ],
)
def test_wrong_options_are_usage_errors(board, network, options):
    with pytest.raises(UsageError, match=r"E-OPT|E-TRT-15"):
        prepare(board(), network(), spec(**options))


@pytest.mark.parametrize("version", ["8.6.1.6", "10.3.0.30", "11.4.1.2"])
def test_queries_in_flight_do_not_share_memory(board, network, version):
    model = network()
    session = load(board(version), model, spec())
    with session._borrowed() as first:  # a query in flight
        mine = first(inputs(seed=1))
        theirs = session(inputs(seed=2))
        assert session.idle[0] is not first
        np.testing.assert_allclose(mine[0], truth(model, inputs(seed=1)), atol=1e-4)
        np.testing.assert_allclose(theirs[0], truth(model, inputs(seed=2)), atol=1e-4)
    session.close()


def test_lanes_are_opened_beforehand(board, network):
    session = load(board("10.3.0.30"), network(), spec())
    session.lanes(3, inputs())
    lanes = list(session.idle)
    assert len({lane.stream for lane in lanes}) == 3
    session(inputs())
    assert sorted(map(id, session.idle)) == sorted(map(id, lanes))
    session.close()


def test_before_8_6_a_second_query_in_flight_is_refused_with_the_way_out(board, network):
    session = load(board("8.5.2.2"), network(), spec())
    with session._borrowed(), pytest.raises(UnsupportedError, match=r"E-TRT-14.*Profile 0.*--in-flight 1"):
        session(inputs())


def test_what_one_board_can_do_is_not_believed_of_another(board, network):
    """Same compute capability, same TensorRT: an Orin Nano has no DLA, an AGX Orin has two."""
    model = network()
    nano = board("8.5.2.2", name="Orin (Orin Nano)")
    with pytest.raises(UnsupportedError, match="E-TRT-13"):
        prepare(nano, model, spec("fp16", dla=0))
    agx = board("8.5.2.2", name="Orin (AGX Orin)")
    agx.trt.dla_cores = 2
    artifact = prepare(agx, model, spec("fp16", dla=0))
    assert artifact.notes["engine"]["flags"]["timings"] == "empty"
    with pytest.raises(UnsupportedError, match=r"E-ENG-1.*AGX Orin.*Orin Nano"):
        board("8.5.2.2", name="Orin (Orin Nano)").backend.TensorRt().load(artifact)


def test_tf32_needs_ampere(board, network):
    here = board("8.5.2.2", capability="7.2", name="Xavier")
    with pytest.raises(UnsupportedError, match=r"E-PREC-1.*no tf32.*8\.0.*7\.2"):
        prepare(here, network(), spec("tf32"))
    assert here.trt.builds == 0


def test_cuda_errors_are_named(board, network):
    here, model = board(), network()
    session = load(here, model, spec())
    here.cuda.failing["cudaMemcpyAsync"] = 1
    with pytest.raises(DeviceError, match=r"E-CUDART-1.*cudaMemcpyAsync.*cudaErrorInvalidValue"):
        session(inputs())
    here.cuda.failing.clear()
    here.cuda.failing["cudaMalloc"] = 2
    with pytest.raises(SafetyError, match=r"E-CUDART-2.*cudaErrorMemoryAllocation"):
        load(here, model, spec())(inputs())


def test_a_plan_that_tensorrt_cannot_load_is_an_error_with_a_fix(board, network):
    here, model = board(), network()
    artifact = prepare(here, model, spec())
    head, _, body = artifact.path.read_bytes().partition(b"\n")
    told = json.loads(head) | {"version": "10.2.0.1"}
    engine_file.write(
        artifact.path, json.dumps(told).encode() + b"\n" + body, engine_file.read(artifact.path)
    )
    with pytest.raises(DeviceError, match=r"E-TRT-12.*not compatible.*rm "):
        here.backend.TensorRt().load(artifact)


def test_an_empty_namespace_package_is_not_tensorrt(board, monkeypatch, tmp_path):
    for name in ("tensorrt_rtx", "tensorrt_rtx_bindings"):
        monkeypatch.setitem(sys.modules, name, None)
    board()
    board.forget()
    monkeypatch.delitem(sys.modules, "tensorrt")
    (tmp_path / "empty" / "tensorrt").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "empty"), *(p for p in sys.path if "tensorrt" not in p)])
    with pytest.raises(UnavailableError, match=r"E-NAME-2.*is not TensorRT.*pip install tensorrt"):
        registry.load(registry.BACKENDS, "tensorrt", "backend")


def test_tensorrt_7_is_too_old(board):
    with pytest.raises(ImportError, match=r"7\.1\.3\.0 is too old"):
        board("7.1.3.0")
