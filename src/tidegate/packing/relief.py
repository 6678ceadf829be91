"""Relieve overloaded hosts as FUGU does: select by subset sum, place by first fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidegate.model import Host, Unmet
from tidegate.packing import Packing
from tidegate.theory.placement import select_to_move

__all__ = ["Selection", "excess_cores", "relieve"]

Selection = Callable[[Mapping[str, float], float], Sequence[str]]
"""Selects the instances that leave a host, from their loads and the load that must leave."""


def excess_cores(host: Host, target: float) -> float:
    """Cores that must leave a host to bring its utilisation down to the target share."""
    return ((host.utilisation or 0.0) - target) * host.capacity.cpu_cores


def relieve(
    packing: Packing, excess: Mapping[str, float], select: Selection = select_to_move
) -> dict[str, int]:
    """Move operators away from overloaded hosts; return the number moved from each.

    excess: cores to remove from each host; none of these hosts receives anything. The selected
    operators of all hosts are placed together, the largest first. New hosts are leased where the
    others have no room. A host with a single operator is left alone, since the operator would
    overload another host just as well. select: which operators leave.
    """
    if not excess:
        return {}
    marked: list[str] = []
    for host, cores in excess.items():
        loads = {name: packing.sizes[name].cpu_cores for name in packing.hosts[host]}
        chosen = list(select(loads, cores))
        if len(chosen) == len(loads) and chosen:
            chosen.remove(max(chosen, key=lambda name: loads[name]))
        if not chosen and cores > 0:
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
