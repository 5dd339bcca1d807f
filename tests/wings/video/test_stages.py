"""The built-in stages, with sources and networks made up."""

import numpy as np
import pytest

from edgescope.frames import Frame, Item
from edgescope.models.base import Detections
from edgescope.models.image.preprocess import Preprocess
from edgescope.wings.video import stages
from edgescope.wings.video.flow import EndOfFilm
from edgescope.wings.video.stages import (
    WAYS,
    ClassifyCrops,
    Decode,
    Infer,
    ReadBoxes,
    ReadClasses,
    Stub,
    owned,
    scaled_size,
)


class Film:
    live = False

    def __init__(self, count):
        self.frames = [Frame(np.zeros((4, 6, 3), dtype=np.uint8), k) for k in range(count)]

    def read(self):
        return self.frames.pop(0) if self.frames else None


class Many(Film):
    def read_many(self, n):
        taken, self.frames = self.frames[:n], self.frames[n:]
        return taken


@pytest.mark.parametrize("kind", [Film, Many])
def test_sources_take_turns_and_each_unit_is_of_one(kind):
    decode = Decode([kind(3), kind(3)], 2)
    units = [Item(number) for number in range(4)]
    for unit in units:
        decode(unit)
    assert [[(f.camera, f.index) for f in unit.frames] for unit in units] == [
        [(0, 0), (0, 1)],
        [(1, 0), (1, 1)],
        [(0, 2)],
        [(1, 2)],
    ]
    with pytest.raises(EndOfFilm):
        decode(Item(4))


def test_outputs_that_the_engine_writes_again_are_copied_as_far_as_they_are_read():
    memory = [np.zeros((1, 2)), np.zeros((1, 3)), np.zeros((1, 400))]

    def answer(batch):
        memory[0][:] = batch["x"].sum()
        return memory

    infer = Infer([("x", answer)], None, owned, reads=2)
    first, second = Item(0, inputs=[np.ones(3)]), Item(1, inputs=[np.ones(5)])
    infer(first)
    infer(second)
    assert first.outputs[0][0].tolist() == [[3, 3]] and second.outputs[0][0].tolist() == [[5, 5]]
    assert len(first.outputs[0]) == 2
    kept = Item(2, inputs=[np.ones(3)])
    Infer([("x", answer)], None, None)(kept)
    assert kept.outputs[0][0] is memory[0] and len(kept.outputs[0]) == 3


@pytest.mark.parametrize("way", WAYS)
def test_all_ways_read_the_same_classes(way):
    scores = np.array([[0.1, 0.9, 0.0], [0.7, 0.2, 0.1], [0, 0, 1]], dtype=np.float32)
    unit = Item(0, [Frame(np.zeros((4, 6, 3), dtype=np.uint8), k) for k in range(2)], outputs=[[scores]])
    ReadClasses(way)(unit)
    assert unit.classes == [(1,), (0,)]  # the third row fills the batch and is no frame
    assert unit.found[0].boxes.tolist() == [[0, 0, 6, 4]] and unit.found[1].classes.tolist() == [0]


def test_a_stub_gives_back_what_the_stage_made_in_turn():
    made = [Item(k, outputs=[[k]], notes={"k": k}) for k in range(2)]
    stub, units = Stub(made), [Item(number) for number in range(3)]
    for unit in units:
        stub(unit)
    assert [unit.outputs for unit in units] == [[[0]], [[1]], [[0]]]
    assert [unit.query_id for unit in units] == [0, 1, 2]


def test_a_source_may_scale_only_if_all_networks_want_the_same():
    stretch = Preprocess((24, 40), resize="stretch")
    assert scaled_size([stretch], (400, 300)) == (40, 24)
    assert scaled_size([stretch, Preprocess(24)], (400, 300)) is None
    assert scaled_size([stretch, lambda image: image], (400, 300)) is None


def test_a_call_with_fewer_rows_than_the_network_takes_is_filled_with_its_last_row():
    torch = pytest.importorskip("torch")
    seen = []
    infer = Infer([("x", lambda batch: [seen.append(batch["x"]) or batch["x"]])], None, None, batch=4)
    for rows in (np.arange(3.0)[:, None], torch.arange(3.0)[:, None]):
        infer(Item(0, inputs=[rows]))
        assert seen.pop().tolist() == [[0.0], [1.0], [2.0], [2.0]]


def test_a_turn_of_several_frames_is_counted_and_its_units_are_of_the_query_not_the_call():
    decode = Decode([Film(5), Film(5), Film(5)], 2)
    unit = Item(5)
    decode(unit)
    assert {frame.camera for frame in unit.frames} == {2} and decode.frames == 2
    decode(Item(6))
    assert decode.frames == 4 and [len(source.frames) for source in decode.sources] == [3, 5, 3]


def test_host_arrays_are_brought_to_where_the_session_takes_them_and_all_networks_run():
    torch = pytest.importorskip("torch")
    staged = []

    def stage(batch):
        staged.append(list(batch))
        return {name: torch.as_tensor(array) + 1 for name, array in batch.items()}

    sessions = [("x", lambda batch: [batch["x"] * 2]), ("y", lambda batch: [batch["y"] * 3])]
    unit = Item(0, inputs=[np.ones((2, 1)), torch.ones((2, 1))], outputs=["old"])
    Infer(sessions, stage, None, batch=2)(unit)
    assert staged == [["x"]], "what lies on the device stays"
    assert [outputs[0].tolist() for outputs in unit.outputs] == [[[4], [4]], [[3], [3]]]


def test_copies_of_outputs_are_copies_wherever_they_lie():
    torch = pytest.importorskip("torch")
    array, tensor = np.zeros(2), torch.zeros(2)
    mine = owned([array, tensor])
    array += 1
    tensor += 1
    assert [kept.tolist() for kept in mine] == [[0, 0], [0, 0]]


def test_more_rows_than_a_batch_stay_as_they_are():
    rows = np.arange(6.0)[:, None]
    for batch in (0, 5, 6):
        unit = Item(0, inputs=[rows])
        Infer([("x", lambda given: [given["x"]])], None, None, batch=batch)(unit)
        assert unit.outputs[0][0] is rows


@pytest.mark.parametrize("way", WAYS)
def test_boxes_are_read_from_the_first_network_in_one_of_the_ways(way):
    class Decoder:
        def __getattr__(self, name):
            return lambda outputs, fits: [(name, outputs, fits)]

    torch = pytest.importorskip("torch")
    unit = Item(0, fits=["fit"], outputs=[[torch.ones(2)], ["another"]])
    ReadBoxes(Decoder(), way)(unit)
    ((name, outputs, fits),) = unit.found
    assert (name, fits) == ("elements" if way == "copied" else way, ["fit"])
    assert isinstance(outputs[0], np.ndarray) is (way == "copied")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tensor", [False, True])
def test_classes_of_several_networks_are_told_side_by_side(way, tensor):
    """Scores may have more than one axis; of equal ones the first counts; rows that fill a batch are no frames."""
    first = np.array([[[0.1], [0.5], [0.5]], [[0.9], [0.2], [0.1]], [[0], [0], [1]]], dtype=np.float32)
    second = np.array([[1, 0], [0, 1], [0, 1]], dtype=np.float32)
    scores = [first, second]
    if tensor:
        torch = pytest.importorskip("torch")
        scores = [torch.as_tensor(each) for each in scores]
        if way == "elements":
            scores = [Sized(each) for each in scores]
    unit = Item(
        0, [Frame(np.zeros((4, 6, 3), np.uint8), k) for k in range(2)], outputs=[[each, 9] for each in scores]
    )
    ReadClasses(way)(unit)
    assert unit.classes == [(1, 0), (0, 1)]
    assert [found.classes.tolist() for found in unit.found] == [[1], [0]]
    assert [found.scores.tolist() for found in unit.found] == [[1.0], [1.0]]


class Sized:
    """A tensor whose elements are read where they lie, with a size as an array has it."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __getitem__(self, k):
        return self.tensor[k].numpy()


def test_each_box_is_classified_by_what_it_shows_in_full_batches():
    """The classifier says the brightest pixel of a crop; five boxes of three frames, two a call, the last filled."""
    image = np.arange(48, dtype=np.uint8).reshape(6, 8)[..., None].repeat(3, axis=2)
    boxes = [
        [(0, 0, 3, 2), (2.5, 1.2, 4.1, 2.1)],  # to column 5 and row 3: what is touched is shown
        [],
        [(-4, -5, 1, 1), (6, 4, 99, 99), (9, 9, 12, 12)],  # one that lies outside: the last pixel
    ]
    frames = [Frame(image, k) for k in range(3)]
    found = [
        Detections(
            np.array(b, np.float32).reshape(-1, 4), np.ones(len(b), np.float32), np.zeros(len(b), np.int64)
        )
        for b in boxes
    ]
    crops, calls = [], []

    def preprocess(picture):
        crops.append((picture.size, np.asarray(picture)[0, 0, 0], np.asarray(picture).max()))
        return np.float32(np.asarray(picture).max())

    def answer(batch):
        calls.append(batch["crop"].tolist())
        scores = np.zeros((len(batch["crop"]), 1, 64), np.float32)
        scores[np.arange(len(scores)), 0, batch["crop"].astype(int)] = 1
        return [scores]

    unit = Item(0, frames, found=found)
    ClassifyCrops("crop", answer, preprocess, 2)(unit)
    assert crops == [((3, 2), 0, 10), ((3, 2), 10, 20), ((1, 1), 0, 0), ((2, 2), 38, 47), ((1, 1), 47, 47)]
    assert calls == [[10, 20], [0, 47], [47, 47]]
    assert unit.notes["crops"] == [[10, 20], [], [0, 47, 47]]


def test_a_stub_gives_everything_that_a_unit_has():
    frames = [Frame(np.zeros((4, 6, 3), np.uint8), 0)]
    made = Item(4, frames, [1], [2], [[3]], [4], [(5,)], {"six": 6})
    stub, unit = Stub([made]), Item(9)
    stub(unit)
    assert (unit.query_id, unit.frames, unit.inputs, unit.fits) == (9, frames, [1], [2])
    assert (unit.outputs, unit.found, unit.classes, unit.notes) == ([[3]], [4], [(5,)], {"six": 6})


def test_a_size_that_all_networks_share_is_the_one_before_cutting():
    crop = Preprocess((24, 40))
    assert scaled_size([crop, Preprocess((24, 40), mean=(0.0,) * 3)], (400, 300)) == (45, 34)
    assert scaled_size([], (400, 300)) is None


@pytest.mark.parametrize(("way", "copies"), [("device", 0), ("host", 1), ("copied", 1)])
def test_scores_that_lie_on_a_device_are_copied_as_the_way_says(monkeypatch, way, copies):
    torch = pytest.importorskip("torch")
    copied, real = [], stages.on_host
    monkeypatch.setattr(stages, "on_host", lambda outputs: copied.append(1) or real(outputs))
    unit = Item(0, [Frame(np.zeros((4, 6, 3), np.uint8), 0)], outputs=[[torch.tensor([[1.0, 3.0]])]])
    ReadClasses(way)(unit)
    assert unit.classes == [(1,)] and len(copied) == copies


def test_what_does_not_belong_together_is_refused():
    """A network without its input, a frame without its boxes, a network that gives fewer rows than there are frames."""
    frames = [Frame(np.zeros((4, 6, 3), np.uint8), k) for k in range(2)]
    nothing = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))
    sessions = [("x", lambda batch: [batch["x"]])] * 2
    rows = [[np.zeros((2, 3))], [np.zeros((1, 3))]]
    for stage, unit in (
        (Infer(sessions, None, None), Item(0, inputs=[np.zeros((1, 1))])),
        (ClassifyCrops("x", print, print, 1), Item(0, frames, found=[nothing])),
        (ReadClasses("host"), Item(0, frames, outputs=rows)),
    ):
        with pytest.raises(ValueError, match=r".+"):
            stage(unit)
