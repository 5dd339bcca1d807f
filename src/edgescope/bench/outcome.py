"""What an exception says of a trial: a status and one line, whatever the model or its engine raised.

Did the engine do what was asked? A number under another label is no number.

A result whose sensors were a recording says so, and is never called clean.
"""

from __future__ import annotations

import sys
import traceback
from dataclasses import replace
from pathlib import Path

from edgescope.errors import (
    EdgescopeError,
    RanElsewhereError,
    SafetyError,
    UnavailableError,
    UnsupportedError,
    WrongOutputError,
    message,
)
from edgescope.records import Effective, Result, Status, Trial, Trust, Verdict
from edgescope.registry import REPLAYED


def told(error: Exception) -> tuple[Status, str]:
    """Return the status and the reason of a trial that `error` ended.

    Of an error that edgescope did not raise on purpose the trace goes to stderr, its end to the reason.
    """
    if isinstance(error, EdgescopeError):
        return _status(error), str(error)
    traceback.print_exception(error, file=sys.stderr)
    return Status.OOM if _out_of_memory(error) else Status.FAILED, _raised(error)


def _status(error: EdgescopeError) -> Status:
    if isinstance(error, SafetyError) or _out_of_memory(error.__cause__ or error):
        return Status.OOM
    if isinstance(error, UnsupportedError | UnavailableError):
        return Status.UNSUPPORTED
    if isinstance(error, WrongOutputError):
        return Status.WRONG_OUTPUT
    return Status.FAILED


def _out_of_memory(error: BaseException) -> bool:
    """Whether the host's or the device's memory ran out; engines have their own words for the latter."""
    text = f"{type(error).__name__}: {error}".lower().replace("_", " ")
    words = ("outofmemoryerror", "out of memory", "failed to allocate memory", "alloc failed")
    return isinstance(error, MemoryError) or any(word in text for word in words)


def _raised(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.lineno} in {last.name}"
    text = " ".join(str(error).split())[:300]
    return message(
        "E-RUN-1",
        "the model or its engine raised an error",
        evidence=f"{type(error).__name__}: {text}; {where}",
        effect="There is no number for this cell",
    )


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


EVIDENCE = "the sensors are a recording"


def marked(result: Result) -> Result:
    """Return the result with the mark where its machine is a recording; any other as it is."""
    mark = result.machine.state.get(REPLAYED)
    if not mark:
        return result
    verdict = result.verdict
    trust = Trust.UNKNOWN if verdict.trust is Trust.CLEAN else verdict.trust
    warning = message(
        "W-REC-1",
        f"{EVIDENCE} of {mark['board']} ({mark['made']})",
        effect="Its power, clocks and temperatures are not those of this run",
    )
    return replace(
        result,
        verdict=Verdict(trust, (EVIDENCE, *verdict.evidence)),
        warnings=(*result.warnings, warning),
    )
