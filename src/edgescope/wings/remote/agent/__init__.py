"""The agent: one file that is sent to a board, read here as text and never imported by the rest of edgescope."""

from __future__ import annotations

import hashlib
from importlib import resources

#: What the agent and its host must agree on; raised with every change of the protocol (`edgescope docs remote`).
PROTOCOL = 1


def source() -> bytes:
    """Return the agent's source, as it is sent to a board."""
    return resources.files("edgescope.wings.remote.agent").joinpath("edgescope_agent.py").read_bytes()


def digest() -> str:
    """Return the SHA-256 of the agent's source as 64 hex digits."""
    return hashlib.sha256(source()).hexdigest()
