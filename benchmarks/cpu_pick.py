"""The main claim: what `edgescope optimize efficientnet_lite0` gains over PyTorch as it is, on this CPU.

Runs the same rounds as the demo (fresh processes, interleaved, random order, full accuracy gate) and publishes the
table and the pick. Target: the lower end of the pick's 95 % speed-up interval over torch_eager fp32 is at least 5,
gate passed.

    python benchmarks/cpu_pick.py [--budget 180]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from facts import PUBLISHED, publish


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="180")
    args = parser.parse_args()
    cli = str(Path(sys.executable).parent.absolute() / "edgescope")
    with tempfile.TemporaryDirectory() as store:
        command = [cli, "optimize", "efficientnet_lite0", "--budget", args.budget]
        done = subprocess.run(
            [*command, "--output", "published/cpu_pick.md", "--json"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=PUBLISHED.parent,
            env=os.environ | {"EDGESCOPE_STORE": store},
        )
    found = json.loads(done.stdout)
    rows = [{k: v for k, v in row.items() if k != "trial"} for row in found["rows"]]
    best = next(row for row in rows if row["cell"] == found["pick"]["cell"])
    figures = {"pick": found["pick"], "speedup": best["speedup"], "gate": best["gate"], "rows": rows}
    publish("cpu_pick", figures, met=best["speedup"]["lo"] is not None and best["speedup"]["lo"] >= 5)


if __name__ == "__main__":
    main()
