"""Would the tests notice? Changes single lines of what computes, runs and keeps figures, and runs the tests on each.

    pip install cosmic-ray coverage                       # the first makes the mutants, the second finds their tests
    python benchmarks/mutation.py --work /tmp/mutation --seed 5     # writes published/mutation.json and .md
    python benchmarks/mutation.py --work /tmp/stats --seed 2 --only stats --quota 8 --no-publish

1. The tests named in TESTS run once on a copy of the checkout, under coverage, and each line learns its tests.
2. QUOTAS says how many mutants of each package are drawn, by a seed, among all places (mutation.py).
3. Each mutant is written into the copy, and the quickest tests that run its line are run in a fork that has IMPORTED
   already, up to BUDGET_S of what they took in step 1, until the first failure. Tests that time themselves must fail
   twice, and every test that killed must pass again on the unchanged line, or it is left out; so must tests that took
   too long. There are as many such processes as cores, each with a copy and a share of the mutants of its own.

A mutant is killed, timed_out (noticed as well), survived, or equivalent: mutation_equivalent.toml gives the reason.
Everything runs in a process namespace of its own (`unshare`), so a changed signal or process number ends nothing else,
and what a test leaves running ends with it. --work is kept: the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import gc
import hashlib
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.provider import OperatorProvider
from mutation_map import Map, package_of

KIN = {
    "ReplaceBinaryOperator": {
        *("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Div", "Mod_Mul", "Pow_Mul"),
        *("BitOr_BitAnd", "BitAnd_BitOr", "LShift_RShift", "RShift_LShift"),
    },
    "ReplaceComparisonOperator": {
        *("Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt"),
        *("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is"),
    },
    "ReplaceUnaryOperator": {"UAdd_USub", "USub_UAdd", "Delete_USub", "Delete_Not", "Delete_Invert"},
}
NEEDS_ARGUMENTS = {"VariableReplacer", "VariableInserter"}


@dataclass(frozen=True)
class PlacesPlace:
    """Where operators of one family apply: file, line and column (from 1 and 0), name and occurrence of each."""

    module: str
    line: int
    column: int
    choices: tuple[tuple[str, int], ...]
    text: str

    def rank(self, seed: int) -> str:
        """Its place in the order of drawing, which stays the same when lines elsewhere change."""
        return _hash(seed, self.module, self.text, self.column, _family(self.choices[0][0]))

    def mutant(self, source: str, seed: int) -> Mutant | None:
        """The mutant that the seed chooses here, or None where every change leaves the same program or none."""
        for name, occurrence in sorted(self.choices, key=lambda c: _hash(seed, self.text, c[0])):
            code = _mutated(source, name, occurrence)
            if code and _is_another_program(source, code):
                return Mutant(self.module, self.line, self.column, name, *_changed(source, code), code)
        return None


@dataclass(frozen=True)
class Mutant:
    """One change: file, line, column, operator, the lines before and after, and the whole file with the change."""

    module: str
    line: int
    column: int
    operator: str
    was: str
    now: str
    code: str


def places(module: str, source: str) -> list[PlacesPlace]:
    """Every place of the file that an operator can change."""
    found: dict[tuple[int, int, str], list[tuple[str, int]]] = defaultdict(list)
    unevaluated, lines = _annotations(ast.parse(source)), source.splitlines()
    for name, occurrence, (line, column) in _positions(source):
        if not any(start <= (line, column) < end for start, end in unevaluated):
            found[line, column, _family(name)].append((name, occurrence))
    return [
        PlacesPlace(module, line, column, tuple(choices), " ".join(lines[line - 1].split()))
        for (line, column, _), choices in sorted(found.items())
    ]


def _positions(source: str) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """Each operator, its running number in the file, and where it applies."""
    nodes = [
        n for n in ast_nodes(get_ast(source)) if n.type not in ("name", "newline", "string", "endmarker")
    ]
    for name in _names():
        hits = [(node, place[0]) for node in nodes for place in _operator(name).mutation_positions(node)]
        for occurrence, (node, place) in enumerate(hits):
            if not _marker(node) and not (_large(node) and name == "NumberReplacer"):
                yield name, occurrence, place


def _marker(node: Any) -> bool:
    """Whether this is the `*` or `/` between parameters, which is no arithmetic."""
    return node.parent is not None and node.parent.type == "parameters"


def _large(node: Any) -> bool:
    """Whether this is a number that one more or less hardly changes."""
    return node.type == "number" and abs(ast.literal_eval(node.value)) > 1000


def _mutated(source: str, name: str, occurrence: int) -> str:
    """Return the file with the change; '' for `a.b` in `except (a.b, c)`, which Cosmic Ray finds and cannot replace."""
    try:
        return str(mutate_code(source, _operator(name), occurrence))
    except AttributeError:
        return ""


def _is_another_program(source: str, code: str) -> bool:
    try:
        return ast.dump(ast.parse(code)) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def _changed(source: str, code: str) -> tuple[str, str]:
    """The lines that differ, before and after, each as one line."""
    lines = list(difflib.ndiff(source.splitlines(), code.splitlines()))
    was, now = (
        " ".join(" ".join(line[2:].split()) for line in lines if line.startswith(sign))
        for sign in ("- ", "+ ")
    )
    return was, now


def _annotations(tree: ast.AST) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Start and end of everything that is an annotation."""
    found: list[ast.expr | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            found.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(node.returns)
    return [
        ((e.lineno, e.col_offset), (e.end_lineno or e.lineno, e.end_col_offset or e.col_offset))
        for e in found
        if e is not None
    ]


@lru_cache
def _operator(name: str) -> Any:
    return OperatorProvider()[name]()


@lru_cache
def _names() -> tuple[str, ...]:
    found = []
    for name in sorted(OperatorProvider()):
        kin = KIN.get(_family(name))
        if name not in NEEDS_ARGUMENTS and (kin is None or name.split("_", 1)[1] in kin):
            found.append(name)
    return tuple(found)


def _family(name: str) -> str:
    return name.split("_", 1)[0]


def _hash(*words: object) -> str:
    return hashlib.sha256(repr(words).encode()).hexdigest()


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
QUOTAS = {
    **{"stats": 36, "store": 24, "isolate": 28, "bench": 30, "telemetry": 24, "scenarios": 30},
    **{"analysis": 80, "tracing": 32, "video": 32, "training": 26, "verify": 26, "data": 24},
    **{"runner": 24, "search": 32, "workloads": 28, "artifacts": 24, "records": 24, "anomaly": 28},
    **{"devices": 32, "modes": 24, "metrics": 15},
}
"""Mutants of each package that measures or decides."""


def _files(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/{folder}/test_{name}.py" for name in names)


MODULES = ("tests/project/test_frozen.py", "tests/project/test_imports.py")
TESTS: dict[str, tuple[str, ...]] = {
    "stats": ("tests/stats",),
    "store": _files(
        "store", "cell_lock", "plain_files", "store", "store_hostile", "store_power_cut", "whole_file"
    ),
    "isolate": _files(
        "isolate",
        *("isolate_outcome", "worker_run", "worker_process", "placement", "counter_and_plan", "hold"),
        *("forks_by_hand", "forking_by_hand", "limits_by_hand", "traced_by_hand", "warden_by_hand"),
    ),
    "bench": ("tests/bench",),
    "telemetry": _files("telemetry", "verdict", "watcher"),
    "scenarios": _files(
        "scenarios",
        *("arrivals", "gaps", "live", "loops", "mlperf", "mlperf_log", "multi_stream", "open_loop"),
        *("settings", "several_in_flight"),
    ),
    "analysis": ("tests/analysis",),
    "tracing": ("tests/tracing",),
    "video": (
        *_files("video", "alarm", "annotated", "boxes", "description", "drawing", "flow", "preparing"),
        *_files("video", "snippets", "stages", "what_if"),
        *_files("video/sources", "opening", "paced_source", "file_source", "live_source"),
        *_files("video/sources", "gstreamer_source", "nvdec_source"),
    ),
    "training": ("tests/training",),
    "verify": ("tests/verify",),
    "data": ("tests/data", *_files("field", "folders", "npz", "coco", "csv")),
    "runner": _files(
        "runner", "builds", "isolated", "noise", "pruning", "run", "runner_reuse", "setup", "sweep"
    ),
    "search": ("tests/search",),
    "workloads": _files(
        "workloads",
        *("blocking", "gate", "inference", "interleaved", "pipeline", "video_account", "video_work"),
        *("training", "training_faults", "training_stalls"),
    ),
    "artifacts": (
        *_files("artifacts", "bias_correction", "export_files", "export_torch", "file_for_precision"),
        *_files("artifacts", "fp16_types", "int8_inputs", "int8_modelopt", "int8_onnxruntime"),
        *_files("artifacts", "mixed_precision_onnx", "names_in_the_cache", "onnx_names", "onnx_write"),
        *_files("artifacts", "tflite_litert_torch", "tflite_made", "tflite_reader"),
        "tests/wings/litert/test_tflite.py",
    ),
    "records": ("tests/records", "tests/test_trial_command.py"),
    "anomaly": _files(
        "anomaly",
        *("losses", "layouts", "generate", "extract", "pretext", "train"),
        *("decode", "detector", "encode", "feature_set"),
    ),
    "devices": ("tests/devices", *_files("wings/jetson", "jetson_modes")),
    "modes": (
        *_files("modes", "act", "elsewhere", "features", "helper", "journal"),
        *_files("wings/jetson", "jetson_modes"),
    ),
    "metrics": ("tests/project/test_metrics.py",),
}
"""What is run for whom. Workers and samplers of real processes are left out: minutes each, killed by their clocks."""
IMPORTED = ("numpy", "scipy.signal", "scipy.stats", "torch", "onnxruntime", "onnx", "av", "duckdb")
"""What a fork would otherwise import again and again; what is not installed is left out."""
PATIENCE_S = 8.0
"""A mutant may compute for this long and twice what its tests took, and take SHARED times that by the clock."""
SHARED = 8
LEAST, LEAST_EACH = 0.9, 0.8
"""Share of all mutants that must be noticed, and of those of each package."""
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
    """The copy of the checkout in which mutants run, and this process's own place in it."""

    def __init__(self, work: Path, job: int = 0) -> None:
        """`job`: processes beside each other change a copy each."""
        self.work, self.tree = work / f"job{job}", work / f"job{job}" / "tree"
        self.source = self.tree / "src/edgescope"
        self.sound: dict[tuple[str, ...], bool] = {}
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
            if outcome.status == "timed_out" and not self._is_sound(tests, found):
                tests = tests[: len(tests) // 2]  # too much for its time without any change
                continue
            if outcome.status != "failed" or not outcome.killer:
                return outcome
            killer, again = outcome.killer, True
            if killer in found.alone:
                with self._changed(mutant):
                    again = self.run([killer], found).status != "passed"
            if again and self._is_sound([killer], found):
                return outcome
            tests = [t for t in tests if t != killer]
        return Outcome("passed")

    def _is_sound(self, tests: list[str], found: Map) -> bool:
        """Whether tests pass, in their time, on what nobody changed."""
        key = tuple(tests)
        if key not in self.sound:
            self.sound[key] = self.run(tests, found).status == "passed"
        return self.sound[key]

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


def _drawn(bench: Bench, args: argparse.Namespace) -> list[Mutant]:
    """The mutants of a command, drawn once: every place of every file is looked at for them."""
    file = bench.work.parent / f"drawn-{args.seed}-{(args.only or 'all').replace('/', '.')}-{args.quota}.json"
    if not file.exists():
        every = drawn(bench, args.seed, args.only, args.quota)
        file.write_text(json.dumps([asdict(mutant) for mutant in every]))
    return [Mutant(**row) for row in json.loads(file.read_text())]


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


def mutation_main() -> None:
    """Map, draw, run and publish."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for the copies and what was found so far"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one package (stats) or file (stats/intervals.py), with its own tests")
    parser.add_argument("--quota", type=int, help="mutants of each package, instead of QUOTAS")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes at once")
    parser.add_argument("--no-publish", action="store_true")
    parser.add_argument("--job", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    work = args.work.resolve()
    if args.job is None:
        rows, commit = _led(args, work)
        _published(args, rows, commit)
    elif os.getpid() != 1:
        _enter_namespace()
    else:
        _job(args, work)


def _led(args: argparse.Namespace, work: Path) -> tuple[list[dict[str, Any]], str]:
    """Have the map made and each job judge its share; return every row, in the order of drawing."""
    bench = Bench(work)
    found = Map.made(bench.work, bench.lay_out, _wanted(args.only), args.jobs)
    bench.restore()
    for job in range(1, args.jobs):
        if not Bench(work, job).work.exists():
            shutil.copytree(bench.work, work / f"job{job}", ignore=shutil.ignore_patterns("map", "pytest"))
        shutil.copytree(bench.work / "map", work / f"job{job}" / "map", dirs_exist_ok=True)
    mutants = _drawn(bench, args)
    command = [sys.executable, *sys.argv]
    jobs = [subprocess.Popen([*command, "--job", str(n), "--jobs", str(args.jobs)]) for n in range(args.jobs)]
    if failed := [n for n, job in enumerate(jobs) if job.wait()]:
        raise SystemExit(f"jobs {failed} failed: the same command goes on where they stopped")
    known = _known(work, args.seed)
    return [_row(m, known) for m in mutants], found.commit


def _job(args: argparse.Namespace, work: Path) -> None:
    """Judge every `jobs`-th mutant; what was judged before, by whichever job, is left."""
    bench = Bench(work, args.job)
    found = Map.made(bench.work, bench.lay_out, _wanted(args.only), 1)
    bench.restore()
    for name in IMPORTED:
        with suppress(ImportError):
            importlib.import_module(name)
    mutants = _drawn(bench, args)
    known, reasons = _known(work, args.seed), equivalents()
    for number, m in enumerate(mutants[args.job :: args.jobs]):
        if _place(m) in known or _text(m) in reasons:
            continue
        began = time.monotonic()
        outcome = bench.judge(m, found)
        status = {"passed": "survived", "failed": "killed"}.get(outcome.status, outcome.status)
        row = {"status": status, "killer": outcome.killer, "seconds": round(time.monotonic() - began, 1)}
        with (bench.work / f"seed{args.seed}.jsonl").open("a") as handle:
            handle.write(json.dumps({"place": _place(m)} | row) + "\n")
        done = f"{args.job + number * args.jobs + 1}/{len(mutants)}"
        print(f"{done} {status} {m.module}:{m.line} {m.now}", file=sys.stderr, flush=True)


def _wanted(only: str | None) -> tuple[str, ...]:
    own = TESTS.values() if only is None else [TESTS[package_of(only)]]
    return (*MODULES, *(path for paths in own for path in paths))


MutationPlace = tuple[str, int, int, str]


def _place(mutant: Mutant) -> MutationPlace:
    """What tells a mutant from another: lines of one text may stand in a file several times."""
    return mutant.module, mutant.line, mutant.column, mutant.now


def _text(mutant: Mutant) -> tuple[str, str, str]:
    return mutant.module, mutant.was, mutant.now


def _known(work: Path, seed: int) -> dict[MutationPlace, dict[str, Any]]:
    """Return what has been found out with a seed, by any job."""
    lines = [line for log in work.glob(f"job*/seed{seed}.jsonl") for line in log.read_text().splitlines()]
    return {tuple(row["place"]): row for row in map(json.loads, lines)}


def _row(mutant: Mutant, known: dict[MutationPlace, dict[str, Any]]) -> dict[str, Any]:
    place = {key: getattr(mutant, key) for key in ("module", "line", "operator", "was", "now")}
    reason = equivalents().get(_text(mutant))
    return place | ({"status": "equivalent", "why": reason} if reason else known[_place(mutant)])


def _published(args: argparse.Namespace, rows: list[dict[str, Any]], commit: str) -> None:
    """Print the page; keep it unless told otherwise."""
    figures = {
        "tool": f"cosmic-ray {version('cosmic-ray')} (operators), coverage {version('coverage')} (which tests)",
        "commit": commit,
        "seed": args.seed,
        "packages": table(rows),
        "survived": [r for r in rows if r["status"] == "survived"],
        "equivalent": [r for r in rows if r["status"] == "equivalent"],
    }
    text = page(figures)
    print(text)
    if args.no_publish:
        return
    sys.argv[1:] = ["--work", "DIR", "--seed", str(args.seed)]  # the page is no place for one's own folders
    from facts import publish  # imports edgescope, which a fork must not have done

    shares = [r["noticed_share"] for r in figures["packages"].values() if r["noticed_share"] is not None]
    publish("mutation", figures, met=shares[-1] >= LEAST and min(shares) >= LEAST_EACH)
    (HERE.parent / "published/mutation.md").write_text(text)


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
