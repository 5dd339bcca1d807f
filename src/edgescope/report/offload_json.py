"""An offload answer as plain values, for `--json` and for a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from edgescope.analysis.offload.model import Option
from edgescope.analysis.offload.network import Profile
from edgescope.analysis.offload.question import Question
from edgescope.records.codec import to_plain


def facts(found: Question, command: str) -> dict[str, Any]:
    """Return the answer as plain values: fields as {value, lo, hi, n, unit} or {absent: reason}."""
    return {
        "answer": found.answer.pick.name if found.answer.pick else None,
        "reason": found.answer.reason,
        "options": [_option(o) for o in found.answer.options],
        "flips": to_plain(list(found.flips)),
        "curve": to_plain(found.curve),
        "network": {
            f.name: to_plain(getattr(found.network, f.name))
            for f in fields(Profile)
            if "samples" not in f.name
        },
        "request": to_plain(found.model.request),
        "places": [
            {
                "side": side,
                "machine": p.machine,
                "cell": p.row.cell,
                "variant": p.row.label,
                "model": p.row.trial.model,
            }
            for side, p in (("edge", found.model.local), ("cloud", found.model.remote))
        ],
        "notes": list(found.notes),
        "command": command,
    }


FIELDS: Sequence[str] = (
    "p50_s",
    "p90_s",
    "p95_s",
    "p99_s",
    "p999_s",
    "throughput_sps",
    "energy_per_sample_j",
    "accuracy",
)


def _option(option: Option) -> dict[str, Any]:
    out: dict[str, Any] = {"name": option.name, "words": option.words, "fits": option.fits}
    out |= {
        "from": "modelled" if option.modelled else "measured",
        "boards": option.boards,
        "share": option.share,
    }
    out |= {"broken": list(option.broken), "busy": dict(option.busy)}
    return out | {name: to_plain(option.figures[name]) for name in FIELDS}
