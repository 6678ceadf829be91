"""What a guard is: a wrapper that limits what a policy may do, and reports when it does.

Guards stack: ``Bounds(CoolDown(policy))``. The outermost takes precedence. When a guard changes a
plan, the plan keeps the policy's own deployment (`Plan.raw`) and gains a `Binding` with the number
of hosts before and after, and the reason.

A guard compares a plan with the deployment that is *requested* now, not with its own last answer:
another guard may have limited that answer further, or the backend may have refused it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tidegate.model import Binding, Plan, Snapshot, Unmet
from tidegate.packing.reshape import Reshaped, with_hosts
from tidegate.policies.wrapper import PolicyWrapper, WrapperMemory

__all__ = ["Guard", "hold", "unchanged"]


@dataclass(frozen=True)
class Guard(PolicyWrapper):
    """A wrapper that lets the inner policy decide and then limits its plan.

    Subclasses implement `limit`, and name `own_memory` if they remember something.
    """

    paper: ClassVar[str] = "guard"
    has_last_word: ClassVar[bool] = False
    """Whether it applies even while a person has paused scaling."""

    @abstractmethod
    def limit(self, snapshot: Snapshot, plan: Plan, own: Any) -> tuple[Reshaped, str, Any]:
        """The deployment allowed, the reason if that is not the plan's, and the next memory."""

    def decide(self, snapshot: Snapshot, memory: WrapperMemory) -> tuple[Plan, WrapperMemory]:
        """Let the inner policy decide, then limit its plan."""
        plan, inner = self.inner.decide(snapshot, memory.inner)
        allowed, why, own_after = self.limit(snapshot, plan, memory.own)
        after = WrapperMemory(own_after, inner)
        if allowed.deployment == plan.deployment:
            return plan, after
        binding = Binding(self.name, len(plan.deployment.hosts), len(allowed.deployment.hosts), why)
        bound = replace(
            plan,
            deployment=allowed.deployment,
            raw=plan.raw or plan.deployment,
            bindings=(*plan.bindings, binding),
            unmet=(*plan.unmet, *allowed.unmet),
        )
        return bound, after

    def with_hosts(self, snapshot: Snapshot, plan: Plan, hosts: int) -> Reshaped:
        """The plan's deployment with another number of hosts."""
        return with_hosts(snapshot, plan.deployment, hosts, self.style, self.measure)


def unchanged(plan: Plan) -> Reshaped:
    """The deployment as planned."""
    return Reshaped(plan.deployment)


def hold(snapshot: Snapshot) -> Reshaped:
    """The deployment as requested now. Operators without an instance count as unmet demand."""
    now = snapshot.requested
    absent = (name for name in snapshot.topology.by_name if not now.counts[name])
    return Reshaped(now, tuple(Unmet(name, 1, "nothing may be started now") for name in absent))
