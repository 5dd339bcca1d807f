"""A clock under load, with a worker that does not work and time that passes by sleeping."""

import pytest

from edgescope.devices import clocks
from fake_board import write

CPUFREQ = "sys/devices/system/cpu/cpufreq"


@pytest.fixture
def busy(monkeypatch):
    """What keeps a core busy, on which core; each sleep may change the board."""
    did = []

    class Time:
        now, changes = 0.0, []

        def monotonic(self):
            return self.now

        def sleep(self, seconds):
            self.now = round(self.now + seconds, 6)
            if self.changes:
                self.changes.pop(0)()

    time = Time()
    monkeypatch.setattr(clocks, "time", time)
    monkeypatch.setattr(clocks.os, "sched_setaffinity", lambda pid, cpus: did.append((pid, cpus)))
    monkeypatch.setattr(clocks, "work", lambda loops: did.append(loops) if len(did) < 3 else None)
    time.did = did
    return time


def policy(root, number=0, *, cpus="2 3", maximum=1000, requested=900, hardware=None):
    folder = f"{CPUFREQ}/policy{number}"
    files = {"affected_cpus": cpus, "scaling_max_freq": maximum, "scaling_cur_freq": requested}
    files |= {} if hardware is None else {"cpuinfo_cur_freq": hardware}
    write(root, {f"{folder}/{name}": f"{text}\n" for name, text in files.items() if text is not None})
    return root / folder


def test_the_highest_clock_while_the_first_core_is_busy(tmp_path, busy):
    folder = policy(tmp_path, hardware=500)
    busy.changes = [lambda hz=hz: policy(tmp_path, hardware=hz) for hz in (800, 950, 700)]
    assert clocks.busy_hz(folder, 0.04) == 950_000 and busy.now == pytest.approx(0.04)
    assert busy.did[0] == (0, {2}) and set(busy.did[1:]) <= {4000}


def test_a_clock_that_cannot_be_read_meanwhile_counts_as_none(tmp_path, busy):
    folder = policy(tmp_path, hardware=500)
    busy.changes = [lambda: policy(tmp_path, hardware="x"), lambda: policy(tmp_path, hardware=400)]
    assert clocks.busy_hz(folder, 0.02) == 400_000
    folder = policy(tmp_path, hardware=500)
    busy.changes = [lambda: policy(tmp_path, hardware="x")]
    assert clocks.busy_hz(folder, 0.01) == 0


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"cpus": None}, "affected_cpus"),
        ({"cpus": ""}, "affected_cpus"),
        ({"cpus": "x"}, "affected_cpus"),
        ({"requested": None}, "no clock can be read"),
        ({"requested": "x"}, "no clock can be read"),
    ],
)
def test_a_policy_that_says_nothing_is_not_probed(tmp_path, busy, keys, says):
    folder = policy(tmp_path, **keys)
    found = clocks.busy_hz(folder, 0.02)
    assert says in found["absent"] and str(folder) in found["absent"] and not busy.did
    problem, evidence = clocks.probe(tmp_path)
    assert problem == "" and evidence.startswith("policy0 not probed (") and says in evidence


def test_a_core_that_may_not_be_used_is_told(tmp_path, busy, monkeypatch):
    def refused(pid, cpus):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(clocks.os, "sched_setaffinity", refused)
    found = clocks.busy_hz(policy(tmp_path), 60.0)
    assert found == {"absent": "CPU 2 cannot be used: Invalid argument"} and busy.now < 60


@pytest.mark.parametrize(
    ("hardware", "fine"), [(700, True), (699, False), (1050, True), (1051, False), (1000, True), (0, False)]
)
def test_a_busy_clock_lies_near_its_limit(tmp_path, busy, hardware, fine):
    policy(tmp_path, hardware=hardware * 1000, maximum=1_000_000)
    problem, evidence = clocks.probe(tmp_path)
    assert (problem == "") is fine and f"{hardware} MHz" in evidence + problem
    assert "of 1000 (the hardware's" in evidence


def test_each_policy_has_its_part_of_the_time_and_says_whose_clock_it_is(tmp_path, busy):
    policy(tmp_path, 0, requested=900, maximum=1000)
    policy(tmp_path, 4, requested=500, maximum=1000)
    problem, evidence = clocks.probe(tmp_path)
    assert busy.now == pytest.approx(0.2) and problem.startswith("policy4 runs at") and ";" not in problem
    assert evidence.count("the kernel's request") == 2
    assert clocks.probe(tmp_path / "none") == ("", "clocks not probed (no cpufreq)")


def test_a_limit_that_cannot_be_read_is_told(tmp_path, busy):
    policy(tmp_path, maximum=None)
    assert "scaling_max_freq" in clocks.probe(tmp_path)[1]


@pytest.mark.parametrize(
    ("ends", "floats"),
    [([(5, 5)], False), ([(5, 6)], True), ([(5, 5), (6, 5)], True), ([(5, 5), (9, 9)], False)],
)
def test_clocks_float_where_any_policy_has_two_ends(tmp_path, ends, floats):
    for n, (low, high) in enumerate(ends):
        folder = f"{CPUFREQ}/policy{n}"
        write(tmp_path, {f"{folder}/scaling_min_freq": str(low), f"{folder}/scaling_max_freq": str(high)})
    assert clocks.dvfs(tmp_path) is floats


def test_whether_clocks_float_may_not_be_known(tmp_path):
    assert clocks.dvfs(tmp_path) == {"absent": "no cpufreq"}
    write(tmp_path, {f"{CPUFREQ}/policy0/scaling_min_freq": "5"})
    assert "scaling_max_freq" in clocks.dvfs(tmp_path)["absent"]
