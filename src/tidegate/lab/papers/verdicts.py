"""From whether a criterion holds, by world and seed, to a verdict.

Where a paper leaves something open, more than one world is run. A claim is *reproduced* when its
criterion holds in all of them, *partly* when in some, and *not* when in none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.lab.papers.claims import Verdict

__all__ = ["SOMEWHERE", "WORLDS", "because", "failing", "join", "overall"]

SOMEWHERE, WORLDS = "in some worlds or seeds", "in some worlds"
"""When `overall` says partly, in words; the latter where the criterion is on means over seeds."""


def overall(holds: Mapping[str, Sequence[bool]]) -> Verdict:
    """The verdict from whether a criterion holds, by world and seed.

    >>> overall({"a": [True], "b": [True, False]}), overall({"a": [False]})
    ('partly', 'not')
    """
    every = [value for values in holds.values() for value in values]
    if every and all(every):
        return "reproduced"
    return "partly" if any(every) else "not"


def failing(holds: Mapping[str, Sequence[bool]]) -> str:
    """Where a criterion does not hold, as a sentence; empty when it holds everywhere.

    >>> failing({"one": [True], "two": [False, True]})
    'Does not hold in: two (1 of 2).'
    """
    found = [
        name + (f" ({list(values).count(False)} of {len(values)})" if len(values) > 1 else "")
        for name, values in holds.items()
        if not all(values)
    ]
    return "Does not hold in: " + "; ".join(found) + "." if found else ""


def join(*sentences: str) -> str:
    """Sentences one after the other, without the empty ones."""
    return " ".join(sentence for sentence in sentences if sentence)


def because(holds: Mapping[str, Sequence[bool]], why: str) -> str:
    """Where it does not hold and why, nothing when it holds everywhere."""
    where = failing(holds)
    return join(where, why) if where else ""
