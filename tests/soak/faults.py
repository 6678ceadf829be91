"""The faults of the soak: when they come, and how the journal must show them.

A day has each kind at least once, at random times. A fault that lasts may be interrupted by a kill.
On calm days nobody restarts the controller, so that it lives for longer than a day.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.soak.job import ABSURD, DAY_S, IMPOSSIBLE, MISSING
from tidegate.guards.base import CLOCK
from tidegate.loop.journal import Turn

RESTARTS = {
    "restart": "turn numbers begin at 1 again",
    "killed": "turn numbers begin at 1 again",
    "torn journal": "a note with the bytes of the torn line; none if it was cut between two lines",
    "zeros in journal": "a note with the bytes of the torn line",
    "other policy": "the turns name the new policy",
}
"""Faults that end the controller, and how the journal shows each."""
OTHERS = {
    "clock back": "the reason `clock` in the next plan",
    "clock forward": "the time of the next turn",
    "missing metrics": "readings without values, and no release if the policy needs them",
    "absurd metrics": "the readings, with a plan within bounds; if impossible, a failed turn",
    "full disk": "a note with the number of turns that could not be written",
    "silent driver": "failed turns",
    "refused requests": "failed turns",
    "executor lost": "the snapshot lacks it",
    "garbage control": "a refused control",
}
"""The other faults."""
LASTING = ("missing metrics", "absurd metrics", "full disk", "silent driver", "refused requests")
PER_DAY = 24
LONGEST = 20
"""Turns that a fault lasts at most."""
CALM = 3
"""Every third day nobody restarts the controller."""
BACK_S, FORWARD_S = (-90.0, -3600.0, -30 * DAY_S), (90.0, 3600.0, 2 * DAY_S)


@dataclass
class Fault:
    """A fault.

    Args:
        kind: Key of `RESTARTS` or `OTHERS`.
        turn: Number of the first turn that meets it, from 1.
        turns: Number of turns that it lasts.
        detail: What exactly happens.
        killed_at: Turn before which the controller is killed in addition, 0 for none.
        mark: Turns written before it began.
        before_s: Time of the wall clock then.
        problems: Problems found before it began.
        seconds: By how much the clock jumps.
    """

    kind: str
    turn: int
    turns: int = 1
    detail: str = ""
    killed_at: int = 0
    mark: int = 0
    before_s: float = 0.0
    problems: int = 0
    seconds: float = 0.0

    @property
    def last(self) -> int:
        """The last turn that meets it."""
        return self.turn + self.turns - 1


def faults_of_day(seed: int, day: int, turns: int) -> list[Fault]:
    """The faults of a day from 0, in order. turns: in a day."""
    choice = random.Random(f"{seed}/{day}")
    calm = day % CALM == CALM - 1
    kinds = list(OTHERS) if calm else [*RESTARTS, *OTHERS]
    drawn = kinds + choice.choices(kinds, k=PER_DAY - len(kinds))
    choice.shuffle(drawn)
    width = (turns - 2 * LONGEST - 10) // PER_DAY
    if width < LONGEST + 5:
        raise ValueError(f"a day of {turns} turns is too short for {PER_DAY} faults")
    found: list[Fault] = []
    for n, kind in enumerate(drawn):
        at = day * turns + LONGEST + n * width + choice.randrange(1, width - LONGEST - 3)
        fault = Fault(kind, at)
        if kind in LASTING:
            fault.turns = choice.randint(1, LONGEST)
            if fault.turns > 2 and not calm and choice.random() < 0.25:
                fault.killed_at = choice.randint(at + 1, fault.last)
        fault.detail = {
            "missing metrics": lambda: choice.choice(list(MISSING)),
            "absurd metrics": lambda: choice.choice(list(ABSURD)),
            "refused requests": lambda: choice.choice(["before", "after"]),
        }.get(kind, str)()
        if kind.startswith("clock"):
            fault.seconds = choice.choice(BACK_S if kind == "clock back" else FORWARD_S)
            if kind == "clock forward" and kind not in [f.kind for f in found]:
                fault.seconds = FORWARD_S[-1]  # the journal of every day is rotated
            fault.detail = f"{fault.seconds:+g} s"
        found.append(fault)
    return found


def not_shown(fault: Fault, turns: Sequence[Turn]) -> str:
    """What the journal lacks about a fault; empty if it shows it.

    turns: those that were written since it began, with one after its end, oldest first.
    """
    first = turns[0]
    meeting = turns[:-1] if fault.kind in LASTING else turns[:1]
    if fault.kind in ("silent driver", "refused requests"):
        return "a turn did not fail" if any(turn.error is None for turn in meeting) else ""
    if fault.kind == "clock back":
        codes = {reason.code for reason in first.plan.reasons} if first.plan else set()
        return "" if CLOCK in codes else "no plan says that the clock went back"
    if fault.kind == "clock forward":
        passed_s = first.snapshot.time_s - fault.before_s if first.snapshot is not None else 0.0
        return "" if passed_s > fault.seconds else f"the time rose by {passed_s:g} s only"
    if fault.kind == "missing metrics":
        return _not_missing(fault, meeting)
    if fault.kind == "absurd metrics" and fault.detail in IMPOSSIBLE:
        return "an impossible reading was accepted" if any(t.error is None for t in meeting) else ""
    if fault.kind == "absurd metrics":
        return "" if all(_absurd(fault, turn) for turn in meeting) else "a reading was lost"
    if fault.kind == "executor lost":
        there = first.snapshot is None or fault.detail in first.snapshot.host
        return "the snapshot has it" if there else ""
    if fault.kind == "garbage control":
        return "" if any(c.refused for c in first.controls) else "no control was refused"
    return ""  # notes and numbers are compared turn by turn


def _not_missing(fault: Fault, turns: Sequence[Turn]) -> str:
    change = MISSING[fault.detail]
    for turn in turns:
        if turn.snapshot is None:
            return "a snapshot was lost"
        if any(change(reading) != reading for reading in turn.snapshot.operators):
            return "a missing value is not missing in the journal"
    return ""


def _absurd(fault: Fault, turn: Turn) -> bool:
    change = ABSURD[fault.detail]
    seen = turn.snapshot.operators if turn.snapshot is not None else ()
    return bool(seen) and all(change(reading) == reading for reading in seen)
