"""Verbs as functions: what they return, how it prints, what they store and what they do not."""

import gc
import importlib.machinery
import subprocess
import sys
import types
from dataclasses import replace
from functools import partial

import pytest

import edgescope
from edgescope import registry
from edgescope.errors import EdgescopeError, Message, UnavailableError, UnsupportedError, UsageError
from edgescope.records import Absent, Measured, Result, Results, Status, Trial, answers
from edgescope.runner.run import UNJUDGED, ExperimentRunner
from edgescope.runner.setup import Setup
from edgescope.search import loop
from edgescope.search.candidates import Proposal
from edgescope.store.results import Store
from edgescope.verbs import sweep as sweeping
from edgescope.wings.capacity.question import Question, client_constraints
from edgescope.wings.optimize import verb as optimizing
from making import MACHINE, result
from queue_server import WHERE, QueueServer

NULL = Trial(model="null", backend="null", warmup=0.0, min_s=0.05, max_s=0.05)


class Fake:
    """A runner that answers at once, as `say` says."""

    def __init__(self, say=lambda trial: {}):
        self.say, self.ran = say, []

    def prepare(self, trial, limits):
        return None

    def run(self, trial, limits):
        self.ran.append(trial)
        return result(trial, id_=f"{trial.id}-{len(self.ran):06d}", **self.say(trial))


@pytest.fixture
def fake(monkeypatch):
    runner = Fake()
    monkeypatch.setattr(
        Setup,
        "cells",
        lambda self, store: ExperimentRunner(
            store, self.limits, runner, MACHINE, map(Status, self.retry), say=self.tell
        ),
    )
    for where in ("edgescope.devices.manifest.here", "edgescope.bench.here"):
        monkeypatch.setattr(where, lambda: MACHINE)
    return runner


@pytest.mark.slow
def test_a_trial_runs_in_a_process_of_its_own_unless_told_otherwise(tmp_path, monkeypatch):
    here = []
    monkeypatch.setattr("edgescope.bench", lambda trial: here.append(trial) or result(trial))
    apart = edgescope.run(NULL, store=tmp_path)
    assert apart.status in (Status.OK, Status.UNSTABLE) and not here and apart.value("latency_p50_s") > 0
    assert edgescope.run(NULL, isolated=False).status is Status.OK and here == [NULL]
    assert [r.id for r in Store(tmp_path).results()] == [apart.id]


def test_a_file_is_measured_in_its_own_engine_and_pinned_by_its_content(tmp_path, fake, monkeypatch):
    (tmp_path / "net.tflite").write_bytes(b"net")
    monkeypatch.chdir(tmp_path)
    edgescope.run(Trial(model="net.tflite"), store=tmp_path / "results")
    (ran,) = fake.ran
    assert (ran.backend, ran.model[:11]) == ("litert", "net.tflite#")


def test_a_result_prints_as_a_few_lines_and_gives_numbers():
    one = result(NULL, metrics={"latency_p50_s": Measured(0.5, "s"), "power_w": Absent("no sensor")})
    assert repr(one).splitlines() == [
        f"Result {one.id}: null null fp32 b1",
        "  ok, CLEAN",
        "  latency_p50_s 0.5 s",
        "  power_w n/a: no sensor",
    ]
    assert one.value("latency_p50_s") == 0.5
    with pytest.raises(UnsupportedError, match=r"E-VALUE-1: power_w was not measured \(no sensor\)"):
        one.value("power_w")
    with pytest.raises(UsageError, match=r"Try: value\('latency_p50_s'\)"):
        one.value("latency_p5O_s")


def test_a_long_answer_prints_its_first_lines_only():
    many = Results(result(NULL) for _ in range(40))
    assert (
        repr(many).startswith("40 results: 40 ok\n") and len(repr(many).splitlines()) == answers.PRINTED + 1
    )


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_comes_from_the_library_that_is_there(library, monkeypatch):
    module = types.ModuleType(library)
    module.__spec__ = importlib.machinery.ModuleSpec(library, None)
    module.DataFrame = lambda columns, **how: (library, columns)
    monkeypatch.setattr(answers, "FRAMES", (library,))
    monkeypatch.setitem(sys.modules, library, module)
    name, columns = Results([result(NULL), result(replace(NULL, batch=4))]).frame()
    assert name == library and columns["batch"] == [1, 4] and columns["power_w"] == [None, None]
    name, columns = result(NULL).frame()
    assert set(columns) >= {"issued_ns", "done_ns"}


def test_without_a_library_for_frames_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(answers, "FRAMES", ("no_such_library",))
    with pytest.raises(UnavailableError, match=r"E-FRAME-1.*Try: pip install pandas"):
        Results([result(NULL)]).frame()
    with pytest.raises(UsageError, match="E-FRAME-2"):
        replace(result(NULL), queries=None).frame()


def test_a_sweep_returns_the_whole_grid_and_measures_what_is_missing(tmp_path, fake):
    grid = {"model": "null", "backend": "null", "batch": [1, 2]}
    assert [r.trial.batch for r in edgescope.sweep(grid, store=tmp_path)] == [1, 2]
    again = edgescope.sweep({**grid, "batch": [2, 1, 4]}, store=str(tmp_path), prune=False)
    assert [r.trial.batch for r in again] == [2, 1, 4] and len(fake.ran) == 3
    trials = [Trial(model="null", backend="null", batch=n) for n in (1, 2)]
    assert len(edgescope.sweep(trials, store=tmp_path)) == 2 and len(fake.ran) == 3


def test_a_mistake_is_reported_and_not_stored(tmp_path, fake):
    wrong = {"status": Status.FAILED, "reason": Message("E-OPT-1", "no such option")}
    fake.say = lambda trial: wrong if trial.batch == 2 else {}
    grid = {"model": "null", "backend": "null", "batch": [1, 2]}
    for _ in range(2):  # asked again it is answered again
        assert [r.status.value for r in edgescope.sweep(grid, store=tmp_path)] == ["ok", "failed"]
    assert [r.trial.batch for r in Store(tmp_path).results()] == [1] and len(fake.ran) == 3


def test_what_is_to_be_retried_is_measured_again(tmp_path, fake):
    fake.say = lambda trial: {"status": Status.OOM}
    grid = {"model": "null", "backend": "null"}
    edgescope.sweep(grid, store=tmp_path)
    edgescope.sweep(grid, store=tmp_path)
    assert len(fake.ran) == 1
    edgescope.sweep(grid, store=tmp_path, setup=Setup(retry=["oom"]))
    assert len(fake.ran) == 2


def test_recommend_compare_and_energy_read_the_store(tmp_path, fake):
    fake.say = lambda trial: {"metrics": {"throughput_sps": Measured(10.0 * trial.batch, "samples/s", 9, 11)}}
    results = edgescope.sweep({"model": "null", "backend": "null", "batch": [1, 4]}, store=tmp_path)
    (answer,) = edgescope.recommend("null", store=tmp_path)
    assert answer.pick is not None and answer.pick.trial.batch == 4
    free = edgescope.recommend("null", batch=1, store=tmp_path)
    assert free[0].pick.trial.batch == 1 and "null fp32 b1" in repr(free)
    assert [row["pick"] for row in free.records()] == [True]
    found = edgescope.compare(*results, store=tmp_path)
    assert repr(found).startswith(f"null fp32 b4 is {found.judgement.value} against null fp32 b1")
    assert edgescope.compare(results[0].id, results[1].id, store=tmp_path).differences == found.differences
    spent = edgescope.energy("latest", store=tmp_path)
    assert (
        spent.result.trial.id == max(Store(tmp_path).results(), key=lambda r: (r.started_at, r.id)).trial.id
    )


def counted(tmp_path, *, cached, cut=False):
    """The number of runs of one search of three trials, and of those that the store answered."""
    setup, trials, ran = Setup(), [replace(NULL, batch=n) for n in (1, 2, 3)], 0
    with loop.counting(setup.cells(Store(tmp_path)), ["a question"], cached=cached) as cells:
        for trial in trials:
            if cells.stored(trial) is None:
                cells.run(trial)
                ran += 1
                if cut:
                    raise KeyboardInterrupt
    return ran


@pytest.mark.slow
def test_without_the_cache_all_is_measured_again_and_what_was_cut_goes_on(tmp_path, monkeypatch):
    ticks = iter(range(10_000))

    class Dated(Fake):
        def run(self, trial, limits):
            at = loop.datetime.now(loop.timezone.utc).isoformat(timespec="milliseconds")
            return result(trial, id_=f"{trial.id}-{next(ticks):06d}", started_at=at)

    monkeypatch.setattr(
        Setup, "cells", lambda self, store: ExperimentRunner(store, self.limits, Dated(), MACHINE)
    )
    assert [counted(tmp_path, cached=True) for _ in range(2)] == [3, 0]
    with pytest.raises(KeyboardInterrupt):
        counted(tmp_path, cached=False, cut=True)
    assert counted(tmp_path, cached=False) == 2  # goes on
    assert counted(tmp_path, cached=True) == 0  # the newest answers
    assert counted(tmp_path, cached=False) == 3


def test_capacity_tells_where_it_stands_with_a_time_that_is_right_within_a_factor_of_three(
    tmp_path, monkeypatch
):
    """That of a search is the time until the confirming run, whose length its answer decides."""

    class Timed(QueueServer):
        now = 0.0

        def prepare(self, trial, limits):
            self.now += 5.0

        def run(self, trial, limits):
            self.now += 2.0 + trial.max_s
            return super().run(trial, limits)

    server, told = Timed(0.005), []
    monkeypatch.setattr(
        Setup,
        "cells",
        lambda self, store: ExperimentRunner(
            store, self.limits, server, WHERE, say=self.tell, clock=lambda: server.now
        ),
    )
    setup = Setup(tell=lambda what: told.append((server.now, what)))
    found = edgescope.capacity(
        "null",
        client_rate=15,
        constraints=["p99<40ms"],
        backend="null",
        warmup=0.0,
        store=tmp_path,
        setup=setup,
    )
    steps = [(at, step) for at, step in told if getattr(step, "eta_s", None) is not None]
    begun = next(at for at, step in steps if step.stage == "confirm")
    said = [((server.now if step.stage == "confirm" else begun) - at, step.eta_s) for at, step in steps]
    assert found.clients and len(said) >= 3
    assert all(left / 3 <= eta <= 3 * left for left, eta in said), said
    assert "fit" in repr(found) and [row["clients"] for row in found.records()]


def test_a_question_of_capacity_that_cannot_be_meant_is_refused():
    with pytest.raises(UsageError, match="--server-processes is one or per-client"):
        edgescope.capacity(
            "null", client_rate=1, constraints=["p99<1s"], server_processes="two", backend="null"
        )
    assert Question(NULL, 1.0, client_constraints(["p99<1s"])).server_processes == "one"


@pytest.mark.process
def test_importing_and_listing_the_names_loads_nothing_heavy():
    code = "import sys, edgescope; dir(edgescope); assert not {'numpy', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_of_a_verb_stays_a_function_after_its_packages_are_imported():
    import edgescope.bench
    import edgescope.runner.run

    for verb in registry.functions():
        assert callable(getattr(edgescope, verb)), verb
    with pytest.raises(AttributeError):
        _ = edgescope.swep


def test_errors_are_of_one_family():
    assert issubclass(UsageError, EdgescopeError) and edgescope.EdgescopeError is EdgescopeError


def test_what_is_known_so_far_says_how_sure_it_is():
    from dataclasses import replace

    from edgescope.records import Alternation, Measured, Trial, Turn
    from edgescope.wings.optimize.verb import so_far
    from making import result

    def alone(backend, seconds):
        timed = {"latency_p50_s": Measured(seconds, "s", n=9)}
        return result(Trial(model="null", backend=backend), metrics=timed)

    def side(backend, number, partner, name, seconds):
        turns = tuple(Turn(b, b, b + 1, 1, seconds) for b in range(2))
        trial = Trial(model="null", backend=backend, replicate=number, turn_s=0.1)
        taken = Alternation(partner, name, "confirming", turns, 0.0)
        return replace(result(trial, id_=f"{name}{number}"), alternation=taken)

    found = [alone("torch_eager", 0.008)]
    assert so_far(found, found[0]) == "  torch_eager fp32 b1: 8 ms"
    looked = replace(found[0], warnings=(UNJUDGED,))
    assert so_far([looked], looked) == ""  # the look has told
    found.append(alone("openvino", 0.002))
    assert so_far(found, found[0]).endswith(": 2 ms, roughly 4x [3.6, 4.4] by one short run")
    again = [found[0], alone("torch_eager", 0.009)]
    assert so_far(again, again[0]) == "  torch_eager fp32 b1: 9 ms"
    far = [found[0], alone("openvino", 0.008 / 297)]
    assert so_far(far, far[0]).endswith("roughly 297x [270, 327] by one short run")
    for n in range(3):
        found.append(side("torch_eager", n, f"candidate{n}", "baseline", 0.008))
        assert so_far(found, found[0]) == ""
        found.append(side("openvino", n, f"baseline{n}", "candidate", 0.002 * (1 + n / 100)))
        sure = "no interval yet" if n < 2 else "["
        assert sure in so_far(found, found[0]) and "x so far" in so_far(found, found[0])


def test_a_new_baseline_is_looked_at_before_anything_is_built(tmp_path, fake, monkeypatch):
    seen, told = [], []

    def look(trial, limits, meanwhile):
        seen.append(trial)
        assert meanwhile is optimizing.candidates.installed  # the engines are found while it loads
        return result(trial, metrics={"latency_p50_s": Measured(0.008, "s", 0.0078, 0.0083, 40)})

    monkeypatch.setattr(fake, "look", look, raising=False)
    monkeypatch.setattr(fake, "prepare", lambda trial, limits: told.append("built"))
    data = Trial(model="squeezenet1_1", data="photos", preprocess="half", min_accuracy=0.9)
    alone = partial(Proposal, (data,))
    looked, _ = optimizing._begin(data, alone, Setup().cells(Store(tmp_path)), Setup(tell=told.append))
    assert looked is not None and looked.trial is seen[0]
    first = "  torch_eager fp32 b1: 8 ms [7.8, 8.3] at first look; no outputs judged yet"
    assert told == [first, "built"] and (seen[0].data, seen[0].preprocess, seen[0].min_accuracy) == (
        "",
        "",
        None,
    )
    monkeypatch.setattr(fake, "look", lambda trial, *how: result(trial, status=Status.FAILED))
    told.clear()
    assert optimizing._begin(data, alone, Setup().cells(Store(tmp_path)), Setup(tell=told.append))[0] is None
    assert told == ["built"]


@pytest.mark.parametrize(("code", "kind"), [("E-PREPROCESS-2", UsageError), ("E-EXPORT-2", None)])
def test_a_request_that_the_baseline_cannot_be_built_for_ends_it(tmp_path, fake, monkeypatch, code, kind):
    """Every candidate would fail for the same reason, one after the other; what one engine cannot do says nothing."""
    said = Message(code, "it is not known how the network wants its pictures", fix="--preprocess imagenet")
    failed = lambda trial, limits: result(trial, status=Status.FAILED, reason=said)  # noqa: E731
    monkeypatch.setattr(fake, "prepare", failed)
    begin = partial(optimizing._begin, propose=lambda: Proposal((Trial(model="lenet5"),)), setup=Setup())
    cells = Setup().cells(Store(tmp_path))
    if kind is None:
        assert begin(Trial(model="lenet5"), cells=cells)[0] is None
        return
    with pytest.raises(kind) as error:
        begin(Trial(model="lenet5"), cells=cells)
    assert error.value.message == said


@pytest.mark.process
def test_workers_that_are_reused_build_too(tmp_path):
    how = sweeping.USUAL | {"reuse_workers": True}
    cells = Setup().cells(Store(tmp_path))
    with sweeping._manner(how, cells, Setup()):
        assert cells.runner is cells.builds.runner and cells.runner.one_by_one


def test_what_is_tried_next_is_built_beside_the_baseline(tmp_path, fake, monkeypatch):
    model = Trial(model="squeezenet1_1")
    slow, quick, later = (
        replace(model, backend=b, precision=p)
        for b, p in (("torch_compile", "fp32"), ("openvino", "int8"), ("onnxruntime", "fp32"))
    )
    asked, told = [], []
    monkeypatch.setattr(fake, "prepare", lambda trial, limits: asked.append(trial))

    def proposal():
        told.append(len(asked))
        return Proposal((model, slow, later, quick))

    cells = Setup().cells(Store(tmp_path))
    monkeypatch.setattr(cells.builds, "_at_once", lambda: 4)  # others are built when their turn comes
    expected = []
    monkeypatch.setattr(cells, "expect", lambda trials: expected.append((list(trials), len(asked))))
    optimizing._begin(model, proposal, cells, Setup())
    assert expected == [([replace(model, backend="torch_eager")], 0)]  # before anything is built
    assert told == [0]  # a refusal comes before anything is built
    assert {(t.backend, t.precision) for t in asked} == {("torch_eager", "fp32"), ("openvino", "int8")}
    cells.store.save(result(next(t for t in asked if t.backend == "torch_eager")))
    optimizing._begin(model, proposal, Setup().cells(Store(tmp_path)), Setup())
    assert len(told) == 2 and len(asked) == 2


def test_a_sweep_holds_no_result_that_it_stored(tmp_path, fake):
    alive = {}

    def show(result):
        if (batch := result.trial.batch) in (3, 12):  # to go through all objects takes a quarter of a second
            gc.collect()
            alive[batch] = sum(isinstance(each, Result) for each in gc.get_objects())

    trials = [replace(NULL, batch=n) for n in range(1, 13)]
    found = edgescope.sweep(trials, store=tmp_path, show=show)
    assert [r.trial.batch for r in found] == list(range(1, 13)) and found[11].status is Status.OK
    assert alive[12] <= alive[3]


def test_a_result_that_somebody_removes_during_a_sweep_is_missing_from_its_answer(tmp_path, fake):
    store = Store(tmp_path)
    trials = [replace(NULL, batch=n) for n in (1, 2, 3)]
    found = edgescope.sweep(trials, store=store, show=lambda r: r.trial.batch == 2 and store.remove(r))
    assert [r.trial.batch for r in found] == [1, 3]
