"""A step of training: its minibatches, its check, its parts, what it refuses."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope import bench
from edgescope.bench.parts import HERE
from edgescope.errors import ModelError, UnsupportedError, UsageError
from edgescope.options import read
from edgescope.records import (
    QUERY_END,
    QUERY_ERROR,
    Absent,
    Effective,
    Measured,
    Queries,
    Spans,
    Status,
    Trial,
    Window,
)
from edgescope.wings.training import epochs
from edgescope.wings.training import loop as loops
from edgescope.wings.training import workload as training
from edgescope.wings.training.loop import Stretch
from edgescope.wings.training.workload import Training, verified
from edgescope.workloads.base import EndOfInput

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


@pytest.mark.slow
def test_rows_say_how_many_samples_each_step_held():
    result = bench.run(trial(max_queries=7, max_s=20), hz=0)
    held = result.queries.columns["samples"]
    assert set(held) == {4, 8} and result.metrics["epochs"].n == held.sum()
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason


@pytest.mark.slow
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


@pytest.mark.slow
def test_training_learns():
    made = loop(workload_options=OPTIONS | {"optimizer": "adam", "learning_rate": 0.001})
    made.step()
    before = made.loss
    for _ in range(60):
        made.step()
    assert made.loss < 0.8 * before


def test_a_loss_that_is_no_number_ends_the_run():
    made = loop(workload_options=OPTIONS | {"learning_rate": 1e12})
    with pytest.raises(ModelError, match="E-STEP-3: "):
        for _ in range(20):
            made.step()
    assert made.step() is None  # it does not go on with lost weights


@pytest.mark.slow
def test_steps_that_learn_otherwise_are_wrong(monkeypatch):
    found = verified(lambda asked, steps=5: [2.3, 2.2, 2.1, 2.0, 1.9], trial())
    assert found.passed and found.fields["loss_error"].value == 0
    curves = iter([[2.3, 2.2, 2.1, 2.0, 1.9], [2.3, 2.2, 2.1, 2.0, 2.0]])
    found = verified(lambda asked, steps=5: next(curves), trial())
    assert not found.passed and found.fields["loss_error"].value == pytest.approx(0.05)
    assert not verified(lambda asked, steps=5: [float("nan")] * 5, trial()).passed
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
    with pytest.raises(UsageError, match=r"E-STEP-4: .*\b20 samples, .* 32\b"):
        loop(batch=32)


class _Boxes:
    """A model whose output is no row of logits."""

    def __init__(self):
        from edgescope.models.synthetic import NullModel

        null = NullModel()
        self.info, self.inputs, self.samples = null.info, null.inputs, null.samples

    @staticmethod
    def net():
        import torch

        return torch.nn.Unflatten(1, (1, 1))


class Fake:
    """A loop that has done three steps of its second epoch."""

    def __init__(self, **differs):
        self.options = {"page_cache": "as_is"}
        self.log = [
            {"samples": 20, "end_ns": 5},
            {"samples": 30, "end_ns": 9},
            {"samples": 7, "end_ns": None},
        ]
        self.stretch = Stretch(np.array([3.0, 2.5, 2.0]), np.array([8, 8, 4]), 0.9, 2, 4096, 0.6, 0.3)
        self.sizes, self.peeked, self.closed = iter([8, 4]), 0, 0
        self.origin, self.loader, self.lost, self.spans = "made", {"workers": 0}, ["one"], Spans.none
        self.effective = lambda: Effective("cpu", "fp32")
        self.line = SimpleNamespace(marks=lambda: {"fetch_begin": 3})
        self.__dict__ |= differs

    def between(self, start_ns, stop_ns):
        self.asked = (start_ns, stop_ns)
        return self.stretch

    def speed(self):
        return SimpleNamespace(bytes_s=5e6, latency_s=0.02, files=11)

    def step(self):
        return next(self.sizes, None)

    def peek(self, steps):
        self.peeked = steps
        return [f"batch {number}" for number in range(steps)]

    def alone(self, batch):
        return 2.5

    def close(self):
        self.closed += 1


def rows(*samples):
    status = [QUERY_ERROR if held < 0 else 0 for held in samples]
    return Queries({"samples": np.abs(np.array(samples, np.int32)), "status": np.array(status, np.int8)})


WINDOW = Window(0, 3, 100, 200)
NOTHING = Stretch(np.zeros(0), np.zeros(0, np.int64), 0.0, 0, None, None, None)


def told(made, *samples):
    return training._metrics(made, 2.75, rows(*samples), WINDOW)


def test_the_figures_of_a_window_are_those_of_its_steps():
    made = Fake()
    found = told(made, 8, 8, -8, 4)
    assert made.asked == (100, 200)
    assert found["loss_first"] == Measured(2.75, "nats") and found["loss_last"] == Measured(2.0, "nats")
    assert found["loader_cpu_s"] == Measured(pytest.approx(0.2), "s", n=3)
    assert found["host_cpu_s"] == Measured(pytest.approx(0.1), "s", n=3)
    assert found["skipped_items"] == Measured(2.0, "items", n=22)
    assert found["epochs"] == Measured(
        20 * 2 / 50, "epochs", n=20
    )  # an epoch that goes on is of no known length
    assert not {"page_cache_share", "disk_read_bytes", "medium_read_bytes_s"} & set(found)


def test_a_window_without_a_step_or_an_epoch_says_so():
    found = told(Fake(stretch=NOTHING, log=[{"samples": 7, "end_ns": None}]))
    assert found["loss_last"] == found["host_cpu_s"] == Absent(training.NO_STEP)
    assert found["loader_cpu_s"] == Absent(epochs.NO_COSTS)
    assert found["epochs"] == Absent("no epoch ended in the run")
    assert found["skipped_items"] == Measured(0.0, "items", n=0)
    assert isinstance(told(Fake(log=[]))["epochs"], Absent)
    assert isinstance(told(Fake(log=[{"samples": 0, "end_ns": 4}]))["epochs"], Absent)


@pytest.mark.parametrize(("held", "disk_bytes"), [(0.0, 4096), (0.75, None)])
def test_what_lay_in_the_page_cache_is_told_where_it_is_known(held, disk_bytes):
    made = Fake(log=[{"samples": 20, "end_ns": 5, "page_cache_before": held}])
    made.stretch = replace(made.stretch, disk_bytes=disk_bytes)
    found = told(made)
    assert found["page_cache_share"] == Measured(held, "1")
    assert found["disk_read_bytes"] == (Measured(4096.0, "bytes", n=3) if disk_bytes else training.UNREAD)


@pytest.mark.parametrize(
    ("cache", "read"), [("cold", True), ("cold_epochs", True), ("warm", False), ("as_is", False)]
)
def test_a_medium_is_told_where_files_were_read_from_it(cache, read):
    found = told(Fake(options={"page_cache": cache}))
    assert ("medium_latency_s" in found) is read
    if read:
        assert found["medium_read_bytes_s"] == Measured(5e6, "bytes/s", n=11)
        assert found["medium_latency_s"] == Measured(0.02, "s", n=11)
    assert "medium_latency_s" not in told(Fake(options={"page_cache": cache}, speed=lambda: None))


@pytest.mark.parametrize(("each_s", "steps"), [(0.1, 5), (1.9, 3), (2.0, 3), (2.1, 2), (9.0, 2)])
def test_losses_are_compared_for_four_seconds_but_two_of_them_in_any_case(monkeypatch, each_s, steps):
    now = [10.0]

    def alone(batch):
        now[0] += each_s
        return batch

    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert (
        training.losses(SimpleNamespace(alone=alone), [1.0, 2.0, 3.0, 4.0, 5.0])
        == [1.0, 2.0, 3.0, 4.0, 5.0][:steps]
    )


@pytest.mark.parametrize("check_s", [-1.0, 60.0])
def test_workers_compare_as_many_losses_however_long_a_step_takes(monkeypatch, check_s):
    monkeypatch.setattr(training, "CHECK_S", check_s)
    (losses,) = training._sample_output(loop()).outputs
    assert losses.shape == (2,)


@pytest.mark.parametrize(
    ("precision", "device", "close"),
    [
        *(("fp32", "cpu", 1e-3), ("tf32", "cpu", 2e-2), ("bf16", "cpu", 5e-2), ("fp16", "cpu", 2e-2)),
        *(("fp32", "cuda", 1e-2), ("tf32", "cuda", 2e-2), ("bf16", "cuda", 5e-2), ("fp16", "cuda", 2e-2)),
    ],
)
def test_losses_are_as_close_as_their_precision(precision, device, close):
    """The curve is that of fp32 on the CPU, over as many steps as there was time for."""
    asked = trial(precision=precision, device=device, io="pinned" if device == "cuda" else "host")
    plains = []

    def again(of, steps=5):
        if len(plains) % 2 == 0:
            plains.append(None)
            return got
        plains.append((of, steps))
        return [2.0, 4.0, 2.0][: len(got)]

    for off, passed in ((0.999, True), (1.001, False)):
        for got in ([2.0, 4.0 * (1 + close * off)], [2.0, 4.0, 2.0 * (1 - close * off)]):
            found = verified(again, asked)
            assert found.passed is passed and found.threshold == close
            assert found.fields["loss_error"] == Measured(pytest.approx(close * off), "1", n=len(got))
            plain, steps = plains[-1]
            assert (plain.precision, plain.device, plain.io, plain.backend) == (
                "fp32",
                "cpu",
                "host",
                "torch_eager",
            )
            assert steps == len(got) and not plain.options


def test_losses_of_nearly_nothing_are_compared_by_their_size():
    curves = iter([[2e-9], [0.0]])
    assert verified(lambda *_: next(curves), trial()).fields["loss_error"].value == pytest.approx(2e-3)


@pytest.mark.parametrize(
    ("keys", "refused"),
    [
        ({}, False),
        ({"backend": "torch_compile"}, False),
        ({"io": "pinned", "device": "cuda"}, False),
        ({"io": "host", "device": "cuda"}, False),
        ({"io": "device", "device": "cuda"}, True),
        ({"io": "pinned"}, True),
        ({"in_flight": 2}, True),
    ],
)
def test_trials_that_can_be_trained(keys, refused):
    if not refused:
        Training().check(trial(**keys))
        return
    with pytest.raises(UnsupportedError, match="E-STEP-1"):
        Training().check(trial(**keys))


@pytest.mark.parametrize(
    ("given", "limited"),
    [
        ({"medium_by": "io_max", "medium": "sd", "images": "folder"}, True),
        ({"medium_by": "delay", "medium": "sd", "images": "folder"}, False),
        ({"medium_by": "io_max", "images": "folder"}, False),
        ({"medium_by": "io_max", "medium": "sd"}, False),
    ],
)
def test_a_control_group_limits_the_disk_of_pictures_if_asked(monkeypatch, given, limited):
    asked = []
    named = {"limited": lambda *what: asked.append(what) or nullcontext(), "MEDIA": {"sd": "a card"}}
    monkeypatch.setattr(training, "need", lambda what, *_: named[what.partition(":")[2]])
    with training._disk(read("training", given, Training.OPTIONS)):
        pass
    assert asked == ([(Path("folder"), "a card")] if limited else [])


def test_a_training_is_opened_steps_and_is_closed(monkeypatch):
    made, asked = [], []
    times = iter([1_000, 4_000, 9_000, 29_000])

    def make(model, of, options, dropout=True):
        asked.append((of, dropout))
        made.append(Fake())
        return made[-1]

    named = {"Loop": make, "bytes_in": len}
    monkeypatch.setattr(training, "need", lambda what, *_: named[what.partition(":")[2]])
    clock = SimpleNamespace(monotonic_ns=lambda: next(times), monotonic=lambda: 0.0)
    monkeypatch.setattr(training, "time", clock)
    with Training().open(trial(seed=5), HERE) as opened:
        (loop,) = made
        assert loop.peeked == 5 and asked == [(trial(seed=5), True)]
        assert opened.facts["load_s"] == Measured(3e-6, "s") and opened.facts["first_s"] == Measured(
            2e-5, "s"
        )
        done = []
        for query in range(2):
            opened.work.issue(query, 8, lambda *what: done.append(what))
        with pytest.raises(EndOfInput):
            opened.work.issue(2, 8, lambda *what: done.append(what))
        assert done == [(0, 0, 8, -1, {"fetch_begin": 3}), (1, 0, 4, -1, {"fetch_begin": 3}), (2, QUERY_END)]
        assert opened.verify(None).passed and [of.seed for of, _ in asked[1:]] == [5, 5]
        assert [dropout for _, dropout in asked[1:]] == [False, False]
        seen = opened.sample_output()
        assert asked[-1] == (trial(seed=0), False) and seen.outputs[0].tolist() == [2.5] * 2
        assert (
            seen.input_bytes == len("batch 0") and opened.metrics(rows(8), WINDOW)["loss_first"].value == 2.5
        )
        assert opened.artifact["left_out"] == ["one"] and opened.artifact["path"] is None
        assert isinstance(opened.facts["build_s"], Absent) and not loop.closed
    assert loop.closed == 1


@pytest.mark.parametrize(
    ("given", "fine"),
    [
        (
            {"learning_rate": 0.0, "epoch_samples": 0, "epochs": 0, "num_workers": -1, "prefetch_factor": 0},
            True,
        ),
        *(({name: -1}, False) for name in ("learning_rate", "epoch_samples", "epochs", "prefetch_factor")),
        ({"num_workers": -2}, False),
    ],
)
def test_options_of_a_training_have_their_least(given, fine):
    asked = Trial(model="lenet5", backend="torch_eager", workload="training", workload_options=given)
    parts = SimpleNamespace(model=lambda trial: SimpleNamespace(module=lambda: None))
    if fine:
        Training().prepare(asked, parts)
        return
    with pytest.raises(UsageError, match="E-OPTION"):
        Training().prepare(asked, parts)


def test_without_a_word_a_training_is_that_of_its_task():
    usual = read("training", {}, Training.OPTIONS)
    assert (usual["learning_rate"], usual["epoch_samples"], usual["epochs"]) == (0.01, 0, 0)
    assert (usual["num_workers"], usual["prefetch_factor"]) == (-1, 0)
    assert not (usual["persistent_workers"] or usual["preload"] or usual["held"])
