"""The page of `papers_live.py`, from its ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.theory import microbatch
from tidegate.theory.microbatch import BatchQuery

NAMES = ("extract", "match", "aggregate")
FRAMES_PER_S = 26.0


@dataclass(frozen=True)
class Chain:
    """The three operators as the model of micro-batches sees them."""

    queries: tuple[BatchQuery, ...]

    def mean_s(self, allocation: Sequence[int]) -> float:
        """Estimate of the mean latency."""
        return microbatch.mean_s(self.queries, allocation)

    def oldest_s(self, allocation: Sequence[int]) -> float:
        """Estimate of the latency of the oldest frame of a batch."""
        return microbatch.oldest_s(self.queries, allocation)


def chain(costs: Mapping[str, Any]) -> Chain:
    """The model with costs that were fitted to a run."""
    first_s = costs["trigger_s"]["extract"]
    return Chain(
        tuple(
            BatchQuery(
                name,
                FRAMES_PER_S,
                costs["service_s"][name],
                costs["overhead_s"][name],
                costs["trigger_s"][name],
                fixed_work_s=costs["fixed_s"][name],
                fed_every_s=0.0 if name == "extract" else first_s,
            )
            for name in NAMES
        )
    )


def write_page(rows: Sequence[dict[str, Any]]) -> None:
    """Write the tables."""
