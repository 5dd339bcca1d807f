#!/usr/bin/python3 -I
"""The only part of edgescope that needs root: it accepts the requests on a short list, and nothing else.

One file, standard library only, Python 3.6 or newer (a board's own python), so that it can be read whole before it
is installed owned by root:

    edgescope-helper nvpmodel -q | -m ID                    read or set the power mode; never agrees to a reboot
    edgescope-helper jetson_clocks [--store | --restore]    hold clocks; store to, restore from the helper's own file
    edgescope-helper write FILE VALUE                       set the governor of a CPU clock policy

Every word is matched whole against an ASCII pattern; every call is written to the system log, refused ones too.
"""
# ruff: noqa: UP006, UP031, UP035

import os
import re
import stat
import subprocess
import sys
import syslog
from typing import Callable, List, Sequence

CPU = r"/sys/devices/system/cpu/"
ALLOWED = (
    (r"nvpmodel", r"-q"),
    (r"nvpmodel", r"-m", r"[0-9]{1,3}"),
    (r"jetson_clocks",),
    (r"jetson_clocks", r"--store|--restore"),
    (r"write", CPU + r"cpufreq/policy[0-9]{1,4}/scaling_governor", r"[a-z_]{1,32}"),
)
"""One row for each request, one pattern for each word of it."""
PROGRAMS = {"nvpmodel": "usr/sbin/nvpmodel", "jetson_clocks": "usr/bin/jetson_clocks"}
STORE = "var/lib/edgescope/jetson_clocks.conf"
LIMIT_S = 30


class Refused(Exception):
    """Raised for a request that is not on the list or not safe here."""


def checked(words: Sequence[str]) -> List[str]:
    """Return the words of the request unchanged if it is on the list; raise Refused otherwise."""
    for row in ALLOWED:
        if len(row) == len(words) and all(
            re.fullmatch(pattern, word, re.ASCII)
            for pattern, word in zip(row, words)  # noqa: B905
        ):
            return list(words)
    raise Refused("not on the list: %s" % ascii(list(words))[:200])


def perform(words: Sequence[str], root: str = "/") -> str:
    """Carry out one request on the machine under `root`; return the program's output. Raises Refused and OSError."""
    verb, rest = checked(words)[0], list(words[1:])
    if verb == "write":
        _write(root, rest[0], rest[1])
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
        rest = [*rest, _store(root, renew=rest[0] == "--store")]
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
        # no errno: an exit status of 1 is not "operation not permitted"
        raise OSError("%s ended with %d: %s" % (name, done.returncode, " ".join(text.split())[-300:]))
    return text


def _store(root: str, renew: bool) -> str:
    """Return the file that stores the clocks; if `renew`, remove an old one, as jetson_clocks would ask about it."""
    path = os.path.join(root, STORE)
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    if os.path.islink(folder) or os.path.islink(path):
        raise Refused("%s is a link" % path)
    if renew and os.path.exists(path):
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


def main(words: Sequence[str], log: Callable[[str], None] = syslog.syslog) -> int:
    """Carry out one request for the user that sudo names; return 0, 2 if refused, or 1 if it failed."""
    name = os.environ.get("SUDO_UID", "")
    user = name if re.fullmatch("[0-9]{1,10}", name, re.ASCII) else str(os.getuid())
    try:
        text = perform(words)
    except Refused as error:
        log("refused to user %s: %s" % (user, error))
        sys.stderr.write("edgescope-helper: refused: %s\n" % error)
        return 2
    except (OSError, subprocess.SubprocessError) as error:
        log("failed for user %s: %s: %s" % (user, ascii(list(words)), error))
        sys.stderr.write("edgescope-helper: %s\n" % error)
        return 1
    log("did for user %s: %s" % (user, " ".join(words)))
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(sys.argv[1:]))
