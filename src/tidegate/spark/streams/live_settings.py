"""Live settings: what a running topology reads at each micro-batch, and an autoscaler sets.

A new value takes effect at the next batch of the operator, without a restart. In return the
topology reports its exact counts here. All methods are thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.codec import Value
from tidegate.errors import InputError
from tidegate.units import finite

__all__ = ["KEPT_BATCHES", "Counts", "LiveSettings"]

KEPT_BATCHES = 200
"""Batches of which it is known how many rows they dropped."""


@dataclass(frozen=True, slots=True)
class Counts(Value):
    """Items of an operator, exact and since its first batch, restarts included.

    seen: read from its inputs. dropped: shed before any work. written: rows sent on.

    >>> Counts(10, 2, 16) + Counts(5)
    Counts(seen=15, dropped=2, written=16)
    """

    seen: int = 0
    dropped: int = 0
    written: int = 0

    def __add__(self, more: Counts) -> Counts:
        return Counts(
            self.seen + more.seen, self.dropped + more.dropped, self.written + more.written
        )


class LiveSettings:
    """Parallelism by operator, the share of the input to shed, and the operators' counts.

    default_parallelism: tasks per batch of an operator whose parallelism was not set.
    buffer_rows: most rows of a batch that are processed where they enter the topology, None for
        all. The rest is dropped as by a full buffer, so the backlog stays bounded.

    >>> live_settings = LiveSettings(default_parallelism=2)
    >>> live_settings.set_parallelism({"enrich": 6})
    >>> live_settings.parallelism("enrich"), live_settings.parallelism("parse")
    (6, 2)
    >>> live_settings.shed_fraction
    0.0
    """

    def __init__(self, default_parallelism: int = 1, buffer_rows: int | None = None) -> None:
        self._default = _tasks(default_parallelism, "default_parallelism")
        if buffer_rows is not None:
            finite(buffer_rows, "buffer_rows", low=1)
        self.buffer_rows = buffer_rows
        self._lock = threading.Lock()
        self._parallelism: dict[str, int] = {}
        self._shed_fraction = 0.0
        self._counts: dict[str, Counts] = {}
        self._shed_rows: dict[str, dict[int, int]] = {}

    def parallelism(self, operator: str) -> int:
        """Number of parallel tasks k_i of the operator's next batch."""
        with self._lock:
            return self._parallelism.get(operator, self._default)

    def chosen_parallelism(self, operator: str) -> int | None:
        """The same if it was set for this operator, None otherwise."""
        with self._lock:
            return self._parallelism.get(operator)

    def set_parallelism(self, parallelism: Mapping[str, int]) -> None:
        """Set k_i of these operators, all or none of them; the others keep theirs."""
        checked = {name: _tasks(k, f"parallelism of {name}") for name, k in parallelism.items()}
        with self._lock:
            self._parallelism.update(checked)

    @property
    def shed_fraction(self) -> float:
        """Share of the items to drop where they enter the topology, 0 (off) to 1."""
        with self._lock:
            return self._shed_fraction

    @shed_fraction.setter
    def shed_fraction(self, fraction: float) -> None:
        checked = finite(fraction, "shed_fraction", low=0, high=1)
        with self._lock:
            self._shed_fraction = checked

    def counts(self, operator: str) -> Counts:
        """Exact totals of an operator as of its last batch; zero before its first."""
        with self._lock:
            return self._counts.get(operator, Counts())

    def record(self, operator: str, totals: Counts) -> None:
        """Store totals, not increments: recording a repeated batch again changes nothing."""
        with self._lock:
            self._counts[operator] = totals

    def shed_rows(self, operator: str) -> dict[int, int]:
        """Rows that recent batches of an operator dropped, by the number of the batch."""
        with self._lock:
            return dict(self._shed_rows.get(operator, {}))

    def record_shed(self, operator: str, batch_id: int, rows: int) -> None:
        """Store how many rows a batch dropped; those of the last `KEPT_BATCHES` are kept."""
        with self._lock:
            known = self._shed_rows.setdefault(operator, {})
            known[batch_id] = rows
            while len(known) > KEPT_BATCHES:
                del known[min(known)]


def _tasks(value: int, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(key, value, "a whole number of at least 1", "give a number of tasks")
    return value
