"""A real tracer around real trials: a shell outside the process, spans written when the interpreter ends."""

import json
import os
import re
from dataclasses import replace

import pytest

from edgescope import bench, registry
from edgescope.errors import UsageError
from edgescope.isolate import fresh
from edgescope.isolate.fresh import Limits
from edgescope.records import Role, Status, Trial
from edgescope.records.trial import ROLES
from edgescope.runner.isolated import Isolated, ReusingRunner
from edgescope.store.results import Store, read

TRACER = """
import atexit, json, os, signal, time
from contextlib import contextmanager
from edgescope.process import Launch
from edgescope.records import Spans

SHELL = '''folder="$1"; shift
echo "$*" > "$folder/argv"
grep Cpus_allowed_list /proc/self/status > "$folder/cpus"
"$@"
code=$?
sleep 0.3   # a profiler takes its time to write a report
[ -e "$folder/window" ] && cp "$folder/window" "$folder/report"
exit $code'''


class AtExit:
    # What it saw is written when the interpreter ends, and read from a report that is written later still.
    kills = ""

    def launch(self, folder):
        return Launch(("sh", "-c", SHELL, "tracer", str(folder)), {"UNDER_A_TRACER": "yes"})

    @contextmanager
    def window(self, folder):
        assert os.environ["UNDER_A_TRACER"] == "yes"
        begun = time.monotonic_ns()
        yield
        if self.kills in folder.name and self.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        window = [begun, time.monotonic_ns()]
        atexit.register(lambda: (folder / "window").write_text(json.dumps(window)))

    def spans(self, folder):
        start, stop = json.loads((folder / "report").read_text())
        return Spans.of("range", [("measured", -1, start, stop)])


class Killed(AtExit):
    kills = "trace"


class KilledWorker(AtExit):
    kills = "worker-1"
"""
ENTRIES = """
from edgescope.registry import Entry
at_exit, killed, killed_worker = (Entry(f"small_tracer:{name}") for name in ("AtExit", "Killed", "KilledWorker"))
"""
NULL = Trial(
    model="null",
    backend="null",
    options={"delay_us": 1000},
    warmup=0.0,
    min_s=0.1,
    max_s=0.1,
    tracer="at_exit",
)
LIMITS = Limits(timeout_s=60)


def _read_anew():
    registry._of_plugins.cache_clear()
    registry.TRACERS.__dict__.pop("_read", None)


@pytest.fixture(autouse=True)
def plug_in(tmp_path, monkeypatch):
    """A package with tracers, as pip would install it, for this process and those that it starts."""
    site = tmp_path / "site"
    about = site / "small_tracer-1.dist-info"
    about.mkdir(parents=True)
    (site / "small_tracer.py").write_text(TRACER)
    (site / "small_tracer_entries.py").write_text(ENTRIES)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: small-tracer\nVersion: 1\n")
    names = ("at_exit", "killed", "killed_worker")
    lines = (f"{name} = small_tracer_entries:{name}\n" for name in names)
    (about / "entry_points.txt").write_text("[edgescope.tracers]\n" + "".join(lines))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH")))))
    monkeypatch.setenv("EDGESCOPE_STATE", str(tmp_path / "state"))
    _read_anew()
    yield
    _read_anew()


@pytest.fixture
def seen(monkeypatch):
    """What the shell around each process wrote, by the name of its folder, read before the folder goes."""
    found, real = {}, fresh.placement.with_spans

    def with_spans(result, folder):
        for path in folder.rglob("argv"):
            found[path.parent.name] = path.read_text(), (path.parent / "cpus").read_text().split()[-1]
        return real(result, folder)

    monkeypatch.setattr(fresh.placement, "with_spans", with_spans)
    return found


def spans_of(result):
    """(name, worker, start, stop) of each row."""
    c = result.spans.columns
    rows = zip(c["name"], c["process"], c["start_ns"], c["end_ns"], strict=True)
    return [(result.spans.names[n], *map(int, rest)) for n, *rest in rows]


@pytest.mark.slow
def test_the_spans_that_a_tracer_writes_at_exit_reach_the_result_and_the_store(tmp_path):
    result = fresh.run(NULL, LIMITS)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    ((_, worker, start, stop),) = [row for row in spans_of(result) if row[0] == "measured"]
    assert worker == -1 and start <= result.window.start_ns < result.window.stop_ns <= stop
    stored = read(Store(tmp_path / "store").save(result))
    assert spans_of(stored) == spans_of(result) and stored.trial == NULL
    assert not any(w.code.startswith("W-SPAN") for w in result.warnings)


@pytest.mark.slow
def test_a_mode_is_outside_and_the_tracer_inside(seen):
    cpu = min(os.sched_getaffinity(0))
    result = Isolated().run(replace(NULL, mode=f"cpus={cpu}"), LIMITS)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    argv, cpus = seen["trace"]
    assert cpus == str(cpu) and "edgescope.modes.launcher" not in argv
    assert "-m edgescope.bench.child run" in argv and len(spans_of(result)) == 1


@pytest.mark.slow
def test_every_worker_is_traced_within_its_placement_and_the_leader_is_not(seen):
    pinned = replace(NULL, processes=2, sharing="pinned")
    result = fresh.run(pinned, LIMITS)
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    rows = spans_of(result)
    assert [(name, worker) for name, worker, *_ in rows] == [("measured", 0), ("measured", 1)]
    for _, number, start, stop in rows:
        mine = result.workers[number]
        assert start <= mine.start_ns < mine.stop_ns <= stop
    assert set(seen) == {"worker-0", "worker-1"}
    for worker in result.workers:
        argv, cpus = seen[f"worker-{worker.number}"]
        assert "-m edgescope.bench.worker" in argv and cpus == ",".join(map(str, worker.cpus))


@pytest.mark.slow
def test_a_process_that_is_killed_under_a_tracer_is_told_as_that():
    result = fresh.run(replace(NULL, tracer="killed"), LIMITS)
    assert result.status is Status.CRASHED
    assert re.search(r"E-RUN-2: .* SIGKILL .*sh exited with 137", str(result.reason))
    (unread,) = (str(w) for w in result.warnings if w.code == "W-SPAN-1")
    assert re.search(r"tracer killed .* in trace .*FileNotFoundError", unread)


@pytest.mark.slow
def test_a_worker_that_is_killed_under_a_tracer_is_named_and_the_other_is_read():
    result = fresh.run(replace(NULL, processes=2, tracer="killed_worker"), LIMITS)
    assert result.status is Status.CRASHED
    assert "worker 1 died of SIGKILL" in str(result.reason) and "sh exited with 137" in str(result.reason)
    assert any(text.code == "W-SPAN-1" and " in worker-1 " in text.what for text in result.warnings)


@pytest.mark.slow
def test_a_process_that_runs_already_cannot_be_traced():
    result = bench.run(NULL)
    assert result.status is Status.FAILED and str(result.reason).startswith("E-TRACER-1")


@pytest.mark.slow
def test_a_traced_trial_is_never_answered_by_workers_that_others_have_used():
    with ReusingRunner(Isolated()) as runner:
        result = runner.run(NULL, LIMITS)
    assert result.process == "fresh" and len(spans_of(result)) == 1


def test_a_tracer_that_is_not_there_is_named_before_anything_runs():
    with pytest.raises(UsageError, match=r"E-NAME-1: .* 'at_exi'"):
        fresh.run(replace(NULL, tracer="at_exi"))


def test_a_tracer_has_a_role_of_its_own_and_none_changes_no_id():
    plain = replace(NULL, tracer="none")
    assert ROLES["tracer"] is Role.TRACING and plain.id != NULL.id
    assert plain.key(~Role.TRACING) == NULL.key(~Role.TRACING)
    before = {
        k: v for k, v in plain.to_json().items() if k != "tracer"
    }  # as stored before there were tracers
    assert (
        Trial.from_json(before).id == plain.id == Trial.from_json(json.loads(json.dumps(plain.to_json()))).id
    )
