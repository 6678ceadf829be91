"""Latency targets: one for each query that is named, and one for all others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidegate.codec import Value
from tidegate.errors import InputError
from tidegate.units import duration_s

__all__ = ["OTHERS", "SloByQuery"]

OTHERS = "*"
"""The name that stands for all queries without a separate target."""


@dataclass(frozen=True, slots=True)
class SloByQuery(Value):
    """The latency target of every query.

    Attributes:
        default_s: Target of the queries without a separate one, in seconds.
        by_name: Targets by the name of the query, in seconds.
    """

    default_s: float
    by_name: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(
        cls, given: str | float | Mapping[str, str | float] | SloByQuery, key: str = "slo"
    ) -> SloByQuery:
        """Targets from a duration, from text such as ``alerts=2s,30s``, or from a mapping.

        given: a mapping has the name ``*`` for all other queries. key: name of the setting, for
        error messages.

        >>> SloByQuery.read("5s")
        SloByQuery(default_s=5.0, by_name={})
        >>> SloByQuery.read("alerts=2s,30s") == SloByQuery.read({"alerts": "2s", "*": "30s"})
        True
        >>> SloByQuery.read("alerts=2s", "--slo")
        Traceback (most recent call last):
        tidegate.errors.InputError: --slo is 'alerts=2s'; it must be a target for all other queries
        too: add one, such as alerts=2s,30s
        """
        if isinstance(given, SloByQuery):
            return given
        pairs = _pairs(given, key)
        found: dict[str, float] = {}
        for name, value in pairs:
            what = key if name == OTHERS else f"{key} of {name}"
            if name in found:
                raise InputError(what, value, "given once", "remove one of the two")
            usable = isinstance(value, str | int | float) and not isinstance(value, bool)
            found[name] = duration_s(value if usable else str(value), what)
        default_s = found.pop(OTHERS, None)
        if default_s is not None:
            return cls(default_s, found)
        first = next(iter(found), "alerts")
        shown = given if isinstance(given, str) else dict(pairs)
        more = f"{first}=2s,30s" if isinstance(given, str) else f'"{OTHERS}": "30s"'
        raise InputError(
            key, shown, "a target for all other queries too", f"add one, such as {more}"
        )

    def of(self, query: str) -> float:
        """The target of a query, in seconds.

        >>> targets = SloByQuery.read("alerts=2s,30s")
        >>> targets.of("alerts"), targets.of("totals")
        (2.0, 30.0)
        """
        return self.by_name.get(query, self.default_s)

    @property
    def largest_s(self) -> float:
        """The longest target of any query, in seconds."""
        return max(self.default_s, *self.by_name.values()) if self.by_name else self.default_s

    def unknown(self, queries: Iterable[str]) -> tuple[str, ...]:
        """The names with a target that none of the queries has.

        >>> SloByQuery.read("alerts=2s,30s").unknown(["alarms"])
        ('alerts',)
        """
        return tuple(sorted(set(self.by_name) - set(queries)))


def _pairs(
    given: str | float | Mapping[str, str | float], key: str
) -> list[tuple[str, str | float]]:
    """Names and targets as they were given."""
    if isinstance(given, Mapping):
        return [(str(name), value) for name, value in given.items()]
    if not isinstance(given, str):
        return [(OTHERS, given)]
    pairs: list[tuple[str, str | float]] = []
    for word in given.split(","):
        name, equals, value = word.rpartition("=")
        if equals and not name.strip():
            remedy = "write a query's name before the equals sign: alerts=2s,30s"
            raise InputError(key, given, "a target for each name", remedy)
        pairs.append((name.strip() or OTHERS, value.strip()))
    return pairs
