"""The command `edgescope`: parse, call, print. Each verb has its own file, which imports nothing heavy at the top."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from edgescope import __version__, registry
from edgescope.cli.completion import SHELLS, script
from edgescope.cli.hints import fits
from edgescope.cli.parsing import Parser
from edgescope.errors import EdgescopeError, Message, fitting
from edgescope.registry import BOARD

VERBS = {
    verb: import_module(f"edgescope.cli.{'list_results' if verb == 'list' else verb}")
    for verb in (
        *("demo", "doctor", "models", "modes", "monitor", "backends", "bench", "sweep", "train", "anomaly"),
        *("optimize", "recommend", "predict", "capacity", "offload", "trace", "compare", "energy", "explain"),
        *("layers", "list", "show", "rm", "report", "study", "record", "docs"),
    )
}

EPILOG = """Exit codes: 0 ok; 1 a trial or a gate failed, a figure is unstable, or nothing can be picked; 2 the request
is wrong, a file that is not there included; 3 unsupported or not installed; 4 a setting is not in effect; 5 stopped
for memory or thermal safety; 6 ran elsewhere than requested; 130 interrupted.

`edgescope help VERB` prints a verb's flags, `edgescope docs CODE` what a message means."""


#: What the system calls an error -> what helps.
REMEDY = {
    errno.ENOENT: "a path that exists",
    errno.ENOTDIR: "a path whose folders are folders",
    errno.EISDIR: "the path of a file",
    errno.EACCES: "a path that you may read and write",
    errno.EPERM: "a path that you may read and write",
    errno.EROFS: "a path on a disk that can be written",
    errno.ENOSPC: "free some space, or use another path",
    errno.EDQUOT: "free some space, or use another path",
}


def parser(flags_of: Collection[str] = VERBS) -> Parser:
    """Return the parser with every verb; only the verbs in `flags_of` have their flags."""
    top = Parser(
        prog="edgescope",
        description="Measure, explain and optimise deep learning on edge devices, with numbers you can defend.",
        epilog=EPILOG,
    )
    top.add_argument("--version", action="version", version=f"edgescope {__version__}")
    top.add_argument(
        "--board",
        metavar="FILE",
        help="measure a recorded board instead of this machine: a file, or an included one such as nano",
    )
    text = f"print a script for completion in {' or '.join(SHELLS)}: source <(edgescope --completion bash)"
    top.add_argument("--completion", action=Completion, choices=SHELLS, metavar="SHELL", help=text)
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, module in VERBS.items():
        sub = verbs.add_parser(name, help=module.HELP, description=module.__doc__)
        if name in flags_of:
            module.configure(sub)
    return top


class Completion(argparse.Action):
    """Print the script and end, as --version does."""

    def __call__(self, top: argparse.ArgumentParser, *given: Any) -> None:
        """Print the script of the shell that was named, with the flags of every verb."""
        print(script(parser(), str(given[1])), end="")
        top.exit()


def _named(args: argparse.Namespace) -> str:
    """Return the verb that runs, with its part: `anomaly watch`, `study nano_table`."""
    return " ".join(filter(None, (args.verb, getattr(args, "part", ""), getattr(args, "paper", ""))))


def _verb(words: Sequence[str]) -> str:
    """Return the verb that a command line names, or '' if none; the parser needs only this verb's flags."""
    rest = (
        words[2:] if words[:1] == ["--board"] else words[1:] if words and words[0].startswith("--") else words
    )
    return rest[0] if rest and rest[0] in VERBS else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    words = [*words[1:], "--help"] if words[:1] == ["help"] else words
    args = parser({_verb(words)}).parse_args(words)
    args.argv = words  # a verb may need to know what was typed
    with fitting(fits(_named(args), parser)):
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    """Return the exit code of a verb, every error in words."""
    try:
        with _replaying(args.board):
            _tell_where(args)
            return int(VERBS[args.verb].run(args))
    except EdgescopeError as error:
        print(error.message, file=sys.stderr)
        return error.exit_code
    except ImportError as error:
        missing = registry.lacks(error)
        print(missing, file=sys.stderr)
        return missing.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        print(
            Message(
                "E-IO-2",
                str(error),
                effect="Results finished earlier are untouched",
                fix=REMEDY.get(error.errno or 0, "another path"),
            ),
            file=sys.stderr,
        )
        return 2 if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR) else 1
    except KeyboardInterrupt:
        verb = VERBS[args.verb]
        part = getattr(verb, "PARTS", {}).get(getattr(args, "part", ""), verb)
        left = getattr(part, "INTERRUPTED", "")
        print(f"I-STOP-1: interrupted. {left}".rstrip(), file=sys.stderr)
        return 130


def _tell_where(args: argparse.Namespace) -> None:
    """Say where a replayed board's results are, if a verb that has a store was not told."""
    if not os.environ.get(BOARD) or getattr(args, "store", "") is not None:
        return
    from edgescope.devices.replay.format import find
    from edgescope.store.results import default_root

    find(os.environ[BOARD])
    print(f"a recording: its results are kept apart, in {default_root()} (--store)", file=sys.stderr)


@contextmanager
def _replaying(board: str | None) -> Iterator[None]:
    """Replace this machine by a recorded board, here and in every process that the block starts."""
    before = os.environ.get(BOARD)
    os.environ.update({BOARD: board} if board else {})
    try:
        yield
    finally:
        if board:
            del os.environ[BOARD]
            os.environ.update({BOARD: before} if before else {})


if __name__ == "__main__":
    sys.exit(main())
