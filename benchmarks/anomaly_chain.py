"""Measures the whole anomaly detector: by engine, snippets x frames, crops, and the lighter chains.

    python benchmarks/anomaly_chain.py --device cuda --seconds 480 --json published/anomaly_cuda.json

The cells are those of `edgescope study anomaly --run`; each runs in a process of its own. After each cell the page so
far is written, so a run that is cut short leaves what it measured. About 30 s a cell on a GPU (27 cells), minutes on a
small CPU; --part engines measures the study's own table only.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from facts import commit, machine_id

from edgescope.errors import EdgescopeError
from edgescope.isolate.fresh import Limits
from edgescope.models import zoo
from edgescope.papers.anomaly_detection import chain, report
from edgescope.papers.paper import papers
from edgescope.report.render import json as as_json
from edgescope.runner.setup import Setup
from edgescope.store.results import Store
from edgescope.study import grid


def page(results: list, device: str, left: int) -> dict:
    """The study's page as data, with the machine's facts."""
    document = report.document(papers()["anomaly"], results, device=device)
    found = json.loads(as_json.text(document))
    cells = [cell for cell in found["cells"] if cell["runs"]]
    failed = [
        {"trial": r.trial.label, "reason": str(r.reason)} for r in results if r.status not in chain.GOOD
    ]
    return {
        "machine": machine_id(),
        "commit": commit(),
        "device": device,
        "cells_left": left,
        "cells": cells,
        "failed": failed,
        "claims": found.get("claims", []),
    }


def main() -> None:
    """Measure the planned trials until the time is over."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--part", default="all", choices=("all", *chain.PARTS))
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--store", type=Path, default=None, help="keep the results here, and go on from them")
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    place = args.store or Path(tempfile.mkdtemp(prefix="anomaly-chain-"))
    trials = chain.planned(papers()["anomaly"], device=args.device, part=args.part)
    trials.sort(key=lambda trial: trial.replicate)  # every cell once before any for a second time
    results: list = []
    limits = Limits(timeout_s=max(60.0, min(300.0, args.seconds)))
    cells = Setup(limits=limits, tell=lambda what: print(what, file=sys.stderr)).cells(Store(place))
    for number, trial in enumerate(trials):
        if time.monotonic() > end:
            break
        try:
            results.append(cells.run(grid.pinned(trial, zoo.pin)))
        except EdgescopeError as error:
            print(f"{trial.label}: {error}", file=sys.stderr)
        found = page(results, args.device, len(trials) - number - 1)
        if args.json:
            args.json.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(page(results, args.device, len(trials) - len(results)), indent=1))


if __name__ == "__main__":
    main()
