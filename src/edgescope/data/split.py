"""Which records calibrate and which judge: decided by their content alone, so no input ever serves both.

Records are put in the order of their contents' SHA-256: names, dates and the order of files decide nothing, and copies
of one file are one record. A share of them calibrates, the rest judges; where some have labels and enough have none,
those without calibrate, because a label is worth more to the judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgescope.data.base import Record
from edgescope.errors import UsageError

SHARE, RANGES = 4, 96
"""One of so many records calibrates, and at most so many altogether."""
FEWEST = 2


@dataclass(frozen=True)
class Split:
    """The two sides, each in the order of its contents' hashes."""

    calibration: tuple[Record, ...]
    judged: tuple[Record, ...]
    copies: int
    """Files left out because their content was there already."""
    doubtful: int
    """Contents left out because they were there under two labels."""


def split(records: Sequence[Record], name: str) -> Split:
    """Return the two sides of a data set; UsageError where it has fewer than two different records."""
    by_content: dict[str, list[Record]] = {}
    for record in records:
        by_content.setdefault(record.content(), []).append(record)
    sure = {c: same for c, same in by_content.items() if len({r.truth for r in same} - {""}) <= 1}
    if len(sure) < FEWEST:
        raise UsageError(
            "E-DATASET-2",
            f"{name} holds {len(sure)} input{'' if len(sure) == 1 else 's'} to use",
            evidence=f"{len(records)} records, {len(by_content)} different ones",
            effect="One part has to calibrate and another to judge, so two are the least, and 400 are better",
            fix="--data FOLDER with more inputs",
        )
    ordered = [max(sure[content], key=lambda record: record.truth != "") for content in sorted(sure)]
    bare = [record for record in ordered if not record.truth]
    count = max(1, min(len(ordered) // SHARE, RANGES))
    pool = bare if len(bare) >= count else ordered
    ranges = tuple(pool[:count])
    chosen = {id(record) for record in ranges}
    return Split(
        ranges,
        tuple(record for record in ordered if id(record) not in chosen),
        sum(len(same) - 1 for same in sure.values()),
        len(by_content) - len(sure),
    )
