"""The privileged helper does what is on its list and nothing else, whatever it is handed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from fake_jetson import CPU, board, read
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.modes import helper

GOVERNOR = f"/{CPU}/cpufreq/policy0/scaling_governor"

ALLOWED = [
    ("nvpmodel", "-q"),
    ("nvpmodel", "-m", "2"),
    ("jetson_clocks",),
    ("jetson_clocks", "--store"),
    ("jetson_clocks", "--restore"),
    ("write", GOVERNOR, "performance"),
]

HOSTILE = [
    (),
    ("",),
    ("sh", "-c", "id"),
    ("nvpmodel",),
    ("nvpmodel", "-m"),
    ("nvpmodel", "-m", "2\n"),
    ("nvpmodel", "-m", "\u0662"),
    ("nvpmodel", "-m", "\uff12"),
    ("nvpmodel", "-m", "2", "--force"),
    ("nvpmodel", "-m", "1;reboot"),
    ("nvpmodel", "-m", "-1"),
    ("nvpmodel", "-m", "0x2"),
    ("nvpmodel", "-m", "1234"),
    ("nvpmodel", "-f", "/tmp/mine.conf"),
    ("nvpmodel -m 2",),
    ("../nvpmodel", "-q"),
    ("jetson_clocks", "--store", "/etc/shadow"),
    ("jetson_clocks", "--restore", "/tmp/mine"),
    ("jetson_clocks", "--fan"),
    # once on the list: groups at the top of the hierarchy, and files that no mode writes
    ("quota", "set", "edgescope-12", "50000"),
    ("quota", "join", "edgescope-12", "4711"),
    ("quota", "remove", "edgescope-12"),
    ("write", f"/{CPU}/cpu3/online", "0"),
    ("write", f"/{CPU}/cpufreq/policy4/scaling_max_freq", "1344000"),
    ("write", f"/{CPU}/cpufreq/policy4/scaling_min_freq", "1344000"),
    ("write", "/sys/class/devfreq/17000000.gpu/max_freq", "918000000"),
    ("write", "/sys/class/devfreq/gpu-gpc-0/min_freq", "306000000"),
    ("write", "/etc/passwd", "x"),
    ("write", f"/{CPU}/cpufreq/policy\u0661/scaling_governor", "performance"),
    ("write", f"/{CPU}/cpufreq/policy1/../../../../../etc/passwd", "x"),
    ("write", f"/{CPU}/cpufreq/../scaling_governor", "performance"),
    ("write", f"//{CPU}/cpufreq/policy0/scaling_governor", "performance"),
    ("write", f"{GOVERNOR}/../../../x", "performance"),
    ("write", GOVERNOR, "Performance;id"),
    ("write", GOVERNOR, ""),
    ("write", GOVERNOR + "\n", "performance"),
    ("write", GOVERNOR + "\0", "performance"),
]


@pytest.mark.parametrize("words", ALLOWED, ids=" ".join)
def test_what_is_on_the_list_passes_unchanged(words):
    assert helper.checked(words) == list(words)


@pytest.mark.parametrize("words", HOSTILE, ids=ascii)
def test_what_is_not_is_refused_and_logged_and_nothing_is_done(words, monkeypatch, capsys):
    monkeypatch.setattr(helper.subprocess, "run", lambda *a, **k: pytest.fail("it ran a program"))
    monkeypatch.setattr(helper, "_write", lambda *a: pytest.fail("it wrote a file"))
    logged: list[str] = []
    assert helper.main(words, logged.append) == 2
    assert len(logged) == 1 and logged[0].startswith("refused") and "\n" not in logged[0]
    assert "refused" in capsys.readouterr().err


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(ALLOWED), st.integers(0, 3), st.text(max_size=6), st.integers(0, 60))
def test_any_insertion_into_a_good_request_is_refused_or_of_the_same_kind(words, at, extra, where):
    at %= len(words)
    spoilt = [*words[:at], words[at][:where] + extra + words[at][where:], *words[at + 1 :]]
    try:
        passed = helper.checked(spoilt)
    except helper.Refused:
        return
    assert all(word.isascii() and word.isprintable() and " " not in word for word in passed)
    assert ".." not in "".join(passed) and passed[0] == words[0]


def test_a_write_goes_to_the_file_and_an_old_longer_value_leaves_nothing(tmp_path):
    root = board(tmp_path)
    (root / GOVERNOR[1:]).write_text("conservative\n")
    helper.perform(("write", GOVERNOR, "ondemand"), str(root))
    assert (root / GOVERNOR[1:]).read_text() == "ondemand\n"


def test_a_write_follows_no_link_out_of_sys_and_makes_no_file(tmp_path):
    root = board(tmp_path / "root")
    secret = tmp_path / "secret"
    secret.write_text("untouched")
    (root / GOVERNOR[1:]).unlink()
    with pytest.raises(OSError):
        helper.perform(("write", GOVERNOR, "ondemand"), str(root))
    assert not (root / GOVERNOR[1:]).exists()
    (root / GOVERNOR[1:]).symlink_to(secret)
    with pytest.raises(OSError):
        helper.perform(("write", GOVERNOR, "ondemand"), str(root))
    folder = root / f"{CPU}/cpufreq/policy7"
    (tmp_path / "scaling_governor").write_text("untouched")
    folder.symlink_to(tmp_path)
    with pytest.raises(helper.Refused, match="out of /sys"):
        helper.perform(("write", f"/{CPU}/cpufreq/policy7/scaling_governor", "ondemand"), str(root))
    assert secret.read_text() == (tmp_path / "scaling_governor").read_text() == "untouched"


def test_a_link_that_stays_within_sys_is_followed_as_cpufreq_has_them(tmp_path):
    root = board(tmp_path)
    (root / f"{CPU}/cpufreq/policy4").symlink_to("policy0")
    helper.perform(("write", f"/{CPU}/cpufreq/policy4/scaling_governor", "ondemand"), str(root))
    assert read(root, GOVERNOR[1:]) == "ondemand"


def test_the_clock_store_is_the_helpers_own_and_is_no_link(tmp_path):
    root = board(tmp_path / "root")
    helper.perform(("jetson_clocks", "--store"), str(root))
    helper.perform(
        ("jetson_clocks", "--store"), str(root)
    )  # the program would ask; an old store is removed first
    assert read(root, helper.STORE) == "729600"
    (root / helper.STORE).unlink()
    (root / helper.STORE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(helper.Refused, match="link"):
        helper.perform(("jetson_clocks", "--store"), str(root))
    assert not (tmp_path / "elsewhere").exists()


def test_a_program_has_no_input_no_terminal_and_a_clean_environment(tmp_path, monkeypatch):
    root = board(tmp_path)
    monkeypatch.setenv("LD_PRELOAD", "/tmp/evil.so")
    program = root / "usr/sbin/nvpmodel"
    program.write_text(
        "#!/bin/sh\nenv > env; cat > input; (exec < /dev/tty) 2>/dev/null && echo tty > tty\nexit 0\n"
    )
    helper.perform(("nvpmodel", "-q"), str(root))
    assert read(root, "input") == "" and read(root, "tty") == ""
    assert "LD_PRELOAD" not in read(root, "env") and "PATH=/usr/sbin:/usr/bin:/sbin:/bin" in read(root, "env")


def test_a_failing_program_is_an_error_with_its_words(tmp_path):
    root = board(tmp_path)
    (root / "usr/sbin/nvpmodel").write_text("#!/bin/sh\necho NVPM ERROR: no\nexit 3\n")
    with pytest.raises(OSError, match="ended with 3: NVPM ERROR: no"):
        helper.perform(("nvpmodel", "-q"), str(root))


def test_it_is_one_short_file_of_the_standard_library_that_an_old_python_can_read():
    source = Path(helper.__file__)
    tree = ast.parse(source.read_text(), feature_version=(3, 6))
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert names <= {"os", "re", "stat", "subprocess", "sys", "syslog", "typing"}
    assert len(source.read_text().splitlines()) < 200
    done = subprocess.run(
        [sys.executable, "-I", str(source), "sh"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "refused" in done.stderr
