"""What another wing may import: where the time of training went, from the spans of its steps."""

from edgescope.wings.training import epochs

__all__ = ["epochs"]
