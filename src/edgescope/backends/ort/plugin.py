"""An execution provider that a package adds to ONNX Runtime, by name.

Such a provider is a library that the runtime loads. An option that it does not know it leaves aside, with a line on
stderr: that line is an error here (E-EP-2).
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort

from edgescope.backends.base import Spec, threads_of
from edgescope.errors import UnavailableError, UnsupportedError, UsageError
from edgescope.registry import need

OPTIONS = {
    "provider": "a plug-in execution provider: openvino, nv-tensorrt-rtx, webgpu ... (none)",
    "provider_library": "its library, a path (that of the package onnxruntime-ep-PROVIDER)",
    "provider_options": "its own options, a JSON object or key=value;key=value (none)",
}
RECORD = "session.record_ep_graph_assignment_info"
IGNORED = re.compile(
    r"\bignor|unrecogni[sz]ed|\bunknown (option|key|property)|not a (valid|known) option", re.I
)
_registering = threading.Lock()


@dataclass(frozen=True)
class Provider:
    """A registered provider: its name for the runtime, its devices at the trial's place, its options."""

    name: str
    devices: tuple[Any, ...]
    options: Mapping[str, str]

    def opened(self, path: Path | str, options: Any) -> Any:
        """Return a session of the file; UnsupportedError if the provider says that it ignores an option."""
        options.add_provider_for_devices(list(self.devices), dict(self.options))
        options.add_session_config_entry(RECORD, "1")
        options.log_severity_level = 2  # warnings, to read them
        with _stderr() as lines:
            session = ort.InferenceSession(str(path), options)
        if ignored := [line for line in lines if IGNORED.search(line)]:
            raise UnsupportedError(
                "E-EP-2",
                f"{self.name} ignores an option",
                evidence=ignored[0][-300:],
                effect="The number would stand beside a setting that was not in effect",
                fix="leave the option out, or give it as the provider takes it: --option provider_options=...",
            )
        return session


def wanted(spec: Spec) -> bool:
    """Return whether the options name a provider."""
    return bool(spec.options.get("provider"))


def chosen(spec: Spec) -> Provider:
    """Register the provider that the options name and return it; UnavailableError if it has no device at the place."""
    name = str(spec.options["provider"])
    library = str(spec.options.get("provider_library", "")) or _library(name)
    kind, known = spec.place.called("onnxruntime"), _registered(name, library)
    devices = [d for d in known if str(d.device.type).rpartition(".")[2] == kind]
    if not devices:
        offers = ", ".join(sorted({f"{d.ep_name} on {d.device.type}" for d in known})) or "no device"
        raise UnavailableError(
            "E-EP-1",
            f"the provider {name} has no {kind} here",
            evidence=f"{library} offers {offers}",
            effect="Nothing was measured",
            fix="another --device",
        )
    ep = str(devices[0].ep_name)
    mine = tuple(d for d in devices if d.ep_name == ep)[:1]
    return Provider(ep, mine, {**_asked(ep, kind, spec), **_given(spec)})


def _library(name: str) -> str:
    """Return the path of the library in the package that is named after a provider."""
    package = f"onnxruntime-ep-{name}"
    path = need(
        f"{package.replace('-', '_')}:get_library_path", f"the provider {name}", f"pip install {package}"
    )
    return str(path())


@functools.cache
def _registered(name: str, library: str) -> tuple[Any, ...]:
    """Register a library once in this process and return the devices that it adds."""
    with _registering:
        before = {(d.ep_name, str(d.device.type)) for d in ort.get_ep_devices()}
        try:
            ort.register_execution_provider_library(name, library)
        except Exception as error:  # the runtime's exceptions share no base class
            raise UnavailableError(
                "E-EP-1",
                f"ONNX Runtime {ort.__version__} cannot load the provider {name}",
                evidence=f"{library}: {' '.join(str(error).split())[:300]}",
                effect="Nothing was measured",
                fix=f"pip install onnxruntime-ep-{name} of a version that fits",
            ) from error
        return tuple(d for d in ort.get_ep_devices() if (d.ep_name, str(d.device.type)) not in before)


#: Precision -> OpenVINO's name for it.
HINTS = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}


def _asked(ep: str, kind: str, spec: Spec) -> dict[str, str]:
    """Return the options by which a provider that edgescope knows is asked for the precision and the threads."""
    if ep != "OpenVINOExecutionProvider":
        return {}
    config: dict[str, str] = {"INFERENCE_PRECISION_HINT": HINTS.get(spec.precision, "f32")}
    if (threads := threads_of(spec)) is not None:
        config["INFERENCE_NUM_THREADS"] = str(threads)
    return {"load_config": json.dumps({kind: config})}


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
