"""Queries as operators and task slots as instances. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidegate.model import Deployment, Instance, OperatorReading
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.units import natural

__all__ = ["filled", "part_of", "placed", "topology_of"]


def topology_of(queries: Sequence[str], slots: int | None = None) -> Topology:
    """Independent queries, each an operator with a separate source; a slot is an instance.

    slots: slots of a host. If there are more queries than slots, an instance is a share of a slot,
    so that a single host can run all queries in turn:

    >>> topology_of(["a", "b", "c", "d"], slots=2).by_name["a"].demand.cpu_cores
    0.5
    """
    share = 1.0 if not slots or not queries else min(1.0, slots / len(queries))
    return Topology(
        tuple(Operator(name, Resources(share)) for name in queries),
        tuple(Source(f"to-{name}") for name in queries),
        tuple(Edge(f"to-{name}", name) for name in queries),
    )


def filled(
    deployment: Deployment, topology: Topology, hosts: Sequence[str], new: Sequence[str], slots: int
) -> Deployment:
    """The deployment after hosts came and went.

    hosts: all present hosts; new: those that came since; slots: slots of a host. Instances on a
    lost host are removed. A new host uses all its slots, shared evenly by the operators, those
    without an instance first. Where an instance is a share of a slot, a slot holds several.
    Operators that may have one instance only, each placed by the policy, are spread over the hosts
    only if none has a place.

    >>> empty = Deployment(())
    >>> after = filled(empty, topology_of(["a", "b"]), ["host-1", "host-2"], ["host-1"], slots=4)
    >>> dict(after.counts), after.hosts
    ({'a': 2, 'b': 2}, ('host-1', 'host-2'))
    """
    names = list(topology.by_name)
    kept = [i for i in deployment.instances if i.host in hosts and i.operator in topology.by_name]
    if all(operator.max_instances == 1 for operator in topology.operators):
        if not kept and hosts:
            kept = [
                Instance(f"{name}-1", name, hosts[n % len(hosts)]) for n, name in enumerate(names)
            ]
        return Deployment(tuple(hosts), tuple(kept))
    count = Counter(i.operator for i in kept)
    highest = {n: max((_number(i.id) for i in kept if i.operator == n), default=0) for n in names}
    share = min((o.demand.cpu_cores for o in topology.operators), default=1.0)
    places = slots if share <= 0 else max(slots, int(slots / share + 1e-9))
    for host in new:
        for _ in range(places):
            name = min(names, key=lambda n: count[n])
            limit = topology.by_name[name].max_instances
            if len(names) == 1 or limit is None or count[name] < limit:
                highest[name] += 1
                count[name] += 1
                kept.append(Instance(f"{name}-{highest[name]}", name, host))
    return Deployment(tuple(hosts), tuple(kept))


def placed(
    counts: Mapping[str, int], topology: Topology, hosts: Sequence[str], slots: int
) -> Deployment | None:
    """The deployment with these counts, host by host; None unless the slots are enough.

    >>> both = topology_of(["a", "b"])
    >>> deployment = placed({"a": 3, "b": 1}, both, ["host-1", "host-2"], slots=2)
    >>> [(i.operator, i.host) for i in deployment.instances]
    [('a', 'host-1'), ('a', 'host-1'), ('a', 'host-2'), ('b', 'host-2')]
    >>> placed({"a": 4, "b": 1}, both, ["host-1", "host-2"], slots=2)
    """
    if sum(counts.values()) > slots * len(hosts):
        return None
    places = (host for host in hosts for _ in range(slots))
    instances = tuple(
        Instance(f"{name}-{n}", name, next(places))
        for name in topology.by_name
        for n in range(1, counts[name] + 1)
    )
    return Deployment(tuple(hosts), instances)


def part_of(reading: OperatorReading, name: str, parts: int) -> OperatorReading:
    """The reading of one shard: an equal part of the rates and the backlog, the same times."""

    def part(value: float | None) -> float | None:
        return None if value is None else value / parts

    if parts == 1:
        return reading
    first = reading.first_batch
    return replace(
        reading,
        operator=name,
        arrival_rate_per_s=part(reading.arrival_rate_per_s),
        processed_per_s=part(reading.processed_per_s),
        dropped_per_s=part(reading.dropped_per_s),
        shed_per_s=part(reading.shed_per_s),
        queue_length=part(reading.queue_length),
        first_batch=None if first is None else replace(first, rows=first.rows / parts),
    )


def _number(name: str) -> int:
    return natural(name.rpartition("-")[2]) or 0
