"""Change a planned deployment without a new decision; guards use this to limit a plan."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tidegate.model import Deployment, Instance, Snapshot, Unmet
from tidegate.packing import Measure, Packing, Style
from tidegate.packing.sizing import fill_engine

__all__ = ["Reshaped", "grows", "shrinks", "with_hosts", "without_scale_in", "without_scale_out"]


class Reshaped(NamedTuple):
    """A deployment after a change, and the demand that it cannot meet."""

    deployment: Deployment
    unmet: tuple[Unmet, ...] = ()


def grows(snapshot: Snapshot, wanted: Deployment) -> bool:
    """Whether there are more hosts, or more instances of some operator."""
    now = snapshot.requested
    if wanted is now:  # most plans change nothing
        return False
    return len(wanted.hosts) > len(now.hosts) or _more(wanted, now)


def shrinks(snapshot: Snapshot, wanted: Deployment) -> bool:
    """Whether there are fewer hosts, or fewer instances of some operator."""
    now = snapshot.requested
    if wanted is now:
        return False
    return len(wanted.hosts) < len(now.hosts) or _more(now, wanted)


def _more(these: Deployment, those: Deployment) -> bool:
    """Whether there are more instances of some operator in `these`."""
    have, counts = those.counts, these.counts
    return counts is not have and any(count > have[name] for name, count in counts.items())


def without_scale_in(snapshot: Snapshot, wanted: Deployment, measure: Measure) -> Deployment:
    """The plan with nothing released and nothing stopped. Scale-out stays if there is room for it.

    If the kept and the new instances do not fit together, the requested deployment stays. An
    operator that lost its last instance gets a new one in any case.
    """
    now = snapshot.requested
    packing = Packing(snapshot, measure, deployment=wanted)
    moved_away = {i.id: i for i in now.instances if i.host not in packing.hosts}
    for host in now.hosts:
        if host not in packing.hosts:
            packing.keep_host(host)
    fewer = now.counts - wanted.counts
    for instance in now.instances:
        if instance.id in packing.home:
            if instance.id in moved_away:  # its host stays, so it need not move
                packing.move(instance.id, instance.host)
        elif fewer[instance.operator] > 0:
            fewer[instance.operator] -= 1
            packing.keep(instance)
    crowded = any(
        min(left) < -1e-6 and packing.received(host) for host, left in packing.free.items()
    )
    return _as_it_is(snapshot, measure) if crowded else packing.deployment


def without_scale_out(snapshot: Snapshot, wanted: Deployment, measure: Measure) -> Deployment:
    """The plan with no new hosts and no more instances. Scale-in and moves stay where possible.

    An operator that lost its last instance gets a new one in any case, with a host if needed.
    """
    now = snapshot.requested
    lost = {i.id for i in wanted.instances if now.counts[i.operator] == 0}
    needed = {i.host for i in wanted.instances if i.id in lost}
    known = {i.id: i for i in now.instances}
    hosts = tuple(host for host in wanted.hosts if host in set(now.hosts) | needed)
    surplus = Counter({name: wanted.counts[name] - now.counts[name] for name in wanted.counts})
    kept: list[Instance] = []
    for instance in wanted.instances:
        home = known.get(instance.id)
        if instance.id in lost:
            kept.append(instance)
        elif home is None:
            if surplus[instance.operator] > 0:
                surplus[instance.operator] -= 1
            elif instance.host in hosts:
                kept.append(instance)
            else:
                return _as_it_is(snapshot, measure)
        elif instance.host in hosts:
            kept.append(instance)
        elif home.host in hosts:
            kept.append(home)
        else:
            # Its old host is released and its new one may not be leased: keep everything.
            return _as_it_is(snapshot, measure)
    return Deployment(hosts, tuple(kept))


def _as_it_is(snapshot: Snapshot, measure: Measure) -> Deployment:
    """The requested deployment, with an instance for each operator that has none."""
    return Packing(snapshot, measure).deployment


def with_hosts(
    snapshot: Snapshot, wanted: Deployment, hosts: int, style: Style, measure: Measure
) -> Reshaped:
    """The plan on exactly `hosts` hosts, as close to the original as possible.

    To add hosts, those that the plan releases are kept with their instances, then new ones are
    leased. To remove hosts, those that are not leased yet go first, then those with the fewest
    instances. Their instances move, or count as unmet demand.
    """
    now = snapshot.requested
    if hosts == len(now.hosts) and _only_releases(now, wanted):
        return Reshaped(now)
    packing = Packing(snapshot, measure, deployment=wanted)
    for host in now.hosts:
        if len(packing.hosts) < hosts and host not in packing.hosts:
            packing.keep_host(host)
            for instance in now.by_host[host].values():
                if instance.id in packing.home:
                    packing.move(instance.id, host)
                else:
                    packing.keep(instance)
    while len(packing.hosts) < hosts and (new := packing.lease()):
        if style == "engines":
            fill_engine(packing, new)
    running = set(now.hosts)
    while len(packing.hosts) > max(1, hosts):
        coming = [host for host in packing.hosts if host not in running]
        emptiest = min(packing.hosts, key=lambda name: len(packing.hosts[name]))
        _remove_host(packing, coming[-1] if coming else emptiest, now)
    return Reshaped(packing.deployment, tuple(packing.unmet))


def _only_releases(now: Deployment, wanted: Deployment) -> bool:
    """Whether all that is wanted is to release hosts, with moves from these alone."""
    kept, before = wanted.host_names, now.by_id
    if not kept < now.host_names:
        return False
    came = 0
    # Most instances stay, and are the same objects.
    for one in [one for one in wanted.instances if before.get(one.id) is not one]:
        was = before.get(one.id)
        if was is None or (was.host in kept and was.host != one.host):
            return False
        came += was.host not in kept
    return len(wanted.instances) - came == sum([len(now.by_host[host]) for host in kept])


def _remove_host(packing: Packing, host: str, now: Deployment) -> None:
    """Remove a host from the plan and place its instances elsewhere."""
    for instance in list(packing.hosts[host].values()):
        home = now.home.get(instance.id)
        size = packing.size(instance)
        if home in packing.hosts and home != host and packing.fits(size, home):
            packing.move(instance.id, home)
    for name in packing.place(list(packing.hosts[host]), avoid={host}):
        operator = packing.hosts[host][name].operator
        if len(packing.instances_of(operator)) > 1:
            packing.stop(name)
            why = f"there is no room for {name} without {host}"
            packing.unmet.append(Unmet(operator, 1, why))
        else:
            packing.move(name, _crowded_home(packing, name, host))
    packing.release(host)


def _crowded_home(packing: Packing, name: str, host: str) -> str:
    """The host for the last instance of an operator when no host has room.

    This is the host with the most room on which operators with several instances can stop one. If
    there is none, it is the host with the most room: a crowded host is better than no instance.
    """
    others = sorted((h for h in packing.hosts if h != host), key=lambda h: -packing.room(h)[0])
    size = packing.size(packing.hosts[host][name])
    for other in others:
        trial = packing.copy()
        for instance in packing.hosts[other].values():
            if trial.fits(size, other):
                break
            if len(trial.instances_of(instance.operator)) > 1:
                trial.stop(instance.id)
        if trial.fits(size, other):
            for gone in [i for i in packing.hosts[other].values() if i.id not in trial.home]:
                packing.stop(gone.id)
                why = f"{gone.id} makes way for {name}"
                packing.unmet.append(Unmet(gone.operator, 1, why))
            return other
    operator = packing.hosts[host][name].operator
    packing.unmet.append(Unmet(operator, 1, f"{name} is crowded without {host}"))
    return others[0]
