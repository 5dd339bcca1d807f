"""A Jetson as a folder of files, constructed: an nvpmodel.conf in the public syntax, kernel files, and programs.

The programs are real (sh), so everything between `--mode` and the kernel's files runs as it does on a board.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Told:
    """What a public nvpmodel.conf says of one mode."""

    id: int
    name: str
    online: int
    listed: int
    cpu_khz: int = -1
    gpu_hz: int = -1
    mask: int | None = None
    emc_hz: int = 0


#: Orin Nano 8GB Super, from LineageOS/android_device_nvidia_concord@370b63a nvpmodel_p3767_0003_super.conf; 7W as
#: reported in public for the same board: four cores and mask 252, which needs a reboot.
ORIN_NANO = (
    Told(0, "15W", 6, 6, 1497600, 612000000, 240, 2133000000),
    Told(1, "25W", 6, 6, 1344000, 918000000, 240, 3199000000),
    Told(2, "MAXN_SUPER", 6, 6, -1, -1, 240, -1),
    Told(3, "7W", 4, 6, 960000, 408000000, 252, 2133000000),
)
CPU = "sys/devices/system/cpu"
GPU = "sys/devices/platform/bus@0/17000000.gpu/devfreq/17000000.gpu"
TABLE = (729600, 960000, 1344000, 1497600, 1728000)


def conf(modes: tuple[Told, ...], default: int = 1, cluster: str = "CPU_A78_0") -> str:
    """Return an nvpmodel.conf that says what `modes` say."""
    listed = max(m.listed for m in modes)
    lines = ["# FORMAT:", "# < PARAM TYPE=PARAM_TYPE NAME=PARAM_NAME >", ""]
    lines += ["< PARAM TYPE=FILE NAME=CPU_ONLINE >"]
    lines += [f"CORE_{n} /{CPU}/cpu{n}/online" for n in range(listed)]
    lines += [
        "< PARAM TYPE=FILE NAME=TPC_POWER_GATING >",
        "TPC_PG_MASK /sys/devices/platform/17000000.gpu/tpc_pg_mask",
    ]
    lines += [
        f"< PARAM TYPE=CLOCK NAME={cluster} >",
        f"FREQ_TABLE /{CPU}/cpu0/cpufreq/scaling_available_frequencies",
    ]
    lines += [
        f"MAX_FREQ /{CPU}/cpu0/cpufreq/scaling_max_freq",
        f"MIN_FREQ /{CPU}/cpu0/cpufreq/scaling_min_freq",
    ]
    lines += ["< PARAM TYPE=CLOCK NAME=GPU >", "MAX_FREQ /sys/no/such", f"MAX_FREQ_KNEXT /{GPU}/max_freq", ""]
    for m in modes:
        lines.append(f"< POWER_MODEL ID={m.id} NAME={m.name} >")
        lines += [f"CPU_ONLINE CORE_{n} {int(n < m.online)}" for n in range(m.listed)]
        if m.mask is not None:
            lines.append(f"TPC_POWER_GATING TPC_PG_MASK {m.mask}")
        lines += [f"{cluster} MIN_FREQ 729600", f"{cluster} MAX_FREQ {m.cpu_khz}"]
        lines += [f"GPU MAX_FREQ {m.gpu_hz}", f"EMC MAX_FREQ {m.emc_hz}", ""]
    return "\n".join(
        [
            *lines,
            "# mandatory section",
            f"< PM_CONFIG DEFAULT={default} >",
            "< FAN_CONFIG DEFAULT=quiet >",
            "",
        ]
    )


NVPMODEL = """#!/bin/sh
# the answers are those of real boards, quoted in public: NVPM WARN ... DO YOU WANT TO REBOOT NOW?
echo "nvpmodel $*" >> calls
if [ "$1" = -q ]; then
  id=$(cat live)
  echo "NV Power Mode: $(sed -n "s/^< POWER_MODEL ID=$id NAME=\\(.*\\) >/\\1/p" etc/nvpmodel/board.conf)"
  echo "$id"; exit 0
fi
id=$2
block=$(sed -n "/^< POWER_MODEL ID=$id /,/^$/p" etc/nvpmodel/board.conf)
value() { echo "$block" | sed -n "s/^$1 \\(.*\\)$/\\1/p"; }
mask=$(value 'TPC_POWER_GATING TPC_PG_MASK')
if [ -n "$mask" ] && [ "$mask" != "$(cat mask)" ]; then
  echo "NVPM WARN: Golden image context is already created"
  echo "NVPM WARN: Reboot required for changing to this power mode: $id"
  echo "NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:"
  read answer
  case "$answer" in y*|Y*) touch rebooted ;; *) echo "NVPM ERROR: bad input!"; exit 0 ;; esac
fi
[ -e ignores ] && exit 0
echo "$id" > live; printf 'pmode:%04d\\n' "$id" > var/lib/nvpmodel/status
[ -e half ] && exit 0
max=$(value 'CPU_A78_0 MAX_FREQ'); [ "$max" = -1 ] && max=1728000
echo "$max" > sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq
[ -e latched ] || echo "$max" > sys/devices/system/cpu/cpufreq/policy0/cpuinfo_cur_freq
gpu=$(value 'GPU MAX_FREQ'); [ "$gpu" = -1 ] && gpu=1020000000
echo "$gpu" > GPUPATH/max_freq
""".replace("GPUPATH", GPU)

JETSON_CLOCKS = """#!/bin/sh
echo "jetson_clocks $*" >> calls
cd sys/devices/system/cpu/cpufreq/policy0 || exit 1
case "$1" in
  --store) [ -e "$2" ] && { echo "File $2 already exists. Can I overwrite it? Y/N:"; exit 1; }
           cat scaling_min_freq > "$2" ;;
  --restore) cat "$2" > scaling_min_freq ;;
  *) cat scaling_max_freq > scaling_min_freq ;;
esac
"""


def board(root: Path, modes: tuple[Told, ...] = ORIN_NANO, now: int = 1) -> Path:
    """Write the board, in mode `now`, and return its root."""
    mode = next(m for m in modes if m.id == now)
    policy = f"{CPU}/cpufreq/policy0"
    files: dict[str, object] = {
        "etc/nvpmodel/board.conf": conf(modes, now),
        "var/lib/nvpmodel/status": f"pmode:{now:04d}\n",
        "live": now,
        "mask": mode.mask,
        f"{CPU}/online": "0-5\n",
        f"{policy}/affected_cpus": "0\n",
        f"{policy}/scaling_available_frequencies": " ".join(map(str, TABLE)),
        f"{policy}/scaling_max_freq": mode.cpu_khz if mode.cpu_khz > 0 else TABLE[-1],
        f"{policy}/scaling_min_freq": TABLE[0],
        f"{policy}/cpuinfo_cur_freq": mode.cpu_khz if mode.cpu_khz > 0 else TABLE[-1],
        f"{policy}/scaling_governor": "schedutil\n",
        f"{GPU}/max_freq": mode.gpu_hz if mode.gpu_hz > 0 else 1020000000,
        "usr/sbin/nvpmodel": NVPMODEL,
        "usr/bin/jetson_clocks": JETSON_CLOCKS,
    }
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(content))
    for name in ("usr/sbin/nvpmodel", "usr/bin/jetson_clocks"):
        (root / name).chmod(0o755)
    (root / f"{CPU}/cpu0").mkdir()
    (root / f"{CPU}/cpu0/cpufreq").symlink_to("../cpufreq/policy0")
    (root / "etc/nvpmodel.conf").symlink_to("/etc/nvpmodel/board.conf")
    return root


def read(root: Path, name: str) -> str:
    """Return a file of the board, '' where there is none."""
    path = root / name
    return path.read_text().strip() if path.exists() else ""
