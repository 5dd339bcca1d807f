"""What cannot be asked for is refused before anything starts: exit code 2, the range, the reason."""

import re

import pytest

from edgescope.cli.main import main
from edgescope.errors import UsageError
from edgescope.isolate import fresh
from edgescope.models import zoo
from edgescope.records import Trial
from edgescope.study import grid, rules


@pytest.fixture(autouse=True)
def nothing_starts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(fresh, "_in_child", lambda *a: pytest.fail("a process was started"))


@pytest.mark.wings
@pytest.mark.process
@pytest.mark.parametrize("verb", ["bench", "sweep", "optimize"])
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--rate", "50"], "E-SCEN-11: single_stream takes no rate"),
        (["--duration", "0"], "must last 1ms to 7 days, not 0 s"),
        (["--rate", "1e9", "--scenario", "server"], r"rate must be at most 1e\+06 queries/s"),
        (
            ["--rate", "1e6", "--scenario", "server", "--duration", "10min"],
            r"6e\+08 queries, more than 1e\+08",
        ),
        (["--threads", "100000"], "threads must lie between 0 and 1024, not 100000"),
        (["--processes", "5000"], "processes must be at most 256, not 5000"),
        (["--in-flight", "5000"], "in_flight must be at most 1024, not 5000"),
        (["--memory-floor=-1"], "--memory-floor must be 0 MB or more, not -1"),
        (["--memory-floor", "nan"], "--memory-floor must be 0 MB or more"),
        (["--soak", "1s"], r"--soak must .* 60s, not 1s"),
        (["--timeout", "0"], "--timeout must .* above 0, not 0s"),
    ],
)
def test_it_is_refused_before_anything_starts(verb, flags, says, capsys):
    typed = ["--model", "null"] if verb == "sweep" else ["null"]
    engine = [] if verb == "optimize" else ["--backend", "null"]
    assert main([verb, *typed, *engine, *flags]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(says, said) and "Nothing was measured" in said


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("rate = 50", "study.toml line 4: .*: single_stream takes no rate"),
        ("max_s = 0\nmin_s = 0", "study.toml line 4: the window"),
        ("processes = [1, 5000]", "study.toml line 4: processes must be at most 256, not 5000"),
        ("options = { threads = [1, 100000] }", "study.toml line 4: threads must lie between 0 and 1024"),
        ("[sweep]\ntimeout = 0", "study.toml line 5: timeout must .* above 0, not 0"),
        ("[sweep]\ntimeout = '0s'", "study.toml line 5: timeout must .* above 0"),
        ("[sweep]\nmemory_floor = -1", "study.toml line 5: memory_floor must not "),
    ],
)
def test_a_study_says_on_which_line(tmp_path, line, says):
    path = tmp_path / "study.toml"
    path.write_text(f"[trial]\nmodel = 'null'\nbackend = 'null'\n{line}\n")
    with pytest.raises(UsageError) as found:
        grid.read(path, zoo.pin)
    assert re.search(says, str(found.value))


def test_a_stored_trial_of_any_range_is_read():
    assert Trial(model="null", processes=5000, max_s=0.0, min_s=0.0).processes == 5000


def test_what_can_be_measured_is_left_alone():
    for keys in ({}, {"max_s": 0.05, "min_s": 0.05}, {"processes": 256}, {"options": {"threads": 64}}):
        assert rules.in_range(Trial(model="null", **keys))
    rules.limits(900.0, None, None)
    rules.limits(0.5, 0.0, 60.0)
