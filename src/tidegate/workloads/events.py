"""Recorded events, replayed at their exact times."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import InputError
from tidegate.units import finite
from tidegate.workloads.protocol import FloatArray, between, check_interval, generator, word

__all__ = ["EventLog"]


@dataclass(frozen=True, eq=False)
class EventLog:
    """The recorded arrival times of items; nothing is random, so there is no seed.

    times_s: seconds from the start, not decreasing. source: name of the source. keys: a key for
    each event (a symbol, a user), or None. end_s: end of the recording in seconds, by default the
    whole second after the last event. window_s: window of `rate`, in seconds.

    >>> log = EventLog((0.2, 0.2, 1.5, 3.0), keys=("a", "b", "a", "a"))
    >>> log.arrivals(0, 2)["input"].tolist(), log.keys_between(0, 2).tolist()
    ([0.2, 0.2, 1.5], ['a', 'b', 'a'])
    >>> log.duration_s, log.rate(1.0)
    (4.0, 1.0)
    """

    times_s: FloatArray
    source: str = "input"
    keys: NDArray[Any] | None = None
    end_s: float | None = None
    window_s: float = 60.0

    def __post_init__(self) -> None:
        times = np.array(self.times_s, dtype=np.float64)
        times.setflags(write=False)
        object.__setattr__(self, "times_s", times)
        if times.ndim != 1 or len(times) == 0:
            raise InputError("times_s", times.shape, "a list of at least one time")
        for bad, allowed in (
            (~(np.isfinite(times) & (times >= 0)), "a finite number of at least 0"),
            (np.diff(times, prepend=0.0) < 0, "not before the one before it"),
        ):
            if bad.any():
                i = int(bad.argmax())
                raise InputError(f"times_s[{i}]", float(times[i]), allowed, "sort the events")
        if self.keys is not None:
            keys = np.array(self.keys)
            keys.setflags(write=False)
            object.__setattr__(self, "keys", keys)
            if keys.shape != times.shape:
                raise InputError("keys", keys.shape, f"one for each of {len(times)} events")
        if self.end_s is not None:
            finite(self.end_s, "end_s", above=float(times[-1]))
        finite(self.window_s, "window_s", above=0)

    @property
    def duration_s(self) -> float:
        """End of the recording, in seconds."""
        return math.floor(self.times_s[-1]) + 1.0 if self.end_s is None else float(self.end_s)

    @property
    def sources(self) -> tuple[str, ...]:
        """The one source."""
        return (self.source,)

    def arrivals(self, start_s: float, end_s: float) -> dict[str, FloatArray]:
        """The events in [start_s, end_s)."""
        check_interval(start_s, end_s)
        return {self.source: between(self.times_s, start_s, end_s).copy()}

    def keys_between(self, start_s: float, end_s: float) -> NDArray[Any]:
        """The keys of the events in [start_s, end_s), in the order of `arrivals`."""
        check_interval(start_s, end_s)
        if self.keys is None:
            raise InputError("keys", None, "given", "read the log with its key column")
        low, high = np.searchsorted(self.times_s, (start_s, end_s))
        return self.keys[low:high].copy()

    def rate(self, t_s: float) -> float:
        """Events per second in the window around `t_s`."""
        if not 0 <= t_s < self.duration_s:
            return 0.0
        start_s = math.floor(t_s / self.window_s) * self.window_s
        end_s = min(start_s + self.window_s, self.duration_s)
        return len(between(self.times_s, start_s, end_s)) / (end_s - start_s)

    def expected(self, edges_s: FloatArray) -> dict[str, FloatArray]:
        """Events between each edge and the next."""
        before = np.searchsorted(self.times_s, np.asarray(edges_s, dtype=np.float64))
        return {self.source: np.diff(before).astype(np.float64)}

    def multiplied(self, factor: float) -> EventLog:
        """The log with `factor` times the events, always the same ones.

        Below 1, each event stays with that probability. Above 1, events are repeated at random
        times before the next event, so that the shape remains and bursts do not multiply.

        >>> len(EventLog(np.arange(1000.0)).multiplied(2.5).times_s)
        2494
        """
        finite(factor, "factor", above=0)
        if factor == 1:
            return self
        random = generator(0, word("EventLog.multiplied"))
        n = len(self.times_s)
        copies = math.floor(factor) + (random.random(n) < factor % 1)
        if not copies.any():
            copies[0] = 1  # a log holds at least one event
        index = np.repeat(np.arange(n), copies)
        first = np.concatenate(([True], index[1:] != index[:-1]))
        gap = np.diff(self.times_s, append=min(self.duration_s, 2 * self.times_s[-1] + 1e-9))
        offset = np.where(first, 0.0, random.random(len(index))) * np.maximum(gap, 0.0)[index]
        times = np.minimum(self.times_s[index] + offset, np.nextafter(self.duration_s, 0))
        order = np.argsort(times, kind="stable")
        keys = None if self.keys is None else self.keys[index][order]
        return replace(self, times_s=times[order], keys=keys, end_s=self.duration_s)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EventLog):
            return NotImplemented
        same_keys = (self.keys is None) == (other.keys is None) and (
            self.keys is None or other.keys is None or np.array_equal(self.keys, other.keys)
        )
        return same_keys and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return (self.times_s.tobytes(), self.source, self.duration_s, self.window_s)
