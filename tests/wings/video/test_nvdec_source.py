"""NVDEC: its logic with a decoder of this file, and the decoder itself where there is a GPU."""

import json
import sys
import threading
import types
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.errors import ModelError, UnavailableError
from edgescope.frames import ReadsMany, Source
from edgescope.wings.video.sources import nvdec
from edgescope.wings.video.sources.nvdec import Nvdec
from films import all_of, film


class Tensor:
    """A surface, or a row of a batch."""

    shape, dtype, device = (48, 64, 3), "uint8", "cuda"

    def __init__(self, number=None) -> None:
        self.number = number

    def copy_(self, other):
        assert other.number is not None, "the surface was overwritten before it was copied"
        self.number = other.number


class Demuxer:
    def __init__(self, kind) -> None:
        self.kind = kind

    def GetNvCodecId(self):
        return "cudaVideoCodec.H264"

    def Width(self):
        return 64

    def Height(self):
        return 48

    def FrameRate(self):
        return 25.0

    def __iter__(self):
        return iter([*range(self.kind.frames), None])


class Decoder:
    """PyNvVideoCodec's decoder as far as it is used: two packets late, its surfaces overwritten by the next packet."""

    frames, fails, breaks_at = 10, "", None
    alive = 0

    def __init__(self, **options) -> None:
        if self.fails:
            raise RuntimeError(self.fails)
        assert options["usedevicememory"] and options["outputColorType"] == "RGB" and options["cudastream"]
        self.owner, self.held, self.given = threading.get_ident(), [], []
        type(self).alive += 1

    def Decode(self, packet):
        assert threading.get_ident() == self.owner, "one thread owns a decoder"
        if packet is not None and packet == self.breaks_at:
            raise RuntimeError("a surface is lost")
        for surface in self.given:
            surface.number = None
        self.held += [] if packet is None else [packet]
        keep = 0 if packet is None else 2
        ready = max(0, len(self.held) - keep)
        out, self.held = self.held[:ready], self.held[ready:]
        self.given = [Tensor(number) for number in out]
        return self.given

    def __del__(self) -> None:
        type(self).alive -= hasattr(self, "owner")


class Stream:
    cuda_stream = 7

    def synchronize(self):
        pass


@contextmanager
def faked(**differs):
    """PyNvVideoCodec and torch as far as they are used."""
    kind = type("Chosen", (Decoder,), differs)
    codec = types.SimpleNamespace(
        CreateDemuxer=lambda filename: Demuxer(kind),
        CreateDecoder=kind,
        OutputColorType=types.SimpleNamespace(RGB="RGB"),
    )
    cuda = types.SimpleNamespace(Stream=lambda gpu: Stream(), stream=nullcontext)
    torch = types.SimpleNamespace(
        from_dlpack=lambda got: got,
        empty=lambda shape, dtype, device: [Tensor() for _ in range(shape[0])],
        cuda=cuda,
    )
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(nvdec, "_library", lambda: (codec, torch))
        yield kind


@settings(deadline=None, max_examples=30)
@given(frames=st.integers(1, 70), ahead=st.integers(1, 40), take=st.integers(1, 50))
def test_frames_come_once_in_order_one_by_one_or_many(frames, ahead, take):
    with faked(frames=frames) as kind:
        single, many = Nvdec("a.mp4", ahead=ahead), Nvdec("a.mp4", ahead=ahead)
        assert [frame.image.number for frame in all_of(single)] == list(range(frames))
        found, sizes = [], []
        while batch := many.read_many(take):
            found += batch
            sizes.append(len(batch))
        assert [frame.index for frame in found] == list(range(frames))
        assert set(sizes[:-1]) <= {take} and sizes[-1] <= take
        looped = Nvdec("a.mp4", ahead=ahead, loop=True)
        twice = [looped.read(), *looped.read_many(2 * frames)]
        assert [frame.image.number for frame in twice] == [*range(frames), *range(frames), 0]
        for source in (looped, looped, single, many):
            source.close()
        assert looped.read() is None and looped.read_many(3) == []
        assert kind.alive == 0, "every decoder is ended with its source"


def test_a_decoder_that_breaks_on_the_way_gives_what_came_before_and_is_told():
    with faked(frames=90, breaks_at=66):
        source = Nvdec("a.mp4")
        assert len(source.read_many(64)) == 64
        with pytest.raises(ModelError, match=r"E-VIDEO-1: .*after 64 frames.*a surface is lost"):
            source.read()
        source.close()


def test_it_is_a_source_that_reads_many_with_facts():
    with faked():
        source = Nvdec("a.mp4")
    assert isinstance(source, Source) and isinstance(source, ReadsMany) and not source.live
    facts = json.loads(json.dumps(source.facts()))
    assert (facts["width"], facts["height"], facts["fps"], facts["codec"]) == (64, 48, 25.0, "h264")


def test_what_nvdec_cannot_read_is_told():
    told = r"E-VIDEO-1: a.mp4 .*RuntimeError: codec not supported.*source=a.mp4"
    with faked(fails="codec not supported"), pytest.raises(ModelError, match=told):
        Nvdec("a.mp4")
    with faked(frames=0), pytest.raises(ModelError, match="it holds no frame"):
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
    from edgescope.wings.video.sources.file import File

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


@pytest.mark.gpu("torch")
def test_nvdec_is_opened_and_closed_fifty_times_at_any_moment(tmp_path):
    """A decoder that was ended while its frames were in use, or by another thread, once ended the process."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("PyNvVideoCodec")
    path, wanted = film(tmp_path / "a.mp4", 100, size=(320, 240)), None
    for turn in range(50):
        idle, source = (
            Nvdec(path, loop=True),
            Nvdec(path, loop=True),
        )  # one that waits beside one that is read
        found = source.read_many(1 + 7 * turn)
        assert [frame.index for frame in found] == list(range(1 + 7 * turn))
        last = torch.stack([frame.image for frame in found]).float().mean(dim=(1, 2, 3)).cpu()
        wanted = last if wanted is None or len(last) > len(wanted) else wanted
        assert torch.equal(last, wanted[: len(last)]), "frames outlive what the decoder does next"
        (source if turn % 2 else idle).close()
        (idle if turn % 2 else source).close()
        assert torch.equal(
            torch.stack([frame.image for frame in found]).float().mean(dim=(1, 2, 3)).cpu(), last
        )


def test_frames_have_their_number_their_time_and_their_pass():
    with faked(frames=3):
        source = Nvdec("a.mp4", loop=True, ahead=2)
        found = source.read_many(7)
        assert [frame.index for frame in found] == list(range(7))
        assert [frame.time_s for frame in found] == [k / 25 for k in range(7)]
        facts = source.facts()
        assert facts["frames"] >= 7 and facts["passes"] >= 2 and facts["rotation"] is None
        assert facts["path"] == "a.mp4" and source.loop is True and source._ready.maxsize == 2
        source.close()
    with faked(frames=3):
        once = Nvdec("a.mp4")
        assert len(once.read_many(9)) == 3 and once.read() is None
        assert (once.facts()["passes"], once.facts()["frames"], once.loop, once._ahead) == (1, 3, False, 32)
        once.close()


def test_a_film_without_a_rate_has_no_times(monkeypatch):
    monkeypatch.setattr(Demuxer, "FrameRate", lambda self: 0)
    with faked(frames=2):
        source = Nvdec("a.mp4")
        assert np.isnan([frame.time_s for frame in source.read_many(2)]).all()
        assert source.facts()["fps"] is None and source.facts()["codec"] == "h264"
        source.close()


def test_a_decoder_is_made_for_the_gpu_and_stream_of_its_source():
    asked = []

    def noted(self, **options):
        asked.append(options)
        Decoder.__init__(self, **options)

    with faked(__init__=noted):
        Nvdec("a.mp4", gpu=3).close()
    options = {"codec": "cudaVideoCodec.H264", "cudacontext": 0, "cudastream": 7, "usedevicememory": True}
    assert asked == [{"gpuid": 3, **options, "outputColorType": "RGB"}]


@pytest.mark.parametrize("devices", [True, False])
def test_a_torch_without_a_device_cannot_decode(monkeypatch, devices):
    codec = types.ModuleType("PyNvVideoCodec")
    torch = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: devices), __version__="2.0")
    monkeypatch.setitem(sys.modules, "PyNvVideoCodec", codec)
    monkeypatch.setitem(sys.modules, "torch", torch)
    if devices:
        assert nvdec._library() == (codec, torch)
        return
    with pytest.raises(UnavailableError, match=r"torch 2\.0 has no CUDA device"):
        nvdec._library()
