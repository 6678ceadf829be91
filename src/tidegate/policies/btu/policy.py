"""BTU-based provisioning: a host that is paid for is used until its billing unit ends (VISP)."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tidegate.codec import Value
from tidegate.errors import SettingError
from tidegate.model import Host, Instance, Plan, Snapshot, Unmet
from tidegate.model.topology import Resources
from tidegate.packing import Packing
from tidegate.policies.base import AIM, Policy, Situation, Style, setting
from tidegate.policies.btu.algorithms import host_rank, release_utility, should_scale_up

__all__ = ["QUIRKS", "Btu", "BtuMemory"]

QUIRKS = {
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
    "random-order": "operators are looked at in random order",
}
"""What the authors' code does and the paper does not say; each is off unless named."""

RECENT_S = 180.0


@dataclass(frozen=True, slots=True)
class BtuMemory(Value):
    """scalings: operations so far by operator; scaled_up_s: when each last grew; turn, seed."""

    scalings: Mapping[str, int] = field(default_factory=dict)
    scaled_up_s: Mapping[str, float] = field(default_factory=dict)
    turn: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Btu(Policy):
    """Scale up for the SLA at any time; think about releasing a host only when its paid time ends.

    **Up** (Algorithm 1): an operator whose duration is, or by its trend will be, above its SLO,
    and for which more than `scaling_threshold` items wait, gets an instance: on the host that
    suits best (Algorithm 2), else where another operator can spare one (Algorithm 3), else on a
    new host. **Down** (Fig. 5): within the last `release_window` of a billing unit, or when the
    next decision would come too late, the release of the host is simulated: operators that can
    spare them lose up to `release_limit` of their instances, the others migrate. If that works
    without a new host, it is done; otherwise the lease is prolonged.

    `release_limit` rounds down but allows at least one instance, so that small operators can
    shrink at all. `quirks` switches on what the original code does differently, by name.

    A host in the last 30 of its 600 s is released, one with 300 s left is not:

    >>> from tidegate.testing import steady_snapshot
    >>> policy = Btu()
    >>> for left_s in (300, 29):
    ...     idle = steady_snapshot(hosts=2, queue_length=0, lease_left_s=left_s, durations_s=(0.1,))
    ...     plan, _ = policy.decide(idle, policy.initial_memory())
    ...     print(left_s, plan.bounded_target)
    300 2
    29 1

    C. Hochreiner et al., *Cost-efficient enactment of stream processing topologies*,
    PeerJ Computer Science 3:e141, 2017.
    """

    name: ClassVar[str] = "btu"
    paper: ClassVar[str] = "VISP (Hochreiner et al. 2017), Algorithms 1–3, Figs. 4–5"
    style: ClassVar[Style] = "instances"
    needs: ClassVar[tuple[str, ...]] = ("operator.queue_length", "operator.recent_durations_s")
    memory_type: ClassVar[type] = BtuMemory
    picks_its_moment: ClassVar[bool] = True

    observations: int = setting(5, "N: durations that the trend is taken from", low=2)
    scaling_threshold: float = setting(50.0, "items that must wait before scaling up", low=0)
    cache_factor: float = setting(0.01, "CF: factor for a host that has the image", low=0, high=1)
    w_instances: float = setting(1.0, "W1: weight of many instances")
    w_queue: float = setting(1.0, "W2: weight of an empty queue")
    w_delay: float = setting(1.0, "W3: weight of the delay")
    w_scalings: float = setting(1.0, "W4: weight of past scaling operations")
    penalty: float = setting(0.0001, "P: cost of a late item, in units of a host's price", low=0)
    queue_load: float = setting(100.0, "QL: bonus of an empty queue", low=0)
    release_window: float = setting(
        0.05, "last part of a billing unit in which a release is considered, share", low=0, high=1
    )
    release_limit: float = setting(
        0.2, "instances of an operator that one release may stop, share", low=0, high=1
    )
    aim: float = setting(1.0, "share of an operator's SLO to aim at", low=0.01, high=1)
    quirks: str = setting("", "comma-separated: " + ", ".join(QUIRKS))

    @classmethod
    def suggested(cls, situation: Situation) -> dict[str, Any]:
        """In micro-batches, a margin within the SLO and a release limit that suits few slots.

        An executor has several slots and a query few executors: 20 % of them is less than one.
        """
        return {"release_limit": 0.3, "aim": AIM} if situation.micro_batches else {}

    def check(self) -> None:
        """Every quirk must be a known one."""
        for quirk in self._quirks:
            if quirk not in QUIRKS:
                known = ", ".join(QUIRKS)
                raise SettingError(
                    "btu: quirks", quirk, "the name of a quirk", f"known are {known}"
                )

    @property
    def _quirks(self) -> frozenset[str]:
        return frozenset(word.strip() for word in self.quirks.split(",") if word.strip())

    def initial_memory(self, seed: int = 0) -> BtuMemory:
        """No scaling operation so far. seed: for the quirk random-order."""
        return BtuMemory(seed=seed)

    def decide(self, snapshot: Snapshot, memory: BtuMemory) -> tuple[Plan, BtuMemory]:
        """Scale up what is late, then look at the hosts whose paid time ends."""
        turn = _Turn(self, snapshot, memory)
        for operator in turn.in_order():
            for _ in range(turn.missing_instances(operator)):
                turn.scale_up(operator)
        turn.consider_releases()
        return turn.packing.plan(), turn.memory()


class _Turn:
    """One decision in the making: the packing and the counters that Algorithms 2 and 3 look at."""

    def __init__(self, policy: Btu, snapshot: Snapshot, memory: BtuMemory) -> None:
        self.policy = policy
        self.snapshot = snapshot
        self.before = memory
        self.quirks = policy._quirks
        self.packing = Packing(snapshot)
        self.scalings = dict(memory.scalings)
        self.scaled_up_s = dict(memory.scaled_up_s)

    def memory(self) -> BtuMemory:
        return BtuMemory(self.scalings, self.scaled_up_s, self.before.turn + 1, self.before.seed)

    def in_order(self) -> list[str]:
        names = list(self.snapshot.topology.by_name)
        if "random-order" in self.quirks:
            random.Random(f"{self.before.seed}:{self.before.turn}").shuffle(names)
        return names

    # --- Algorithms 1 to 3 on this snapshot ---------------------------------------------------

    def durations(self, operator: str) -> tuple[float, ...] | None:
        """The last N durations, None when they are not measured."""
        recent = self.snapshot.reading[operator].recent_durations_s
        if recent is None:
            return None
        recent = recent[-self.policy.observations :]
        if "mean-duration" in self.quirks and recent:
            return (*recent[:-1], sum(recent) / len(recent))
        return recent

    def target_s(self, operator: str) -> float | None:
        """The duration to stay below: the operator's SLO times the policy's aim."""
        slo_s = self.snapshot.operator(operator).slo_s
        return None if slo_s is None else slo_s * self.policy.aim

    def missing_instances(self, operator: str) -> int:
        """Algorithm 1; 2 or a late 1 with the quirk double-step."""
        slo_s = self.target_s(operator)
        waiting = self.snapshot.reading[operator].queue_length
        durations = self.durations(operator)
        if slo_s is None or waiting is None or durations is None:
            return 0
        origin = "through-origin" in self.quirks
        threshold = self.policy.scaling_threshold
        late = should_scale_up(durations, slo_s, waiting, threshold, origin)
        if "double-step" in self.quirks and waiting > 250:
            return 2 if durations and durations[-1] > slo_s else 1
        return int(late)

    def rank(self, packing: Packing, host: str, operator: str) -> float:
        """Algorithm 2."""
        leased = self.snapshot.host.get(host)
        kind = self.snapshot.operator(operator)
        return host_rank(
            Resources(*packing.free[host]),
            leased.capacity if leased else self.snapshot.offer.capacity,
            kind.demand,
            cached=bool(leased) and kind.image_name in leased.images if leased else False,
            cache_factor=self.policy.cache_factor,
            cpu_only="cpu-only" in self.quirks,
        )

    def utility(self, packing: Packing, operator: str) -> float:
        """Algorithm 3; what is not measured cannot be spared."""
        waiting = self.snapshot.backlog(operator)
        durations = self.durations(operator)
        if waiting is None or durations is None:
            return -1.0
        counts = packing.counts
        p = self.policy
        value = release_utility(
            counts[operator],
            list(counts.values()),
            durations[-1] if durations else 0.0,
            self.target_s(operator),
            self.scalings.get(operator, 0),
            sum(self.scalings.values()),
            waiting,
            (p.w_instances, p.w_queue, p.w_delay, p.w_scalings),
            p.penalty,
            p.queue_load,
            least_count=0 if "min-is-zero" in self.quirks else None,
        )
        since_s = self.snapshot.time_s - self.scaled_up_s.get(operator, -math.inf)
        return value - 200 if "recent-upscale" in self.quirks and since_s < RECENT_S else value

    # --- Fig. 4: up ---------------------------------------------------------------------------

    def scale_up(self, operator: str) -> None:
        """One more instance, with a new host if there is no other way."""
        if not self.packing.may_start(operator):
            return
        late = f"{operator} is, or will be, late and items wait"
        host = self.find_room(self.packing, operator, avoid="")
        if host is None or (host[1] and "discard-freed" in self.quirks):
            leased = self.packing.lease()
            if leased is None:
                self.packing.unmet.append(Unmet(operator, 1, "no more hosts can be leased"))
                return
            host = (leased, None)
            self.packing.because(
                "lease", f"{late}: no host has room, so {leased} is leased", operator
            )
        started = self.packing.start(operator, host[0])
        self.count(operator)
        self.scaled_up_s[operator] = self.snapshot.time_s
        self.packing.because("late", f"{late}: {started.id} starts on {host[0]}", operator)

    def find_room(
        self, packing: Packing, operator: str, avoid: str
    ) -> tuple[str, Instance | None] | None:
        """The best host with room, and the instance of another operator that made way for it."""
        ranked = [
            (self.rank(packing, host, operator), order, host)
            for order, host in enumerate(packing.hosts)
            if host != avoid
        ]
        suitable = [entry for entry in ranked if entry[0] >= 0]
        if suitable:
            return min(suitable)[2], None
        others = [name for name in packing.counts if name != operator]
        spare = {name: value for name in others if (value := self.utility(packing, name)) > 0}
        order = (
            sorted(spare)
            if "alphabetical" in self.quirks
            else sorted(spare, key=lambda name: -spare[name])
        )
        demand = self.snapshot.operator(operator).demand
        for other in order:
            for instance in packing.instances_of(other):
                left = Resources(*packing.free[instance.host]) + packing.sizes[instance.id]
                if instance.host != avoid and demand.fits(left):
                    packing.stop(instance.id)
                    self.count(other)
                    text = f"{instance.id} makes way on {instance.host}"
                    packing.because("make-way", text, other)
                    return instance.host, instance
        return None

    def count(self, operator: str) -> None:
        self.scalings[operator] = self.scalings.get(operator, 0) + 1

    # --- Fig. 5: down -------------------------------------------------------------------------

    def consider_releases(self) -> None:
        """Release or prolong each host whose paid time ends."""
        now = self.snapshot.time_s
        ending = [h for h in self.snapshot.running_hosts if self.ends_soon(h, now)]
        young = any(h.lease and now - h.lease.started_s < RECENT_S for h in self.snapshot.hosts)
        blind = self.snapshot.missing(self.policy.needs)
        for host in ending:
            if len(self.packing.hosts) == 1:
                return
            if blind:
                text = f"{blind[0]} is missing: {host.id} is paid for another unit"
                self.packing.because("prolong", text, host.id)
            elif ("young-host" in self.quirks and young) or self.packing.received(host.id):
                self.packing.because("prolong", f"{host.id} is needed for another unit", host.id)
            else:
                self.release_or_prolong(host.id)

    def ends_soon(self, host: Host, now_s: float) -> bool:
        """Whether this is the time to think about a host (always, where time costs nothing)."""
        if host.lease is None:
            return True
        left_s = host.lease.time_left_s(now_s)
        window_s = self.policy.release_window * host.lease.billing_unit_s
        if "wide-window" in self.quirks:
            return left_s <= max(window_s, 40.0)
        # A window that falls between two decisions would never be seen.
        return left_s <= max(window_s, self.snapshot.interval_s or 0.0)

    def release_or_prolong(self, host: str) -> None:
        """Simulate the release on a copy, and keep the copy if it works."""
        trial = self.packing.copy()
        kept_counters: dict[str, Any] = dict(self.scalings)
        self.stop_spare(trial, host)
        stopped = trial.copy() if "stop-first" in self.quirks else None
        migrated = 0
        for instance in list(trial.hosts[host].values()):
            room = self.find_room(trial, instance.operator, avoid=host)
            if room is None:
                self.packing = stopped or self.packing
                if stopped is None:
                    self.scalings = kept_counters
                text = f"{instance.id} fits nowhere else: {host} is paid for another unit"
                self.packing.because("prolong", text, host)
                return
            trial.move(instance.id, room[0])
            migrated += 1
        trial.release(host)
        self.packing = trial
        text = (
            f"the paid time of {host} ends and {migrated} instances fit elsewhere: it is released"
        )
        trial.because("release", text, host)

    def stop_spare(self, trial: Packing, host: str) -> None:
        """Stop what can be spared on a host, within the limit for each operator."""
        by_operator: dict[str, list[Instance]] = {}
        for instance in trial.hosts[host].values():
            by_operator.setdefault(instance.operator, []).append(instance)
        for operator, instances in by_operator.items():
            if self.utility(trial, operator) <= 0:
                continue
            total = trial.counts[operator]
            share = 1.0 if "no-limit" in self.quirks else self.policy.release_limit
            most = min(max(1, math.floor(share * total)), total - 1, len(instances))
            for instance in instances[:most]:
                trial.stop(instance.id)
                self.count(operator)
