"""Networks, and the real inputs to judge them with."""
