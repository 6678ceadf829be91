"""Frozen values are made quickly, and are like any other frozen dataclass."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace
from inspect import signature
from typing import ClassVar

import pytest

from tidegate.codec import from_json, to_json
from tidegate.values import Value, changed, derived


@dataclass(frozen=True, slots=True)
class Point(Value):
    x: float
    y: float = 0.0
    notes: list[str] = field(default_factory=list)
    unit: ClassVar[str] = "m"

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("left of the origin")


@dataclass(frozen=True, slots=True)
class Named(Point):
    name: str = ""


@dataclass(frozen=True)
class Loose(Point):
    z: float = 0.0


class Bare(Point):
    """Neither slots nor a dataclass of its own."""


def test_a_value_has_its_fields_and_its_class() -> None:
    point = Point(1.0, notes=["a"])
    assert (point.x, point.y, point.notes, point.unit) == (1.0, 0.0, ["a"], "m")
    assert type(point) is Point
    assert repr(point) == "Point(x=1.0, y=0.0, notes=['a'])"
    assert point == Point(1.0, 0.0, ["a"]) != Point(2.0, 0.0, ["a"])
    assert str(signature(Point)).startswith("(x: 'float', y: 'float' = 0.0, ")
    assert "notes: 'list[str]' = <factory>" in str(signature(Point))


@pytest.mark.parametrize("kind", [Point, Named, Loose, Bare])
def test_a_value_is_frozen(kind: type[Point]) -> None:
    point = kind(1.0, 2.0)
    assert type(point) is kind
    assert (point.x, point.y) == (1.0, 2.0)
    with pytest.raises(FrozenInstanceError):
        point.x = 3.0  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del point.x


def test_defaults_that_are_made_are_not_shared() -> None:
    assert Point(1.0).notes is not Point(1.0).notes


@pytest.mark.parametrize("kind", [Point, Named, Loose, Bare])
def test_a_value_is_checked(kind: type[Point]) -> None:
    with pytest.raises(ValueError, match="left of the origin"):
        kind(-1.0)
    with pytest.raises(TypeError, match="x"):
        kind()  # type: ignore[call-arg]


def test_subclasses_have_further_fields() -> None:
    assert Named(1.0, name="a").name == "a"
    assert Loose(1.0, z=3.0).z == 3.0


def test_a_value_can_be_copied_changed_and_written() -> None:
    named = Named(1.0, 2.0, ["b"], "a")
    assert pickle.loads(pickle.dumps(named)) == copy.deepcopy(named) == named
    assert replace(named, y=5.0) == Named(1.0, 5.0, ["b"], "a")
    assert changed(named, y=5.0) == Named(1.0, 5.0, ["b"], "a")
    with pytest.raises(TypeError, match="unknown"):
        changed(named, unknown=1)
    with pytest.raises(ValueError, match="left of the origin"):
        changed(named, x=-1.0)
    assert from_json(Named, to_json(named)) == named


def test_a_derived_value_is_computed_once() -> None:
    asked = []

    class Circle:
        radius = 2.0

        @derived
        def area(self) -> float:
            """The area."""
            asked.append(self.radius)
            return 3.0 * self.radius**2

    circle = Circle()
    assert (circle.area, circle.area, Circle().area) == (12.0, 12.0, 12.0)
    assert asked == [2.0, 2.0]
    assert Circle.area.__doc__ == "The area."
