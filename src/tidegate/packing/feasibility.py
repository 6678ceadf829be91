"""Whether a plan can be carried out at all: the rules that every plan keeps."""

from __future__ import annotations

from tidegate.model import Plan, Snapshot
from tidegate.model.topology import Resources
from tidegate.packing import Measure, capacity_of, sizes_of

__all__ = ["broken_rules"]


def broken_rules(snapshot: Snapshot, plan: Plan, measure: Measure = "demand") -> list[str]:
    """What is wrong with a plan, as sentences; empty when nothing is.

    A host that is too full *already* may stay so; but a host that is given something must have
    room for it, unless it then holds nothing else.
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
            broken.append(f"{host.id} is planned although it is being given back")
    for instance in wanted.instances:
        if instance.host not in hosts:
            broken.append(f"{instance.id} is planned on {instance.host}, which is not")
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
        broken.append(f"{len(hosts)} hosts are planned, but {most} can be had")
    if wanted.counts.keys() <= snapshot.topology.by_name.keys():  # else nobody knows their sizes
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
        f"{host} is given something and then holds {used[host]}, more than it has"
        for host in given
        if total[host] > 1 and not used[host].fits(capacity_of(snapshot, host))
    ]
