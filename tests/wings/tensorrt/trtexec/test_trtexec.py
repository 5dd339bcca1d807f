"""The backend whole, through bench.run, on programs that behave as trtexec of each version does.

What ran here is a stand-in, never TensorRT: these tests show that questions, commands, files and numbers fit together.
"""

import errno
import shutil
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from fake_trtexec import VERSIONS

from edgescope import bench, cache, registry
from edgescope.backends.base import Backend, SelfDriven, Spec, spec_of
from edgescope.devices.base import NullDevice
from edgescope.errors import EdgescopeError, SettingError, StoreError, UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.records import Absent, Measured, Status, Trial
from edgescope.wings.tensorrt import engine_file
from edgescope.wings.tensorrt.trtexec import build

QUICK = {"warmup": 0.02, "min_s": 0.05, "max_s": 0.05}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Engines of one test are not those of another."""
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))


def trial(network, program, **keys):
    options = {"program": str(program), "gate_batch": 32} | keys.pop("options", {})
    return Trial(model=str(network), backend="trtexec", device="cuda", options=options, **(QUICK | keys))


def run(*args, **keys):
    return bench.run(trial(*args, **keys), hz=0, devices={"null": NullDevice()})


def prepare(network, program, precision="fp32", **options):
    backend = registry.load(registry.BACKENDS, "trtexec", "backend")()
    spec = Spec(precision, device="cuda", options={"program": str(program)} | options)
    return backend, backend.prepare(zoo.get(str(network)), spec, cache.folder("artifacts"))


def drive(network, program, **keys):
    """Prepare and drive without the gate; return (artifact, what it did)."""
    asked = trial(network, program, **keys)
    backend = registry.load(registry.BACKENDS, "trtexec", "backend")()
    artifact = backend.prepare(zoo.get(str(network)), spec_of(asked), cache.folder("artifacts"))
    return artifact, backend.drive(artifact, asked)[0]


def has(result, code):
    return any(w.code == code for w in result.warnings)


def command(driven):
    return driven.notes["command"]


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_trial_in_every_version(network, trtexec, version):
    result = run(network, trtexec(version))
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    assert result.driver == "external"
    assert result.verification.passed
    assert result.verification.method == "centred_l2"
    assert (result.effective.device, result.effective.precision) == ("cuda", "fp32")
    assert result.metrics["throughput_sps"].value > 0
    assert result.metrics["latency_p50_s"].value > 0
    assert result.metrics["gpu_compute_s"].unit == "s"
    assert result.metrics["build_s"].value == 1.25
    assert result.metrics["load_s"].value == (0.25 if version < "8400" and len(version) == 4 else 0.375)
    assert isinstance(result.metrics["first_s"], Absent)
    assert result.metrics["peak_rss_bytes"].value > 10_000_000
    notes = result.artifact["program"]
    assert notes["clock_uncertainty_ns"] < 1_000_000_000
    assert has(result, "W-TRTX-9")  # io host, and trtexec copies from pinned memory
    assert not has(result, "W-TRTX-5")  # our throughput is that which it printed
    assert has(result, "W-TRTX-6") == (version in ("8001", "8201"))


@pytest.mark.slow
def test_a_warm_up_that_old_versions_export_is_kept_out_of_the_window(network, trtexec):
    old, new = (drive(network, trtexec(version))[1] for version in ("8201", "8601"))
    assert old.window.first > 0
    assert new.window.first == 0
    assert len(old.queries) == old.window.stop


@pytest.mark.slow
def test_single_stream_queries_one_at_a_time_and_offline_runs_ahead(network, trtexec):
    program = trtexec("100300")
    single, offline = (drive(network, program, scenario=name)[1] for name in ("single_stream", "offline"))
    assert "--exposeDMA" in command(single)
    assert "--exposeDMA" not in command(offline)
    issued, done = (single.queries.columns[name] for name in ("issued_ns", "done_ns"))
    assert (issued[1:] >= done[:-1] - 2_000).all()  # to the printed microsecond
    assert not has(offline, "W-TRTX-7")


@pytest.mark.slow
def test_running_ahead_in_single_stream_is_said(network, trtexec):
    _, found = drive(network, trtexec("100300"), options={"ahead": True})
    assert has(found, "W-TRTX-7")
    assert "--exposeDMA" not in command(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "with_copies"), [("8502", set()), ("110100", {"--includeDataTransfers"})]
)
def test_io_decides_about_the_transfers(network, trtexec, version, with_copies):
    program = trtexec(version)
    pinned, device = (drive(network, program, io=io)[1] for io in ("pinned", "device"))
    assert with_copies <= set(command(pinned))
    assert "--noDataTransfers" not in command(pinned)
    assert "--includeDataTransfers" not in command(device)
    assert "--noDataTransfers" in command(device)
    assert isinstance(pinned.facts["h2d_s"], Measured)
    assert isinstance(device.facts["h2d_s"], Absent)
    assert not has(pinned, "W-TRTX-9")  # only under the name `host` is it worth a word


@pytest.mark.slow
def test_what_the_trial_asks_for_reaches_the_program(network, trtexec):
    asked = {"graph": True, "spin": True, "workspace": 256, "profile": True}
    artifact, found = drive(network, trtexec("8601"), max_queries=20, in_flight=2, batch=2, options=asked)
    said = command(found)
    assert {"--useCudaGraph", "--useSpinWait", "--iterations=20", "--duration=0", "--infStreams=2"} <= set(
        said
    )
    assert "--shapes=x:2x3x16x16" in said
    assert has(found, "W-TRTX-8")
    made = artifact.notes["made"]["flags"]["flags"]
    assert {"--memPoolSize=workspace:256", "--minShapes=x:2x3x16x16", "--maxShapes=x:32x3x16x16"} <= set(made)
    assert found.notes["layer_profile"]["layers"][0]["mean_s"] == 0.001
    assert found.answer_rows == 32
    assert len(found.queries.rows(found.window)) == 20
    assert (found.queries.columns["samples"] == 2).all()


@pytest.mark.slow
def test_the_engine_is_built_once_and_its_sidecar_says_how(network, trtexec):
    program = trtexec("100300")
    _, first = prepare(network, program, "fp16")
    stamp = first.path.stat().st_mtime_ns
    _, again = prepare(network, program, "fp16")
    assert (again.path, again.path.stat().st_mtime_ns) == (first.path, stamp)
    facts = engine_file.read(first.path)
    assert (facts.tensorrt, facts.compute_capability, facts.precision) == ("10.3.0.26", "8.7", "fp16")
    assert facts.build_s == 1.25
    assert facts.profile == {"x": [[1, 3, 16, 16]] * 3}
    assert "--fp16" in facts.flags["flags"]
    assert prepare(network, program, "fp32")[1].path != first.path
    assert prepare(network, program, "fp16", workspace=64)[1].path != first.path


@pytest.mark.slow
def test_a_later_build_reuses_the_timing_cache_and_says_so(network, trtexec):
    program = trtexec("8601")

    def timings(precision="fp32", **options):
        return prepare(network, program, precision, **options)[1].notes["made"]["flags"]["timings"]

    assert [timings(), timings("fp16")] == ["empty", "used"]
    assert timings("fp16", timing_cache=False) == "off"  # an engine of its own, not the one above
    assert timings("fp16") == "used"


@pytest.mark.process
def test_weights_beside_the_onnx_file_are_in_the_key(network, trtexec):
    """Their hash is in the model's digest, not in the ONNX file's."""
    program = trtexec("8601")
    backend, first = prepare(network, program)
    spec = first.spec
    model = zoo.get(str(network))
    model.info = replace(model.info, digest="other weights")
    assert backend.prepare(model, spec, cache.folder("artifacts")).path != first.path


@pytest.mark.process
def test_int8_is_not_built_for_a_nano(network, trtexec):
    with pytest.raises(UnsupportedError, match=r"E-PREC-1.*no int8.*5\.3"):
        prepare(network, trtexec("8201", capability="5.3"), "int8")
    assert not list(cache.folder("artifacts").iterdir())


@pytest.mark.process
def test_tf32_needs_ampere(network, trtexec):
    with pytest.raises(UnsupportedError, match=r"E-PREC-1.*no tf32.*8\.0.*5\.3"):
        prepare(network, trtexec("8201", capability="5.3"), "tf32")


def pinned(path):
    return f"{path}#{cache.content(path)[:12]}"


@pytest.mark.process
def test_a_given_engine_must_be_the_pinned_one(network, trtexec):
    program = trtexec("8201")
    _, artifact = prepare(network, program)
    with pytest.raises(UsageError, match=rf"E-TRTX-16.*not pinned.*engine={pinned(artifact.path)}"):
        prepare(network, program, engine=str(artifact.path))
    with pytest.raises(UsageError, match=r"E-TRTX-16.*planned 0123456789ab"):
        prepare(network, program, engine=f"{artifact.path}#0123456789ab")


@pytest.mark.process
def test_a_given_engine_must_be_of_this_precision_and_model(network, trtexec):
    program = trtexec("8201")
    backend, half = prepare(network, program, "fp16")
    with pytest.raises(UnsupportedError, match=r"E-TRTX-17.*in fp16.*--precision fp16"):
        prepare(network, program, "fp32", engine=pinned(half.path))
    model = zoo.get(str(network))
    model.info = replace(model.info, digest="another model")
    spec = Spec("fp16", device="cuda", options={"program": str(program), "engine": pinned(half.path)})
    with pytest.raises(UnsupportedError, match=r"E-TRTX-17.*another model"):
        backend.prepare(model, spec, cache.folder("artifacts"))


@pytest.mark.slow
def test_the_build_of_a_given_engine_is_not_this_trials(network, trtexec):
    program = trtexec("8601")
    built = prepare(network, program)[1]
    _, found = drive(network, program, options={"engine": pinned(built.path)})
    assert isinstance(found.facts["build_s"], Absent)
    assert built.build_s == 1.25


@pytest.mark.slow
def test_its_latency_is_said_to_lack_the_hosts_work(network, trtexec):
    program = trtexec("100300")
    single, offline = (drive(network, program, scenario=name)[1] for name in ("single_stream", "offline"))
    assert has(single, "W-TRTX-10")
    assert not has(offline, "W-TRTX-10")
    period, latency = single.facts["query_period_s"], single.facts["device_latency_s"]
    assert period.value > latency.value
    assert isinstance(offline.facts["query_period_s"], Absent)


@pytest.mark.slow
@pytest.mark.parametrize(("version", "options"), [("8601", {}), ("100300", {"typed": True}), ("110100", {})])
def test_fp16_by_flag_or_by_the_types_of_the_file(network, trtexec, version, options):
    artifact, found = drive(network, trtexec(version), precision="fp16", options=options)
    assert found.effective.precision == "fp16"
    assert ("--fp16" in artifact.notes["made"]["flags"]["flags"]) == (version == "8601")
    assert ("-fp16-" in artifact.notes["onnx"]) == (version != "8601")


@pytest.mark.slow
def test_fp16_that_the_builder_did_not_choose_is_no_fp16(network, trtexec):
    result = run(network, trtexec("8601", "fp32_anyway"), precision="fp16")
    assert result.status is Status.FAILED
    assert "E-RAN-2" in str(result.reason)


@pytest.mark.process
@pytest.mark.parametrize(("version", "options"), [("8201", {}), ("110100", {})])
def test_bf16_is_refused_where_it_cannot_be_had(network, trtexec, version, options):
    with pytest.raises(UnsupportedError, match="E-PREC-1"):
        prepare(network, trtexec(version), "bf16", **options)


@pytest.mark.parametrize(("version", "opset"), [("8201", 13), ("8601", 17), ("100300", None)])
@pytest.mark.slow
def test_the_onnx_file_is_one_that_this_tensorrt_reads(network, trtexec, monkeypatch, version, opset):
    asked = []
    monkeypatch.setattr(
        build, "onnx_file", lambda model, *rest, **keys: asked.append((*rest[:1], keys)) or network
    )
    prepare(network, trtexec(version), "int8")
    prepare(network, trtexec(version), "tf32")
    assert asked == [(name, {"qdq": "s8s8", "opset": opset}) for name in ("int8", "fp32")]


@pytest.mark.process
def test_a_file_that_is_too_new_is_refused_before_the_build(network, trtexec, monkeypatch):
    monkeypatch.setattr(build.cache, "notes", lambda path: {"opset": 18})
    with pytest.raises(UnsupportedError, match=r"E-TRTX-3: .*opset 13, .*opset 18"):
        prepare(network, trtexec("8201"))


FAULTS = {
    "node": (Status.UNSUPPORTED, "E-TRTX-3", "Erf"),
    "memory": (Status.OOM, "E-TRTX-10", "out of memory"),
    "killed": (Status.OOM, "E-TRTX-10", "SIGKILL"),
    "truncated": (Status.FAILED, "E-TRTX-4", "times.json"),
}


@pytest.mark.process
@pytest.mark.parametrize("version", ["8201", "100300"])
@pytest.mark.parametrize("fault", FAULTS)
def test_failures_are_named(network, trtexec, fault, version):
    status, code, words = FAULTS[fault]
    result = run(network, trtexec(version, fault))
    assert result.status is status
    assert code in str(result.reason)
    assert words in str(result.reason)
    assert "Try:" in str(result.reason)
    if fault == "node":
        assert "opset 13" in str(result.reason)
    if fault != "truncated":
        assert not list(cache.folder("artifacts").glob("*"))


@pytest.mark.slow
def test_a_gpu_without_fast_fp16_is_told_from_a_warning(network, trtexec):
    with pytest.raises(UnsupportedError, match="no fast fp16"):
        prepare(network, trtexec("8201", "slow_fp16"), "fp16")
    assert prepare(network, trtexec("8201", "slow_fp16"), "fp32")[1].path.is_file()


@pytest.mark.process
@pytest.mark.parametrize(
    ("version", "fault"), [("100300", "disk"), ("100300", "nothing"), ("8201", "nothing")]
)
def test_a_build_that_is_not_whole_leaves_nothing_behind(network, trtexec, version, fault):
    with pytest.raises(EdgescopeError, match="E-TRTX-11"):
        prepare(network, trtexec(version, fault))
    assert not list(cache.folder("artifacts").glob("*"))


@pytest.mark.process
def test_what_cannot_be_put_into_the_cache_is_told_apart_from_what_else_fails(network, trtexec, monkeypatch):
    program, move = trtexec("100300"), Path.replace

    def full(self, target):
        if self.suffix == ".engine":
            raise OSError(errno.ENOSPC, "No space left on device")
        return move(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(StoreError, match=r"E-CACHE-2.*No space left"):
            prepare(network, program)
    lost = FileNotFoundError("the weights beside the file")
    with monkeypatch.context() as patch:
        patch.setattr(build, "_timing", mock.Mock(side_effect=lost))
        with pytest.raises(FileNotFoundError):
            prepare(network, program)
    assert not list(cache.folder("artifacts").glob("*"))


@pytest.mark.slow
def test_an_engine_that_is_not_whole_is_not_run(network, trtexec):
    """8.x prints no size: the sidecar would describe half an engine, and loading it says so."""
    result = run(network, trtexec("8201", "disk"))
    assert result.status in (Status.FAILED, Status.UNSUPPORTED)
    assert result.reason


@pytest.mark.process
def test_a_build_that_hangs_is_stopped(network, trtexec):
    with pytest.raises(EdgescopeError, match=r"E-TRTX-5.*workspace memory"):
        prepare(network, trtexec("8601", "hang"), build_timeout=1)
    assert not list(cache.folder("artifacts").glob("*"))


@pytest.mark.slow
def test_an_engine_of_another_board_is_refused_with_both_named(network, trtexec):
    orin, nano = trtexec("8201", capability="8.7"), trtexec("8201", capability="5.3")
    _, artifact = prepare(network, nano)
    with pytest.raises(UnsupportedError, match=r"E-ENG-1.*5\.3.*8\.7"):
        prepare(network, orin, engine=pinned(artifact.path))
    assert prepare(network, nano, engine=pinned(artifact.path))[1].digest == artifact.digest


@pytest.mark.slow
def test_an_engine_without_its_sidecar_is_refused(network, trtexec, tmp_path):
    _, artifact = prepare(network, trtexec("8201"))
    alone = shutil.copy(artifact.path, tmp_path / "alone.engine")
    with pytest.raises(UnsupportedError, match="E-ENG-2"):
        prepare(network, trtexec("8201"), engine=str(alone))


@pytest.mark.slow
def test_an_engine_that_only_its_sidecar_says_is_right(network, trtexec):
    """TensorRT's own refusal is understood too."""
    nano, orin = trtexec("8201", capability="5.3"), trtexec("8201")
    backend, artifact = prepare(network, orin)
    _, foreign = prepare(network, nano)
    shutil.copy(foreign.path, artifact.path)
    with pytest.raises(UnsupportedError, match=r"E-ENG-1.*not compatible"):
        backend.drive(artifact, trial(network, orin))


@pytest.mark.slow
def test_a_graph_that_was_not_captured_is_an_error(network, trtexec):
    backend, artifact = prepare(network, trtexec("8601", "graph"), graph=True)
    with pytest.raises(SettingError, match="E-TRTX-14"):
        backend.drive(artifact, trial(network, trtexec("8601", "graph"), options={"graph": True}))


@pytest.mark.slow
def test_answers_come_back_in_the_networks_order(network, trtexec, open_onnx):
    backend, artifact = prepare(network, trtexec("8502"))
    (driven,) = backend.drive(artifact, trial(network, trtexec("8502")))
    assert driven.answer_rows == 1
    samples = zoo.get(str(network)).samples(Purpose.GATE, 1)
    batch = {name: np.ascontiguousarray(array[:1]) for name, array in samples.arrays.items()}
    for got, wanted in zip(driven.answer(batch), open_onnx(network)(batch), strict=True):
        assert got.shape == wanted.shape
        assert np.allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_wrong_outputs_are_found(network, trtexec, tmp_path):
    """The gate's inputs really travel through the files: a program that answers something else fails it."""
    program = trtexec("8601")
    liar = program.read_text().replace(
        "sys.exit(",
        "Fake.export_outputs = lambda s, p, m, o, f=Fake.export_outputs: f(s, p, m, [a[::-1] for a in o])\nsys.exit(",
    )
    program.write_text(liar)
    result = run(network, program)
    assert result.status is Status.WRONG_OUTPUT


@pytest.mark.process
def test_it_has_both_seams_and_no_session(network, trtexec):
    backend, artifact = prepare(network, trtexec("8601"))
    assert isinstance(backend, Backend)
    assert isinstance(backend, SelfDriven)
    with pytest.raises(UsageError, match="E-TRTX-13"):
        backend.load(artifact)


@pytest.mark.parametrize(
    "options", [{"graph": "perhaps"}, {"workspace": 0}, {"dla": -1}, {"build_timeout": "long"}]
)
def test_options_of_the_wrong_kind(network, trtexec, options):
    with pytest.raises(UsageError, match="E-OPT-2"):
        prepare(network, trtexec("8601"), **options)


@pytest.mark.process
def test_an_open_loop_is_not_to_be_had(network, trtexec):
    result = run(network, trtexec("8601"), scenario="fixed_rate", rate=10.0)
    assert "E-SCEN-9" in str(result.reason)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "late"])
def test_several_programs_measure_together(network, trtexec, fault):
    """One that loads for longer makes all run again, until they measure at one moment for the trial's seconds."""
    result = run(network, trtexec("8502", fault), processes=2, min_s=0.3, max_s=0.3)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    assert [w.number for w in result.workers] == [0, 1]
    assert len({w.pid for w in result.workers} | {0}) == 3
    window, columns = result.window, result.queries.columns
    assert window.stop_ns - window.start_ns >= 0.3e9
    assert all(w.start_ns <= window.start_ns and w.stop_ns >= window.stop_ns for w in result.workers)
    rows = result.queries.rows(window)
    done = [int((rows.columns["worker"] == n).sum()) for n in (0, 1)]
    assert min(done) >= 1 and sum(done) == len(rows) < len(columns["worker"])
    seconds = (window.stop_ns - window.start_ns) / 1e9
    assert result.metrics["throughput_sps"].value == pytest.approx(sum(done) / seconds, rel=0.02)
    assert result.metrics["peak_rss_bytes"].value == sum(w.peak_rss_bytes.value for w in result.workers)
    assert result.metrics["processes_rss_bytes"].value > 20_000_000
    assert result.verification.passed
    commands = [program["command"] for program in result.artifact["programs"]]
    durations = {float(w.partition("=")[2]) for c in commands for w in c if w.startswith("--duration=")}
    assert len(durations) == 1
    assert (durations.pop() > 0.5) == (fault == "late")


@pytest.mark.slow
def test_a_program_that_fails_ends_those_beside_it(network, trtexec):
    start = time.monotonic()
    result = run(network, trtexec("8502", "one dies"), processes=3, min_s=60.0, max_s=60.0)
    assert (result.status, result.reason.code) == (Status.OOM, "E-TRTX-10"), result.reason
    assert time.monotonic() - start < 50


@pytest.mark.parametrize("keys", [{"sharing": "pinned"}, {"colocated": "lenet5"}])
def test_only_programs_alike_run_at_once(network, trtexec, keys):
    from edgescope.bench.programs import OwnLoop
    from edgescope.bench.workers import Workers

    asked = trial(network, trtexec("8502"), processes=2)
    with mock.patch.object(bench, "program_of", return_value=object()):
        assert isinstance(bench.driver(asked, None), OwnLoop)
        assert isinstance(bench.driver(replace(asked, **keys), None), Workers)
