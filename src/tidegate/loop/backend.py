"""The seam to a world: it is observed and changed, and that is all.

The simulator, a recorded journal and Spark implement the same two functions; what decides never
knows which of them it is talking to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidegate.codec import Value
from tidegate.model import Plan, Snapshot
from tidegate.model.steps import Step

__all__ = ["Backend", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome(Value):
    """What became of a plan.

    steps: what was done or begun, in order. refused: why the rest was not, in sentences. notes:
    what the steps cost the running queries, in sentences.
    """

    steps: tuple[Step, ...] = ()
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Backend(Protocol):
    """A world with streaming operators in it."""

    def observe(self) -> Snapshot:
        """What can be measured now; NothingToScale when no query runs."""

    def apply(self, plan: Plan) -> Outcome:
        """Bring the world to the plan. Applying the same plan again changes nothing."""
