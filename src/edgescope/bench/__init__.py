"""The only package that composes the families: `run` measures a Trial, `prepare` builds what it needs."""

from edgescope.bench.alternation import apart
from edgescope.bench.run import answer, look, prepare, refused, run
from edgescope.devices.manifest import here, present

__all__ = ["answer", "apart", "here", "look", "prepare", "present", "refused", "run"]
