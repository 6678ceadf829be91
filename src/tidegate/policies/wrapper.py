"""Policies around policies.

There are two kinds of wrappers, and they are different things:

- an `ObservationWrapper` changes what the inner policy *sees*, for example the arrival rate that
  is expected when a new host has started;
- a guard (`tidegate.guards`) limits what the inner policy *may do*.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from tidegate.codec import Value, from_plain, to_plain
from tidegate.model import Plan, Reason, Snapshot
from tidegate.policies.base import NoMemory, Policy, Style
from tidegate.values import derived

__all__ = ["ObservationWrapper", "PolicyWrapper", "WrapperMemory", "innermost"]


@dataclass(frozen=True, slots=True)
class WrapperMemory(Value):
    """The memory of a wrapper around that of the inner policy."""

    own: Any
    inner: Any


@dataclass(frozen=True)
class PolicyWrapper(Policy):
    """A policy that holds another one.

    It has the style, the needs and the moments of the policy inside. Subclasses that remember
    something name the type of their memory in `own_memory`.
    """

    inner: Policy

    paper: ClassVar[str] = "wrapper"
    own_memory: ClassVar[type] = NoMemory

    @derived
    def style(self) -> Style:
        """The inner policy's style."""
        return self.inner.style

    @derived
    def needs(self) -> tuple[str, ...]:
        """The inner policy's needs."""
        return self.inner.needs

    @derived
    def picks_its_moment(self) -> bool:
        """Whether the inner policy chooses when to release hosts."""
        return self.inner.picks_its_moment

    @derived
    def forecasts(self) -> bool:
        """Whether the inner policy forecasts the load itself."""
        return self.inner.forecasts

    @classmethod
    def around(cls, inner: Policy, settings: dict[str, Any]) -> Self:
        """Wrap a policy, with settings as text or as values."""
        return cls(inner=inner, **cls.read_settings(settings))

    def initial_memory(self, seed: int = 0) -> WrapperMemory:
        """The wrapper's memory and the inner policy's."""
        return WrapperMemory(self.own_memory(), self.inner.initial_memory(seed))

    def save_memory(self, memory: WrapperMemory) -> Any:
        """Both memories as plain JSON values."""
        return {"own": to_plain(memory.own), "inner": self.inner.save_memory(memory.inner)}

    def load_memory(self, plain: Any) -> WrapperMemory:
        """The inverse of `save_memory`."""
        own: Any = from_plain(self.own_memory, plain["own"])
        return WrapperMemory(own, self.inner.load_memory(plain["inner"]))

    def describe(self) -> str:
        """The stack from the inside out, with the settings that differ from their defaults."""
        changed = [
            f"{p.name}={getattr(self, p.name)}"
            for p in self.parameters()
            if getattr(self, p.name) != p.default
        ]
        return f"{self.inner.describe()} → {self.name}({', '.join(changed)})"


@dataclass(frozen=True)
class ObservationWrapper(PolicyWrapper):
    """A wrapper that shows the inner policy another snapshot than the one that was measured.

    Subclasses implement `view`. The plan of the inner policy is passed on unchanged, except for
    the reason that the wrapper adds when it made a difference.
    """

    @abstractmethod
    def view(self, snapshot: Snapshot, own: Any) -> tuple[Snapshot, str, Any]:
        """The snapshot to show, what was changed in words (or nothing), and the next memory."""

    def decide(self, snapshot: Snapshot, memory: WrapperMemory) -> tuple[Plan, WrapperMemory]:
        """Let the inner policy decide on the changed snapshot."""
        shown, change, own = self.view(snapshot, memory.own)
        plan, inner = self.inner.decide(shown, memory.inner)
        if change and plan.deployment != snapshot.requested:
            plan = replace(plan, reasons=(*plan.reasons, Reason(self.name, change)))
        return plan, WrapperMemory(own, inner)


def innermost(policy: Policy) -> Policy:
    """The policy inside all wrappers."""
    return innermost(policy.inner) if isinstance(policy, PolicyWrapper) else policy
