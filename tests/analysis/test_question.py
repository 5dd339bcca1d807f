"""Which trials answer one question, and how the question reads."""

import pytest

from edgescope.analysis.cells.row import in_words, of_harness, question_id
from edgescope.records import Trial

ASKED = {"model": "m", "backend": "onnxruntime"}


@pytest.mark.parametrize(
    ("differs", "same"),
    [
        ({"backend": "openvino"}, True),
        ({"precision": "int8"}, True),
        ({"options": {"threads": 2}}, True),
        ({"sharing": "mps"}, True),
        ({"mode": "fast"}, True),
        ({"replicate": 3}, True),
        ({"shapes": {"x": (4, 3)}}, False),
        ({"batch": 2}, False),
        ({"processes": 2}, False),
        ({"in_flight": 2}, False),
        ({"scenario": "fixed_rate", "rate": 5.0}, False),
        ({"workload": "training"}, False),
        ({"colocated": "lenet5"}, False),
        ({"io": "pinned"}, False),
        ({"data": "photos"}, False),
        ({"preprocess": "mean=0"}, False),
    ],
    ids=str,
)
def test_engines_answer_one_question_loads_another(differs, same):
    one, other = (question_id(Trial(**ASKED | more)) for more in ({}, differs))
    assert (one == other) is same


def test_batches_are_a_choice_where_all_samples_are_there_at_once_and_in_shapes():
    offline = [
        question_id(Trial(**ASKED, scenario="offline", batch=b, processes=p)) for b, p in ((1, 1), (8, 2))
    ]
    assert offline[0] == offline[1]
    tall = [question_id(Trial(**ASKED, shapes={"x": (b, 3)})) for b in (1, 4)]
    assert tall[0] == tall[1]
    data = [{"data": "a"}, {"preprocess": "a"}, {"data": "a", "preprocess": "b"}]
    assert len({question_id(Trial(**ASKED, **more)) for more in data}) == 3


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "single_stream"),
        ({"batch": 4, "processes": 2}, "single_stream, batch 4, 2 processes"),
        ({"in_flight": 3}, "single_stream, 3 in flight"),
        ({"batch": 4, "processes": 2, "scenario": "offline"}, "offline"),
        ({"workload": "training", "colocated": "lenet5"}, "training, single_stream, beside lenet5"),
        ({"io": "device", "data": "photos#0123"}, "single_stream, io device, data photos"),
        ({"shapes": {"x": (1, 3, 8), "y": (1, 2)}}, "single_stream, x 3x8, y 2"),
    ],
)
def test_a_question_in_words_names_what_is_unusual(more, words):
    assert in_words(Trial(**ASKED | more)) == words


@pytest.mark.parametrize(("more", "own"), [({}, False), *(({k: "null"}, True) for k in ("backend", "model"))])
def test_the_harness_itself_is_no_answer(more, own):
    assert of_harness(Trial(**ASKED | more)) is own
