"""Which processor this is: name, instruction sets that matter to inference, cores, hypervisor."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

from edgescope.devices.kernel_files import Fact, absent, fact, is_absent

_ISA = """
    sse4_2 avx avx2 fma f16c avx_vnni avx_vnni_int8 avx512f avx512bw avx512vl avx512_vnni
    avx512_bf16 avx512_fp16 amx_tile amx_int8 amx_bf16 amx_fp16 asimd asimdhp asimddp fphp bf16 i8mm
    sve sve2 svebf16 svei8mm sme neon vfpv4
""".split()  # noqa: SIM905
"""CPU flags that decide which kernels an inference engine picks, x86 then Arm, in a fixed order."""

_ARM_PARTS = {
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD04): "Cortex-A35",
    (0x41, 0xD05): "Cortex-A55",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD09): "Cortex-A73",
    (0x41, 0xD0A): "Cortex-A75",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD0D): "Cortex-A77",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD42): "Cortex-A78AE",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4F): "Neoverse-V2",
    (0x41, 0xD83): "Neoverse-V3AE",
    (0x4E, 0x003): "NVIDIA Denver 2",
    (0x4E, 0x004): "NVIDIA Carmel",
}
"""(implementer, part) of MIDR_EL1 as in Linux arch/arm64/include/asm/cputype.h; Arm prints no model name."""


def name(root: Path) -> Fact:
    """Return the processor's name, each kind with its count where cores differ."""
    return fact(root / "proc/cpuinfo", _name)


def _name(text: str) -> str:
    found = re.search(r"^(?:model name|cpu model|uarch)\s*:\s*(.+)$", text, re.MULTILINE)
    if found:
        return " ".join(found[1].split())
    makers = re.findall(r"^CPU implementer\s*:\s*(\S+)", text, re.MULTILINE)
    parts = re.findall(r"^CPU part\s*:\s*(\S+)", text, re.MULTILINE)
    if not parts:
        raise KeyError("neither a model name nor a CPU part")
    kinds = Counter(
        _ARM_PARTS.get((int(m, 16), int(p, 16)), f"implementer {m} part {p}")
        for m, p in zip(makers, parts, strict=True)
    )
    return (
        kinds.most_common()[0][0]
        if len(kinds) == 1
        else " + ".join(f"{n} x {k}" for k, n in kinds.most_common())
    )


def isa(root: Path) -> Fact:
    """Return the instruction sets that matter, in a fixed order."""

    def flags(text: str) -> list[str]:
        found = re.search(r"^(?:flags|Features|isa)\s*:\s*(.*)$", text, re.MULTILINE)
        if not found:
            raise KeyError("no flags line")
        have = set(found[1].split())
        return [f for f in _ISA if f in have]

    return fact(root / "proc/cpuinfo", flags)


def topology(root: Path) -> dict[str, Any]:
    """Return {"logical", "physical"}: cores that are present, online or not where the kernel says."""
    folders = [p for p in (root / "sys/devices/system/cpu").glob("cpu[0-9]*") if p.name[3:].isdigit()]
    if not folders:
        return {"logical": os.cpu_count(), "physical": absent("no core topology in sysfs")}
    cores = set()
    for folder in folders:
        package = fact(folder / "topology/physical_package_id")
        core = fact(folder / "topology/core_id")
        if is_absent(package) or is_absent(core):  # an offline core has no topology
            return {"logical": len(folders), "physical": absent(f"no topology of {folder.name}")}
        cluster = fact(folder / "topology/cluster_id")
        cores.add((package, str(cluster), core))
    return {"logical": len(folders), "physical": len(cores)}


def virtualised(root: Path) -> Any:
    """Return the hypervisor's kind, `yes` where it hides its name, or `no`."""
    kind = fact(root / "sys/hypervisor/type")
    if not is_absent(kind):
        return kind
    cpuinfo = fact(
        root / "proc/cpuinfo", lambda t: bool(re.search(r"^flags\s*:.*\bhypervisor\b", t, re.MULTILINE))
    )
    if cpuinfo is True or (root / "proc/device-tree/hypervisor").exists():
        product = fact(root / "sys/class/dmi/id/sys_vendor")
        return "yes" if is_absent(product) else f"yes ({product})"
    return "no" if cpuinfo is False else cpuinfo
