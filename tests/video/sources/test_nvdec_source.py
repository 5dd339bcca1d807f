"""NVDEC: its logic with a decoder of this file, and the decoder itself where there is a GPU."""

import json
import sys
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import ModelError, UnavailableError
from edgescope.video.frame import ReadsMany, Source
from edgescope.video.sources import nvdec
from edgescope.video.sources.nvdec import Nvdec
from films import all_of, film


class Tensor:
    def __init__(self, number) -> None:
        self.number, self.copied = number, False

    def clone(self):
        made = Tensor(self.number)
        made.copied = True
        return made


class Decoder:
    """PyNvVideoCodec's ThreadedDecoder as far as it is used."""

    frames, fails = 10, ""

    def __init__(self, path, ahead, **options) -> None:
        if self.fails:
            raise RuntimeError(self.fails)
        assert options["use_device_memory"] and options["output_color_type"] == "RGB"
        self.next, self.ahead, self.ended = 0, ahead, False

    def get_stream_metadata(self):
        return types.SimpleNamespace(codec_name="h264", width=64, height=48, average_fps=25.0)

    def get_batch_frames(self, n):
        assert n <= self.ahead and not self.ended
        first, self.next = self.next, min(self.next + n, self.frames)
        return [Tensor(k) for k in range(first, self.next)]

    def end(self) -> None:
        self.ended = True


@pytest.fixture
def library(monkeypatch):
    kind = type("Chosen", (Decoder,), {})
    codec = types.SimpleNamespace(ThreadedDecoder=kind, OutputColorType=types.SimpleNamespace(RGB="RGB"))
    stream = types.SimpleNamespace(cuda_stream=0)
    torch = types.SimpleNamespace(
        from_dlpack=lambda got: got, cuda=types.SimpleNamespace(current_stream=lambda gpu: stream)
    )
    monkeypatch.setattr(nvdec, "_library", lambda: (codec, torch))
    return kind


@given(frames=st.integers(1, 70), ahead=st.integers(1, 40), take=st.integers(1, 50))
def test_frames_come_once_in_order_one_by_one_or_many(frames, ahead, take):
    with pytest.MonkeyPatch.context() as monkeypatch:
        kind = type("Chosen", (Decoder,), {"frames": frames})
        codec = types.SimpleNamespace(ThreadedDecoder=kind, OutputColorType=types.SimpleNamespace(RGB="RGB"))
        cuda = types.SimpleNamespace(current_stream=lambda gpu: types.SimpleNamespace(cuda_stream=0))
        torch = types.SimpleNamespace(from_dlpack=lambda got: got, cuda=cuda)
        monkeypatch.setattr(nvdec, "_library", lambda: (codec, torch))
        single, many = Nvdec("a.mp4", ahead=ahead), Nvdec("a.mp4", ahead=ahead)
        assert [frame.image.number for frame in all_of(single)] == list(range(frames))
        found, sizes = [], []
        while batch := many.read_many(take):
            found += batch
            sizes.append(len(batch))
        assert [frame.index for frame in found] == list(range(frames))
        assert all(frame.image.copied for frame in found), "the decoder uses its surfaces again"
        assert set(sizes[:-1]) <= {take} and sizes[-1] <= take
        looped = Nvdec("a.mp4", ahead=ahead, loop=True)
        twice = [looped.read(), *looped.read_many(2 * frames)]
        assert [frame.image.number for frame in twice] == [*range(frames), *range(frames), 0]
        looped.close()
        looped.close()
        assert looped.read() is None and looped.read_many(3) == []


def test_it_is_a_source_that_reads_many_with_facts(library):
    source = Nvdec("a.mp4")
    assert isinstance(source, Source) and isinstance(source, ReadsMany) and not source.live
    facts = json.loads(json.dumps(source.facts()))
    assert (facts["width"], facts["height"], facts["fps"], facts["codec"]) == (64, 48, 25.0, "h264")


def test_what_nvdec_cannot_read_is_told(library):
    library.fails = "codec not supported"
    with pytest.raises(
        ModelError, match=r"E-VIDEO-1: a.mp4 .*RuntimeError: codec not supported.*source=a.mp4"
    ):
        Nvdec("a.mp4")
    library.fails, library.frames = "", 0
    with pytest.raises(ModelError, match="it holds no frame"):
        Nvdec("a.mp4", loop=True).read()


@pytest.mark.parametrize("kind", [ImportError, RuntimeError])
def test_a_machine_without_it_is_told(monkeypatch, kind):
    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "PyNvVideoCodec":
                raise kind("no libnvidia-encode.so.1\nsteps to take")
            return None

    monkeypatch.delitem(sys.modules, "PyNvVideoCodec", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    with pytest.raises(
        UnavailableError, match=r"E-VIDEO-6: .*libnvidia-encode.*edgescope\[nvdec\]"
    ) as caught:
        Nvdec("a.mp4")
    assert "steps to take" not in str(caught.value)


@pytest.mark.gpu("torch")
def test_nvdec_decodes_what_the_cpu_decodes(tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("PyNvVideoCodec")
    pytest.importorskip("av")
    from edgescope.video.sources.file import File

    path = film(tmp_path / "a.mp4", 40, size=(320, 240))
    wanted = all_of(File(path))
    source = Nvdec(path)
    found = source.read_many(16) + source.read_many(16) + source.read_many(16)
    assert len(found) == len(wanted) == 40 and source.read() is None
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.image.is_cuda and mine.image.dtype == torch.uint8 and mine.index == theirs.index
        assert mine.image.shape == theirs.image.shape
        away = np.abs(mine.image.cpu().numpy().astype(int) - theirs.image.astype(int))
        assert away.mean() < 4 and np.percentile(away, 95) < 12
    source.close()
