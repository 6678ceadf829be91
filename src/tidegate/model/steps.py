"""The steps from one deployment to another, in a safe order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from tidegate.codec import Value
from tidegate.model import Deployment, Instance, Plan

__all__ = ["Step", "diff"]

StepKind = Literal["lease", "stop", "move", "start", "release"]


@dataclass(frozen=True, slots=True)
class Step(Value):
    """One change to the world.

    kind: the change. host: the host concerned (for a move, the destination). instance, operator:
    what starts, stops or moves. origin: the host that a moving instance leaves.
    """

    kind: StepKind
    host: str
    instance: str = ""
    operator: str = ""
    origin: str = ""

    def __str__(self) -> str:
        if self.kind in ("lease", "release"):
            return f"{self.kind} {self.host}"
        if self.kind == "move":
            return f"move {self.instance} from {self.origin} to {self.host}"
        return f"{self.kind} {self.instance} on {self.host}"


def diff(running: Deployment, plan: Plan | Deployment) -> tuple[Step, ...]:
    """The steps that turn `running` into the plan; none when they agree.

    The order is safe. Hosts are leased before instances start on them. Surplus instances stop
    early to make room. No operator falls below the smaller of its two counts. Instances leave a
    host before others move in. A host is released when it is empty.

    >>> now = Deployment(("h1",), (Instance("a-1", "a", "h1"), Instance("b-1", "b", "h1")))
    >>> then = Deployment(("h2",), (Instance("a-1", "a", "h2"), Instance("b-2", "b", "h2")))
    >>> for step in diff(now, then):
    ...     print(step)
    lease h2
    move a-1 from h1 to h2
    start b-2 on h2
    stop b-1 on h1
    release h1
    """
    wanted = plan.deployment if isinstance(plan, Plan) else plan
    if wanted is running:
        return ()
    before, after = running.by_id, wanted.by_id
    # A turn changes few of many instances: the others are the same objects.
    changed = [(name, one) for name, one in after.items() if before.get(name) is not one]
    starts = [
        Step("start", one.host, name, one.operator) for name, one in changed if name not in before
    ]
    # They are looked for only where there are any, by the numbers of instances.
    stops = (
        [Step("stop", i.host, name, i.operator) for name, i in before.items() if name not in after]
        if len(before) + len(starts) > len(after)
        else []
    )
    early, late = _divided(stops, starts) if starts else (stops, [])
    old_hosts, new_hosts = running.host_names, wanted.host_names
    return (
        *[Step("lease", host) for host in wanted.hosts if host not in old_hosts],
        *early,
        *_ordered_moves(before, changed),
        *starts,
        *late,
        *[Step("release", host) for host in running.hosts if host not in new_hosts],
    )


def _divided(stops: list[Step], starts: list[Step]) -> tuple[list[Step], list[Step]]:
    """The stops that no start of the same operator replaces, which can come first, and others."""
    replaced = Counter([step.operator for step in starts])
    early, late = [], []
    for step in stops:
        if replaced[step.operator] > 0:
            replaced[step.operator] -= 1
            late.append(step)
        else:
            early.append(step)
    return early, late


def _ordered_moves(before: dict[str, Instance], changed: list[tuple[str, Instance]]) -> list[Step]:
    """Moves out of a host before moves into it, as far as cycles allow.

    changed: the instances after the moves by name, without those that stay as they are.
    """
    moves = [
        Step("move", one.host, name, one.operator, origin=before[name].host)
        for name, one in changed
        if name in before and before[name].host != one.host
    ]
    if not moves:
        return []
    leaving = Counter(step.origin for step in moves)
    ordered: list[Step] = []
    while moves:
        free = [step for step in moves if leaving[step.host] == 0] or moves[:1]
        ordered += free
        for step in free:
            leaving[step.origin] -= 1
        taken = {step.instance for step in free}
        moves = [step for step in moves if step.instance not in taken]
    return ordered
