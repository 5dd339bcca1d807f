"""Dataclasses that share their methods: a class is made in 0.03 ms, where the standard library compiles for 0.8.

Every command makes a hundred such classes before it does anything. The standard library writes the methods of each as
text and compiles them, and its import takes longer than Python's own start. What its `fields`, `replace` and `asdict`
look for is made when they look. Slots, fields that are not in `__init__` or in comparisons, and bases or subclasses
that the standard library made are not supported: they fail where the class is made.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    NEEDED = object()
    """Stands for the default of a field that has none."""
    _plans = {}

    def dataclass(cls=None, /, *, frozen=False, repr=True, kw_only=False):
        """Return the class as a dataclass, or what makes one of it."""

        def made(cls):
            methods = {"__init__": _init, "__eq__": _eq} | ({"__repr__": _repr} if repr else {})
            methods |= {"__setattr__": _set, "__delattr__": _set} if frozen else {}
            own = {"__dataclass_fields__": Fields(cls, kw_only), "__signature__": Signature()}
            if vars(cls).get("__hash__") is None:  # a class with __eq__ has None there
                own["__hash__"] = _hash if frozen else None
            for name, value in (own | {k: v for k, v in methods.items() if k not in vars(cls)}).items():
                setattr(cls, name, value)
            return cls

        return made if cls is None else made(cls)

    class Fields:
        """The fields of one class, without those of its bases: name -> default, or what `field()` returned."""

        def __init__(self, cls, kw_only):
            self.cls, self.kw_only, self.known = cls, kw_only, None
            names = (name for name, kind in cls.__annotations__.items() if "ClassVar" not in str(kind))
            self.own = {name: vars(cls).get(name, NEEDED) for name in names}
            if any(isinstance(vars(base).get("__dataclass_fields__"), dict) for base in cls.__mro__):
                raise TypeError(f"a base of {cls.__name__} is the standard library's dataclass")
            for name in filter(self.special, self.own):
                value = self.own[name]
                if not (value.init and value.compare and value.repr):
                    raise TypeError(f"{cls.__name__}.{name} needs the standard library's dataclass")
                delattr(cls, name)
                if self.special(name, "default"):
                    setattr(cls, name, value.default)

        def special(self, name, what="init"):
            """Return whether `field()` made a field, and says `what` of it."""
            value = self.own[name]
            made = type(value).__module__ == "dataclasses" and type(value).__name__ == "Field"
            return made and type(getattr(value, what)).__name__ != "_MISSING_TYPE"

        def __get__(self, instance, cls):
            self.known = self.known or _twin(self.cls).__dataclass_fields__
            return self.known

    class Signature:
        """What `inspect.signature` says of a class."""

        def __get__(self, instance, cls):
            import inspect

            return inspect.signature(_twin(cls))

    def _lineage(cls):
        """Yield the fields of a class's bases and its own, the most general first."""
        found = (vars(base).get("__dataclass_fields__") for base in reversed(cls.__mro__))
        return [fields for fields in found if fields is not None]

    def _twin(cls):
        """Return a class of the same fields that the standard library made."""
        from dataclasses import dataclass as compiled
        from dataclasses import field

        notes, values = {}, {}
        for fields in _lineage(cls):
            notes |= {name: fields.cls.__annotations__[name] for name in fields.own}
            for name, value in fields.own.items():
                default = {} if value is NEEDED else {"default": value}
                values[name] = value if fields.special(name) else field(**default)
                values[name].kw_only = fields.kw_only
        twin = type(cls.__name__, (), {"__annotations__": notes, "__module__": cls.__module__} | values)
        return compiled(repr=False, eq=False)(twin)

    class Plan:
        """What the methods of a class need: its values by default, in order."""

        def __init__(self, cls):
            self.values, self.names, self.makes = {}, [], {}
            for fields in _lineage(cls):
                for name, value in fields.own.items():
                    self.makes.pop(name, None)
                    if name not in self.values and not fields.kw_only:
                        self.names.append(name)
                    if fields.special(name, "default_factory"):
                        self.makes[name] = value.default_factory
                    default = value.default if fields.special(name, "default") else NEEDED
                    self.values[name] = default if fields.special(name) else value
            self.needed = [k for k, v in self.values.items() if v is NEEDED and k not in self.makes]
            self.prepares = hasattr(cls, "__post_init__")
            _plans[cls] = self

    def _plan(value):
        return _plans.get(type(value)) or Plan(type(value))

    def _init(self, /, *given, **named):
        plan, held = _plan(self), self.__dict__
        held.update(plan.values)
        held.update(zip(plan.names, given, strict=False))
        held.update(named)
        twice = given and named and not named.keys().isdisjoint(plan.names[: len(given)])
        missing = [name for name in plan.needed if held[name] is NEEDED]
        if missing or twice or len(held) > len(plan.values) or len(given) > len(plan.names):
            raise TypeError(
                f"{type(self).__name__} takes {', '.join(plan.values)}, each once; it was given"
                f" {len(given)} and {', '.join(named) or 'no names'}"
            )
        for name, make in plan.makes.items():
            if held[name] is NEEDED:
                held[name] = make()
        if plan.prepares:
            self.__post_init__()

    def _compared(value):
        return tuple(value.__dict__[name] for name in _plan(value).values)

    def _eq(self, other):
        return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented

    def _hash(self):
        return hash(_compared(self))

    def _repr(self):
        shown = (f"{name}={self.__dict__[name]!r}" for name in _plan(self).values)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _set(self, name, *value):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to field {name!r}")


__all__ = ["dataclass"]
