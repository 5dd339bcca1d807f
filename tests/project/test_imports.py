"""The import rules of docs/explanation/architecture.md, checked on the source itself."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import edgescope
from edgescope import registry
from edgescope.registry import VERBS

ROOT = Path(edgescope.__file__).parent
CHECKING = "TYPE_CHECKING"
STANDARD = sys.stdlib_module_names
WING = re.compile(r"edgescope\.wings\.(\w+)")
WING_PLOT = re.compile(r"edgescope\.wings\.\w+\.plot")
NAMED = re.compile(r"edgescope(?:\.\w+)+(?=:\w|$)")
FAMILIES = ("devices", "models", "backends", "workloads", "telemetry", "tracing", "scenarios", "modes")
READING = ("analysis", "report", "plots", "store", "codec")
LEAVES = ("errors", "records", "stats", "registry", "clock")
#: Composes families: nothing else may import two implementations.
COMPOSERS = ("bench", "gate")
#: module -> what else it imports of a family, where a reason stands beside it.
BESIDES = {
    "edgescope.isolate.placement": ("edgescope.modes.",),
    "edgescope.runner.setup": ("edgescope.modes.",),
    "edgescope.runner.isolated": ("edgescope.modes.",),
    "edgescope.wings.doctor.noise": ("edgescope.modes.",),
    "edgescope.wings.doctor.ceilings": ("edgescope.modes.",),
    "edgescope.study.grid": ("edgescope.scenarios.stop_rule",),
    "edgescope.wings.doctor.cli": ("edgescope.modes.enter",),
    "edgescope.wings.jetson.modes": ("edgescope.modes.",),
    "edgescope.wings.remote.board": ("edgescope.modes.catalog",),
    "edgescope.wings.verify_board.verb": ("edgescope.modes.enter",),
    "edgescope.wings.verify_board.keeper": ("edgescope.modes.enter",),
    "edgescope.wings.verify_board.checks.settings": ("edgescope.modes.",),
    "edgescope.wings.training.loop": ("edgescope.backends.pytorch.",),
    "edgescope.wings.optimize.save": ("edgescope.backends.pytorch.module",),
    "edgescope.wings.optimize.plan": ("edgescope.workloads.gate",),  # judges what a board will run
    "edgescope.wings.optimize.returned": ("edgescope.workloads.gate", "edgescope.workloads.inference"),
    "edgescope.wings.capacity.question": ("edgescope.scenarios.open_loop", "edgescope.scenarios.stop_rule"),
}


class Imports(NamedTuple):
    """What one module imports."""

    anywhere: frozenset[str]
    at_import: frozenset[str]
    """Those outside functions."""
    annotated: frozenset[str]
    """Those that only annotations need."""
    named: frozenset[str]
    """Modules of edgescope whose names are whole strings, or `module:attribute`: what is imported by name."""
    caught: frozenset[str]
    """What a try statement around an import catches."""


@cache
def modules() -> dict[str, Imports]:
    """Every module by its name: read once, not while pytest collects, and no tree stays in memory."""
    paths = {
        ".".join(("edgescope", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in sorted(ROOT.rglob("*.py"))
    }
    return {name: imports(ast.parse(path.read_text()), set(paths)) for name, path in paths.items()}


def imports(tree: ast.Module, known: set[str]) -> Imports:
    anywhere, at_import, annotated, strings, caught = set(), set(), set(), set(), set()

    def visit(node: ast.AST, checking: bool, outside: bool) -> None:
        checking = checking or (isinstance(node, ast.If) and ast.unparse(node.test) == CHECKING)
        outside = outside and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        found: set[str] = set()
        if isinstance(node, ast.Import):
            found = {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            below = ((f"{node.module}.{a.name}", node.module) for a in node.names)
            found = {name if name in known else module for name, module in below}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings.add(node.value)
        elif isinstance(node, ast.Try) and any(isinstance(n, ast.Import | ast.ImportFrom) for n in node.body):
            caught.update(ast.unparse(h.type) for h in node.handlers if h.type)
        annotated.update(found if checking else ())
        if not checking:
            anywhere.update(found)
            at_import.update(found if outside else ())
        for child in ast.iter_child_nodes(node):
            visit(child, checking, outside)

    visit(tree, False, True)
    named = {m[0] for text in strings if (m := NAMED.match(text)) and m[0] in known}
    return Imports(*map(frozenset, (anywhere, at_import, annotated, named, caught)))


def part(module: str) -> str:
    """First name below edgescope."""
    return module.split(".")[1] if "." in module else ""


def wing(module: str) -> str:
    """The wing that a module lies in, or ''."""
    return found[1] if (found := WING.match(module)) else ""


@cache
def joined(name: str) -> set[str]:
    """The packages of the core whose families have members in this wing: it may build on the members there."""
    return {
        found.group.split(".")[1]
        for found in registry.FAMILIES
        if name and any(wing(member.target) == name for member in found.values())
    }


@pytest.mark.parametrize("leaf", LEAVES)
def test_1_leaves_import_the_standard_library_numpy_and_each_other(leaf):
    for name, found in modules().items():
        if part(name) == leaf:
            for target in found.anywhere:
                top = target.split(".")[0]
                assert top in STANDARD or top in ("numpy", "edgescope"), f"{name} imports {target}"
                if top == "edgescope":
                    assert part(target) in LEAVES, f"{name} imports {target}"


def test_2_a_family_imports_another_familys_base_only():
    for name, found in modules().items():
        mine = part(name)
        if mine not in FAMILIES:
            continue
        for target in found.anywhere:
            other = part(target) if target.startswith("edgescope.") else ""
            if other in FAMILIES and other != mine and (mine, other) != ("modes", "devices"):
                assert target.split(".")[2:] in (["base"], []), f"{name} imports {target}"


def test_4_only_bench_composes_implementations():
    for name, found in modules().items():
        if part(name) in (*FAMILIES, *COMPOSERS, "cli", ""):
            continue
        for target in found.anywhere:
            composed = part(target) in {"backends", "workloads", "scenarios", "modes"} - joined(wing(name))
            if (
                composed
                and not target.endswith((".base", ".stop_rule"))
                and not target.startswith(BESIDES.get(name, ()))
            ):
                pytest.fail(f"{name} imports {target}")


def test_5_the_reading_half_imports_no_family():
    for name, found in modules().items():
        if part(name) in READING:
            for target in found.anywhere:
                assert part(target) not in FAMILIES, f"{name} imports {target}"
                assert target.split(".")[0] not in ("torch", "onnx", "onnxruntime", "openvino"), (
                    f"{name}: {target}"
                )


def test_6_analysis_never_plots_and_plots_never_compute():
    for name, found in modules().items():
        targets = found.anywhere
        if part(name) == "analysis":
            assert not any(t.startswith(("plotly", "edgescope.plots")) for t in targets), name
        if part(name) == "plots" or WING_PLOT.fullmatch(name):
            assert not any(t.startswith("edgescope.stats") for t in targets), name


#: Every package from the ground up; docs/explanation/architecture.md groups them.
ORDER = (
    *(
        "errors",
        "clock",
        "cores",
        "process",
        "registry",
        "command",
        "records",
        "metrics",
        "units",
    ),
    *("onnx_operators", "stats", "cache", "options", "foreign", "store"),
    *("analysis", "plots", "report", "fit", "models", "verify", "data", "artifacts", "backends", "frames"),
    *("workloads", "scenarios", "devices", "telemetry", "modes", "tracing", "isolate", "bench"),
    *("study", "runner", "search", "verbs", "commandline", "cli", "wings"),
)
NAMING = ("edgescope", "edgescope.registry")
#: A Model still makes its own ONNX file; to go when a function of artifacts does it.
RUNS_UP = {("models", "artifacts")}


def test_7_a_package_imports_what_stands_below_it_only():
    """Imports within functions and names in strings count; the registry is where names point upwards."""
    assert {part(name) for name in modules()} - {"", "__main__"} == set(ORDER)
    for name, found in modules().items():
        mine = part(name)
        for target in (found.anywhere | found.named) if mine not in ("", "__main__", "registry") else ():
            other = part(target) if target.startswith("edgescope.") else ""
            if other and (mine, other) not in RUNS_UP:
                assert ORDER.index(other) <= ORDER.index(mine), f"{name} imports {target}"


def test_8_the_core_imports_no_wing_and_a_wing_no_other_but_by_its_verb_or_what_it_lends():
    """Annotations count, too. The registry and the package itself name wings, which may be missing."""
    public = {target.partition(":")[0] for verb in VERBS.values() for target in verb.functions}
    for name, found in modules().items():
        for target in found.anywhere | found.annotated | found.named if name not in NAMING else ():
            if wing(target) != wing(name) and wing(target):
                faces = public | {
                    f"edgescope.wings.{wing(target)}.{face}" for face in ("verb", "cli", "lends")
                }
                assert wing(name) and target in faces, f"{name} imports {target}"
        assert not wing(name) or not {t for t in found.anywhere if part(t) == "cli"}, name


def test_7_the_page_on_architecture_has_the_packages_in_this_order():
    page = (Path(__file__).parents[2] / "docs/explanation/architecture.md").read_text()
    layers = page.partition("| layer | packages |")[2].partition("\n\n")[0]
    assert re.findall(r"`(\w+)`", layers) == list(reversed(ORDER))


def test_7_there_is_no_import_cycle():
    """Within a package, too; what an import within a function closes is a cycle of packages, which ORDER forbids."""
    graph = {
        name: {t for t in found.at_import if t in modules() and t != name}
        for name, found in modules().items()
    }
    done: set[str] = set()

    def walk(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for target in graph[name]:
                walk(target, (*path, name))
            done.add(name)

    for name in graph:
        walk(name, ())


def test_the_root_holds_the_ground_and_what_fills_one_file():
    assert len(list(ROOT.glob("*.py"))) <= 14


def test_try_around_imports_only_in_the_compatibility_module():
    allowed = {"edgescope.models.image.torchvision_compat", "edgescope.registry"}
    for name, found in modules().items():
        assert name in allowed or not {"ImportError", "ModuleNotFoundError"} & found.caught, name


@pytest.mark.parametrize("package", ORDER)
def test_only_annotations_need_what_a_checker_of_types_imports(package):
    """At run time it would cost the import, or close a cycle."""
    for path in [*ROOT.glob(f"{package}.py"), *(ROOT / package).rglob("*.py")]:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.If) and isinstance(node.body[0], ast.Import | ast.ImportFrom):
                assert ast.unparse(node.test) in (CHECKING, "sys.version_info >= (3, 11)"), path


def run_in_bare_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.process
def test_help_imports_neither_numpy_nor_an_engine():
    code = f"""
import sys
from edgescope.cli.main import main
for verb in {["", *VERBS]!r}:
    try:
        main([*verb.split(), "--help"])
    except SystemExit as stop:
        assert stop.code == 0
    heavy = {{"numpy", "torch", "onnx", "onnxruntime", "openvino", "rich", "plotly", "duckdb", "psutil"}}
    assert not heavy & set(sys.modules), (verb, heavy & set(sys.modules))
"""
    assert run_in_bare_python(code).count("usage: edgescope") == 1 + len(VERBS)


@pytest.mark.process
@pytest.mark.parametrize("words", ["--version", "completion bash", "help exit-codes"])
def test_what_a_shell_starts_imports_neither_numpy_nor_an_engine(words):
    code = f"""
import contextlib, sys
from edgescope.cli.main import main
with contextlib.suppress(SystemExit):
    main({words.split()!r})
assert not {{"numpy", "torch", "onnxruntime", "openvino", "plotly", "duckdb"}} & set(sys.modules)
"""
    assert run_in_bare_python(code)


@pytest.mark.process
def test_importing_edgescope_imports_nothing_heavy():
    run_in_bare_python("import sys, edgescope; assert not {'numpy', 'torch', 'rich'} & set(sys.modules)")


@pytest.mark.process
def test_a_process_that_measures_imports_no_report_and_no_account_of_a_trace():
    """It starts for every trial, and for each side of every pair."""
    run_in_bare_python("""
import sys, edgescope.bench.worker
loaded = {name for name in sys.modules if name.startswith("edgescope.")}
seldom = ("edgescope.report.", "edgescope.data.", "edgescope.analysis.cells.", "edgescope.analysis.kernels.")
assert not (found := {name for name in loaded if f"{name}.".startswith(seldom)}), found
""")


@pytest.mark.slow
def test_a_command_that_waits_for_a_trial_has_loaded_nothing_heavy(tmp_path):
    """Its memory is the trial's on a small board: NumPy and the rest come once the trial has ended."""
    run_in_bare_python(f"""
import os, sys
from edgescope.isolate import fresh

def begun(program, folder, launch):
    heavy = {{"numpy", "duckdb", "psutil", "torch", "onnx", "onnxruntime", "plotly", "edgescope.bench.drivers"}}
    os._exit(len(heavy & set(sys.modules)) + 10 * ("prepare" in program))

fresh.GuardedProcess, fresh.prepare = begun, lambda trial, limits: None
from edgescope.cli.main import main
main(["bench", "null", "--backend", "null", "--store", {str(tmp_path)!r}])
sys.exit("no trial was begun")
""")


@pytest.mark.process
def test_naming_what_runs_a_trial_imports_no_numpy():
    run_in_bare_python("""
import sys, edgescope
edgescope.run
assert not (found := {"numpy", "psutil", "edgescope.bench"} & set(sys.modules)), found
""")


@pytest.mark.process
def test_a_process_that_measures_an_onnx_file_loads_neither_onnx_nor_a_database():
    pytest.importorskip("onnxruntime")
    run_in_bare_python("""
import sys
from edgescope import bench
from edgescope.bench import child
import edgescope.backends.ort.backend, edgescope.store.handed_rows, edgescope.workloads.inference
alone = {"edgescope.bench.alternation", "edgescope.bench.workers", "edgescope.modes.privileged"}
assert not (found := ({"onnx", "duckdb", "psutil", "PIL"} | alone) & set(sys.modules)), found
""")


def test_public_names_exist_and_are_sorted():
    assert edgescope.__all__ == sorted(edgescope.__all__)
    for name in edgescope.__all__:
        assert getattr(edgescope, name) is not None


@pytest.mark.process
def test_the_reading_half_works_without_any_engine(tmp_path):
    """A laptop without torch opens a board's results, compares and reports them."""
    code = f"""
import sys
for name in ("torch", "torchvision", "timm", "onnx", "onnxruntime", "openvino", "av", "PIL"):
    sys.modules[name] = None
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from pathlib import Path
from making import result
from edgescope.records import Trial
from edgescope.store.results import Store
from edgescope.cli.main import main
store = Store(Path({str(tmp_path / "store")!r}))
for replicate in range(3):
    for precision in ("fp32", "int8"):
        store.save(result(Trial(model="null", backend="null", precision=precision, replicate=replicate)))
cells = sorted({{r.trial.cell for r in store.results()}})
flags = ["--store", str(store.root)]
assert main(["list", *flags]) == 0
assert main(["compare", *cells, *flags]) == 0
assert main(["report", *flags, "-o", {str(tmp_path / "r.html")!r}]) == 0
"""
    run_in_bare_python(code)
    assert (tmp_path / "r.html").stat().st_size > 10_000


def test_no_two_files_of_tests_outside_packages_have_one_name():
    """Pytest imports each by its bare name: the second of two is an error, and then nothing runs."""
    found = [
        p for p in Path(__file__).parents[1].rglob("test_*.py") if not (p.parent / "__init__.py").exists()
    ]
    assert sorted({p.name for p in found}) == sorted(p.name for p in found)
