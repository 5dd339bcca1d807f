"""The script of a plan: run.sh, which a person runs on the board. It needs sh, tar, sha256sum and the board's trtexec.

It changes no setting of the board. Around every run it notes the power mode, so that a figure of another mode is not
taken for one of this; before the first it notes the content of every file that it will use. What it notes of the board
names neither a person nor a network.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

#: What is copied of the board: what names its module, release, processor, memory and power modes.
FACTS = (
    "etc/nv_tegra_release",
    "etc/os-release",
    "etc/nvpmodel.conf",
    "var/lib/nvpmodel/status",
    "proc/device-tree/model",
    "proc/device-tree/compatible",
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/stat",
    "proc/sys/kernel/osrelease",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/possible",
    "sys/devices/system/cpu/present",
)
#: The files of one run, besides its exports.
LOG, CODE, BEFORE, AFTER, BEGAN = "log", "code", "mode_before", "mode_after", "began"

HEAD = """#!/bin/sh
# {title}
# On the board:  sh run.sh      (about {minutes} min; TRTEXEC=/path/to/trtexec if it is not where JetPack puts it)
# Then bring results.tgz back:  edgescope optimize --for {board} --measured results.tgz
set -u
cd "$(dirname "$0")" || exit 1
trtexec="${{TRTEXEC:-$(command -v trtexec || echo /usr/src/tensorrt/bin/trtexec)}}"
[ -x "$trtexec" ] || {{ echo "there is no trtexec at $trtexec: sudo apt install libnvinfer-bin" >&2; exit 1; }}
root="${{EDGESCOPE_ROOT:-}}"
rm -rf results engines results.tgz
mkdir -p results/board engines || exit 1
for file in {facts}; do
  [ -r "$root/$file" ] || continue
  mkdir -p "results/board/$(dirname "$file")"
  cat "$root/$file" > "results/board/$file" 2>/dev/null
done
uname -m > results/architecture
find forms inputs -type f -exec sha256sum {{}} + > results/files.sha256

mode() {{
  nvpmodel -q 2>/dev/null || sudo -n nvpmodel -q 2>/dev/null || cat "$root/var/lib/nvpmodel/status" 2>/dev/null || true
}}

step() {{ # NAME FOLDER FLAGS...: one run of trtexec, started in FOLDER
  name="$1" folder="$2"
  shift 2
  out="$PWD/results/$name"
  mkdir -p "$out"
  echo "$name" >&2
  mode > "$out/{before}"
  date +%s > "$out/{began}"
  (cd "$folder" && exec "$trtexec" "$@") > "$out/{log}" 2>&1
  echo $? > "$out/{code}"
  mode > "$out/{after}"
}}

"""
TAIL = """
sha256sum engines/*.engine > results/engines.sha256 2>/dev/null
cp plan.json results/plan.json
tar czf results.tgz results && echo "bring back $PWD/results.tgz" >&2
"""


@dataclass(frozen=True)
class Step:
    """One run of trtexec."""

    name: str
    """The folder of its files, below results/."""
    folder: str
    """Where it is started, relative to the script."""
    flags: tuple[str, ...]
    """Without the program; paths are relative to `folder`."""
    needs: str = ""
    """The engine without which it is left out."""


def text(title: str, board: str, minutes: int, steps: Sequence[Step]) -> str:
    """Return the script."""
    head = HEAD.format(
        title=title,
        board=board,
        minutes=minutes,
        facts=" ".join(FACTS),
        log=LOG,
        code=CODE,
        before=BEFORE,
        after=AFTER,
        began=BEGAN,
    )
    return head + "".join(map(_line, steps)) + TAIL


def _line(step: Step) -> str:
    command = shlex.join(["step", step.name, step.folder, *step.flags])
    there = f"[ -f {shlex.quote(step.needs)} ] && " if step.needs else ""
    return f"{there}{command}\n"
