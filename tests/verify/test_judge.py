"""Who is judged by what, and where the limits lie: made references, no engine."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.errors import UsageError
from edgescope.models.base import Purpose, Samples, TensorSpec
from edgescope.records import Absent, Measured, ModelInfo
from edgescope.verify import judge
from edgescope.verify.judge import Reference
from edgescope.verify.measure import Compared
from edgescope.verify.measures import TopK

RNG = np.random.default_rng(3)
SCORES = RNG.standard_normal((120, 5))
TRUTH = Reference((SCORES,), None, "torch_eager fp32")


def share(value, n=200, lo=None, hi=None):
    return Measured(value, "1", lo, hi, n)


def compared(lost, lo, *, theirs=0.9, n=200, name="top1", chance=0.1):
    """What a measure of the given name says: so much lost of fp32's, surely not more than `lo`."""
    measure = SimpleNamespace(name=name, title="top-1", chance=chance, others=(), share=True)
    return Compared(measure, share(theirs - lost, n), share(theirs, n), share(-lost, n, lo, 0.0))


def judged(got=(SCORES,), truth=TRUTH, **keys):
    return judge.judge(got, truth, **({"precision": "int8"} | keys))


@pytest.mark.parametrize(
    ("most", "values", "rows"),
    [
        (32, 1, 32),
        (32, 2**18, 32),
        (32, 2**18 + 1, 31),
        (32, 2**20, 8),
        (32, 2**23, 8),
        (5, 2**23, 5),
        (32, 0, 32),
    ],
)
def test_so_many_inputs_as_hold_eight_million_values_but_eight(most, values, rows):
    assert judge.fitting(most, values) == rows


class Asked:
    """A model that notes how many inputs it is asked for."""

    def __init__(self, task="classify", trained=True, shape=(3, 8, 8), given=None):
        self.info = ModelInfo("asked", task, trained, "a test", digest="a", params=0, macs=0)
        self.inputs = (TensorSpec("x", shape, "float32"), TensorSpec("y", (1,), "float32"))
        self.given, self.asked = given, []

    def samples(self, purpose, n):
        self.asked.append((purpose, n))
        return self.given


class Detector(Asked):
    decoder = None


ROWS = Samples({"x": np.zeros((2, 1))}, ("a", "b"), "made up")


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Asked(given=ROWS), 400),
        (Asked(trained=False, given=ROWS), 32),
        (Asked("detect", given=ROWS), 32),
        (Detector("detect", given=ROWS), 400),
        (Detector("detect", trained=False, given=ROWS), 32),
        (Asked("segment", shape=(2**19,), given=ROWS), 15),
    ],
    ids=["classifier", "untrained", "raw heads", "boxes", "untrained boxes", "large inputs"],
)
def test_a_trained_network_is_asked_for_400_inputs_others_for_32(model, inputs):
    assert judge.gate_samples(model) is ROWS and model.asked == [(Purpose.GATE, inputs)]


@pytest.mark.parametrize("given", [None, Samples({}, (), "")])
def test_nobody_is_judged_without_inputs(given):
    with pytest.raises(judge.WrongOutputError) as raised:
        judge.gate_samples(Asked(given=given))
    assert raised.value.code == "E-GATE-1"


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        (np.ones(2), True),
        (np.ones(2, bool), True),
        (np.ones(2, np.uint8), True),
        (1.5, True),
        (np.ones(2, complex), False),
        (np.array(["a"]), False),
        ([1.0], False),
        ((1.0,), False),
        ({"a": 1.0}, False),
        ("1", False),
        (b"1", False),
    ],
)
def test_which_outputs_are_tensors_of_numbers(value, is_one):
    assert judge.numeric(value) is is_one


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([{}, {}], "a sequence of 2 dict"),
        ((), "a sequence of 0 values"),
        ({}, "a map"),
        (np.array(["a"]), "text"),
        (np.array([None]), "text"),
        (np.array([b"a"]), "text"),
        (np.ones(1, complex), "of type complex128"),
    ],
)
def test_what_else_an_output_is(value, kind):
    assert judge._kind(value) == kind


def rows(n):
    return Samples({"x": np.arange(float(n))[:, None]}, tuple(map(str, range(n))), "made up")


@pytest.mark.parametrize(
    ("shape", "kept"), [((2**19,), 40), ((2**9, 2**10), 16), ((2**10, 2**10), 8), ((2, 3), 40)]
)
def test_of_a_value_per_pixel_only_so_many_inputs_are_kept(shape, kept):
    """One value per class is kept of every input."""
    outputs, chunks = judge._Outputs(40), 1
    while outputs.add([Thin((4, *shape))]):
        chunks += 1
    assert (outputs._n, chunks) == (kept, -(-kept // 4))


class Thin:
    """An array's shape, without its values."""

    def __init__(self, shape):
        self.shape, self.ndim = shape, len(shape)

    def __getitem__(self, rows):
        return Thin((len(range(self.shape[0])[rows]), *self.shape[1:]))

    def copy(self):
        return self

    def __len__(self):
        return self.shape[0]


def test_a_chunk_is_cut_to_what_is_still_needed():
    outputs = judge._Outputs(6)
    assert outputs.add([np.arange(4.0)[:, None]]) is True and outputs.add([np.arange(4.0)[:, None]]) is False
    assert outputs.add([np.full((4, 1), 9.0)]) is False
    assert outputs.whole[0][:, 0].tolist() == [0, 1, 2, 3, 0, 1]


def test_what_is_not_finite_or_has_no_rows_says_where():
    for batch, start, array, code, evidence in (
        (2, 4, np.array([[1.0, np.nan], [np.inf, 2.0]]), "E-GATE-4", "2 of 4 values, inputs 4 to 5"),
        (2, 0, np.zeros((3, 7)), "E-GATE-3", "shape 3x7 for batch 2"),
        (1, 0, np.zeros(()), "E-GATE-3", "shape a single number for batch 1"),
    ):
        with pytest.raises(judge.WrongOutputError) as raised:
            judge._check([np.zeros((batch, 1)), array], batch, start)
        error = raised.value
        assert (error.code, error.evidence) == (code, evidence) and error.what.startswith("output 1 ")
    judge._check([np.zeros((2, 0))], 2, 0)


@pytest.mark.parametrize(
    ("lost", "lo", "passes", "said"),
    [
        (0.009, -0.045, True, ""),  # one per cent of 0.9, and five times that
        (0.0091, -0.04, False, ""),
        (0.009, -0.0451, True, "close to"),
        (0.0, None, True, "close to"),
        (-0.01, -0.01, True, ""),
    ],
)
def test_a_measure_may_lose_a_hundredth_and_its_interval_reach_five(lost, lo, passes, said):
    answer = judged(told=[compared(lost, lo)])
    assert (answer.passed, answer.method, answer.threshold) == (passes, "top1", 0.99)
    assert ("the outputs are" in answer.detail) is bool(said) and "on 200 labelled inputs" in answer.detail


@pytest.mark.parametrize(("noise", "passes"), [(0.09, True), (0.11, False)])
def test_what_labels_leave_open_closeness_decides(noise, passes):
    far = SCORES + noise * (SCORES - SCORES.mean(axis=0))
    answer = judged((far,), told=[compared(0.0, -0.2)])
    assert answer.passed is passes and ("not close" in answer.detail) is not passes


@pytest.mark.parametrize(
    ("given", "keys", "method"),
    [
        (compared(0, -0.01), {}, "top1"),
        (compared(0, -0.01, n=100), {}, "top1"),
        (
            compared(0, -0.01, n=99),
            {},
            "top1_agreement",
        ),  # the top class means something, and 120 inputs are enough
        (compared(0, -0.01), {"min_agreement": 0.9}, "top1_agreement"),
        (compared(0, -0.01, theirs=0.1), {}, "centred_l2"),  # no better than chance
        (compared(0, -0.01, theirs=0.101), {}, "top1"),
        (compared(0, -0.01, name="miou", n=99), {}, "centred_l2"),
        (compared(0, -0.01, name="miou"), {}, "miou"),
    ],
)
def test_which_method_judges_what_is_labelled(given, keys, method):
    answer = judged(told=[given], **keys)
    assert answer.method == method and answer.passed
    figures = answer.fields
    if given.telling:
        assert figures["accuracy"] == given.ours and figures["reference_accuracy"] == given.theirs
        assert (
            figures["accuracy_difference"] == given.difference and figures[given.measure.name] == given.ours
        )
    assert (figures["centred_l2"].n, figures["rank_agreement"].n) == (120, 120)


@pytest.mark.parametrize(
    ("scores", "varied"),
    [
        (np.eye(2)[[0, 0, 0, 1]], True),
        (np.eye(2)[[0, 0, 0, 0, 1]], False),
        (np.ones((4, 1)), False),
        (np.ones((4, 2, 2)), False),
    ],
    ids=["three of four", "four of five", "one class", "maps"],
)
def test_fp32_tells_inputs_apart_where_no_class_has_more_than_three_of_four(scores, varied):
    assert judge._varied(scores) is varied


def test_a_classifier_needs_100_inputs_and_says_so():
    few = judged((SCORES[:99],), Reference((SCORES[:99],), None, ""), classifier=True)
    assert few.method == "centred_l2" and "99 inputs are too few to judge by top class" in few.detail
    assert few.fields["top1_agreement"] == Absent("99 inputs are too few to judge by top class")
    enough = judged((SCORES[:100],), Reference((SCORES[:100],), None, ""), classifier=True)
    assert enough.method == "top1_agreement" and enough.threshold == 0.8


def test_the_top_class_agrees_with_its_interval():
    got = SCORES.copy()
    got[:6] = -got[:6]
    answer = judged((got,), classifier=True)
    agreement = answer.fields["top1_agreement"]
    assert (agreement.value, agreement.n) == (114 / 120, 120)
    assert answer.detail.startswith("top-1 agreement 95.0 % (114/120, 95 % CI 89.5-97.7; min 80 % for int8)")
    assert answer.passed and not judged((got,), classifier=True, precision="fp32").passed
    assert answer.reference == "torch_eager fp32"


@pytest.mark.parametrize(
    ("boxes", "method", "passes", "said"),
    [
        (share(0.9, 100, 0.80, 0.97), "box_agreement", True, "95 % CI 80.0-97.0; min 80 % for int8"),
        (share(0.9, 100, 0.7999, 0.97), "box_agreement", False, ""),
        (share(0.9, 100), "box_agreement", False, "no interval"),
        (share(0.9, 99, 0.8, 0.97), "centred_l2", True, ""),
        (Absent("no box"), "centred_l2", True, ""),
    ],
)
def test_boxes_judge_by_the_lower_end_of_100_images(boxes, method, passes, said):
    answer = judged(told=boxes)
    assert (answer.method, answer.passed) == (method, passes) and said in answer.detail
    assert answer.fields["box_agreement"] == boxes and isinstance(answer.fields["accuracy"], Absent)


@pytest.mark.parametrize(("scale", "passes"), [(0.0999, True), (0.1001, False)])
def test_closeness_is_a_tenth_of_what_inputs_change(scale, passes):
    answer = judged((SCORES + scale * (SCORES - SCORES.mean(axis=0)),))
    assert (answer.passed, answer.method, answer.threshold) == (passes, "centred_l2", 0.1)
    assert answer.fields["rank_agreement"].value == 1.0 and "on 120 inputs" in answer.detail


def test_order_must_hold_in_nine_of_ten_pairs():
    wanted = np.array([[-100.0], [0.0], [0.1], [0.2], [100.0]])
    for order, passes in (([0, 2, 1, 3, 4], True), ([0, 2, 3, 1, 4], False)):
        answer = judged((wanted[order],), Reference((wanted,), None, ""))
        assert answer.passed is passes, answer.fields


def test_labels_that_tell_nothing_are_a_doubt_where_they_are_enough():
    for given, doubt in (
        (
            compared(0, -0.01, theirs=0.1, name="miou"),
            "top-1 of fp32 is 10.0 % on 200 labelled inputs, chance is 10.0 %",
        ),
        (compared(0, -0.01, theirs=0.1, n=99, name="miou"), ""),
        (compared(0, -0.01, n=99, name="miou"), ""),
    ):
        answer = judged(told=[given])
        assert answer.method == "centred_l2" and (answer.doubt or "") == doubt
        assert isinstance(answer.fields["accuracy"], Absent) is not given.telling
    assert not judged().doubt


@pytest.mark.parametrize("fault", ["shape", "nan"])
def test_what_cannot_be_compared_fails_by_the_floor_of_its_precision(fault):
    got, truth = (
        ((SCORES[:, :4],), TRUTH)
        if fault == "shape"
        else ((SCORES,), Reference((SCORES * math.nan,), None, ""))
    )
    for precision, floor in (("fp32", 0.95), ("int8", 0.8)):
        answer = judged(got, truth, precision=precision)
        assert (answer.passed, answer.method, answer.threshold, dict(answer.fields)) == (
            False,
            "none",
            floor,
            {},
        )


@pytest.mark.parametrize(("written", "said"), [("int8", "quantised"), ("fp16", "fp16")])
def test_a_file_without_fp32_is_compared_with_itself_and_says_so(written, said):
    truth = Reference((SCORES,), None, "onnxruntime int8", written)
    text = judge._of_itself(judged(truth=truth), truth).detail
    assert "differ from the file's own in onnxruntime by" in text and f"the file is {said} already" in text
    assert judge._of_itself(answer := judged(), TRUTH) is answer


def test_only_labels_that_tell_something_give_a_top_class_its_meaning():
    labels = np.arange(120) % 5
    kept = TopK(labels).tally((np.eye(5)[labels],), slice(None))
    of = judge.Basis(rows(120), None, TopK(labels), "", False)
    assert [each.measure.name for each in judge.told(of, kept, Reference((), kept, ""))] == ["top1"]
    for tally, truth in ((None, kept), (kept, None)):
        assert judge.told(of, tally, Reference((), truth, "")) == "nothing tells the right answers"
    assert judge.told(of, "why", Reference((), kept, "")) == "why"


def test_a_stricter_agreement_raises_the_order_that_is_asked():
    for asked, needed in ((None, "90%"), (0.85, "90%"), (0.97, "97%")):
        assert f"(at least {needed})" in judged(min_agreement=asked).detail
    with pytest.raises(UsageError, match="E-GATE-7"):
        judged(min_agreement=math.nan)


def test_agreement_tells_labelled_inputs_that_are_too_few_to_judge():
    answer = judged(told=[compared(0.05, -0.1, n=40)])
    assert answer.method == "top1_agreement" and answer.detail.endswith(
        "labelled inputs: 34/40 right, fp32 36/40"
    )
    assert "labelled" not in judged(classifier=True).detail
