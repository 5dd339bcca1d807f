"""The ceilings of this machine, published: what `edgescope doctor --ceilings` measures and keeps in a store.

There is no target; `met` says that every part was measured.

    python benchmarks/ceilings.py [--device cpu|cuda] [--seconds 1]
"""

from __future__ import annotations

import argparse
from typing import Any

from facts import publish

from edgescope.runner import ceilings

NEEDED = {"cpu": ("fp32",), "cuda": ("fp32", "tf32", "fp16")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=1.0, help="for each figure")
    args = parser.parse_args()
    figures = ceilings.measure(args.device, seconds=args.seconds)
    publish(f"ceilings_{args.device}", figures, met=met(args.device, figures["flops"]))


def met(device: str, flops: dict[str, Any]) -> bool:
    """Whether every precision that a limit on this device needs was measured."""
    return all("value" in flops.get(name, {}) for name in NEEDED[device])


if __name__ == "__main__":
    main()
