"""Training a feature network on normal videos alone: what is done to clips is what is said of them."""

import numpy as np
import pytest
import torch

import films
from edgescope.anomaly import pretext
from edgescope.anomaly.preparation import Preparation
from edgescope.anomaly.videos import Video
from edgescope.errors import UsageError
from edgescope.models import zoo

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


def test_a_network_learns_from_normal_training_videos_and_its_weights_are_the_zoos(tmp_path, monkeypatch):
    entry = zoo.table()["motion"] | {"input": [3, 16, 32, 32], "frame_size": [32, 32]}
    monkeypatch.setitem(zoo.table(), "motion", entry)
    monkeypatch.setattr(pretext, "LOOK", 1)
    seen = []
    monkeypatch.setattr(pretext.decode, "snippets", watching(pretext.decode.snippets, seen))
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
