"""The documents are tests: every command parses, every verb and metric is documented, every example runs."""

import ast
import json
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from edgescope.analysis.run import slowdowns, summary
from edgescope.cli.main import VERBS, main, parser
from edgescope.store.results import Store
from making import result

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"```(bash|console|python)\n(.*?)```", re.DOTALL)


def commands(page: Path) -> list[list[str]]:
    """Every `edgescope ...` line of a page's code blocks, as arguments."""
    found = []
    for kind, body in BLOCK.findall(page.read_text()):
        lines = body.splitlines()
        if kind == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        if kind != "python":
            found += [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("edgescope ")]
    return found


COMMANDS = commands(ROOT / "docs/reference/commands.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_command_parses(page):
    for arguments in commands(page):
        parser().parse_args(arguments)


@pytest.mark.parametrize("line", re.findall(r"\| `(edgescope [^`]+)` \|", (ROOT / "README.md").read_text()))
def test_what_the_readme_tells_to_type_parses(line):
    parser().parse_args(shlex.split(line)[1:])


def test_every_verb_has_a_line_on_the_page_of_commands():
    assert {arguments[0] for arguments in COMMANDS} == set(VERBS)


def test_the_readme_is_read_in_a_minute():
    assert len((ROOT / "README.md").read_bytes()) <= 6000


def slow(words: str | Path) -> tuple[pytest.MarkDecorator, ...]:
    """Return the mark of an example or a command that builds int8, trains, or starts several processes."""
    return (pytest.mark.slow,) if re.search("int8|sweep|processes|/0[03-69]_", str(words)) else ()


@pytest.mark.process
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(a, id=" ".join(a), marks=slow(" ".join(a)))
        for a in COMMANDS
        if a[0] in ("doctor", "models", "backends", "bench", "sweep", "list")
    ],
)
def test_the_quick_commands_run(arguments, tmp_path, monkeypatch, capsys, trials_here):
    monkeypatch.chdir(tmp_path)
    if arguments[0] in ("bench", "sweep"):
        arguments = [*arguments, "--duration", "300ms"]  # the last one counts
    code = main(arguments)
    assert code in (0, 1), capsys.readouterr()  # 1: a busy machine made a trial unstable
    said = capsys.readouterr()
    wrong = r"\b(failed|crashed|oom|timeout|wrong_output)\b"
    if (
        "int8" in arguments
    ):  # whether int8 is right is the CPU's matter: without VNNI, ONNX Runtime's kernels saturate
        wrong = r"\b(failed|crashed|oom|timeout)\b"
    assert not re.search(wrong, said.out.partition("\nmetric")[0])
    assert "Traceback" not in said.err


EXAMPLES = ROOT / "examples"


@pytest.mark.slow
def test_the_readmes_python_runs(shorter, capsys):
    for kind, body in BLOCK.findall((ROOT / "README.md").read_text()):
        if kind == "python":
            exec(body, {"__name__": "__main__"})
            assert "Measured(value=" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_and_toml_on_the_pages_can_be_read(page):
    for kind, body in re.findall(r"^```(python|toml)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        compile(body, page.name, "exec") if kind == "python" else tomllib.loads(body)


@pytest.mark.process
def test_the_tutorials_python_runs(trials_here, capsys):
    page = (ROOT / "docs/tutorial/first-number.md").read_text()
    for kind, body in BLOCK.findall(page):
        if kind == "python":
            exec(body, {"__name__": "__main__"})
            assert re.match(r"(ok|unstable) [A-Z]+ [\d.e-]+\n", capsys.readouterr().out)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_to_files_resolve(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_metric_is_defined():
    text = (ROOT / "docs/reference/metrics.md").read_text()
    made = result()
    names = set(summary.metrics(made.queries, made.window)) | {"build_s", "load_s", "first_s"}
    names |= set(slowdowns.SUSTAINED)
    names |= {
        "peak_rss_bytes",
        "power_w",
        "energy_j",
        "energy_per_sample_j",
        "sampler_cpu_share",
        "sampler_hz",
    }
    for name in names:
        short = re.sub(r"_p\d\d_", "_pXX_", name)
        assert name in text or short in text, name


def test_examples_are_numbered_once_each_and_begin_with_the_question_they_answer():
    found = sorted(EXAMPLES.glob("*.py"))
    assert [path.name[:3] for path in found] == [f"{n:02}_" for n in range(10)]
    for path in found:
        question = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]
        assert "?" in question, f"{path.name}: {question}"


@pytest.mark.parametrize(
    "example", [pytest.param(p, id=p.stem, marks=slow(p)) for p in sorted(EXAMPLES.glob("[0-9]*.py"))]
)
@pytest.mark.slow
def test_every_example_runs(example, shorter, capfd):
    Store(Path("edgescope-results")).save(result())
    runpy.run_path(str(example), run_name="__main__")
    said = capfd.readouterr().out
    assert said and "failed" not in said, said


@pytest.mark.parametrize(
    "path", sorted(p for p in (ROOT / "published").rglob("*") if p.is_file()), ids=lambda p: p.name
)
def test_published_files_name_no_place_on_anyones_disk(path):
    assert not re.search(r"/(work|tmp|home|root|Users)/", path.read_text()), path.name


@pytest.mark.parametrize("path", sorted((ROOT / "published").glob("*.json")), ids=lambda p: p.name)
def test_every_published_figure_names_its_commit_command_machine_and_time(path):
    page = json.loads(path.read_text())
    for one in page.get("runs", {"": page}).values():
        said = {"figures", "met", "commit", "script", "command", "measured_at", "machine_id", "machine"}
        assert set(one) - {"rules"} == said
        assert re.fullmatch("[0-9a-f]{40}", one["commit"]["hash"])
        script, *command = one["script"].split()
        assert (ROOT / script).exists()
        assert all(f"def {name}(" in (ROOT / script).read_text() for name in command)
        assert isinstance(one["met"], bool)  # a target that was missed is published as well


def test_no_placeholder_is_left_in_the_readme():
    text = re.sub(r"(EDGESCOPE|PIP)_\w+|CELL_[AB]", "", (ROOT / "README.md").read_text())
    assert not re.search(r"\b[A-Z]+_[A-Z_]+\b", text)
