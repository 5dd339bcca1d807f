"""An execution provider that a package adds to ONNX Runtime, by name.

Such a provider is a library that the runtime loads. It offers devices, and a trial's place says which of them. An
option that it does not know it leaves aside, with a line on stderr: that line is an error here (E-EP-2).
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort

from edgescope.artifacts.for_precision import unreadable
from edgescope.backends.base import Spec, threads_of
from edgescope.errors import UnavailableError, UnsupportedError, UsageError
from edgescope.records.place import Place
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
            why = f"{library}: {' '.join(str(error).split())[:300]}"
            raise _unloaded(name, why, f"pip install --upgrade onnxruntime onnxruntime-ep-{name}") from error
        return tuple(device for device in ort.get_ep_devices() if _key(device) not in before)


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
