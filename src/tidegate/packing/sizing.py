"""Set the number of instances of each operator, or the number of identical hosts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidegate.model import Instance, Unmet
from tidegate.packing import Packing
from tidegate.packing.packing import MOST_NEW_HOSTS

__all__ = ["consolidate", "release_empty", "set_counts", "set_engines", "stop_some"]

NO_ROOM = "no host has room and no more can be leased"
MOST_LISTED = 100
"""Instances without room that are listed one by one."""
MOST_INSTANCES = 100_000
"""Instances of an operator that one decision starts at most, where they need no room."""


def set_counts(packing: Packing, wanted: Mapping[str, int], hosts: int = 0) -> None:
    """Start and stop instances until each operator has its count, never fewer than one.

    Surplus instances stop on the hosts with the fewest instances, so that hosts run empty. Missing
    instances start by first fit decreasing, on new hosts where the others are full. Instances
    without room become unmet demand.

    hosts: hosts to have at least. Where more queries than slots share a host, an instance is a part
    of a slot, and all instances that there may be do not fill the hosts that their tasks can use.
    """
    missing: dict[str, int] = {}
    for operator, count in wanted.items():
        change = _allowed(packing, operator, count) - packing.count(operator)
        if change > 0:
            missing[operator] = change
        stop_some(packing, operator, packing.count(operator) - max(1, count))
    largest = sorted(missing, key=lambda name: -packing.snapshot.operator(name).demand.cpu_cores)
    for operator in largest:
        _start_many(packing, operator, missing[operator])
    while len(packing.hosts) < hosts and packing.lease() is not None:
        pass


def _start_many(packing: Packing, operator: str, count: int) -> None:
    """Start instances of an operator by first fit, as `start_somewhere` does one by one.

    A host that is full for one of them is full for the others, so no host is looked at twice.
    """
    size, offered = packing.snapshot.operator(operator).demand, packing.snapshot.offer.capacity
    hosts, at = list(packing.hosts), 0
    for started in range(count):
        while at < len(hosts) and not packing.fits(size, hosts[at]):
            at += 1
        if at == len(hosts):
            host = packing.lease() if size.fits(offered) else None
            if host is None or started >= MOST_INSTANCES:
                left = count - started
                packing.unmet += (
                    [Unmet(operator, 1, NO_ROOM)] * left
                    if left <= MOST_LISTED
                    else [Unmet(operator, left, NO_ROOM)]
                )
                return
            hosts.append(host)
        packing.start(operator, hosts[at])


def start_somewhere(packing: Packing, operator: str, lease: bool = True) -> Instance | None:
    """Start an instance on the first host with room, or on a new host, or record it as unmet."""
    size = packing.snapshot.operator(operator).demand
    for host in packing.hosts:
        if packing.fits(size, host):
            return packing.start(operator, host)
    new = packing.lease() if lease and size.fits(packing.snapshot.offer.capacity) else None
    if new is None:
        packing.unmet.append(Unmet(operator, 1, NO_ROOM))
        return None
    return packing.start(operator, new)


def _allowed(packing: Packing, operator: str, count: int) -> int:
    limit = packing.snapshot.operator(operator).max_instances
    return max(1, count) if limit is None else min(max(1, count), limit)


def stop_some(packing: Packing, operator: str, surplus: int) -> None:
    """Stop instances of an operator on the hosts with the fewest instances, youngest host first."""
    if surplus <= 0:
        return
    youngest_first = list(packing.hosts.values())[::-1]
    found: list[str] = []
    for placed in sorted(youngest_first, key=len):
        found += [name for name, instance in placed.items() if instance.operator == operator]
        if len(found) >= surplus:
            break
    for name in found[:surplus]:
        packing.stop(name)


def release_empty(packing: Packing, keep: int = 1) -> None:
    """Release hosts without instances, the youngest first, down to `keep` hosts."""
    for host in reversed(list(packing.hosts)):
        if len(packing.hosts) > keep and not packing.hosts[host]:
            packing.release(host)
            packing.because("release", f"{host} is empty", host)


def consolidate(packing: Packing, at_least: int = 1) -> None:
    """Release hosts whose instances all fit elsewhere, starting with the emptiest."""
    if packing.host_count <= at_least:
        return
    for host in sorted(packing.hosts, key=lambda name: len(packing.hosts[name])):
        if len(packing.hosts) > at_least and packing.evacuate(host):
            packing.because("release", f"everything on {host} fits elsewhere", host)


def set_engines(packing: Packing, hosts: int, victims: Sequence[str] = ()) -> None:
    """Lease or release hosts until there are `hosts`, each a full engine.

    A new engine runs the same operators as the fullest host, so that all engines are alike and the
    input can be partitioned equally. The last instance of an operator moves to a remaining host.

    victims: hosts to release first; otherwise the youngest is released first.
    """
    hosts = max(1, hosts)
    while packing.host_count < hosts:
        host = packing.lease()
        if host is None:
            missing = hosts - packing.host_count
            why = f"the offer is exhausted at {packing.host_count} hosts"
            if packing.snapshot.offer.max_hosts is None:
                why = f"one decision leases {MOST_NEW_HOSTS} hosts at most"
            packing.unmet.append(Unmet("", missing, why))
            break
        fill_engine(packing, host)
    if packing.host_count <= hosts:
        return
    order = [*victims, *reversed([host for host in packing.hosts if host not in victims])]
    for host in order:
        if len(packing.hosts) <= hosts:
            break
        placed = packing.hosts[host].values()
        here = _by_operator(placed)
        only_here = [i.id for i in placed if here[i.operator] == packing.count(i.operator)]
        if only_here and packing.place(only_here, avoid={host}):
            packing.because("keep", f"{host} holds an operator that fits nowhere else", host)
        else:
            packing.release(host)


def _by_operator(instances: Collection[Instance]) -> dict[str, int]:
    """Instances by operator; a `Counter` of so few takes several times as long."""
    found: dict[str, int] = {}
    for instance in instances:
        found[instance.operator] = found.get(instance.operator, 0) + 1
    return found


def fill_engine(packing: Packing, host: str) -> None:
    """Start on a host what the fullest host runs, as far as limits and room allow.

    Without another host, start one instance of each operator.
    """
    fullest = max(packing.hosts.values(), key=len)
    pattern = _by_operator(fullest.values())
    for operator in packing.snapshot.topology.operators:
        for _ in range(pattern.get(operator.name, 1)):
            if packing.may_start(operator.name) and packing.fits(operator.demand, host):
                packing.start(operator.name, host)
