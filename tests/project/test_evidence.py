"""docs/evidence.md is what tests/evidence.toml and published/ say; every published run carries a claim of today."""

import json
import re
from pathlib import Path

import pytest

import evidence_page

facts = evidence_page.facts
ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "published"
CLAIMS = list(evidence_page.claims())
RUNS = {
    f"{path.stem}/{run}" if run else path.stem
    for path in PUBLISHED.glob("*.json")
    for run in json.loads(path.read_text()).get("runs", {"": {}})
}
LINK = re.compile(r"published/(\w+)\.json(?:#(\w+)\)|\))")


def test_the_page_is_what_the_claims_and_their_files_say():
    assert (ROOT / "docs/evidence.md").read_text() == evidence_page.page(), (
        "run: python tests/evidence_page.py docs/evidence.md"
    )


def test_every_published_run_carries_a_claim_and_every_claim_has_its_runs():
    assert {name for claim in CLAIMS for name in claim["of"]} == RUNS


def test_a_claim_was_judged_by_todays_rules_or_says_why_it_stands():
    now = facts.rules()
    wrong = [c["of"][0] for c in CLAIMS if bool(evidence_page.stale(c, now)) != ("older" in c)]
    assert not wrong


def test_a_page_cites_only_what_is_published():
    files = RUNS | {name.partition("/")[0] for name in RUNS}
    for page, text in evidence_page.pages().items():
        cited = {f"{file}/{run}" if run else file for file, run in LINK.findall(text)}
        named = {f"{file}/{run}" for file, run in re.findall(r"\[(\w+)\.json: (\w+)\]", text)}
        assert cited <= files and named <= RUNS, page


def test_a_published_page_or_print_is_cited():
    told = "".join([*evidence_page.pages().values(), evidence_page.page()])
    others = [path.name for path in PUBLISHED.iterdir() if path.suffix != ".json"]
    assert [name for name in others if f"published/{name})" not in told] == []


LATER = (
    *("weight", "rtx_builds", "tracing", "agent", "board_kills", "generation", "suite_cost"),
    *("generation_client", "generation_client_aiperf", "generation_memory", "generation_parity"),
)
"""Claims that none of the forty could show: what a run weighs, what a real TensorRT builds, what a tracer and an agent
cost, what kills on either side of ssh lose, what a GPU does with a language model, what a client of servers costs
(AIPerf's runs in an environment of its own), what memory a language model takes and measuring it costs, and what the
tests cost."""


def test_files_and_scripts_stay_few():
    assert len(list(PUBLISHED.iterdir())) <= 60
    assert len(list((ROOT / "benchmarks").rglob("*.py"))) <= 40 + len(LATER)


def test_a_rule_is_the_value_of_a_constant_or_a_digest_of_a_function_without_its_docstring():
    source = "A, B = 0.5, 3\nC = 1 / 3\ndef f(x):\n    'said'\n    return x\n"
    assert [facts.definition(source, name) for name in "ABC"] == ["0.5", "3", "1 / 3"]
    assert facts.definition(source, "f") == facts.definition(source.replace("said", "told"), "f")
    assert facts.definition(source, "f") != facts.definition(source.replace("return x", "return -x"), "f")
    assert facts.definition(source, "D") == "absent"


def test_a_changed_rule_is_found(monkeypatch):
    claim = next(c for c in CLAIMS if c.get("rules") == ["gate", "turns", "peers"])
    now = facts.rules()
    name = "src/edgescope/verify/judge.py:FP32_FLOOR"
    monkeypatch.setattr(facts, "rules", lambda: now | {name: "0.9"})
    assert "FP32_FLOOR was 0.95, is 0.9" in evidence_page.stale(claim)


def test_a_run_is_kept_beside_the_others_of_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "PUBLISHED", tmp_path)
    assert facts.published("pairs/aa") == {} and facts.loaded("pairs") == {}
    facts.keep("pairs/aa", {"figures": 1})
    facts.keep("pairs/kinds", {"figures": 2})
    facts.keep("pairs/aa", {"figures": 3})
    assert facts.published("pairs") == {"runs": {"aa": {"figures": 3}, "kinds": {"figures": 2}}}
    assert facts.published("pairs/aa") == facts.loaded("pairs/aa") == {"figures": 3}


def test_a_command_of_a_script_is_run_under_its_name_and_an_unknown_one_told(monkeypatch, capsys):
    def aa() -> int:
        """Tell A from A."""
        return 3

    monkeypatch.setattr("sys.argv", ["benchmarks/pairs.py", "aa", "--pairs", "4"])
    with pytest.raises(SystemExit) as ended:
        facts.chosen(aa)
    assert ended.value.code == 3
    assert facts.again()[1:] == ["benchmarks/pairs.py", "aa", "--pairs", "4"]
    monkeypatch.setattr("sys.argv", ["benchmarks/pairs.py", "none"])
    with pytest.raises(SystemExit, match=r"aa +Tell A from A"):
        facts.chosen(aa)
