"""The built-in stages, with sources and networks made up."""

import numpy as np
import pytest

from edgescope.models.image.preprocess import Preprocess
from edgescope.video.flow import EndOfFilm
from edgescope.video.frame import Frame, Item
from edgescope.video.stages import WAYS, Decode, Infer, ReadClasses, Stub, owned, scaled_size


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
