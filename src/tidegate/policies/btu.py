"""BTU-based provisioning: a host is kept until its billing time unit (BTU) ends (VISP).

C. Hochreiner et al., *Cost-efficient enactment of stream processing topologies*, PeerJ Computer
Science 3:e141, 2017. Its misprints are corrected: line 7 of Algorithm 1 subtracts the mean duration
(the paper multiplies by it); durations are in time order (the paper numbers the newest first and
would predict the past); a *negative* value of Algorithm 2 means that the host can **not** run the
operator (the text has it reversed); a short duration makes the delay of Algorithm 3 less than 1
(the text says a long one does). What the authors' code does differently is in
`tidegate.lab.papers.visp.original`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tidegate.codec import Value
from tidegate.model import Host, Instance, Plan, Snapshot, Unmet
from tidegate.model.topology import Resources
from tidegate.packing import Packing
from tidegate.policies.base import AIM, Policy, Situation, Style, setting

__all__ = [
    "Btu",
    "BtuMemory",
    "BtuTurn",
    "host_rank",
    "instances_that_fit",
    "predicted_duration_s",
    "release_utility",
    "should_scale_up",
]


@dataclass(frozen=True, slots=True)
class BtuMemory(Value):
    """What the policy remembers between turns.

    scalings: number of scaling operations by operator; scaled_up_s: time of the last scale-out by
    operator; turn: number of turns so far; seed: random seed.
    """

    scalings: Mapping[str, int] = field(default_factory=dict)
    scaled_up_s: Mapping[str, float] = field(default_factory=dict)
    turn: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Btu(Policy):
    """Scale out for the SLO at any time; consider releasing a host only when its paid time ends.

    **Out** (Algorithm 1): an operator whose duration is above its SLO, or will be by its trend,
    and which has more than `scaling_threshold` waiting items, gets an instance: on the most
    suitable host (Algorithm 2), else where another operator can spare one (Algorithm 3), else on a
    new host. **In** (Fig. 5): within the last `release_window` of a billing unit, or when the
    next decision would come too late, the release of the host is simulated: operators that can
    spare them lose up to `release_limit` of their instances, the others migrate. If that works
    without a new host, the host is released; otherwise the lease is prolonged.

    `release_limit` rounds down but allows at least one instance, so that small operators can
    shrink at all.

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
    scaling_threshold: float = setting(50.0, "items that must wait before scaling out", low=0)
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

    def initial_memory(self, seed: int = 0) -> BtuMemory:
        """No scaling operation so far. seed: random seed, for subclasses."""
        return BtuMemory(seed=seed)

    aim: float = setting(1.0, "share of an operator's SLO to aim at", low=0.01, high=1)

    @classmethod
    def suggested(cls, situation: Situation) -> dict[str, Any]:
        """In micro-batches, a margin within the SLO and a release limit that suits few slots.

        An executor has several slots and a query few executors: 20 % of them is less than one.
        """
        return {"release_limit": 0.3, "aim": AIM} if situation.micro_batches else {}

    def decide(self, snapshot: Snapshot, memory: BtuMemory) -> tuple[Plan, BtuMemory]:
        """Scale out late operators, then look at the hosts whose paid time ends."""
        turn = self.turn(snapshot, memory)
        for operator in turn.in_order():
            for _ in range(turn.missing_instances(operator)):
                turn.scale_up(operator)
        turn.consider_releases()
        return turn.packing.plan(), turn.memory()

    def turn(self, snapshot: Snapshot, memory: BtuMemory) -> BtuTurn:
        """The steps of one decision; a subclass may change some of them."""
        return BtuTurn(self, snapshot, memory)


# --- Algorithms 1 to 3 ----------------------------------------------------------------------------


def predicted_duration_s(durations_s: Sequence[float]) -> float | None:
    """The next duration by least squares over those given, oldest first; None for fewer than two.

    >>> predicted_duration_s([0.2, 0.4, 0.6, 0.8, 1.0])
    1.2
    """
    n = len(durations_s)
    if n < 2:
        return None
    x_mean = (n + 1) / 2
    y_mean = sum(durations_s) / n
    spread = sum((x - x_mean) ** 2 for x in range(1, n + 1))
    slope = sum((x - x_mean) * (y - y_mean) for x, y in enumerate(durations_s, 1)) / spread
    return round(y_mean + slope * (n + 1 - x_mean), 12)


def should_scale_up(
    durations_s: Sequence[float],
    slo_s: float,
    queue_length: float,
    scaling_threshold: float = 50.0,
    predict: Callable[[Sequence[float]], float | None] = predicted_duration_s,
) -> bool:
    """Algorithm 1: the duration is, or is about to be, above the SLO, and items really wait.

    durations_s: the last N durations, oldest first; slo_s: the longest acceptable one; predict:
    the next duration from these.

    With the paper's scaling threshold of 50 items, a rising trend alone is not enough:

    >>> rising = [0.9, 1.0, 1.1, 1.2, 1.3]
    >>> should_scale_up(rising, slo_s=1.35, queue_length=51)
    True
    >>> should_scale_up(rising, slo_s=1.35, queue_length=50)
    False
    """
    if not durations_s or queue_length <= scaling_threshold:
        return False
    predicted = predict(durations_s)
    return durations_s[-1] > slo_s or (predicted is not None and predicted > slo_s)


def instances_that_fit(free: Resources, demand: Resources) -> float:
    """How many instances of this demand fit into the free resources of a host, as a fraction.

    >>> instances_that_fit(Resources(3, 4000), Resources(1, 1000))
    3.0
    """
    room = float("inf")
    if demand.cpu_cores > 0:
        room = free.cpu_cores / demand.cpu_cores
    if demand.memory_mb > 0:
        room = min(room, free.memory_mb / demand.memory_mb)
    if demand.network_mbps > 0:
        room = min(room, free.network_mbps / demand.network_mbps)
    return room


def host_rank(
    free: Resources,
    capacity: Resources,
    demand: Resources,
    cached: bool,
    cache_factor: float = 0.01,
) -> float:
    """Algorithm 2: how well an instance suits a host; the lowest is best, negative is no room.

    The rank is low for a host whose CPU and memory would run out together, which has much room,
    and (times `cache_factor`) which has the image.

    free, capacity: of the host; demand: of the instance; cached: its image is on the host.

    >>> half = Resources(2, 3584)
    >>> host_rank(half, Resources(4, 7168), Resources(1, 1792), cached=False)
    0.0
    >>> round(host_rank(half, Resources(4, 7168), Resources(1, 512), cached=True), 6)
    0.000893
    >>> host_rank(half, Resources(4, 7168), Resources(3, 512), cached=True)
    -1.0
    """
    room = instances_that_fit(free, demand)
    if room < 1 - 1e-9:
        return -1.0
    cpu = (free.cpu_cores - demand.cpu_cores) / capacity.cpu_cores
    memory = (free.memory_mb - demand.memory_mb) / capacity.memory_mb if capacity.memory_mb else cpu
    return abs(cpu - memory) / room * (cache_factor if cached else 1.0)


def release_utility(
    count: int,
    counts: Sequence[int],
    duration_s: float,
    slo_s: float | None,
    scalings: int,
    all_scalings: int,
    queue_length: float,
    weights: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0),
    penalty: float = 0.0001,
    queue_load: float = 100.0,
) -> float:
    """Algorithm 3: how well an operator can spare an instance; negative means not at all.

    Args:
        count: Number of instances of the operator.
        counts: Numbers of instances of all operators.
        duration_s: Current duration of an item at the operator, in seconds.
        slo_s: Longest acceptable duration, in seconds.
        scalings: Number of scaling operations of the operator so far.
        all_scalings: Number of scaling operations of all operators so far.
        queue_length: Number of waiting items.
        weights: W1 instances, W2 queue load, W3 delay, W4 scalings.
        penalty: P, the cost of a late item.
        queue_load: QL, the bonus for an empty queue.

    >>> release_utility(3, [1, 3, 5], 0.5, 1.0, scalings=2, all_scalings=8, queue_length=7)
    0.74995
    >>> release_utility(3, [1, 3, 5], 0.5, 1.0, scalings=2, all_scalings=8, queue_length=0)
    100.74995
    """
    if count < 2:
        return -1.0
    low, high = min(counts), max(counts)
    instances = (count - low) / (high - low) if high > low else 0.0
    delay = duration_s / slo_s * (1 + penalty) if slo_s else 0.0
    share = scalings / all_scalings if all_scalings else 0.0
    idle = queue_load if queue_length < 1 else 0.0
    w1, w2, w3, w4 = weights
    return round(1 + w1 * instances + w2 * idle - w3 * delay - w4 * share, 12)


# --- a decision -----------------------------------------------------------------------------------


class BtuTurn:
    """One decision in progress: the packing and the counters that Algorithms 2 and 3 look at."""

    def __init__(self, policy: Btu, snapshot: Snapshot, memory: BtuMemory) -> None:
        self.policy = policy
        self.snapshot = snapshot
        self.before = memory
        self.packing = Packing(snapshot)
        self.scalings = dict(memory.scalings)
        self.scaled_up_s = dict(memory.scaled_up_s)

    def memory(self) -> BtuMemory:
        """The memory for the next turn."""
        return BtuMemory(self.scalings, self.scaled_up_s, self.before.turn + 1, self.before.seed)

    def in_order(self) -> list[str]:
        """The operators in the order in which they are scaled out."""
        return list(self.snapshot.topology.by_name)

    def durations(self, operator: str) -> tuple[float, ...] | None:
        """The last N durations, None when they are not measured."""
        recent = self.snapshot.reading[operator].recent_durations_s
        return None if recent is None else recent[-self.policy.observations :]

    def predict(self, durations_s: Sequence[float]) -> float | None:
        """The next duration, in seconds."""
        return predicted_duration_s(durations_s)

    def target_s(self, operator: str) -> float | None:
        """The duration to stay below: the operator's SLO times the policy's aim."""
        slo_s = self.snapshot.operator(operator).slo_s
        return None if slo_s is None else slo_s * self.policy.aim

    def missing_instances(self, operator: str) -> int:
        """Algorithm 1: the number of instances to add."""
        slo_s = self.target_s(operator)
        waiting = self.snapshot.reading[operator].queue_length
        durations = self.durations(operator)
        if slo_s is None or waiting is None or durations is None:
            return 0
        threshold = self.policy.scaling_threshold
        return int(should_scale_up(durations, slo_s, waiting, threshold, self.predict))

    def rank(self, packing: Packing, host: str, operator: str) -> float:
        """Algorithm 2."""
        kind, left = self.snapshot.operator(operator), packing.room(host)
        # Most hosts are full, which `host_rank` would find out in several times the time.
        cores = kind.demand.cpu_cores
        if cores > 0 and left[0] / cores < 1 - 1e-9:
            return -1.0
        leased = self.snapshot.host.get(host)
        return host_rank(
            Resources(*left),
            leased.capacity if leased else self.snapshot.offer.capacity,
            kind.demand,
            cached=leased is not None and kind.image_name in leased.images,
            cache_factor=self.policy.cache_factor,
        )

    def utility(self, packing: Packing, operator: str) -> float:
        """Algorithm 3; an operator that is not measured cannot spare an instance."""
        waiting = self.snapshot.backlog(operator)
        durations = self.durations(operator)
        if waiting is None or durations is None:
            return -1.0
        p = self.policy
        return release_utility(
            packing.count(operator),
            self.compared_counts(packing),
            durations[-1] if durations else 0.0,
            self.target_s(operator),
            self.scalings.get(operator, 0),
            sum(self.scalings.values()),
            waiting,
            (p.w_instances, p.w_queue, p.w_delay, p.w_scalings),
            p.penalty,
            p.queue_load,
        )

    def compared_counts(self, packing: Packing) -> list[int]:
        """The numbers of instances that Algorithm 3 compares."""
        return list(packing.counts.values())

    # --- Fig. 4: scale out ------------------------------------------------------------------------

    def scale_up(self, operator: str) -> None:
        """Start one more instance, on a new host if there is no other way."""
        if not self.packing.may_start(operator):
            return
        late = f"{operator} is, or will be, late and items wait"
        host = self.room_to_start(operator)
        if host is None:
            host = self.packing.lease()
            if host is None:
                self.packing.unmet.append(Unmet(operator, 1, "no more hosts can be leased"))
                return
            text = f"{late}: no host has room, so {host} is leased"
            self.packing.because("lease", text, operator)
        started = self.packing.start(operator, host)
        self.count(operator)
        self.scaled_up_s[operator] = self.snapshot.time_s
        self.packing.because("late", f"{late}: {started.id} starts on {host}", operator)

    def room_to_start(self, operator: str) -> str | None:
        """A leased host on which an instance can start, None when there is none."""
        return self.host_with_room(self.packing, operator) or self.make_room(self.packing, operator)

    def host_with_room(self, packing: Packing, operator: str, avoid: str = "") -> str | None:
        """The best host with room for an instance. avoid: a host that is not considered."""
        ranked = [
            (self.rank(packing, host, operator), order, host)
            for order, host in enumerate(packing.hosts)
            if host != avoid
        ]
        return min((entry for entry in ranked if entry[0] >= 0), default=(0, 0, None))[2]

    def make_room(self, packing: Packing, operator: str, avoid: str = "") -> str | None:
        """Stop an instance of another operator that can spare it, and return its host."""
        others = [name for name in packing.counts if name != operator]
        spare = {name: value for name in others if (value := self.utility(packing, name)) > 0}
        demand = self.snapshot.operator(operator).demand
        for other in self.by_preference(spare):
            for instance in packing.instances_of(other):
                left = Resources(*packing.room(instance.host)) + packing.size(instance)
                if instance.host != avoid and demand.fits(left):
                    packing.stop(instance.id)
                    self.count(other)
                    text = f"{instance.id} makes way on {instance.host}"
                    packing.because("make-way", text, other)
                    return instance.host
        return None

    def by_preference(self, spare: Mapping[str, float]) -> list[str]:
        """Operators that can spare an instance, the best first. spare: their utilities."""
        return sorted(spare, key=lambda name: -spare[name])

    def count(self, operator: str) -> None:
        """Count a scaling operation."""
        self.scalings[operator] = self.scalings.get(operator, 0) + 1

    # --- Fig. 5: scale in -------------------------------------------------------------------------

    @property
    def release_limit(self) -> float:
        """The share of an operator's instances that one release may stop."""
        return self.policy.release_limit

    def consider_releases(self) -> None:
        """Release or prolong each host whose paid time ends."""
        now = self.snapshot.time_s
        ending = [h for h in self.snapshot.running_hosts if self.ends_soon(h, now)]
        if not ending:
            return
        blind = self.snapshot.missing(self.policy.needs)
        for host in ending:
            if len(self.packing.hosts) == 1:
                return
            if blind:
                text = f"{blind[0]} is missing: {host.id} is paid for another unit"
                self.packing.because("prolong", text, host.id)
            elif self.is_needed(host.id):
                self.packing.because("prolong", f"{host.id} is needed for another unit", host.id)
            else:
                self.release_or_prolong(host.id)

    def ends_soon(self, host: Host, now_s: float) -> bool:
        """Whether it is time to consider the release of a host (always, where hosts are free)."""
        if host.lease is None:
            return True
        # A window that falls between two decisions would never be seen.
        window_s = self.policy.release_window * host.lease.billing_unit_s
        return host.lease.time_left_s(now_s) <= max(window_s, self.snapshot.interval_s or 0.0)

    def is_needed(self, host: str) -> bool:
        """Whether a host is prolonged without a simulated release."""
        return self.packing.received(host)

    def release_or_prolong(self, host: str) -> None:
        """Simulate the release on a copy, and keep the copy if it works."""
        trial, scalings = self.packing.copy(), dict(self.scalings)
        self.stop_spare(trial, host)
        kept = self.kept_on_failure(trial)
        migrated = 0
        for instance in list(trial.hosts[host].values()):
            room = self.host_with_room(trial, instance.operator, host)
            room = room or self.make_room(trial, instance.operator, host)
            if room is None:
                if kept is self.packing:
                    self.scalings = scalings
                self.packing = kept
                text = f"{instance.id} fits nowhere else: {host} is paid for another unit"
                kept.because("prolong", text, host)
                return
            trial.move(instance.id, room)
            migrated += 1
        trial.release(host)
        self.packing = trial
        text = (
            f"the paid time of {host} ends and {migrated} instances fit elsewhere: it is released"
        )
        trial.because("release", text, host)

    def kept_on_failure(self, trial: Packing) -> Packing:
        """The packing to keep when a simulated release fails. trial: without spare instances."""
        return self.packing

    def stop_spare(self, trial: Packing, host: str) -> None:
        """Stop the instances on a host that can be spared, within the limit for each operator."""
        by_operator: dict[str, list[Instance]] = {}
        for instance in trial.hosts[host].values():
            by_operator.setdefault(instance.operator, []).append(instance)
        for operator, instances in by_operator.items():
            if self.utility(trial, operator) <= 0:
                continue
            total = trial.count(operator)
            most = min(max(1, math.floor(self.release_limit * total)), total - 1, len(instances))
            for instance in instances[:most]:
                trial.stop(instance.id)
                self.count(operator)
