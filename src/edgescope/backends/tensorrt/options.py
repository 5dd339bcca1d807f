"""What a trial may ask of TensorRT beside precision and batch, read and checked before anything is built."""

from __future__ import annotations

from dataclasses import dataclass

from edgescope.artifacts.for_precision import TENSORRT_INT8_OPTIONS
from edgescope.backends.base import Spec, checked
from edgescope.backends.tensorrt import api_types as types
from edgescope.errors import UnsupportedError, UsageError

OPTIONS = {
    "workspace_mb": "scratch memory kernels may use (all)",
    "dla": "number of the DLA core to build for, the GPU taking what it cannot (none)",
    "graph": "launch as a CUDA graph (false)",
    "profile_min": "smallest batch the engine takes (the batch)",
    "profile_opt": "batch it is tuned for (the batch)",
    "profile_max": "largest batch it takes (the batch)",
    "timing_cache": "keep kernel timings between builds (true)",
    "builder_level": "0 to 5, how long to look for kernels; TensorRT 8.6 and later (3)",
    "build_timeout": "seconds a build may take; TensorRT 10 and later (none)",
    **TENSORRT_INT8_OPTIONS,
}


@dataclass(frozen=True)
class Options:
    """A trial's options, read and checked."""

    workspace_mb: int | None
    dla: int | None
    graph: bool
    profile: tuple[int, int, int]
    timing_cache: bool
    builder_level: int | None
    build_timeout: float | None

    @classmethod
    def of(cls, spec: Spec) -> Options:
        """Return the options of a spec; UsageError for a wrong value, UnsupportedError for a later TensorRT's."""
        checked("tensorrt", spec, OPTIONS)
        least, usual, most = (
            _whole(spec, f"profile_{name}", 1, spec.batch) or spec.batch for name in ("min", "opt", "max")
        )
        if not least <= usual <= most or not least <= spec.batch <= most:
            raise UsageError(
                "E-TRT-15",
                f"need profile_min <= profile_opt <= profile_max around the batch, not {least}, {usual}, {most}",
                evidence=f"batch {spec.batch}",
            )
        options = cls(
            _whole(spec, "workspace_mb", 1),
            _whole(spec, "dla", 0),
            _flag(spec, "graph", False),
            (least, usual, most),
            _flag(spec, "timing_cache", True),
            _whole(spec, "builder_level", 0),
            _whole(spec, "build_timeout", 1),
        )
        for name, since in (
            ("builder_level", types.OPTIMISATION_LEVEL),
            ("build_timeout", types.PROGRESS_MONITOR),
        ):
            if getattr(options, name) is not None and since > types.VERSION:
                raise UnsupportedError(
                    "E-TRT-16",
                    f"TensorRT {types.FULL_VERSION} has no {name}",
                    evidence=f"it came with {'.'.join(map(str, since))}",
                    effect="It would be left out of a trial that names it",
                    fix="leave the option out"
                    + ("; --timeout bounds the trial" if name == "build_timeout" else ""),
                )
        return options


def _whole(spec: Spec, name: str, least: int, default: int | None = None) -> int | None:
    value = spec.options.get(name, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError("E-OPT-2", f"{name} must be a whole number of at least {least}, not {value!r}")
    return value


def _flag(spec: Spec, name: str, default: bool) -> bool:
    value = spec.options.get(name, default)
    if not isinstance(value, bool):
        raise UsageError("E-OPT-2", f"{name} must be true or false, not {value!r}")
    return value
