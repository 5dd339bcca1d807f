"""A pipeline as data: its options and its stages, in a TOML file or in Python, with the same fields.

    source = "clip.mp4"          # any option of the workload `video`
    queue = "drop_oldest"

    [[stage]]
    name = "decode"              # decode, preprocess, infer, postprocess, crops, score and alarm are built in
    [[stage]]
    name = "blur"
    call = "my_stages:blur"      # a function of an Item, or a class whose instances are called with one
    threads = 2
    batch = 8                    # up to 8 frames in one call, of units that wait

Without stages it has the built-in ones: the first four, or for a head that scores snippets decode, preprocess, infer,
score and alarm.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from edgescope.errors import UsageError, closest_name
from edgescope.frames import Item
from edgescope.records import Scalar

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

USUAL_STAGES = ("decode", "preprocess", "infer", "postprocess")
"""The stages that every pipeline has."""
BUILT_IN = (*USUAL_STAGES, "crops", "score", "alarm")


@dataclass(frozen=True)
class Described:
    """One stage of a description."""

    name: str
    call: str = ""
    """`module:callable` of a stage of the user's own; '' for a built-in one."""
    threads: int = 1
    place: str = "cpu"
    """Where it computes: cpu or gpu; a stage on the GPU is waited for when stages are timed one by one."""
    batch: int = 0
    """Frames that one call takes at most: decode reads so many a unit, other stages join units that wait; 0: a unit."""

    def loaded(self) -> Callable[[Item], None]:
        """Return the user's function; UsageError E-PIPE-1 if it cannot be imported or made."""
        module, _, attribute = self.call.partition(":")
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            found: Any = getattr(importlib.import_module(module), attribute)
            stage: Any = found() if inspect.isclass(found) else found
        except Exception as error:  # it is the user's code
            raise _wrong(f"the stage {self.name} cannot be loaded from {self.call!r}", str(error)) from error
        return stage  # type: ignore[no-any-return]


USUAL = tuple(Described(name) for name in USUAL_STAGES)
SCORED = tuple(Described(name) for name in ("decode", "preprocess", "infer", "score", "alarm"))
"""The stages of a pipeline whose snippets a head scores."""


@dataclass(frozen=True)
class Description:
    """The stages of a pipeline, in order, and the options that differ from their defaults."""

    stages: tuple[Described, ...] = ()
    """() if none is named: the built-in ones."""
    options: Mapping[str, Scalar] = field(default_factory=dict)


def read(path: Path) -> Description:
    """Return what a TOML file describes; UsageError E-PIPE-1 names what is wrong with it."""
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise _wrong(f"{path} cannot be read as a pipeline", str(error)) from error
    rows = data.pop("stage", None)
    if rows is None:
        return Description(options=data)
    return Description(tuple(_stage(row) for row in _checked(rows)), data)


def _checked(rows: Any) -> list[Mapping[str, Any]]:
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows) or not rows:
        raise _wrong("the stages are no list of tables", "[[stage]] before each")
    names = [row.get("name") for row in rows]
    if names[0] != "decode":
        raise _wrong(f"the first stage is {names[0]!r}", "frames come from decode")
    if twice := sorted({str(name) for name in names if names.count(name) > 1}):
        raise _wrong(f"two stages are called {twice[0]}", "each needs a name of its own")
    if "infer" in names and "preprocess" not in names[: names.index("infer")]:
        raise _wrong("infer has no preprocess before it", f"stages: {', '.join(map(str, names))}")
    return rows


def _stage(row: Mapping[str, Any]) -> Described:
    known = {each.name for each in fields(Described)}
    for key in row:
        if key not in known:
            close = closest_name(key, known)
            raise _wrong(f"a stage has no key {key!r}", f"did you mean {close}?" if close else "")
    made = Described(**row)
    rules = (
        (isinstance(made.name, str) and made.name, "a stage has no name"),
        (isinstance(made.threads, int) and made.threads >= 1, f"{made.name}: threads must be at least 1"),
        (isinstance(made.batch, int) and made.batch >= 0, f"{made.name}: batch must be a number of frames"),
        (
            not made.batch or made.call or made.name in USUAL_STAGES,
            f"{made.name}: it takes unit after unit, so it has no batch",
        ),
        (made.place in ("cpu", "gpu"), f"{made.name}: place must be cpu or gpu, not {made.place!r}"),
        (made.call or made.name in BUILT_IN, f"{made.name} is not built in and has no call"),
        (not made.call or ":" in made.call, f"{made.name}: call must be module:callable, not {made.call!r}"),
    )
    for fits, problem in rules:
        if not fits:
            raise _wrong(problem, f"built in: {', '.join(BUILT_IN)}")
    return made


def _wrong(what: str, evidence: str) -> UsageError:
    return UsageError(
        "E-PIPE-1", what, evidence=evidence, effect="Nothing was measured", fix="edgescope docs video"
    )
