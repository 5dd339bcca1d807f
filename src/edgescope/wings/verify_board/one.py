"""The process of one check: python -m edgescope.wings.verify_board.one NAME [ssh://BOARD].

It says one line of JSON on its stdout, `{"outcome": ...}`, and of the check `board` also what names the board: that
stays with the caller, who takes it out of everything. What edgescope itself finds missing is `unsupported`; whatever
else goes wrong means that the path does not hold.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from edgescope.errors import EdgescopeError, UnavailableError, UnsupportedError
from edgescope.process import Pipe
from edgescope.wings.verify_board.check import Check, Outcome, Status, checks, unsupported
from edgescope.wings.verify_board.site import Site, at

IDENTITY = "board"
"""The check that runs first: it says what board this is."""
ERROR = "error"


def run(check: Check, site: Site) -> Outcome:
    """Run a check; return what it found, whatever it raised."""
    try:
        return check.run(site)
    except (UnsupportedError, UnavailableError) as error:
        return unsupported(str(error.message))
    except EdgescopeError as error:
        return Outcome(Status.FAILS, str(error.message))
    except Exception as error:  # a library's own: that is what a check is for
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return Outcome(Status.FAILS, f"{type(error).__name__}: {error} ({where})"[:400])


def main(words: Sequence[str]) -> int:
    """Run the named check and say what it found; return 0, or 1 if the board could not be reached."""
    name, url = words[0], words[1] if len(words) > 1 else ""
    pipe = Pipe.own()
    try:
        with at(url) as site:
            outcome = run(checks()[name], site)
            told = {"words": dict(site.names().words)} if name == IDENTITY else {}
            pipe.send(outcome=outcome.to_json(), reached=site.reached, **told)
    except EdgescopeError as error:
        parts = (error.code, error.what, error.evidence, error.effect, error.fix)
        pipe.send(**{ERROR: [type(error).__name__, *parts]})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
