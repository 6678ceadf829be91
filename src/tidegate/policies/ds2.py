"""DS2 with backlog, as the autoscaler of the Flink operator implements it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tidegate.model import Plan, Prediction, Snapshot
from tidegate.packing import Packing
from tidegate.packing.sizing import consolidate, set_counts
from tidegate.policies.base import NoMemory, Policy, Style, setting

__all__ = ["Ds2"]


@dataclass(frozen=True)
class Ds2(Policy):
    """Enough instances for the load and the backlog, each busy for `utilisation` of the time.

    The *true* rate of an instance is its rate while it is busy, 1 / service time. An operator
    whose utilisation is within `boundary` of the goal is left alone. The backlog, spread over
    `catch_up_s`, is added to the arrival rate. The sum is propagated through the topology, so that
    all operators are right after one step. An operator shrinks by at most `max_shrink` at once.

    Flink's defaults: utilisation 0.7, catch-up in 30 min, shrink by at most 0.6, 200 instances.
    13 items/s at 5/s an instance: 13 / (5 · 0.7) = 3.7, so 4.

    >>> from tidegate.testing import station_snapshot
    >>> now = station_snapshot({"extract": (13, 5), "match": (26, 4)}, allocation=(3, 2))
    >>> plan, _ = Ds2().decide(now, NoMemory())
    >>> dict(plan.deployment.counts)
    {'extract': 3, 'match': 10}

    V. Kalavri et al., *Three steps is all you need*, OSDI 2018; Flink Kubernetes operator.
    """

    name: ClassVar[str] = "ds2"
    paper: ClassVar[str] = "baseline: DS2 (Kalavri et al. 2018), Flink operator's rule and defaults"
    style: ClassVar[Style] = "instances"
    needs: ClassVar[tuple[str, ...]] = ("operator.arrival_rate_per_s", "operator.service_time_s")

    utilisation: float = setting(0.7, "busy share of an instance to aim at", low=0.01, high=1)
    boundary: float = setting(0.3, "deviation from the goal that is ignored, share", low=0, high=1)
    catch_up_s: float = setting(
        1800.0, "time in which to process a backlog, s; 0: ignore it", low=0
    )
    max_shrink: float = setting(
        0.6, "largest part of an operator to remove at once, share", low=0, high=1
    )
    max_parallelism: int = setting(200, "largest number of instances of an operator", low=1)

    def decide(self, snapshot: Snapshot, memory: NoMemory) -> tuple[Plan, NoMemory]:
        """From the rates at the entries to the parallelism of every operator."""
        packing = Packing(snapshot)
        counts = packing.counts
        required = self._required_rates(snapshot)
        wanted: dict[str, int] = {}
        for name, rate in required.items():
            service_s = snapshot.service_time_s(name)
            if service_s is None or service_s <= 0:
                continue
            busy = rate * service_s / counts[name] if counts[name] else math.inf
            if abs(busy - self.utilisation) <= self.boundary and busy < 1:
                continue
            count = max(1, math.ceil(rate * service_s / self.utilisation - 1e-9))
            count = min(count, self.max_parallelism)
            count = max(count, math.ceil(counts[name] * (1 - self.max_shrink) - 1e-9))
            if count != counts[name]:
                wanted[name] = count
                each = f"an instance processes {1 / service_s:g}/s"
                text = f"{name} needs {count}: {rate:g}/s arrive, {each}"
                packing.because("overload" if count > counts[name] else "underload", text, name)
        if wanted:
            set_counts(packing, wanted)
            consolidate(packing)
        return packing.plan(Prediction(utilisation=self.utilisation if wanted else None)), memory

    def _required_rates(self, snapshot: Snapshot) -> dict[str, float]:
        """Items per second that each operator must process; nothing when the input is unknown.

        From the input, not from what arrives behind a bottleneck, which hides the true need.
        """
        outside = snapshot.external_rates()
        if outside is None:
            return {}
        for name in snapshot.reading:
            backlog = snapshot.backlog(name)
            if backlog is not None and self.catch_up_s > 0:
                outside[name] = outside.get(name, 0.0) + backlog / self.catch_up_s
        return snapshot.topology.propagate(outside)
