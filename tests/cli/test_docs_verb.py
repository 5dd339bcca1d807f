"""The documentation that an installed user has: pages, codes, what is mistyped."""

import json
import re
from pathlib import Path

import jsonschema
import pytest

from edgescope.cli import docs
from edgescope.cli.main import main
from edgescope.records import codec
from making import result

ROOT = Path(__file__).parents[2]


def test_pages_are_listed_and_read(capsys):
    assert main(["docs"]) == 0
    assert re.search(r"^sweeps +\w", capsys.readouterr().out, re.M)
    assert main(["docs", "sweeps"]) == 0
    assert capsys.readouterr().out.startswith("# ")
    assert main(["docs", "--json", "docs/how-to/sweeps.md"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["sweeps"]


def test_a_code_is_looked_up(capsys):
    assert main(["docs", "e-run-2"]) == 0
    said = capsys.readouterr().out
    labels = re.findall(r"^(\w[\w ]+): ", said, re.M)
    assert said.startswith("E-RUN-2\n")
    assert labels[:5] == ["What happened", "Why", "The number", "What to do", "Said by"]
    assert "isolate.fresh" in said


@pytest.mark.parametrize(
    ("typed", "code", "near"),
    [
        ("E-RUN-999", "E-DOCS-2", "E-RUN-"),
        ("w-gat-3", "E-DOCS-2", "W-GATE-3"),
        ("RUN-2", "E-DOCS-1", "-RUN-2"),
    ],
)
def test_an_unknown_code_is_told_the_nearest(typed, code, near, capsys):
    assert main(["docs", typed]) == 2
    told = capsys.readouterr().err
    assert told.startswith(code) and near in told.partition("Try: edgescope docs ")[2]


def test_a_code_keeps_its_lines_in_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(["docs", "I-RST"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "I-RST" and lines[1].startswith("What happened: ")
    assert max(map(len, lines)) <= 60


def test_a_terminal_has_prose_in_its_width_and_code_and_tables_as_they_are():
    kept = ["| a | table of more than twenty columns |", "```", "code of more than twenty columns", "```"]
    page = "\n".join(
        ["# A page about a thing", "", "Words in a", "paragraph of some lines.", "* a bullet", *kept]
    )
    assert docs.folded(page + "\n  with a tail of words", 20).splitlines() == [
        *("# A page about a thing", "", "Words in a paragraph", "of some lines.", "* a bullet"),
        *kept,
        *("  with a tail of", "words"),
    ]
    assert docs.folded("1. one two three four", 12) == "1. one two\n   three\n   four\n"


def test_the_schema_of_results_is_printed(capsys):
    assert main(["docs", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.validate(json.loads(json.dumps(codec.to_json(result()))), schema)
    assert main(["docs"]) == 0
    assert re.search(r"^schema +The JSON schema", capsys.readouterr().out, re.M)


def test_a_mistyped_page_is_refused_with_the_closest(capsys):
    assert main(["docs", "sweps"]) == 2
    assert capsys.readouterr().err.endswith("Try: edgescope docs sweeps\n")


def test_an_installed_package_reads_its_own_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(docs, "__file__", str(tmp_path / "edgescope/cli/docs.py"))
    assert docs.folder() == tmp_path.parent / "docs"
    (tmp_path / "edgescope/docs").mkdir(parents=True)
    assert docs.folder() == tmp_path / "edgescope/docs"
    included = '[tool.hatch.build.targets.wheel.force-include]\ndocs = "edgescope/docs"\n'
    assert included in (ROOT / "pyproject.toml").read_text()


def test_every_page_that_the_source_cites_by_the_verb_is_there():
    text = "".join(path.read_text() for path in (ROOT / "src/edgescope").rglob("*.py"))
    cited = set(re.findall(r"edgescope docs ([a-z-]+)", text))
    pages = {path.stem for path in (ROOT / "docs").rglob("*.md")}
    assert "sweeps" in cited and cited - {docs.SCHEMA, docs.FLAGS} <= pages


def test_pages_are_listed_by_section(capsys):
    assert main(["docs"]) == 0
    said = capsys.readouterr().out
    order = [
        "tutorial:",
        "first-number ",
        "how-to:",
        "sweeps ",
        "reference:",
        "schema ",
        "explanation:",
        "concepts ",
    ]
    places = [said.index(f"\n{word}" if word != "tutorial:" else word) for word in order]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("metric", "section"), [("latency_p99_s", "Latency"), ("throughput_sps", "Throughput")]
)
def test_the_name_of_a_metric_leads_to_its_definition(metric, section, capsys):
    assert main(["docs", metric]) == 2
    err = capsys.readouterr().err
    assert err.endswith("Try: edgescope docs metrics\n") and f"'{section}'" in err


def test_a_word_of_a_title_finds_its_page(capsys):
    assert main(["docs", "clients"]) == 2
    assert capsys.readouterr().err.endswith("Try: edgescope docs capacity\n")
    assert main(["docs", "xyzzy"]) == 2
    assert "first-number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("E-OTP-1", "E-OPT-1"),
        ("W-STTA-3", "W-STAT-3"),
        ("quickstart", "first-number"),
        ("Getting_Started", "first-number"),
    ],
)
def test_transposed_letters_and_the_usual_names_of_a_first_page_find_it(typed, meant, capsys):
    assert main(["docs", typed]) == 2
    assert f"Try: edgescope docs {meant}" in " ".join(capsys.readouterr().err.split())


def test_the_lessons_are_those_of_the_site_in_its_order():
    named = re.findall(r"tutorial/([\w-]+)\.md", (ROOT / "mkdocs.yml").read_text())
    assert tuple(named) == docs.LESSONS


def test_no_two_pages_have_one_name():
    names = [path.stem for path in (ROOT / "docs").rglob("*.md")]
    assert len(names) == len(set(names))
