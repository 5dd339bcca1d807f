"""Runs of training on a problem that is small and real: a line through points."""

import csv
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from edgescope import fit
from edgescope.errors import ModelError, UnavailableError
from edgescope.fit import Task

pytestmark = pytest.mark.network

X = torch.linspace(-1, 1, 24)[:, None]
Y = 3 * X + 1


def line(rate=0.1, hidden=True):
    layers = [torch.nn.Linear(1, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)]
    network = torch.nn.Sequential(*layers) if hidden else torch.nn.Sequential(torch.nn.Linear(1, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)

    def batches(epoch):
        order = torch.randperm(24, generator=torch.Generator().manual_seed(epoch))
        for rows in order.split(8):
            yield X[rows], Y[rows]

    def loss(module, batch):
        return torch.nn.functional.mse_loss(module(batch[0]), batch[1])

    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
    return Task(network, batches, loss, optimizer, schedule)


def error(task):
    task.network.eval()
    with torch.inference_mode():
        return -float(torch.nn.functional.mse_loss(task.network(X), Y))


class Keeps:
    """Remembers the task that was trained."""

    def __init__(self, **changed):
        self.changed = changed

    def __call__(self):
        self.task = line(**self.changed)
        return self.task

    @property
    def weights(self):
        return [p.detach().clone() for p in self.task.network.parameters()]


def test_it_learns_and_reports_each_epoch():
    make, told = Keeps(), []
    fitted = fit.fit(make, fit.Plan(20), judge=error, tell=told.append)
    assert [e.number for e in told] == list(range(1, 21)) == [e.number for e in fitted.history]
    assert [e.steps for e in told] == list(range(3, 61, 3))
    assert told[-1].loss < told[0].loss / 5 and told[-1].value > told[0].value
    assert not make.task.network.training


def stop_after(number):
    def tell(epoch):
        if epoch.number == number:
            raise KeyboardInterrupt

    return tell


@pytest.mark.parametrize("best", [False, True])
def test_an_interrupted_run_goes_on_to_the_same_weights(tmp_path, best):
    plan = fit.Plan(6, best=best, seed=3)
    whole, cut = Keeps(), Keeps()
    wanted = fit.fit(whole, plan, judge=error)
    kept = (tmp_path / "w.part", "a")
    with pytest.raises(KeyboardInterrupt):
        fit.fit(cut, plan, judge=error, tell=stop_after(4), kept=kept)
    trained = []
    got = fit.fit(cut, plan, judge=lambda task: trained.append(1) or error(task), kept=kept)
    assert len(trained) == 2
    assert [(e.loss, e.value) for e in got.history] == [(e.loss, e.value) for e in wanted.history]
    assert all(map(torch.equal, whole.weights, cut.weights))


@pytest.mark.parametrize("content", [None, b"", b"not a file of PyTorch", {"name": "another training"}, {}])
def test_a_file_of_something_else_is_passed_over(tmp_path, content):
    path = tmp_path / "w.part"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    assert len(fit.fit(line, fit.Plan(2), kept=(path, "this training")).history) == 2


def test_the_best_weights_are_those_of_the_best_epoch():
    values = iter([1.0, 5.0, 5.0, 2.0])
    make, seen = Keeps(), []

    def judge(task):
        seen.append([p.detach().clone() for p in task.network.parameters()])
        return next(values)

    fitted = fit.fit(make, fit.Plan(4, best=True), judge=judge)
    assert fitted.best.number == 2
    assert all(map(torch.equal, make.weights, seen[1])) and not all(map(torch.equal, make.weights, seen[3]))


def test_it_stops_when_nothing_gets_better():
    values = iter([1.0, 2.0, 1.5, 2.0, 1.0, 9.0])
    fitted = fit.fit(line, fit.Plan(6, patience=3), judge=lambda task: next(values))
    assert len(fitted.history) == 5 and "after epoch 2" in fitted.stopped


def test_steps_end_a_run_within_an_epoch():
    fitted = fit.fit(line, fit.Plan(100, steps=7))
    assert [e.steps for e in fitted.history] == [3, 6, 7]


def test_epochs_before_the_first_judged_one_have_no_value():
    fitted = fit.fit(line, fit.Plan(3, judged_from=3), judge=error)
    assert [e.value is None for e in fitted.history] == [True, True, False]


def test_mixed_precision_comes_close_to_fp32():
    exact, mixed = (
        fit.fit(lambda: line(), fit.Plan(3, precision=p)).history[-1].loss for p in ("fp32", "bf16")
    )
    assert mixed != exact and mixed == pytest.approx(exact, rel=0.1)


def test_the_log_is_a_csv_of_the_epochs(tmp_path):
    fit.fit(line, fit.Plan(2, judged_from=2), judge=error, log=tmp_path / "log.csv")
    rows = list(csv.DictReader((tmp_path / "log.csv").open()))
    assert (
        [row["number"] for row in rows] == ["1", "2"]
        and rows[0]["value"] == ""
        and float(rows[1]["value"]) < 0
    )


def test_a_loss_that_is_no_number_ends_the_run(tmp_path):
    with pytest.raises(ModelError, match="E-TRAIN-3"):
        fit.fit(lambda: line(rate=1e30), fit.Plan(9), kept=(tmp_path / "w.part", "a"))


def test_a_device_that_is_not_there_is_refused():
    if not torch.cuda.is_available():
        with pytest.raises(UnavailableError, match="E-TRAIN-2"):
            fit.fit(line, fit.Plan(1, device="cuda"))


def test_other_random_numbers_are_left_alone():
    torch.manual_seed(7)
    wanted = torch.rand(1)
    torch.manual_seed(7)
    fit.fit(line, fit.Plan(1))
    assert torch.equal(torch.rand(1), wanted)


def test_a_run_that_goes_on_tells_every_epoch_again(tmp_path):
    kept, told = (tmp_path / "w.part", "a"), []
    with pytest.raises(KeyboardInterrupt):
        fit.fit(line, fit.Plan(4), tell=stop_after(2), kept=kept)
    fit.fit(line, fit.Plan(4), tell=told.append, kept=kept)
    assert [epoch.number for epoch in told] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("keep_s", "kept"), [(0.0, [1, 2, 3, 4, 5]), (2.0, [2, 4, 5]), (2.1, [3, 5]), (9.0, [5])]
)
def test_a_checkpoint_is_written_when_it_is_due_and_at_the_end(tmp_path, monkeypatch, keep_s, kept):
    """An epoch takes a second of the clock."""
    clock, written = SimpleNamespace(now=50.0), []

    def judge(task):
        clock.now += 1.0
        return 0.0

    monkeypatch.setattr(fit.time, "monotonic", lambda: clock.now)
    real = fit._Run.keep
    monkeypatch.setattr(fit._Run, "keep", lambda run, *to: written.append(len(run.history)) or real(run, *to))
    fit.fit(line, fit.Plan(5, keep_s=keep_s), judge=judge, kept=(tmp_path / "w.part", "a"))
    assert written == kept


@pytest.mark.parametrize(
    ("plan", "steps"),
    [
        (fit.Plan(9, steps=6), [3, 6]),
        (fit.Plan(9, steps=1), [1]),
        (fit.Plan(2, steps=99), [3, 6]),
        (fit.Plan(0), []),
        (fit.Plan(9, steps=0), []),
    ],
)
def test_a_run_ends_with_its_last_step_or_epoch(plan, steps):
    fitted = fit.fit(line, plan)
    assert [epoch.steps for epoch in fitted.history] == steps
    assert (fitted.best, fitted.stopped) == (None, "")


@pytest.mark.parametrize(("patience", "epochs"), [(None, 6), (1, 3), (2, 4), (5, 6)])
def test_patience_counts_judged_epochs_after_the_best(patience, epochs):
    values = iter([1.0, 2.0, 1.5, 1.0])
    fitted = fit.fit(line, fit.Plan(6, patience=patience), judge=lambda task: next(values, 0.0))
    assert len(fitted.history) == epochs and bool(fitted.stopped) is (epochs < 6)


def test_the_mean_loss_of_an_epoch_is_that_of_its_steps():
    seen = []

    def make():
        task = line(hidden=False)
        return Task(
            task.network, task.batches, lambda net, batch: noted(task.loss(net, batch)), task.optimizer
        )

    def noted(loss):
        seen.append(float(loss.detach()))
        return loss

    fitted = fit.fit(make, fit.Plan(2))
    assert [e.loss for e in fitted.history] == pytest.approx([sum(seen[:3]) / 3, sum(seen[3:]) / 3])
    assert [e.value for e in fitted.history] == [None, None] and fitted.history[0].seconds > 0


def test_an_epoch_without_a_batch_is_refused():
    with pytest.raises(ModelError, match="E-TRAIN-3"):
        fit.fit(lambda: replace(line(), batches=lambda number: []), fit.Plan(1))


def test_epochs_are_asked_for_from_zero_and_the_network_trains():
    asked = []

    def make():
        task = line()
        return replace(task, batches=lambda n: asked.append((n, task.network.training)) or task.batches(n))

    def judge(task):
        task.network.eval()
        return 0.0

    fit.fit(make, fit.Plan(3), judge=judge)
    assert asked == [(0, True), (1, True), (2, True)]


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_settings_of_torch_hold_within_a_run_and_are_put_back(monkeypatch, deterministic, before):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    seen = []

    def settings():
        found = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
        return (*found, torch.get_float32_matmul_precision())

    torch.use_deterministic_algorithms(before)
    try:
        usual = settings()
        plan = fit.Plan(1, deterministic=deterministic, precision="tf32")
        fit.fit(line, plan, judge=lambda task: seen.append(settings()) or 0.0)
        assert settings() == usual == (before, True, "highest")
    finally:
        torch.use_deterministic_algorithms(False)
    assert seen == [(before or deterministic, not deterministic, "high")]
    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == (":4096:8" if deterministic else None)


def test_a_plan_that_says_only_its_epochs_is_plain():
    assert fit.Plan(3) == fit.Plan(
        3, None, 0, "cpu", "fp32", 1, best=False, patience=None, keep_s=0.0, deterministic=False
    )
    first, second = (torch.nn.Linear(1, 1) for _ in range(2))
    assert not torch.equal(first.weight, second.weight)
    weights = []
    for seed in (0, 0, 1):
        make = Keeps()
        fit.fit(make, fit.Plan(0, seed=seed))
        weights.append(make.weights)
    assert all(map(torch.equal, weights[0], weights[1])) and not all(map(torch.equal, weights[0], weights[2]))
