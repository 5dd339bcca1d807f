"""A step of training: its minibatches, its check, its parts, what it refuses."""

import numpy as np
import pytest

from edgescope import bench
from edgescope.backends.pytorch import training as loops
from edgescope.bench.parts import HERE
from edgescope.errors import ModelError, UnsupportedError, UsageError
from edgescope.options import read
from edgescope.records import Status, Trial
from edgescope.workloads.training import Training, _verified

OPTIONS = {"optimizer": "sgd", "learning_rate": 0.01, "epoch_samples": 20}


def trial(**keys):
    usual = {"model": "lenet5", "workload": "training", "batch": 8, "workload_options": OPTIONS}
    return Trial(**usual | {"warmup": 0, "min_s": 0.2, "max_s": 0.2} | keys)


def loop(**keys):
    asked = trial(**keys)
    options = read("training", asked.workload_options, Training.OPTIONS)
    return loops.Loop(HERE.model(asked), asked, options)


def test_an_epoch_ends_with_what_is_left_and_the_next_has_another_order():
    made = loop()
    assert [made.step() for _ in range(6)] == [8, 8, 4, 8, 8, 4]
    assert [row["samples"] for row in made.log] == [20, 20]
    first, second = (np.concatenate([each.data[1].numpy() for each in made.batches.epoch(n)]) for n in (2, 3))
    assert sorted(first) == sorted(second) and not np.array_equal(first, second)


def test_a_minibatch_that_was_loaded_before_is_the_one_of_the_next_step():
    made, ahead = loop(), loop()
    losses = []
    for _ in range(5):  # beyond the end of an epoch
        ahead.load()
        ahead.load()  # it is there already
        losses.append((ahead.step(), ahead.loss))
    assert losses == [(made.step(), made.loss) for _ in range(5)]
    assert [row["samples"] for row in ahead.log] == [row["samples"] for row in made.log]


def test_a_loader_that_fails_ahead_ends_the_run(monkeypatch):
    made = loop()
    monkeypatch.setattr(made, "_next", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        made.load()
    made.load()
    assert made.step() is None


def test_rows_say_how_many_samples_each_step_held():
    result = bench.run(trial(max_queries=7, max_s=20), hz=0)
    held = result.queries.columns["samples"]
    assert set(held) == {4, 8} and result.metrics["epochs"].n == held.sum()
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason


def test_a_run_of_two_epochs_ends_after_them():
    result = bench.run(trial(workload_options=OPTIONS | {"epochs": 2}, min_s=60, max_s=60), hz=0)
    assert result.queries.columns["samples"].sum() == 40 and result.metrics["epochs"].value == 2
    assert result.metrics["epoch_first_s"].value > 0 and result.metrics["epoch_later_s"].value > 0
    assert [row["batches"] for row in result.artifact["log"]] == [3, 3]


def test_the_same_seed_gives_the_same_losses_and_another_other_ones():
    def losses(seed):
        made = loop(seed=seed)
        return [made.step() and made.loss for _ in range(3)]

    assert losses(0) == losses(0) != losses(1)


def test_training_learns():
    made = loop(workload_options=OPTIONS | {"optimizer": "adam", "learning_rate": 0.001})
    made.step()
    before = made.loss
    for _ in range(60):
        made.step()
    assert made.loss < 0.8 * before


def test_a_loss_that_is_no_number_ends_the_run():
    made = loop(workload_options=OPTIONS | {"learning_rate": 1e12})
    with pytest.raises(ModelError, match="E-STEP-3: the loss is no number after"):
        for _ in range(20):
            made.step()
    assert made.step() is None  # it does not go on with lost weights


def test_steps_that_learn_otherwise_are_wrong(monkeypatch):
    found = _verified(lambda asked, steps=5: [2.3, 2.2, 2.1, 2.0, 1.9], trial())
    assert found.passed and found.fields["loss_error"].value == 0
    curves = iter([[2.3, 2.2, 2.1, 2.0, 1.9], [2.3, 2.2, 2.1, 2.0, 2.0]])
    found = _verified(lambda asked, steps=5: next(curves), trial())
    assert not found.passed and found.fields["loss_error"].value == pytest.approx(0.05)
    assert not _verified(lambda asked, steps=5: [float("nan")] * 5, trial()).passed
    monkeypatch.setattr(loops, "optimizer_of", _wrong)
    result = bench.run(trial(), hz=0)
    assert result.status is Status.WRONG_OUTPUT and "the losses of 5 steps" in str(result.reason)


def _wrong(net, options, calls=[]):  # noqa: B006  (counts the loops made)
    """An optimizer that learns at another rate each time one is made."""
    import torch

    calls.append(1)
    return torch.optim.SGD(net.parameters(), lr=options["learning_rate"] * 4 ** len(calls))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"backend": "onnxruntime"}, "no backend onnxruntime"),
        ({"precision": "int8"}, "no precision int8"),
        ({"in_flight": 2}, "no 2 steps at once"),
        ({"io": "pinned"}, "no io pinned on cpu"),
    ],
)
def test_what_cannot_be_trained_is_refused(keys, says):
    with pytest.raises(UnsupportedError, match=f"E-STEP-1: training has {says}"):
        Training().prepare(trial(**keys), HERE)


def test_a_network_that_names_no_class_is_refused():
    with pytest.raises(UnsupportedError, match="E-STEP-2: null"):
        loops.items_of(_Boxes(), _Boxes.net(), trial(), read("training", {}, Training.OPTIONS))


def test_fewer_samples_than_a_minibatch_are_refused():
    with pytest.raises(
        UsageError, match="E-STEP-4: the data set holds 20 samples, fewer than one minibatch of 32"
    ):
        loop(batch=32)


class _Boxes:
    """A model whose output is no row of logits."""

    def __init__(self):
        from edgescope.models.null import NullModel

        null = NullModel()
        self.info, self.inputs, self.samples = null.info, null.inputs, null.samples

    @staticmethod
    def net():
        import torch

        return torch.nn.Unflatten(1, (1, 1))
