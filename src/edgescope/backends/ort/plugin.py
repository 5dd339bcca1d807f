"""An execution provider that a package adds to ONNX Runtime, by name, and a session on it.

Such a provider is a library that the runtime loads. It offers devices, and a trial's place says which of them. An
option that it does not know it leaves aside, with a line on stderr: that line is an error here (E-EP-2).

The provider fuses the graph, so the runtime's own graph and profile show nothing of what it computes in. At its
defaults it may take a reduced precision and all cores. So nothing is believed that was asked for:

* which operators it took is the runtime's own record of who got which node;
* its threads are those whose CPU time grows while it answers;
* its precision is what its answers show, where two things must agree. A small convolution with the identity as weights
  returns each input unchanged if the arithmetic keeps all of its bits: the first number that comes back changed tells
  how many are kept (bf16 7, fp16 and tf32 10, fp32 23), and a number beyond fp16's range tells tf32 from fp16. And the
  network's own answers lie as far from those of fp32 as that precision makes them: an engine that reduces large layers
  only is caught there.

The last two are looked at once, in the process that prepares the artifact, in a session with the same settings.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edgescope.artifacts.for_precision import unreadable
from edgescope.backends.base import Artifact, Spec, profile_folder, threads_of
from edgescope.backends.ort import cuda
from edgescope.errors import UnavailableError, UnsupportedError, UsageError
from edgescope.models.base import Batch
from edgescope.onnx_operators import HEAVY
from edgescope.process import scratch_folder
from edgescope.records import Effective, Json
from edgescope.records.trial import Place
from edgescope.registry import need

OPTIONS = {
    "provider": "a plug-in execution provider: openvino, nv-tensorrt-rtx, webgpu ... (none)",
    "provider_library": "its library, a path (that of the package onnxruntime-ep-PROVIDER)",
    "provider_options": "its own options, a JSON object or key=value;key=value (none)",
}
OPENVINO = "OpenVINOExecutionProvider"
HINTS = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}
"""Precision -> OpenVINO's name for it."""
CHOOSES = ("WebGpuExecutionProvider",)
"""Providers that take one of several GPUs by themselves, whichever they are given."""
RECORD = "session.record_ep_graph_assignment_info"
IGNORED = re.compile(
    r"\bignor|unrecogni[sz]ed|\bunknown (option|key|property)|not a (valid|known) option", re.I
)
DRIVER = re.compile(r"libcuda\.so\S* cannot open|libnvcuda", re.I)
"""What the loader says where a provider of NVIDIA's finds no driver."""
#: Seconds and queries over which threads are counted; a thread counts that computed for this share of the time.
COUNTED_S, COUNTED_QUERIES, BUSY_SHARE = 0.3, 5, 0.02
Floats = NDArray[np.floating[Any]]
BITS = {23: "fp32", 10: "fp16", 7: "bf16"}
"""Bits of the fraction that survive -> the precision; tf32 keeps as many as fp16, in the range of fp32."""
TOLD_APART = ("fp32", "tf32", "fp16", "bf16")
"""What can be told apart."""
CHANNELS, SIDE = 32, 16
BEYOND_FP16 = 131072.0
"""Twice what fp16 can hold."""
SAME_PRECISION = 1e-4
"""Relative L2 distance from fp32's answers: below it nothing was rounded to 16 bits, above it something was."""
WRONG = 0.25
"""Distance from which answers are wrong, whatever they were computed in."""
_registering = threading.Lock()


@dataclass(frozen=True)
class Provider:
    """A registered provider: its name for the runtime, its device at the trial's place, its options."""

    name: str
    device: Any
    options: Mapping[str, str]

    @property
    def version(self) -> str:
        """Return the version that the library itself states."""
        return str(dict(self.device.ep_metadata).get("version", "of unknown version"))

    def opened(self, path: Path, options: Any) -> Any:
        """Return a session of the file; UnsupportedError if the provider says that it ignores an option."""
        options.add_provider_for_devices([self.device], dict(self.options))
        options.add_session_config_entry(RECORD, "1")
        options.log_severity_level = 2  # warnings, to read them
        try:
            with _stderr() as lines:
                session = ort.InferenceSession(str(path), options)
        except Exception as error:  # the runtime's exceptions share no base class
            raise unreadable("E-ONNX-1", self.name, path, error) from error
        if said := [line for line in lines if IGNORED.search(line)]:
            raise ignored(self.name, said[0][-300:], "--option provider_options=, as the provider takes it")
        return session


def ignored(name: str, evidence: str, fix: str) -> UnsupportedError:
    """Return the error for a setting that was not in effect."""
    return UnsupportedError("E-EP-2", f"{name} leaves a setting aside", evidence=evidence, fix=fix)


def wanted(spec: Spec) -> bool:
    """Return whether the options name a provider; UsageError where they do not go together."""
    given = [name for name in OPTIONS if spec.options.get(name)]
    if not given:
        return False
    if "provider" not in given:
        raise UsageError("E-OPT-4", f"{given[0]}: of which provider", fix="--option provider=NAME as well")
    if alien := sorted(set(spec.options) - {*OPTIONS, "threads"}):
        raise UsageError(
            "E-OPT-4",
            f"{', '.join(alien)}: not with a plug-in provider",
            fix="--option provider_options=, for its own",
        )
    if "threads" in spec.options and not spec.place.is_host:
        raise UsageError("E-OPT-4", f"threads: a provider takes none on {spec.device}", fix="leave it out")
    return True


def chosen(spec: Spec) -> Provider:
    """Register the provider that the options name and return it; UnavailableError if it has no device at the place."""
    name = str(spec.options["provider"])
    library = str(spec.options.get("provider_library", "")) or _library(name)
    known = _registered(name, library)
    found = [device for device in known if _at(device, spec.place)]
    if not found:
        raise _no_device(name, spec.place, known)
    ep = str(found[0].ep_name)
    if ep in CHOOSES and len(known) > 1:
        raise UnsupportedError(
            "E-EP-4",
            f"{ep} chooses among {len(known)} devices by itself",
            evidence=_listed(known),
            fix="another provider",
        )
    return Provider(ep, found[0], {**_asked(ep, spec), **_given(spec)})


def _at(device: Any, place: Place) -> bool:
    """Return whether a device that the runtime lists is one of the place's."""
    return _kind(device) == place.called("onnxruntime") and place.vendor in (0, device.device.vendor_id)


def _kind(device: Any) -> str:
    """Return CPU, GPU or NPU."""
    return str(device.device.type).rpartition(".")[2]


def _no_device(name: str, place: Place, known: Iterable[Any]) -> UnavailableError:
    other = "--backend openvino, which takes every x86 CPU" if place.is_host else "another --device"
    return UnavailableError(
        "E-EP-1",
        f"the provider {name} has no {place.word} here",
        evidence=f"it offers {_listed(known)}; ONNX Runtime finds {_listed(ort.get_ep_devices())}",
        fix=f"another provider, or {other}",
    )


def _listed(devices: Iterable[Any]) -> str:
    """Return `Intel CPU, Intel GPU`, of what the runtime lists."""
    parts = sorted({f"{d.device.vendor} {_kind(d)}".strip() for d in devices})
    return ", ".join(parts) or "no device"


def _library(name: str) -> str:
    """Return the path of the library in the package that is named after a provider."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise UsageError(
            "E-OPT-4", f"provider={name}", fix="the end of a package's name: onnxruntime-ep-NAME"
        )
    package = f"onnxruntime-ep-{name}"
    target = f"{package.replace('-', '_')}:get_library_path"
    return str(need(target, f"the provider {name}", f"pip install {package}")())


@functools.cache
def _registered(name: str, library: str) -> tuple[Any, ...]:
    """Register a library once in this process and return the devices that it adds."""
    if not hasattr(ort.InferenceSession, "get_provider_graph_assignment_info"):
        why = "it does not record which provider got which operator"
        raise _unloaded(name, why, "pip install --upgrade onnxruntime")
    with _registering:
        before = {_key(device) for device in ort.get_ep_devices()}
        try:
            ort.register_execution_provider_library(name, library)
        except Exception as error:  # the runtime's exceptions share no base class
            said = " ".join(str(error).split())
            raise _unloaded(name, f"{library}: {said[:300]}", _remedy(name, said)) from error
        return tuple(device for device in ort.get_ep_devices() if _key(device) not in before)


def _remedy(name: str, said: str) -> str:
    """Return what helps a library that did not load, by what the runtime said."""
    if DRIVER.search(said):
        return "install the NVIDIA driver, which brings libcuda.so.1, on a machine with such a GPU"
    return f"pip install --upgrade onnxruntime onnxruntime-ep-{name}"


def _key(device: Any) -> tuple[str, str]:
    return str(device.ep_name), _kind(device)


def _unloaded(name: str, why: str, fix: str) -> UnavailableError:
    what = f"ONNX Runtime {ort.__version__} cannot load the provider {name}"
    return UnavailableError("E-EP-3", what, evidence=why, fix=fix)


def _asked(ep: str, spec: Spec) -> dict[str, str]:
    """Return the options by which a provider that edgescope knows is asked for the precision and the threads."""
    if ep != OPENVINO:
        return {}
    config = {"INFERENCE_PRECISION_HINT": HINTS.get(spec.precision, "f32")}
    if (threads := threads_of(spec)) is not None:
        config["INFERENCE_NUM_THREADS"] = str(threads)
    return {"load_config": json.dumps({spec.place.called("onnxruntime"): config})}


def _given(spec: Spec) -> dict[str, str]:
    """Return the provider's own options as the user gave them."""
    text = str(spec.options.get("provider_options", ""))
    if text.lstrip().startswith("{"):
        try:
            return {str(k): v if isinstance(v, str) else json.dumps(v) for k, v in json.loads(text).items()}
        except ValueError as error:
            raise UsageError("E-OPT-4", f"provider_options is no JSON object: {error}") from error
    pairs = [part.partition("=") for part in text.split(";") if part]
    if odd := [key for key, sep, _ in pairs if not sep]:
        raise UsageError("E-OPT-4", f"provider_options: {odd[0]!r} has no value", fix="key=value;key=value")
    return {key.strip(): value for key, _, value in pairs}


@contextmanager
def _stderr() -> Iterator[list[str]]:
    """Collect the lines that anything in this process writes to stderr within the block, C++ too."""
    lines: list[str] = []
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()


def witnessed(
    path: Path, spec: Spec, options: Callable[[], Any], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Json]:
    """Return what sessions with these settings are seen to do: {precision, distance, threads}.

    `options` makes the session options anew; `shapes` are those of the inputs.
    """
    provider = chosen(spec)
    session = provider.opened(path, options())
    batch = _inputs(session, shapes)
    count = busy_threads(lambda: session.run(None, batch))  # while no other session has threads that may spin
    answers = session.run(None, batch)
    plain = ort.InferenceSession(str(path), options(), providers=["CPUExecutionProvider"])
    distance = distance_apart(answers, plain.run(None, batch))
    with scratch_folder("ort-provider") as folder:
        small = provider.opened(_identity_network(Path(folder) / "identity.onnx"), ort.SessionOptions())
        kept = precision_kept(lambda x: small.run(None, {"x": x})[0])
    if (asked := threads_of(spec)) is not None and count > asked:
        raise ignored(provider.name, f"{count} threads computed, {asked} asked", "leave --option threads out")
    return {"precision": agreed_precision(kept, distance), "distance": distance, "threads": count}


def _inputs(session: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[Any]]:
    """Return noise for every input; zeros where it takes whole numbers."""
    rng, found = np.random.default_rng(0), {}
    for port in session.get_inputs():
        kind, shape = cuda.dtype(port.type), shapes[port.name]
        noise = rng.standard_normal(shape) if kind.kind == "f" else np.zeros(shape)
        found[port.name] = noise.astype(kind)
    return found


class ProvidedSession:
    """One InferenceSession on a plug-in provider; inputs and outputs are numpy arrays on the host."""

    def __init__(self, artifact: Artifact, options: Any) -> None:
        assert artifact.path is not None
        self.spec, self.seen = artifact.spec, artifact.notes["provided"]
        self.provider = chosen(self.spec)
        self.session = self.provider.opened(artifact.path, options)
        self.run = self.session.run

    def __call__(self, batch: Batch) -> Sequence[NDArray[Any]]:
        """Return the outputs in the file's order."""
        return cast(Sequence[NDArray[Any]], self.run(None, batch))

    def effective(self) -> Effective:
        """Return the device of the heavy operators, by this session's record, and what its like was seen to do."""
        ran = operators(self.session)
        other = elsewhere(ran, self.provider.name)
        device = " and ".join((self.spec.device, *other))
        mine = sum(n for key, n in ran.items() if key.endswith(f" {self.provider.name}"))
        if not mine:
            device = ", ".join(other) or "no heavy operator"
        threads = self.seen["threads"] if self.spec.place.is_host else None
        evidence = (
            f"{self.provider.name} {self.provider.version}: {mine} heavy operators, answers "
            f"{self.seen['distance']:.2g} from fp32's, {self.seen['threads']} threads of the host computed"
        )
        return Effective(device, self.seen["precision"], threads, evidence)

    def close(self) -> None:
        """Drop the session; the runtime writes its profile if it was asked for one."""
        if profile_folder() is not None:
            self.session.end_profiling()
        del self.run, self.session


def operators(session: Any) -> dict[str, Json]:
    """Return {"Conv OpenVINOExecutionProvider": n} of the heavy operators, by the runtime's record of who got them."""
    found: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        found.update(f"{n.op_type} {part.ep_name}" for n in part.get_nodes() if n.op_type in HEAVY)
    return dict(found)


def busy_threads(answer: Callable[[], object]) -> int:
    """Return how many threads of this process compute while it answers."""
    answer()
    before, start, n = _run_ns(), time.monotonic_ns(), 0
    while n < COUNTED_QUERIES or time.monotonic_ns() - start < COUNTED_S * 1e9:
        answer()
        n += 1
    least = BUSY_SHARE * (time.monotonic_ns() - start)
    return sum(ns - before.get(tid, 0) >= least for tid, ns in _run_ns().items())


def _run_ns() -> dict[str, int]:
    """Return the nanoseconds that each thread of this process has been on a CPU."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            found[task.name] = int((task / "schedstat").read_text().split()[0])
        except (OSError, IndexError, ValueError):
            continue  # it has just ended
    return found


def elsewhere(ran: Mapping[str, int], provider: str) -> Sequence[str]:
    """Return the heavy operators that other providers took, as `2 Conv on CPUExecutionProvider`."""
    parts = ((key.split(" "), n) for key, n in sorted(ran.items()))
    return [f"{n} {kind} on {on}" for (kind, on), n in parts if on != provider]


def _identity_network(path: Path) -> Path:
    """Write the convolution as an ONNX file."""
    from onnx import TensorProto, helper, numpy_helper, save

    weights = np.eye(CHANNELS, dtype=np.float32)[:, :, None, None]
    shape = [1, CHANNELS, SIDE, SIDE]
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "identity",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(weights, "w")],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def _telling_inputs() -> NDArray[np.float32]:
    """Return the inputs: channel k holds 1 + 2^-k, and the first pixel one number that fp16 cannot hold."""
    rows = (1 + 2.0 ** -np.arange(CHANNELS)).astype(np.float32)
    x = np.array(np.broadcast_to(rows[None, :, None, None], (1, CHANNELS, SIDE, SIDE)))
    x[0, :, 0, 0] = 0  # there infinity times 0 spoils every channel
    x[0, 0, 0, 0] = BEYOND_FP16
    return x


def precision_kept(run: Callable[[NDArray[np.float32]], Floats]) -> str:
    """Return the precision of a session of the identity network: fp32, tf32, fp16, bf16, or how many bits it kept."""
    x = _telling_inputs()
    y = np.asarray(run(x))
    same = (y[0, :, 1:] == x[0, :, 1:]).all(axis=(1, 2))
    kept = next((k - 1 for k in range(1, 24) if not same[k]), 23)
    name = BITS.get(kept, f"{kept} bits")
    return "tf32" if name == "fp16" and y[0, 0, 0, 0] == BEYOND_FP16 else name


def distance_apart(answers: Sequence[Floats], reference: Sequence[Floats]) -> float:
    """Return the relative L2 distance of a network's answers from fp32's, over all outputs."""
    gap = sum(
        float(np.square(np.asarray(a, np.float64) - b).sum()) for a, b in zip(answers, reference, strict=True)
    )
    size = sum(float(np.square(np.asarray(b, np.float64)).sum()) for b in reference)
    return float(np.sqrt(gap / size)) if size else float(gap > 0)


def agreed_precision(small: str, distance: float) -> str:
    """Return the precision that the small network and the distance of the large one's answers both speak for."""
    if not distance < WRONG:
        return f"unknown (answers {distance:.2g} from fp32's)"
    if (small == "fp32") != (distance <= SAME_PRECISION):
        return f"mixed ({small}, answers {distance:.2g} from fp32's)"
    return small
