"""Who is there, written down when it has changed, and told with what was measured of each.

Most policies ask for the hosts and instances of a snapshot only now and then. A roster never
changes once it is made, so that a snapshot can hold on to it and be asked later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tidegate.model import (
    BatchReading,
    Host,
    HostStatus,
    InstanceReading,
    InstanceStatus,
    Latency,
    OperatorReading,
)
from tidegate.model.topology import Resources
from tidegate.simulation.hosts import Fleet

__all__ = ["Readings", "Roster"]


class Readings(NamedTuple):
    """What was measured at one moment; core-seconds and rates by engine number."""

    time_s: float
    span_s: float
    operators: tuple[OperatorReading, ...]
    latency: Latency
    batches: BatchReading | None
    core_s: list[float]
    noise: float
    busy: list[list[float]]
    done: list[list[float]]


class Roster:
    """The hosts and instances of a fleet as they are now.

    demands: of the operators, by number. capacities: what each host has to give, in the order of
    the leases. up_s: from when on all of it runs, never while a host is being given back.
    """

    def __init__(self, fleet: Fleet, demands: Sequence[Resources]) -> None:
        hosts, instances = fleet.hosts.values(), fleet.instances.values()
        self._demands, self._capacity = demands, fleet.offer.capacity
        self._hosts = [replace(h, images=dict(h.images)) for h in hosts]
        self._instances = [replace(i) for i in instances]
        self.capacities = dict.fromkeys(fleet.hosts, self._capacity)
        ready = [h.ready_s for h in hosts] + [i.ready_s for i in instances]
        draining = any(h.draining for h in hosts)
        self.up_s = math.inf if draining else max(ready, default=0.0)

    def hosts(self, now_s: float, seen: Readings | None) -> tuple[Host, ...]:
        """The hosts at that moment, with what was measured then or before."""
        hosts = []
        capacity, cores = self._capacity, self._capacity.cpu_cores
        for host in self._hosts:
            ready_s, number = host.ready_s, host.number
            status: HostStatus = "running"
            if host.draining:
                status = "draining"
            elif ready_s > now_s:
                status = "starting"
            used = None
            if seen and ready_s < seen.time_s and number < len(seen.core_s):
                up_s = min(seen.span_s, seen.time_s - ready_s)
                if up_s > 0:
                    used = max(seen.core_s[number] / cores, 0.0) * seen.noise / up_s
            there = [image for image, since_s in host.images.items() if since_s <= now_s]
            hosts.append(Host(host.id, capacity, status, used, host.lease, frozenset(there)))
        return tuple(hosts)

    def instances(self, now_s: float, seen: Readings | None) -> tuple[InstanceReading, ...]:
        """The instances at that moment, with what was measured then or before."""
        readings = []
        measured_s, span_s, slots = -math.inf, 0.0, 0
        if seen:
            measured_s, span_s, slots = seen.time_s, seen.span_s, len(seen.busy[0])
        # Instances of an operator often did the same, and in a flow always.
        known: tuple[float, ...] = ()
        same: tuple[Resources | None, float | None] = (None, None)
        for instance in self._instances:
            o, slot, ready_s = instance.number, instance.slot, instance.ready_s
            status: InstanceStatus = "running" if ready_s <= now_s else "starting"
            load = rate = None
            if seen and ready_s < measured_s and ready_s <= now_s and slot < slots:
                there = min(span_s, measured_s - ready_s)
                if there > 0:
                    busy, done = seen.busy[o][slot], seen.done[o][slot]
                    if (o, busy, done, there) != known:
                        known = (o, busy, done, there)
                        share, demand = max(0.0, busy / there), self._demands[o]
                        cores, mbps = share * demand.cpu_cores, share * demand.network_mbps
                        load = Resources(cores, demand.memory_mb, mbps)
                        same = load, max(0.0, done / there)
                    load, rate = same
            readings.append(
                InstanceReading(instance.id, instance.operator, instance.host, status, load, rate)
            )
        return tuple(readings)
