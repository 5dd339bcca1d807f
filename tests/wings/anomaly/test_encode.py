"""Frames that were written are those that are read again, but for what compressing them costs."""

import av
import numpy as np
import pytest

from edgescope.wings.anomaly import generate


@pytest.mark.codec
def test_a_film_has_its_size_rate_and_frames(tmp_path):
    levels = np.array([20, 120, 220], np.uint8)
    frames = np.ones((3, 32, 48, 3), np.uint8) * levels[:, None, None, None]
    frames[:, :, 24:] = 128
    generate.write_film(tmp_path / "sub" / "a.mp4", frames, 25)
    with av.open(str(tmp_path / "sub" / "a.mp4")) as film:
        stream = film.streams.video[0]
        assert (stream.width, stream.height, stream.average_rate) == (48, 32, 25)
        read = [frame.to_ndarray(format="rgb24") for frame in film.decode(stream)]
    assert [int(frame[8, 8, 0]) for frame in read] == pytest.approx(levels.tolist(), abs=4)
    assert [int(frame[8, 40, 1]) for frame in read] == pytest.approx([128] * 3, abs=4)
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["a.mp4"]
