"""The hosts that a rate needs, by the models that DRS has for queues and for micro-batches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidegate.model import Snapshot, Unmet
from tidegate.policies.base import AIM
from tidegate.policies.drs.batches import BatchJob, read_job
from tidegate.policies.drs.dividing import relieved
from tidegate.policies.drs.networks import (
    JacksonNetwork,
    assigned,
    fewest_hosts,
    read_network,
    slots_of_host,
)
from tidegate.theory.queueing import Station
from tidegate.values import derived

__all__ = ["Need", "mean_for", "read_need"]

SAFE = 0.05
"""Part of each bound of micro-batches to stay below for a release, as a share."""


class Need(Protocol):
    """The hosts that multiples of the present rate need."""

    @property
    def busy(self) -> float:
        """Hosts that the present rate keeps busy, a real number."""

    @property
    def held(self) -> str:
        """Why nothing may be released, whatever the rate; empty without a reason."""

    @property
    def ceilings(self) -> tuple[str, ...]:
        """Sentences on sources that admit fewer items than arrive."""

    @property
    def admitted(self) -> float:
        """Hosts that what the sources admit beyond the present rate keeps busy, a real number."""

    def hosts(self, factor: float, share: float) -> tuple[int, list[Unmet]]:
        """Hosts for the present rate times `factor`, and demand that no number meets.

        share: of the items that should be within the target at that rate.
        """

    def safe_hosts(self, factor: float, share: float) -> int:
        """Hosts that are left after a release: enough beyond the noise of the measurements."""

    def counts(self, hosts: int) -> dict[str, int]:
        """Instances of each operator on a number of hosts."""

    def relieved(self, factor: float) -> dict[str, int] | None:
        """Instances on the same hosts with which no operator falls behind; None for no change.

        factor: multiple of the present rate to divide them for.
        """


@dataclass(frozen=True)
class _Queues:
    """A network of queues. bound_s: bound on the mean latency. slots: processors of a host."""

    snapshot: Snapshot
    network: JacksonNetwork
    slo_s: float
    slots: int
    held: str = ""
    ceilings: tuple[str, ...] = ()
    admitted: float = math.inf

    @derived
    def taken(self) -> int:
        return sum(self.network.kept.values())

    @derived
    def busy(self) -> float:
        return math.fsum(self.network.loads) / self.slots

    def hosts(self, factor: float, share: float) -> tuple[int, list[Unmet]]:
        stations = tuple(
            [
                Station(
                    s.name,
                    s.arrival_rate_per_s * factor,
                    s.service_rate_per_s,
                    s.arrival_scv,
                    s.service_scv,
                    s.max_processors,
                )
                for s in self.network.stations
            ]
        )
        outside = self.network.external_per_s
        network = JacksonNetwork(stations, outside * factor, self.network.kept)
        floor_s = math.fsum(self.network.loads) / outside if outside else 0.0
        bound_s = mean_for(self.slo_s, floor_s, share)
        return fewest_hosts(self.snapshot, network, bound_s, self.slots, self.taken)

    def safe_hosts(self, factor: float, share: float) -> int:
        return self.hosts(factor, share)[0]

    def counts(self, hosts: int) -> dict[str, int]:
        wanted = assigned(self.network, hosts * self.slots - self.taken)
        found = dict(zip(self.network.names, wanted, strict=True))
        return {**self.network.kept, **found}

    def relieved(self, factor: float) -> dict[str, int] | None:
        del factor  # hosts come for such an operator, unless there are no more
        return None


def mean_for(slo_s: float, floor_s: float, share: float) -> float:
    """The mean latency with which a share of the items is within the target, in seconds.

    Waiting times are taken as exponential, which they are beyond the first moments in an M/M/k
    queue. Service takes `floor_s` in any case.

    >>> round(mean_for(2.0, floor_s=0.5, share=0.9), 2), round(mean_for(2.0, 0.5, 0.99), 2)
    (1.15, 0.83)
    >>> mean_for(2.0, floor_s=0.5, share=1.0)
    0.5
    """
    if floor_s >= slo_s:
        return slo_s
    if share >= 1:
        return floor_s
    return floor_s + (slo_s - floor_s) / -math.log(1 - share)


@dataclass(frozen=True)
class _Batches:
    """Queries in micro-batches."""

    snapshot: Snapshot
    job: BatchJob
    slo_s: float

    @property
    def busy(self) -> float:
        return math.fsum(query.load for query in self.job.queries) / self.job.host_cores

    @property
    def ceilings(self) -> tuple[str, ...]:
        return self.job.ceilings

    @property
    def admitted(self) -> float:
        queries = self.job.queries
        if any(q.max_rows is None for q in queries):
            return math.inf
        slots = (
            max(0.0, q.admitted_per_s - q.arrival_rate_per_s) * q.service_time_s for q in queries
        )
        return math.fsum(slots) / self.job.host_cores

    @property
    def held(self) -> str:
        if self.job.unknown:
            return f"no cost of {', '.join(self.job.unknown)} is known yet"
        if self.job.late:
            return f"{', '.join(self.job.late)}: beyond the SLO already"
        return ""

    def hosts(self, factor: float, share: float) -> tuple[int, list[Unmet]]:
        need = self.job.need(headroom=factor - 1, doubt=-1)
        if need.hosts > self.job.present:
            need = self.job.need(headroom=factor - 1)
        hosts, unmet = need.hosts, list(need.unmet)
        if not self.job.identified:  # batches of one size do not show what rows cost
            hosts = min(hosts, 2 * max(1, self.job.present))
        most = self.snapshot.offer.max_hosts
        if most is not None and hosts > most:
            unmet.append(Unmet("", hosts - most, f"at most {most} hosts are available"))
            hosts = most
        return hosts, unmet

    def safe_hosts(self, factor: float, share: float) -> int:
        return self.job.need(headroom=factor - 1, margin=SAFE, doubt=1).hosts

    def counts(self, hosts: int) -> dict[str, int]:
        return self._of_all(self.job.counts(hosts))

    def relieved(self, factor: float) -> dict[str, int] | None:
        late = [name for name in self.snapshot.topology.by_name if self._late(name)]
        found = relieved(self.job, self.snapshot.requested.counts, late, factor - 1)
        return None if found is None else self._of_all(found)

    def _late(self, name: str) -> bool:
        """Whether items of an operator are late, by their delay in this operator alone."""
        delay, slo_s = self.snapshot.reading[name].delay, self.snapshot.operator(name).slo_s
        seen_s = delay.p95_s if delay.p95_s is not None else delay.p50_s
        return seen_s is not None and seen_s > (self.slo_s if slo_s is None else slo_s)

    def _of_all(self, found: Sequence[int]) -> dict[str, int]:
        """Instances of all operators. found: of those that the job has as queries."""
        wanted: dict[str, int] = dict.fromkeys(self.snapshot.topology.by_name, 1)
        wanted |= {q.name: k for q, k in zip(self.job.queries, found, strict=True)}
        running: Mapping[str, int] = self.snapshot.requested.counts
        return wanted | {name: max(1, running[name]) for name in self.job.unknown}


def read_need(snapshot: Snapshot, slo_s: float) -> Need | None:
    """The need that a snapshot shows, None when it shows nothing about the load.

    slo_s: latency target, in seconds.
    """
    job = read_job(snapshot, t_max_s=AIM * slo_s, catch_up_s=0.0, reserved=0)
    if job is not None:
        return _Batches(snapshot, job, slo_s)
    network = read_network(snapshot, t_max_s=slo_s, catch_up_s=0.0, general=True)
    if network is None:
        return None
    return _Queues(snapshot, network, slo_s, slots_of_host(snapshot))
