"""What a guard is: a wrapper that limits what a policy may do, and reports when it does.

Guards stack: ``Bounds(CoolDown(policy))``. The outermost takes precedence. When a guard changes a
plan, the plan keeps the policy's own deployment (`Plan.raw`) and gains a `Binding` with the number
of hosts before and after, and the reason.

A guard compares a plan with the deployment that is *requested* now, not with its own last answer:
another guard may have limited that answer further, or the backend may have refused it.

Guards that remember dates forget those that lie in the future: the clock has then gone back, and a
wait until such a date could take hours. The plan says so in a reason.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tidegate.model import Binding, Plan, Reason, Snapshot, Unmet
from tidegate.packing.reshape import Reshaped, with_hosts
from tidegate.policies.wrapper import PolicyWrapper, WrapperMemory

__all__ = ["CLOCK", "Guard", "fresh_start", "hold", "unchanged"]

CLOCK = "clock"
"""Code of the reason that the clock went back."""


@dataclass(frozen=True)
class Guard(PolicyWrapper):
    """A wrapper that lets the inner policy decide and then limits its plan.

    Subclasses implement `limit`, and name `own_memory` if they remember something.
    """

    paper: ClassVar[str] = "guard"
    has_last_word: ClassVar[bool] = False
    """Whether it applies even while a person has paused scaling."""
    limits_changes_only: ClassVar[bool] = False
    """Whether it lets every plan pass that leaves all as it is, and remembers nothing."""

    @abstractmethod
    def limit(self, snapshot: Snapshot, plan: Plan, own: Any) -> tuple[Reshaped, str, Any]:
        """The deployment allowed, the reason if that is not the plan's, and the next memory."""

    def forget_later(self, own: Any, now_s: float) -> Any:
        """The memory without what is dated after `now_s`; the same object if nothing is."""
        return own

    def decide(self, snapshot: Snapshot, memory: WrapperMemory) -> tuple[Plan, WrapperMemory]:
        """Let the inner policy decide, then limit its plan."""
        plan, inner = self.inner.decide(snapshot, memory.inner)
        if self.limits_changes_only and plan.deployment is snapshot.requested:
            return plan, WrapperMemory(memory.own, inner)
        own = self.forget_later(memory.own, snapshot.time_s)
        if own is not memory.own and all(reason.code != CLOCK for reason in plan.reasons):
            text = "the clock went back: what the guards remember from later times is forgotten"
            plan = replace(plan, reasons=(*plan.reasons, Reason(CLOCK, text)))
        allowed, why, own_after = self.limit(snapshot, plan, own)
        after = WrapperMemory(own_after, inner)
        if allowed.deployment is plan.deployment or allowed.deployment == plan.deployment:
            return plan, after
        binding = Binding(self.name, len(plan.deployment.hosts), len(allowed.deployment.hosts), why)
        # In full, since `replace` takes several times as long, and a guard may hold for minutes.
        bound = Plan(
            allowed.deployment,
            plan.reasons,
            plan.predicted,
            (*plan.unmet, *allowed.unmet),
            plan.shed_fraction,
            plan.raw or plan.deployment,
            (*plan.bindings, binding),
        )
        return bound, after

    def with_hosts(self, snapshot: Snapshot, plan: Plan, hosts: int) -> Reshaped:
        """The plan's deployment with another number of hosts."""
        return with_hosts(snapshot, plan.deployment, hosts, self.style, self.measure)


def fresh_start(last_s: float | None, snapshot: Snapshot, window_s: float) -> bool:
    """Whether a guard that looks back through a window has nothing to look back at.

    This is so at its first look, and after a gap that is longer than the window and than two turns.

    last_s: time of its last look, None for none. window_s: length of the window, in seconds.
    """
    if last_s is None:
        return True
    if snapshot.interval_s is None:  # it is unknown what a gap is
        return False
    return snapshot.time_s - last_s > max(window_s, 2 * snapshot.interval_s)


def unchanged(plan: Plan) -> Reshaped:
    """The deployment as planned."""
    return Reshaped(plan.deployment)


def hold(snapshot: Snapshot) -> Reshaped:
    """The deployment as requested now. Operators without an instance count as unmet demand."""
    now = snapshot.requested
    absent = (name for name in snapshot.topology.by_name if not now.counts[name])
    return Reshaped(now, tuple(Unmet(name, 1, "nothing may be started now") for name in absent))
