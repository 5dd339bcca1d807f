"""Classes that share their methods, beside the standard library's of the same text."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from typing import Any, ClassVar

import pytest

from edgescope import dataclass as shared
from edgescope.records import Measured

BAD: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((), {}),
    ((1,), {"a": 2}),
    ((1,), {"unknown": 2}),
    ((1, 2, 3, 4, 5), {}),
    ((), {"b": "x"}),
)


def pair(decorate: Any) -> tuple[type, type]:
    """Return a class and a class that inherits from it."""

    @decorate(frozen=True)
    class Base:
        """A base."""

        KIND: ClassVar[str] = "base"
        a: int
        b: str = "b"
        c: list[int] = dataclasses.field(default_factory=list)
        d: float = dataclasses.field(default=1.5, metadata={"unit": "s"})

        def __post_init__(self) -> None:
            object.__setattr__(self, "b", self.b.upper())

    @decorate(frozen=True, kw_only=True)
    class Derived(Base):
        """Derived."""

        e: int
        b: str = "other"

    return Base, Derived


OURS, THEIRS = pair(shared.dataclass), pair(dataclasses.dataclass)
GIVEN: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((1,), {}),
    ((1, "x"), {"d": 2.0}),
    ((), {"a": 1, "c": [3]}),
)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(("given", "named"), GIVEN)
def test_an_object_is_what_the_standard_library_would_make(number, given, named):
    more = {"e": 5} if number else {}
    if number and len(given) > 1:
        given, named = given[:1], {**named, "b": given[1]}
    ours, theirs = OURS[number](*given, **named, **more), THEIRS[number](*given, **named, **more)
    assert vars(ours) == vars(theirs) == dataclasses.asdict(ours)
    assert repr(ours) == repr(theirs)
    assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(theirs)]
    assert [f.metadata for f in dataclasses.fields(ours)] == [f.metadata for f in dataclasses.fields(theirs)]
    assert dataclasses.replace(ours, a=7).a == 7
    assert ours == copy.copy(ours)
    assert ours != OURS[number](99, **more)
    assert ours != theirs


@pytest.mark.parametrize(("given", "named"), BAD)
def test_wrong_arguments_are_refused(given, named):
    for made in (OURS[0], THEIRS[0]):
        with pytest.raises(TypeError):
            made(*given, **named)


def test_a_frozen_object_stays_as_it_is_and_can_be_a_key():
    one = Measured(1.0, "s")
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.value = 2.0  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.unit
    assert {one: 1}[Measured(1.0, "s")] == 1
    assert pickle.loads(pickle.dumps(one)) == one


def test_an_object_that_is_not_frozen_can_change_and_is_no_key():
    @shared.dataclass
    class Open:
        """Open."""

        a: int = 0

    one = Open()
    one.a = 3
    assert one == Open(3)
    with pytest.raises(TypeError):
        hash(one)


@pytest.mark.parametrize("number", [0, 1])
def test_the_signature_and_class_values_are_the_standard_librarys(number):
    assert str(inspect.signature(OURS[number])) == str(inspect.signature(THEIRS[number]))
    assert OURS[number].b == THEIRS[number].b
    assert OURS[number].d == 1.5
    assert not hasattr(OURS[number], "c")
    assert OURS[number].KIND == "base"


def test_a_list_by_default_belongs_to_one_object():
    assert OURS[0](1).c is not OURS[0](1).c


def test_what_is_not_supported_fails_where_the_class_is_made():
    def hidden() -> None:
        @shared.dataclass
        class Hidden:
            """Hidden."""

            a: int = dataclasses.field(default=0, compare=False)

    def mixed() -> None:
        @shared.dataclass(frozen=True)
        class Mixed(THEIRS[0]):  # type: ignore[misc]
            """Mixed."""

    for make in (hidden, mixed):
        with pytest.raises(TypeError):
            make()


@pytest.mark.process
def test_a_class_is_made_without_the_standard_librarys_import():
    code = "import sys, edgescope.dataclass as d; d.dataclass(type('A', (), {}))"
    code += "; sys.exit('dataclasses' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
