"""Frozen values that are quick to make.

A turn makes dozens of frozen values. The `__init__` that `dataclass` writes for a frozen class
calls `object.__setattr__` for each field, which was the largest single part of a simulated turn,
whatever the policy. For a frozen dataclass with slots there is a quicker way. The new object is for
a moment of a *twin* of its class, with the same slots and not frozen, and its fields are set like
those of any object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Generic, Self, TypeVar, overload

__all__ = ["Value", "changed", "derived"]

T = TypeVar("T")
_set_class = vars(object)["__class__"].__set__


class _Factory:
    """Stands for a default that is made for each value, in signatures written as by `dataclass`."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class Value:
    """Base of frozen dataclasses that are read strictly: no unknown keys, no NaN.

    Those with ``slots=True`` are made in less than the usual time.
    """

    __slots__ = ()
    __pydantic_config__ = {"extra": "forbid", "allow_inf_nan": False}  # noqa: RUF012

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # To add slots, `dataclass` makes the class again, with all that it has generated.
        made = vars(cls)
        if "__dataclass_fields__" in made and "__slots__" in made and _is_plain(cls):
            cls.__init__ = _quick_init(cls, made["__slots__"])  # type: ignore[method-assign]


class derived(Generic[T]):  # noqa: N801
    """A property that is computed on first use and kept, for objects that do not change.

    This is `functools.cached_property` as it is from Python 3.12 on: the lock that it had before
    took most of its time. If two threads ask at once, both compute the same value.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, value: None, owner: type) -> Self: ...
    @overload
    def __get__(self, value: object, owner: type) -> T: ...
    def __get__(self, value: object, owner: type) -> Self | T:
        if value is None:
            return self
        found = value.__dict__[self._name] = self._make(value)
        return found


def changed(value: T, **fields: Any) -> T:
    """A frozen value with other values of some fields, by name.

    This is `dataclasses.replace`, which takes several times as long, for values that are made from
    all of their fields.
    """
    kind: Any = type(value)
    made: T = kind(**{name: getattr(value, name) for name in _fields(kind)} | fields)
    return made


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple([field.name for field in fields(kind)])


def _is_plain(cls: Any) -> bool:
    """Whether it is frozen, and `__init__` takes its fields in their order and nothing else."""
    code, names = cls.__init__.__code__, [field.name for field in fields(cls)]
    taken = list(code.co_varnames[1 : code.co_argcount])
    return cls.__dataclass_params__.frozen and taken == names and not code.co_kwonlyargcount


def _quick_init(cls: Any, slots: tuple[str, ...]) -> Any:
    """An `__init__` for a frozen dataclass with slots; subclasses without their own have the old.

    slots: those that the class has in addition to its bases.
    """
    usual = cls.__init__
    # Both methods have to be those of `object`, also where a base is frozen: only then does Python
    # set a field without a call.
    twin = type(cls)(cls.__name__, cls.__bases__, {
        "__slots__": slots, "__setattr__": object.__setattr__, "__delattr__": object.__delattr__,
        "__doc__": "",
    })  # fmt: skip
    known: dict[str, Any] = {
        "_cls": cls, "_twin": twin, "_usual": usual, "_set_class": _set_class, "_none": _FACTORY,
    }  # fmt: skip
    parameters, lines = ["self"], []
    for field in fields(cls):
        name = field.name
        if field.default_factory is not MISSING:
            known[f"_make_{name}"] = field.default_factory
            parameters.append(f"{name}=_none")
            lines.append(f"if {name} is _none: {name} = _make_{name}()")
        elif field.default is not MISSING:
            known[f"_else_{name}"] = field.default
            parameters.append(f"{name}=_else_{name}")
        else:
            parameters.append(name)
    names = [field.name for field in fields(cls)]
    lines += [
        f"if self.__class__ is not _cls: return _usual(self, {', '.join(names)})",
        "_set_class(self, _twin)",
        *[f"self.{name} = {name}" for name in names],
        "self.__class__ = _cls",
    ]
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    text = "".join(f"\n    {line}" for line in lines)
    exec(f"def __init__({', '.join(parameters)}):{text}", known)
    made = known["__init__"]
    made.__qualname__, made.__annotations__ = usual.__qualname__, usual.__annotations__
    return made
