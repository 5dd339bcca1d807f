"""The privileged helper does what is on its list and nothing else, whatever it is handed."""

import ast
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.modes import helper, privileged
from fake_jetson import CPU, board, read

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


@pytest.mark.slow
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


@pytest.mark.process
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


@pytest.mark.process
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


@pytest.mark.process
def test_a_failing_program_is_an_error_with_its_words(tmp_path):
    root = board(tmp_path)
    (root / "usr/sbin/nvpmodel").write_text("#!/bin/sh\necho NVPM ERROR: no\nexit 3\n")
    with pytest.raises(OSError, match="ended with 3: NVPM ERROR: no"):
        helper.perform(("nvpmodel", "-q"), str(root))


@pytest.mark.process
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


def asked(monkeypatch, root, output=b"out\n", code=0):
    """What the helper starts under `root`, where its two programs are files."""
    calls = []

    def run(words, **how):
        calls.append((words, how))
        return SimpleNamespace(stdout=output, returncode=code)

    for name in helper.PROGRAMS.values():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    monkeypatch.setattr(helper.subprocess, "run", run)
    return calls


def test_a_program_is_started_without_a_terminal_and_with_an_environment_of_its_own(tmp_path, monkeypatch):
    calls = asked(monkeypatch, tmp_path, b"a\xff\n")
    assert helper.perform(("nvpmodel", "-m", "2"), str(tmp_path)) == "a\ufffd\n"
    (words, how) = calls[0]
    assert words == [str(tmp_path / "usr/sbin/nvpmodel"), "-m", "2"]
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/root"}
    assert how == {
        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "env": env},
        **{"cwd": str(tmp_path), "timeout": 30, "start_new_session": True, "check": False},
    }


def test_clocks_are_stored_anew_and_restored_from_the_file_that_is_there(tmp_path, monkeypatch):
    calls, store = asked(monkeypatch, tmp_path), tmp_path / helper.STORE
    before = os.umask(0)
    try:
        helper.perform(("jetson_clocks", "--store"), str(tmp_path))
    finally:
        os.umask(before)
    assert store.parent.stat().st_mode & 0o777 == 0o755
    store.write_text("old")
    helper.perform(("jetson_clocks", "--restore"), str(tmp_path))
    assert store.read_text() == "old"
    helper.perform(("jetson_clocks",), str(tmp_path))
    helper.perform(("jetson_clocks", "--store"), str(tmp_path))
    assert not store.exists(), "or the program would ask"
    path = str(tmp_path / "usr/bin/jetson_clocks")
    rows = [["--store", str(store)], ["--restore", str(store)], [], ["--store", str(store)]]
    assert [words for words, _ in calls] == [[path, *row] for row in rows]


def test_the_last_words_of_a_program_that_failed_are_told(tmp_path, monkeypatch):
    asked(monkeypatch, tmp_path, b"x" * 400 + b"\n no  way", 3)
    with pytest.raises(OSError, match="ended with 3") as caught:
        helper.perform(("nvpmodel", "-q"), str(tmp_path))
    assert str(caught.value).endswith(": " + "x" * 293 + " no way") and caught.value.errno is None


@pytest.mark.parametrize(
    ("owner", "mode", "safe"),
    [
        (0, 0o755, True),
        (0, 0o4755, True),
        (1, 0o755, False),
        (0, 0o775, False),
        (0, 0o757, False),
        (0, 0o777, False),
    ],
)
def test_on_the_machine_itself_a_program_must_be_roots_alone(monkeypatch, tmp_path, owner, mode, safe):
    calls = asked(monkeypatch, tmp_path)
    found = SimpleNamespace(st_mode=stat.S_IFREG | mode, st_uid=owner)
    monkeypatch.setattr(helper.os, "stat", lambda path: found)
    if safe:
        assert helper.perform(("nvpmodel", "-q")) == "out\n" and calls[0][0] == ["/usr/sbin/nvpmodel", "-q"]
        return
    with pytest.raises(helper.Refused):
        helper.perform(("nvpmodel", "-q"))
    assert helper.perform(("nvpmodel", "-q"), "/elsewhere") == "out\n"


def test_a_refused_request_is_cut_in_the_log():
    with pytest.raises(helper.Refused) as caught:
        helper.checked(("x" * 500,))
    assert str(caught.value) == "not on the list: " + ascii(["x" * 500])[:200]


@pytest.mark.parametrize(
    ("uid", "user"),
    [
        ("1000", "1000"),
        ("1234567890", "1234567890"),
        ("12345678901", None),
        ("", None),
        ("0x1", None),
        ("7\n", None),
    ],
)
@pytest.mark.parametrize(
    ("error", "code", "begins"),
    [(None, 0, "did for"), (helper.Refused("no"), 2, "refused to"), (OSError("no"), 1, "failed for")],
)
def test_each_call_is_logged_with_its_user_and_has_its_exit_status(
    monkeypatch, capsys, uid, user, error, code, begins
):
    def perform(words):
        if error:
            raise error
        return "text"

    logged = []
    monkeypatch.setenv("SUDO_UID", uid)
    monkeypatch.setattr(helper, "perform", perform)
    assert helper.main(["nvpmodel", "-q"], logged.append) == code
    assert len(logged) == 1 and logged[0].startswith(f"{begins} user {user or os.getuid()}: ")
    out, err = capsys.readouterr()
    assert (out, bool(err)) == (("text", False) if code == 0 else ("", True))


# -- asking for the helper -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "text", "error", "says"),
    [
        (0, "", None, "done\n"),
        (1, "", PermissionError, "sudo ended with 1"),
        (1, "y" * 400, PermissionError, "y" * 300),
        (1, "edgescope-helper: no such mode", OSError, "edgescope-helper: no such mode"),
    ],
)
def test_a_user_asks_the_installed_helper_without_a_password(monkeypatch, tmp_path, code, text, error, says):
    calls, there = [], tmp_path / "helper"
    there.touch()

    def run(words, **how):
        calls.append((words, how))
        return SimpleNamespace(returncode=code, stdout="done\n", stderr=text)

    monkeypatch.setattr(privileged.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(privileged, "HELPER", there)
    monkeypatch.setattr(privileged.subprocess, "run", run)
    if error is None:
        assert privileged.perform(("nvpmodel", "-q"), Path("/")) == says
        how = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
        how |= {"timeout": privileged._SUDO_S, "check": False}
        assert calls == [(["sudo", "-n", str(there), "nvpmodel", "-q"], how)]
        return
    with pytest.raises(error) as caught:
        privileged.perform(("nvpmodel", "-q"), Path("/"))
    assert says in str(caught.value) and isinstance(caught.value, PermissionError) is (
        error is PermissionError
    )
    if error is PermissionError:
        assert caught.value.errno == 1 and caught.value.strerror == says


def test_who_may_changes_it_at_once_and_who_may_not_needs_the_helper(monkeypatch, tmp_path):
    did = []

    def perform(request, root):
        did.append((tuple(request), root))
        if os.geteuid():
            raise PermissionError(13, "no")
        return "done"

    monkeypatch.setattr(privileged.helper, "perform", perform)
    monkeypatch.setattr(privileged, "HELPER", tmp_path / "nowhere")
    monkeypatch.setattr(privileged.os, "geteuid", lambda: 0)
    assert privileged.perform(("nvpmodel", "-q"), Path("/")) == "done"
    monkeypatch.setattr(privileged.os, "geteuid", lambda: 1000)
    for request, tried in ((("nvpmodel", "-q"), 0), (("write", GOVERNOR, "x"), 1)):
        did.clear()
        with pytest.raises(PermissionError) as caught:
            privileged.perform(request, Path("/"))
        assert caught.value.errno == 1 and len(did) == tried
    did.clear()
    with pytest.raises(PermissionError):
        privileged.perform(("nvpmodel", "-q"), tmp_path)
    assert did == [(("nvpmodel", "-q"), str(tmp_path))], "a tree of files is the user's own"
