"""What a micro-batch costs, estimated from the batches that have run.

A batch of n rows on k task slots takes D = o + (W + n·s)/k. Spark reports the work Y of a batch in
slot-seconds, so the terms come from two separate questions:

- **W and s**: Y = W + n·s is a line over the rows. Batches of different sizes separate its two
  terms. If all batches are alike, the data allow every split of Y, and neither term is identified.
- **o**: what is left of the duration, D - Y/k. One batch is enough, if k is known.

A task that takes longer than the others (skew) also leaves a rest that no slot shortens. The times
of the longest tasks show how much of the rest this is, and how many slots are of use at all.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.codec import Value
from tidegate.model import BatchCost, Estimate

__all__ = ["BatchSample", "BatchSamples", "estimate"]

PER_SIZE = 16
"""Number of batches of about the same size that are kept."""
SIZES = 4
"""Number of classes of size into which rows between n and 2n fall."""
OLDEST = 2_000
"""A batch counts until this many later ones have ended."""
IDENTIFIED = 0.5
"""The split of the work is identified if its uncertainty is at most this share of the work."""
LEAST_NOISE = 0.005
"""Smallest relative noise of the work of a batch: clocks show whole milliseconds."""
ROUNDS = 4
CHANGES = ((2, 0.6), (4, 0.2))
"""(batches in a row, share by which they differ from the line) that count as a change of costs."""


@dataclass(frozen=True, slots=True)
class BatchSample(Value):
    """One micro-batch that has ended.

    Attributes:
        rows: Rows that it read, n.
        duration_s: From its trigger to its commit, D, in seconds.
        work_s: Run time of all its tasks, Y, in slot-seconds.
        slots: Task slots that it held on average while its stages were active, waits for a free
            slot included, k: its work over that time.
        longest_s: Run time of the longest task of each stage, summed over its stages, in seconds;
            None when unknown.
        available: Task slots that it could have held, had it been alone: those of the application,
            at most one for each of its tasks, in whole rounds; None when unknown.
    """

    rows: float
    duration_s: float
    work_s: float
    slots: float
    longest_s: float | None = None
    available: float | None = None


class BatchSamples:
    """The batches from which costs are estimated: the latest ones of every size.

    A query may run at a constant rate for hours. Batches of other sizes, which separate fixed work
    from the work on rows, are therefore kept longer than batches of the usual size.

    >>> samples = BatchSamples()
    >>> for rows in [100] + [1_000] * 500:
    ...     samples.add(BatchSample(rows, 1.5, 1 + rows / 1_000, 2))
    >>> len(samples.kept()), estimate(samples.kept()).fixed_work.identified
    (17, True)
    """

    def __init__(self) -> None:
        self._by_size: dict[int, deque[tuple[int, BatchSample]]] = {}
        self._count = 0

    def add(self, sample: BatchSample) -> None:
        """Add a batch that has just ended."""
        self._count += 1
        size = -1 if sample.rows < 1 else int(SIZES * math.log2(sample.rows))
        kept = self._by_size.setdefault(size, deque(maxlen=PER_SIZE))
        kept.append((self._count, sample))

    def kept(self) -> list[BatchSample]:
        """The batches that count, oldest first."""
        every = (pair for kept in self._by_size.values() for pair in kept)
        return [sample for at, sample in sorted(every, key=_number) if at > self._count - OLDEST]


def _number(pair: tuple[int, BatchSample]) -> int:
    return pair[0]


def estimate(samples: Sequence[BatchSample]) -> BatchCost | None:
    """The three terms of a batch's duration, each with an interval; None without any batch.

    samples: batches of one query, oldest first (see `BatchSamples`).

    Half a second that no slot shortens, 20 slot-seconds for each batch and 0.5 ms for each row:

    >>> def batch(rows, slots):
    ...     work_s = 20 + rows * 0.0005
    ...     return BatchSample(rows, 0.5 + work_s / slots, work_s, slots)
    >>> cost = estimate([batch(rows, 8) for rows in (8_000, 10_000, 9_000, 14_000, 11_000, 9_500)])
    >>> round(cost.overhead.value, 3), round(cost.fixed_work.value, 3), round(cost.per_row.value, 6)
    (0.5, 20.0, 0.0005)

    Batches of one size do not separate fixed work from work on rows:

    >>> alike = estimate([batch(10_000, 8)] * 10)
    >>> alike.per_row.identified, alike.per_row.high, alike.fixed_work.low, alike.fixed_work.high
    (False, 0.0025, 0.0, 25.0)
    """
    known = [s for s in samples if s.work_s > 0 and s.slots > 0 and s.duration_s > 0]
    if not known:
        return None
    fixed, per_row = _split(known)
    level = _level(known, fixed, per_row)
    fixed, per_row = _scaled(fixed, level), _scaled(per_row, level)
    latest = known[-2 * PER_SIZE :]  # the overhead follows the load of the driver: old ones mislead
    rests = [max(0.0, s.duration_s - s.work_s / s.slots) for s in latest]
    longest = [(s, s.longest_s) for s in latest if s.longest_s is not None]
    skew = [min(max(0.0, top - s.work_s / s.slots), s.duration_s) for s, top in longest]
    useful = [s.work_s / top for s, top in longest if top > 0]
    shares = [min(1.0, s.slots / s.available) for s in known[-PER_SIZE:] if s.available]
    return BatchCost(
        overhead=_middle(rests),
        fixed_work=fixed,
        per_row=per_row,
        skew_s=statistics.median(skew) if skew else None,
        slots=statistics.median(s.slots for s in known[-PER_SIZE:]),
        useful_slots=statistics.median(useful) if useful else None,
        held_share=statistics.median(shares) if shares else None,
    )


def _level(samples: Sequence[BatchSample], fixed: Estimate, per_row: Estimate) -> float:
    """The factor by which the latest batches are dearer or cheaper than those before them.

    The line is robust, so it would take many batches to follow a change of the rows or of the
    machines. Some batches in a row on the same side of it are such a change: few if they are far
    from it, unless the slots changed as well (the first batches on a new executor are dear).
    """
    for count, clearly in CHANGES:
        ratios = [_ratio(s, fixed, per_row) for s in samples[-count:]]
        slots = [s.slots for s in samples[-count - 1 :]]
        moved = max(slots) > 1.2 * min(slots) and count < CHANGES[-1][0]
        alike = all(r > 1 + clearly for r in ratios) or all(r < 1 / (1 + clearly) for r in ratios)
        if len(samples) > count and alike and not moved:
            return statistics.median(ratios)
    return 1.0


def _ratio(sample: BatchSample, fixed: Estimate, per_row: Estimate) -> float:
    """Work of a batch over what the terms predict for it, 1 where they predict nothing.

    Terms that are not separated give a range: all work is on rows, or none is.
    A batch without rows (Spark runs one to close windows) shows nothing of what rows cost.
    """
    if per_row.identified or fixed.identified:
        low = high = fixed.value + per_row.value * sample.rows
    else:
        on_rows = fixed.low + per_row.high * sample.rows
        on_batch = fixed.high + per_row.low * sample.rows
        low, high = min(on_rows, on_batch), max(on_rows, on_batch)
    if sample.work_s > high > 0:
        return sample.work_s / high
    return sample.work_s / low if sample.work_s < low else 1.0


def _scaled(term: Estimate, factor: float) -> Estimate:
    if factor == 1.0:
        return term
    return Estimate(term.value * factor, term.low * factor, term.high * factor, term.identified)


def _middle(values: Sequence[float]) -> Estimate:
    """The median, with an interval from the spread around it."""
    middle = statistics.median(values)
    spread = 1.4826 * statistics.median(abs(value - middle) for value in values)
    margin = 2 * spread / math.sqrt(len(values))
    return Estimate(middle, max(0.0, middle - margin), middle + margin)


def _split(samples: Sequence[BatchSample]) -> tuple[Estimate, Estimate]:
    """Fixed work of a batch, and work of a row: a line through rows and work.

    The noise of the work is taken to be in proportion to it, and batches far from the line (cold
    executors) count little.
    """
    pairs = [(s.rows, s.work_s) for s in samples]
    with_rows = [(n, y) for n, y in pairs if n >= 1]
    if not with_rows:
        work = _middle([y for _, y in pairs])
        return work, Estimate(0.0, 0.0, 0.0, identified=False)
    share = statistics.median(y / n for n, y in with_rows)
    usual_n = statistics.median(n for n, _ in with_rows)
    usual_y = share * usual_n
    line = _line(pairs)
    if line is not None:
        fixed_s, row_s, fixed_error, row_error = line
        # Where rows decide nothing or everything, the line may leave the possible range.
        if row_s < 0:
            fixed_s, row_s = statistics.median(y for _, y in pairs), 0.0
        elif fixed_s < 0:
            fixed_s, row_s = 0.0, share
        if 2 * row_error * usual_n <= IDENTIFIED * usual_y:
            return (
                Estimate(fixed_s, max(0.0, fixed_s - fixed_error), fixed_s + fixed_error),
                Estimate(row_s, max(0.0, row_s - row_error), row_s + row_error),
            )
    return (
        Estimate(0.0, 0.0, usual_y, identified=False),
        Estimate(share, 0.0, share, identified=False),
    )


def _line(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float, float] | None:
    """Intercept and slope of a robust line, and the half-widths of their 95 % intervals.

    None when there are too few points or all are at the same place.
    """
    points = len(pairs)
    if points < 4:
        return None
    weights = [1.0 / max(y, 1e-9) ** 2 for _, y in pairs]
    base = list(weights)
    found = None
    for _ in range(ROUNDS):
        total = math.fsum(weights)
        mean_n = math.fsum(w * n for w, (n, _) in zip(weights, pairs, strict=True)) / total
        mean_y = math.fsum(w * y for w, (_, y) in zip(weights, pairs, strict=True)) / total
        spread = math.fsum(w * (n - mean_n) ** 2 for w, (n, _) in zip(weights, pairs, strict=True))
        if spread <= 1e-12 * total * max(1.0, mean_n**2):
            return None
        slope = (
            math.fsum(
                w * (n - mean_n) * (y - mean_y) for w, (n, y) in zip(weights, pairs, strict=True)
            )
            / spread
        )
        intercept = mean_y - slope * mean_n
        rests = [(y - intercept - slope * n) / max(y, 1e-9) for n, y in pairs]
        noise = _noise(rests)
        # t of the 95 % interval, for few points larger than 1.96
        t = 1.96 + 3.0 / max(1, points - 2)
        variance = noise**2 / spread
        row_error = t * math.sqrt(variance)
        fixed_error = t * math.sqrt(noise**2 / total + variance * mean_n**2)
        found = intercept, slope, fixed_error, row_error
        weights = [
            w * min(1.0, 1.5 * noise / max(abs(r), 1e-12)) for w, r in zip(base, rests, strict=True)
        ]
    return found


def _noise(rests: Sequence[float]) -> float:
    """Standard deviation of the relative rests of a line with two terms; outliers count little."""
    middle = 1.4826 * statistics.median(abs(rest) for rest in rests)
    mean = math.sqrt(math.fsum(rest**2 for rest in rests) / len(rests))
    used = math.sqrt(len(rests) / max(1, len(rests) - 2))  # two terms were fitted to the same data
    return max(LEAST_NOISE, used * max(middle, mean / 2))
