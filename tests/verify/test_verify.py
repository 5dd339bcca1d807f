import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgescope.errors import UsageError
from edgescope.models.base import Samples
from edgescope.records import Absent, Measured
from edgescope.records.trial import PRECISIONS
from edgescope.verify import judge, measures
from edgescope.verify.judge import Reference
from edgescope.verify.measure import compared
from edgescope.verify.measures import TopK


def answers(model, truth, change, precision="int8"):
    """The gate's answer for changed outputs; the labelled photographs are answered rightly."""
    got = (change(truth.gate[0]),)
    told = judge.told(judge.basis(model), truth.tally, truth)
    return judge.judge(got, truth, precision=precision, told=told)


FAULTS = {
    "constant output": lambda y: np.broadcast_to(y.mean(axis=0), y.shape).copy(),
    "first output repeated": lambda y: np.broadcast_to(y[0], y.shape).copy(),
    "permuted classes": lambda y: y[:, np.random.default_rng(0).permutation(y.shape[1])],
    "classes off by one": lambda y: np.roll(y, 1, axis=1),
    "another image's output": lambda y: np.roll(y, 1, axis=0),
    "zeros": np.zeros_like,
    "negated": lambda y: -y,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_planted_fault_in_the_trained_network_is_rejected(fault, precision, trained, trained_truth):
    answer = answers(trained, trained_truth, FAULTS[fault], precision)
    assert answer.method == "top1_agreement"
    assert not answer.passed, answer.detail


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_in_an_untrained_network_is_rejected(fault, untrained, untrained_truth):
    answer = answers(untrained, untrained_truth, FAULTS[fault], "fp32")
    assert answer.method == "centred_l2"
    assert not answer.passed, answer.detail


def test_an_error_just_above_its_limit_is_not_told_as_the_limit(untrained, untrained_truth):
    answer = answers(untrained, untrained_truth, lambda y: y + 0.103 * (y - y.mean(axis=0)), "bf16")
    assert not answer.passed and "by 0.103 (at most 0.1)" in answer.detail


def zeroed(path, position):
    """The file with the weights of one convolution set to zero."""
    model = onnx.load(str(path))
    node = [n for n in model.graph.node if n.op_type == "Conv"][position]
    tensor = next(t for t in model.graph.initializer if t.name == node.input[1])
    tensor.CopyFrom(numpy_helper.from_array(np.zeros_like(numpy_helper.to_array(tensor)), tensor.name))
    return model


@pytest.mark.slow
def test_the_mildest_of_49_zeroed_layers_of_the_trained_network_is_rejected(
    trained, trained_truth, artifacts, tmp_path, open_onnx
):
    onnx.save(zeroed(trained.onnx(artifacts), 39), tmp_path / "z.onnx")
    answer, _ = judge.verify(
        open_onnx(tmp_path / "z.onnx"), trained, trained_truth, precision="int8", batch=8
    )
    assert answer.method == "top1_agreement"
    assert not answer.passed, answer.detail


@pytest.mark.parametrize("position", range(0, 26, 5))
def test_one_zeroed_layer_of_an_untrained_network_is_rejected(
    position, untrained, untrained_truth, artifacts, tmp_path, open_onnx
):
    onnx.save(zeroed(untrained.onnx(artifacts), position), tmp_path / "z.onnx")
    answer, _ = judge.verify(
        open_onnx(tmp_path / "z.onnx"), untrained, untrained_truth, precision="int8", batch=8
    )
    assert not answer.passed, answer.detail


def test_top1_would_not_have_noticed_on_an_untrained_network(
    untrained, untrained_truth, artifacts, tmp_path, open_onnx
):
    """Why untrained networks are judged by centred outputs: without a whole layer the top class is the same."""
    onnx.save(zeroed(untrained.onnx(artifacts), 5), tmp_path / "z.onnx")
    got = judge.outputs(open_onnx(tmp_path / "z.onnx"), judge.gate_samples(untrained), 8)[0]
    assert (got.argmax(axis=1) == untrained_truth.gate[0].argmax(axis=1)).all()


@pytest.mark.parametrize("batch", [1, 4, 7])
def test_the_right_network_passes_at_any_batch(batch, untrained, untrained_truth, artifacts, open_onnx):
    run = open_onnx(untrained.onnx(artifacts))
    sizes = set()

    def watched(given):
        sizes.add(len(given["input"]))
        return run(given)

    answer, got = judge.verify(watched, untrained, untrained_truth, precision="fp32", batch=batch)
    assert answer.passed, answer.detail
    assert sizes == {batch}
    assert len(got[0]) == 32
    assert "no task accuracy" in answer.detail
    assert isinstance(answer.fields["accuracy"], Absent)


def test_the_trained_network_passes_with_its_accuracy(trained, trained_truth):
    answer = answers(trained, trained_truth, lambda y: y, "fp32")
    assert answer.passed
    assert answer.threshold == 0.95
    assert answer.fields["top1_agreement"] == Measured(1.0, "1", pytest.approx(0.9897, abs=1e-3), 1.0, 370)
    accuracy = answer.fields["reference_accuracy"]
    assert (round(accuracy.value * 20), accuracy.n) == (18, 20)
    assert accuracy.lo == pytest.approx(0.699, abs=1e-3)
    assert accuracy.hi == pytest.approx(0.972, abs=1e-3)
    assert "18/20" in answer.detail


def test_the_real_frames_are_neither_neighbours_nor_all_alike(trained_truth):
    """An engine one answer late must be seen: that needs the neighbouring frames to differ."""
    top = trained_truth.gate[0].argmax(axis=1)
    assert (top[1:] == top[:-1]).mean() < 0.5


def disagreeing(truth, share):
    def change(y):
        y = y.copy()
        wrong = np.arange(round(len(y) * share))
        y[wrong, y[wrong].argmin(axis=1)] = y.max() + 1
        return y

    return change(truth)


@pytest.mark.parametrize(
    ("precision", "gate", "share", "passes"),
    [
        ("fp32", None, 0.02, True),
        ("fp32", None, 0.05, False),
        ("int8", None, 0.12, True),
        ("int8", None, 0.20, False),
        ("bf16", None, 0.12, True),
        ("fp16", None, 0.20, False),
        ("int8", 0.9, 0.12, False),
    ],
)
def test_the_lower_bound_decides(trained, trained_truth, precision, gate, share, passes):
    got = (disagreeing(trained_truth.gate[0], share),)
    told = judge.told(judge.basis(trained), trained_truth.tally, trained_truth)
    answer = judge.judge(got, trained_truth, precision=precision, min_agreement=gate, told=told)
    assert answer.passed == passes, answer.detail


@pytest.mark.parametrize(
    ("precision", "gate"), [("int8", 0.0), ("int8", 0.5), ("int8", 0.799), ("fp32", 0.94), ("bf16", 0.75)]
)
def test_a_gate_below_the_floor_is_refused(precision, gate, trained, trained_truth):
    """Or --min-agreement 0 would let a constant output pass."""
    floor = judge.agreement_floor(precision)
    said = f"E-GATE-7: --min-agreement {gate:g} asks for less than the floor {floor} of {precision}"
    said += ".*leave --min-agreement out"
    asks = (
        lambda: judge.required_agreement(precision, gate),
        lambda: judge.verify(None, trained, trained_truth, precision=precision, min_agreement=gate),
        lambda: judge.judge(trained_truth.gate, trained_truth, precision=precision, min_agreement=gate),
    )
    for ask in asks:
        with pytest.raises(UsageError, match=said):
            ask()


def test_a_gate_at_or_above_the_floor_is_what_is_asked():
    reduced = {judge.required_agreement(name, None) for name in PRECISIONS if name != "fp32"}
    assert reduced == {0.8}  # one floor for all
    assert judge.required_agreement("int8", 0.8) == 0.8
    assert judge.required_agreement("fp32", 0.99) == 0.99


@pytest.mark.parametrize(
    ("gate", "needed", "passes"), [(None, "90%", True), (0.8, "90%", True), (0.99, "99%", False)]
)
def test_the_gate_of_an_untrained_network_is_raised_and_never_lowered(gate, needed, passes):
    truth = Reference((np.random.default_rng(0).random((40, 50)),), None, "made up")
    near = (truth.gate[0] + 0.02 * np.random.default_rng(1).standard_normal((40, 50)),)
    answer = judge.judge(near, truth, precision="int8", min_agreement=gate)
    assert f"at least {needed}" in answer.detail
    assert answer.passed == passes, answer.detail


def made_reference(n, classes=10, knows=True, labelled=20):
    """A truth, and what top-1 says of it on labelled inputs."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, labelled)
    measure = TopK(labels)
    kept = measure.tally((np.eye(classes)[labels if knows else (labels + 1) % classes],), slice(None))
    truth = Reference((rng.standard_normal((n, classes)),), kept, "made up")
    return truth, [compared(measure, kept, kept, None)]


def test_fewer_than_100_frames_are_judged_by_closeness():
    for n, method in ((99, "centred_l2"), (100, "top1_agreement")):
        truth, told = made_reference(n)
        far = (truth.gate[0] + 0.11 * np.random.default_rng(1).standard_normal(truth.gate[0].shape),)
        same, apart = (judge.judge(got, truth, precision="int8", told=told) for got in (truth.gate, far))
        assert (same.passed, same.method) == (True, method)
        assert apart.passed == (n == 100)
    assert (
        "20 labelled inputs are too few to judge by, 100 would do"
        in judge.judge(
            *(made_reference(99)[0].gate, made_reference(99)[0]), precision="int8", told=told
        ).detail
    )


def test_a_network_that_knows_nothing_is_not_judged_by_its_top_class():
    """Random weights under the name of a trained network: agreement would prove nothing."""
    truth, told = made_reference(300, knows=False, labelled=200)
    answer = judge.judge(truth.gate, truth, precision="fp32", told=told)
    assert answer.method == "centred_l2"
    assert "than chance" in answer.detail and isinstance(answer.fields["accuracy"], Absent)


def test_a_classifier_without_labels_is_judged_by_its_top_class_only_where_that_can_fail():
    rng = np.random.default_rng(0)
    varied, stuck = rng.standard_normal((120, 5)), rng.standard_normal((120, 5)) + np.eye(5)[0] * 9
    for scores, method in ((varied, "top1_agreement"), (stuck, "centred_l2")):
        truth = Reference((scores,), None, "made up")
        assert judge.judge(truth.gate, truth, precision="int8", classifier=True).method == method
    assert judge.judge((varied,), Reference((varied,), None, ""), precision="int8").method == "centred_l2"


SAMPLES = Samples({"input": np.arange(10, dtype=np.float32).reshape(10, 1)}, tuple("abcdefghij"), "")


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (
            lambda b: [np.where(b["input"] == 5, np.nan, b["input"])],
            r"NaN or infinity.*\b1 of 4 .* 4 to 7",
        ),
        (lambda b: [b["input"] + np.inf], "NaN or infinity"),
        (lambda b: [], "no output"),
        (lambda b: [b["input"].sum()], "no row per sample.*a single number"),
        (lambda b: [b["input"][:1]], "shape 1x1 .*batch 4"),
        (lambda b: [b["input"], [{0: 0.5}] * 4], "output 1 is no tensor.*a sequence of 4 dict"),
        (lambda b: [[]], "a sequence of 0 values"),
        (lambda b: [{"a": b["input"]}], "a map"),
        (lambda b: [b["input"].astype(str)], "it is text"),
        (lambda b: ["cat"], "output 0 is no tensor"),
        (lambda b: [b["input"].astype(np.complex64)], "of type complex64"),
        (lambda b: [np.zeros((4, int(b["input"][0, 0])))], "change shape"),
    ],
)
def test_unusable_outputs_fail_at_once(run, said):
    with pytest.raises(judge.WrongOutputError, match=f"{said}.*Try: "):
        judge.outputs(run, SAMPLES, 4)


@pytest.mark.parametrize("shape", [(), (3,), (1, 3), (2, 3), (0, 3)], ids=str)
def test_what_one_sample_gives_alone_is_its_row(shape):
    (got,) = judge.outputs(lambda b: [np.full(shape, b["input"][0, 0])], SAMPLES, 1)
    assert got.shape == ((10, *shape[1:]) if shape[:1] == (1,) else (10, *shape))


def test_rows_that_vary_are_not_joined():
    with pytest.raises(judge.WrongOutputError, match="E-GATE-5"):
        judge.outputs(lambda b: [np.zeros((int(b["input"][0, 0]), 3))], SAMPLES, 1)


def test_nan_fails_the_gate_and_says_so(untrained, untrained_truth):
    run = lambda batch: [np.full((len(batch["input"]), 1000), np.nan)]  # noqa: E731
    answer, got = judge.verify(run, untrained, untrained_truth, precision="fp32")
    assert not answer.passed
    assert got is None
    assert "NaN" in answer.detail


@pytest.mark.parametrize("got", [(np.zeros((10, 3)),), (np.zeros((10, 2)), np.zeros((10, 2)))])
def test_another_shape_or_number_of_outputs_fails(got):
    truth = Reference((np.random.default_rng(0).random((10, 2)),), None, "made up")
    answer = judge.judge(got, truth, precision="fp32")
    assert not answer.passed
    assert "shape" in answer.detail


def test_a_padded_last_chunk_changes_nothing():
    seen = []
    got = judge.outputs(lambda b: [seen.append(len(b["input"])) or b["input"] * 2], SAMPLES, 4)
    assert seen == [4, 4, 4]
    assert np.array_equal(got[0], SAMPLES.arrays["input"] * 2)


def test_centred_l2_on_paper():
    wanted = np.array([[100.0, 1.0], [100.0, -1.0]])
    assert measures.centred_l2((wanted,), (wanted,)) == 0.0
    assert measures.centred_l2((wanted * [[1, 0.9]],), (wanted,)) == pytest.approx(0.1)
    assert measures.centred_l2((wanted.mean(axis=0) + 0 * wanted,), (wanted,)) == pytest.approx(1.0)
    flat = np.ones((2, 2))
    assert measures.centred_l2((flat + 1e-9,), (flat,)) == float("inf")


def test_rank_agreement_on_paper():
    wanted = np.array([[1.0], [2.0], [3.0]])
    assert measures.rank_agreement((wanted * 7 - 3,), (wanted,)) == 1.0
    assert measures.rank_agreement((-wanted,), (wanted,)) == 0.0
    assert measures.rank_agreement((np.array([[1.0], [3.0], [2.0]]),), (wanted,)) == pytest.approx(2 / 3)
    rng = np.random.default_rng(0)
    assert measures.rank_agreement((rng.random((40, 50)),), (rng.random((40, 50)),)) == pytest.approx(
        0.5, abs=0.05
    )


def test_frames_of_a_film_count_for_fewer_and_the_line_says_so(trained_truth):
    """Forty answers off in two scenes are two opinions; scattered, they are forty."""
    own = trained_truth.gate[0].argmax(axis=1)
    measure = TopK(np.arange(40))
    kept = measure.tally((np.eye(1000, dtype=np.float32)[:40],), slice(None))
    told = [compared(measure, kept, kept, None)]
    clumped = trained_truth.gate[0].copy()
    clumped[np.arange(40), (own[:40] + 1) % 1000] = 1e6
    given = {"precision": "int8", "told": told}
    scenes = np.arange(len(own)) // 20
    alone, together = (judge.judge((clumped,), trained_truth, **given, groups=g) for g in (None, scenes))
    assert alone.fields["top1_agreement"].value == together.fields["top1_agreement"].value
    assert together.fields["top1_agreement"].lo < alone.fields["top1_agreement"].lo - 0.05
    assert "worth 8 independent ones" in together.detail and "independent ones" in together.detail
    assert "min 80 % for int8" in together.detail
