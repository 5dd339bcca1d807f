"""From the word of --metric to what it means: a measure of edgescope's, or a function of the user's.

    top1, top5, map, miou     a measure of labelled inputs (verify.measures)
    map@module:callable       map of the boxes that the user's callable(outputs) reads from the outputs
    agreement                 agreement with the fp32 network, whatever labels there are
    module:callable           the user's own: callable(outputs, labels) -> a number, of which more is better
    live:NAME                 a function given in Python, kept in the cache

A name that refers to code is pinned, `module:callable#0123456789ab`, by the source file that defines it, so that a
trial never silently means another measure. A function that no file defines is stored by its content.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgescope import cache
from edgescope.errors import ModelError, UsageError, closest_name
from edgescope.models import zoo
from edgescope.records import digest
from edgescope.registry import need

WORDS = ("top1", "top5", "map", "miou", "agreement")
PIN = re.compile(r"#([0-9a-f]{12})$")
LIVE = "live:"
READ_BY = "map@"
"""What the name of a function that reads outputs as boxes stands after."""
PICKLE = "pip install cloudpickle"


def named(metric: str | Callable[..., Any]) -> str:
    """Return what a Trial carries for a measure: its word, or the pinned name of a function."""
    if callable(metric):
        return _kept(metric)
    bare = PIN.sub("", metric)
    if not bare or bare in WORDS:
        return bare
    if bare.startswith(LIVE):
        return metric
    module, _, name = bare.removeprefix(READ_BY).partition(":")
    source = zoo.source_file(module) if name else None
    if source is None:
        close = closest_name(bare, WORDS)
        raise UsageError(
            "E-MEAS-1",
            f"no measure is called {bare!r}",
            evidence=f"known: {', '.join(WORDS)}; or module:callable, or map@module:callable, in the current folder",
            fix=f"--metric {close}" if close else "--metric MODULE:FUNCTION",
        )
    return f"{bare}#{zoo.file_digest(source)}"


def _kept(metric: Callable[..., Any]) -> str:
    """Return the name of a live function: module:callable if a module holds it, else that of its copy in the cache."""
    module, name = str(getattr(metric, "__module__", "")), str(getattr(metric, "__qualname__", ""))
    found = sys.modules.get(module)
    if module != "__main__" and getattr(found, name, None) is metric and zoo.source_file(module):
        return named(f"{module}:{name}")
    data: bytes = need("cloudpickle:dumps", "cloudpickle", PICKLE)(metric)
    content = digest([data.hex()])[:12]
    path = _path(content)
    if not path.exists():
        with cache.writing(path) as temporary:
            temporary.write_bytes(data)
    return f"{LIVE}{getattr(metric, '__name__', type(metric).__name__).strip('<>')}#{content}"


def kept(metric: str) -> Path:
    """Return the file in the cache that holds a live function."""
    return _path(metric.rpartition("#")[2])


def _path(content: str) -> Path:
    return cache.folder("metrics") / f"{content}.pkl"


def decoded_by(metric: str) -> Callable[..., Any] | None:
    """Return the user's function that reads outputs as boxes, or None if the measure names none.

    ModelError as `function` raises it.
    """
    return function(metric) if metric.startswith(READ_BY) else None


def function(metric: str) -> Callable[..., Any]:
    """Return the user's function of this name; ModelError if it is gone, another one now, or cannot be imported."""
    bare, pin = PIN.sub("", metric), PIN.search(metric)
    if bare.startswith(LIVE):
        if pin is None or not _path(pin[1]).exists():
            raise ModelError(
                "E-MEAS-2",
                f"the measure {bare.removeprefix(LIVE)} was given in Python, and its copy is gone from the cache",
                fix="edgescope.optimize(..., metric=FUNCTION) once more",
            )
        live: Callable[..., Any] = need("cloudpickle:loads", "cloudpickle", PICKLE)(
            _path(pin[1]).read_bytes()
        )
        return live
    if pin and named(bare) != metric:
        raise ModelError(
            "E-MEAS-3",
            f"{bare} is not the measure this trial was planned with",
            evidence=f"content {named(bare)[-12:]}, planned {pin[1]}",
            effect="Its figures would be filed under another measure",
            fix=f"plan again with --metric {bare}",
        )
    module, _, name = bare.removeprefix(READ_BY).partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except Exception as error:  # a user's module may raise anything while it is imported
        raise ModelError(
            "E-MEAS-4",
            f"the measure {bare} cannot be imported",
            evidence=f"{type(error).__name__}: {error}"[:300],
            fix="run edgescope in the folder that holds the module, and check the name after the colon",
        ) from error
    return found
