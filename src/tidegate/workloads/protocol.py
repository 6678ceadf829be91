"""The workload protocol, and arrivals that are the same for every caller.

Time is divided into fixed chunks. Each chunk has its own random generator, seeded with (seed,
chunk, source), so arrivals depend neither on the caller nor on the intervals that it asks for. Two
policies that decide at different moments get the same items at the same instants.
"""

from __future__ import annotations

import math
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import InputError
from tidegate.workloads.counting import Counts, count_by_chunk, count_drawn

__all__ = ["CHUNK_S", "Chunked", "FloatArray", "Predictable", "Workload", "generator"]

FloatArray = NDArray[np.float64]

CHUNK_S = 60.0
_MOST_PER_CHUNK = 1_000_000.0
_MOST_KEPT = 2_000_000
"""Items that a workload keeps after it has drawn them, which are 16 MB."""


@runtime_checkable
class Workload(Protocol):
    """Items that arrive at the sources of a topology.

    duration_s: nothing arrives at or after this time, nothing before 0.
    """

    @property
    def duration_s(self) -> float:
        """Seconds from the first possible arrival to the end."""
        ...

    def arrivals(self, start_s: float, end_s: float) -> dict[str, FloatArray]:
        """Sorted times in [start_s, end_s) by source, for every source, even without items.

        Arrays are new: the caller may write to them. The result for an interval is always the
        concatenation of the results for its parts.
        """
        ...

    def rate(self, t_s: float) -> float:
        """Items expected per second at `t_s`, all sources together."""
        ...


@runtime_checkable
class Predictable(Workload, Protocol):
    """A workload that can compute expected numbers of items, as a fluid model needs."""

    def expected(self, edges_s: FloatArray) -> dict[str, FloatArray]:
        """Items expected between each edge and the next, by source."""
        ...


def generator(seed: int, *words: int) -> np.random.Generator:
    """An independent random generator for each combination of seed and words.

    >>> generator(7, 0).random() == generator(7, 0).random() != generator(7, 1).random()
    True
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, *words))))


def word(text: str) -> int:
    """A number for a name, the same in every process (unlike Python's hash)."""
    return zlib.crc32(text.encode())


def chunk_for(peak_per_s: float) -> float:
    """The length of a chunk in seconds: a minute, halved until it holds at most a million items.

    >>> chunk_for(320), chunk_for(60_000)
    (60.0, 15.0)
    """
    chunk_s = CHUNK_S
    while peak_per_s * chunk_s > _MOST_PER_CHUNK:
        chunk_s /= 2
    return chunk_s


def check_interval(start_s: float, end_s: float) -> None:
    """Raise InputError for an invalid interval."""
    if not (math.isfinite(start_s) and math.isfinite(end_s) and start_s <= end_s):
        allowed = "two finite times, the first not after the second"
        raise InputError("interval", (start_s, end_s), allowed, "ask for [start_s, end_s)")


def check_seed(seed: Any) -> None:
    """Raise InputError for a seed that NumPy would refuse or misread."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError("seed", seed, "a whole number of at least 0")


class Chunked:
    """Arrivals from chunks: a subclass draws single chunks, this class cuts and joins them.

    The last chunks are kept, so that many short intervals cost no more than one long interval, and
    the runs of several policies no more than one.
    """

    seed: int

    if TYPE_CHECKING:  # a field in some subclasses, which a property here would shadow

        @property
        def duration_s(self) -> float:
            """Seconds from the first possible arrival to the end."""
            ...

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources."""
        raise NotImplementedError

    @property
    def chunk_s(self) -> float:
        """Length of a chunk in seconds."""
        return CHUNK_S

    @property
    def streams(self) -> frozenset[tuple[int, str]]:
        """The random streams in use; two workloads that share one are not independent."""
        return frozenset((self.seed, source) for source in self.sources)

    def _draw(self, chunk: int) -> dict[str, FloatArray]:
        """Sorted arrivals in [chunk · chunk_s, (chunk + 1) · chunk_s), by source."""
        raise NotImplementedError

    def _draw_all(self, chunks: Sequence[int]) -> list[dict[str, FloatArray]]:
        """The arrivals of several chunks; the same as of each by itself."""
        return [self._draw(chunk) for chunk in chunks]

    def _generator(self, chunk: int) -> np.random.Generator:
        return generator(self.seed, chunk, word("\0".join(self.sources)))

    def arrivals(self, start_s: float, end_s: float) -> dict[str, FloatArray]:
        """Sorted times in [start_s, end_s) by source."""
        check_interval(start_s, end_s)
        start_s, end_s = max(0.0, start_s), min(end_s, self.duration_s)
        if start_s >= end_s:
            return {source: np.empty(0) for source in self.sources}
        pieces = self._cached(self._chunks_of(start_s, end_s))
        return {
            source: join((piece[source] for piece in pieces), start_s, end_s)
            for source in self.sources
        }

    def counted(self, edges_s: FloatArray) -> dict[str, Counts]:
        """How many items arrive from each edge until before the next, by source.

        They are those of `arrivals`. Where a chunk has more items than ``counting.MOST_DRAWN``, one
        random draw divides their number over the steps instead.
        """
        edges = np.asarray(edges_s, dtype=np.float64)
        start_s, end_s = max(0.0, float(edges[0])), min(float(edges[-1]), self.duration_s)
        chunks = self._chunks_of(start_s, end_s) if start_s < end_s else range(0)

        def one_by_one(start_s: float, end_s: float) -> Counts:
            return np.array(list(count_drawn(self.arrivals(start_s, end_s), edges).values()))

        many, rows = self._have_many(chunks), len(self.sources)
        found = count_by_chunk(
            edges, self.chunk_s, many, chunks.start, rows, one_by_one, self._divided
        )
        return dict(zip(self.sources, found, strict=True))

    def _have_many(self, chunks: range) -> Sequence[bool]:
        """Whether the items of each chunk are to be divided (`_divided`) in place of drawn."""
        return [False] * len(chunks)

    def _divided(self, chunk: int, points_s: FloatArray) -> Counts:
        """How many items of a chunk arrive between moments, from its beginning to its end."""
        raise NotImplementedError

    def _chunks_of(self, start_s: float, end_s: float) -> range:
        """The chunks of a stretch of time."""
        first = math.floor(start_s / self.chunk_s)
        last = math.ceil(end_s / self.chunk_s)
        first -= first * self.chunk_s > start_s  # a quotient may be rounded across the boundary
        last += last * self.chunk_s < end_s
        return range(first, last)

    def _cached(self, chunks: Sequence[int]) -> list[dict[str, FloatArray]]:
        kept: _Kept | None = self.__dict__.get("_kept")
        if kept is None:
            kept = self.__dict__["_kept"] = _Kept()  # the value itself stays frozen
        return kept.chunks(chunks, self._draw_all)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class _Kept:
    """The chunks that were drawn last, up to `_MOST_KEPT` items: a cache of a pure function."""

    def __init__(self) -> None:
        self._chunks: dict[int, dict[str, FloatArray]] = {}
        self._items = 0
        self._lock = threading.Lock()

    def chunks(
        self,
        numbers: Sequence[int],
        draw: Callable[[Sequence[int]], list[dict[str, FloatArray]]],
    ) -> list[dict[str, FloatArray]]:
        """The chunks of these numbers; those that are not kept are drawn together."""
        found = {number: self._chunks.get(number) for number in numbers}
        missing = [number for number, chunk in found.items() if chunk is None]
        for number, drawn in zip(missing, draw(missing), strict=True):
            found[number] = drawn
            self._keep(number, drawn)
        return [chunk for chunk in found.values() if chunk is not None]

    def _keep(self, number: int, drawn: dict[str, FloatArray]) -> None:
        with self._lock:
            self._items += _items_in(drawn) - _items_in(self._chunks.get(number, {}))
            self._chunks[number] = drawn
            while self._items > _MOST_KEPT and len(self._chunks) > 1:
                oldest = next(iter(self._chunks))
                self._items -= _items_in(self._chunks.pop(oldest))


def _items_in(drawn: dict[str, FloatArray]) -> int:
    """Items in a chunk; an array takes as much memory as some items, even if it is empty."""
    return sum(20 + len(times) for times in drawn.values())


def join(pieces: Iterable[FloatArray], start_s: float, end_s: float) -> FloatArray:
    """Consecutive sorted pieces as one new array, cut to [start_s, end_s)."""
    cut = [between(piece, start_s, end_s) for piece in pieces]
    return np.concatenate(cut) if cut else np.empty(0)


def between(times_s: FloatArray, start_s: float, end_s: float) -> FloatArray:
    """The part of sorted times that lies in [start_s, end_s), a view."""
    low, high = np.searchsorted(times_s, (start_s, end_s), side="left")
    return times_s[low:high]


def merged(parts: Iterable[FloatArray]) -> FloatArray:
    """Sorted times of several parts together."""
    both = np.concatenate(list(parts))
    both.sort(kind="stable")  # timsort finds the sorted parts and only merges them
    return both
