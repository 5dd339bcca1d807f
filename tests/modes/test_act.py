"""Who makes a change: this process, the helper through sudo, or nobody."""

import os
from pathlib import Path

import pytest

from edgescope.errors import SettingError
from edgescope.modes import catalog, helper, privileged
from edgescope.wings.jetson import modes
from fake_jetson import CPU, board, read

SUDO = """#!/bin/sh
# as sudo -n: runs what it may, without ever asking for a password
echo "$*" >> "$SAID"
[ -e "$SAID.locked" ] && { echo "sudo: a password is required" >&2; exit 1; }
[ -e "$SAID.fails" ] && { echo "edgescope-helper: nvpmodel ended with 1: no" >&2; exit 1; }
[ -e "$SAID.waits" ] && echo "NVPM WARN: Reboot required for changing to this power mode: 2"
exit 0
"""
WORDS = ("nvpmodel", "-m", "2")


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A process that is not root, with a helper installed and a sudo that knows it; returns what sudo was told."""
    said = tmp_path / "said"
    for name, text in (("sudo", SUDO), ("edgescope-helper", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SAID", str(said))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(privileged, "HELPER", tmp_path / "edgescope-helper")
    monkeypatch.setattr(
        modes, "output", lambda root: "NV Power Mode: MAXN_SUPER\n2\n" if said.exists() else ""
    )
    monkeypatch.setattr(helper, "perform", lambda *a: pytest.fail("it was done without the helper"))
    return said


@pytest.mark.process
def test_a_user_goes_through_sudo_and_the_helper_word_for_word(user):
    privileged.act(WORDS)
    assert user.read_text() == f"-n {privileged.HELPER} nvpmodel -m 2\n"


def test_without_a_helper_the_message_says_how_to_get_one(user):
    privileged.HELPER.unlink()
    with pytest.raises(SettingError, match=r"E-MODE-4: .*not installed") as caught:
        privileged.act(WORDS)
    assert caught.value.fix == "edgescope modes --install-helper" and not user.exists()


@pytest.mark.process
def test_a_sudo_that_wants_a_password_is_a_refusal_with_its_words(user):
    user.with_suffix(".locked").touch()
    with pytest.raises(SettingError, match=r"E-MODE-4: .*password"):
        privileged.act(WORDS)


@pytest.mark.process
def test_a_mode_that_waits_for_a_reboot_is_not_in_effect_whatever_the_exit_code(user):
    user.with_suffix(".waits").touch()
    with pytest.raises(SettingError, match=r"E-MODE-2: .*reboot"):
        privileged.act(WORDS)


def test_what_is_so_already_needs_no_rights(user, tmp_path):
    user.touch()  # nvpmodel answers 2
    privileged.act(WORDS)
    assert user.read_text() == ""
    root = board(tmp_path / "root")
    governor = f"{CPU}/cpufreq/policy0/scaling_governor"
    privileged.act(("write", f"/{governor}", "schedutil"), root)
    assert read(root, governor) == "schedutil"


@pytest.mark.process
def test_a_program_that_ends_with_1_is_no_want_of_rights(tmp_path, monkeypatch):
    root = board(tmp_path)
    (root / "usr/sbin/nvpmodel").write_text("#!/bin/sh\necho NVPM ERROR: no\nexit 1\n")
    with pytest.raises(SettingError, match=r"E-MODE-4.*ended with 1: NVPM ERROR: no") as caught:
        privileged.act(WORDS, root)
    assert caught.value.fix == ""


@pytest.mark.process
def test_nor_is_a_helper_that_was_let_and_failed(user):
    user.with_suffix(".fails").touch()
    with pytest.raises(SettingError, match=r"E-MODE-4: .*nvpmodel .* 1\b") as caught:
        privileged.act(WORDS)
    assert caught.value.fix == ""


@pytest.mark.parametrize(
    "words", [(), ("sh",), ("mps_quit",), ("gpu_power", "0"), ("quota",), ("write", "/etc/passwd", "x")]
)
def test_what_is_not_a_change_is_refused(words):
    with pytest.raises(SettingError, match="E-MODE-4"):
        privileged.act(words)


def test_the_commands_that_install_the_helper_name_it_and_its_undoing():
    text = catalog.install("ada", str(helper.__file__), str(privileged.HELPER))
    assert f"install -o root -g root -m 0755 {helper.__file__} {privileged.HELPER}" in text
    assert f"ada ALL=(root) NOPASSWD: {privileged.HELPER}'" in text and "to undo:  sudo rm" in text
    assert Path(str(helper.__file__)).is_file()
