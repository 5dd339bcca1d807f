"""Pickles of strangers, read without running any of their code: dicts, lists, strings, numbers and numpy arrays.

A pickle is a program: it names functions and calls them. Here every name that it may use stands for a class of this
module, which keeps what it is given and does nothing; any other name is refused. Arrays are made afterwards, from
bytes whose number must be that of the shape and the type. This reads what was written with Python 2, too: CIFAR's
batches, and the blobs of Caffe2 in which PySlowFast publishes its networks.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

DEEPEST = 8
"""How many containers may lie within each other."""
KIND = re.compile(r"[<>=|]?([biufc](?:1|2|4|8|16)|[SU]\d{1,6}|\?)")
"""Types of numbers and texts, as numpy writes them."""


class NotPlain(ValueError):
    """Why a pickle is not read: what it holds beside plain values, or what is damaged."""


class _Inert:
    """Whatever a pickle may call: it keeps its arguments and the state that it is given."""

    def __init__(self, *given: Any) -> None:
        self.given = given
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def value(self) -> Any:
        """Return the plain value that this stands for; NotPlain if it stands for none."""
        raise NotPlain(f"a {type(self).__name__.strip('_')} that is no value")


class _Type(_Inert):
    """numpy.dtype: `dtype('f4', 0, 1)`, whose state holds the order of bytes."""

    def numpy(self) -> np.dtype[Any]:
        """Return the type; NotPlain unless it is of numbers or text."""
        code = self.given[0] if self.given else None
        order = self.state[1] if isinstance(self.state, tuple) and len(self.state) > 1 else "="
        if isinstance(code, str) and KIND.fullmatch(code) and order in ("<", ">", "=", "|"):
            return np.dtype(code).newbyteorder(cast("Literal['<', '>', '=', '|']", order))
        raise NotPlain(f"an array of {str(code)[:40]!r}")


class _Array(_Inert):
    """numpy's _reconstruct: an empty array, whose state holds (version, shape, type, Fortran's order, bytes)."""

    def value(self) -> NDArray[Any]:
        """Return the array."""
        if not isinstance(self.state, tuple) or len(self.state) < 4:
            raise NotPlain("an array without its state")
        shape, kind, fortran, raw = self.state[-4:]
        return _made(raw, kind, shape, "F" if fortran else "C")


class _Buffer(_Inert):
    """numpy's _frombuffer of protocol 5: bytes, type, shape, order."""

    def value(self) -> NDArray[Any]:
        """Return the array."""
        if len(self.given) != 4 or self.given[3] not in ("C", "F"):
            raise NotPlain("an array without its shape")
        raw, kind, shape, order = self.given
        return _made(raw, kind, shape, order)


class _Scalar(_Inert):
    """numpy's scalar: type, bytes."""

    def value(self) -> Any:
        """Return a number, or a text."""
        if len(self.given) != 2:
            raise NotPlain("a number without its bytes")
        return _made(self.given[1], self.given[0], (), "C").item()


class _Bytes(_Inert):
    """_codecs.encode and bytes, by which Python 3 writes bytes for Python 2: a text and latin1, or nothing."""

    def value(self) -> bytes:
        """Return the bytes."""
        if len(self.given) == 2 and isinstance(self.given[0], str) and self.given[1] == "latin1":
            return self.given[0].encode("latin1")
        if not self.given:
            return b""
        raise NotPlain("bytes in another code than latin1")


class _Dict(_Inert, dict[Any, Any]):
    """collections.OrderedDict."""

    def __init__(self, *given: Any) -> None:
        _Inert.__init__(self)
        if given:
            raise NotPlain("an OrderedDict of other values")


ADMITTED: Mapping[tuple[str, str], Any] = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _Bytes,
    ("__builtin__", "bytes"): _Bytes,
    ("collections", "OrderedDict"): _Dict,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _Scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _Buffer for core in ("core", "_core")},
}
"""Module and name in a pickle -> what stands for it here."""


class _Reader(pickle._Unpickler):
    """The unpickler in Python: its memo is a dict, so no number in a file makes it take memory."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name; NotPlain if it is not admitted."""
        if (module, name) in ADMITTED:
            return ADMITTED[module, name]
        raise NotPlain(f"it names {module}.{name}"[:120])

    def get_extension(self, code: int) -> NoReturn:
        """Refuse a name that is a number."""
        raise NotPlain(f"it names the extension {code}")


def read(path: Path) -> Any:
    """Return the plain value in a file; NotPlain if it holds anything else or is damaged, OSError as `open` raises."""
    return loaded(path.read_bytes())


def loaded(data: bytes) -> Any:
    """Return the plain value of a pickle; NotPlain if it holds anything else or is damaged."""
    try:
        file = io.BytesIO(data)
        found = _Reader(file, encoding="latin1").load()
        if file.tell() < len(data):
            raise NotPlain("more follows behind its end")
        return _plain(found, DEEPEST, {})
    except NotPlain:
        raise
    except Exception as error:  # a damaged program fails in any way, and nothing of it has run
        raise NotPlain(f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]) from error


def _plain(held: Any, depth: int, known: dict[int, Any]) -> Any:
    """Return a value with its inert parts made; what occurs many times is made once."""
    if held is None or isinstance(held, bool | int | float | complex | str | bytes | bytearray):
        return held
    if not depth:
        raise NotPlain(f"more than {DEEPEST} containers within each other")
    if id(held) not in known:
        known[id(held)] = _container(held, depth - 1, known)
    return known[id(held)]


def _container(held: Any, depth: int, known: dict[int, Any]) -> Any:
    if isinstance(held, dict):
        return {_plain(key, depth, known): _plain(value, depth, known) for key, value in held.items()}
    if isinstance(held, list | tuple):
        items = [_plain(item, depth, known) for item in held]
        return tuple(items) if isinstance(held, tuple) else items
    if isinstance(held, _Inert):
        return held.value()
    raise NotPlain(f"a {type(held).__name__}"[:80])


def _made(raw: Any, kind: Any, shape: Any, order: Any) -> NDArray[Any]:
    """Return an array of bytes; NotPlain unless they are as many as its shape and type say."""
    if not isinstance(kind, _Type):
        raise NotPlain("an array without its type")
    found = kind.numpy()
    raw = raw.value() if isinstance(raw, _Bytes) else raw
    data = raw.encode("latin1") if isinstance(raw, str) else raw
    sizes = isinstance(shape, tuple) and len(shape) <= 32 and all(type(n) is int and n >= 0 for n in shape)
    if not sizes or not isinstance(data, bytes | bytearray):
        raise NotPlain("an array without its shape or bytes")
    if math.prod(shape) * found.itemsize != len(data):
        raise NotPlain(f"an array of {shape} {found} with {len(data)} bytes"[:120])
    return np.frombuffer(data, found).reshape(shape, order=order).copy()
