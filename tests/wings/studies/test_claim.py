"""From what each series says to one word, and which cells are in a row with which."""

from types import SimpleNamespace

import pytest

from crowds import crowd, gpu_trials
from edgescope.analysis.cells.concurrency import cells, over_batches, over_precisions, over_processes
from edgescope.records import Trial, Trust, Verdict
from edgescope.report import terminal
from edgescope.wings.studies.claim import (
    LOOKS,
    Answer,
    Answered,
    Found,
    Voice,
    brief,
    heard,
    per_cent,
    section,
    untrusted,
)
from edgescope.wings.studies.paper import papers


def cell(n, sharing="time_slicing", processes=1, verdict=Trust.CLEAN):
    trial = Trial(model="m", device="cuda", processes=processes, sharing=sharing, replicate=n)
    return SimpleNamespace(trial=trial, verdict=Verdict(verdict))


def voice(holds, value=None, n=0, **keys):
    return Voice(holds, f"voice {n} {holds}", (cell(n, **keys),), value)


@pytest.mark.parametrize(
    ("for_", "against", "unsure", "answer"),
    [
        (1, 0, 0, Answer.HOLDS),
        (2, 0, 1, Answer.HOLDS),
        (1, 0, 1, Answer.UNSURE),  # most must be surely for it
        (0, 0, 2, Answer.UNSURE),
        (9, 1, 0, Answer.FAILS),  # one surely against it is enough
        (0, 1, 9, Answer.FAILS),
    ],
)
def test_one_word_from_many_voices(for_, against, unsure, answer):
    sides = [True] * for_ + [False] * against + [None] * unsure
    found = heard([voice(s, n=k) for k, s in enumerate(sides)], "series", "nothing")
    assert (found.answer, found.cells) == (answer, len(sides))
    assert found.found.startswith(f"{for_} of {len(sides)} series agree")
    assert (f"{against} do not" in found.found) is (against > 0)
    assert (f"{unsure} unsure" in found.found) is (unsure > 0)
    assert [("False" in e, "None" in e) for e in found.evidence] == sorted(
        [("False" in e, "None" in e) for e in found.evidence], key=lambda each: (not each[0], each[1])
    )


def test_without_voices_it_is_unknown_and_says_what_is_missing():
    found = heard([], "series", "needs two batch sizes")
    assert (found.answer, found.found, found.cells) == (Answer.UNKNOWN, "needs two batch sizes", 0)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.5], "; ratio: 1.50x"),
        ([1.0, 2.0, 12.34], "; ratio: 1.00x to 12.3x, median 2.00x"),
        ([9.999, 123.4], "; ratio: 10.00x to 123x, median 66.70x"),
        ([1.501, 1.502], "; ratio: 1.50x"),
        ([None], ""),
    ],
)
def test_the_span_of_what_they_say(values, text):
    found = heard([voice(True, v, n) for n, v in enumerate(values)], "series", "", "ratio")
    assert found.found == f"{len(values)} of {len(values)} series agree{text}"


def test_where_they_disagree_the_ways_of_sharing_are_told_apart():
    mixed = [
        voice(True, n=0, sharing="mps", processes=2),
        voice(True, n=1, sharing="mps", processes=2),
        voice(False, n=2, processes=2),
        voice(True, n=3, processes=2),
        voice(True, n=4),
    ]
    text = heard(mixed, "series", "").found
    assert text.startswith(
        "4 of 5 series agree (MPS 2 of 2, time slicing 1 of 2, one process 1 of 1), 1 do not"
    )
    assert "(" not in heard(mixed[2:4], "series", "").found


def test_disturbed_cells_are_counted_once_and_not_of_what_is_read_off():
    bad = [
        cell(1, verdict=Trust.DISTURBED),
        cell(1, verdict=Trust.DISTURBED),
        cell(2, verdict=Trust.THROTTLED),
    ]
    assert untrusted([*bad, cell(3), cell(4, verdict=Trust.UNKNOWN)]) == (
        "; 2 of 4 cells were disturbed or throttled"
    )
    assert untrusted([cell(3)]) == ""
    loud = Voice(True, "x", tuple(bad))
    assert "disturbed" in heard([loud], "series", "").found
    assert "disturbed" not in heard([loud], "series", "", read_off=True).found


def test_reasons_are_cut_only_where_they_are_long():
    assert brief("E-X: short (evidence). Try: this") == "E-X: short (evidence)"
    assert brief("w" * 90) == "w" * 90
    assert brief(f"E-X: what happened ({'w' * 80})") == "E-X: what happened"
    assert brief(f"E-X: {'w' * 95} (evidence)") == "E-X"
    assert (per_cent(0.1234), per_cent(0.1234, 1)) == ("12 %", "12.3 %")


WORLD = cells([crowd(t) for t in gpu_trials(models=("resnet50",), batches=(1, 4), processes=(1, 2, 4))])


def shape(found):
    return sorted(
        tuple((c.trial.precision, c.trial.batch, c.trial.processes, c.trial.sharing) for c in s.cells)
        for s in found
    )


def test_series_over_processes_begin_with_one_whatever_the_sharing():
    found = over_processes(WORLD)
    assert len(found) == 2 * 2 * 2  # precisions, batches, sharings
    for series in found:
        assert [c.trial.processes for c in series.cells] == [1, 2, 4] and series.axis == "processes"
        assert len({(c.trial.precision, c.trial.batch) for c in series.cells}) == 1
        assert len({c.trial.sharing for c in series.cells[1:]}) == 1
    assert shape(over_processes(list(WORLD)[::-1])) == shape(found)
    alone = [c for c in WORLD if c.trial.processes == 1]
    assert over_processes(alone) == []
    crowded = [c for c in WORLD if c.trial.processes > 1]
    assert {tuple(c.trial.processes for c in s.cells) for s in over_processes(crowded)} == {(2, 4)}


def test_series_over_batches_and_precisions_hold_all_else_equal():
    batches, precisions = over_batches(WORLD), over_precisions(WORLD)
    assert len(batches) == 2 * 5 and all([c.trial.batch for c in s.cells] == [1, 4] for s in batches)
    assert len(precisions) == 2 * 5
    assert all([c.trial.precision for c in s.cells] == ["fp16", "fp32"] for s in precisions)
    for series in (*batches, *precisions):
        assert len({(c.trial.processes, c.trial.sharing) for c in series.cells}) == 1
    few = [c for c in WORLD if c.trial.batch == 1 and c.trial.precision == "fp16"]
    assert over_batches(few) == [] == over_precisions(few)


def test_a_series_is_called_by_what_its_cells_have_in_common():
    words = {s.words for s in over_processes(WORLD)}
    assert "resnet50 fp16 batch 1, MPS" in words and "resnet50 fp32 batch 4, time slicing" in words
    assert "resnet50 fp16, P = 1" in {s.words for s in over_batches(WORLD)}
    assert "resnet50 batch 4, P = 2, MPS" in {s.words for s in over_precisions(WORLD)}


@pytest.mark.parametrize("name", [name for name, paper in papers().items() if paper.claims])
def test_no_answer_to_a_claim_is_cut_at_80_columns(name, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    paper = papers()[name]
    found = [Found(answer, "", agree="100 of 128") for answer in Answer]
    told = [Answered(claim, found[n % len(found)]) for n, claim in enumerate(paper.claims)]
    terminal.printed([section(paper, told)], verbose=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for n, (_, words) in enumerate(LOOKS.values()):
        assert any(words in line for line in lines) or n >= len(paper.claims)
