"""Several boards in one store: the page that sets them beside each other, and the claims that need more than one."""

import csv
import io
import json
from dataclasses import replace

import pytest

from board_machines import described, ran, saved
from edgescope.analysis.cells.machines import each
from edgescope.cli.main import main
from edgescope.errors import Message, UsageError
from edgescope.records import Absent, Machine, Measured, Status, Trial
from edgescope.report import data, html, terminal
from edgescope.store.results import Store
from edgescope.store.several import Stores
from edgescope.wings.studies import beside, boards, sweep
from edgescope.wings.studies.anomaly_detection import study as anomaly
from edgescope.wings.studies.boards import Board
from edgescope.wings.studies.claim import Answer
from edgescope.wings.studies.paper import papers

pytestmark = pytest.mark.process

PAPER = papers()["anomaly"]
FPS = {
    "torch_eager": 10.0,
    "torch_compile": 14.0,
    "onnxruntime": 20.0,
    "torch_tensorrt": 30.0,
    "tensorrt": 40.0,
}
BOARDS = {"orin_nano": (1.2, 9.0), "agx_xavier": (1.0, 20.0), "nano": (1 / 30, 6.0)}
"""Board -> its speed over the AGX Xavier's, and its watts."""


@pytest.fixture(scope="module")
def machines():
    return {name: described(name) for name in (*BOARDS, "xavier_nx")}


def chain(machine, speed, watts, **more):
    """The study's chain in every engine on one board."""
    return [
        ran(machine, trial, FPS[trial.backend] * speed, watts, unified_memory_bytes=2.5e9, **more)
        for trial in anomaly.planned(PAPER, device="cuda", part="engines")
    ]


def told(machines, worlds=BOARDS, prices=None, scopes=None):
    groups = [
        chain(machines[name], speed, watts, scope=(scopes or {}).get(name, "module"))
        for name, (speed, watts) in worlds.items()
    ]
    return beside.beside(PAPER, groups, prices or {}, device="cuda")


def printed(found):
    lines = terminal.lines(beside.document(found), 80, limit=None)
    return "\n".join("".join(text for text, _ in line) for line in lines)


def answers(found):
    return {each.claim.key: each.found for each in found.together}


def test_each_board_stands_in_its_fastest_engine_beside_what_the_study_printed(machines):
    found = told(machines, prices={"Orin Nano": 250.0, "jetson_nano": 99.0})
    assert [board.name for board in found.boards] == ["Orin Nano", "AGX Xavier", "Nano"]
    (work,) = found.works
    orin, xavier, nano = (entry for _, entry in found.of(work))
    assert orin.how == xavier.how == nano.how == "tensorrt fp16"
    assert orin[boards.RATE].value == pytest.approx(48, rel=0.01)
    assert orin[boards.MEMORY].value == 2.5e9  # not the 1e9 that the process alone held
    assert orin.scope == "module"
    page = data.csv_file(beside.document(found))
    rows = {row["board"]: row for row in csv.DictReader(io.StringIO(page))}
    assert set(rows) == {"Orin Nano", "AGX Xavier", "Nano"} and float(rows["Orin Nano"]["price"]) == 250
    shown = printed(found)
    assert "Orin Nano (study)" in shown and "47.6" in shown and "Orin Nano: most frames/s" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_claims_about_boards_are_judged_by_what_both_measured(machines):
    found = answers(told(machines))
    assert {key: f.answer for key, f in found.items()} == {
        "orin_over_xavier": Answer.UNSURE,  # 1.2 is within a few per cent of 1.15
        "orin_energy": Answer.HOLDS,
        "nano_slow": Answer.HOLDS,
    }
    assert "1.20x" in found["orin_over_xavier"].evidence[0]
    faster = answers(told(machines, {**BOARDS, "orin_nano": (1.4, 19.0)}))
    assert faster["orin_over_xavier"].answer is Answer.HOLDS
    assert faster["orin_energy"].answer is Answer.FAILS  # 0.68 of it
    slower = answers(told(machines, {**BOARDS, "orin_nano": (1.0, 9.0), "nano": (1.0, 6.0)}))
    assert slower["orin_over_xavier"].answer is slower["nano_slow"].answer is Answer.FAILS


def test_joules_of_meters_that_cover_different_things_decide_nothing(machines):
    found = told(machines, scopes={"agx_xavier": "rails"})
    energy = answers(found)["orin_energy"]
    assert energy.answer is Answer.UNKNOWN and "cover different things: module against rails" in energy.found
    shown = printed(found)
    assert "least energy" not in shown


def test_a_claim_whose_board_is_missing_names_it_and_the_command(machines):
    found = answers(told(machines, {name: BOARDS[name] for name in ("orin_nano", "nano")}))
    lacking = found["orin_over_xavier"]
    assert lacking.answer is Answer.UNKNOWN
    assert "a AGX Xavier" not in lacking.found and "AGX Xavier" in lacking.found
    assert "edgescope study anomaly --run --device cuda --on ssh://BOARD1 --on ssh://BOARD2" in lacking.found


def test_one_board_answers_what_it_can_alone(machines):
    mine = chain(machines["nano"], *BOARDS["nano"])
    found = {each.claim.key: each.found for each in anomaly.content(PAPER, mine, device="cuda").claims}
    assert found["nano_slow"].answer is Answer.HOLDS
    assert (
        found["orin_over_xavier"].answer is Answer.UNKNOWN and "here: Nano" in found["orin_over_xavier"].found
    )


def test_a_board_is_called_as_papers_call_it(machines):
    named = {name: Board(machine) for name, machine in machines.items()}
    assert [b.name for b in named.values()] == ["Orin Nano", "AGX Xavier", "Nano", "Xavier NX"]
    assert named["nano"].is_a("Jetson Nano") and not named["orin_nano"].is_a("Nano")
    assert not named["nano"].is_a("Orin Nano") and named["xavier_nx"].is_a("xavier_nx")
    card = Board(Machine({"nvidia": {"gpus": [{"name": "NVIDIA A40"}]}}, {}))
    assert card.is_a("A40") and not card.is_a("A4")
    played = Machine(machines["nano"].stable, {**machines["nano"].state, "replayed": {"board": "nano"}})
    assert not Board(played).is_a("Nano")  # its times are of the machine that replays it
    over_ssh = Machine(machines["nano"].stable, {"agent": {"address": "ssh://user@nano"}})
    assert Board(over_ssh).named("ssh://user@nano") and Board(over_ssh).named(over_ssh.id[:6])


def test_two_boards_of_one_kind_have_their_ids_in_their_names(machines):
    twin = replace(machines["nano"], stable={**machines["nano"].stable, "more": "another"})
    found = beside.beside(
        PAPER, [chain(m, *BOARDS["nano"]) for m in (machines["nano"], twin)], {}, device="cuda"
    )
    assert {board.name for board in found.boards} == {f"Nano {m.id[:4]}" for m in (machines["nano"], twin)}


def test_the_page_holds_each_boards_own_page_and_every_figure_once(machines):
    page = beside.document(told(machines))
    text = html.render(page)
    assert text.count("its own page") == 3 and "boards-throughput_sps" in text
    plain = json.loads(data.json_text(page))
    assert [each["board"] for each in plain["boards"]] == ["Orin Nano", "AGX Xavier", "Nano"]
    assert plain["boards"][0]["page"]["cells"] and plain["claims"][0]["key"] == "orin_over_xavier"


def test_a_price_must_name_a_board_and_be_one(machines):
    with pytest.raises(UsageError, match="E-PAPER-5"):
        told(machines, prices={"Thor": 3499.0})
    with pytest.raises(UsageError, match="E-CMP-2"):
        told(machines, prices={"Nano": -1.0})


def test_ratios_of_what_was_not_measured_are_absent(machines):
    found = told(machines)
    a, b = (entry for _, entry in list(found.of(found.works[0]))[:2])
    bare = replace(b, figures={})
    assert isinstance(boards.over(a, b, boards.RATE), Measured)
    assert isinstance(boards.over(a, bare, boards.RATE), Absent)


@pytest.mark.slow
def test_the_command_shows_the_boards_of_several_stores_and_refuses_no_mixture(machines, tmp_path, capsys):
    stores = [Store(tmp_path / name) for name in ("orin_nano", "nano")]
    for name, store in zip(("orin_nano", "nano"), stores, strict=True):
        saved(store, chain(machines[name], *BOARDS[name]))
    words = ["study", "anomaly", "--device", "cuda", "--store", str(stores[0].root)]
    words += ["--other-store", str(stores[1].root)]
    assert main([*words, "--price", "Orin Nano=249", "--json"]) == 0
    page = json.loads(capsys.readouterr().out)
    assert [(each["board"], each["price"]) for each in page["boards"]] == [
        ("Orin Nano", 249.0),
        ("Nano", None),
    ]
    assert main([*words, "--machine", machines["nano"].id[:8], "--json"]) == 0
    assert "boards" not in json.loads(capsys.readouterr().out)


def test_stores_count_a_result_that_two_hold_once(machines, tmp_path):
    results = chain(machines["nano"], *BOARDS["nano"])
    for name, some in (("a", results[:3]), ("b", results[2:])):
        saved(Store(tmp_path / name), some)
    both = Stores(tmp_path / "a", [tmp_path / "b"])
    found = list(both.results())
    assert sorted(r.id for r in found) == sorted(r.id for r in results)
    assert len(both.fulls(found)) == len(results) and not both.problems


def test_a_sweeps_cells_meet_at_their_best_and_at_one_process(machines):
    paper = papers()["concurrent"]
    cells = [t for t in sweep.planned(paper, device="cuda") if t.batch < 4 and t.processes < 4]
    assert {t.backend for t in cells} == {"trtexec"} and {t.precision for t in cells} >= {
        "int8",
        "fp16",
        "fp32",
    }
    worlds = [
        [
            ran(
                machines[name],
                t,
                speed * 100 * t.batch * (2.0 if t.precision == best else 1.0),
                10.0,
                **took(t),
            )
            for t in cells
        ]
        for name, speed, best in (("orin_nano", 10.0, "int8"), ("nano", 1.0, "fp16"))
    ]
    found = beside.beside(paper, worlds, {}, device="cuda")
    assert len(found.works) == 2 * 3
    sides = dict((b.name, e) for b, e in found.of("resnet50, best"))
    assert sides["Orin Nano"].how.startswith("int8 batch 2") and sides["Nano"].how.startswith("fp16 batch 2")
    assert sides["Nano"][boards.MEMORY].value == pytest.approx(1e9)
    answers = [{c.claim.key: c.found.answer for c in told.content.claims} for told in found.every]
    assert [each["best_precision"] for each in answers] == [Answer.HOLDS, Answer.FAILS]
    text = printed(found)
    assert "most samples/s: Orin Nano in 6 of 6" in text and max(map(len, text.splitlines())) <= 80


def took(trial):
    """The shared memory that P processes took; each alone saw less of it."""
    return {"unified_memory_bytes": 1e9 * trial.processes, "processes_pss_bytes": 2e8 * trial.processes}


def test_boards_on_which_nothing_ran_say_why(machines):
    why = Message("E-TORCH-9", "torch is too old")
    lost = [
        [replace(r, status=Status.UNSUPPORTED, reason=why) for r in chain(machines[name], 1.0, 5.0)]
        for name in ("nano", "orin_nano")
    ]
    found = beside.beside(PAPER, lost, {}, device="cuda")
    assert [len(told.failures) for told in found.every] == [1, 1]  # one reason, which every cell shares
    text = printed(found)
    assert "Nothing measured" in text and "E-TORCH-9: torch is too old." in text and " more: " in text


def test_a_recording_is_no_board_whose_times_stand_beside_anothers():
    board, other = Machine({"cpu": {"model": "a"}}, {}), Machine({"cpu": {"model": "b"}}, {})
    played = Machine({"recording": "abc"}, {"replayed": {"board": "Jetson Nano", "made": "constructed"}})
    trial = Trial(model="null", backend="null")
    results = [ran(where, trial, 10.0) for where in (board, played, other)]
    assert [[r.machine.id for r in group] for group in each(results)] == [[board.id], [other.id]]
    assert each([results[1]]) == [[results[1]]]
