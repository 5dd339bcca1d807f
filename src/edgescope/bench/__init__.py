"""The only place that composes the families: `run` answers a Trial, `prepare` builds what it needs."""

from edgescope.bench.run import prepare, run

__all__ = ["prepare", "run"]
