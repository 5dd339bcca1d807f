"""The only package that composes the families: `run` measures a Trial, `prepare` builds what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgescope.bench.run import answer, look, prepare, refused, run
from edgescope.devices.manifest import here, present

if TYPE_CHECKING:
    from edgescope.records import Trial

__all__ = ["answer", "apart", "here", "look", "prepare", "present", "refused", "run"]


def apart(a: Trial, b: Trial) -> str:
    """Return why two trials cannot be alive together and take turns; '' if nothing is known against it."""
    from edgescope.bench import alternation  # a trial that runs alone takes no turns

    return alternation.apart(a, b)
