"""Forecasts of the largest rate from when a host leased now runs until its successor would.

Several simple forecasters look at the rates so far. Each has a histogram of what came over what it
said, from which its *margin* for a quantile is read: with this margin, it would have been exceeded
in a share of 1 - quantile of the past. Its score is the pinball loss of its forecasts with their
margins. Weights follow the scores, and the forecast is the weighted median.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

from tidegate.codec import Value

__all__ = ["FORECASTERS", "Due", "Ensemble", "Forecast", "Histogram"]

FORECASTERS = ("last", "mean-5m", "max-2m", "max-5m", "max-15m", "max-1h", "trend", "day", "week")
"""The forecasters by name, in the order in which their values are remembered.

The rate now; the mean of the last 5 min; the largest rate of some minutes; the trend of the last
2 min; the largest rate at the same time of the day before and of the week before.
"""

BINS_PER_DOUBLING = 8
LOWEST = -2
HIGHEST = 4
"""The histograms cover ratios from a quarter to sixteen."""
MOST_SEEN = 2000
"""Number of forecasts in a histogram at which all entries are halved, so that old ones fade."""
MINUTES = 60
DAY_SLOT_S, DAY_SLOTS = 300.0, 288
WEEK_SLOT_S, WEEK_SLOTS = 3600.0, 168
LONGEST_GAP_S = 120.0
"""Time between two turns after which forecasts that were due are not scored, unless turns are as
far apart as that."""
FEW_ITEMS = 10.0
"""Items over which a rate is averaged: one item in a turn says little about the rate."""
MOST_DUE = 64
"""Number of forecasts that wait for what comes; with more, some turns make none."""
SCORE_FADE = 0.999
"""Weight of earlier losses at each turn, when there are many."""
SHARPNESS = 4
"""Power of the ratio of scores that gives a forecaster's weight."""
FEW = 20
"""Forecasts in a histogram below which its margin is at least `FIRST_MARGIN`."""
FIRST_MARGIN = 1.2
HEADROOM = 1.2
"""The forecast is at most the largest value of a forecaster times this: a margin that was learned
at the foot of a spike says nothing at its top."""
STEEPEST = 2.0
"""A trend is followed to at most this multiple of the rate now, or to that part of it."""
DEMOTED = 0.02
"""Weight below which a forecaster counts as demoted."""

Values = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Histogram(Value):
    """How often the ratio of what came to a forecast was in each bin.

    counts: by bin, equal in the logarithm of the ratio. seen: their sum.
    """

    counts: tuple[float, ...] = (0.0,) * (BINS_PER_DOUBLING * (HIGHEST - LOWEST))
    seen: float = 0.0

    def add(self, ratio: float) -> Histogram:
        """The histogram with one more ratio."""
        counts = list(self.counts)
        place = (math.log2(ratio) - LOWEST) * BINS_PER_DOUBLING if ratio > 0 else 0.0
        # The ratio is infinite when a mean has faded to next to nothing in days of silence.
        counts[int(min(max(place, 0.0), len(counts) - 1))] += 1.0
        seen = self.seen + 1.0
        if seen >= MOST_SEEN:
            counts = [count / 2 if count >= 0.25 else 0.0 for count in counts]
            seen = math.fsum(counts)
        return Histogram(tuple(counts), seen)

    def ratios(self, quantiles: Sequence[float]) -> list[float]:
        """For each of the quantiles, the ratio that is exceeded in a share of 1 - quantile."""
        # Most bins are empty, among them all above the largest ratio so far.
        counts = self.counts[::-1]
        return [
            _ratio(compress(zip(_DOWNWARDS, counts, strict=True), counts), (1 - q) * self.seen)
            for q in quantiles
        ]


_DOWNWARDS = range(BINS_PER_DOUBLING * (HIGHEST - LOWEST), 0, -1)
"""Numbers of the bins, from the top."""


def _ratio(filled: Iterable[tuple[int, float]], left: float) -> float:
    """The ratio above which there are `left` entries. filled: bins from the top, with entries."""
    for place, count in filled:
        if left <= count:
            return float(2.0 ** (LOWEST + (place - left / count) / BINS_PER_DOUBLING))
        left -= count
    return float(2.0**LOWEST)


@dataclass(frozen=True, slots=True)
class Due(Value):
    """Forecasts that wait for what comes.

    Attributes:
        until_s: End of the time that they are for.
        quantile: The quantile that the margins are for.
        values: What each forecaster said, in items per second, without its margin.
        uppers: The same with its margin.
        reach_per_s: The forecast at the largest care.
    """

    until_s: float
    quantile: float
    values: Values
    uppers: Values
    reach_per_s: float


@dataclass(frozen=True, slots=True)
class Forecast(Value):
    """A forecast of the largest rate.

    Attributes:
        rate_per_s: The rate that is not exceeded, with a probability of `quantile`.
        quantile: That probability.
        best: The forecaster with the largest weight.
        top_per_s: The largest value of a forecaster, with `HEADROOM`.
        demoted: The forecasters that hardly count any more, because they lost.
    """

    rate_per_s: float
    quantile: float
    best: str
    top_per_s: float = 0.0
    demoted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ensemble(Value):
    """What the forecasters remember, all of it bounded.

    Attributes:
        seen_s: Time of the last rate.
        recent: (time, rate) of the turns of the last 2 min.
        minutes: Largest rate of each of the last 60 minutes, the latest last.
        minute: Number of the latest minute.
        mean: Mean rate, over about 5 min.
        day: Largest rate in each 5 min of the last day.
        week: Largest rate in each hour of the last week.
        slots: Numbers of the present 5 min and of the present hour, since time began.
        peaks: Largest rates in these so far. They replace those of yesterday when they end.
        due: Forecasts that wait for what comes.
        histograms: What came over what each forecaster said.
        losses: Mean pinball loss of each forecaster, recent ones first of all.
    """

    seen_s: float | None = None
    recent: tuple[tuple[float, float], ...] = ()
    minutes: tuple[float, ...] = ()
    minute: int = 0
    mean: float = 0.0
    day: Values = ()
    week: Values = ()
    slots: tuple[int, int] = (0, 0)
    peaks: tuple[float, float] = (0.0, 0.0)
    due: tuple[Due, ...] = ()
    histograms: tuple[Histogram, ...] = (Histogram(),) * len(FORECASTERS)
    losses: Values = (None,) * len(FORECASTERS)

    # --- what came ----------------------------------------------------------------------------

    @property
    def rate_per_s(self) -> float:
        """The rate now, over `FEW_ITEMS` items at least; 0 before the first one."""
        return self.recent[-1][1] if self.recent else 0.0

    def observe(self, now_s: float, rate: float, interval_s: float = 0.0) -> Ensemble:
        """The ensemble after a measured rate: forecasts that are due are scored.

        interval_s: usual time between two turns, in seconds.
        """
        if self.seen_s is not None and now_s <= self.seen_s:
            if now_s == self.seen_s:
                return self
            # The clock went back: what was learned stays, what has times in it goes.
            fresh = Ensemble(histograms=self.histograms, losses=self.losses)
            return fresh.observe(now_s, rate)
        passed_s = 0.0 if self.seen_s is None else now_s - self.seen_s
        rate = float(f"{self._steady(rate, passed_s):.6g}")
        # After a gap nobody knows what the rate was when a forecast was due.
        histograms, losses = self.histograms, self.losses
        if passed_s <= max(LONGEST_GAP_S, 2 * interval_s) and (due := self.due_at(now_s)):
            histograms, losses = self._scored(due, rate)
        fade = math.exp(-passed_s / 300.0) if self.seen_s is not None else 0.0
        minutes, minute = self._minutes(now_s, rate)
        slots = (math.floor(now_s / DAY_SLOT_S), math.floor(now_s / WEEK_SLOT_S))
        # In full, since `replace` takes several times as long, and this runs at every turn.
        return Ensemble(
            seen_s=now_s,
            recent=(*[look for look in self.recent if look[0] > now_s - 120.0], (now_s, rate)),
            minutes=minutes,
            minute=minute,
            mean=fade * self.mean + (1 - fade) * rate,
            day=self._profile(self.day, DAY_SLOTS, 0, slots),
            week=self._profile(self.week, WEEK_SLOTS, 1, slots),
            slots=slots,
            peaks=(self._peak(0, slots, rate), self._peak(1, slots, rate)),
            due=tuple([d for d in self.due if d.until_s > now_s + 1e-9]),
            histograms=histograms,
            losses=losses,
        )

    def _steady(self, rate: float, passed_s: float) -> float:
        """A rate with as much of the one before as there are too few items to know it."""
        before = self.rate_per_s
        fade = math.exp(-passed_s * max(before, rate) / FEW_ITEMS)
        return fade * before + (1 - fade) * rate if passed_s > 0 and fade > 1e-6 else rate

    def due_at(self, now_s: float) -> tuple[Due, ...]:
        """The forecasts for a time that has come."""
        return tuple([d for d in self.due if d.until_s <= now_s + 1e-9])

    def _minutes(self, now_s: float, rate: float) -> tuple[tuple[float, ...], int]:
        minute = math.floor(now_s / 60.0)
        passed = minute - self.minute
        if not self.minutes or passed >= MINUTES:
            return (rate,), minute
        if passed == 0:
            return (*self.minutes[:-1], max(self.minutes[-1], rate)), minute
        # A minute without a turn was like the one before.
        gap = (self.minutes[-1],) * (passed - 1)
        return (*self.minutes, *gap, rate)[-MINUTES:], minute

    def _peak(self, which: int, slots: Sequence[int], rate: float) -> float:
        """The largest rate so far in the present slot."""
        return max(self.peaks[which], rate) if slots[which] == self.slots[which] else rate

    def _profile(self, profile: Values, length: int, which: int, slots: Sequence[int]) -> Values:
        """The profile with the slot that has ended. which: 0 for the day, 1 for the week."""
        ended = self.slots[which]
        if self.seen_s is None or slots[which] == ended:
            return profile
        noted: list[float | None] = list(profile) if profile else [None] * length
        noted[ended % length] = self.peaks[which]
        return tuple(noted)

    def _scored(self, due: Sequence[Due], came: float) -> tuple[tuple[Histogram, ...], Values]:
        """The histograms and losses after forecasts that are due."""
        histograms, losses = list(self.histograms), list(self.losses)
        for d in due:
            for i, (value, upper) in enumerate(zip(d.values, d.uppers, strict=True)):
                if value is None or upper is None:
                    continue
                if value > 0:
                    histograms[i] = histograms[i].add(came / value)
                loss = pinball(d.quantile, came, upper)
                before = loss if (known := losses[i]) is None else known
                # A mean of all at first: the first forecast does not outweigh the next thousand.
                weight = max(1 - SCORE_FADE, 1 / (1 + histograms[i].seen))
                losses[i] = before + weight * (loss - before)
        return tuple(histograms), tuple(losses)

    # --- what will come -----------------------------------------------------------------------

    def forecast(self, lead_s: float, quantile: float, most: float) -> tuple[Forecast, Ensemble]:
        """The largest rate in `lead_s` seconds, and the ensemble that waits for it.

        quantile: probability that it is not exceeded. most: the same at the largest care.
        """
        if self.seen_s is None:
            return Forecast(0.0, quantile, FORECASTERS[0]), self
        values = tuple(self._values(self.seen_s, lead_s))
        weights = self.weights(values)
        uppers, reach = self._uppers(values, quantile, most)
        top = HEADROOM * max(value for value in values if value is not None)
        rate = min(top, _median(weights, uppers))
        reach_per_s = min(top, _median(weights, reach))
        best = max(range(len(weights)), key=weights.__getitem__)
        demoted = tuple(
            name
            for name, weight, value in zip(FORECASTERS, weights, values, strict=True)
            if value is not None and weight < DEMOTED
        )
        due = self.due
        if len(due) < MOST_DUE:
            due = (*due, Due(self.seen_s + lead_s, quantile, values, uppers, reach_per_s))
        return Forecast(rate, quantile, FORECASTERS[best], top, demoted), self._waiting_for(due)

    def _waiting_for(self, due: tuple[Due, ...]) -> Ensemble:
        """The ensemble with other forecasts that wait; `replace` takes several times as long."""
        return Ensemble(
            self.seen_s,
            self.recent,
            self.minutes,
            self.minute,
            self.mean,
            self.day,
            self.week,
            self.slots,
            self.peaks,
            due,
            self.histograms,
            self.losses,
        )

    def weights(self, values: Values) -> tuple[float, ...]:
        """The weight of each forecaster, zero without a value; they sum to 1."""
        known = [loss for loss in self.losses if loss is not None]
        # A forecaster that was never scored begins with the median of the others.
        usual = sorted(known)[len(known) // 2] if known else 1.0
        found = [
            0.0 if value is None else (usual if loss is None else loss)
            for value, loss in zip(values, self.losses, strict=True)
        ]
        tiny = 1e-9 * (usual or 1.0)
        raw = [
            0.0 if value is None else ((usual + tiny) / (loss + tiny)) ** SHARPNESS
            for value, loss in zip(values, found, strict=True)
        ]
        total = math.fsum(raw)
        return tuple(w / total for w in raw)

    def _uppers(self, values: Values, *quantiles: float) -> list[Values]:
        """The values with their margins, for each of the quantiles."""
        margins = []
        for value, histogram in zip(values, self.histograms, strict=True):
            ratios = histogram.ratios(quantiles) if value is not None else []
            if histogram.seen < FEW:
                ratios = [max(ratio, FIRST_MARGIN) for ratio in ratios]
            margins.append(ratios)
        return [
            tuple(
                [
                    None if value is None else value * ratios[which]
                    for value, ratios in zip(values, margins, strict=True)
                ]
            )
            for which in range(len(quantiles))
        ]

    def _values(self, now_s: float, lead_s: float) -> Iterator[float | None]:
        """What each forecaster says, None where it knows too little."""
        rate = self.recent[-1][1]
        yield rate
        yield self.mean
        yield max(r for _, r in self.recent)
        for minutes in (5, 15, 60):
            yield max(self.minutes[-minutes:])
        yield min(max(rate / STEEPEST, rate + _slope(self.recent) * lead_s), STEEPEST * rate)
        yield _upcoming(self.day, now_s + lead_s, DAY_SLOT_S)
        yield _upcoming(self.week, now_s + lead_s, WEEK_SLOT_S)


def pinball(quantile: float, came: float, forecast: float) -> float:
    """The loss of a forecast of a quantile: what was missing costs more than what was too much.

    >>> round(pinball(0.9, came=12, forecast=10), 6), round(pinball(0.9, came=8, forecast=10), 6)
    (1.8, 0.2)
    """
    missing = came - forecast
    return quantile * missing if missing > 0 else (quantile - 1) * missing


def _median(weights: Sequence[float], values: Values) -> float:
    """The weighted median: a single forecaster that is far off changes little."""
    pairs = zip(values, weights, strict=True)
    known = sorted((value, weight) for value, weight in pairs if value is not None)
    half = math.fsum(weight for _, weight in known) / 2
    for value, weight in known:
        half -= weight
        if half <= 0:
            return value
    return known[-1][0]


def _slope(recent: Sequence[tuple[float, float]]) -> float:
    """Rise of the rate per second, by least squares."""
    if len(recent) < 3:
        return 0.0
    n = len(recent)
    mean_s = math.fsum(t for t, _ in recent) / n
    mean = math.fsum(rate for _, rate in recent) / n
    spread = math.fsum((t - mean_s) ** 2 for t, _ in recent)
    return math.fsum((t - mean_s) * (rate - mean) for t, rate in recent) / spread


def _upcoming(profile: Values, at_s: float, slot_s: float) -> float | None:
    """The largest rate that the profile has for a time."""
    return profile[math.floor(at_s / slot_s) % len(profile)] if profile else None
