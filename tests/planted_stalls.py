"""Training tasks with a sleep of known length in one part: `planted_stalls:read` ... for module:callable."""

import os
import signal
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

from edgescope.fit import Task
from edgescope.wings.training.loading import stage

ITEM_S, BATCH_S = 0.01, 0.2
"""Seconds slept in an item, and in the collation or the step of a minibatch: what is computed beside it is small."""
SPIN_S = 0.004
"""CPU seconds spun in an item."""
SLEPT = []
"""Start and end of each sleep of this process: on a busy machine a sleep wakes late."""
ITEMS, BATCH = 40, 8


def slept(seconds):
    start = time.monotonic_ns()
    time.sleep(seconds)
    SLEPT.append((start, time.monotonic_ns()))


def spun(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Items(Dataset):
    def __init__(self, slow):
        self.slow = slow

    def __len__(self):
        return ITEMS

    def __getitem__(self, index):
        if self.slow == "item":
            slept(ITEM_S)
        for name in ("read", "decode", "augment"):
            with stage(name):
                if self.slow == name:
                    slept(ITEM_S)
        if self.slow == "spins":
            spun(SPIN_S)
        if self.slow == "raises" and index == 7:
            raise ValueError("a broken file")
        if self.slow == "kills" and get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((4,), float(index)), torch.tensor(index % 3)


def _collated(rows):
    slept(BATCH_S)
    return torch.utils.data.default_collate(rows)


def task(slow, workers=0, **loader_keys):
    network = nn.Linear(4, 3)
    collate = _collated if slow == "collate" else None
    loader = DataLoader(Items(slow), batch_size=BATCH, num_workers=workers, collate_fn=collate, **loader_keys)

    def loss(net, batch):
        if slow == "step":
            slept(BATCH_S)
        return nn.functional.cross_entropy(net(batch[0] / ITEMS), batch[1])

    return Task(network, lambda epoch: loader, loss, torch.optim.SGD(network.parameters(), lr=0.01))


def read():
    return task("read")


def decode():
    return task("decode")


def augment():
    return task("augment")


def item():
    return task("item")


def collate():
    return task("collate")


def step():
    return task("step")


def spins():
    return task("spins")


def spins_in_worker():
    return task("spins", workers=1)


def hidden():
    """Loading that takes half as long as the step it is hidden behind."""
    made = task("step", workers=1)
    made.batches(0).dataset.slow = "read"
    return made


def persists():
    """A loader whose maker keeps its worker and lets it load three minibatches ahead."""
    return task("", workers=1, persistent_workers=True, prefetch_factor=3)


def raises():
    return task("raises")


def raises_in_worker():
    return task("raises", workers=1)


def kills():
    """A worker that is killed while it loads."""
    return task("kills", workers=1)


def generator():
    """Minibatches without a DataLoader."""
    network = nn.Linear(4, 3)
    rows = [(torch.ones(BATCH, 4), torch.zeros(BATCH, dtype=torch.int64))] * 5
    return Task(
        network,
        lambda epoch: iter(rows),
        lambda net, batch: nn.functional.cross_entropy(net(batch[0]), batch[1]),
        torch.optim.SGD(network.parameters(), lr=0.01),
    )
