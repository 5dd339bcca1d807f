"""`edgescope --version`: the versions of edgescope, of Python and of each installed engine, without importing any."""

from __future__ import annotations

import argparse
import sys
from importlib import metadata
from typing import Any

from edgescope import __version__

ENGINES = (
    *("torch", "onnxruntime", "onnxruntime-gpu", "openvino"),
    *("ai-edge-litert", "tensorrt", "torch-tensorrt"),
)
"""The packages of the engines, as their class data name them; reading those imports numpy."""


class Version(argparse.Action):
    """Print the versions and end."""

    def __init__(self, option_strings: list[str], dest: str, **how: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **how)

    def __call__(self, parser: argparse.ArgumentParser, *given: Any) -> None:
        """Print one line for each version."""
        print(f"edgescope {__version__}")
        found = {"Python": ".".join(map(str, sys.version_info[:3])), **installed()}
        wide = max(map(len, found))
        print("\n".join(f"  {name:<{wide}}  {version}" for name, version in found.items()))
        if len(found) == 1:
            print("  no engine is installed: edgescope backends says how")
        parser.exit()


def installed() -> dict[str, str]:
    """Return package -> version of each engine that is installed."""
    found = {}
    for name in ENGINES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
