"""A camera, and the decoders of an NVIDIA board and card: each must give every frame, and what it shows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from edgescope import registry
from edgescope.errors import EdgescopeError
from edgescope.frames import Frame, Source
from edgescope.records import Json
from edgescope.wings.verify_board.check import Outcome, Status, judged, unsupported
from edgescope.wings.verify_board.site import Site

CLIP = Path(__file__).with_name("clip.mp4")
"""H.264 (main profile): a white block that moves over a gradient; made for this."""
FRAMES, WIDTH, HEIGHT = 30, 320, 240
LONGEST_S = 20.0
LAUNCH, INSPECT, STREAM = "gst-launch-1.0", "gst-inspect-1.0", "v4l2-ctl"
DECODER, CSI = "nvv4l2decoder", "nvarguscamerasrc"
RAW = "nvvidconv ! video/x-raw,format=BGRx"
"""Out of the decoder's memory, four bytes a pixel."""


def camera(site: Site) -> Outcome:
    """Take frames from the first V4L2 camera: with edgescope's own source, without PyAV or over ssh with v4l2-ctl."""
    found = site.run(["sh", "-c", "ls /dev/video* 2>/dev/null"], 10.0).text.split()
    if not found:
        return unsupported("there is no /dev/video*")
    if site.reached == "here" and find_spec("av"):
        return _own("camera", found[0], FRAMES)
    if not (program := site.find(STREAM)):
        return unsupported(f"there is no {STREAM} on PATH (sudo apt install v4l-utils)")
    argv = [program, "-d", found[0], "--stream-mmap", f"--stream-count={FRAMES}", "--stream-to=/dev/null"]
    said = site.run(argv, LONGEST_S)
    evidence: dict[str, Json] = {"device": found[0], "seconds": round(said.seconds, 2), "code": said.code}
    wrong = [] if said.code == 0 and not said.stopped else [f"{STREAM}: {said.stopped or said.last}"]
    return judged(wrong, f"{FRAMES} frames of {found[0]} in {said.seconds:.1f} s", evidence)


def camera_csi(site: Site) -> Outcome:
    """Take frames from a CSI camera through NVIDIA's own source."""
    if why := _without(site, CSI):
        return unsupported(why)
    pipeline = f"{CSI} num-buffers={FRAMES} ! video/x-raw(memory:NVMM),width=1280,height=720 ! {RAW}"
    return _launched(site, pipeline, 1280 * 720 * 4, "no CSI camera answered")


def decoder(site: Site) -> Outcome:
    """Decode a clip on the board's video engine: nvv4l2decoder, in GStreamer."""
    if why := _without(site, DECODER):
        return unsupported(why)
    pipeline = f"filesrc location={CLIP.name} ! qtdemux ! h264parse ! {DECODER} ! {RAW}"
    outcome = _launched(site, pipeline, WIDTH * HEIGHT * 4, "")
    if outcome.status is not Status.HOLDS or site.reached != "here" or not find_spec("av"):
        return outcome
    try:
        own = _own("gstreamer", str(CLIP), FRAMES)
    except EdgescopeError as error:
        own = Outcome(Status.FAILS, str(error.message))
    wrong = [] if own.status is Status.HOLDS else [f"edgescope's source: {own.says}"]
    return judged(wrong, outcome.says, {**outcome.evidence, "source": dict(own.evidence)})


def nvdec(site: Site) -> Outcome:
    """Decode a clip on the GPU's decoder, through PyNvVideoCodec; its frames are CUDA tensors."""
    return _own("nvdec", str(CLIP), FRAMES)


def _without(site: Site, element: str) -> str:
    """Return why a GStreamer element cannot run here, or ''."""
    for program in (LAUNCH, INSPECT):
        if not site.find(program):
            return f"there is no {program} on PATH"
    there = site.run([INSPECT, "--exists", element], 30.0)
    return "" if there.code == 0 else f"GStreamer has no {element} here"


def _launched(site: Site, pipeline: str, frame_bytes: int, nothing: str) -> Outcome:
    """Run a pipeline into a file and count the frames in it; `nothing` is what no frame means, if it is no fault."""
    quoted = pipeline.replace("(", "\\(").replace(")", "\\)")
    script = f"{LAUNCH} -q {quoted} ! filesink location=out.raw 2>&1; echo code $?; wc -c < out.raw"
    said = site.run(["sh", "-c", script], LONGEST_S, [CLIP])
    size = said.lines[-1][1].strip() if said.lines else ""
    frames, rest = divmod(int(size), frame_bytes) if size.isdigit() else (0, 0)
    evidence: dict[str, Json] = {"frames": frames, "seconds": round(said.seconds, 2), "said": said.last}
    if not frames and nothing:
        return unsupported(f"{nothing}: {said.last}", evidence)
    wrong = (
        [] if (frames, rest) == (FRAMES, 0) else [f"{frames} of {FRAMES} frames: {said.stopped or said.last}"]
    )
    return judged(wrong, f"{FRAMES} frames in {said.seconds:.1f} s", evidence)


def _own(kind: str, name: str, wanted: int) -> Outcome:
    """Read frames from one of edgescope's own sources, at most for LONGEST_S; those of the clip must show its block."""
    source: Source = registry.load(registry.SOURCES, kind, "source")(name)
    begun, times, other = time.monotonic(), list[int](), list[int]()
    try:
        for frame in _frames(source):
            times.append(frame.created_ns)
            if name == str(CLIP) and not _shows(frame):
                other.append(frame.index)
            if len(times) == wanted or time.monotonic() - begun > LONGEST_S:
                break
        about = {
            **source.facts(),
            **({"path": CLIP.name} if name == str(CLIP) else {}),
        }  # no folder of a person
    finally:
        source.close()
    seconds = time.monotonic() - begun
    evidence: dict[str, Json] = {"frames": len(times), "seconds": round(seconds, 2), "source": about}
    wrong = [] if len(times) == wanted else [f"{len(times)} of {wanted} frames in {seconds:.1f} s"]
    wrong += [] if times == sorted(times) else ["the times of its frames run backwards"]
    wrong += [f"{len(other)} frames show something else, the first of them {other[0]}"] if other else []
    return judged(wrong, f"{wanted} frames in {seconds:.1f} s", evidence)


def _shows(frame: Frame) -> bool:
    """Return whether a frame of the clip has the white block where it is at that time, and nothing white beside it."""
    middle, beside = 40 + 8 * frame.index, (180 + 8 * frame.index) % WIDTH
    pixels = frame.pixels
    return bool(pixels[80, middle].min() > 200 > pixels[80, beside].min())


def _frames(source: Source) -> Iterator[Frame]:
    while (frame := source.read()) is not None:
        yield frame
