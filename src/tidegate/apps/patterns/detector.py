"""One instance of the pattern detector: its share of the counts, and its messages to the others.

Texts arrive in *slides* of equal length; a window consists of several slides. An instance holds the
patterns whose checksum is its number. It takes two steps for each slide, in the order of slides:

1. It *closes* a slide when it has received all of its texts. It counts the window that ends there
   and reports to all instances which of its patterns have become frequent and which have ceased to
   be frequent.
2. It *settles* a slide when all instances have reported. Then it knows how many of the next larger
   patterns (one word more) are frequent for each of its patterns, and hence which of its patterns
   are maximal. The changes are the result.

Each step depends on what was received and not on when, so the results do not depend on how the
stream is divided into batches. This module uses neither a clock nor Spark.
"""

from __future__ import annotations

import pickle
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidegate.errors import InputError
from tidegate.units import finite

__all__ = ["DetectorInstance", "Event", "Rules", "instance_of", "next_smaller"]

PATIENCE = 2
"""A slide that lacks texts is closed after the texts of this number of later slides."""
LATE = "came after its window had closed"


class Event(NamedTuple):
    """A row between operators.

    kind: `text`: candidates of a text for one instance; `closed`: an instance has closed a slide;
    `+`, `-`: a pattern has become maximal or has ceased to be; `bad`: set aside.
    patterns: the candidates; those that became frequent; the one that changed. gone: those that are
    no longer frequent. times: number of texts of the window that contain the pattern.
    """

    kind: str
    slide: int | None
    instance: int
    patterns: Sequence[str]
    gone: Sequence[str] = ()
    times: int | None = None
    rejected: str | None = None


@dataclass(frozen=True)
class Rules:
    """What counts as a pattern.

    window, slide: length in texts. support: share of the texts of a window that makes a pattern
    frequent. longest: words of a pattern at most; maximal means among patterns up to this length.
    instances: parts into which the patterns are divided.
    """

    window: int = 2000
    slide: int = 200
    support: float = 0.02
    longest: int = 4
    instances: int = 8

    def __post_init__(self) -> None:
        finite(self.slide, "slide", low=1)
        if self.window < self.slide or self.window % self.slide:
            allowed = f"a multiple of the slide, {self.slide}"
            raise InputError("window", self.window, allowed, "windows consist of whole slides")
        finite(self.support, "support", above=0, high=1)
        finite(self.longest, "longest", low=1, high=6)
        finite(self.instances, "instances", low=1, high=1000)

    @property
    def slides(self) -> int:
        """Slides of a window."""
        return self.window // self.slide

    @property
    def least(self) -> int:
        """Texts of a window that contain a frequent pattern, at least; also while it fills.

        >>> Rules(window=2000, support=0.02).least
        40
        """
        return max(1, -(-round(self.support * self.window * 1e6) // 1_000_000))


def instance_of(pattern: str, instances: int) -> int:
    """The instance that holds a pattern, by the same `crc32` as in Spark."""
    return zlib.crc32(pattern.encode()) % instances


def next_smaller(pattern: str) -> Iterator[str]:
    """The patterns with one word less.

    >>> list(next_smaller("a b c"))
    ['b c', 'a c', 'a b']
    """
    words = pattern.split(" ")
    if len(words) > 1:
        for n in range(len(words)):
            yield " ".join(words[:n] + words[n + 1 :])


@dataclass
class DetectorInstance:
    """The state of one instance.

    Args:
        number: Of the instance.
        closed: The last closed slide.
        settled: The last settled slide.
        texts: Number of texts received, by open slide.
        fresh: Their patterns, by open slide.
        counted: Patterns of each closed slide of the window, packed: only closing a slide needs
            them, which most batches do not do.
        counts: Their sum, packed.
        frequent: Patterns that are frequent in the last closed window.
        watched: By slide that is closed and not settled, counts of all patterns that are or were
            frequent.
        heard: Instances that have closed such a slide, by slide.
        rising: Change in the number of frequent patterns above each own pattern, by slide.
        above: Number of frequent patterns above each own pattern.
        maximal: Patterns that are maximal in the last settled window.
    """

    number: int
    closed: int = -1
    settled: int = -1
    texts: Counter[int] = field(default_factory=Counter)
    fresh: dict[int, Counter[str]] = field(default_factory=dict)
    counted: dict[int, bytes] = field(default_factory=dict)
    counts: bytes = field(default_factory=lambda: _pack(Counter()))
    frequent: set[str] = field(default_factory=set)
    watched: dict[int, dict[str, int]] = field(default_factory=dict)
    heard: dict[int, set[int]] = field(default_factory=dict)
    rising: dict[int, Counter[str]] = field(default_factory=dict)
    above: Counter[str] = field(default_factory=Counter)
    maximal: set[str] = field(default_factory=set)

    def pack(self) -> bytes:
        """Serialise for the state store."""
        return _pack(self)

    @staticmethod
    def unpack(packed: bytes) -> DetectorInstance:
        """Deserialise what `pack` made."""
        found = pickle.loads(packed)
        assert isinstance(found, DetectorInstance)
        return found

    def work(self, events: Sequence[Event], rules: Rules) -> Iterator[Event]:
        """Receive events in any order, and take all steps that they allow."""
        for event in events:
            if event.kind == "closed":
                self._hear(event, rules)
            else:
                yield from self._take(event)
        while self._complete(self.closed + 1, rules):
            yield self._close(rules)
        while len(self.heard.get(self.settled + 1, ())) == rules.instances:
            yield from self._settle(rules)

    def _take(self, event: Event) -> Iterator[Event]:
        slide = event.slide
        assert slide is not None  # the generator sets aside texts without a number
        if slide <= self.closed:
            if self.number == 0:  # all instances got a share of the text: one reports
                yield Event("bad", slide, 0, (), rejected=LATE)
            return
        self.texts[slide] += 1
        self.fresh.setdefault(slide, Counter()).update(event.patterns)

    def _complete(self, slide: int, rules: Rules) -> bool:
        if self.texts[slide] >= rules.slide:
            return True
        # Texts were lost or shed. A single text with a much higher number is not enough evidence.
        later = sum(count for number, count in self.texts.items() if number > slide)
        return later >= PATIENCE * rules.slide

    def _close(self, rules: Rules) -> Event:
        self.closed += 1
        slide = self.closed
        self.texts.pop(slide, None)
        entering = self.fresh.pop(slide, Counter())
        packed = self.counted.pop(slide - rules.slides, None)
        leaving: Counter[str] = pickle.loads(packed) if packed else Counter()
        counts: Counter[str] = pickle.loads(self.counts)
        counts.update(entering)
        counts.subtract(leaving)
        before, now = self.frequent, set(self.frequent)
        for pattern in {**entering, **leaving}:
            (now.add if counts[pattern] >= rules.least else now.discard)(pattern)
            if not counts[pattern]:
                del counts[pattern]
        self.counted[slide], self.counts, self.frequent = _pack(entering), _pack(counts), now
        self.watched[slide] = {pattern: counts[pattern] for pattern in before | now}
        return Event("closed", slide, self.number, sorted(now - before), sorted(before - now))

    def _hear(self, event: Event, rules: Rules) -> None:
        slide = event.slide
        assert slide is not None
        self.heard.setdefault(slide, set()).add(event.instance)
        rising = self.rising.setdefault(slide, Counter())
        for change, patterns in ((1, event.patterns), (-1, event.gone)):
            for pattern in patterns:
                for smaller in next_smaller(pattern):
                    if instance_of(smaller, rules.instances) == self.number:
                        rising[smaller] += change

    def _settle(self, rules: Rules) -> Iterator[Event]:
        self.settled += 1
        slide = self.settled
        del self.heard[slide]
        for pattern, change in self.rising.pop(slide).items():
            self.above[pattern] += change
            if not self.above[pattern]:
                del self.above[pattern]
        # This instance has closed the slide too: it receives its own report through the loop.
        counts = self.watched.pop(slide)
        now = {p for p, n in counts.items() if n >= rules.least and p not in self.above}
        for kind, changed in (("+", now - self.maximal), ("-", self.maximal - now)):
            for pattern in sorted(changed):
                yield Event(kind, slide, self.number, (pattern,), times=counts[pattern])
        self.maximal = now


def _pack(value: Any) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
