"""A step of training: its minibatches, its check, what it refuses."""

import numpy as np
import pytest

from edgescope import bench
from edgescope.backends.pytorch import training as loops
from edgescope.bench.parts import HERE
from edgescope.errors import UnsupportedError
from edgescope.records import Status, Trial
from edgescope.workloads.training import Training, _verified

OPTIONS = {"optimizer": "sgd", "learning_rate": 0.01, "epoch_samples": 20}


def trial(**keys):
    usual = {"model": "lenet5", "workload": "training", "batch": 8, "workload_options": OPTIONS}
    return Trial(**usual | {"warmup": 0, "min_s": 0.2, "max_s": 0.2} | keys)


def loop(**keys):
    asked = trial(**keys)
    return loops.Loop(HERE.model(asked), asked, dict(asked.workload_options))


def test_an_epoch_ends_with_what_is_left_and_the_next_has_another_order():
    made = loop()
    sizes = [len(made.fetch()[1]) for _ in range(6)]
    assert sizes == [8, 8, 4, 8, 8, 4]
    first = made.rows.copy()
    made.fetch()
    assert sorted(first) == sorted(made.rows) and not np.array_equal(first, made.rows)


def test_rows_say_how_many_samples_each_step_held():
    result = bench.run(trial(), hz=0)
    held = result.queries.columns["samples"]
    assert set(held) == {4, 8} and result.metrics["epochs"].n == held.sum() + 8  # one step before the window
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason


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


def test_steps_that_learn_otherwise_are_wrong(monkeypatch):
    found = _verified(lambda asked: [2.3, 2.2, 2.1, 2.0, 1.9], trial())
    assert found.passed and found.fields["loss_error"].value == 0
    curves = iter([[2.3, 2.2, 2.1, 2.0, 1.9], [2.3, 2.2, 2.1, 2.0, 2.0]])
    found = _verified(lambda asked: next(curves), trial())
    assert not found.passed and found.fields["loss_error"].value == pytest.approx(0.05)
    assert not _verified(lambda asked: [float("nan")] * 5, trial()).passed
    monkeypatch.setattr(loops, "_optimizer", _wrong)
    result = bench.run(trial(), hz=0)
    assert result.status is Status.WRONG_OUTPUT and "the losses of 5 steps" in str(result.reason)


def _wrong(net, name, rate, calls=[]):  # noqa: B006  (counts the loops made)
    """An optimizer that learns at another rate each time one is made."""
    import torch

    calls.append(1)
    return torch.optim.SGD(net.parameters(), lr=rate * len(calls))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"backend": "onnxruntime"}, "no backend onnxruntime"),
        ({"precision": "int8"}, "no precision int8"),
        ({"in_flight": 2}, "no 2 steps at once"),
        ({"io": "pinned"}, "no io pinned"),
    ],
)
def test_what_cannot_be_trained_is_refused(keys, says):
    with pytest.raises(UnsupportedError, match=f"E-STEP-1: training has {says}"):
        Training().prepare(trial(**keys), HERE)


def test_a_network_that_names_no_class_is_refused():
    with pytest.raises(UnsupportedError, match="E-STEP-2: null"):
        loops._data(_Boxes(), _Boxes.net(), "cpu", 0)


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
