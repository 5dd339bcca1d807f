"""The backend seam: prepare an artifact once, load it, call it.

A Session never times itself: the scenario's one clock times every engine alike. It says what it did through
`effective()`, so that an engine which quietly chose another device or precision is caught.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from edgescope.errors import UsageError
from edgescope.models.base import Batch, Model
from edgescope.records import Effective, Json, Scalar, Trial


@dataclass(frozen=True)
class Spec:
    """What the engine is asked for: precision, batch, fixed shapes, where inputs live, its own options."""

    precision: str = "fp32"
    batch: int = 1
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    io: str = "host"
    options: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Artifact:
    """What `load` needs: the model, the spec, a file where the engine reads one, and how it was made."""

    model: Model
    spec: Spec
    path: Path | None = None
    digest: str = ""
    build_s: float | None = None
    """Seconds it took to make the file, when it was made; None where nothing is built."""
    notes: Mapping[str, Json] = field(default_factory=dict)


def spec_of(trial: Trial) -> Spec:
    """Return what a trial asks of its backend."""
    return Spec(trial.precision, trial.batch, trial.shapes, trial.io, trial.options)


class Session(Protocol):
    """One loaded model, ready to answer."""

    def __call__(self, batch: Batch) -> Sequence[NDArray[Any]]:
        """Return the outputs of one batch; returns only when they are truly on the host.

        The arrays may be the engine's own memory: they are good until the next call.
        """

    def effective(self) -> Effective:
        """Return what the engine did, read back from it; valid after the first call."""

    def close(self) -> None:
        """Free the engine's memory and threads."""


class Backend(Protocol):
    """One engine family."""

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the artifact, built once and cached by content under `folder`; UnsupportedError where it cannot."""

    def load(self, artifact: Artifact) -> Session:
        """Return a session ready for its first call."""


def checked(name: str, spec: Spec, known: Mapping[str, str]) -> Spec:
    """Return `spec` when the backend `name` knows all its options, otherwise raise a UsageError that lists them."""
    unknown = sorted(set(spec.options) - set(known))
    if unknown:
        listing = "; ".join(f"{key}: {meaning}" for key, meaning in known.items())
        raise UsageError(
            "E-OPT-1", f"{name} has no option {', '.join(unknown)}", evidence=f"it has {listing}"
        )
    return spec


#: Share of the heavy operators that must run in a reduced precision for the whole to carry its name.
REDUCED_SHARE = 0.75


def precision_of(kinds: Mapping[str, int]) -> str:
    """Return the precision that heavy operators ran in, from operator counts by precision.

    fp32 means every one of them. A reduced precision may leave some operators in fp32 (a first layer, say), as long
    as three in four are reduced; anything else is `mixed (...)`, which is never what was asked for.
    """
    if len(kinds) == 1:
        return next(iter(kinds))
    top = max((k for k in kinds if k != "fp32"), key=lambda k: kinds[k])
    others = [k for k in kinds if k not in (top, "fp32")]
    if not others and kinds[top] >= REDUCED_SHARE * sum(kinds.values()):
        return top
    return f"mixed ({counted(kinds)})"


def counted(kinds: Mapping[str, int]) -> str:
    """Return `48 int8, 2 fp32`."""
    return ", ".join(f"{n} {k}" for k, n in sorted(kinds.items(), key=lambda item: -item[1]))


def threads_of(spec: Spec) -> int | None:
    """Return the thread count asked for, None for the engine's default."""
    value = spec.options.get("threads")
    if value is None:
        return None
    if isinstance(value, bool) or not str(value).isdigit() or int(value) < 1:
        raise UsageError("E-OPT-2", f"threads must be a whole number of at least 1, not {value!r}")
    return int(value)
