"""What another policy would have done: decide the snapshots of a journal again.

Replay is open loop: the snapshots were taken while the recorded policy was in charge, so it shows
where two policies *disagree*, not what the outcome would have been; use the simulator for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidegate.codec import Value
from tidegate.loop.journal import Turn
from tidegate.model import Plan
from tidegate.model.steps import Step, diff
from tidegate.policies.base import Policy

__all__ = ["Comparison", "replay"]


@dataclass(frozen=True, slots=True)
class Comparison(Value):
    """One recorded turn and the decision of another policy.

    recorded: the plan that was made; other: the plan that the other policy makes.
    steps: from the recorded deployment to the other's; none when they agree.
    """

    number: int
    time_s: float
    recorded: Plan
    other: Plan
    steps: tuple[Step, ...]

    @property
    def agrees(self) -> bool:
        """Whether both plan the same numbers of hosts and of instances of each operator."""
        mine, theirs = self.other.deployment, self.recorded.deployment
        return len(mine.hosts) == len(theirs.hosts) and mine.counts == theirs.counts


def replay(turns: Iterable[Turn], policy: Policy, seed: int = 0) -> Iterator[Comparison]:
    """Decide each recorded snapshot with `policy`, starting with an empty memory.

    Turns that failed before a decision are skipped. seed: for policies that need a random seed.
    """
    memory = policy.initial_memory(seed)
    for turn in turns:
        if turn.snapshot is None or turn.plan is None:
            continue
        plan, memory = policy.decide(turn.snapshot, memory)
        steps = diff(turn.plan.deployment, plan)
        yield Comparison(turn.number, turn.snapshot.time_s, turn.plan, plan, steps)
