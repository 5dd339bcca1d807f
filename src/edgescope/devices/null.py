"""A device without sensors, and a source that only reports why its channels cannot be read."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from edgescope.devices.base import ChannelSpec, Mode, SourceSpec, Unsupported, Value


class NullDevice:
    """A device without sensors: for tests, and for measuring the cost of watching."""

    def present(self) -> str:
        """Return '': the null device is always present."""
        return ""

    def machine(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return no facts."""
        return {}, {}

    def sources(self, pid: int) -> Sequence[SourceSpec]:
        """Return no sources."""
        return ()

    def modes(self) -> Mapping[str, Mode]:
        """Return no settings."""
        return {}


class AbsentSource:
    """A source of channels that this machine does not have, so that results say why a figure is missing."""

    def __init__(self, channels: Sequence[Sequence[str]], reason: str) -> None:
        self._channels = tuple(ChannelSpec(*fields) for fields in channels)
        self._reason = reason

    def channels(self) -> Sequence[ChannelSpec]:
        """Return the channels that are missing."""
        return self._channels

    def read(self) -> Sequence[tuple[str, int, Value]]:
        """Return Unsupported with the reason for each channel."""
        now = time.monotonic_ns()
        return [(c.name, now, Unsupported(self._reason)) for c in self._channels]
