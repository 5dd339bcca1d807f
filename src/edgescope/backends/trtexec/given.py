"""An engine that the user gives to trtexec: the file the trial pins, of its model and precision, for this board."""

from __future__ import annotations

import shlex
from pathlib import Path

from edgescope import cache
from edgescope.backends.base import Spec
from edgescope.backends.tensorrt import engine_file
from edgescope.backends.tensorrt.engine_file import EngineFacts
from edgescope.backends.trtexec.build import board_of
from edgescope.backends.trtexec.program import Tool
from edgescope.errors import UnsupportedError, UsageError
from edgescope.models.base import Model

#: Digits of the content that pin a file, as those of a model do.
DIGITS = 12


def given_engine(named: str, model: Model, spec: Spec, tool: Tool) -> tuple[Path, EngineFacts]:
    """Return the engine of `PATH#digest` and its facts.

    UsageError E-TRTX-16 where it is not pinned by content or is not the pinned file, UnsupportedError E-TRTX-17 where
    it is not of this model and precision, E-ENG-1 and E-ENG-2 as engine_file.check().
    """
    bare, mark, pin = named.rpartition("#")
    path = Path(bare if mark else named).expanduser().resolve()
    facts = engine_file.check(path, **board_of(tool))
    content = cache.content(path)[:DIGITS]
    if pin != content or not mark:
        raise UsageError(
            "E-TRTX-16",
            f"the engine {path.name} is not pinned by its content"
            if not mark
            else f"{path.name} is not the engine this trial was planned with",
            evidence=f"its content is {content}" + (f", planned {pin}" if mark else ""),
            effect="Two different engines would be filed as one trial",
            fix=f"--option {shlex.quote(f'engine={path}#{content}')}",
        )
    _same(facts, path, model, spec)
    return path, facts


def _same(facts: EngineFacts, path: Path, model: Model, spec: Spec) -> None:
    """Raise UnsupportedError where the engine is of another model or precision than the trial says."""
    built = (facts.precision, facts.flags.get("model_digest", "not told"))
    asked = (spec.precision, model.info.digest)
    if built == asked:
        return
    raise UnsupportedError(
        "E-TRTX-17",
        f"{path.name} is not an engine of {model.info.name} in {spec.precision}",
        evidence=f"its sidecar says {facts.model} in {built[0]}, model digest {built[1]}; asked {asked[1]}",
        effect="Its number would be filed under another model or precision",
        fix=f"--precision {built[0]}"
        if built[1] == asked[1]
        else "leave --option engine out: one is built from the model",
    )
