"""Whether a plan is feasible: the rules that every plan must keep."""

from __future__ import annotations

from tidegate.model import Plan, Snapshot
from tidegate.model.topology import Resources
from tidegate.packing import Measure, capacity_of, sizes_of

__all__ = ["broken_rules"]


def broken_rules(snapshot: Snapshot, plan: Plan, measure: Measure = "demand") -> list[str]:
    """The rules that a plan breaks, one sentence each; empty for a feasible plan.

    A host that is overfull *already* may stay so. A host that receives an instance must have room
    for it, unless the instance is alone there.
    """
    wanted = plan.deployment
    now = snapshot.requested
    broken = []
    hosts = set(wanted.hosts)
    if len(hosts) != len(wanted.hosts):
        broken.append("a host is planned twice")
    if len(wanted.home) != len(wanted.instances):
        broken.append("two planned instances have one id")
    for host in snapshot.hosts:
        if host.status == "draining" and host.id in hosts:
            broken.append(f"{host.id} is planned although it is draining")
    for instance in wanted.instances:
        if instance.host not in hosts:
            broken.append(f"{instance.id} is planned on {instance.host}, which is not planned")
        if instance.operator not in snapshot.topology.by_name:
            broken.append(f"{instance.id} is of {instance.operator}, which the topology lacks")

    unmet = {entry.operator for entry in plan.unmet}
    for name, operator in snapshot.topology.by_name.items():
        count = wanted.counts[name]
        if count == 0 and name not in unmet:
            broken.append(f"{name} is left without any instance")
        limit = operator.max_instances
        if limit is not None and count > max(limit, now.counts[name]):
            broken.append(f"{name} gets {count} instances, but can use {limit}")
    most = snapshot.offer.max_hosts
    if most is not None and len(hosts) > max(most, len(now.hosts)):
        broken.append(f"{len(hosts)} hosts are planned, but the offer has {most}")
    if (
        wanted.counts.keys() <= snapshot.topology.by_name.keys()
    ):  # otherwise their sizes are unknown
        broken += _overfilled(snapshot, plan, measure)
    return broken


def _overfilled(snapshot: Snapshot, plan: Plan, measure: Measure) -> list[str]:
    before = snapshot.requested.home
    sizes = sizes_of(snapshot, plan.deployment, measure)
    used: dict[str, Resources] = {}
    given: dict[str, int] = {}
    total: dict[str, int] = {}
    for instance in plan.deployment.instances:
        host = instance.host
        used[host] = used.get(host, Resources(0)) + sizes[instance.id]
        total[host] = total.get(host, 0) + 1
        if before.get(instance.id) != host:
            given[host] = given.get(host, 0) + 1
    return [
        f"{host} receives an instance and then holds {used[host]}, more than its capacity"
        for host in given
        if total[host] > 1 and not used[host].fits(capacity_of(snapshot, host))
    ]
