"""The world of the VISP evaluation: nine operators, rented hosts and a clock of whole seconds.

A factory reports on its machines: sensors S1 (availability), S2 (production, an image) and S3
(temperature) send bursts every 480 ms to nine operators on hosts of 4 cores and 7 GB. Numbers are
those of the paper's Tables 1 and 2 where the paper gives them, and of the authors' public code
(github.com/visp-streaming) where the two disagree about what was really sent; each is marked.

C. Hochreiner et al., *Cost-efficient enactment of stream processing topologies*, PeerJ Computer
Science 3:e141, 2017.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from numpy.random import Generator

from tidegate.lab.papers.visp.original import OriginalBtu
from tidegate.lab.papers.visp.reasoners import BaselineReasoner, BtuReasoner, Records
from tidegate.loop.backend import Outcome
from tidegate.loop.controller import Controller
from tidegate.model import HostOffer, Plan, Snapshot
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.policies.base import Policy
from tidegate.policies.btu import Btu
from tidegate.policies.queue_threshold import QueueThreshold
from tidegate.simulation import CloudSettings, RunReport, SimulatedCloud
from tidegate.simulation.run import simulate
from tidegate.workloads import Scaled, VispPattern, Workload
from tidegate.workloads.papers import Pattern
from tidegate.workloads.protocol import generator

__all__ = [
    "CONFIGURATIONS",
    "OPERATORS",
    "PATTERNS",
    "TICK_S",
    "Broker",
    "Configuration",
    "Occupancy",
    "OperatorFacts",
    "Run",
    "Variant",
    "busy_instances",
    "cloud",
    "drive",
    "make_topology",
    "service_s",
]

Occupancy = Literal["durations", "sleeps", "code"]

TICK_S = 0.48
MINUTES = 120
MONITORING_S, PROVISIONING_S = 15.0, 60.0
TURN_DELAY_S = 15.0
"""Longest delay of a turn, in seconds: a turn of the original takes seconds to complete."""
CPU_SHARES_PER_CORE = 1024
HOST = Resources(4, 7 * 1024)
CODE_HOST = Resources(4, 0.9 * 7 * 1024)
PENALTY = 0.0001
CLOCK_ERROR_S = 0.5
"""Mean error that a sender's clock of whole seconds adds to a duration, in seconds."""
OVERHEAD_S = 0.03
"""Assumed time for receiving and sending in addition to a coded sleep; 5 to 60 ms is plausible."""
OCR_S = 0.4
"""Assumed time for one image at O1, where the code does not sleep, in seconds."""
SERVICE_SCV = 0.1

RECEIVE_S, KEY_VALUE_S = 0.005, 0.001
"""Time to receive an item, and for one call of the key-value store, in seconds; assumed."""
CONNECTION_S, CODE_OCR_S, SPREAD_S = 0.02, 1.2, 0.3
"""Time to open and close a connection to the broker, for one image at O1, and over which a burst of
arrivals spreads, in seconds. All three were fitted on the stepwise pattern, after results had been
seen; the patterns two-level and both walks were not used."""
FAST_OCR_S = 0.8
"""Time for one image at O1 with which the baseline alone fits Table 3 best, in seconds."""
REPORTED = 0.1
"""Share of the items whose duration is reported, over a separate connection."""

PATTERNS: tuple[Pattern, ...] = ("stepwise", "two_level", "random_walk_1", "random_walk_2")


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """One operator.

    Args:
        slo_s: Published duration (Table 2), in seconds.
        shares: Published CPU shares (Table 2).
        memory_mb: Published memory (Table 2).
        code_cores: CPU cores that its code requests.
        code_memory_mb: Memory that its code requests.
        code_sleep_s: Time that its code sleeps, in seconds; O1 reads an image, see `OCR_S`.
        emitted: Messages that its code sends for an item; each opens a separate connection.
        key_value_calls: Calls of the key-value store for an item.
        largest_queue: Share of its items in the largest of its queues. Each queue has a separate
            channel, so the largest one decides how long an instance is busy.
    """

    slo_s: float
    shares: float
    memory_mb: float
    code_cores: float
    code_memory_mb: float
    code_sleep_s: float
    emitted: float
    key_value_calls: int = 0
    largest_queue: float = 1.0


OPERATORS: Mapping[str, OperatorFacts] = {
    "O1": OperatorFacts(1.50, 660, 452, 0.90, 554, OCR_S, 3),
    "O2": OperatorFacts(0.60, 131, 524, 0.40, 629, 0.02, 0.98),
    "O3": OperatorFacts(0.75, 100, 430, 0.40, 534, 0.05, 1),
    "O4": OperatorFacts(0.75, 83, 502, 0.56, 417, 0.05, 1, 2),
    "O5": OperatorFacts(0.75, 77, 527, 0.42, 527, 0.05, 1, 2),
    "O6": OperatorFacts(0.60, 65, 440, 0.25, 515, 0.02, 1 / 102),
    "O7": OperatorFacts(0.70, 46, 464, 0.40, 513, 0.0, 1 / 3, 4, 1 / 3),
    "O8": OperatorFacts(0.50, 74, 466, 0.14, 509, 0.0, 0, 0, 0.98),
    "O9": OperatorFacts(1.30, 47, 452, 0.30, 425, 0.0, 1 / 300),
}

# What leaves for each item, as the code did: O2 passes on DEFECT, which S1 sends 98 times in 100
# (the paper's 50:1 is the reverse); O6 passes on temperatures above 100 of 0 to 101; O7 joins
# three. What O9 reports leaves the topology.
EDGES = (
    Edge("S2", "O1"),
    Edge("S1", "O2"),
    Edge("S3", "O6"),
    Edge("O1", "O3"),
    Edge("O1", "O4"),
    Edge("O1", "O5"),
    Edge("O2", "O8", 0.98),
    Edge("O6", "O8", 1 / 102),
    Edge("O3", "O7"),
    Edge("O4", "O7"),
    Edge("O5", "O7"),
    Edge("O7", "O9", 1 / 3),
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """A column of Tables 3 to 6. btu: BTU-based, else threshold-based; minutes: billing unit."""

    name: str
    btu: bool
    minutes: int


CONFIGURATIONS = tuple(
    Configuration(f"{kind}{minutes}", kind == "BTU", minutes)
    for kind in ("BTU", "THR")
    for minutes in (10, 30, 60)
)


@dataclass(frozen=True)
class Variant:
    """One reading of what was run.

    Args:
        name: Name of the reading.
        differences: What the BTU-based policy does as the authors' code does, by name.
        thresholds: Up, double and down of the baseline, in waiting items.
        occupancy: How long an item occupies an instance, see `service_s`.
        code_demands: Reserve the resources of the code's sample configuration instead of those of
            Table 2, on hosts with 90 % of their memory.
        whole_seconds: Senders' clocks show whole seconds.
        unacknowledged: The broker counts items that are being processed as waiting.
        turn_delay_s: Longest delay of a turn, see `drive`, in seconds.
        literal_window: The policy does not know when the next turn is, so it considers a host only
            in the last 5 % of its billing unit even if no turn falls into them.
        penalty: P of Algorithm 3.
        retold: Both policies are the authors' reasoners, see `tidegate.lab.papers.visp.reasoners`,
            and hosts cost what their records say.
        largest_queue: Policies see the largest queue of an operator, not the sum.
        spread_s: Time over which the items of a burst arrive, in seconds.
        stops: Which instance the retold baseline stops, see `BaselineReasoner`.
        connection_s: Time to open and close a connection to the broker, in seconds.
        ocr_s: Time for one image at O1 where the code occupies an instance, in seconds.
        baseline_ocr_s: The same under the baseline.
        baseline_items: Share of the items that the baseline gets, by pattern; empty: all of them.
        baseline_images: The same of the images alone.
        service_scv: Variation of service times (squared coefficient).
        image_download_s: Time for an operator's image that a host has not cached, in seconds.
    """

    name: str
    differences: frozenset[str] = frozenset()
    thresholds: tuple[float, float, float] = (50.0, 250.0, 1.0)
    occupancy: Occupancy = "durations"
    code_demands: bool = False
    whole_seconds: bool = True
    unacknowledged: bool = False
    turn_delay_s: float = TURN_DELAY_S
    literal_window: bool = False
    penalty: float = PENALTY
    retold: bool = False
    largest_queue: bool = False
    spread_s: float = 0.0
    stops: Literal["emptiest", "newest"] = "emptiest"
    connection_s: float = CONNECTION_S
    ocr_s: float = CODE_OCR_S
    baseline_ocr_s: float = CODE_OCR_S
    baseline_items: tuple[tuple[Pattern, float], ...] = ()
    baseline_images: tuple[tuple[Pattern, float], ...] = ()
    service_scv: float = SERVICE_SCV
    image_download_s: float = 20.0

    def topology(self, pattern: Pattern, configuration: Configuration) -> Topology:
        """The operators of a run; images that the baseline does not get are lost before O1."""
        ocr_s = self.ocr_s if configuration.btu else self.baseline_ocr_s
        whole = make_topology(self.occupancy, self.code_demands, ocr_s, self.connection_s)
        share = 1.0 if configuration.btu else dict(self.baseline_images).get(pattern, 1.0)
        edges = tuple(replace(e, ratio=share) if e.origin == "S2" else e for e in whole.edges)
        operators = tuple(replace(o, service_scv=self.service_scv) for o in whole.operators)
        return Topology(operators, whole.sources, edges)

    def policy(self, configuration: Configuration) -> Policy:
        """The policy of a column."""
        up, double, down = self.thresholds
        if self.retold and configuration.btu:
            return BtuReasoner(penalty=self.penalty)
        if self.retold:
            return BaselineReasoner(up=up, double=double, down=down, stops=self.stops)
        if configuration.btu:
            if self.differences:
                return OriginalBtu(penalty=self.penalty, differences=self.differences)
            return Btu(penalty=self.penalty)
        return QueueThreshold(up=up, double=double, down=down)


def service_s(
    facts: OperatorFacts,
    occupancy: Occupancy,
    ocr_s: float = CODE_OCR_S,
    connection_s: float = CONNECTION_S,
) -> float:
    """How long one item occupies an instance, in seconds.

    "durations": the published duration less the half second that the clock adds to it, and at
    least what the code sleeps plus its overhead. "sleeps": only the latter. "code": what the code
    does, connections to the broker included, on the channel of the largest queue; `ocr_s` is then
    the time for one image at O1 and `connection_s` that for a connection, in seconds.

    >>> [round(service_s(OPERATORS[name], "code"), 3) for name in ("O1", "O2", "O3", "O6", "O9")]
    [1.267, 0.047, 0.077, 0.027, 0.007]
    """
    if occupancy == "code":
        work = ocr_s if facts.code_sleep_s == OCR_S else facts.code_sleep_s
        work += RECEIVE_S + facts.key_value_calls * KEY_VALUE_S
        return (work + (facts.emitted + REPORTED) * connection_s) * facts.largest_queue
    slept = facts.code_sleep_s + OVERHEAD_S
    return max(slept, facts.slo_s - CLOCK_ERROR_S) if occupancy == "durations" else slept


def make_topology(
    occupancy: Occupancy = "durations",
    code_demands: bool = False,
    ocr_s: float = CODE_OCR_S,
    connection_s: float = CONNECTION_S,
) -> Topology:
    """The nine operators, with one machine sending. ocr_s, connection_s: see `service_s`.

    >>> rates = make_topology().arrival_rates()
    >>> round(sum(rates.values()) * TICK_S, 1)  # operator-items per machine and tick
    28.0
    """
    operators = tuple(
        Operator(
            name,
            Resources(facts.code_cores, facts.code_memory_mb)
            if code_demands
            else Resources(facts.shares / CPU_SHARES_PER_CORE, facts.memory_mb),
            service_time_s=service_s(facts, occupancy, ocr_s, connection_s),
            service_scv=SERVICE_SCV,
            slo_s=facts.slo_s,
        )
        for name, facts in OPERATORS.items()
    )
    sources = tuple(
        Source(name, items / TICK_S) for name, items in (("S1", 5), ("S2", 1), ("S3", 10))
    )
    return Topology(operators, sources, EDGES)


def busy_instances(topology: Topology, machines: float) -> float:
    """The mean number of busy instances. machines: number of machines that send.

    >>> mean = float(VispPattern("stepwise").machines_by_tick.mean())
    >>> round(busy_instances(make_topology(), mean), 1)
    39.3
    >>> round(busy_instances(make_topology("sleeps"), mean), 1)
    13.8
    """
    rates = topology.arrival_rates()
    service = {operator.name: operator.service_time_s or 0.0 for operator in topology.operators}
    return machines * sum(rate * service[name] for name, rate in rates.items())


class Broker:
    """A world seen through its message broker, which counts items in progress as waiting.

    largest_queue: it shows the largest queue of an operator, not the sum.
    """

    def __init__(self, world: SimulatedCloud, largest_queue: bool = False) -> None:
        self._world = world
        self._part = {
            name: facts.largest_queue if largest_queue else 1.0 for name, facts in OPERATORS.items()
        }

    def observe(self) -> Snapshot:
        """Observe the world; waiting items include those in progress."""
        seen = self._world.observe()
        readings = tuple(
            replace(
                r,
                queue_length=self._part[r.operator]
                * ((r.queue_length or 0.0) + (r.running_tasks or 0)),
            )
            for r in seen.operators
        )
        return replace(seen, operators=readings)

    def apply(self, plan: Plan) -> Outcome:
        """Apply the plan to the world."""
        return self._world.apply(plan)


@dataclass(frozen=True)
class Run:
    """One evaluation run.

    leases_s: duration of each lease, in the retold code up to the last turn that could prolong it;
    reasons: number of reasons by code; paid: billing units by the records of the retold code.
    """

    report: RunReport
    leases_s: tuple[float, ...]
    reasons: Mapping[str, int]
    paid: int | None = None

    def cost_at(self, minutes: int) -> float:
        """The cost of the same leases with another billing unit; ten minutes cost 1."""
        units = sum(max(1, math.ceil(span / (60 * minutes) - 1e-9)) for span in self.leases_s)
        return units * minutes / 10


def cloud(
    pattern: Pattern,
    configuration: Configuration,
    variant: Variant,
    seed: int,
    rng: Generator,
) -> SimulatedCloud:
    """The world of one run. rng: draws the phase of the second data job."""
    offer = HostOffer(
        CODE_HOST if variant.code_demands else HOST,
        billing_unit_s=60.0 * configuration.minutes,
        price_per_unit_usd=configuration.minutes / 10,
    )
    settings = CloudSettings(
        host_startup_s=(30.0, 60.0),
        instance_startup_s=(5.0, 10.0),
        image_download_s=variant.image_download_s,
        monitoring_s=MONITORING_S,
        decision_s=None if variant.literal_window else PROVISIONING_S,
        sample_every=10,
        quantise_timestamps=variant.whole_seconds,
        penalty_usd=PENALTY,
    )
    phase_s = float(rng.uniform(0, TICK_S - variant.spread_s))
    workload: Workload = VispPattern(pattern, phase_s=phase_s, spread_s=variant.spread_s, seed=seed)
    share = dict(variant.baseline_items).get(pattern, 1.0)
    if share != 1 and not configuration.btu:
        workload = Scaled(workload, rate_factor=share, seed=seed)
    topology = variant.topology(pattern, configuration)
    return SimulatedCloud(topology, offer, workload, seed=seed, settings=settings)


def drive(
    pattern: Pattern,
    configuration: Configuration,
    variant: Variant,
    seed: int,
    minutes: float = MINUTES,
) -> Run:
    """One evaluation run.

    Each turn has a random delay of up to `turn_delay_s` after the full minute. Without it, every
    turn would observe the queues at the same moment between two bursts (60 s are exactly 125 of
    them), and every billing unit would end exactly at a turn.
    """
    rng = generator(seed, 0)
    world = cloud(pattern, configuration, variant, seed, rng)
    backend = Broker(world, variant.largest_queue) if variant.unacknowledged else world
    controller = Controller(backend, variant.policy(configuration), seed=seed)
    end_s = 60.0 * minutes
    leased_s = {host.id: 0.0 for host in world.observe().hosts}
    spans: list[float] = []
    reasons: Counter[str] = Counter()
    before_s = 0.0  # the turn before, the last that could prolong a lease that ends now

    def due_s(turns: int) -> float:
        return turns * PROVISIONING_S + float(rng.uniform(0, variant.turn_delay_s))

    for turn in simulate(world, controller, end_s=end_s, interval_s=due_s):
        assert turn.snapshot is not None and turn.plan is not None and turn.outcome is not None
        now_s = turn.snapshot.time_s
        reasons.update(reason.code for reason in turn.plan.reasons)
        for step in turn.outcome.steps:
            if step.kind == "lease":
                leased_s[step.host] = now_s
            elif step.kind == "release":
                until_s = before_s if variant.retold else now_s
                spans.append(until_s - leased_s.pop(step.host))
        before_s = now_s
    until_s = before_s if variant.retold else end_s
    spans += [until_s - since_s for since_s in leased_s.values()]
    records = controller.memory
    return Run(
        world.report(),
        tuple(spans),
        reasons,
        records.units if isinstance(records, Records) else None,
    )
