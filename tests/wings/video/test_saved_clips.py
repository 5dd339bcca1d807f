"""Clips of alarms: the right frames, in bounded memory, whatever the disk does and whoever is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgescope.frames import Frame
from edgescope.wings.video.alarm import Alarm
from edgescope.wings.video.sinks import Event
from films import number_of, picture

av = pytest.importorskip("av")

from edgescope.wings.video import clips as module  # noqa: E402
from edgescope.wings.video.clips import Clips, Length  # noqa: E402

pytestmark = pytest.mark.codec

FPS = 10


def frame(number, camera=0, size=(64, 48)):
    return Frame(picture(number % 64, *size), number, camera=camera, time_s=number / FPS)


def event(start_s, raised_s, end_s=0.0, *, number=1, camera=0, over=False):
    return Event(
        f"s-{number}", "film", Alarm(number, camera, start_s, raised_s, end_s, 0.9, raised_s, over=over)
    )


def feed(clips, numbers, camera=0, size=(64, 48)):
    for number in numbers:
        clips.frames([frame(number, camera, size)], [number / FPS])


def numbers_in(path):
    with av.open(str(path)) as container:
        return [
            (number_of(found.to_ndarray(format="rgb24")), float(found.time))
            for found in container.decode(video=0)
        ]


def test_a_clip_holds_what_was_before_during_and_after(tmp_path):
    clips = Clips(tmp_path, Length(before_s=0.5, after_s=0.3))
    feed(clips, range(20))
    clips.told(event(1.7, 1.9))
    feed(clips, range(20, 26))
    clips.told(event(1.7, 1.9, 2.5, over=True))
    feed(clips, range(26, 40))
    clips.close()
    found = numbers_in(tmp_path / "s-1.mp4")
    # the alarm starts at frame 17; the pre-roll of 0.5 s before the newest frame holds frames from 14 on
    assert [number for number, _ in found] == list(range(14, 29))
    assert [time_s for _, time_s in found] == pytest.approx([k / FPS for k in range(15)], abs=1e-3)
    assert clips.facts()["saved"] == 1 and not list(tmp_path.glob("*.part"))


def test_the_pre_roll_is_bounded_in_seconds_and_in_frames(tmp_path, monkeypatch):
    clips = Clips(tmp_path, Length(before_s=1.0))
    feed(clips, range(200))
    assert len(clips._before[0]) == 11
    monkeypatch.setattr(module, "MOST", 5)
    few = Clips(tmp_path, Length(before_s=1.0))
    feed(few, range(200))
    assert len(few._before[0]) == 5


def test_a_long_alarm_has_a_clip_of_a_bounded_length(tmp_path):
    clips = Clips(tmp_path, Length(before_s=0.2, most_s=1.0))
    feed(clips, range(5))
    clips.told(event(0.4, 0.4))
    feed(clips, range(5, 60))
    clips.close()
    assert len(numbers_in(tmp_path / "s-1.mp4")) == 11


def test_two_cameras_have_clips_of_their_own(tmp_path):
    clips = Clips(tmp_path, Length(before_s=0.5))
    for number in range(10):
        feed(clips, [number], camera=0)
        feed(clips, [number + 20], camera=1)
    clips.told(event(0.9, 0.9, number=1))
    clips.told(event(2.9, 2.9, number=2, camera=1))
    clips.close()
    assert numbers_in(tmp_path / "s-1.mp4")[-1][0] == 9 and numbers_in(tmp_path / "s-2.mp4")[-1][0] == 29


def test_a_large_frame_is_reduced_to_even_sides(tmp_path):
    clips = Clips(tmp_path)
    feed(clips, range(3), size=(1281, 721))
    clips.told(event(0.1, 0.1))
    clips.close()
    with av.open(str(tmp_path / "s-1.mp4")) as container:
        shape = next(container.decode(video=0)).to_ndarray(format="rgb24").shape
    assert shape == (360, 640, 3)


FULL = """
import resource, signal, sys
import numpy as np
from pathlib import Path
from edgescope.wings.video.alarm import Alarm
from edgescope.frames import Frame
from edgescope.wings.video.clips import Clips
from edgescope.wings.video.sinks import Event
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
clips = Clips(Path(sys.argv[1]))
rng = np.random.default_rng(0)

def feed(first):
    for k in range(first, first + 40):
        noise = rng.integers(0, 256, (120, 160, 3), dtype=np.uint8)
        clips.frames([Frame(noise, k, time_s=k / 10)], [k / 10])

def one(number, first):
    clips.told(Event(f"s-{number}", "film", Alarm(number, 0, first / 10, first / 10, 0.0, 0.9, 0.0)))
    feed(first)
    clips.told(Event(f"s-{number}", "film", Alarm(number, 0, first / 10, first / 10, first / 10, 0.9, 0.0, over=True)))
    feed(first + 40)
    clips.close()

resource.setrlimit(resource.RLIMIT_FSIZE, (20000, hard))
one(1, 0)
assert clips.facts()["failed"] == 1 and clips.facts()["saved"] == 0, clips.facts()
assert "s-1" in clips.facts()["problem"], clips.facts()
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
one(2, 1000)
assert clips.facts()["failed"] == 1 and clips.facts()["saved"] == 1, clips.facts()
"""


@pytest.mark.slow
def test_a_disk_that_is_full_is_counted_and_the_next_clip_is_saved(tmp_path):
    """The kernel refuses to let a file grow, as a full disk does, until there is room again."""
    subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], check=True, timeout=60)
    assert [path.name for path in tmp_path.iterdir()] == ["s-2.mp4"]


KILLED = """
import sys, time
import numpy as np
from pathlib import Path
from edgescope.wings.video.alarm import Alarm
from edgescope.frames import Frame
from edgescope.wings.video.clips import Clips
from edgescope.wings.video.sinks import Event
from films import picture
clips = Clips(Path(sys.argv[1]))
clips.told(Event("s-1", "film", Alarm(1, 0, 0.0, 0.0, 0.0, 0.9, 0.0)))
k = 0
while True:
    clips.frames([Frame(picture(k % 64), k, time_s=k / 10)], [k / 10])
    k += 1
    print(k, flush=True)
    time.sleep(0.005)
"""


@pytest.mark.slow
def test_the_clip_of_a_killed_process_can_be_played(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=here) as process:
        while int(process.stdout.readline()) < 120:
            pass
        os.kill(process.pid, signal.SIGKILL)
    clips = Clips(tmp_path)
    assert clips.facts()["cut_off"] == 1
    found = [number for number, _ in numbers_in(tmp_path / "s-1.cut.mp4")]
    assert len(found) >= 30 and found == [k % 64 for k in range(len(found))]


def test_the_pixels_of_a_clip_are_those_of_the_frame(tmp_path):
    clips = Clips(tmp_path)
    red = np.zeros((48, 64, 3), dtype=np.uint8) + np.array([200, 30, 30], dtype=np.uint8)
    clips.frames([Frame(red, 0, time_s=0.0)], [0.0])
    clips.told(event(0.0, 0.0))
    clips.close()
    with av.open(str(tmp_path / "s-1.mp4")) as container:
        seen = next(container.decode(video=0)).to_ndarray(format="rgb24")
    assert np.abs(seen.astype(int).mean(axis=(0, 1)) - [200, 30, 30]).max() < 12
