"""The measure that judged the outputs and its value: on a card, in a listing, in a comparison."""

import pytest

from edgescope.analysis.cells.compare import compare
from edgescope.records import Absent, Measured, Trial, Verification
from edgescope.report import compare as comparing
from edgescope.report import terminal, variants
from edgescope.report.chapter import chapter
from edgescope.report.result import document, listing
from making import result

CASES = (
    ("top1", Measured(0.912, "1", 0.889, 0.931, 400), "top-1 91.2 % [88.9, 93.1]"),
    ("map", Measured(0.4123, "1", n=120), "mAP 41.2 %"),
    ("miou", Measured(0.7, "1", n=120), "mIoU 70 %"),
    ("top1_agreement", Measured(0.94, "1", 0.91, 0.96, 400), "top-1 agreement 94 % [91, 96]"),
    ("centred_l2", Measured(0.012, "1", n=32), "Centred L2 error 0.012"),
    ("nets:dice#0123456789ab", Measured(12.5, "score", n=32), "dice 12.5"),
)


def judged(method: str, field: Measured, **keys):
    name = method if method in ("top1_agreement", "centred_l2") else "accuracy"
    other = {"accuracy": Absent("no labels"), "centred_l2": Measured(0.5, "1")}
    check = Verification(True, method, {**other, name: field}, 0.8, "as fp32")
    return result(Trial(model="null", backend="null", **keys), verification=check)


def drawn(page, wide: int = 120, **keys) -> str:
    return "\n".join("".join(text for text, _ in line) for line in terminal.lines(page, wide, **keys))


@pytest.mark.parametrize(("method", "field", "text"), CASES)
def test_the_measure_that_judged_is_shown_with_its_value(method, field, text):
    one = judged(method, field)
    assert f"judged by      {text}" in drawn(document(one), verbose=True)
    assert f"accuracy gate  passed: {text}" in drawn(document(one))
    assert text in drawn(listing([one]), 10_000, limit=None)
    assert text not in drawn(listing([one]), 80, limit=None)


def test_a_brief_list_leaves_out_the_year_and_where_there_is_little_room_what_is_no_figure():
    one = judged(*CASES[0][:2], options={"delay_us": 2000, "fail_every": 7})
    day, cell = one.started_at[5:16].replace("T", " "), one.trial.cell[:8]
    wide, narrow = (drawn(listing([one], brief=True), width, limit=None) for width in (10_000, 80))
    assert day in narrow and day in wide and one.started_at[:4] not in wide
    assert cell in wide and one.trial.label in wide and "CLEAN" in wide
    assert cell not in narrow and one.trial.label[:18] in narrow and " ok " not in narrow
    assert "p50" in narrow and max(map(len, narrow.splitlines())) <= 80


def test_nothing_is_said_of_outputs_that_nothing_judged():
    one = result(Trial(model="null", backend="null"), verification=None)
    assert "judged by" not in drawn(document(one))


def test_a_comparison_holds_the_measure_of_both_sides_beside_each_other():
    fp32, int8 = judged(*CASES[0][:2]), judged("top1", Measured(0.9, "1", n=400), precision="int8")
    found = compare([fp32], [int8])
    (row,) = (r for r in found.rows if r.metric == "top1")
    assert (row.baseline.value, row.candidate.value, row.judgement) == (0.912, 0.9, None)
    page = drawn(comparing.document(found), 80)
    assert max(map(len, page.splitlines())) <= 80
    (line,) = (line for line in page.splitlines() if line.startswith("top1"))
    assert line.split()[1:5] == ["91.2", "%", "90", "%"]


def test_sides_that_different_measures_judged_have_a_row_each():
    found = compare([judged(*CASES[3][:2])], [judged("centred_l2", Measured(0.01, "1"), precision="int8")])
    rows = {r.metric: r for r in found.rows}
    assert isinstance(rows["top1_agreement"].candidate, Absent)
    assert rows["centred_l2"].baseline.value == 0.5 and rows["centred_l2"].candidate.value == 0.01


def test_an_answer_names_the_inputs_that_cannot_be_read(monkeypatch):
    said = "2 inputs of photos cannot be read: a.png, b.png"
    monkeypatch.setattr("edgescope.report.variants.unread", lambda trial: said)
    assert said in drawn(variants.document([chapter([judged(*CASES[0][:2])])]))
