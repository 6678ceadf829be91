"""Reinforcement learning: every host learns its own thresholds (FUGU, section IV-C)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import ClassVar, Literal

from tidegate.codec import Value
from tidegate.model import Host, Plan, Snapshot
from tidegate.packing import Packing
from tidegate.packing.relief import excess_cores, relieve
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
    """The row of a utilisation, in steps of 0.05; values above 1 count as 1."""
    return min(STATES - 1, round(utilisation / STEP))


@dataclass(frozen=True, slots=True)
class Pending(Value):
    """A decision whose effect is not known yet. cancelled: no placement was found for it."""

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
        """A table that acts like local thresholds: 1 for the right action, less with distance.

        >>> QTable.from_thresholds(0.3, 0.8).thresholds
        (0.25, 0.8)
        """
        return cls(_threshold_rows(lower, upper))

    def best(self, state: int) -> int:
        """The action with the highest expected reward; doing nothing wins a tie."""
        row = self.rows[state]
        return max((NO_ACTION, SCALE_IN, SCALE_OUT), key=lambda action: row[action])

    @property
    def thresholds(self) -> tuple[float | None, float | None]:
        """The utilisations up to which it scales in and from which it scales out, None if never."""
        actions = [self.best(state) for state in range(STATES)]
        shrink = [s * STEP for s, action in enumerate(actions) if action == SCALE_IN]
        grow = [s * STEP for s, action in enumerate(actions) if action == SCALE_OUT]
        return (round(shrink[-1], 2) if shrink else None, round(grow[0], 2) if grow else None)

    def learnt(self, state: int, action: int, value: float) -> QTable:
        """The table with a new value and one more visit, made monotonic again.

        A busier host never prefers a smaller action than a less busy one. Where the new value
        breaks that rule, the reward of the action in the other rows is raised until it wins there.
        """
        rows = list(self.rows)
        rows[state] = _with(rows[state], action, value)
        visits = list(self.visits)
        visits[state] += 1
        table = replace(self, rows=tuple(rows), visits=tuple(visits))
        now_best = table.best(state)
        if now_best == self.best(state):
            return table
        for other in range(STATES):
            theirs = table.best(other)
            if (other > state and theirs < now_best) or (other < state and theirs > now_best):
                lifted = max(rows[other]) + 1e-9
                rows[other] = _with(rows[other], now_best, lifted)
        return replace(table, rows=tuple(rows))


@cache
def _threshold_rows(lower: float, upper: float) -> tuple[Row, ...]:
    rows = []
    for state in range(STATES):
        u = state * STEP
        apart = (max(0.0, u - lower), max(0.0, lower - u, u - upper), max(0.0, upper - u))
        right = SCALE_IN if u < lower - 1e-9 else SCALE_OUT if u > upper - 1e-9 else NO_ACTION
        values = [round(max(0.0, 0.9 - distance), 9) for distance in apart]
        values[right] = 1.0
        rows.append((values[0], values[1], values[2]))
    return tuple(rows)


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
    scaling out, which starts as the local thresholds. A decision is rewarded by how much nearer to
    `target` the host came, seen after the grace period; one that placement cannot carry out is
    cancelled and gets `penalty`. Busier never means a smaller action (soft monotonicity).

    `bootstrap` is ``same-action`` as in the paper's worked example (Table I), which takes the
    value of the *same* action in the new state; ``next-action`` is Sarsa as in the textbooks.

    >>> from tidegate.testing import fleet_snapshot
    >>> policy = Sarsa()
    >>> table = QTable.from_thresholds(0.3, 0.8)
    >>> for state, row in ((14, (0.4, 0.85, 0.8)), (18, (0.35, 0.5, 0.9))):
    ...     rows = table.rows
    ...     table = replace(table, rows=(*rows[:state], row, *rows[state + 1 :]))
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
    penalty: float = setting(-1.0, "reward of a decision that could not be carried out", high=0)
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
            if host.utilisation is None or self.is_quiet(table.quiet_until_s, now):
                continue  # nothing stable to learn from yet, and nothing to decide
            state = state_of(host.utilisation)
            wish = table.best(state)
            if table.pending is not None:
                table = self._learn(table, table.pending, host.utilisation, wish)
                wish = table.best(state)
            tables[host.id] = replace(table, pending=Pending(state, wish, host.utilisation))
            wishes[host.id] = (host, wish)

        out = [host for host, wish in wishes.values() if wish == SCALE_OUT]
        inward = [host for host, wish in wishes.values() if wish == SCALE_IN]
        busy = {host.id for host in out}
        moved = relieve(packing, {host.id: excess_cores(host, self.target) for host in out})
        for host in out:
            if count := moved[host.id]:
                at = f"{host.id} at {host.utilisation:.2f}"
                text = f"{at} has learnt to scale out: {count} operators leave"
                packing.because("overload", text, host.id)
            self._settle(tables, host, count > 0, now)
        for host in sorted(inward, key=lambda host: host.utilisation or 0.0):
            if packing.received(host.id):  # it has just become a refuge: nothing to judge
                tables[host.id] = replace(tables[host.id], pending=None)
                continue
            self._settle(tables, host, self._scale_in(packing, host, busy), now)
        kept = {host: table for host, table in tables.items() if host in packing.hosts}
        return packing.plan(), SarsaMemory(kept)

    def _new_table(self, now_s: float, first: bool) -> QTable:
        table = QTable.from_thresholds(self.lower, self.upper)
        return table if first else replace(table, quiet_until_s=now_s + self.grace_s)

    def _learn(self, table: QTable, past: Pending, utilisation: float, wish: int) -> QTable:
        state = state_of(utilisation)
        gained = (
            self.penalty if past.cancelled else reward(past.utilisation, utilisation, self.target)
        )
        follower = past.action if self.bootstrap == "same-action" else wish
        value = updated(
            table.rows[past.state][past.action],
            gained,
            table.rows[state][follower],
            learning_rate(table.visits[past.state], self.impact, self.duration),
            self.beta,
        )
        return table.learnt(past.state, past.action, value)

    def _settle(self, tables: dict[str, QTable], host: Host, done: bool, now_s: float) -> None:
        """Start the grace period of a decision, or mark it as one that could not be done."""
        table = tables[host.id]
        if done:
            tables[host.id] = replace(table, quiet_until_s=now_s + self.grace_s)
        elif table.pending is not None:
            tables[host.id] = replace(table, pending=replace(table.pending, cancelled=True))

    def _scale_in(self, packing: Packing, host: Host, busy: set[str]) -> bool:
        at = f"{host.id} at {host.utilisation:.2f} has learnt to scale in"
        if len(packing.hosts) > 1 and packing.evacuate(host.id, avoid=busy):
            packing.because("underload", f"{at}: it is released", host.id)
            return True
        text = f"{at}, but its operators fit nowhere else: cancelled, with a penalty"
        packing.because("release-cancelled", text, host.id)
        return False
