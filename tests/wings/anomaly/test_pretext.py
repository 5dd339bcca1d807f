"""Training a feature network on normal videos alone: what is done to clips is what is said of them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import films
from edgescope.errors import UsageError
from edgescope.models import zoo
from edgescope.wings.anomaly import pretext
from edgescope.wings.anomaly.layouts import Video
from edgescope.wings.anomaly.preparation import Preparation

PREPARED = Preparation("motion", 16, 1, (16, 16), (16, 16), (0.0,) * 3, (1.0,) * 3, 512)


def ramp(frames=64):
    """A film whose every pixel is the number of its frame, so that a clip shows its times."""
    return torch.arange(frames, dtype=torch.uint8).view(-1, 1, 1, 1).repeat(1, 16, 16, 3)


def drawn(task, batch=32):
    """Clips of the ramp as times (N, 16), and the shares of what was done to them."""
    chosen = pretext.Pretext(tasks=(task,), batch=batch)
    clips, shares = pretext.Clips([ramp()], PREPARED, chosen).draw(3)
    return clips.mean(dim=(1, 3, 4)).numpy() * 255, shares.numpy()[:, 0]


@pytest.mark.parametrize(
    ("task", "slowest", "fastest"), [("frozen", 0, 0), ("backward", -1, -1), ("fast", 2, 3)]
)
def test_a_clip_is_played_as_it_is_said(task, slowest, fastest):
    times, shares = drawn(task)
    steps = np.median(np.diff(times, axis=1), axis=1)
    assert (
        (steps[shares == 0] > 0.75) & (steps[shares == 0] < 1.2)
    ).all()  # it runs on, its light a little changed
    whole = steps[shares == 1]
    assert len(whole) and (np.sign(np.round(whole, 3)) == np.sign(slowest)).all()
    assert (np.abs(whole) <= 1.2 * max(abs(slowest), abs(fastest)) + 1e-3).all()
    assert (np.abs(whole) >= 0.75 * min(abs(slowest), abs(fastest)) - 1e-3).all()
    assert {0.0, 1.0} < set(shares.tolist())  # and some are changed in part


def test_light_and_pieces_change_only_the_frames_that_are_named():
    for task in ("light", "pasted"):
        chosen = pretext.Pretext(tasks=(task,), batch=32)
        still = [torch.full((40, 16, 16, 3), value, dtype=torch.uint8) for value in (60, 180)]
        clips, shares = pretext.Clips(still, PREPARED, chosen).draw(1)
        changes = (clips - clips.median(dim=2, keepdim=True).values).abs().amax(dim=(1, 3, 4)) > 1e-4
        part = (shares[:, 0] > 0) & (shares[:, 0] < 0.5)
        assert part.any()
        assert (changes[part].float().mean(dim=1) <= shares[part, 0] + 1e-6).all()
        assert not changes[shares[:, 0] == 0].any()


@pytest.mark.slow
def test_a_network_learns_from_normal_training_videos_and_its_weights_are_the_zoos(tmp_path, monkeypatch):
    entry = zoo.table()["motion"] | {"input": [3, 16, 32, 32], "frame_size": [32, 32]}
    monkeypatch.setitem(zoo.table(), "motion", entry)
    monkeypatch.setattr(pretext, "LOOK", 1)
    seen = []
    monkeypatch.setattr(pretext, "decoded", watching(pretext.decoded, seen))
    found = [
        Video(name, films.film(tmp_path / f"{name}.mp4", 40), split, kind)
        for name, split, kind in (
            ("a", "train", "normal"),
            ("b", "train", "speed"),
            ("c", "validation", "normal"),
            ("d", "test", "normal"),
        )
    ]
    chosen = pretext.Pretext(tasks=("light",), steps=3, batch=4)
    made = pretext.pretrain(found, tmp_path / "motion.pth", chosen)
    assert sorted(seen) == ["a.mp4", "c.mp4"]  # no anomalous video, and none of the test split
    assert made.videos == 1 and set(made.found) == {"light"}
    state = zoo.get(f"motion@{made.path}").module().state_dict()
    assert not torch.equal(state["stem.weight"], zoo.get("motion").module().state_dict()["stem.weight"])


def watching(real, seen):
    def read(path, *rest):
        seen.append(path.name)
        return real(path, *rest)

    return read


@pytest.mark.parametrize(
    ("tasks", "videos", "says"),
    [(("sideways",), (), "sideways"), (("light",), (), "no normal video"), ((), (), "nothing to learn")],
)
def test_what_cannot_be_trained_is_named(tmp_path, tasks, videos, says):
    with pytest.raises(UsageError, match=says):
        pretext.pretrain(videos, tmp_path / "x.pth", pretext.Pretext(tasks=tasks))


class Dice:
    """A generator that gives these numbers in turn, and notes the ranges it was asked for."""

    def __init__(self, *given):
        self.given, self.asked = list(given), []

    def _next(self, *asked):
        self.asked.append(asked)
        return np.array(self.given.pop(0))

    def integers(self, *asked):
        return self._next("integers", *asked)

    def random(self, *asked):
        return self._next("random", *asked)

    def uniform(self, *asked):
        return self._next("uniform", *asked)


def test_a_half_of_the_clips_is_changed_in_full_a_quarter_from_a_moment_and_a_quarter_up_to_it():
    dice = Dice([2, 3, 2, 4], [0.49, 0.5, 0.74, 0.75])
    found = pretext._intervals(4, 6, dice)
    assert dice.asked == [("integers", 2, 5, 4), ("random", 4)]
    assert found.astype(int).tolist() == [
        [1, 1, 1, 1, 1, 1],
        [0, 0, 0, 1, 1, 1],
        [0, 0, 1, 1, 1, 1],
        [1, 1, 1, 1, 0, 0],
    ]


def test_the_time_of_a_changed_clip_is_from_zero_on():
    dice, changed = Dice([2, 2, 3, 3, 2]), np.array([[0, 0, 1, 1, 1, 0]] * 5, bool)
    found = pretext._times(np.array(["light", "frozen", "fast", "backward", ""]), changed, dice)
    assert dice.asked == [("integers", 2, 4, 5)]
    assert found.tolist() == [
        [0, 1, 2, 3, 4, 5],
        [0, 1, 1, 1, 1, 2],
        [0, 1, 4, 7, 10, 11],
        [2, 3, 2, 1, 0, 1],
        [0, 1, 2, 3, 4, 5],
    ]


def test_light_goes_down_or_up_where_the_clip_is_changed():
    clips, mask = torch.full((2, 3, 2, 1, 1), 0.5), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    dice = Dice([0.69, 0.7], [0.2, 0.3], [1.5, 2.0])
    found = pretext._lit(clips, clips, mask, dice)
    assert dice.asked == [("random", 2), ("uniform", 0.1, 0.6, 2), ("uniform", 1.4, 2.5, 2)]
    assert found[:, 0, :, 0, 0].tolist() == [[0.5, pytest.approx(0.1)], [1.0, 0.5]]


def test_answers_that_do_not_vary_go_with_nothing():
    assert pretext._correlation(np.array([1.0, 2, 3]), np.array([2.0, 4, 6])) == pytest.approx(1.0)
    assert pretext._correlation(np.array([1.0, 2, 3]), np.array([3.0, 2, 1])) == pytest.approx(-1.0)
    assert (
        pretext._correlation(np.ones(3), np.arange(3.0))
        == pretext._correlation(np.arange(3.0), np.ones(3))
        == 0.0
    )
    assert pretext._mean({"a": 1.0, "b": 0.5}) == 0.75


def test_an_epoch_is_a_hundred_minibatches_and_each_its_own(monkeypatch):
    clips = pretext.Clips([ramp(), ramp(20)], PREPARED, pretext.Pretext(batch=4))
    assert clips.lengths.tolist() == [64, 20] and clips.starts.tolist() == [0, 64]
    monkeypatch.setattr(clips, "draw", lambda number: number)
    assert list(clips.batches(2)) == list(range(200, 300))


def test_clips_come_from_all_films_that_are_long_enough_and_reach_to_their_ends():
    """The first film is too short for a clip of 16 frames: only the second is cut, from its first frame to its last."""
    long = ramp(40) + 100
    clips = pretext.Clips([ramp(10), long], PREPARED, pretext.Pretext(batch=400))
    times = np.tile(np.arange(16), (400, 1))
    shown = (clips._cut(times, np.random.default_rng(0))[:, 0, :, 0, 0] * 255).round().numpy()
    assert (np.diff(shown, axis=1) == 1).all()
    assert (shown[:, 0].min(), shown[:, -1].max()) == (100, 139) and len(set(shown[:, 0])) == 25


def test_windows_reach_the_edges_and_half_of_the_clips_are_mirrored():
    wide = torch.arange(20, dtype=torch.uint8).view(1, 1, -1, 1).repeat(20, 18, 1, 3)
    clips = pretext.Clips([wide], PREPARED, pretext.Pretext(batch=64))
    lefts, mirrored = set(), 0
    for seed in range(30):
        row = (clips._cut(np.zeros((64, 1), np.int64), np.random.default_rng(seed))[:, 0, 0, 0] * 255).round()
        turned = row[:, 0] > row[:, -1]
        lefts |= set(torch.where(turned[:, None], row.flip(1), row)[:, 0].int().tolist())
        mirrored += int(turned.sum())
    assert lefts == {0, 1, 2, 3, 4} and mirrored / (64 * 30) == pytest.approx(0.5, abs=0.05)


@pytest.mark.slow
def test_a_fifth_of_the_clips_stays_as_it_is_and_each_task_has_its_share():
    chosen = pretext.Pretext(batch=2000)
    _, shares = pretext.Clips([ramp()], PREPARED, chosen).draw(0)
    changed = (shares > 0).sum(dim=1)
    assert set(changed.tolist()) == {0, 1} and (changed == 0).float().mean() == pytest.approx(0.2, abs=0.03)
    assert ((shares > 0).float().mean(dim=0) - 0.16).abs().max() < 0.03
    assert (shares[shares > 0] == 1).float().mean() == pytest.approx(0.5, abs=0.05)


def test_the_defaults_are_those_of_the_published_weights():
    assert pretext.Pretext() == pretext.Pretext(
        "motion", ("frozen", "fast", "backward", "light", "pasted"), 4000, 64, 2e-3, 0.05, "fp32", "cpu", 0
    )


@pytest.mark.parametrize(("frames", "fits"), [(19, True), (18, False)])
def test_a_film_is_long_enough_for_a_clip_at_the_highest_speed(tmp_path, monkeypatch, frames, fits):
    def read(path, prepared, met):
        met.frames = frames
        yield np.zeros((2, 16, 4, 4, 3), np.uint8)

    monkeypatch.setattr(pretext, "decoded", read)
    videos = [Video("a", tmp_path / "a", "train", "normal")]
    if fits:
        assert [len(film) for film in pretext.films(videos, PREPARED)] == [19]
        return
    with pytest.raises(UsageError, match="E-ANOMALY-6"):
        pretext.films(videos, PREPARED)


def test_a_piece_is_an_ellipse_or_a_rectangle_that_moves_and_shows_another_part_of_another_clip():
    """On a grid of five: it goes from the second column to the fourth, in the fourth row, of which 0.5 is a step."""

    def each(*values):
        return np.reshape(values, (2, 1, 1, 1))

    dice = Dice(
        *(
            each(0.5, 0.5),
            each(0.0, 0.0),
            each(0.0, 0.0),
            each(0.5, 0.5),
        ),  # row and its drift, column and its drift
        *(each(0.6, 0.6), each(0.6, 0.6), each(0.69, 0.7), each(0.5, 0.5), each(-0.5, -0.5)),
    )
    others = torch.arange(25.0).view(1, 1, 1, 5, 5).repeat(2, 3, 2, 1, 1)
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    found = pretext._pasted(torch.full((2, 3, 2, 5, 5), -1.0), others, mask, dice)
    ranges = [
        (-0.8, 0.8),
        (-0.3, 0.3),
        (-0.8, 0.8),
        (-0.6, 0.6),
        *[(0.15, 0.45)] * 2,
        (0, 1),
        *[(-0.5, 0.5)] * 2,
    ]
    assert dice.asked == [("uniform", *each, (2, 1, 1, 1)) for each in ranges]
    seen = found[:, 0] >= 0
    places = [[tuple(at) for at in frame.nonzero().tolist()] for clip in seen for frame in clip]
    assert places[0] == [(2, 1), (3, 0), (3, 1), (3, 2), (4, 1)]
    assert places[1] == [(2, 3), (3, 2), (3, 3), (3, 4), (4, 3)]
    assert places[2] == [(row, column) for row in (2, 3, 4) for column in (0, 1, 2)] and places[3] == []
    assert found[0, :, 0, 3, 1].tolist() == pytest.approx([8.0] * 3), "row 1 and column 3 of the other"
    assert found[0, 0, 1, 2, 3] == pytest.approx(3.0)


def test_the_edge_of_a_piece_is_no_part_of_it():
    """On a grid of five, of which 0.5 is a step: a piece of 0.5 to each side is its middle alone."""

    def each(*values):
        return np.reshape(values, (2, 1, 1, 1))

    still = [each(0.0, 0.0)] * 4
    dice = Dice(*still, each(0.5, 0.5), each(0.5, 0.5), each(0.69, 0.7), each(0.0, 0.0), each(0.0, 0.0))
    clips, others = torch.full((2, 3, 2, 5, 5), -1.0), torch.ones(2, 3, 2, 5, 5)
    found = pretext._pasted(clips, others, torch.ones(2, 2), dice)
    assert [at[2:] for at in (found[:, :, 0] >= 0).nonzero().tolist()] == [[2, 2]] * 6


def test_how_a_network_was_trained_is_told_in_plain_values(tmp_path):
    epochs = tuple(pretext.fit.Epoch(n, 100 * n, 1.0 / n, 0.5, 1.26) for n in (1, 2))
    told = pretext.about(pretext.Pretext(steps=7), pretext.Pretrained(tmp_path, 3, epochs, {"fast": 0.5}))
    assert (told["steps"], told["videos"], told["loss"], told["seconds"]) == (7, 3, 0.5, 2.5)
    assert told["found"] == {"fast": 0.5}


@pytest.mark.parametrize(("steps", "epochs"), [(100, 1), (101, 2), (1, 1), (250, 3)])
def test_the_plan_of_a_training(tmp_path, monkeypatch, steps, epochs):
    plans, looked = [], []

    def fitted(make, plan, *, judge):
        plans.append(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr(pretext.fit, "fit", fitted)
    monkeypatch.setattr(
        pretext, "films", lambda videos, prepared, split, threads: looked.append((split, threads)) or [ramp()]
    )
    with pytest.raises(KeyboardInterrupt):
        pretext.pretrain([], tmp_path / "x", pretext.Pretext(steps=steps, seed=3, precision="bf16"))
    wanted = pretext.fit.Plan(epochs, steps, 3, "cpu", "bf16", best=True)
    assert plans == [wanted] and looked == [("train", 2), ("validation", 2)]


def test_a_look_is_at_four_minibatches_that_are_always_the_same():
    drawn_ = []

    class Said(torch.nn.Module):
        def forward(self, batch):
            return batch

    class Clips:
        def draw(self, number):
            drawn_.append(number)
            done = torch.tensor([[0.0, 1.0], [1.0, 0.5]]) * (number + 1)
            return torch.stack([done[:, 0], -done[:, 1]], dim=1), done

    found = pretext._found(Said(), Clips(), pretext.Pretext(tasks=("fast", "light")))
    assert drawn_ == [0, 1, 2, 3] and list(found) == ["fast", "light"]
    assert found["fast"] > 0.9 and found["light"] < -0.9


@pytest.mark.parametrize(
    ("steps", "highest"), [(1, None), (3, None), (9, None), (10, 1), (11, None), (20, 1), (40, 3)]
)
def test_the_rate_rises_for_a_tenth_of_the_steps_and_falls_to_nothing(monkeypatch, steps, highest):
    """A network of one weight stands for the features; of few steps none rises, and ten were once an error."""
    entry = SimpleNamespace(module=lambda: torch.nn.Conv3d(1, 1, 1))
    monkeypatch.setattr(pretext.zoo, "get", lambda name: entry)
    chosen = pretext.Pretext(tasks=("fast",), steps=steps, learning_rate=0.5, weight_decay=0.25)
    made = pretext._task(pretext.Clips([ramp()], PREPARED, chosen), chosen)
    (group,) = made.optimizer.param_groups
    rates = [group["lr"]]
    for _ in range(steps - 1):
        made.optimizer.step()
        made.schedule.step()
        rates.append(group["lr"])
    assert (group["weight_decay"], made.schedule.total_steps) == (0.25, steps) and rates[-1] < 1e-5
    assert highest is None or (rates[highest] == pytest.approx(0.5) and rates[0] == pytest.approx(0.5 / 25))


def test_the_loss_of_a_pretext_is_the_cross_entropy_of_each_answer():
    chosen = pretext.Pretext(tasks=("fast",), steps=3)
    made = pretext._task(pretext.Clips([ramp()], PREPARED, chosen), chosen)
    logits, wanted = torch.tensor([[2.0], [-1.0]]), torch.tensor([[1.0], [0.0]])
    loss = made.loss(lambda batch: batch, (logits, wanted))
    assert float(loss) == pytest.approx((np.log1p(np.exp(-2)) + np.log1p(np.exp(-1))) / 2, rel=1e-5)
