"""What another wing may import: facts and sentences that name nobody."""

from edgescope.wings.record.nameless import WHERE, Names, of_nobody

__all__ = ["WHERE", "Names", "of_nobody"]
