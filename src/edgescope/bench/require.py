"""Did the engine do what was asked? A number under another label is no number."""

from __future__ import annotations

from edgescope.errors import RanElsewhereError
from edgescope.records import Effective, Trial


def require(trial: Trial, effective: Effective) -> None:
    """Raise RanElsewhereError unless the engine did what was asked, as far as it tells."""
    threads = trial.options.get("threads")
    told = effective.threads if threads is not None and effective.threads is not None else threads
    for code, what, asked, did in (
        ("E-RAN-1", "device", trial.device, effective.device),
        ("E-RAN-2", "precision", trial.precision, effective.precision),
        ("E-RAN-3", "number of threads", threads, told),
    ):
        if asked != did:
            raise RanElsewhereError(
                code,
                f"{trial.backend} was asked for {what} {asked} and ran with {did}",
                evidence=effective.evidence,
                effect=f"A number under the label {asked} would describe another {what}",
                fix="ask for what this engine does here (edgescope backends), or use another --backend",
            )
