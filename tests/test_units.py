from __future__ import annotations

import math
from typing import Any

import pytest

from tidegate.errors import InputError, SettingError
from tidegate.units import duration_s, finite, share_of, show_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("250us", 2.5e-4),
        ("250µs", 2.5e-4),
        ("5s", 5.0),
        ("2m", 120.0),
        ("2min", 120.0),
        ("1.5h", 5400.0),
        ("1d", 86400.0),
        (" 3 s ", 3.0),
        ("1e3ms", 1.0),
        ("7", 7.0),
        (0.25, 0.25),
    ],
)
def test_durations_are_read_as_people_write_them(text: str | float, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["soon", "", "5 parsecs", "-1s", "0", "nan", "inf", "1..2s", "1h30m", math.nan]
)
def test_what_is_no_positive_duration_is_refused_by_its_key(text: str | float) -> None:
    with pytest.raises(InputError, match="a positive duration") as caught:
        duration_s(text, key="--t-max")
    assert caught.value.key == "--t-max"


@pytest.mark.parametrize(
    ("bounds", "value", "allowed"),
    [
        ({}, math.nan, "a finite number"),
        ({}, "much", "a finite number"),
        ({"high": 3}, 4, "a number of at most 3"),
        ({"low": 0}, -1, "a number of at least 0"),
        ({"low": 0, "high": 1}, 1.1, "a number between 0 and 1"),
        ({"above": 0}, 0, "a number above 0"),
        ({"above": 0, "high": 2}, 2.5, "a number above 0 and at most 2"),
        ({}, None, "a finite number"),
    ],
)
def test_a_number_out_of_bounds_is_refused_with_the_range(
    bounds: dict[str, Any], value: Any, allowed: str
) -> None:
    with pytest.raises(SettingError) as caught:
        finite(value, "x", error=SettingError, **bounds)
    assert caught.value.allowed == allowed


def test_bounds_are_allowed_themselves_except_an_excluded_one() -> None:
    assert finite(0, "x", low=0) == 0.0
    assert finite(1, "x", low=0, high=1) == 1.0
    assert finite("2", "x", above=1.999) == 2.0


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (2e-5, "20 µs"),
        (0.4283, "428 ms"),
        (1.0, "1 s"),
        (59.0, "59 s"),
        (90.0, "1.5 min"),
        (7200.0, "2 h"),
        (math.inf, "unbounded"),
    ],
)
def test_durations_are_shown_in_the_unit_that_suits(seconds: float, shown: str) -> None:
    assert show_duration(seconds) == shown


@pytest.mark.parametrize(
    ("written", "share"),
    [("99%", 0.99), ("99.9 %", 0.999), (" 95% ", 0.95), ("0.99", 0.99), (0.5, 0.5), ("1%", 0.01)],
)
def test_a_share_is_read_as_people_write_it(written: str | float, share: float) -> None:
    assert share_of(written) == share


@pytest.mark.parametrize(
    "written", ["99", 99, "100%", 1, 0, "0%", "-5%", "most", "", "%", "nan", "9 9%", True, math.inf]
)
def test_what_is_no_share_is_refused_by_its_key(written: Any) -> None:
    with pytest.raises(InputError, match="write it as 99%") as caught:
        share_of(written, key="--share")
    assert caught.value.key == "--share"
