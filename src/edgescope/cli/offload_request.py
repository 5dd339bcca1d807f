"""What `edgescope offload` sends and how often, from its flags; where nothing was given, from the model, said so."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgescope.analysis.cells.objective import Constraint
    from edgescope.analysis.offload.model import Place, Request

SCORES_BYTES = 4000
"""A thousand float32 scores: the raw answer of an ImageNet classifier."""


def request(args: argparse.Namespace, near: Place) -> tuple[Request, list[str]]:
    """Return what is asked of both places, and what was assumed where nothing was given."""
    from edgescope.analysis.offload.model import Request
    from edgescope.errors import UsageError

    _check(args)
    batch = near.row.trial.batch
    up, sent = _size(args.payload) if args.payload else _input_bytes(near)
    down, back = _size(args.answer) if args.answer else _answer_bytes(near)
    notes = [note for note in (sent, back) if note]
    rate = args.rate
    floors = [c.limit for c in map(_parsed, args.constraint) if c.metric.name == "throughput_sps"]
    if rate is None and floors:
        rate = max(floors) / batch
        notes.append(f"asked of a load of {rate:g} queries/s, what the throughput constraint wants")
    if rate is not None and not 0 < rate < 1e9:
        raise UsageError("E-OFF-7", f"--rate must be positive, not {rate:g}")
    asked = Request(
        up_bytes=up * batch,
        down_bytes=down * batch,
        rate=rate,
        poisson=args.arrivals == "poisson",
        servers=args.remote_servers,
        radio_w=args.radio_power,
        radio_j_per_mb=args.radio_energy,
        seed=args.seed,
    )
    return asked, notes


def _parsed(text: str) -> Constraint:
    from edgescope.analysis.cells.objective import parse

    return parse(text)


def _check(args: argparse.Namespace) -> None:
    from edgescope.errors import UsageError

    given = {"--remote-servers": args.remote_servers, "--radio-power": args.radio_power}
    given |= {"--radio-energy": args.radio_energy}
    for flag, value in given.items():
        least = 1 if flag == "--remote-servers" else 0
        if value is not None and not least <= value < 1e6:
            raise UsageError("E-OFF-7", f"{flag} must be at least {least}, not {value:g}")


def _size(text: str) -> tuple[float, str]:
    from edgescope.analysis.offload.network import read_size
    from edgescope.errors import UsageError

    try:
        return read_size(text), ""
    except ValueError as error:
        raise UsageError("E-OFF-5", f"a size cannot be read: {error}", fix="--payload 40kB") from error


def _input_bytes(near: Place) -> tuple[float, str]:
    """Return the bytes of the model's raw input tensor; UsageError where it is not known."""
    import math

    from edgescope.errors import EdgescopeError, UsageError
    from edgescope.models import zoo

    trial = near.row.trial
    try:
        inputs = zoo.get(trial.model, trial.shapes).inputs
    except EdgescopeError as error:
        inputs, why = (), error.what
    else:
        why = "it has no inputs"
    size = sum(math.prod(i.shape) * _width(i.dtype) for i in inputs)
    if not size:
        raise UsageError(
            "E-OFF-6",
            f"what one sample of {trial.model} sends is not known",
            evidence=why,
            fix="--payload 40kB (an encoded picture, say)",
        )
    return (
        size,
        f"sends the raw input tensor, {size / 1e3:.4g} kB a sample; an encoded picture is smaller: --payload 40kB",
    )


def _width(dtype: str) -> int:
    import numpy as np

    return np.dtype(dtype).itemsize


def _answer_bytes(near: Place) -> tuple[float, str]:
    """Return the bytes of a classifier's answer; UsageError for other models, whose outputs a result does not keep."""
    from edgescope.errors import UsageError

    info = next(iter(near.row.replicates.values())).model
    if info is None or info.task != "classify":
        raise UsageError(
            "E-OFF-6",
            f"what one sample of {near.row.trial.model} sends back is not known",
            evidence="a result does not keep the size of its outputs",
            fix="--answer 4kB",
        )
    return (
        SCORES_BYTES,
        f"sends back 1000 scores as float32, {SCORES_BYTES / 1e3:g} kB a sample (assumed: --answer)",
    )
