"""Puts settings back when the kit is gone: python -m edgescope.wings.verify_board.keeper.

It waits for its stdin. `{"done": true}` means that the kit has ended in order; a stdin that closes without it, that the
kit was killed, whatever killed it. Then the check under way is ended by its warden, and the settings that the journal
of modes (modes.enter) holds are restored as soon as its lock is free. If this process dies as well (a power cut), the
next edgescope that measures restores them.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time

from edgescope.errors import EdgescopeError
from edgescope.isolate.warden import PATIENCE_S as PATIENCE_OF_WARDEN_S
from edgescope.modes.enter import journal, left_behind
from edgescope.process import Pipe

PATIENCE_S = 60.0
"""Seconds to wait for the check's processes to end: the warden takes some of them."""
SETTLE_S = PATIENCE_OF_WARDEN_S + 1.0
"""Seconds after which nothing of the check can enter a mode any more."""


def restore(patience_s: float = PATIENCE_S) -> bool:
    """Restore what a killed process left changed; return whether nothing is left to restore."""
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < patience_s:
        with contextlib.suppress(EdgescopeError):  # its owner is still being ended
            journal().recover()
            if passed > SETTLE_S and not journal().path.exists():
                return True
        time.sleep(0.1)
    return not left_behind()


def main() -> int:
    """Wait for the kit's end; return 0 if it ended in order or everything is restored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pipe = Pipe.own()
    if any(message.get("done") for message in pipe):
        return 0
    return 0 if restore() else 1


if __name__ == "__main__":
    sys.exit(main())
