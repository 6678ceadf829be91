"""What a manager does first: find out what an earlier one left running, and set that right."""

from __future__ import annotations

import logging
from functools import partial

from tidegate.errors import BackendError
from tidegate.fleet.hosts import HostRefused, together
from tidegate.fleet.measuring import SLOW_S
from tidegate.fleet.moves import keeper
from tidegate.fleet.world import FleetWorld

__all__ = ["recover"]

log = logging.getLogger(__name__)


def recover(world: FleetWorld) -> None:
    """Ask all hosts that outlived an earlier manager what runs on them, and set that right.

    Of two copies of a query the one stays that the log says is true; one that nobody knows any
    more is stopped; hosts without queries are given back. One that refuses us is an error, since it
    would refuse us for ever, and so is a new fleet of which none answers.

    world: with its queries added and no hosts yet.
    """
    found = dict(world.provider.survivors())
    limit_s = max(world.silence_s, SLOW_S)  # one that is given up here may run copies
    silent = []
    looks = together([partial(host.look, limit_s) for host in found.values()], limit_s)
    copies: dict[str, dict[str, str]] = {}
    for (name, host), look in zip(found.items(), looks, strict=True):
        view, error = look or (None, None)
        if isinstance(error, HostRefused):
            raise error
        if view is None:
            silent.append(str(error or f"{host.place} gives no answer in {limit_s:g} s"))
            log.warning("%s is left out: %s", name, silent[-1])
            world.provider.kill(name)
            continue
        world.book(name)
        entry = world.hosts[name]
        entry.host = host
        entry.up_s = entry.looked_s = world.clock()
        for query, seen in view.queries.items():
            if seen.active:
                copies.setdefault(query, {})[name] = host.place
    if silent and not world.hosts and not world.log.intents:
        raise BackendError(f"no host: {'; '.join(silent)}: start a server, or mend --endpoint")
    for query, where in copies.items():
        known = world.queries.get(query)
        kept = keeper(where, world.log.intents.get(query)) if known is not None else ""
        for name in where:
            if name != kept:
                world.stop_stale(name, query)
        if known is not None:
            known.host = known.wanted = kept
            known.since_s = world.clock()
    for name in [name for name in world.hosts if not world.in_use(name)]:
        del world.hosts[name]
        world.provider.release(name)
