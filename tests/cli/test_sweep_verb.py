"""The verb sweep as a person sees it: the grid by axis, a line a cell, what was skipped and why, what to do next."""

import json
from dataclasses import replace

import pytest

from edgescope.cli.main import main
from edgescope.cli.sweep import Screen
from edgescope.errors import Message
from edgescope.records import Machine, Measured, Status, Trial
from edgescope.report import sweep
from edgescope.runner import run
from edgescope.store.results import Store
from edgescope.study import grid as study
from making import MACHINE, result

QUICK = ["--warmup", "0ms", "--duration", "50ms"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGESCOPE_STORE", str(tmp_path / "store"))


@pytest.mark.process
def test_a_large_grid_is_shown_by_axis_and_says_how_long_it_takes_at_least(tmp_path, capsys):
    (tmp_path / "study.toml").write_text(
        "[trial]\nmodel = 'null'\nbackend = 'null'\nbatch = [1, 2, 4]\nprocesses = [1, 2, 4, 8]\nwarmup = 0.5\n"
        "sharing = ['time_slicing', 'pinned']\nprecision = ['fp32', 'int8']\nmin_s = 2\n"
        "[trial.options]\ndelay_us = 10\n"
        "[[exclude]]\nprocesses = 1\nsharing = 'pinned'\n[[replicate]]\nbatch = 1\nprocesses = 8\nreplicates = 3\n"
    )
    assert main(["sweep", "study.toml", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("42 cells and 8 further replicates\n")
    assert "processes  1 6   2 12   4 12   8 12" in out and "sharing    time_slicing 24   pinned 18" in out
    assert "delay_us=10" in out and "2 min of measuring" in out
    assert main(["sweep", "study.toml", "--dry-run", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 50


def test_a_study_with_a_mistake_ends_with_2_and_the_line(tmp_path, capsys):
    (tmp_path / "study.toml").write_text("[trial]\nmodel = 'null'\nprecison = 'fp32'\n")
    assert main(["sweep", "study.toml"]) == 2
    assert "E-STUDY-10: study.toml line 3:" in " ".join(capsys.readouterr().err.split())


@pytest.mark.process
def test_a_study_sets_what_was_not_typed(tmp_path, capsys):
    (tmp_path / "study.toml").write_text(
        "[trial]\nmodel = 'null'\nbackend = 'null'\n[sweep]\nprune = false\ntimeout = '2min'\n[[exclude]]\nbatch = 9\n"
    )
    assert main(["sweep", "study.toml", "--dry-run"]) == 0
    assert "W-STUDY-1" in capsys.readouterr().err


def test_beside_a_study_what_would_say_what_to_measure_is_refused(tmp_path, capsys):
    (tmp_path / "study.toml").write_text("[trial]\nmodel = 'null'\nbackend = 'null'\n")
    for flags in (
        ["--duration", "3s"],
        ["--batch", "1"],
        ["--option", "a=1"],
        ["--replicates=2"],
        ["--rate", "9"],
    ):
        assert main(["sweep", "study.toml", *flags]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "E-SWEEP-5" in said and f"typed: {flags[0].partition('=')[0]}" in said


@pytest.mark.process
def test_what_is_typed_wins_over_the_studys_manner_the_default_too(tmp_path, monkeypatch):
    (tmp_path / "study.toml").write_text(
        "[trial]\nmodel = 'null'\nbackend = 'null'\n[sweep]\ntimeout = '2min'\ncooldown = 3\nprune = true\n"
    )
    seen = []

    def ran(trials, cells, **how):
        seen.append((cells.limits.timeout_s, how["cooldown_s"], how["sieves"]))
        return iter(())

    monkeypatch.setattr(run, "run", ran)
    main(["sweep", "study.toml", "--timeout", "15min", "--no-prune"])
    main(["sweep", "study.toml", "--cooldown", "0s", "--no-prune"])
    assert seen == [(900.0, 3.0, ()), (120.0, 0.0, ())]


def test_the_flags_beside_a_study_are_those_of_its_section_sweep():
    from edgescope.cli.sweep import MANNER
    from edgescope.study.schema import SWEEP

    assert set(MANNER) == set(SWEEP)


@pytest.mark.parametrize("flag", ["--rate", "--in-flight", "--threads"])
def test_a_list_of_what_takes_one_value_names_the_study_file(flag, capsys):
    with pytest.raises(SystemExit):
        main(["sweep", "--model", "null", flag, "1,2"])
    assert "study.toml" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags", [["--processes", "1,2"], ["--sharing", "shared,pinned"], ["--colocated", "null,null"]]
)
def test_bench_measures_one_trial(flags, capsys):
    assert main(["bench", "null", "--backend", "null", *flags]) == 2
    said = capsys.readouterr()
    assert "E-SWEEP-6" in said.err and f"{flags[0]} takes one value" in said.err and not said.out


@pytest.mark.slow
def test_a_cell_that_runs_out_of_memory_answers_for_the_larger_ones(tmp_path, capsys):
    grid = study.grid({"model": "null", "backend": "null", "batch": [1, 2, 4], "warmup": 0.0, "min_s": 0.05})
    seed = next(s for s in range(99) if run.order(grid, s)[0].batch == 1)
    floor = ["--memory-floor", "100000000"]  # MB: more than any machine has
    command = ["sweep", "--model", "null", "--backend", "null", "--batch", "1,2,4", *QUICK]
    assert main([*command, *floor, "--order-seed", str(seed)]) == 5
    said = capsys.readouterr().out
    stored = {r.trial.batch: r for r in Store(tmp_path / "store").results()}
    assert {b: r.status for b, r in stored.items()} == {1: Status.OOM, 2: Status.SKIPPED, 4: Status.SKIPPED}
    assert stored[1].id in str(stored[4].reason)
    assert (
        "1 oom, 2 skipped" in said
        and "  2 skipped     I-PRUNE-1" in said
        and "--no-prune --retry skipped" in said
    )
    assert main([*command, *floor, "--no-prune", "--retry", "skipped"]) == 5
    assert [r.status for r in Store(tmp_path / "store").results()][3:] == [Status.OOM, Status.OOM]


@pytest.mark.process
def test_another_machines_results_of_the_cells_do_not_count(tmp_path, capsys):
    command = ["sweep", "--model", "null", "--backend", "null", "--dry-run"]
    other = Machine({"cpu": {"model": "another cpu"}}, {})
    Store(tmp_path / "store").save(result(Trial(model="null", backend="null"), machine=other))
    for more in ([], ["--machine", "here"]):
        assert main([*command, "--json", *more]) == 0
        said = capsys.readouterr()
        assert [row["finished"] for row in json.loads(said.out)] == [False]
        assert "1 cell" in said.out or "W-MIX" in said.err


@pytest.mark.slow
def test_list_says_which_machine_where_there_are_two(tmp_path, monkeypatch, capsys):
    other = Machine({"cpu": {"model": "another cpu"}}, {})
    for machine in (MACHINE, other):
        Store(tmp_path / "store").save(result(machine=machine))
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert MACHINE.id[:8] in out and other.id[:8] in out and out.splitlines()[0].endswith("machine")
    assert main(["list", "--machine", other.id[:8], "--json"]) == 0
    assert [r["machine_id"] for r in json.loads(capsys.readouterr().out)] == [other.id]
    for where in ("edgescope.devices.manifest.here", "edgescope.bench.here"):
        monkeypatch.setattr(where, lambda: MACHINE)
    assert main(["list", "--machine", "here", "--json"]) == 0
    assert [r["machine_id"] for r in json.loads(capsys.readouterr().out)] == [MACHINE.id]
    assert main(["report", "--machine", "here", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["results"]) == 1


def test_the_summary_groups_reasons_and_says_what_to_do_next(capsys):
    trials = study.grid({"model": "null", "backend": "null", "batch": [1, 2, 4, 8, 16]})
    no = "E-PREC-1: no such precision (evidence). Effect. Try: this"
    made = [
        result(trials[0], metrics={"throughput_sps": Measured(1234.0, "samples/s")}),
        result(trials[1], status=Status.UNSUPPORTED, reason=no),
        result(trials[2], status=Status.UNSUPPORTED, reason=no),
        result(trials[3], status=Status.TIMEOUT, reason="E-TIME-1: stopped by its time-out (60 s)."),
    ]
    view = Screen(trials, verbose=True)
    for r in made:
        view.show(replace(r, verdict=made[0].verdict))
    view.close({})
    out = capsys.readouterr().out
    assert "[4/5] b8" in out and "1234 samples/s" in out
    assert "1 ok, 2 unsupported, 1 timeout" in out
    assert "  2 unsupported E-PREC-1: no such precision  e.g. b2" in out
    assert "--retry timeout --timeout 30min" in out and "edgescope report" in out


def test_names_of_cells_tell_them_apart_and_hold_nothing_else():
    trials = study.grid(
        {
            "model": ["null", "resnet50"],
            "backend": "null",
            "processes": [1, 2],
            "options": {"delay_us": [1, 2]},
            "replicates": 2,
        }
    )
    name = sweep.namer(trials)
    assert len({name(t) for t in trials}) == len(trials)
    assert name(trials[-1]) == "resnet50 P2 delay_us=2 #1"
    assert sweep.shared(trials) == "null fp32 b1 single_stream 1s"


@pytest.mark.wings
def test_temperatures_of_a_recorded_board_end_the_wait_and_a_machine_without_says_so(monkeypatch):
    from edgescope.verbs import sweep

    told = []
    monkeypatch.setenv("EDGESCOPE_BOARD", "nano")
    found = sweep._cooling(5.0, 0.0, told.append)
    assert found.target["temperature_cpu_therm_c"] > 20 and found.wait() < 60
    monkeypatch.setattr("edgescope.bench.present", dict)
    monkeypatch.delenv("EDGESCOPE_BOARD")
    assert sweep._cooling(5.0, 0.0, told.append).wait() == 0.0
    assert told[0].startswith("W-SWEEP-1")


@pytest.mark.slow
def test_the_exit_code_tells_the_state_of_the_grid_and_not_what_was_new(tmp_path, capsys, trials_here):
    command = ["sweep", "--model", "null", "--backend", "null", "--option", "delay_us=2000", *QUICK]
    first = main(command)
    (ran,) = Store(tmp_path / "store").results()
    expected = 0 if ran.status is Status.OK else 1  # on a busy machine a run may be unstable
    assert first == expected == main(command)
    wrong = replace(
        ran, status=Status.WRONG_OUTPUT, reason=Message("E-OUT-2", "wrong"), id=f"{ran.id[:-6]}ffffff"
    )
    Store(tmp_path / "store").save(replace(wrong, queries=None, window=None, readings=None))
    capsys.readouterr()
    assert main(command) == 1  # nothing ran
    assert "  1 wrong_output E-OUT-2: wrong" in capsys.readouterr().out
    assert main([*command, "--json"]) == 1


def test_a_wrong_request_is_not_to_be_tried_again(capsys):
    reason = "E-SHAPE-2: ids is open. Try: --shapes ids=1x32"
    wrong = result(Trial(model="m"), status=Status.FAILED, reason=reason)
    lines = sweep.following([wrong])
    assert lines == ["--shapes ids=1x32   for cells with a wrong request"]
    broken = result(Trial(model="m"), status=Status.FAILED, reason="E-X-1: the file is damaged.")
    assert "--retry failed" in sweep.following([wrong, broken])[1]
