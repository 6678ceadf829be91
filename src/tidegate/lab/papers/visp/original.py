"""BTU-based provisioning as the authors of VISP coded it (github.com/visp-streaming).

The code differs from the paper in ways that may matter to the published figures. Each difference
can be switched on by itself. One is not carried over: durations older than two minutes count as
1 ms there, but the durations of a snapshot have no timestamps.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.errors import SettingError
from tidegate.model import Host, Snapshot
from tidegate.model.topology import Resources
from tidegate.packing import Packing
from tidegate.policies.btu import Btu, BtuMemory, BtuTurn, instances_that_fit

__all__ = ["DIFFERENCES", "OriginalBtu", "predicted_through_origin_s"]

DIFFERENCES = {
    "through-origin": "Alg. 1 regresses without intercept: a constant duration predicts its double",
    "mean-duration": "Alg. 1 and 3 take the mean of the last N durations, not the newest",
    "double-step": "more than 250 waiting: two instances when late, one even when in time",
    "cpu-only": "Alg. 2 ignores memory and the image cache",
    "min-is-zero": "Alg. 3 takes 0 for the smallest number of instances",
    "recent-upscale": "Alg. 3 subtracts 200 from an operator scaled up within 3 minutes",
    "alphabetical": "Fig. 4 scales down the alphabetically first operator, not the best",
    "discard-freed": "Fig. 4 leases a host although scaling down another operator made room",
    "wide-window": "Fig. 5 looks at a host in its last max(5 %, 40 s)",
    "young-host": "Fig. 5 prolongs unchecked while any host is younger than 3 minutes",
    "no-limit": "Fig. 5 has no 20 % limit",
    "stop-first": "Fig. 5 stops instances before it simulates, and leaves them stopped",
    "random-order": "operators are scaled up in random order",
}
"""What the authors' code does and the paper does not say."""

RECENT_S = 180.0


@dataclass(frozen=True)
class OriginalBtu(Btu):
    """The published policy with differences of the authors' code, by default all of them.

    differences: names from `DIFFERENCES`.
    """

    differences: frozenset[str] = frozenset(DIFFERENCES)

    def check(self) -> None:
        """Every difference must be a known one."""
        for name in sorted(self.differences - DIFFERENCES.keys()):
            known = ", ".join(DIFFERENCES)
            raise SettingError(
                "btu: differences", name, "the name of a difference", f"known are {known}"
            )

    def turn(self, snapshot: Snapshot, memory: BtuMemory) -> BtuTurn:
        """The steps of one decision, as coded."""
        return OriginalTurn(self, snapshot, memory, self.differences)


def predicted_through_origin_s(durations_s: Sequence[float]) -> float | None:
    """The next duration by a regression without intercept: x = 0 … n−1, predicted at n+1.

    A constant duration of 1 s is predicted to become 2 s, so the trend fires near half the SLO:

    >>> predicted_through_origin_s([1.0] * 5)
    2.0
    """
    n = len(durations_s)
    if n < 2:
        return None
    slope = sum(x * y for x, y in enumerate(durations_s)) / sum(x * x for x in range(n))
    return slope * (n + 1)


class OriginalTurn(BtuTurn):
    """One decision in progress, with some differences switched on."""

    def __init__(
        self, policy: Btu, snapshot: Snapshot, memory: BtuMemory, differences: frozenset[str]
    ) -> None:
        super().__init__(policy, snapshot, memory)
        self.on = differences

    def in_order(self) -> list[str]:
        names = super().in_order()
        if "random-order" in self.on:
            random.Random(f"{self.before.seed}:{self.before.turn}").shuffle(names)
        return names

    def durations(self, operator: str) -> tuple[float, ...] | None:
        recent = super().durations(operator)
        if recent and "mean-duration" in self.on:
            return (*recent[:-1], sum(recent) / len(recent))
        return recent

    def predict(self, durations_s: Sequence[float]) -> float | None:
        if "through-origin" in self.on:
            return predicted_through_origin_s(durations_s)
        return super().predict(durations_s)

    def missing_instances(self, operator: str) -> int:
        slo_s = self.target_s(operator)
        waiting = self.snapshot.reading[operator].queue_length
        durations = self.durations(operator)
        if "double-step" not in self.on or slo_s is None or durations is None:
            return super().missing_instances(operator)
        if waiting is None or waiting <= 250:
            return super().missing_instances(operator)
        return 2 if durations and durations[-1] > slo_s else 1

    def rank(self, packing: Packing, host: str, operator: str) -> float:
        rank = super().rank(packing, host, operator)
        if rank < 0 or "cpu-only" not in self.on:
            return rank
        leased = self.snapshot.host.get(host)
        capacity = leased.capacity if leased else self.snapshot.offer.capacity
        free, demand = Resources(*packing.room(host)), self.snapshot.operator(operator).demand
        cpu = (free.cpu_cores - demand.cpu_cores) / capacity.cpu_cores
        return max(0.0, cpu) / instances_that_fit(free, demand)

    def utility(self, packing: Packing, operator: str) -> float:
        value = super().utility(packing, operator)
        since_s = self.snapshot.time_s - self.scaled_up_s.get(operator, float("-inf"))
        return value - 200 if "recent-upscale" in self.on and since_s < RECENT_S else value

    def compared_counts(self, packing: Packing) -> list[int]:
        counts = super().compared_counts(packing)
        return [0, *counts] if "min-is-zero" in self.on else counts

    def room_to_start(self, operator: str) -> str | None:
        room = self.host_with_room(self.packing, operator)
        if room is None:
            room = self.make_room(self.packing, operator)
            return None if "discard-freed" in self.on else room
        return room

    def by_preference(self, spare: Mapping[str, float]) -> list[str]:
        return sorted(spare) if "alphabetical" in self.on else super().by_preference(spare)

    @property
    def release_limit(self) -> float:
        return 1.0 if "no-limit" in self.on else super().release_limit

    def ends_soon(self, host: Host, now_s: float) -> bool:
        if host.lease is None or "wide-window" not in self.on:
            return super().ends_soon(host, now_s)
        window_s = self.policy.release_window * host.lease.billing_unit_s
        return host.lease.time_left_s(now_s) <= max(window_s, 40.0)

    def is_needed(self, host: str) -> bool:
        now_s = self.snapshot.time_s
        leases = [h.lease for h in self.snapshot.hosts if h.lease]
        young = any(now_s - lease.started_s < RECENT_S for lease in leases)
        return (young and "young-host" in self.on) or super().is_needed(host)

    def kept_on_failure(self, trial: Packing) -> Packing:
        return trial.copy() if "stop-first" in self.on else super().kept_on_failure(trial)
