"""What several tests ask: is this mode refused, and with which words?"""

import pytest

from edgescope.modes import enter


def refused(mode, error, says):
    """Enter `mode`, which must raise `error` that says `says` (a pattern) before the block is reached; return it."""
    with pytest.raises(error, match=says) as caught, enter.entered(mode):
        pytest.fail("it was entered")
    return caught.value
