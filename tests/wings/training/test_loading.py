"""A loader that is taken apart and put together again: what its maker set stays, what is asked for changes."""

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from edgescope.errors import UnsupportedError
from edgescope.wings.training import loading
from edgescope.wings.training.loading import Batches, Settings, watched


class Files(list):
    """Items with files."""

    files = ("a",)


def loader(**keys):
    return DataLoader([torch.tensor(k) for k in range(10)], **{"batch_size": 4, **keys})


def test_settings_leave_a_loader_as_its_maker_set_it():
    assert Settings() == Settings(None, None, None, None, None, skip=False)
    generator = torch.Generator()
    theirs = loader(
        timeout=3,
        num_workers=2,
        prefetch_factor=5,
        persistent_workers=True,
        worker_init_fn=id,
        generator=generator,
    )
    mine = watched(theirs, Settings())
    assert (mine.num_workers, mine.prefetch_factor, mine.persistent_workers) == (2, 5, True)
    assert (mine.timeout, mine.worker_init_fn, mine.generator, mine.pin_memory) == (3, id, generator, False)
    assert mine.batch_sampler is theirs.batch_sampler
    assert mine.dataset.items is theirs.dataset and (mine.dataset.skip, mine.dataset.reads_disk) == (
        False,
        False,
    )


@pytest.mark.parametrize(
    ("settings", "workers", "prefetch", "persistent"),
    [
        (Settings(num_workers=1), 1, 2, False),
        (Settings(num_workers=2, prefetch_factor=7, persistent=True), 2, 7, True),
        (Settings(num_workers=0, prefetch_factor=7, persistent=True), 0, None, False),
        (Settings(persistent=True), 0, None, False),
    ],
)
def test_workers_prefetching_and_persistence_are_set_where_there_are_workers(
    settings, workers, prefetch, persistent
):
    mine = watched(loader(), settings)
    assert (mine.num_workers, mine.prefetch_factor, mine.persistent_workers) == (
        workers,
        prefetch,
        persistent,
    )
    run = Batches(lambda number: loader(), settings)
    assert run.settings_used == {} and run.items is None
    run._watched = mine
    used = {"num_workers": workers, "prefetch_factor": prefetch or 0, "persistent_workers": persistent}
    assert run.settings_used == used


def test_a_context_is_only_for_workers():
    assert (
        watched(loader(num_workers=1, multiprocessing_context="fork"), Settings(num_workers=0)).num_workers
        == 0
    )
    kept = watched(loader(num_workers=1, multiprocessing_context="fork"), Settings())
    assert kept.multiprocessing_context.get_start_method() == "fork"


def test_what_is_asked_for_is_pinned_skipped_and_counted():
    assert watched(loader(), Settings(pinned=True)).pin_memory is True
    assert watched(loader(pin_memory=True), Settings(pinned=False)).pin_memory is False
    assert watched(loader(), Settings(skip=True)).dataset.skip is True
    assert watched(DataLoader(Files([1]), batch_size=1), Settings()).dataset.reads_disk is True


def test_minibatches_may_have_another_size_and_keep_their_order():
    for drop, sizes in ((False, [3, 3, 3, 1]), (True, [3, 3, 3])):
        found = list(watched(loader(drop_last=drop), Settings(batch=3)))
        assert [len(each.data) for each in found] == sizes
        assert torch.cat([each.data for each in found]).tolist() == list(range(sum(sizes)))
    own = [[0, 1], [2]]
    assert watched(loader(batch_size=1, batch_sampler=own), Settings(batch=3)).batch_sampler is own
    sampler = BatchSampler(SequentialSampler(range(4)), 2, True)
    chosen = loading._batches(loader(batch_size=1, batch_sampler=sampler), Settings(batch=3))["batch_sampler"]
    assert (chosen.sampler, chosen.batch_size, chosen.drop_last) == (sampler.sampler, 3, True)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


@pytest.mark.parametrize("made", [DataLoader(Stream(), batch_size=2), DataLoader([1, 2], batch_size=None)])
def test_a_loader_without_items_or_minibatches_is_refused(made):
    with pytest.raises(UnsupportedError, match="E-LOADER-1"):
        watched(made, Settings())


def test_one_loader_is_put_together_once_for_all_epochs():
    theirs = [loader(), loader()]
    run = Batches(lambda number: theirs[number // 2])
    made = []
    for number in range(4):
        assert sum(len(each.data) for each in run.epoch(number)) == 10
        made.append(run._watched)
    assert made[0] is made[1] is not made[2] and made[2] is made[3]
    assert run.items is theirs[1].dataset
    run.close()
    assert run.items is None and run.settings_used == {}


def test_what_is_no_loader_is_passed_on_and_persistent_workers_are_ended():
    plain = [1, 2, 3]
    run = Batches(lambda number: plain)
    assert list(run.epoch(0)) == plain and run.settings_used == {} and run.items is None
    run.close()
    ended = []

    class Iterator:
        def _shutdown_workers(self):
            ended.append(1)

    for iterator in (Iterator(), object(), None):
        run._watched = type("Loader", (), {"_iterator": iterator, "dataset": "own"})()
        assert run.items == "own"
        run.close()
    assert ended == [1]


def test_a_made_loader_is_shuffled_by_its_seed_and_keeps_the_last_minibatch():
    def orders(seed):
        made = loading.made([torch.tensor(k) for k in range(10)], 4, seed)
        return [[batch.tolist() for batch in made] for _ in range(2)]

    first, second = orders(3)
    assert [len(batch) for batch in first] == [4, 4, 2] and first != second
    assert orders(3) == [first, second] == orders(-3) != orders(4)
    assert sorted(number for batch in first for number in batch) == list(range(10))
