"""Short texts with changing fashions, and their maximal frequent patterns by brute force.

A text has a few words: some at random from a skewed vocabulary, and often a phrase in fashion.
Fashions change with the number of the text, so patterns become frequent and stop being frequent.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegate.apps.patterns.detector import PATIENCE, Rules
from tidegate.apps.records import with_bad_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["BEHIND_S", "LIMIT", "MOST_WORDS", "brute_force", "maximal", "spoiled", "texts"]

BEHIND_S, AHEAD_S = 3600, 60
"""Seconds that a text's clock may be behind and ahead of the time when it was sent."""
MOST_WORDS = 12
"""Distinct words of a text at most; the number of its patterns grows exponentially with them."""
LIMIT = 2**53
"""Numbers of texts are below this."""

WORDS = re.findall(
    r"\w+",
    """
    rain coffee train monday late game goal music night sun beach phone battery dead love
    cat video new album tour ticket queue bus delay snow ice road work boss lunch pizza
    cheese wine friday party dress shoes sale price bank rent flat garden dog walk park run
    marathon rest sleep early school exam result happy birthday cake candle film star red
    carpet novel page writer news vote debate answer market stock crash bike wheel helmet
    river bridge boat storm wind power light dark moon cloud warm cold tea milk sugar bread
    oven recipe soup kitchen table chair window door key lost found street city map tower
    view photo camera lens smile baby tooth doctor clinic health sport team coach match win
    lose draw cup final ring song
    """,
)
PHRASES = 24
FASHION = 400
"""Number of texts after which the next phrase comes into fashion."""


def texts(
    source: str, moments: NDArray[np.float64], first_id: int, random: np.random.Generator
) -> pa.Table:
    """One text for each moment (see `tidegate.apps.application.Generate`)."""
    import pyarrow as pa

    fixed = np.random.default_rng(17)  # the language is the same in every run
    phrases = [fixed.choice(WORDS, fixed.integers(2, 5), replace=False) for _ in range(PHRASES)]
    shares = np.cumsum(1 / (np.arange(len(WORDS)) + 4.0))
    count = len(moments)
    sent_us = np.round(moments * 1e6).astype(np.int64)
    by_chance = np.searchsorted(shares, random.random((count, 3)) * shares[-1])
    how_many = random.integers(1, 4, count)
    # Mostly one of the three phrases around the current fashion, or the beginning of one.
    hour = (first_id + np.arange(count)) / FASHION + random.normal(0, 0.8, count)
    quoted = np.where(random.random(count) < 0.7, random.integers(1, 5, count), 0)
    first = random.random(count) < 0.5
    values = []
    for n in range(count):
        words = [WORDS[word] for word in by_chance[n, : how_many[n]]]
        quote = phrases[int(hour[n]) % PHRASES][: quoted[n]].tolist()
        text = " ".join(quote + words if first[n] else words + quote)
        values.append(json.dumps({"text": text.capitalize(), "at_us": int(sent_us[n])}))
    ids = np.arange(first_id, first_id + count)
    return pa.table({"id": ids, "value": pa.array(values, pa.string()), "sent_us": sent_us})


def spoiled(table: pa.Table, share: float, random: np.random.Generator) -> pa.Table:
    """The texts with about that share of bad ones added, of every kind.

    Bad texts have no number, so that the good ones keep their places.
    """
    return with_bad_rows(table, share, random, _FAULTS)


def _spoil(fault: Callable[[dict[str, Any]], dict[str, Any]], row: dict[str, Any]) -> None:
    row.update(id=-1, **fault(row))


_FAULTS = tuple(
    partial(_spoil, fault)
    for fault in (
        lambda row: {"value": row["value"][:-4]},  # torn
        lambda row: {"value": None},
        lambda row: {"value": "\x00\ufffd" * 50},  # poison
        lambda row: {"value": '{"text": 12, "at_us": 1}'},
        lambda row: {"value": row["value"].replace('"text": "', '"text": "1234 ! ')},
        lambda row: {"sent_us": row["sent_us"] + 2_000_000 * BEHIND_S},  # the clock is behind
        lambda row: {"sent_us": row["sent_us"] - 2_000_000 * AHEAD_S},  # and ahead
    )
)


def brute_force(table: pa.Table, rules: Rules) -> list[dict[str, Any]]:
    """All changes of the maximal frequent patterns from window to window.

    Every window is computed separately, from its texts alone.
    """
    slides: dict[int, list[list[str]]] = {}
    for row in table.to_pylist():
        if row["id"] is not None and 0 <= row["id"] < LIMIT:
            slides.setdefault(row["id"] // rules.slide, []).append(_words(row))
    changes, before, slide = [], dict[str, int](), 0
    while _closed(slide, slides, rules):
        window = [
            words
            for number in range(slide - rules.slides + 1, slide + 1)
            for words in slides.get(number, [])
        ]
        counts, now = maximal(window, rules)
        for change, patterns in (("+", now.keys() - before), ("-", before.keys() - now)):
            changes += [
                {
                    "until": (slide + 1) * rules.slide,
                    "pattern": pattern,
                    "change": change,
                    "times": counts[pattern],
                }
                for pattern in patterns
            ]
        before, slide = now, slide + 1
    return changes


def maximal(window: list[list[str]], rules: Rules) -> tuple[Counter[str], dict[str, int]]:
    """How often each pattern occurs in a window of texts, and the maximal ones of the frequent.

    >>> rules = Rules(window=4, slide=4, support=0.5)
    >>> maximal([["a", "b"], ["a", "b", "c"], ["c"], []], rules)[1]
    {'a b': 2, 'c': 2}
    """
    counts = Counter(
        " ".join(pattern)
        for words in window
        for length in range(1, rules.longest + 1)
        for pattern in combinations(sorted(words), length)
    )
    frequent = {p: frozenset(p.split(" ")) for p, n in counts.items() if n >= rules.least}
    return counts, {
        pattern: counts[pattern]
        for pattern, words in sorted(frequent.items())
        if not any(words < other for other in frequent.values())
    }


def _closed(slide: int, slides: Mapping[int, list[list[str]]], rules: Rules) -> bool:
    """Whether all texts of a slide have arrived, or many after it."""
    later = sum(len(found) for number, found in slides.items() if number > slide)
    return len(slides.get(slide, [])) >= rules.slide or later >= PATIENCE * rules.slide


def _words(row: Mapping[str, Any]) -> list[str]:
    """The distinct words of a text; none if the text is bad."""
    try:
        record = json.loads(row["value"] or "")
    except ValueError:
        return []
    if not isinstance(record, dict) or not isinstance(text := record.get("text"), str):
        return []
    if not isinstance(at_us := record.get("at_us"), int) or row["sent_us"] is None:
        return []
    if not -BEHIND_S * 1_000_000 <= at_us - row["sent_us"] <= AHEAD_S * 1_000_000:
        return []
    words = sorted(set(re.findall("[a-z]+", text.lower())))
    return words if len(words) <= MOST_WORDS else []
