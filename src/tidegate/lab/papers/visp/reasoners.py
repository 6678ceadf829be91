"""The two reasoners of the authors of VISP, retold from their public code.

`OriginalBtu` adds differences of the code to the published algorithms one by one. The policies here
are the code's own procedures, with everything that follows from its records: an instance that was
stopped serves until the next turn, a host that was marked leaves a turn later, and a lease is
prolonged within the last window of a billing unit, so that unit is paid even if the run ends.

Read in github.com/visp-streaming/runtime: ReasonerBTU, ReasonerBasic, ReasonerUtility and Monitor.
"""

from __future__ import annotations

import math
import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tidegate.codec import Value
from tidegate.lab.papers.visp.original import predicted_through_origin_s
from tidegate.model import Deployment, Instance, Plan, Reason, Snapshot
from tidegate.model.topology import Resources
from tidegate.policies.base import Policy, Style, setting

__all__ = [
    "CODE_NAMES",
    "BaselineReasoner",
    "BtuReasoner",
    "Records",
    "java_order",
]

CODE_NAMES: Mapping[str, str] = {
    "O1": "distributedata",
    "O2": "availability",
    "O3": "calculateperformance",
    "O4": "calculateavailability",
    "O5": "calculatequality",
    "O6": "temperature",
    "O7": "calculateoee",
    "O8": "warning",
    "O9": "generatereport",
}
"""Names of the operators in the authors' topology; they decide on the order of the looks."""

RECENT_S, GRACE_S = 180.0, 20.0
MOST_SCALE_DOWNS = 2
POSSIBLE_ANYWAY = 5.0
"""A release counts as possible, room or not, if the first operator's score is higher."""


@dataclass(frozen=True, slots=True)
class Records(Value):
    """What a reasoner keeps between turns.

    Args:
        stopping: Instances that were stopped and still serve, with the time.
        marked: Hosts that will leave, with the time.
        unit_ends_s: End of the paid time by host.
        scaled_up_s: Time of the last scale-up by operator.
        scalings: Scaling operations by operator.
        activities: All activities, those of hosts included.
        started_s: Time of the last start of a host.
        units: Billing units paid so far.
        turn: Number of turns so far.
        seed: Random seed.
    """

    stopping: Mapping[str, float] = field(default_factory=dict)
    marked: Mapping[str, float] = field(default_factory=dict)
    unit_ends_s: Mapping[str, float] = field(default_factory=dict)
    scaled_up_s: Mapping[str, float] = field(default_factory=dict)
    scalings: Mapping[str, int] = field(default_factory=dict)
    activities: int = 0
    started_s: float = 0.0
    units: int = 0
    turn: int = 0
    seed: int = 0


def java_order(names: Sequence[str]) -> list[str]:
    """Names in the order in which Java's HashMap lists up to twelve of them, put in as given.

    >>> java_order(["warning", "availability", "temperature"])
    ['temperature', 'warning', 'availability']
    """

    def bucket(name: str) -> int:
        value = 0
        for letter in name:
            value = (31 * value + ord(letter)) & 0xFFFFFFFF
        return (value ^ (value >> 16)) & 15

    return sorted(names, key=bucket)


class Turn:
    """One turn of a reasoner: the deployment as it changes, and the records."""

    def __init__(self, snapshot: Snapshot, records: Records) -> None:
        self.snapshot, self.now_s = snapshot, snapshot.time_s
        deployment = snapshot.requested
        self.hosts = sorted(deployment.hosts, key=_number)
        self.instances = {
            i.id: i for i in sorted(deployment.instances, key=lambda i: _number(i.id))
        }
        self.stopping = {i: t for i, t in records.stopping.items() if i in self.instances}
        self.marked = {h: t for h, t in records.marked.items() if h in self.hosts}
        self.unit_ends_s = {h: t for h, t in records.unit_ends_s.items() if h in self.hosts}
        self.scaled_up_s, self.scalings = dict(records.scaled_up_s), dict(records.scalings)
        self.activities, self.started_s, self.units = (
            records.activities,
            records.started_s,
            records.units,
        )
        self.leased = max(snapshot.leased_so_far, *map(_number, self.hosts), 0)
        self.highest = dict.fromkeys(snapshot.topology.by_name, 0)
        for instance in self.instances.values():
            name = instance.operator
            self.highest[name] = max(self.highest[name], _number(instance.id))
        self.unit_s = snapshot.offer.billing_unit_s
        self.reasons: list[Reason] = []
        for host in self.hosts:
            if host not in self.unit_ends_s:  # the hosts of the beginning
                self.unit_ends_s[host] = self.now_s - self.now_s % self.unit_s + self.unit_s
                self.units += 1
        self.rng = random.Random(f"{records.seed}:{records.turn}")
        self._books = records

    def done(self) -> tuple[Plan, Records]:
        """The plan and the records for the next turn."""
        records = Records(
            self.stopping,
            self.marked,
            self.unit_ends_s,
            self.scaled_up_s,
            self.scalings,
            self.activities,
            self.started_s,
            self.units,
            self._books.turn + 1,
            self._books.seed,
        )
        deployment = Deployment(tuple(self.hosts), tuple(self.instances.values()))
        return Plan(deployment, tuple(self.reasons)), records

    # --- what is there ------------------------------------------------------------------------

    def running(self, operator: str) -> list[Instance]:
        """Instances of an operator that were not stopped, oldest first."""
        return [
            i
            for i in self.instances.values()
            if i.operator == operator and i.id not in self.stopping
        ]

    def on(self, host: str) -> list[Instance]:
        """Instances on a host, also those that were stopped and still serve."""
        return [i for i in self.instances.values() if i.host == host]

    def free(self, host: str, count_stopping: bool = False) -> tuple[float, float]:
        """Cores and memory that no instance on a host has reserved."""
        cores, memory = (
            self.snapshot.offer.capacity.cpu_cores,
            self.snapshot.offer.capacity.memory_mb,
        )
        for instance in self.on(host):
            if count_stopping or instance.id not in self.stopping:
                demand = self.demand(instance.operator)
                cores, memory = cores - demand.cpu_cores, memory - demand.memory_mb
        return cores, memory

    def demand(self, operator: str) -> Resources:
        """What an instance of an operator reserves."""
        return self.snapshot.operator(operator).demand

    def fitting(self, operator: str, free: tuple[float, float]) -> float:
        """How many instances fit into free cores and memory, as a fraction."""
        demand = self.demand(operator)
        return min(free[0] / demand.cpu_cores, free[1] / demand.memory_mb) + 1e-9

    def waiting(self, operator: str) -> float | None:
        """Items in the longest queue of an operator, those in work included; None if unknown."""
        return self.snapshot.reading[operator].queue_length

    # --- what is done -------------------------------------------------------------------------

    def clean_up(self) -> None:
        """Remove the instances that were stopped, and the hosts that were marked, a turn ago."""
        for name, since_s in list(self.stopping.items()):
            if self.now_s > since_s + 2 * GRACE_S:
                del self.stopping[name], self.instances[name]
        for host, since_s in list(self.marked.items()):
            if self.now_s > since_s + 2 * GRACE_S:
                for instance in self.on(host):
                    self.stopping.pop(instance.id, None)
                    del self.instances[instance.id]
                self.hosts.remove(host)
                del self.marked[host], self.unit_ends_s[host]
                self.activities += 1

    def lease(self) -> str:
        """Start a host."""
        self.leased += 1
        host = f"host-{self.leased}"
        self.hosts.append(host)
        self.unit_ends_s[host] = self.now_s + self.unit_s
        self.started_s = self.now_s
        self.units += 1
        self.activities += 1
        self.reasons.append(Reason("lease", f"no host has room: {host} is leased", host))
        return host

    def prolong(self, host: str) -> None:
        """Pay another unit for a host."""
        self.unit_ends_s[host] += self.unit_s
        self.units += 1
        self.activities += 1
        self.reasons.append(Reason("prolong", f"{host} is paid for another unit", host))

    def mark(self, host: str) -> None:
        """Let a host leave at the next turn."""
        self.marked[host] = self.now_s
        self.reasons.append(Reason("release", f"{host} is released at the next turn", host))

    def start(self, operator: str, host: str) -> None:
        """Start an instance."""
        self.highest[operator] += 1
        name = f"{operator}-{self.highest[operator]}"
        self.instances[name] = Instance(name, operator, host)
        self.scaled_up_s[operator] = self.now_s
        self.count(operator)
        self.reasons.append(Reason("late", f"{name} starts on {host}", operator))

    def stop(self, instance: Instance, code: str) -> None:
        """Stop an instance: it serves until the next turn."""
        self.stopping[instance.id] = self.now_s
        self.count(instance.operator)
        self.reasons.append(Reason(code, f"{instance.id} stops", instance.operator))

    def count(self, operator: str) -> None:
        """Count a scaling operation."""
        self.scalings[operator] = self.scalings.get(operator, 0) + 1
        self.activities += 1


@dataclass(frozen=True)
class Reasoner(Policy):
    """What both reasoners have in common."""

    style: ClassVar[Style] = "instances"
    needs: ClassVar[tuple[str, ...]] = ("operator.queue_length",)
    memory_type: ClassVar[type] = Records

    def initial_memory(self, seed: int = 0) -> Records:
        """Empty records."""
        return Records(seed=seed)

    def decide(self, snapshot: Snapshot, memory: Records) -> tuple[Plan, Records]:
        """One turn."""
        turn = Turn(snapshot, memory)
        turn.clean_up()
        self.reason(turn)
        return turn.done()

    @abstractmethod
    def reason(self, turn: Turn) -> None:
        """Scale instances and look at the hosts."""


@dataclass(frozen=True)
class BaselineReasoner(Reasoner):
    """The baseline as coded: queues alone, first fit.

    The code means to stop the instance on the emptiest host. It looks hosts up in a map by objects
    whose hash seems to change with each reading of the database (Lombok's `@Data` over a Hibernate
    bag). If so, it finds none of them, and the last instance of its list stops: the newest.
    """

    name: ClassVar[str] = "visp-baseline-as-coded"

    up: float = setting(250.0, "more waiting items than this start one instance", low=0)
    double: float = setting(1250.0, "more waiting items than this start two", low=0)
    down: float = setting(20.0, "fewer waiting items than this stop one instance", low=0)
    stops: Literal["emptiest", "newest"] = setting(
        "emptiest",
        "instance that stops: the one on the emptiest host, or the newest",
        choices=("emptiest", "newest"),
    )

    def reason(self, turn: Turn) -> None:
        """Mark empty hosts, prolong leases that have ended, then look at each queue."""
        if len(turn.hosts) > 1:
            for host in list(turn.hosts):
                if not turn.on(host):
                    turn.mark(host)
                if turn.unit_ends_s[host] < turn.now_s:
                    turn.prolong(host)
        for operator in turn.snapshot.topology.by_name:
            waiting = turn.waiting(operator)
            if waiting is None:
                continue
            if waiting > self.up:
                for _ in range(2 if waiting > self.double else 1):
                    turn.start(operator, self._first_fit(turn, operator))
            elif waiting < self.down:
                self._stop_one(turn, operator)

    @staticmethod
    def _first_fit(turn: Turn, operator: str) -> str:
        for host in turn.hosts:
            if host not in turn.marked and turn.fitting(operator, turn.free(host, True)) >= 1:
                return host
        return turn.lease()

    def _stop_one(self, turn: Turn, operator: str) -> None:
        instances = turn.running(operator)
        if len(instances) < 2:
            return
        chosen, most = instances[-1], turn.free(instances[0].host)
        if self.stops == "emptiest":
            chosen = instances[0]
            for instance in instances[1:]:
                free = turn.free(instance.host)
                if free[0] > most[0] and free[1] > most[1]:
                    chosen, most = instance, free
        turn.stop(chosen, "idle")


@dataclass(frozen=True)
class BtuReasoner(Reasoner):
    """The BTU-based reasoner as coded."""

    name: ClassVar[str] = "visp-btu-as-coded"
    needs: ClassVar[tuple[str, ...]] = ("operator.queue_length", "operator.recent_durations_s")
    picks_its_moment: ClassVar[bool] = True

    threshold: float = setting(50.0, "items that must wait before scaling up", low=0)
    penalty: float = setting(0.01, "P of Algorithm 3", low=0)
    queue_load: float = setting(100.0, "QL of Algorithm 3", low=0)

    def reason(self, turn: Turn) -> None:
        """Scale up in random order, then look at the hosts whose paid time ends."""
        operators = list(turn.snapshot.topology.by_name)
        turn.rng.shuffle(operators)
        for operator in operators:
            for _ in range(self._missing(turn, operator)):
                turn.start(operator, self._host_for(turn, operator))
        if len(turn.hosts) > 1:
            self._look_at_hosts(turn)

    # --- Algorithm 1 --------------------------------------------------------------------------

    def _missing(self, turn: Turn, operator: str) -> int:
        waiting = turn.waiting(operator)
        if waiting is None:
            return 0
        far_behind = waiting > 5 * self.threshold
        slo_s = turn.snapshot.operator(operator).slo_s
        recent = (turn.snapshot.reading[operator].recent_durations_s or ())[-5:]
        if slo_s is not None and recent and waiting > self.threshold:
            if sum(recent) / len(recent) > slo_s:
                return 2 if far_behind else 1
            predicted = predicted_through_origin_s(recent)
            if predicted is not None and predicted > slo_s:
                return 1
        return int(far_behind)

    # --- Algorithm 2 --------------------------------------------------------------------------

    @staticmethod
    def _suitable(turn: Turn, operator: str, avoid: str | None) -> str | None:
        """The host that the instance fills best by CPU, None when none has room."""
        cores = turn.snapshot.offer.capacity.cpu_cores
        found, lowest = None, math.inf
        for host in turn.hosts:
            free = turn.free(host)
            room = turn.fitting(operator, free)
            if host == avoid or host in turn.marked or room < 1:
                continue
            rank = (free[0] - turn.demand(operator).cpu_cores) / cores / room
            if rank < lowest and lowest > 0:
                found, lowest = host, rank
        return found

    def _host_for(self, turn: Turn, operator: str, avoid: str | None = None) -> str:
        """Fig. 4 as coded: other operators shrink until there is room, and a host is leased anyway.

        avoid: a host that is to be released; it is returned where nothing else has room.
        """
        host = self._suitable(turn, operator, avoid)
        if host is not None:
            return host
        shrunk: dict[str, int] = {}
        scores = self._scores(turn)
        while scores:
            other = min(scores)
            if shrunk.get(other, 0) >= MOST_SCALE_DOWNS:
                del scores[other]
                if not scores:
                    return turn.lease()
                continue
            shrunk[other] = shrunk.get(other, 0) + 1
            instances = turn.running(_OPERATOR[other])
            if len(instances) > 1:
                turn.stop(instances[0], "make-way")
            if self._suitable(turn, operator, avoid) is not None:
                break
            scores = self._scores(turn)
        if avoid is not None and shrunk:
            return avoid
        return turn.lease()

    # --- Algorithm 3 --------------------------------------------------------------------------

    def _scores(self, turn: Turn) -> dict[str, float]:
        """Scores of the operators that may shrink: those that exceed all before them.

        They are looked at in the order of Java's HashMap and listed by their names in the code.
        """
        counts = {
            CODE_NAMES[name]: len(turn.running(name)) for name in turn.snapshot.topology.by_name
        }
        several = {name: count for name, count in counts.items() if count > 1}
        found: dict[str, float] = {}
        highest = 0.0
        for name in java_order(list(several)):
            operator = _OPERATOR[name]
            slo_s = turn.snapshot.operator(operator).slo_s or math.inf
            recent = (turn.snapshot.reading[operator].recent_durations_s or ())[-5:]
            if not recent:
                continue
            delay = sum(recent) / len(recent) / slo_s * (1 + self.penalty)
            share = turn.scalings.get(operator, 0) / turn.activities if turn.activities else 0.0
            score = 1 + several[name] / max(several.values()) - delay - share
            waiting = turn.waiting(operator)
            score += self.queue_load * (waiting is not None and waiting < 1)
            score -= 200.0 * (turn.now_s - turn.scaled_up_s.get(operator, -math.inf) < RECENT_S)
            if score > highest:
                highest = found[name] = score
        return found

    # --- Fig. 5 -------------------------------------------------------------------------------

    def _look_at_hosts(self, turn: Turn) -> None:
        window_s = max(0.05 * turn.unit_s, 2 * GRACE_S)
        for host in list(turn.hosts):
            if host in turn.marked or turn.unit_ends_s[host] >= turn.now_s + window_s:
                continue
            if turn.now_s - turn.started_s < RECENT_S:
                turn.prolong(host)
                return
            self._release_or_prolong(turn, host)

    def _release_or_prolong(self, turn: Turn, host: str) -> None:
        scores, there = self._scores(turn), turn.on(host)
        for instance in there:
            if CODE_NAMES[instance.operator] in scores and len(turn.running(instance.operator)) > 1:
                turn.stop(instance, "spare")
        possible = self._migration_is_possible(turn, host)
        for instance in there:
            if instance.id in turn.stopping:
                continue
            room = self._host_for(turn, instance.operator, host)
            if not possible or room == host:
                break
            turn.start(instance.operator, self._host_for(turn, instance.operator, host))
            turn.stop(instance, "migrate")
        if any(instance.id not in turn.stopping for instance in turn.on(host)):
            turn.prolong(host)
        else:
            turn.mark(host)

    def _migration_is_possible(self, turn: Turn, host: str) -> bool:
        """The code's simulation: an instance takes room on every host that has some."""
        free = {h: turn.free(h) for h in turn.hosts if h != host and h not in turn.marked}
        left = 0
        for instance in turn.on(host):
            demand, placed = turn.demand(instance.operator), False
            for other, (cores, memory) in free.items():
                if turn.fitting(instance.operator, (cores, memory)) >= 1:
                    free[other] = cores - demand.cpu_cores, memory - demand.memory_mb
                    placed = True
            left += not placed
        if not left:
            return True
        scores = self._scores(turn)
        if len(scores) >= left + 1:
            return True
        return bool(scores) and scores[min(scores)] > POSSIBLE_ANYWAY


_OPERATOR = {code: name for name, code in CODE_NAMES.items()}


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
