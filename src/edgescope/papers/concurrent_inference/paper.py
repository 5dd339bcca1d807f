"""What the concurrent-inference paper says: the figures that could be recovered, and its rules.

Almost all of its figures are lost in the copies of its text; those that are known carry where from: `confirmed` (its
own text) or `secondary` (quoted from it by others). They were taken on a Jetson Orin Nano, a Jetson Nano and an A40,
so they stand beside this machine's and are never compared with them. Source: arXiv 2508.08430.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Model of the paper -> beginnings of the names of what stands for it here.
STANDS_FOR = {"resnet50": ("resnet50",), "fcn_resnet50": ("fcn_resnet50",), "yolov8n": ("yolov8n", "yolo")}


@dataclass(frozen=True)
class Number:
    """One recovered figure."""

    model: str
    """'' where it is said of all models."""
    board: str
    precision: str
    """'' where it is lost."""
    batch: int
    processes: int
    figure: str
    """throughput_sps, throughput_per_process_sps, memory_growth or latency_growth (over one process)."""
    value: float
    text: str
    known: str
    """confirmed or secondary."""
    note: str = ""

    @property
    def source(self) -> str:
        """Where it is known from, in words."""
        whence = "the paper's text" if self.known == "confirmed" else "secondary notes that quote the paper"
        return f"{whence}; {self.note}" if self.note else whence

    def is_of(self, model: str) -> bool:
        """Return whether a model of ours stands for the paper's."""
        return any(model.startswith(name) for name in STANDS_FOR.get(self.model, ()))


@dataclass(frozen=True)
class PaperRule:
    """One rule as the paper states it."""

    key: str
    title: str
    says: str
    known: str


@dataclass(frozen=True)
class Paper:
    """The recovered figures and the rules."""

    title: str
    source: str
    boards: str
    method: str
    numbers: tuple[Number, ...]
    rules: tuple[PaperRule, ...]

    def beside(self, models: set[str], figure: str) -> list[Number]:
        """Return the figures of one kind of the networks that these models stand for."""
        return [n for n in self.numbers if n.figure == figure and any(n.is_of(m) for m in models)]


@cache
def paper() -> Paper:
    """Return what is known of the paper."""
    page = tomllib.loads(
        (files("edgescope.papers.concurrent_inference") / "paper.toml").read_text(encoding="utf-8")
    )
    numbers = tuple(Number(**n) for n in page["number"])
    return Paper(**page["paper"], numbers=numbers, rules=tuple(PaperRule(**r) for r in page["rule"]))
