"""A training that was interrupted: it goes on after its last epoch, to the weights of one that was not."""

from types import SimpleNamespace

import pytest
import torch

from edgescope.wings.training import clips as train
from edgescope.wings.training import torch_clips as torch_train


class Objective(torch.nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, clips, labels):
        return torch.nn.functional.cross_entropy(self.network(clips), labels)


def tiny(entry, classes, seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(), torch.nn.Linear(8, classes))


@pytest.fixture(autouse=True)
def tiny_network(monkeypatch):
    monkeypatch.setattr(torch_train, "build", tiny)
    monkeypatch.setattr(torch_train, "objective", Objective)
    monkeypatch.setattr(torch_train, "_sizes", lambda entry, classes: (1, 1))
    numbers = {n: torch.randn(4, generator=torch.Generator().manual_seed(n)) for n in range(20)}
    monkeypatch.setattr(
        torch_train._Clips,
        "batch",
        lambda self, w: (
            torch.stack([numbers[v.number] + s for v, s in w]),
            torch.tensor([v.label for v, _ in w]),
        ),
    )


def trained(kept, tell=lambda epoch: None, **settings):
    videos = [SimpleNamespace(number=n, label=n % 2, starts=[0, 1, 2], middle=1) for n in range(16)]
    data = SimpleNamespace(training=videos[:12], held_out=videos[12:], classes=("a", "b"))
    asked = train.Settings(**({"epochs": 4, "batch": 4} | settings))
    return torch_train.train({}, data, asked, tell=tell, kept=kept)


def stop_after(number):
    def tell(epoch):
        if epoch.number == number:
            raise KeyboardInterrupt

    return tell


def test_it_goes_on_to_the_same_weights(tmp_path, monkeypatch):
    whole = trained((tmp_path / "whole.part", "a"))
    kept = (tmp_path / "cut.part", "a")
    with pytest.raises(KeyboardInterrupt):
        trained(kept, stop_after(2))
    ran, batches = [], torch_train._Clips.batches
    monkeypatch.setattr(torch_train._Clips, "batches", lambda self, n: ran.append(n + 1) or batches(self, n))
    told = []
    cut = trained(kept, told.append)
    assert ran == [3, 4] and [e.number for e in told] == [1, 2, 3, 4]
    assert [(e.loss, e.right) for e in cut.history] == [(e.loss, e.right) for e in whole.history]
    assert all(
        torch.equal(a, b) for a, b in zip(whole.network.parameters(), cut.network.parameters(), strict=True)
    )


def test_another_setting_is_another_training(tmp_path, monkeypatch):
    """The weights go to OUT, what is kept of the epochs to OUT.part, under a name that every setting changes."""
    seen = []
    monkeypatch.setattr(train, "_entry", lambda name: {})
    data = SimpleNamespace(digest="d", classes=("a", "b"))
    monkeypatch.setattr(train.clip_data, "read", lambda *a: data)

    def run(entry, data, settings, *, tell, kept):
        seen.append(kept)
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "need", lambda *a: run)
    for settings in ({}, {"epochs": 5}, {"seed": 1}, {}):
        with pytest.raises(KeyboardInterrupt):
            train.train("m", tmp_path, tmp_path / "w.pth", settings=train.Settings(**settings))
    assert {path for path, _ in seen} == {tmp_path / "w.pth.part"}
    names = [name for _, name in seen]
    assert names[0] == names[3] and len(set(names)) == 3
