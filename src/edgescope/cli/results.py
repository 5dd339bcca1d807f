"""The verbs that read a store: list, show, rm, report and compare."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope import registry
from edgescope.commandline import context, trial_flags
from edgescope.errors import ExitCode, UsageError, check_name
from edgescope.process.said import waiting

if TYPE_CHECKING:
    from edgescope.records import Result
    from edgescope.store.results import Store


STARTED = "started"
FILTERS = ("model", "backend", "status", "machine")


class List:
    """List the results in a store, newest last, with the names that other verbs take and the time of each measurement.

    edgescope list
    edgescope list --model resnet --sort latency
    edgescope list --status failed -v
    """

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add this verb's flags."""
        add_filters(sub)
        text = (
            "order by: a figure, the best first, such as latency, fps, memory, energy; or started (started)"
        )
        sub.add_argument("--sort", default=STARTED, metavar="WORD", help=text)
        context.add_verbose(sub)
        trial_flags.add_store(sub)
        trial_flags.add_json(sub)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Print one line for each result; name what cannot be read on stderr and skip it; return 0."""
        from edgescope.records import Status, codec
        from edgescope.units import counted

        store = context.store(args)
        found = ordered(chosen(store, args), args.sort)
        if args.json:
            print(json.dumps([codec.to_json(r) for r in found]))
        else:
            from edgescope.report import terminal
            from edgescope.report.result import listing

            page = listing(found, brief=sys.stdout.isatty())
            terminal.listing(page, verbose=args.verbose)
            failed = sum(r.status is not Status.OK for r in found)
            if failed and not args.verbose:
                context.say(
                    f"{counted(failed, 'result')} without a usable figure: edgescope list -v says why"
                )
            if not found:
                context.say(f"no such result in {store.root}: edgescope bench MODEL measures one")
        for problem in store.problems:
            context.say(problem)
        return 0


def add_filters(sub: argparse._ActionsContainer) -> None:
    """Add the flags that select results."""
    sub.add_argument("--model", default="", help="model: only results whose model's name contains this")
    sub.add_argument("--backend", default="", help="engine: only results of this engine")
    sub.add_argument(
        "--status", default="", help="status: only results with this status: ok, failed, oom ..."
    )
    trial_flags.add_machine(sub, "its results, or all")


def ordered(results: Sequence[Result], word: str) -> list[Result]:
    """Return the results by a figure, the best first and those without it last; UsageError for an unknown figure."""
    from edgescope import metrics
    from edgescope.analysis.run.usage import first
    from edgescope.records import Measured

    if word == STARTED:
        return list(results)
    known = metrics.bounded()
    check_name("--sort", word, [STARTED, *known])
    metric = known[word]

    def key(result: Result) -> tuple[bool, float]:
        found = first(result, metric.of)
        sign = -1 if metric.higher else 1
        return (False, sign * found.value) if isinstance(found, Measured) else (True, 0.0)

    return sorted(results, key=key)


def chosen(store: Store, args: argparse.Namespace) -> list[Result]:
    """Return the results that match the filters, oldest first; UsageError for an unknown backend or status."""
    from edgescope.records import Status
    from edgescope.runner.setup import own_results

    check_name("--backend", args.backend, registry.BACKENDS)
    check_name("--status", args.status, [s.value for s in Status])
    return [
        r
        for r in own_results(store, args.machine, context.say, apart=True)
        if args.model in r.trial.model
        and args.backend in ("", r.trial.backend)
        and args.status in ("", r.status.value)
    ]


class Show:
    """Print one result: its card with all evidence, or all of it as JSON.

    edgescope show latest
    edgescope show 3f2a91 --json
    """

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add this verb's flags."""
        sub.add_argument("result", help="a result, by its name in edgescope list, or latest")
        context.add_verbose(sub)  # as everywhere; a card that was asked for by name holds the evidence anyway
        trial_flags.add_machine(sub, "whose results the name means")
        trial_flags.add_store(sub)
        trial_flags.add_json(sub)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Print the result; return the exit code of the run that measured it."""
        from edgescope.analysis.cells import ids
        from edgescope.records import codec
        from edgescope.report import terminal
        from edgescope.report.result import document
        from edgescope.runner.setup import named

        store = context.store(args)
        result = store.full(named(store, args.result, ids.one, args.machine, context.say))
        if args.json:
            print(json.dumps(codec.to_json(result), indent=1))
        else:
            terminal.show(document(result), verbose=True)
        return context.exit_code(result)


class Remove:
    """Remove results from a store, by name or by filters. It asks before it removes anything.

    edgescope rm 3f2a91 91bc04
    edgescope rm --status failed --yes
    """

    INTERRUPTED = "Results that were not removed yet are unchanged."

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add this verb's flags."""
        sub.add_argument(
            "results", nargs="*", metavar="ID", help="results, by their names in edgescope list, or latest"
        )
        add_filters(sub.add_argument_group("or all results that match"))
        sub.add_argument("--yes", action="store_true", help="remove without asking")
        trial_flags.add_store(sub)
        trial_flags.add_json(sub)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """List what would be removed, ask, remove it; return 1 if the answer is no."""
        from edgescope.analysis.cells import ids
        from edgescope.report import terminal
        from edgescope.report.result import listing
        from edgescope.runner.setup import named

        store, filtered = context.store(args), any(getattr(args, name) for name in FILTERS)
        if bool(args.results) == filtered:
            what = (
                "names of results cannot be combined with filters"
                if filtered
                else "no result to remove is named"
            )
            raise UsageError(
                "E-RM-1", what, effect="Nothing was removed", fix="edgescope list, then: edgescope rm ID"
            )
        every = chosen(store, args) if filtered else (named(store, i, ids.one) for i in args.results)
        found = list({r.id: r for r in every}.values())
        if not found:
            raise UsageError("E-RM-3", "no result matches these filters", fix="edgescope list")
        if not args.yes:
            if not sys.stdin.isatty():
                fix = "the same command with --yes"
                raise UsageError(
                    "E-RM-2", f"{len(found)} results would be removed", effect="None was", fix=fix
                )
            terminal.listing(listing(found))
            context.say(
                f"Remove {'this result' if len(found) == 1 else f'these {len(found)} results'}? [y/N]"
            )
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                return 1
        for result in found:
            store.remove(result)
        removed = {"removed": [r.id for r in found]}
        print(json.dumps(removed) if args.json else f"removed {len(found)} result{'s' * (len(found) != 1)}")
        return 0


class Report:
    """Write a report of a store: one self-contained HTML page, or Markdown or CSV, by the suffix of the file."""

    INTERRUPTED = "No report was written; an earlier one is unchanged."

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add this verb's flags."""
        trial_flags.add_output(
            sub, "file to write: the report (.html, .md, .csv)", default=Path("edgescope-report.html")
        )
        sub.add_argument("--model", default="", help="model: only results whose model's name contains this")
        trial_flags.add_machine(sub, "its results, or all: each machine in chapters of its own")
        trial_flags.add_store(sub)
        trial_flags.add_json(sub)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Read the store, write the report and print its path; return 0."""
        from edgescope.report import writable, write
        from edgescope.runner.setup import own_results

        writable(args.output)  # before anything is read
        store = context.store(args)
        with waiting(f"reading {store.root}"):
            found = own_results(store, args.machine, context.say, apart=True)
            results = store.fulls([r for r in found if args.model in r.trial.model])
        for problem in store.problems:
            context.say(problem)
        if not results:
            raise UsageError(
                "E-REPORT-2", f"there are no results in {store.root}", fix="edgescope bench MODEL"
            )
        with waiting(f"writing {args.output} from {len(results)} result{'s' * (len(results) != 1)}"):
            path = write(results, args.output)
        print(json.dumps({"path": str(path), "results": [r.id for r in results]}) if args.json else path)
        return 0


class Compare:
    """Compare two variants: first the settings that differ, then the numbers, then a judgement that needs both
    significance and size.

      edgescope compare 121c4a d14597        two results, by their names in `edgescope list`
      edgescope compare 3f2a 91bc            all replicates of two cells, by the beginnings of their ids
      edgescope compare 3f2a 91bc --other-store ../before
      edgescope compare 3f2a 91bc --other-store ../orin --price baseline=2000 --price candidate=249 --power-budget 15

    Exit code: 0 if the candidate is judged FASTER, SLOWER or SAME; 7 if the runs decide nothing (AMBIGUOUS) or may not
    be compared (NOT-COMPARABLE).
    """

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add this verb's flags."""
        sub.add_argument("baseline", help="a result or a cell, by its name in edgescope list, or latest")
        sub.add_argument("candidate", help="the result or cell to compare with it")
        trial_flags.add_store(sub)
        trial_flags.add_other_store(sub, "the candidate")
        trial_flags.add_machine(sub, "whose results the names mean")
        group = sub.add_argument_group("two machines")
        trial_flags.add_price(group, "baseline=249, candidate=1999 or MACHINE_ID=249")
        text = "watts that a machine may draw: the fastest measured cell of each that keeps it is compared"
        group.add_argument("--power-budget", type=trial_flags.number, default=None, metavar="W", help=text)
        sub.add_argument(
            "--force", action="store_true", help="show numbers side by side even if not comparable"
        )
        trial_flags.add_json(sub)
        context.add_verbose(sub)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Compare two results, or the replicates of two cells; return whether a judgement was possible."""
        from edgescope.verbs.compare import compare, named_results

        store = context.store(args)
        baseline = named_results(args.baseline, store, args.machine, context.say)
        found = compare(
            baseline,
            args.candidate,
            store=store,
            other_store=trial_flags.other_store(args),
            machine="" if args.other_store else args.machine,
            force=args.force,
            prices=dict(args.price),
            power_budget=args.power_budget,
        )
        from edgescope.analysis.run import noise
        from edgescope.report.compare import document

        floor = noise.sentence(store.root, baseline[0].machine.id)
        page = document(found, noise=floor, forced=args.force)
        context.show(args, page)
        return ExitCode.OK if found.decided else ExitCode.UNDECIDED
