"""The only place that composes the families: `run` answers a Trial, `prepare` builds what it needs."""

from edgescope.bench.run import answer, begin, here, prepare, present, refused, run

__all__ = ["answer", "begin", "here", "prepare", "present", "refused", "run"]
