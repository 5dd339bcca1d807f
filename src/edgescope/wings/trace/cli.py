"""Show where the time goes, kernel by kernel: of a trial, of any program, or of a trace that was recorded elsewhere.

edgescope trace resnet50 --backend torch_eager       a clean run, then one under the best profiler here
edgescope trace -- python my_video.py                any Python program, which needs nothing in it
edgescope trace --on ssh://user@nano -- python3 my_video.py    the same on a board, profiled there
edgescope trace report.sqlite                        an export of Nsight Systems, Kineto, ONNX Runtime ...
edgescope trace p1.sqlite p2.sqlite p4.sqlite        how it grows from trace to trace

Exit code: 0 if the account may be trusted; 7 if the profiler changed the speed too much for a conclusion; 1 if a file
was damaged, or a program or a trial failed.
"""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.commandline import context, trial_flags
from edgescope.errors import ExitCode
from edgescope.process.said import waiting

if TYPE_CHECKING:
    from edgescope.wings.trace.verb import Traced


ENDS = (".json", ".json.gz", ".sqlite", ".csv", ".nsys-rep", ".qdrep", ".ncu-rep", ".nvvp")
"""How the names of traces end."""
THREADS = "OPENBLAS_NUM_THREADS"
PAGES = (".html", ".htm", ".md", ".csv")


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("what", nargs="+", help="a model, files that a profiler exported, or -- and a program")
    group = sub.add_argument_group("traces")
    group.add_argument(
        "--range", default="", metavar="NAME", help="the ranges that are the inferences (found)"
    )
    group.add_argument(
        "--kind", default="", metavar="NAME", help="format of the files (told by their content)"
    )
    group.add_argument(
        "--profiler", default="", metavar="NAME", help="cupti, kineto, engine or nsys (the best here)"
    )
    trial_flags.add_seconds(group, "to the program's end; with it, the program goes on unprofiled")
    text = "file to write: the account (.html .md .csv), the spans for Perfetto (.json .json.gz) or DuckDB (.parquet)"
    trial_flags.add_output(group, text)
    text = "SQL over the table `spans` instead of the account, e.g. 'SELECT kind, count(*) FROM spans GROUP BY 1'"
    group.add_argument("--query", default="", metavar="SQL", help=text)
    trial_flags.add_board(group, "; for edgescope trace: run the program after -- there")
    trial_flags.add_what(sub)
    context.add_verbose(sub)
    trial_flags.add_load(sub)
    trial_flags.add_timing(sub)
    trial_flags.add_safety(sub)


def run(args: argparse.Namespace) -> int:
    """Print the account; return its exit code."""
    _import_numpy()
    from edgescope import report
    from edgescope.report import data, terminal
    from edgescope.wings.trace.page import document

    found = _traced(args)
    traces = [account.trace for _, account in found.accounts]
    page = document(found)
    if args.output and args.output.suffix in PAGES:
        report.save(page, args.output)
    elif args.output and traces:
        from edgescope.wings.trace import export

        writer = export.write_parquet if args.output.suffix == ".parquet" else export.write_json
        writer(traces[0], args.output)
    if args.query and traces:
        from edgescope.wings.trace import export

        print(export.query(traces[0], args.query))
        return _exit_code(found)
    if args.json:
        print(data.json_text(page))
    else:
        terminal.show(page, verbose=args.verbose)
    return _exit_code(found)


def _import_numpy() -> None:
    """Import NumPy without its threads for products of matrices: an account has none, and they start in 30 ms of CPU.

    What this process starts finds its environment as it was.
    """
    before = os.environ.get(THREADS)
    os.environ[THREADS] = before or "1"
    importlib.import_module("numpy")
    os.environ.pop(THREADS)
    os.environ.update({THREADS: before} if before else {})


def _exit_code(found: Traced) -> ExitCode:
    """Return the code of a trial that did not run; else what is missing from the answer, else whether it concludes."""
    runs = [context.exit_code(r) for r in (found.clean, found.profiled) if r is not None]
    if failed := max(runs, default=ExitCode.OK):
        return failed
    if not found.accounts or not found.whole or found.program_failed:
        return ExitCode.FAILED
    return ExitCode.OK if found.concludes else ExitCode.UNDECIDED


def _is_trace(name: str) -> bool:
    """Return whether a word is a trace's: by how it ends, or because it is a file that holds no model."""
    if name.lower().endswith(ENDS):
        return True
    from edgescope.models import zoo

    return Path(name).is_file() and not zoo.is_file(name)


def _traced(args: argparse.Namespace) -> Traced:
    """Return what the command line asks for: the words after -- are a program, existing traces are files."""
    from edgescope.errors import UnsupportedError
    from edgescope.wings.trace.verb import trace

    words = list(args.argv)
    if "--" in words:
        program = words[words.index("--") + 1 :]
        return trace(
            program=program,
            on=trial_flags.board(args),
            range_name=args.range,
            seconds=args.seconds,
            setup=context.setup(args),
        )
    if args.on:
        raise UnsupportedError(
            "E-PROF-9",
            "--on traces a program on the board, and no trial",
            effect="Nothing was measured",
            fix="edgescope trace --on ssh://user@board -- PROGRAM",
        )
    if args.kind or len(args.what) > 1 or _is_trace(args.what[0]):
        with waiting(f"reading {', '.join(args.what)}", patience_s=1.0):
            several = context.setup(args) if len(args.what) > 1 else None
            return trace(args.what, range_name=args.range, kind=args.kind, setup=several)

    args.model, args.replicates = args.what[0], 1
    with waiting(f"tracing {args.model}"):
        return trace(
            trial_flags.trials_of(args)[0],
            profiler=args.profiler,
            store=context.store(args),
            setup=context.setup(args),
        )
