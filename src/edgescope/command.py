"""Writes each field of a Trial as a flag, and a whole Trial as the `edgescope bench` command that runs it again.

The command line takes the names of its flags from here (`flag`). A test writes and reads back every field, so a
field that is added to Trial without a flag fails the tests instead of being lost from the command.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from edgescope import registry

if TYPE_CHECKING:  # records imports numpy, which --help must not wait for
    from edgescope.records import Json, Scalar, Trial

PIN = re.compile(r"#[0-9a-f]{12}$")
PINS = re.compile(r"#[0-9a-f]{12}(?=[ +]|$)")
"""The digest of a file's content after its name; parsing the command appends the file's digest at that time."""
NAMES: Mapping[str, str] = {
    "options": "--option",
    "workload_options": "--workload-option",
    "scenario_options": "--scenario-option",
    "idle_s": "--idle",
    "deadline_s": "--deadline",
    "min_s": "--min-duration",
    "max_s": "--max-duration",
    "replicate": "--replicates",
}
"""Flags whose names differ from their fields."""
SOAK_S = 60.0
"""A window of at least so many seconds is written as --soak, which extends the trial's time limit by its length."""


def flag(field: str) -> str:
    """Return the flag that sets a field of a Trial: `--in-flight` for in_flight."""
    return NAMES.get(field, f"--{field.replace('_', '-')}")


def bench_command(trial: Trial, replicates: int = 1) -> str:
    """Return the command that runs this trial again, in as many fresh processes as its replicate number needs."""
    return shlex.join(["edgescope", *bench_arguments(trial, replicates)])


def bench_arguments(trial: Trial, replicates: int = 1) -> list[str]:
    """Return the arguments after `edgescope`; parsing them gives `trial` back if its files are unchanged."""
    count = max(replicates, trial.replicate + 1)
    words = ["bench", PIN.sub("", trial.model)]
    for name in (field.name for field in dataclasses.fields(trial)):
        written = WRITTEN.get(name) or _usual(name)
        words += [word for value in written(trial) for word in _flagged(flag(name), value)]
    words += _window(trial) + _threads(trial)
    words += ["--allow-power-limit"] if "gpu_power=" in trial.mode else []
    return words + (_flagged(flag("replicate"), str(count)) if count > 1 else [])


def _flagged(name: str, value: str) -> list[str]:
    return [f"{name}={value}"] if value.startswith("-") else [name, value]


Written = Callable[["Trial"], Iterator[str]]
"""Yields the values that follow a field's flag, one for each time the flag is given."""


def _always(name: str) -> Written:
    return lambda trial: iter([str(getattr(trial, name))])


def _usual(name: str) -> Written:
    """Return a writer for a field that is left out at its default; file names lose the pin of their content."""

    def written(trial: Trial) -> Iterator[str]:
        value = getattr(trial, name)
        if isinstance(value, Mapping):
            yield from (f"{key}={option_text(_bare(part))}" for key, part in value.items())
        elif value != getattr(_plain(trial), name):
            timed = name == "warmup" or name.endswith("_s")
            yield (
                str(_bare(value)) if not isinstance(value, float) else (_seconds if timed else _number)(value)
            )

    return written


def _bare(value: Any) -> Any:
    return PIN.sub("", value) if isinstance(value, str) else value


def _plain(trial: Trial) -> Trial:
    """Return a trial of the same model with all other fields at their defaults."""
    return type(trial)(model=trial.model)


def _number(value: float) -> str:
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def _seconds(value: float) -> str:
    return f"{Decimal(repr(value)):f}".removesuffix(".0") + "s"


def _device(trial: Trial) -> Iterator[str]:
    """Yield the device if it is not the backend's default device."""
    if trial.backend not in registry.BACKENDS or registry.home(trial.backend) != trial.device:
        yield trial.device


def _shapes(trial: Trial) -> Iterator[str]:
    return (f"{name}={'x'.join(map(str, shape))}" for name, shape in trial.shapes.items())


def _options(trial: Trial) -> Iterator[str]:
    for name, value in trial.options.items():
        if not _is_threads(name, value):
            yield f"{name}={option_text(_bare(value) if name == 'calibration' else value)}"


def _is_threads(name: str, value: Json) -> bool:
    return name == "threads" and type(value) is int


def _threads(trial: Trial) -> list[str]:
    """Return the arguments of `threads`, the one option that has its own flag."""
    found = (str(v) for k, v in trial.options.items() if _is_threads(k, v))
    return [word for value in found for word in _flagged("--threads", value)]


def _colocated(trial: Trial) -> Iterator[str]:
    return iter([PINS.sub("", trial.colocated)] if trial.colocated else [])


def _nothing(trial: Trial) -> Iterator[str]:
    return iter(())


def _window(trial: Trial) -> list[str]:
    """Return the arguments for the length of the window: one flag if it is fixed, else flags for both bounds."""
    if trial.min_s == trial.max_s:
        return ["--soak" if trial.max_s >= SOAK_S else "--duration", _seconds(trial.max_s)]
    ends = [name for name in ("min_s", "max_s") if getattr(trial, name) != getattr(_plain(trial), name)]
    return [word for name in ends for word in (flag(name), _seconds(getattr(trial, name)))]


WRITTEN: Mapping[str, Written] = {
    "backend": _always("backend"),
    "device": _device,
    "precision": _always("precision"),
    "batch": _always("batch"),
    "shapes": _shapes,
    "colocated": _colocated,
    "options": _options,
    # the model comes first, without a flag; both bounds of the window are written together (_window); the number of
    # fresh processes comes last; bench measures a trial alone, and turns are taken by the verbs that compare
    **dict.fromkeys(("model", "min_s", "max_s", "replicate", "turn_s"), _nothing),
}
"""Field of a Trial -> its writer, where it is not written as its type is (_usual): if it differs from its default."""


# -- options: K=V, where V says its type ---------------------------------------------------------------------


def option_value(text: str) -> Scalar:
    """Parse the value of an option: true, false, numbers, `"1"` for the text 1, else the text unchanged."""
    if text in ("true", "false"):
        return text == "true"
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def option_text(value: Scalar) -> str:
    """Return the text of an option's value; `option_value` parses it to the same value of the same type."""
    plain = str(value).lower() if isinstance(value, bool) else str(value)
    read = option_value(plain)
    return plain if (type(read), read) == (type(value), value) else json.dumps(value)
