"""One cache for the whole session, what must run alone, and the models that several test files share."""

import contextlib
import functools
import gc
import itertools
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import hypothesis
import pytest

import parting
from behind import behind  # noqa: F401
from made_cells import make  # noqa: F401
from processes import Processes
from reruns import Reruns

HERE = Path(__file__).parent
WINGS = (HERE.parent / "src/edgescope/wings").exists()
ALONE = ("telemetry", "scenarios", "modes/test_in_trials.py", "project/test_boards_whole.py")
"""Folders and files whose tests measure time, or take memory or cores from whatever runs beside them."""

NETWORKS = {"trained", "untrained", "trained_truth", "untrained_truth", "artifacts"}
"""Fixtures that export a real network or compute its outputs, once in a session and for seconds."""


@functools.cache  # each of ten thousand tests asks of its file
def alone(path: Path) -> bool:
    """Return whether a file's tests run with nothing beside them."""
    return any(path.is_relative_to(HERE / name) for name in ALONE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not read the files that a run leaves out whole: reading all tests takes longer than many of them.

    In a copy without the wings (tools/core.py) a file that names one is left out.
    """
    if collection_path.suffix != ".py" or collection_path == HERE / "conftest.py":
        return None
    wanted = config.option.markexpr
    if left_out(collection_path, wanted):
        return True
    if config.option.part and collection_path.name.startswith("test_"):
        apart = tuple(HERE.parent / each for each in config.option.ignore or ())
        own = own_part(config.option.part, wanted, apart, config.option.spent)
        return True if collection_path not in own else None
    return None


def left_out(file: Path, wanted: str) -> bool:
    """Return whether a run of the marks `wanted` leaves out a whole file."""
    text = file.read_text(encoding="utf-8")
    marks = {"alone"} if alone(file) else set()
    marks |= set(re.findall(r"^pytestmark = pytest\.mark\.(\w+)$", text, re.MULTILINE))
    out = any(f"not {mark}" in wanted for mark in marks)
    out |= wanted.startswith("alone") and "alone" not in marks
    return out or (not WINGS and "edgescope.wings" in text)


@functools.cache
def own_part(part: tuple[int, int], wanted: str, apart: tuple[Path, ...], spent: Path | None) -> set[Path]:
    """Return the files that this part of a run reads, of those that the run does not leave out."""
    files = (file for file in HERE.rglob("test_*.py") if not any(map(file.is_relative_to, apart)))
    seconds = parting.noted(spent / parting.SPENT) if spent else {}
    costs = parting.costs((file for file in files if not left_out(file, wanted)), seconds)
    return parting.parted(costs, part[1])[part[0] - 1]


def beside_others(config: pytest.Config) -> bool:
    """Return whether another process runs tests on this machine at the same time."""
    return "PYTEST_XDIST_WORKER" in os.environ or bool(config.option.part)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test` runs with nothing beside it, and what waits for a real network."""
    if not WINGS:  # a copy without them leaves out what asks for one by name
        items[:] = [item for item in items if not item.get_closest_marker("wings")]
    for item in items:
        if alone(item.path):
            item.add_marker(pytest.mark.alone)
        if not NETWORKS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.network)


def pytest_collection() -> None:
    """Collect no garbage while modules and items are made: all of them stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what stays until the end (modules, items) out of every later collection of garbage, and collect less often.

    The engines that tests import later hold some million objects, and each full collection goes through them all.
    """
    from edgescope.bench.child import SELDOM

    gc.enable()
    gc.freeze()
    gc.set_threshold(*SELDOM)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a GPU where there is none, or where its engine has no CUDA.

    The engine is the marker's argument, gpu("torch_eager"), or the test's parameter `backend`.
    """
    if marker := item.get_closest_marker("gpu"):
        given = getattr(item, "callspec", None)
        (backend,) = marker.args or (given.params.get("backend", "") if given else "",)
        if reason := no_gpu(backend):
            pytest.skip(reason)


@functools.cache
def no_gpu(backend: str) -> str:
    """Return why `backend` ("": only the driver is asked) has no NVIDIA GPU here; "" where it has one."""
    from edgescope import registry

    if not WINGS:
        return "no wing asks the driver"
    if reason := registry.load(registry.DEVICES, "nvidia", "device")().present():
        return f"no NVIDIA GPU: {reason}"
    if backend.startswith("torch"):
        import torch

        return "" if torch.cuda.is_available() else f"torch {torch.__version__} has no CUDA device"
    if backend == "onnxruntime":
        import onnxruntime

        names = onnxruntime.get_available_providers()
        return "" if "CUDAExecutionProvider" in names else f"ONNX Runtime has {', '.join(names)} only"
    return ""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the file that all parts of one run share (tests/reruns.py), and which part this is (tests/parting.py)."""
    parser.addoption(
        "--reran", type=Path, help="keep here which tests passed only when rerun; those in it count"
    )
    parser.addoption("--part", type=parting.part, help="run this part of the test files, such as 1/2")
    parser.addoption("--spent", type=Path, help="folder of what each file took, by which parts are made")


def pytest_configure(config: pytest.Config) -> None:
    """Count what passes only when rerun, and let property tests take their time: a machine may be busy.

    Ctrl-C is taken as usual: a shell ignores it for what runs in the background, and so would what tests start.
    Bytecode is kept even where the environment forbids it: hundreds of short processes would compile edgescope anew.
    """
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reruns(config.option.reran))
        cache = tempfile.TemporaryDirectory(prefix="edgescope-", ignore_cleanup_errors=True)
        config.add_cleanup(cache.cleanup)
        os.environ["EDGESCOPE_CACHE"] = cache.name  # workers and what tests start inherit it
    if config.option.part and config.option.spent:
        own = "-of-".join(map(str, config.option.part))
        config.pluginmanager.register(parting.Spent(config.option.spent / own))
    if "not process" in config.option.markexpr:
        denied = Processes()
        config.pluginmanager.register(denied)
        sys.addaudithook(denied.heard)
    check = hypothesis.HealthCheck
    unasked = [check.too_slow, check.function_scoped_fixture]  # one folder serves all examples of a test
    calm = {"deadline": None, "suppress_health_check": unasked}
    if "not slow" in config.option.markexpr:
        few = "not process" in config.option.markexpr
        calm["max_examples"] = 10 if few else 30  # `make test-all` takes the usual hundred
    hypothesis.settings.register_profile("edgescope", print_blob=True, **calm)
    hypothesis.settings.load_profile("edgescope")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if beside_others(config):  # OpenMP threads that spin take the other worker's core
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Hold for all tests what would cost each a tenth of a millisecond and more as a fixture that all use."""
    config = session.config
    with contextlib.ExitStack() as held:
        if not config.pluginmanager.hasplugin("dsession"):  # who hands tests to workers runs none
            held.enter_context(without_waiting())
            if beside_others(config):
                held.enter_context(sleeping_threads())
                if "not network" not in config.option.markexpr:
                    held.enter_context(one_registry_of_operators())
        return (yield)


@contextlib.contextmanager
def sleeping_threads() -> Iterator[None]:
    """Let the threads of ONNX Runtime sleep while they wait: where they spin they take the other worker's core."""
    import onnxruntime

    class Sleeping(onnxruntime.SessionOptions):
        def __init__(self):
            super().__init__()
            self.add_session_config_entry("session.intra_op.allow_spinning", "0")

    with mock.patch.object(onnxruntime, "SessionOptions", Sleeping):
        yield


@contextlib.contextmanager
def one_registry_of_operators() -> Iterator[None]:
    """Let PyTorch's exporter set up its table of operators once in a worker; it does that for each export, in 0.5 s."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    once = functools.cache(ONNXRegistry.from_torchlib)
    with mock.patch.object(ONNXRegistry, "from_torchlib", staticmethod(once)):
        yield


class Still:
    """A probe that finds the same before a run and after it: seconds of two CPUs that share a cache."""

    def __init__(self, *probes):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def seconds(self, number):
        return 3e-8


@contextlib.contextmanager
def without_waiting() -> Iterator[None]:
    """Spare runs in this process what costs a second and no test is about; those in processes of their own have it.

    The probes take 0.3 s. To collect the garbage of a process that holds the engines and all tests takes 0.3 s, and
    would thaw what was frozen above. A disk takes milliseconds until it has what the store gave it.
    """
    from edgescope.bench import drivers, watch, worker
    from edgescope.devices.clocks import Spin, slowdown

    spin = SimpleNamespace(calibrate=lambda: 1, spin=lambda loops: Spin(loops, (1.0,)), slowdown=slowdown)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "clocks", spin)
        patch.setattr(watch, "Prober", Still)
        for module in (drivers, worker):
            patch.setattr(module, "gc", mock.Mock())
        patch.setattr(worker, "ctypes", mock.Mock())
        patch.setattr(drivers, "give_back", lambda: None)
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session")
def cache_folder() -> Path:
    """Return the cache of this session, all its workers' one, inherited by every process that a test starts."""
    return Path(os.environ["EDGESCOPE_CACHE"])


FOLDERS = itertools.count()


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty folder of a test's own: pytest's looks through all earlier ones for a name that is free."""
    every = tmp_path_factory.getbasetemp() / "tests"
    folder = every / str(next(FOLDERS))
    folder.mkdir(parents=True)
    return folder


@contextlib.contextmanager
def answered_in_this_process():
    from edgescope.bench import child
    from edgescope.isolate import fresh
    from edgescope.isolate.forks import Forks
    from edgescope.isolate.persistent import PersistentChild

    started, persistent = fresh._watch, PersistentChild._run

    def answered(program, folder, *how):
        verb = program[3]
        if verb == "run" and json.loads((folder / "trial.json").read_text())["tracer"] != "none":
            return started(program, folder, *how)
        child._answer(verb, folder)
        return None, []

    def led(self, verb, folder, *how):
        if verb != "pair":
            return persistent(self, verb, folder, *how)
        with Forks() as forks:
            child._answer_pair(folder, forks)
        return None, []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fresh, "_watch", answered)
        patch.setattr(PersistentChild, "_run", led)
        patch.setattr(PersistentChild, "expect", lambda *how: None)
        yield


@pytest.fixture(scope="session")
def answered_here():
    """Return a context in which trials are answered in this process, which has imported the engines.

    It is for what is not about the fresh process. Everything else of a trial's way stays: its folder, its stored
    start, its result read back from the disk. A profiler starts its own process; a mode that is set when a process
    starts needs a real one.
    """
    return answered_in_this_process


@pytest.fixture
def trials_here(answered_here):
    """Answer a test's trials in this process."""
    with answered_here():
        yield


@pytest.fixture
def shorter(tmp_path, monkeypatch, trials_here):
    """Let what a reader types run in this process and in a folder of its own, with less work than it has there."""
    import edgescope
    from edgescope.wings.anomaly import verb as anomaly
    from edgescope.wings.optimize import racing

    def less(module, name, keys):
        verb = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, **own: verb(*args, **{**own, **keys}))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["example.py"])
    less(edgescope, "Trial", {"min_s": 0.3, "max_s": 0.3})
    monkeypatch.setattr(racing, "LEAST", 2)
    less(edgescope, "optimize", {"budget": 3, "precision": ["fp32"], "options": {"threads": 1}})
    less(anomaly, "generate", {"clips": 12})
    less(anomaly, "train", {"steps": 20})
    before = set(sys.modules)
    yield
    folders = (tmp_path, Path.cwd(), HERE.parent / "examples")
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent in folders:
            del sys.modules[name]


def session_of(path):
    """Return what `path` computes by ONNX's own definition, as a function of one batch.

    Quantised tensors are brought back to fp32 and computed there. An engine's int8 kernels depend on the CPU;
    tests of the files that edgescope writes must not.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda batch: session.run(None, dict(batch))


@pytest.fixture(scope="session")
def open_onnx():
    return session_of


@pytest.fixture(scope="session")
def artifacts(cache_folder):
    from edgescope import cache

    return cache.folder("artifacts")


@pytest.fixture(scope="session")
def trained():
    """The really trained classifier."""
    from edgescope.models import zoo

    return zoo.get("efficientnet_lite0")


@pytest.fixture(scope="session")
def untrained():
    """A small network with random weights."""
    from edgescope.models import zoo

    return zoo.get("squeezenet1_1")


@pytest.fixture(scope="session")
def trained_truth(trained, artifacts):
    """fp32 outputs of the trained classifier on the gate's frames and the labelled photographs."""
    from edgescope.verify import reference

    return reference.reference(trained, lambda: session_of(trained.onnx(artifacts)))


@pytest.fixture(scope="session")
def untrained_truth(untrained, artifacts):
    from edgescope.verify import reference

    return reference.reference(untrained, lambda: session_of(untrained.onnx(artifacts)))
