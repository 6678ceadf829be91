"""What was measured, value by value: hosts, instances, operators, micro-batches, latency.

All values are frozen. A measurement that is missing is `None`, never zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from tidegate.codec import Sorted, Value
from tidegate.model.leases import Lease
from tidegate.model.topology import Resources
from tidegate.units import finite

__all__ = [
    "BatchReading",
    "Host",
    "HostStatus",
    "Instance",
    "InstanceReading",
    "InstanceStatus",
    "Latency",
    "OperatorReading",
]

HostStatus = Literal["starting", "running", "draining"]
InstanceStatus = Literal["starting", "running", "stopping"]


@dataclass(frozen=True, slots=True)
class Host(Value):
    """A leased machine, cluster or executor, and how busy it is.

    utilisation: share of its CPU in use, 0 to 1 (above 1 when more is wanted than there is),
    None when it was not measured. images: operator images cached on it.
    """

    id: str
    capacity: Resources
    status: HostStatus = "running"
    utilisation: float | None = None
    lease: Lease | None = None
    images: Annotated[frozenset[str], Sorted] = frozenset()

    def __post_init__(self) -> None:
        if self.utilisation is not None and not 0 <= self.utilisation < math.inf:
            finite(self.utilisation, f"host {self.id}: utilisation", low=0)


@dataclass(frozen=True, slots=True)
class Instance(Value):
    """One running copy of an operator, at home on one host."""

    id: str
    operator: str
    host: str


@dataclass(frozen=True, slots=True)
class InstanceReading(Instance):
    """An instance and what was measured of it.

    load: resources in use, None when not measured; processed_per_s: items finished per second.
    """

    status: InstanceStatus = "running"
    load: Resources | None = None
    processed_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class BatchReading(Value):
    """Micro-batches: how often one is triggered and how long the last ones took, oldest first.

    trigger_interval_s: zero when the next batch begins as soon as the last one has ended.
    overhead_s: the part of a batch that more processors do not shorten (planning, commits),
    None when not measured.
    """

    trigger_interval_s: float
    recent_durations_s: tuple[float, ...]
    overhead_s: float | None = None


@dataclass(frozen=True, slots=True)
class OperatorReading(Value):
    """What was measured of all instances of an operator together since the last turn.

    arrival_rate_per_s, processed_per_s, dropped_per_s: items per second in, done and shed.
    service_time_s: mean time that an instance is busy with one item.
    arrival_scv, service_scv: squared coefficients of variation of inter-arrival and service times.
    queue_length: items waiting.
    recent_durations_s: time in the operator, waiting included, of the last items sampled,
        oldest first.
    pending_tasks, running_tasks: scheduler's view, where there is a scheduler with tasks.
    batches: where the operator is a query of its own that works in micro-batches.
    """

    operator: str
    arrival_rate_per_s: float | None = None
    processed_per_s: float | None = None
    dropped_per_s: float | None = None
    service_time_s: float | None = None
    arrival_scv: float | None = None
    service_scv: float | None = None
    queue_length: float | None = None
    recent_durations_s: tuple[float, ...] | None = None
    pending_tasks: int | None = None
    running_tasks: int | None = None
    batches: BatchReading | None = None

    def __post_init__(self) -> None:
        for name in ("arrival_rate_per_s", "service_time_s", "queue_length"):
            value = getattr(self, name)
            # Asked here first: the name for the message is not free, and this runs each turn.
            usual = value is None or (isinstance(value, float) and 0 <= value < math.inf)
            if not usual:
                finite(value, f"operator {self.operator}: {name}", low=0)


@dataclass(frozen=True, slots=True)
class Latency(Value):
    """End-to-end time of items, in seconds, from entering the topology until fully processed."""

    mean_s: float | None = None
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
