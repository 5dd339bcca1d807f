"""The names under which published checkpoints hold the weights, mapped to and from edgescope's own.

Each publisher has one table of patterns, `theirs -> ours`, in which {s} stands for a stage, {b} for a block and {x} for
the rest of a name. Every map is one to one, so a network can also be written for other programs. The names in a file
show who published it. PySlowFast's .pkl files of Caffe2 cannot be read: they are pickles, which can run code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from edgescope.errors import ModelError

Value = TypeVar("Value")

PARTS = {"1": "a", "2": "b", "3": "c"}
#: I3D, the 32x2 form: torchvision's names of a ResNet, stages from 1 on, `nl` within its block.
PORT_OF_32X2 = (
    ("conv1.{x}", "stem.{x}"),
    ("bn1.{x}", "stem_norm.{x}"),
    *((f"layer{{s}}.{{b}}.conv{n}.{{x}}", f"stages.{{s}}.{{b}}.{ours}.{{x}}") for n, ours in PARTS.items()),
    *(
        (f"layer{{s}}.{{b}}.bn{n}.{{x}}", f"stages.{{s}}.{{b}}.{ours}_norm.{{x}}")
        for n, ours in PARTS.items()
    ),
    ("layer{s}.{b}.downsample.{x}", "stages.{s}.{b}.shortcut.{x}"),
    ("layer{s}.{b}.nl.bn.{x}", "stages.{s}.{b}.non_local.norm.{x}"),
    ("layer{s}.{b}.nl.{x}", "stages.{s}.{b}.non_local.{x}"),
    ("fc.{x}", "fc.{x}"),
)
#: I3D, the 8x8 form: PySlowFast, stages from s2 on.
PYSLOWFAST = (
    ("s1.pathway0_stem.conv.{x}", "stem.{x}"),
    ("s1.pathway0_stem.bn.{x}", "stem_norm.{x}"),
    *(
        (f"s{{s}}.pathway0_res{{b}}.branch2.{n}.{{x}}", f"stages.{{s}}.{{b}}.{n}.{{x}}")
        for n in PARTS.values()
    ),
    *(
        (f"s{{s}}.pathway0_res{{b}}.branch2.{n}_bn.{{x}}", f"stages.{{s}}.{{b}}.{n}_norm.{{x}}")
        for n in PARTS.values()
    ),
    ("s{s}.pathway0_res{b}.branch1.{x}", "stages.{s}.{b}.shortcut.0.{x}"),
    ("s{s}.pathway0_res{b}.branch1_bn.{x}", "stages.{s}.{b}.shortcut.1.{x}"),
    ("s{s}.pathway0_nonlocal{b}.norm.{x}", "stages.{s}.{b}.non_local.norm.{x}"),
    ("s{s}.pathway0_nonlocal{b}.conv_{x}", "stages.{s}.{b}.non_local.{x}"),
    ("head.projection.{x}", "fc.{x}"),
)
#: RTFM as its authors publish it.
RTFM = (
    *((f"Aggregate.conv_{n}.0.{{x}}", f"dilated.{n - 1}.{{x}}") for n in (1, 2, 3)),
    *((f"Aggregate.conv_{n}.2.{{x}}", f"dilated_norms.{n - 1}.{{x}}") for n in (1, 2, 3)),
    ("Aggregate.conv_4.0.{x}", "narrow.{x}"),
    ("Aggregate.conv_5.0.{x}", "fuse.{x}"),
    ("Aggregate.conv_5.2.{x}", "fuse_norm.{x}"),
    ("Aggregate.non_local.W.0.{x}", "non_local.out.{x}"),
    ("Aggregate.non_local.W.1.{x}", "non_local.norm.{x}"),
    ("Aggregate.non_local.{x}", "non_local.{x}"),
    *((f"fc{n}.{{x}}", f"score.fc{n}.{{x}}") for n in (1, 2, 3)),
)
PUBLISHERS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "32x2": PORT_OF_32X2,
    "8x8": PYSLOWFAST,
    "rtfm": RTFM,
}
FIRST = {"32x2": 1, "8x8": 2, "rtfm": 0}
"""The number of a publisher's first stage; ours is 0."""
OLDER = ((re.compile(r"(_nonlocal\d+)\.bn\."), r"\1.norm."),)
"""Names of older files of a publisher -> its names of today."""


def to_ours(state: Mapping[str, Value], publisher: str) -> dict[str, Value]:
    """Return a published checkpoint's tensors under edgescope's names; ModelError names the first unknown name."""
    found = {}
    for name, value in state.items():
        today = name
        for pattern, new in OLDER:
            today = pattern.sub(new, today)
        ours = _mapped(today, PUBLISHERS[publisher], -FIRST[publisher])
        if ours is None:
            raise ModelError(
                "E-WEIGHTS-7",
                f"the checkpoint holds {name}, which {publisher} has not",
                evidence=f"{len(state)} tensors",
                effect="The weights were not loaded",
                fix="give the checkpoint of this very network; its form is in `edgescope docs anomaly`",
            )
        found[ours] = value
    return found


def to_theirs(state: Mapping[str, Value], publisher: str) -> dict[str, Value]:
    """Return tensors under edgescope's names under those of `publisher`."""
    back = tuple((ours, theirs) for theirs, ours in PUBLISHERS[publisher])
    named = ((_mapped(name, back, FIRST[publisher]), value) for name, value in state.items())
    return {name: value for name, value in named if name is not None}


def publisher_of(names: Iterable[str]) -> str:
    """Return the publisher whose names these are, or '' if they are edgescope's own."""
    known = set(names)
    signs = {
        "8x8": "s1.pathway0_stem.conv.weight",
        "32x2": "layer1.0.conv1.weight",
        "rtfm": "Aggregate.conv_1.0.weight",
    }
    return next((name for name, sign in signs.items() if sign in known), "")


def ours_of(state: Mapping[str, Value]) -> dict[str, Value]:
    """Return a checkpoint's tensors under edgescope's names, whoever published it."""
    publisher = publisher_of(state)
    return to_ours(state, publisher) if publisher else dict(state)


def _mapped(name: str, table: tuple[tuple[str, str], ...], shift: int) -> str | None:
    for theirs, ours in table:
        if found := _pattern(theirs).fullmatch(name):
            parts = found.groupdict()
            if "s" in parts:
                parts["s"] = str(int(parts["s"]) + shift)
            return ours.format(**parts)
    return None


def _pattern(text: str) -> re.Pattern[str]:
    escaped = re.escape(text)
    for key, pattern in (("s", r"\d+"), ("b", r"\d+"), ("x", r".+")):
        escaped = escaped.replace(rf"\{{{key}\}}", rf"(?P<{key}>{pattern})")
    return re.compile(escaped)
