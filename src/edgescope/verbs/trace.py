"""Return where the time of a trial, of a program or of a recorded trace goes: `edgescope.trace("report.sqlite")`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgescope.analysis.kernels.account import Account, account
from edgescope.analysis.kernels.growth import Growth, growth
from edgescope.errors import Message
from edgescope.records import Answer, Json
from edgescope.tracing.read import read


@dataclass(frozen=True, repr=False)
class Traced(Answer):
    """The kernel-level account of one or several traces."""

    accounts: tuple[tuple[str, Account], ...]
    """Label, account."""

    @property
    def warnings(self) -> tuple[Message, ...]:
        """Return what the figures of all traces suffer from."""
        return ()

    @property
    def growth(self) -> Growth | None:
        """Return how the series grows, or None for one trace."""
        return growth(self.accounts) if len(self.accounts) > 1 else None

    def lines(self) -> Iterator[str]:
        """Yield the source, then the budget and the use of the GPU, of each trace."""
        for label, one in self.accounts:
            yield f"{label}: {one.trace.source}, {len(one.trace.spans):,} spans"
            if one.budget is not None:
                ec, cs = (one.budget.distribution(name).median_s for name in ("ec", "cs"))
                yield f"  {len(one.inferences):,} inferences: EC {_ms(ec)}, CS {_ms(cs)}"
            for gpu in one.gpus:
                yield f"  GPU {gpu.device}: busy {gpu.busy:.1%} of {gpu.span_ns / 1e6:.3g} ms"

    def records(self) -> list[dict[str, Json]]:
        """Return one row per part of each trace's budget: its median and its share."""
        return [
            {
                "trace": label,
                "part": name,
                "median_s": float(d.quantile_ns(0.5)) * 1e-9,
                "total_s": d.total_ns * 1e-9,
            }
            for label, one in self.accounts
            if one.budget is not None
            for name in ("ec", "cs", *one.budget.parts)
            if (d := one.budget.distribution(name)).count
        ]


def _ms(field: object) -> str:
    return f"{field.value * 1e3:.3g} ms" if hasattr(field, "value") else "n/a"


def trace(*files: Path | str, range_name: str = "", kind: str = "") -> Traced:
    """Return the account of recorded traces; several files show how it grows from one to the next.

    `range_name` names the ranges that are the inferences; `kind` the files' format if their content does not tell it.
    """
    return Traced(tuple((Path(f).name, account(read(f, kind), range_name)) for f in files))
