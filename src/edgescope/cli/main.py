"""The command `edgescope`: parse, call, print. A verb is loaded when it is named; none imports much at the top."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from edgescope import __version__, registry
from edgescope.commandline.parsing import WHOLE, Parser, fits
from edgescope.errors import EdgescopeError, ExitCode, Message, UnavailableError, fitting
from edgescope.registry import BOARD, VERBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EPILOG = f"""Exit codes: {"; ".join(f"{code} {code.label}" for code in ExitCode)}.

`edgescope help VERB` prints a verb's flags, `edgescope help exit-codes` what each code means, `edgescope docs CODE`
what a message means."""

WAY_IN = """\
  edgescope doctor           what can this machine measure?
  edgescope bench MODEL      how fast is a model, and are its outputs right?
  edgescope optimize MODEL   which engine and precision are right and fastest?
  edgescope --help           what else is there?

MODEL is a file, or a name that edgescope models lists.
"""
"""What a command line without a verb prints."""


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

ENGINES = (
    *("torch", "onnxruntime", "onnxruntime-gpu", "openvino", "openvino-genai", "openvino-tokenizers"),
    *("onnxruntime-ep-openvino", "onnxruntime-ep-webgpu", "onnxruntime-ep-nv-tensorrt-rtx"),
    *("ai-edge-litert", "tensorrt", "tensorrt-rtx-cu13", "torch-tensorrt", "gguf"),
)
"""The packages of the engines, as their class data name them; reading those imports numpy."""


class Version(argparse.Action):
    """Print the versions and end."""

    def __init__(self, option_strings: list[str], dest: str, **how: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **how)

    def __call__(self, parser: argparse.ArgumentParser, *given: Any) -> None:
        """Print one line for each version."""
        print(f"edgescope {__version__}")
        found = {"Python": ".".join(map(str, sys.version_info[:3])), **installed()}
        wide = max(map(len, found))
        print("\n".join(f"  {name:<{wide}}  {version}" for name, version in found.items()))
        if len(found) == 1:
            print("  no engine is installed: edgescope backends says how")
        parser.exit()


def installed() -> dict[str, str]:
    """Return package -> version of each engine that is installed."""
    return {name: version for name in ENGINES if (version := registry.version(name))}


def parser(flags_of: Collection[str] = VERBS) -> Parser:
    """Return the parser with every verb; only the verbs in `flags_of` are loaded and have their flags."""
    top = Parser(
        prog="edgescope",
        description="Measure, explain and optimise deep learning on edge devices, with numbers you can defend.",
        epilog=EPILOG,
    )
    top.add_argument(
        "--version", action=Version, help="print the versions of edgescope, Python and the engines"
    )
    top.add_argument(
        "--board",
        metavar="FILE",
        help="measure a recorded board instead of this machine: a file, or an included one such as nano",
    )
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, verb in VERBS.items():
        sub = verbs.add_parser(name, help=verb.summary)
        if name in flags_of:
            _configure(sub, name)
    return top


WHOLE.append(parser)


def _configure(sub: argparse.ArgumentParser, name: str) -> None:
    """Add a verb's description and flags; of one that cannot be loaded, why."""
    try:
        module = registry.verb(name)
    except UnavailableError as error:
        sub.description = f"{error.message.code}: {error.message.what} ({error.message.evidence})"
    else:
        import inspect  # takes a third of the time of --help, which needs none

        sub.description = inspect.cleandoc(module.__doc__)
        module.configure(sub)


def _named(args: argparse.Namespace) -> str:
    """Return the verb that runs, with its part: `anomaly watch`, `study nano_table`."""
    return " ".join(filter(None, (args.verb, getattr(args, "part", ""), getattr(args, "paper", ""))))


def _verb(words: Sequence[str]) -> str:
    """Return the verb that a command line names, or '' if none; the parser needs only this verb's flags."""
    rest = (
        words[2:] if words[:1] == ["--board"] else words[1:] if words and words[0].startswith("--") else words
    )
    return rest[0] if rest and rest[0] in VERBS else ""


def say(text: object) -> None:
    """Print a message on stderr."""
    from edgescope.process import said

    said.say(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words:
        sys.stderr.write(WAY_IN)
        return ExitCode.USAGE
    named = _verb(words)
    try:
        if named:
            registry.verb(named)
    except UnavailableError as error:
        say(error.message)
        return error.exit_code
    args = parser({named}).parse_args(words)
    args.argv = words  # a verb may need to know what was typed
    with fitting(fits(_named(args), parser)):
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    """Return the exit code of a verb, every error in words."""
    try:
        with _replaying(args.board):
            _tell_where(args)
            return int(registry.verb(args.verb).run(args))
    except EdgescopeError as error:
        say(error.message)
        return error.exit_code
    except ImportError as error:
        missing = registry.lacks(error)
        say(missing)
        return missing.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        say(
            Message(
                "E-IO-2",
                str(error),
                effect="Results finished earlier are untouched",
                fix=REMEDY.get(error.errno or 0, "another path"),
            )
        )
        missing_path = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
        return ExitCode.USAGE if missing_path else ExitCode.FAILED
    except KeyboardInterrupt:
        verb = registry.verb(args.verb)
        part = getattr(verb, "PARTS", {}).get(getattr(args, "part", ""), verb)
        left = getattr(part, "INTERRUPTED", "")
        say(f"I-STOP-1: interrupted. {left}".rstrip())
        return ExitCode.INTERRUPTED


def _tell_where(args: argparse.Namespace) -> None:
    """Say where a replayed board's results are, if a verb that has a store was not told."""
    if not os.environ.get(BOARD) or getattr(args, "store", "") is not None:
        return
    from edgescope.devices.recording import find
    from edgescope.store.results import default_root

    find(os.environ[BOARD])
    say(f"a recording: its results are kept apart, in {default_root()} (--store)")


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
