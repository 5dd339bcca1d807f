"""Would the tests notice? Changes single lines of what computes, runs and keeps figures, and runs the tests on each.

    pip install cosmic-ray coverage                       # the first makes the mutants, the second finds their tests
    python benchmarks/mutation.py --work /tmp/mutation    # about an hour; writes published/mutation.json and .md
    python benchmarks/mutation.py --work /tmp/mutation --seed 2 --only stats --no-publish

1. The tests named in TESTS run once on a copy of the checkout, under coverage, and each line learns its tests.
2. QUOTAS says how many mutants of each package are drawn, by a seed, among all places (mutation_places.py).
3. Each mutant is written into the copy, and the quickest tests that run its line are run in a fork that has numpy and
   SciPy already, up to BUDGET_S of what they took in step 1, until the first failure. Tests that time themselves
   must fail twice, and every test that killed must pass again on the unchanged line, or it is left out.

A mutant is killed, timed_out (noticed as well), survived, or equivalent: mutation_equivalent.toml gives the reason.
Everything runs in a process namespace of its own (`unshare`), so a changed signal or process number ends nothing else,
and what a test leaves running ends with it. --work is kept: the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hypothesis
import numpy  # noqa: F401 - what forks would otherwise import again and again
import pytest
import scipy.signal
import scipy.stats  # noqa: F401
from mutation_map import Map, package_of
from mutation_places import Mutant, places

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
QUOTAS = {
    "stats": 70,
    "store": 28,
    "isolate": 64,
    "bench": 46,
    "telemetry": 38,
    "scenarios": 46,
    "analysis": 120,
}
TESTS = (
    *("tests/stats", "tests/bench", "tests/test_frozen.py", "tests/test_imports.py"),
    *(
        "tests/runner/test_noise.py",
        "tests/isolate/test_isolate.py",
        "tests/isolate/test_isolate_outcome.py",
    ),
    *(
        "tests/store/test_store.py",
        "tests/store/test_store_hostile.py",
        "tests/store/test_store_power_cut.py",
    ),
    *("tests/telemetry/test_verdict.py", "tests/telemetry/test_watcher.py"),
    *(
        f"tests/isolate/test_{name}.py"
        for name in ("leader", "member", "seats", "worker", "counter_and_plan")
    ),
    *(
        f"tests/scenarios/test_{name}.py"
        for name in ("arrivals", "asked", "gaps", "loops", "mlperf", "mlperf_log")
    ),
    *(f"tests/scenarios/test_{name}.py" for name in ("multi_stream", "open_loop", "several_in_flight")),
    *("tests/analysis", "tests/records/test_records.py"),
)
"""What is run. Workers and samplers of real processes are left out: minutes a mutant, killed by their own clocks."""
PATIENCE_S = 8.0
"""A mutant may compute for this long and twice what its tests took, and take SHARED times that by the clock."""
SHARED = 8
QUICK = (
    *("--assert=plain", "-p", "no:cacheprovider", "-p", "no:unraisableexception"),
    *("-p", "_hypothesis_pytestplugin", "-p", "pytest_timeout"),
)
"""A fork spends half of its time on finding plugins and rewriting assertions, unless told otherwise."""


@dataclass
class Outcome:
    """What became of one run of tests: passed, failed (by which test, which times itself or not) or timed_out."""

    status: str
    killer: str = ""


class Bench:
    """The copy of the checkout in which mutants run."""

    def __init__(self, work: Path) -> None:
        self.work, self.tree = work, work / "tree"
        self.source = self.tree / "src/edgescope"
        self.sound: dict[str, bool] = {}
        self._touched = int(time.time()) + 100_000

    def lay_out(self) -> None:
        """Copy what git tracks, and note of which commit it is; compile it once."""
        head = ["git", "rev-parse", "--short=12", "HEAD"]
        commit = subprocess.run(head, cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()
        self.work.mkdir(parents=True, exist_ok=True)
        (self.work / "commit").write_text(commit)
        files = subprocess.run(
            ["git", "ls-files", "-z"], cwd=HERE.parent, capture_output=True, check=True
        ).stdout
        for name in files.decode().split("\0")[:-1]:
            if (HERE.parent / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(HERE.parent / name, self.tree / name)
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(self.tree / "src")], check=True)
        shutil.copytree(self.source, self.work / "unchanged")

    def restore(self) -> None:
        """Put back what a run that was killed left changed."""
        shutil.copytree(self.work / "unchanged", self.source, dirs_exist_ok=True)

    def judge(self, mutant: Mutant, found: Map) -> Outcome:
        """Run its tests; a kill counts if its test passes unchanged code and, timing itself, fails a second time."""
        tests = found.tests(mutant.module, mutant.line)
        while tests:
            with self._changed(mutant):
                outcome = self.run(tests, found)
            if outcome.status != "failed" or not outcome.killer:
                return outcome
            killer, again = outcome.killer, True
            if killer in found.alone:
                with self._changed(mutant):
                    again = self.run([killer], found).status != "passed"
            if again and self._is_sound(killer, found):
                return outcome
            tests = [t for t in tests if t != killer]
        return Outcome("passed")

    def _is_sound(self, test: str, found: Map) -> bool:
        if test not in self.sound:
            self.sound[test] = self.run([test], found).status == "passed"
        return self.sound[test]

    @contextmanager
    def _changed(self, mutant: Mutant) -> Iterator[None]:
        """The file with the change; its time tells Python that what it compiled before is old."""
        path = self.source / mutant.module
        before, times = path.read_bytes(), path.stat()
        self._touched += 1
        try:
            path.write_text(mutant.code)
            os.utime(path, (self._touched, self._touched))
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def run(self, tests: list[str], found: Map) -> Outcome:
        """Run these tests in a fork until one fails."""
        verdict = self.work / "verdict.json"
        verdict.unlink(missing_ok=True)
        allowed = PATIENCE_S + 2 * sum(found.seconds[t] for t in tests)
        gc.freeze()  # what is here before the fork is not looked through after each
        pid = os.fork()
        if pid == 0:
            self._run_here(tests, verdict, allowed)
        status = _wait(pid, time.monotonic() + SHARED * allowed)
        _end_all_others()
        if status is None or -status in (signal.SIGXCPU, signal.SIGKILL):
            return Outcome("timed_out")
        if verdict.exists():
            return Outcome("failed", json.loads(verdict.read_text()))
        return Outcome("passed" if status == 0 else "failed")

    def _run_here(self, tests: list[str], verdict: Path, allowed: float) -> None:
        """Become a pytest of these tests; never returns."""
        os.setsid()
        os.chdir(self.tree)
        sys.path.insert(0, str(self.tree / "src"))
        sys.dont_write_bytecode = True
        os.environ |= {"PYTHONPATH": str(self.tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        out = os.open(self.work / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(out, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        hypothesis.settings.register_profile("patient", deadline=None, database=None)
        hypothesis.settings.load_profile("patient")
        resource.setrlimit(resource.RLIMIT_CPU, (round(allowed), round(allowed) + 5))
        options = ["-x", "-q", *QUICK, f"--basetemp={self.work / 'pytest'}"]
        code = 70
        try:
            code = int(pytest.main([*options, *tests], plugins=[_Killer(verdict)]))
        finally:
            sys.stdout.flush()
            os._exit(code)


class _Killer:
    """Notes the first test that fails."""

    def __init__(self, verdict: Path) -> None:
        self.verdict = verdict

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.verdict.exists():
            self.verdict.write_text(json.dumps(report.nodeid))


def _wait(pid: int, until: float) -> int | None:
    """Exit status of the child, or None when it had to be ended; reaps whatever else ended meanwhile."""
    while time.monotonic() < until:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == pid:
            return os.waitstatus_to_exitcode(status)
        if not ended:
            time.sleep(0.01)
    return None


def _end_all_others() -> None:
    """End everything in this process namespace, of which this is the first process."""
    if os.getpid() != 1:
        raise SystemExit("not the first process of a namespace: run it as the docstring says")
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def drawn(bench: Bench, seed: int, only: str | None, quota: int | None) -> list[Mutant]:
    """The mutants of each package, by the seed."""
    found = []
    for package, share in QUOTAS.items():
        if only is None or only.split("/")[0].removesuffix(".py") == package:
            found += _of_package(bench, package, seed, quota or share, only)
    return found


def _of_package(bench: Bench, package: str, seed: int, share: int, only: str | None) -> list[Mutant]:
    folder = bench.source / package
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    sources = {str(f.relative_to(bench.source)): f.read_text() for f in files}
    if only and "/" in only:
        sources = {only: sources[only]}
    every = [place for module, source in sources.items() for place in places(module, source)]
    chosen: list[Mutant] = []
    for place in sorted(every, key=lambda p: p.rank(seed)):
        if len(chosen) < share and (mutant := place.mutant(sources[place.module], seed)):
            chosen.append(mutant)
    return chosen


def equivalents() -> dict[tuple[str, str, str], str]:
    """Reason by file, lines before and lines after."""
    with (HERE / "mutation_equivalent.toml").open("rb") as handle:
        rows = tomllib.load(handle)["equivalent"]
    return {(r["module"], r["was"], r["now"]): r["why"] for r in rows}


def table(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Counts and the share noticed of each package and of all."""
    found: dict[str, dict[str, Any]] = {}
    for package in [*QUOTAS, "all"]:
        of = [r for r in rows if package in (package_of(r["module"]), "all")]
        count = Counter(r["status"] for r in of)
        judged = len(of) - count["equivalent"]
        noticed = count["killed"] + count["timed_out"]
        found[package] = {
            "mutants": len(of),
            **{name: count[name] for name in ("killed", "timed_out", "survived", "equivalent")},
            "noticed_share": round(noticed / judged, 4) if judged else None,
        }
    return found


def page(figures: dict[str, Any]) -> str:
    """The figures for reading: a table, the survivors, the equivalent ones."""
    lines = [
        "# Mutants and the tests",
        "",
        f"{figures['tool']} on commit {figures['commit']}, seed {figures['seed']}: `python benchmarks/mutation.py`.",
        "",
        "| package | mutants | killed | timed out | survived | equivalent | noticed |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, r in figures["packages"].items():
        share = "" if r["noticed_share"] is None else f"{r['noticed_share']:.0%}"
        cells = [r[k] for k in ("mutants", "killed", "timed_out", "survived", "equivalent")]
        lines.append(f"| {name} | {' | '.join(map(str, cells))} | {share} |")
    for status in ("survived", "equivalent"):
        lines += ["", f"## {status.capitalize()}", ""]
        for r in figures[status]:
            lines += [f"- {r['module']}:{r['line']} {r.get('why', '')}", "", "  ```diff"]
            lines += [f"  - {r['was']}", f"  + {r['now']}", "  ```", ""]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Map, draw, run and publish."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for the copy and what was found so far"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one package (stats) or file (stats/special.py)")
    parser.add_argument("--quota", type=int, help="mutants of each package, instead of QUOTAS")
    parser.add_argument("--no-publish", action="store_true")
    args = parser.parse_args()
    if os.getpid() != 1:
        _enter_namespace()
    bench = Bench(args.work.resolve())
    found = Map.made(bench.work, bench.lay_out, TESTS)
    bench.restore()
    rows = _judged(bench, found, drawn(bench, args.seed, args.only, args.quota), args.seed)
    figures = {
        "tool": f"cosmic-ray {version('cosmic-ray')} (operators), coverage {version('coverage')} (which tests)",
        "commit": found.commit,
        "seed": args.seed,
        "packages": table(rows),
        "survived": [r for r in rows if r["status"] == "survived"],
        "equivalent": [r for r in rows if r["status"] == "equivalent"],
    }
    text = page(figures)
    print(text)
    if not args.no_publish:
        sys.argv[1:] = [
            "--work",
            "DIR",
            "--seed",
            str(args.seed),
        ]  # the page is no place for one's own folders
        from facts import publish  # imports edgescope, which a fork must not have done

        publish("mutation", figures, met=figures["packages"]["all"]["noticed_share"] >= 0.85)
        (HERE.parent / "published/mutation.md").write_text(text)


def _judged(bench: Bench, found: Map, mutants: list[Mutant], seed: int) -> list[dict[str, Any]]:
    """One row for each mutant; rows of an earlier, interrupted run are taken as they are."""
    reasons, log = equivalents(), bench.work / f"seed{seed}.jsonl"
    known = {}
    if log.exists():
        known = {(r["module"], r["was"], r["now"]): r for r in map(json.loads, log.read_text().splitlines())}
    rows = []
    for number, m in enumerate(mutants, 1):
        key = (m.module, m.was, m.now)
        if key in reasons:
            row = {"status": "equivalent", "why": reasons[key]}
        elif key in known:
            row = known[key]
        else:
            began = time.monotonic()
            outcome = bench.judge(m, found)
            status = {"passed": "survived", "failed": "killed"}.get(outcome.status, outcome.status)
            row = {"status": status, "killer": outcome.killer, "seconds": round(time.monotonic() - began, 1)}
            with log.open("a") as handle:
                handle.write(json.dumps({"module": m.module, "was": m.was, "now": m.now} | row) + "\n")
        place = {"module": m.module, "line": m.line, "operator": m.operator, "was": m.was, "now": m.now}
        rows.append(place | row)
        print(
            f"{number}/{len(mutants)} {row['status']} {m.module}:{m.line} {m.now}",
            file=sys.stderr,
            flush=True,
        )
    return rows


def _enter_namespace() -> None:
    """Become the first process of a process namespace; as root directly, else with a user namespace of one's own."""
    flags = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = [
        "unshare",
        *flags,
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
        sys.executable,
        *sys.argv,
    ]
    os.execvp("unshare", command)


if __name__ == "__main__":
    main()
