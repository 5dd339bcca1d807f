"""A board for the kit as a folder of files: rails, power modes and programs of an Orin Nano, and planted secrets."""

from __future__ import annotations

import os
from pathlib import Path

import fake_jetson
import small_board

HOST, USER, FULL, SERIAL, MAC, ADDRESS = (
    *("annas-robot-7", "anna_k", "Anna Kowalska", "1423919087654"),
    *("48:b0:2d:5e:77:1a", "10.13.37.42"),
)
SECRETS = (HOST, USER, FULL, SERIAL, MAC, ADDRESS)
TEGRASTATS = """#!/bin/sh
# timeout(1) ends it
while :; do
  echo "RAM 2448/7620MB (lfb 2x4MB) SWAP 0/3810MB (cached 0MB) CPU [1%@729,0%@729] GR3D_FREQ 0% {rails}"
  sleep 0.2
done
"""
RAILS = {label: round(volts * amperes / 1e3) for label, volts, amperes in small_board.RAILS.values()}
"""Label -> milliwatts, as sysfs of the small board shows them."""


def board(folder: Path, tegrastats: dict[str, int] | None = None) -> Path:
    """Write the board and its programs into a folder; return the folder that stands for its /."""
    root = fake_jetson.board(folder / "root")
    small_board.orin(root)
    (root / "sys/devices/system/cpu/cpufreq/policy4/scaling_cur_freq").unlink()
    (root / "sys/devices/system/cpu/cpufreq/policy4").rmdir()
    for name, text in {
        "sys/devices/system/cpu/online": "0-5\n",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq": "1344000\n",
        "proc/sys/kernel/hostname": f"{HOST}\n",
        "proc/device-tree/serial-number": f"{SERIAL}\0",
        "etc/passwd": f"root:x:0:0:root:/root:/bin/sh\n{USER}:x:1000:1000:{FULL},,,:/home/{USER}:/bin/bash\n",
        "sys/class/net/eth0/address": f"{MAC}\n",
        "proc/net/fib_trie": f"Main:\n  |-- 10.13.37.0\n  |-- {ADDRESS}\n     /32 host LOCAL\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    watts = RAILS if tegrastats is None else tegrastats
    program = folder / "bin/tegrastats"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(TEGRASTATS.format(rails=" ".join(f"{k} {v}mW/{v}mW" for k, v in watts.items())))
    program.chmod(0o755)
    return root


def environment(folder: Path, root: Path) -> dict[str, str]:
    """Return the environment in which the kit takes that board for its own."""
    added = {"EDGESCOPE_ROOT": str(root), "EDGESCOPE_STATE": str(folder / "state")}
    return {**os.environ, **added, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
