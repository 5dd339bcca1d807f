"""Several settings combined into one: MAXN+jetson_clocks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from edgescope.devices.base import FEATURES, Journal, Mode
from edgescope.process import Launch


class Together:
    """Several modes, entered in order and left in reverse order; without any mode it is `as_is`."""

    def __init__(self, *modes: Mode) -> None:
        self.modes = modes

    @property
    def name(self) -> str:
        """Return the combined name, as after --mode: MAXN+jetson_clocks."""
        return "+".join(mode.name for mode in self.modes) or "as_is"

    def launch(self) -> Launch:
        """Return all launches, the first outermost."""
        return sum((mode.launch() for mode in self.modes), Launch())

    def enter(self, journal: Journal) -> None:
        """Enter each; if one cannot be entered, the caller leaves them all."""
        for mode in self.modes:
            mode.enter(journal)

    def leave(self, journal: Journal) -> None:
        """Leave each, the last first, whatever happens to the others."""
        with ExitStack() as stack:
            for mode in self.modes:
                stack.callback(mode.leave, journal)

    def problem(self) -> str:
        """Return the problems of all modes, or '' if there are none."""
        return "; ".join(text for mode in self.modes if (text := mode.problem()))

    def evidence(self) -> str:
        """Return the evidence of all modes."""
        return "; ".join(mode.evidence() for mode in self.modes)

    def features(self) -> Mapping[str, float]:
        """Return the features of all modes; if two set the same limit, the lower one."""
        found = [mode.features() for mode in self.modes]
        return {
            name: min(f[name] for f in found if name in f)
            for name in FEATURES
            if any(name in f for f in found)
        }
