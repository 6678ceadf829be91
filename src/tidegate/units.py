"""Parse and format durations such as ``500ms``, shares, numbers and weekly periods."""

from __future__ import annotations

import math
import re

from tidegate.errors import InputError, SettingError

__all__ = [
    "duration_s",
    "finite",
    "natural",
    "share_of",
    "show_duration",
    "show_share",
    "weekly_period",
]

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_NATURAL = re.compile(r"[0-9]{1,18}")
_DURATION = re.compile(r"\s*([0-9.eE+-]+)\s*([a-zµ]*)\s*")


def duration_s(text: str | float, key: str = "duration") -> float:
    """A duration in seconds, from ``"500ms"``, ``"5s"``, ``"10m"``, ``"1h"`` or a plain number.

    >>> duration_s("500ms"), duration_s("2m"), duration_s(3)
    (0.5, 120.0, 3.0)
    >>> duration_s("soon", key="--t-max")
    Traceback (most recent call last):
    tidegate.errors.InputError: --t-max is 'soon'; it must be a positive duration: write a number
    with a unit, such as 500ms, 5s, 10m or 1h
    """
    match = _DURATION.fullmatch(str(text).replace("µ", "u"))
    if match and match[2] in (*_SECONDS, ""):
        try:
            seconds = float(match[1]) * _SECONDS[match[2] or "s"]
        except ValueError:
            seconds = math.nan
        if 0 < seconds < math.inf:
            return seconds
    remedy = "write a number with a unit, such as 500ms, 5s, 10m or 1h"
    raise InputError(key, text, "a positive duration", remedy)


def natural(text: str) -> int | None:
    """The number that a text of digits stands for, at most 18 of them; None for any other text.

    Python's own conversion fails for thousands of digits, and some characters count as digits.

    >>> natural("15002"), natural("²"), natural("9" * 5000), natural("-1")
    (15002, None, None, None)
    """
    return int(text) if _NATURAL.fullmatch(text) else None


def finite(
    value: str | float,
    key: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above: float | None = None,
    remedy: str = "",
    error: type[InputError] = InputError,
) -> float:
    """A finite number within bounds; an error with one sentence otherwise.

    Args:
        value: A number, or text to parse.
        key: Name of the setting, for the error message.
        low: Smallest allowed value.
        high: Largest allowed value.
        above: Lower bound that is itself not allowed.
        remedy: What to do, for the error message.
        error: Class of the error.

    >>> finite("4.5", "rate", above=0)
    4.5
    >>> finite(-1, "rate", low=0)
    Traceback (most recent call last):
    tidegate.errors.InputError: rate is -1; it must be a number of at least 0
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isfinite(number) and low <= number <= high and (above is None or number > above):
        return number
    if low == -math.inf and above is None:
        allowed = "a finite number" if high == math.inf else f"a number of at most {high:g}"
    elif above is not None:
        allowed = f"a number above {above:g}" + (
            f" and at most {high:g}" if high < math.inf else ""
        )
    elif high < math.inf:
        allowed = f"a number between {low:g} and {high:g}"
    else:
        allowed = f"a number of at least {low:g}"
    raise error(key, value, allowed, remedy)


def share_of(value: str | float, key: str = "share") -> float:
    """A share of a whole, above 0 and below 1, from ``"99%"``, ``"99.9 %"`` or 0.99.

    >>> share_of("99.9%"), share_of(0.95)
    (0.999, 0.95)
    >>> share_of(99, key="--share")
    Traceback (most recent call last):
    tidegate.errors.InputError: --share is 99; it must be a share above 0 and below 100%: write it
    as 99% or 0.99
    """
    text = str(value).strip()
    try:
        # Rounded, so that 99.9% is what 0.999 is.
        number = round(float(text[:-1]) / 100, 12) if text.endswith("%") else float(text)
    except ValueError:
        number = math.nan
    if isinstance(value, bool) or not 0 < number < 1:
        remedy = "write it as 99% or 0.99"
        raise InputError(key, value, "a share above 0 and below 100%", remedy)
    return number


def show_share(share: float) -> str:
    """A share as text, with as many digits as it has; 100 % only if nothing is missing.

    >>> show_share(0.999), show_share(0.95), show_share(0.97214), show_share(0.999996)
    ('99.9 %', '95 %', '97.21 %', '99.99 %')
    """
    return f"{100 * share if share >= 1 else min(100 * share, 99.99):.4g} %"


def show_duration(seconds: float, digits: int = 3) -> str:
    """A duration as text, with a number of significant digits.

    >>> show_duration(0.4283), show_duration(90), show_duration(7200), show_duration(0.2, 2)
    ('428 ms', '1.5 min', '2 h', '200 ms')
    """
    if not math.isfinite(seconds):
        return "unbounded"
    if not seconds:
        return "0 s"
    for limit, unit, scale in ((1e-3, "µs", 1e6), (1.0, "ms", 1e3), (60.0, "s", 1.0)):
        if abs(seconds) < limit:
            return f"{_digits(seconds * scale, digits)} {unit}"
    value, unit = (seconds / 60, "min") if seconds < 3600 else (seconds / 3600, "h")
    return f"{_digits(value, digits)} {unit}"


def _digits(value: float, digits: int) -> str:
    """A number with some significant digits, but never with an exponent such as 2e+02."""
    return f"{value:.{digits}g}" if abs(value) < 10**digits - 0.5 else f"{value:.0f}"


DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SPANS = {"weekdays": "mon-fri", "weekends": "sat-sun", "weekend": "sat-sun", "daily": "mon-sun"}


def weekly_period(text: str, key: str = "excluded_periods") -> tuple[frozenset[int], int, int]:
    """Days of the week (0 is Monday) and minutes of the day, from ``mon-fri 09:30-11:00``.

    Days are one day, a span such as ``sat-mon``, ``weekdays`` or ``weekends``. Without days, the
    period is on every day. An end before the start is on the next day.

    >>> weekly_period("sat-sun 22:00-01:30")
    (frozenset({5, 6}), 1320, 90)
    >>> weekly_period("weekdays 08:00-18:00") == weekly_period("mon-fri 08:00-18:00")
    True
    """
    allowed, remedy = "a period", "write it as [mon-fri] HH:MM-HH:MM"
    words = text.lower().split()
    try:
        span = _SPANS.get(words[0], words[0]) if len(words) > 1 else "mon-sun"
        first, _, last = span.partition("-")
        start, end = DAYS.index(first), DAYS.index(last or first)
        days = {(start + n) % 7 for n in range((end - start) % 7 + 1)}
        minutes = []
        for clock in words[-1].split("-"):
            hour, _, minute = clock.partition(":")
            minutes.append(int(hour) * 60 + range(60)[int(minute)])
        begin, finish = minutes
    except (ValueError, IndexError):
        raise SettingError(key, text.strip(), allowed, remedy) from None
    if len(words) > 2 or not (0 <= begin < 1440 and 0 <= finish <= 1440):
        raise SettingError(key, text.strip(), allowed, remedy)
    return frozenset(days), begin, finish
