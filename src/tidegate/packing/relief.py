"""Relieve overloaded hosts as FUGU does: select by subset sum, place by first fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from tidegate.model import Host, Unmet
from tidegate.packing import Packing
from tidegate.theory.placement import select_to_move

__all__ = ["Selection", "excess_of", "relieve"]

Selection = Callable[[Mapping[str, float], float], Sequence[str]]
"""Selects the instances that leave a host, from their loads and the load that must leave."""


def excess_of(host: Host, target: float) -> float:
    """How much of its tightest resource must leave a host to bring it down to the target share.

    In the unit of that resource: cores, megabytes or megabits per second.
    """
    capacity: float = getattr(host.capacity, host.tightest)
    return ((host.pressure or 0.0) - target) * capacity


def relieve(
    packing: Packing, excess: Mapping[str, float], select: Selection = select_to_move
) -> dict[str, int]:
    """Move operators away from overloaded hosts; return the number moved from each.

    excess: how much of its tightest resource to remove from each host, see `excess_of`; none of
    these hosts receives anything. The selected
    operators of all hosts are placed together, the largest first. New hosts are leased where the
    others have no room. A host with a single operator is left alone, since the operator would
    overload another host just as well. select: which operators leave.
    """
    if not excess:
        return {}
    marked: list[str] = []
    for host, amount in excess.items():
        resource = packing.snapshot.host[host].tightest
        load_of, size = attrgetter(resource), packing.size
        loads = {name: load_of(size(one)) for name, one in packing.hosts[host].items()}
        chosen = list(select(loads, amount))
        if len(chosen) == len(loads) and chosen:
            chosen.remove(max(chosen, key=lambda name: loads[name]))
        if not chosen and amount > 0:
            packing.because("stuck", f"{host} has no operator that could move", host)
        marked += chosen
    origin = {name: packing.home[name] for name in marked}
    left = packing.place(marked, avoid=excess, lease=True)
    for name in left:
        instance = packing.hosts[origin.pop(name)][name]
        packing.unmet.append(Unmet(instance.operator, 1, f"{name} found no host with room"))
    moved = dict.fromkeys(excess, 0)
    for host in origin.values():
        moved[host] += 1
    return moved
