"""Reinforcement learning: every host learns its own thresholds (FUGU, section IV-C)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import ClassVar, Literal

from tidegate.codec import Value
from tidegate.model import Host, Plan, Snapshot
from tidegate.packing import Packing
from tidegate.packing.relief import excess_of, relieve
from tidegate.policies.base import Style, setting
from tidegate.policies.local_threshold import ThreeUtilisations

__all__ = ["Pending", "QTable", "Sarsa", "SarsaMemory", "learning_rate", "reward", "updated"]

SCALE_IN, NO_ACTION, SCALE_OUT = range(3)
ACTIONS = ("scale in", "no action", "scale out")
STEP = 0.05
STATES = round(1 / STEP) + 1

Row = tuple[float, float, float]


def reward(before: float, after: float, target: float) -> float:
    """1 plus the fall of the relative utilisation error |target − u| / target."""
    return 1 + abs(target - before) / target - abs(target - after) / target


def learning_rate(visits: int, impact: float, duration: float) -> float:
    """α = imp · dur / (dur + visits): large at first, falling with the visits of the state."""
    return impact * duration / (duration + visits)


def updated(value: float, immediate: float, future: float, alpha: float, beta: float) -> float:
    """Sarsa(0): (1 − α) Q + α (r + β Q').

    The paper's Table I: at 0.70 no action is worth 0.85; the next utilisation is 0.90, where no
    action is worth 0.5. The paper prints 0.822, since it rounds the two errors:

    >>> immediate = reward(before=0.7, after=0.9, target=0.6)
    >>> round(updated(0.85, immediate, future=0.5, alpha=learning_rate(0, 0.2, 80), beta=0.1), 4)
    0.8233
    """
    return (1 - alpha) * value + alpha * (immediate + beta * future)


def state_of(utilisation: float) -> int:
    """The row of a utilisation: steps of 0.05, rounded down; values above 1 count as 1.

    Rounding down keeps the thresholds where they are set: 0.79 belongs to the row of 0.75, which
    does not scale out with an upper threshold of 0.8.

    >>> state_of(0.79) * STEP, state_of(0.8) * STEP
    (0.75, 0.8)
    """
    return min(STATES - 1, math.floor(utilisation / STEP + 1e-9))


@dataclass(frozen=True, slots=True)
class Pending(Value):
    """A decision whose effect is not known yet. cancelled: it was wrong and gets the penalty."""

    state: int
    action: int
    utilisation: float
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class QTable(Value):
    """The table that one host has learnt.

    rows: expected reward of scale in, no action and scale out, for utilisations 0, 0.05 … 1.
    visits: learning steps by row. pending: the last decision. quiet_until_s: end of its grace.
    """

    rows: tuple[Row, ...]
    visits: tuple[int, ...] = (0,) * STATES
    pending: Pending | None = None
    quiet_until_s: float = float("-1e300")

    @classmethod
    def from_thresholds(cls, lower: float, upper: float) -> QTable:
        """A table that acts like local thresholds; at 0.3 and 0.8 it is the paper's Table I.

        >>> table = QTable.from_thresholds(0.3, 0.8)
        >>> [table.rows[state_of(u)] for u in (0.7, 0.8, 0.9, 1.0)]
        [(0.4, 0.85, 0.8), (0.38, 0.7, 0.85), (0.35, 0.5, 0.9), (0.32, 0.4, 1.0)]
        >>> table.thresholds
        (0.3, 0.8)
        """
        return cls(_threshold_rows(lower, upper))

    def best(self, state: int) -> int:
        """The action with the highest expected reward; doing nothing wins a tie."""
        return _best(self.rows[state])

    @property
    def thresholds(self) -> tuple[float | None, float | None]:
        """The utilisations below which it scales in and from which it scales out, None if never."""
        actions = [self.best(state) for state in range(STATES)]
        shrink = [(s + 1) * STEP for s, action in enumerate(actions) if action == SCALE_IN]
        grow = [s * STEP for s, action in enumerate(actions) if action == SCALE_OUT]
        return (
            round(min(1.0, shrink[-1]), 2) if shrink else None,
            round(grow[0], 2) if grow else None,
        )

    def learnt(self, state: int, action: int, value: float) -> QTable:
        """The table with a new value and one more visit, made monotonic again.

        A busier host never prefers a smaller action than a less busy one. The rule holds upward, as
        in the paper: a row whose best action is smaller than that of a row below it has the larger
        action raised until it wins. A row never changes what less busy rows prefer.
        """
        rows = list(self.rows)
        rows[state] = _with(rows[state], action, value)
        visits = list(self.visits)
        visits[state] += 1
        # All other rows are monotonic, so those above need a look until one is large enough.
        largest = _best(rows[state - 1]) if state else SCALE_IN
        for other in range(state, STATES):
            row = rows[other]
            theirs = _best(row)
            if theirs < largest:
                rows[other] = _with(row, largest, max(row) + 1e-9)
            elif other == state:
                largest = theirs
            else:
                break
        return QTable(tuple(rows), tuple(visits), self.pending, self.quiet_until_s)

    def after(self, pending: Pending | None) -> QTable:
        """The table with another last decision."""
        return QTable(self.rows, self.visits, pending, self.quiet_until_s)

    def quiet_until(self, until_s: float) -> QTable:
        """The table with another end of its grace."""
        return QTable(self.rows, self.visits, self.pending, until_s)


# The paper's Table I by distance: the reward of an action by how far the utilisation is beyond the
# threshold that asks for it, and of doing nothing by how far it is outside the band. The paper
# prints the rows from 0.7 to 1.0; below them, scaling in mirrors scaling out.
_ACT = ((-0.7, 0.32), (-0.6, 0.35), (-0.5, 0.38), (-0.4, 0.4), (-0.1, 0.8), (0.0, 0.85), (0.1, 0.9),
        (0.2, 1.0))  # fmt: skip
_REST = ((-0.25, 1.0), (-0.1, 0.85), (0.0, 0.7), (0.1, 0.5), (0.2, 0.4))


@cache
def _threshold_rows(lower: float, upper: float) -> tuple[Row, ...]:
    rows = []
    for state in range(STATES):
        u = state * STEP
        values = [
            _between(_ACT, lower - u),
            _between(_REST, max(lower - u, u - upper)),
            _between(_ACT, u - upper),
        ]
        right = SCALE_IN if u < lower - 1e-9 else SCALE_OUT if u > upper - 1e-9 else NO_ACTION
        # Half a step inside a threshold, straight lines would already prefer the other action.
        values[right] = max(
            values[right], 0.01 + max(v for a, v in enumerate(values) if a != right)
        )
        rows.append((round(values[0], 9), round(values[1], 9), round(values[2], 9)))
    return tuple(rows)


def _between(points: Sequence[tuple[float, float]], x: float) -> float:
    """The value at x on straight lines between points; that of the first or last one outside."""
    for (x0, y0), (x1, y1) in pairwise(points):
        if x < x1:
            return y0 + (y1 - y0) * max(0.0, x - x0) / (x1 - x0)
    return points[-1][1]


def _best(row: Row) -> int:
    shrink, stay, grow = row
    if stay >= shrink and stay >= grow:
        return NO_ACTION
    return SCALE_IN if shrink >= grow else SCALE_OUT


def _with(row: Row, action: int, value: float) -> Row:
    values = list(row)
    values[action] = value
    return (values[0], values[1], values[2])


@dataclass(frozen=True, slots=True)
class SarsaMemory(Value):
    """Tables by host: made at its lease, dropped at its release."""

    tables: Mapping[str, QTable] = field(default_factory=dict)


@dataclass(frozen=True)
class Sarsa(ThreeUtilisations):
    """Learn from each decision what it did to the utilisation, and move the thresholds by it.

    Each host has a table from utilisation to the expected reward of scaling in, doing nothing and
    scaling out, which starts as the local thresholds (`lower` exclusive, `upper` inclusive). A
    decision is rewarded by how much nearer to `target` the host came, seen after the grace period.
    A release that placement cannot carry out is cancelled and gets `penalty`, and so is a scale-out
    of a host that is not above `target`. A scale-out that finds no room was not wrong: it teaches
    nothing and is tried again at the next turn. Busier never means a smaller action (soft
    monotonicity).

    `bootstrap` is ``same-action`` as in the paper's worked example (Table I), which takes the
    value of the *same* action in the new state; ``next-action`` is Sarsa as in the textbooks.

    >>> from tidegate.testing import fleet_snapshot
    >>> policy = Sarsa()
    >>> table = QTable.from_thresholds(0.3, 0.8)
    >>> memory = SarsaMemory({"host-1": table})
    >>> for cores in (2.8, 3.6):  # of four: 0.7, then 0.9
    ...     _, memory = policy.decide(fleet_snapshot({"host-1": [cores]}), memory)
    >>> round(memory.tables["host-1"].rows[14][1], 4)
    0.8233

    T. Heinze et al., *Auto-scaling Techniques for Elastic Data Stream Processing*, ICDE 2014.
    """

    name: ClassVar[str] = "sarsa"
    paper: ClassVar[str] = "FUGU (Heinze et al. 2014), IV-C"
    style: ClassVar[Style] = "placement"
    needs: ClassVar[tuple[str, ...]] = ("host.utilisation",)
    memory_type: ClassVar[type] = SarsaMemory

    impact: float = setting(
        0.2, "imp: weight of what is new in a first learning step", low=0, high=1
    )
    duration: float = setting(80.0, "dur: visits after which learning has slowed to half", low=1)
    beta: float = setting(0.1, "β: weight of the expected future reward", low=0, high=1)
    penalty: float = setting(-1.0, "reward of a wrong decision, which is cancelled", high=0)
    bootstrap: Literal["same-action", "next-action"] = setting(
        "same-action",
        "whose value in the new state stands for the future",
        choices=("same-action", "next-action"),
    )

    def decide(self, snapshot: Snapshot, memory: SarsaMemory) -> tuple[Plan, SarsaMemory]:
        """Learn from the last decision of each host, then take the best action for it."""
        now = snapshot.time_s
        packing = self.packing(snapshot)
        tables = {
            host.id: memory.tables.get(host.id) or self._new_table(now, first=not memory.tables)
            for host in snapshot.running_hosts
        }
        wishes: dict[str, tuple[Host, int]] = {}
        for host in snapshot.running_hosts:
            table = tables[host.id]
            if host.pressure is None or self.is_quiet(table.quiet_until_s, now):
                continue  # nothing stable to learn from yet, and nothing to decide
            state = state_of(host.pressure)
            wish = table.best(state)
            if table.pending is not None:
                gained = self.gained(table.pending, host, snapshot)
                table = self._learn(table, table.pending, gained, state, wish)
                wish = table.best(state)
            tables[host.id] = table.after(self.begun(host, state, wish, snapshot))
            wishes[host.id] = (host, wish)

        out = [host for host, wish in wishes.values() if wish == SCALE_OUT]
        inward = [host for host, wish in wishes.values() if wish == SCALE_IN]
        busy = {host.id for host in out}
        excess = {host.id: excess_of(host, self.target) for host in out}
        moved = relieve(packing, excess)
        for host in out:
            if count := moved[host.id]:
                text = f"{self._at(host)} scale out: {count} operators leave"
                packing.because("overload", text, host.id)
                tables[host.id] = tables[host.id].quiet_until(now + self.grace_s)
            elif excess[host.id] <= 0:
                text = (
                    f"{self._at(host)} scale out, but it is not above {self.target:.2f}: cancelled"
                )
                packing.because("scale-out-cancelled", text, host.id)
                tables[host.id] = self._cancelled(tables[host.id])
            else:  # the fleet is full, or the host has one operator: the decision was not wrong
                text = f"{self._at(host)} scale out, but nothing can leave: it tries again"
                packing.because("no-room", text, host.id)
                tables[host.id] = tables[host.id].after(None)
        for host in sorted(inward, key=lambda host: host.pressure or 0.0):
            if packing.received(host.id):  # it has just become a refuge: nothing to judge
                tables[host.id] = tables[host.id].after(None)
                continue
            if not self._scale_in(packing, host, busy):
                tables[host.id] = self._cancelled(tables[host.id])
        for name in self.affected(packing):
            if name in tables:  # a host that is leased now gets its table when it is up
                tables[name] = tables[name].quiet_until(now + self.grace_s)
        kept = {host: table for host, table in tables.items() if packing.has(host)}
        return packing.plan(), SarsaMemory(kept)

    def _new_table(self, now_s: float, first: bool) -> QTable:
        table = QTable.from_thresholds(self.lower, self.upper)
        return table if first else table.quiet_until(now_s + self.grace_s)

    def begun(self, host: Host, state: int, action: int, snapshot: Snapshot) -> Pending:
        """A decision, with what its reward will be compared with."""
        return Pending(state, action, host.pressure or 0.0)

    def gained(self, past: Pending, host: Host, snapshot: Snapshot) -> float:
        """The reward of a decision, now that its effect on the host is seen."""
        if past.cancelled:
            return self.penalty
        return reward(past.utilisation, host.pressure or 0.0, self.target)

    def _learn(self, table: QTable, past: Pending, gained: float, state: int, wish: int) -> QTable:
        follower = past.action if self.bootstrap == "same-action" else wish
        value = updated(
            table.rows[past.state][past.action],
            gained,
            table.rows[state][follower],
            learning_rate(table.visits[past.state], self.impact, self.duration),
            self.beta,
        )
        return table.learnt(past.state, past.action, value)

    def _scale_in(self, packing: Packing, host: Host, busy: set[str]) -> bool:
        if len(packing.hosts) > 1 and packing.evacuate(host.id, avoid=busy):
            packing.because("underload", f"{self._at(host)} scale in: it is released", host.id)
            return True
        text = "its operators fit nowhere else: cancelled, with a penalty"
        packing.because("release-cancelled", f"{self._at(host)} scale in, but {text}", host.id)
        return False

    @staticmethod
    def _at(host: Host) -> str:
        return f"{host.id} at {host.pressure:.2f} has learnt to"

    @staticmethod
    def _cancelled(table: QTable) -> QTable:
        """The table, with its last decision marked as one that gets the penalty."""
        past = table.pending
        return table if past is None else table.after(replace(past, cancelled=True))
