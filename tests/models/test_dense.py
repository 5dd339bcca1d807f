"""The segmenter and the detector: what leaves them, in which precision it can be trusted, what runs them."""

import copy

import numpy as np
import onnx
import pytest
import torch
from torch import fx

from edgescope import cache
from edgescope.models import zoo
from edgescope.models.base import Purpose, Samples
from edgescope.models.image import detectors as _detector
from edgescope.models.image import torch_networks
from edgescope.models.synthetic import samples
from edgescope.verify import judge, measures, reference

DETECTOR, SEGMENTER = "yolov8n_class", "fcn_resnet50"


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Two threads that wait for each other make a busy machine several times as slow."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def detector():
    return zoo.get(DETECTOR).module()


@pytest.fixture(scope="module")
def segmenter():
    return zoo.get(SEGMENTER).module()


@pytest.fixture(scope="module")
def detector_file(artifacts):
    return zoo.get(DETECTOR).onnx(artifacts)


def noise(name, n):
    return samples(zoo.get(name).inputs, Purpose.GATE, n)


def answers(module, given):
    def run(batch):
        with torch.inference_mode():
            return [module(torch.from_numpy(batch["input"])).numpy()]

    return judge.outputs(run, given, 1)


def kept_in(dtype, module):
    """Kept in 16 bits and summed in fp32, as kernels do; a CPU without such kernels takes minutes for the real ones."""
    half = copy.deepcopy(module).to(dtype).float()
    for part in half.modules():
        if not list(part.children()):
            part.register_forward_hook(lambda part, given, found: found.to(dtype).float())
    return half


def of_onnx_runtime(path, open_onnx, given):
    return judge.outputs(open_onnx(path), given, 2)


def of_openvino(path, open_onnx, given):
    import openvino

    model = openvino.Core().read_model(str(path))
    request = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    return judge.outputs(lambda batch: [request.infer({0: batch["input"]})[0].copy()], given, 2)


@pytest.fixture(scope="module")
def truth(detector):
    return judge.Reference(answers(detector, noise(DETECTOR, 2)), None, "torch_eager fp32")


def test_the_detector_has_the_published_size_and_shape():
    entry = zoo.table()[DETECTOR]
    assert entry["params"] == pytest.approx(3.15e6, rel=0.02)
    assert 2 * entry["macs"] == pytest.approx(8.7e9, rel=0.02)
    points, strides = _detector.points_of_strides()
    assert points.shape == (2, 8400) and [int((strides == s).sum()) for s in (8, 16, 32)] == [6400, 1600, 400]


def test_boxes_are_decoded_as_on_paper(detector):
    """All weight on distance 3, 1, 2 and 0: a box of 5 by 1 strides whose middle lies off its point."""
    logits = torch.full((1, 4, 16, 8400), -1e4)
    for side, distance in enumerate((3, 1, 2, 0)):
        logits[:, side, distance] = 0
    boxes = detector.decoded(logits.flatten(1, 2))[0]
    first, last = boxes[:, 1].tolist(), boxes[:, -1].tolist()  # the second point of stride 8; the last of 32
    assert first == [8 * (1.5 - 0.5), 8 * (0.5 - 0.5), 8 * 5, 8 * 1]
    assert last == [32 * (19.5 - 0.5), 32 * (19.5 - 0.5), 32 * 5, 32 * 1]


@pytest.mark.slow
def test_boxes_and_scores_are_sane_and_depend_on_the_input(truth):
    boxes, scores = truth.gate[0][:, :4], truth.gate[0][:, 4:]
    assert boxes.shape == (2, 4, 8400) and scores.shape == (2, 80, 8400)
    assert (boxes[:, 2:] > 0).all() and (boxes[:, 2:] <= 30 * 32).all()
    assert (boxes[:, :2] > -240).all() and (boxes[:, :2] < 640 + 240).all()
    assert 0.002 < np.median(scores) < 0.05 and 0.1 < scores.max() <= 1
    assert np.abs(boxes - boxes.mean(axis=0)).mean() > 5  # pixels, between inputs


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_16_bits_keep_boxes_and_scores(dtype, detector, truth):
    given = noise(DETECTOR, 2)
    (got,), (wanted,) = answers(kept_in(dtype, detector), given), truth.gate
    bound = {torch.float16: 0.03, torch.bfloat16: judge.L2_CEILING}[dtype]
    for rows in (slice(0, 4), slice(4, None)):
        assert measures.centred_l2((got[:, rows],), (wanted[:, rows],)) < bound


@pytest.mark.slow
@pytest.mark.parametrize("of", [of_onnx_runtime, of_openvino])
def test_one_file_passes_the_gate_in_both_engines(of, detector_file, open_onnx, truth):
    answer = judge.judge(of(detector_file, open_onnx, noise(DETECTOR, 2)), truth, precision="fp32")
    assert answer.passed and answer.fields["centred_l2"].value < 1e-3, answer.detail
    assert "no task accuracy" in answer.detail
    assert cache.notes(detector_file)["parity"]["batches"] == [1, 4]


FAULTS = {
    "another image's output": lambda y: np.roll(y, 1, axis=0),
    "width and height swapped": lambda y: y[:, [0, 1, 3, 2, *range(4, 84)]],
    "classes off by one": lambda y: np.concatenate([y[:, :4], np.roll(y[:, 4:], 1, axis=1)], axis=1),
    "points in another order": lambda y: np.roll(y, 1, axis=2),
    "no scores": lambda y: np.concatenate([y[:, :4], np.zeros_like(y[:, 4:])], axis=1),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.slow
def test_a_planted_fault_in_the_detector_is_rejected(fault, truth):
    answer = judge.judge((FAULTS[fault](truth.gate[0]),), truth, precision="fp32")
    assert not answer.passed, answer.detail


@pytest.mark.slow
def test_a_zeroed_layer_of_the_detector_is_rejected(detector_file, open_onnx, tmp_path, truth):
    model = onnx.load(str(detector_file))
    node = [n for n in model.graph.node if n.op_type == "Conv"][30]
    tensor = next(t for t in model.graph.initializer if t.name == node.input[1])
    tensor.CopyFrom(onnx.numpy_helper.from_array(0 * onnx.numpy_helper.to_array(tensor), tensor.name))
    onnx.save(model, tmp_path / "z.onnx")
    got = of_onnx_runtime(tmp_path / "z.onnx", open_onnx, noise(DETECTOR, 2))
    assert not judge.judge(got, truth, precision="fp32").passed


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", [DETECTOR, SEGMENTER])
def test_forward_makes_no_tensor_of_its_own(name, dtype, detector, segmenter):
    """One made on the host would raise among tensors of a device; a CUDA graph could not be captured over it."""
    module = copy.deepcopy({DETECTOR: detector, SEGMENTER: segmenter}[name]).to("meta", dtype)
    given = torch.empty(2, *zoo.table()[name]["input"], device="meta", dtype=dtype)
    assert module(given).device.type == "meta"
    assert fx.symbolic_trace(module)(given).shape == module(given).shape  # nor branches on what it is given


@pytest.mark.slow
def test_the_segmenter_names_every_pixel_and_its_start_can_be_judged(segmenter):
    given = noise(SEGMENTER, 2)
    (wanted,) = answers(segmenter, given)
    assert wanted.shape == (2, 21, 224, 224)
    (got,) = answers(kept_in(torch.bfloat16, segmenter), given)
    assert 0 < measures.centred_l2((got,), (wanted,)) < judge.L2_CEILING
    assert measures.centred_l2((np.roll(wanted, 1, axis=1),), (wanted,)) > 1


@pytest.mark.slow
def test_a_segmenters_own_file_of_weights_fits(segmenter, tmp_path):
    extra = {f"{torch_networks.AUXILIARY}4.weight": torch.zeros(21, 256, 1, 1)}
    torch.save(segmenter.state_dict() | extra, tmp_path / "w.pth")
    model = zoo.get(f"{SEGMENTER}@{tmp_path / 'w.pth'}")
    assert model.info.trained and model.info.task == "segment"
    assert model.samples(Purpose.LABELLED, 4) is None  # photographs' labels say nothing of pixels
    same = model.module().state_dict()
    assert all(torch.equal(same[key], value) for key, value in segmenter.state_dict().items())


@pytest.mark.slow
def test_large_outputs_are_judged_on_fewer_inputs():
    assert len(judge.gate_samples(zoo.get(DETECTOR))) == 8
    assert len(judge.gate_samples(zoo.get("resnet50"))) == 32
    given = Samples({"input": np.arange(32, dtype=np.float32)}, tuple("a" * 32), "made by hand")
    asked = []

    def run(shape):
        def answer(batch):
            asked.append(len(batch["input"]))
            return [
                np.broadcast_to(
                    batch["input"].reshape(-1, *(1 for _ in shape)), (len(batch["input"]), *shape)
                )
            ]

        return answer

    assert len(judge.outputs(run((21, 224, 224)), given, 3)[0]) == 8 and asked == [3, 3, 3]
    assert len(judge.outputs(run((84, 8400)), given, 4)[0]) == 11
    assert len(judge.outputs(run((10, 10, 10)), given, 4)[0]) == 32
    assert len(judge.outputs(run((1_000_000,)), given, 32)[0]) == 32  # one value a class


@pytest.mark.slow
def test_a_replicate_keeps_and_asks_for_few_large_outputs(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path))
    model, asked = zoo.get(SEGMENTER), []

    def run(batch):
        asked.append(len(batch["input"]))
        return [np.repeat(batch["input"], 7, axis=1)]

    truth = reference.reference(model, lambda: run)  # 8, and 4 of them again: fp32 must be deterministic
    for _ in range(2):
        answer = reference.verified(run, model, truth, precision="fp32", facts={})
        assert answer.passed
    assert "2 outputs checked again, unchanged" in answer.detail and asked == [1] * (8 + 4 + 8 + 2)


def test_some_samples_keep_what_is_right_for_them():
    n = 4
    boxes = tuple(np.full((1, 5), row, dtype=np.float32) for row in range(n))
    arrays = {"input": np.arange(n, dtype=np.float32)}
    given = Samples(arrays, tuple("abcd"), "made by hand", np.arange(n), boxes, np.arange(n) // 2)
    found = given.where(slice(1, 3))
    assert len(found) == 2 and found.digests == ("b", "c") and found.arrays["input"].tolist() == [1.0, 2.0]
    assert found.labels.tolist() == [1, 2] and found.groups.tolist() == [0, 1]
    assert [each[0, 0] for each in found.boxes] == [1.0, 2.0] and given.first(2).digests == ("a", "b")


@pytest.mark.slow
def test_noise_images_are_few_where_they_are_dear():
    names = (DETECTOR, SEGMENTER, "resnet50")
    assert [len(zoo.get(n).samples(Purpose.CALIBRATION, 64)) for n in names] == [16, 16, 64]
