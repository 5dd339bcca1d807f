#!/usr/bin/python3 -I
"""The only part of edgescope that needs root: it does what is on a short list, and nothing else.

One file, standard library only, Python 3.6 or newer (a board's own python), so that it can be read whole before it
is installed owned by root:

    edgescope-helper nvpmodel -q | -m ID                    ask for, or set, a power mode; never agrees to a reboot
    edgescope-helper jetson_clocks [--store | --restore]    to and from a file of the helper's own
    edgescope-helper quota set GROUP MICROSECONDS           CPU time per 100 ms of a group named edgescope-NUMBER
    edgescope-helper quota join GROUP PID                   only a process of the user who called
    edgescope-helper quota remove GROUP
    edgescope-helper write FILE VALUE                       CPU online, governor and clock limits; GPU clock limits

Every word is matched whole against an ASCII pattern; every call is written to the system log, refused ones too.
"""
# ruff: noqa: UP006, UP031, UP035, UP045

import errno
import os
import re
import stat
import subprocess
import sys
import syslog
import time
from typing import Callable, List, Optional, Sequence

GROUP = r"edgescope-[0-9]{1,10}"
CPU = r"/sys/devices/system/cpu/"
ALLOWED = (
    (r"nvpmodel", r"-q"),
    (r"nvpmodel", r"-m", r"[0-9]{1,3}"),
    (r"jetson_clocks",),
    (r"jetson_clocks", r"--store|--restore"),
    (r"quota", r"set", GROUP, r"[1-9][0-9]{3,8}"),
    (r"quota", r"join", GROUP, r"[1-9][0-9]{0,9}"),
    (r"quota", r"remove", GROUP),
    (r"write", CPU + r"cpu[1-9][0-9]{0,3}/online", r"[01]"),
    (r"write", CPU + r"cpufreq/policy[0-9]{1,4}/scaling_governor", r"[a-z_]{1,32}"),
    (r"write", CPU + r"cpufreq/policy[0-9]{1,4}/scaling_(?:min|max)_freq", r"[0-9]{1,9}"),
    (
        r"write",
        r"/sys/class/devfreq/[0-9a-z][0-9a-z_-]{0,40}(?:\.[0-9a-z_-]{1,40})?/(?:min|max)_freq",
        r"[0-9]{1,12}",
    ),
)
"""One row a request, one pattern a word."""
PROGRAMS = {"nvpmodel": "usr/sbin/nvpmodel", "jetson_clocks": "usr/bin/jetson_clocks"}
STORE = "var/lib/edgescope/jetson_clocks.conf"
PERIOD_US = 100000
LIMIT_S = 30
DYING_TRIES = 60


class Refused(Exception):
    """Not on the list, or not safe here."""


def checked(words: Sequence[str]) -> List[str]:
    """Return the words as they are when they are on the list; Refused otherwise."""
    for row in ALLOWED:
        if len(row) == len(words) and all(
            re.fullmatch(pattern, word, re.ASCII)
            for pattern, word in zip(row, words)  # noqa: B905
        ):
            return list(words)
    raise Refused("not on the list: %s" % ascii(list(words))[:200])


def perform(words: Sequence[str], root: str = "/", uid: Optional[int] = None) -> str:
    """Do one request on the machine under `root`; return what a program printed.

    `uid` is the user on whose behalf it is done, None for whoever runs this. Raises Refused and OSError.
    """
    verb, rest = checked(words)[0], list(words[1:])
    if verb == "write":
        _write(root, rest[0], rest[1])
        return ""
    if verb == "quota":
        _quota(root, rest, uid)
        return ""
    return _program(root, verb, rest)


def _program(root: str, name: str, rest: List[str]) -> str:
    """Run nvpmodel or jetson_clocks with nothing on its standard input and no terminal to ask on."""
    path = os.path.join(root, PROGRAMS[name])
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise Refused("%s is not a file" % path)
    if root == "/" and (found.st_uid != 0 or found.st_mode & 0o022):
        raise Refused("%s can be written by others than root" % path)
    if name == "jetson_clocks" and rest:
        rest = [*rest, _store(root, anew=rest[0] == "--store")]
    done = subprocess.run(
        [path, *rest],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/root"},
        cwd=root,
        timeout=LIMIT_S,
        start_new_session=True,
        check=False,
    )
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        raise OSError(
            done.returncode, "%s ended with %d: %s" % (name, done.returncode, " ".join(text.split())[-300:])
        )
    return text


def _store(root: str, anew: bool) -> str:
    """Return the file that keeps the clocks; jetson_clocks asks a question where one is there already."""
    path = os.path.join(root, STORE)
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    if os.path.islink(folder) or os.path.islink(path):
        raise Refused("%s is a link" % path)
    if anew and os.path.exists(path):
        os.unlink(path)
    return path


def _write(root: str, name: str, value: str) -> None:
    """Write one value to an existing kernel file that really lies in /sys."""
    path = os.path.join(root, name.lstrip("/"))
    folder, sysfs = os.path.realpath(os.path.dirname(path)), os.path.join(os.path.realpath(root), "sys")
    if not (folder + "/").startswith(sysfs + "/"):
        raise Refused("%s leads out of /sys" % name)
    handle = os.open(os.path.join(folder, os.path.basename(path)), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise Refused("%s is not a file" % name)
        if root != "/":
            os.ftruncate(handle, 0)  # a kernel file takes each write whole; a plain one would keep old digits
        os.write(handle, (value + "\n").encode("ascii"))
    finally:
        os.close(handle)


def _quota(root: str, rest: List[str], uid: Optional[int]) -> None:
    """Make, enter or remove a control group of edgescope's own (cgroup v2, or v1 as on JetPack 4)."""
    action, base = rest[0], cpu_base(root)
    folder = os.path.join(base, rest[1])
    v2 = os.path.exists(os.path.join(base, "cgroup.controllers"))
    if action == "set":
        if v2:
            _put(os.path.join(base, "cgroup.subtree_control"), "+cpu")
        os.makedirs(folder, mode=0o755, exist_ok=True)
        if v2:
            _put(os.path.join(folder, "cpu.max"), "%s %d" % (rest[2], PERIOD_US))
        else:
            _put(os.path.join(folder, "cpu.cfs_period_us"), str(PERIOD_US))
            _put(os.path.join(folder, "cpu.cfs_quota_us"), rest[2])
    elif action == "join":
        if uid is not None and os.stat("/proc/" + rest[2]).st_uid != uid:
            raise Refused("process %s is not yours" % rest[2])
        _put(os.path.join(folder, "cgroup.procs"), rest[2])
    elif os.path.isdir(folder):
        _remove(folder)


def _remove(folder: str) -> None:
    """Remove a group; processes that were just killed may still be in it for a moment."""
    for _ in range(DYING_TRIES):
        try:
            return os.rmdir(folder)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        time.sleep(0.05)
    os.rmdir(folder)


def cpu_base(root: str) -> str:
    """Return the folder of the control-group hierarchy that limits CPU time; OSError where there is none."""
    base = os.path.join(root, "sys/fs/cgroup")
    if os.path.exists(os.path.join(base, "cgroup.controllers")):
        return base
    for name in ("cpu", "cpu,cpuacct"):
        if os.path.exists(os.path.join(base, name, "cgroup.procs")):
            return os.path.join(base, name)
    raise FileNotFoundError(2, "no control group can limit CPU time", base)


def _put(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def main(words: Sequence[str], log: Callable[[str], None] = syslog.syslog) -> int:
    """Do one request on behalf of the user that sudo names; 0, or 2 when refused, or 1 when it failed."""
    user = os.environ.get("SUDO_UID", "")
    try:
        uid = int(user) if re.fullmatch("[0-9]{1,10}", user, re.ASCII) else os.getuid()
        text = perform(words, "/", uid)
    except Refused as error:
        log("refused to user %s: %s" % (user or os.getuid(), error))
        sys.stderr.write("edgescope-helper: refused: %s\n" % error)
        return 2
    except (OSError, subprocess.SubprocessError) as error:
        log("failed for user %s: %s: %s" % (user or os.getuid(), ascii(list(words)), error))
        sys.stderr.write("edgescope-helper: %s\n" % error)
        return 1
    log("did for user %s: %s" % (user or os.getuid(), " ".join(words)))
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(sys.argv[1:]))
