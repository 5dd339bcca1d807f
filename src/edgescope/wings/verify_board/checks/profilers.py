"""The profilers: a trace of the network must hold the GPU's kernels."""

from __future__ import annotations

import dataclasses

from edgescope.records import SPAN_KINDS, Json, Spans, Trace, Trial
from edgescope.wings.trace.lends import on
from edgescope.wings.verify_board.check import Outcome, judged, unsupported
from edgescope.wings.verify_board.checks.engines import ENDED, NOT_HERE, facts, network
from edgescope.wings.verify_board.site import OnBoard, Site

KERNEL, CALL = (SPAN_KINDS.index(kind) for kind in ("kernel", "api"))
PRODUCT = """
import torch
a = torch.rand(512, 512, device="cuda")
for _ in range(20):
    a = a @ a / 512
torch.cuda.synchronize()
"""
"""A program for the board's own PyTorch: 20 products on the GPU."""
PRODUCTS = 20


def profiler(site: Site, tracer: str) -> Outcome:
    """Trace the network in PyTorch on the GPU, and look for its kernels in the trace."""
    if isinstance(site, OnBoard):
        return _over_ssh(site)
    if tracer == "nsys" and not site.find("nsys"):
        return unsupported("there is no nsys on PATH")
    with network() as model:
        trial = Trial(model=model, backend="torch_eager", device="cuda", warmup=0.2, min_s=1.0, max_s=1.0)
        result = site.trial(dataclasses.replace(trial, tracer=tracer))
    evidence = facts(result)
    if result.status is NOT_HERE:
        return unsupported(str(result.reason or "it says no reason"), evidence)
    if result.status not in ENDED:
        return judged([str(result.reason or result.status.value)], "", evidence)
    return _counted(result.spans or Spans.none(), 1, evidence)


def _over_ssh(site: OnBoard) -> Outcome:
    if not site.find("nsys"):
        return unsupported("there is no nsys on PATH")
    trace: Trace = on(site.board, [site.board.python(), "-c", PRODUCT])
    code = next((note.what for note in trace.notes if note.code == "W-PROF-13"), "")
    if code:
        return unsupported(f"the board's Python ran no product on the GPU: {code}")
    return _counted(
        trace.spans, PRODUCTS, {"source": trace.source, "notes": [str(note) for note in trace.notes]}
    )


def _counted(spans: Spans, least: int, evidence: dict[str, Json]) -> Outcome:
    """Return whether the trace has so many kernels, each of which lasts, and the calls that launched them."""
    kind = spans.columns["kind"]
    lasting = spans.columns["end_ns"] > spans.columns["start_ns"]
    kernels, calls = int(((kind == KERNEL) & lasting).sum()), int((kind == CALL).sum())
    evidence |= {"spans": len(kind), "kernels": kernels, "calls": calls}
    wrong = [] if kernels >= least else [f"{kernels} kernels in {len(kind)} spans"]
    return judged(wrong, f"{kernels} kernels and {calls} calls", evidence)
