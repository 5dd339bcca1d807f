"""A watched minibatch: its items joined, the time of each stage once, and its CPU time when it is looked at."""

import time
from types import SimpleNamespace

import pytest
from torch.utils.data import default_collate

from edgescope.wings.training import loading
from edgescope.wings.training.epochs import STAGES
from edgescope.wings.training.loading import Watched, stage

NAP_S = 0.005


class Naps:
    """Items that nap within a stage and outside of it; the third is broken."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        if index == 2:
            raise ValueError("a broken file")
        with stage("read"):
            time.sleep(NAP_S)
        time.sleep(NAP_S)
        return index


def spent(loaded):
    return dict(zip(STAGES, (ns * 1e-9 for ns in loaded.stages), strict=True))


def test_a_minibatch_is_joined_and_its_stages_add_up_to_its_time():
    def collate(rows):
        time.sleep(NAP_S)
        with stage("decode"):
            time.sleep(NAP_S)
        return default_collate(rows)

    found = Watched(Naps(), collate).__getitems__([0, 1])
    assert found.data.tolist() == [0, 1] and found.worker == 0 and not found.skipped
    took = spent(found)
    assert sum(took.values()) == pytest.approx((found.end_ns - found.start_ns) * 1e-9)
    assert took["augment"] == 0 and took["read"] >= 2 * NAP_S and took["item"] >= 2 * NAP_S
    assert min(took["decode"], took["collate"]) >= NAP_S


def test_a_minibatch_forgets_the_one_before():
    watched = Watched(Naps(), default_collate)
    both, one = (spent(watched.__getitems__(each)) for each in ([0, 1, 0, 1], [0]))
    assert one["read"] < both["read"] + NAP_S  # with what went before it would be the sum


def test_an_item_that_cannot_be_loaded_is_left_out_and_named_or_ends_the_run():
    found = Watched(Naps(), default_collate, skip=True).__getitems__([0, 2])
    assert found.data.tolist() == [0] and list(found.skipped) == ["item 2: ValueError: a broken file"]
    assert Watched(Naps(), default_collate, skip=True).__getitems__([2]).data is None
    with pytest.raises(ValueError, match="a broken file"):
        Watched(Naps(), default_collate).__getitems__([2])


def test_a_data_set_that_gives_several_items_at_once_is_asked_so():
    class Several(Naps):
        def __getitems__(self, indices):
            return [10 + index for index in indices]

    assert Watched(Several(), default_collate).__getitems__([0, 2]).data.tolist() == [10, 12]


def test_cpu_time_is_looked_at_now_and_then(monkeypatch):
    clock = iter(range(0, 10**9, 1_000_000))  # a millisecond from one look at the time to the next
    monkeypatch.setattr(loading, "monotonic_ns", lambda: next(clock))
    watched = Watched(range(9), default_collate)
    looked = [watched.__getitems__([0]).cpu_ns >= 0 for _ in range(100)]  # of 3 ms each
    assert looked[0] and 300 / 75 <= sum(looked) <= 300 / 25


class Together:
    """Items that are loaded together, with one mark for all; with `broken`, the one at 3 cannot be loaded."""

    def __init__(self, broken, clock):
        self.broken, self.clock = broken, clock

    def __getitem__(self, index):
        if self.broken and index == 3:
            raise ValueError("a broken item")
        return index

    def __getitems__(self, indices):
        with stage("augment"):
            self.clock.now += 10
            return [self[index] for index in indices]


@pytest.mark.parametrize("broken", [False, True])
def test_items_that_are_loaded_together_keep_their_mark_where_some_may_be_left_out(broken, monkeypatch):
    clock = SimpleNamespace(now=0)
    monkeypatch.setattr(loading, "monotonic_ns", lambda: clock.now)
    found = Watched(Together(broken, clock), default_collate, skip=True).__getitems__([1, 3, 5])
    took = dict(zip(STAGES, found.stages, strict=True))
    assert len(found.data) == 3 - broken and len(found.skipped) == broken
    assert (took["augment"], took["item"]) == (10, 0)


class Ticks:
    """A clock that stands still unless an item, a stage or joining takes its time."""

    def __init__(self, monkeypatch):
        self.now = self.cpu = 0
        monkeypatch.setattr(loading, "monotonic_ns", lambda: self.now)
        monkeypatch.setattr(loading, "thread_time_ns", lambda: self.cpu)

    def __len__(self):
        return 9

    def __getitem__(self, index):
        self.now, self.cpu = self.now + 1, self.cpu + 1
        with stage("read"):
            self.now += 10
        with stage("decode"):
            self.now, self.cpu = self.now + 100, self.cpu + 50
        return index

    def collate(self, rows):
        self.now += 1000
        with stage("decode"):
            self.now += 7
        return rows


def test_every_nanosecond_of_a_minibatch_is_of_one_stage(monkeypatch):
    items = Ticks(monkeypatch)
    watched = Watched(items, items.collate)
    assert len(watched) == 9
    first, second = watched.__getitems__([1, 2]), watched.__getitems__([3])
    assert dict(zip(STAGES, first.stages, strict=True)) == {
        **dict.fromkeys(STAGES, 0),
        **{"item": 2, "read": 20, "decode": 207, "collate": 1000},
    }
    assert (first.start_ns, first.end_ns, first.cpu_ns, first.data, first.disk_bytes) == (
        0,
        1229,
        102,
        [1, 2],
        0,
    )
    assert (second.start_ns, second.end_ns, second.cpu_ns) == (1229, 1229 + 1118, -1)
    assert sum(second.stages) == 1118 and second.worker == 0 and second.skipped == []


def test_a_worker_counts_from_one_and_what_it_read_from_a_disk_from_its_first_minibatch(monkeypatch):
    answers = [100, 130, 130, 190, None, 200, 250]
    monkeypatch.setattr(loading, "disk_bytes", lambda: answers.pop(0))
    monkeypatch.setattr(loading, "get_worker_info", lambda: SimpleNamespace(id=2))
    watched = Watched(range(9), list, reads_disk=True)
    found = [watched.__getitems__([0]) for _ in range(6)]
    assert [each.disk_bytes for each in found] == [30, 0, 60, None, None, 50]
    assert {each.worker for each in found} == {3}
    answers[:] = [70]
    monkeypatch.setattr(loading.os, "getpid", lambda: -1)
    assert watched.__getitems__([0]).disk_bytes == 70, "a new process begins at 0"


def test_a_reason_is_cut_and_nothing_is_read_where_nobody_asks(monkeypatch):
    class Broken:
        def __getitem__(self, index):
            raise OSError("x" * 300)

    found = Watched(Broken(), list, skip=True).__getitems__([4])
    assert found.skipped == [f"item 4: OSError: {'x' * 183}"] and found.disk_bytes == 0
    assert loading.joined(found) is found


@pytest.mark.parametrize(("text", "found"), [("rchar: 9\nread_bytes: 70\n", 70), ("rchar: 9\n", None)])
def test_what_the_kernel_counts_is_bytes_of_reads(monkeypatch, text, found):
    monkeypatch.setattr(loading.Path, "read_text", lambda self: text)
    assert loading.disk_bytes() == found
