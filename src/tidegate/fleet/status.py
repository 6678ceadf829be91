"""What a fleet looks like now, as plain values for people and machines."""

from __future__ import annotations

from typing import Any

from tidegate.fleet.registry import HostEntry, QueryEntry
from tidegate.fleet.world import FleetWorld
from tidegate.loop.journal import Turn

__all__ = ["status_of"]


def status_of(world: FleetWorld, last: Turn | None) -> dict[str, Any]:
    """Hosts and queries with what was last measured of them, and why the last turn did what it did.

    Shares are of a host's CPU; what was not measured is None.
    """
    now_s = world.clock()
    plan = last.plan if last is not None else None
    pauses = [pause_s for entry in world.queries.values() for pause_s in entry.pauses_s]
    return {
        "time_s": now_s,
        "policy": last.policy if last is not None else None,
        "turn": last.number if last is not None else 0,
        "hosts": [_host(world, entry, now_s) for entry in world.hosts.values()],
        "queries": [_query(entry, now_s) for entry in world.queries.values()],
        "moves": len(pauses),
        "mean_pause_s": sum(pauses) / len(pauses) if pauses else None,
        "reasons": [reason.text for reason in plan.reasons] if plan is not None else [],
        "error": last.error if last is not None else None,
    }


def _host(world: FleetWorld, entry: HostEntry, now_s: float) -> dict[str, Any]:
    return {
        "host": entry.name,
        "status": entry.status,
        "utilisation": entry.utilisation,
        "unattributed": entry.unattributed,
        "shared": entry.shared,
        "read_mbps": entry.read_mbps,
        "written_mbps": entry.written_mbps,
        "memory_mb": entry.view.memory_mb if entry.view is not None else None,
        "queries": sum(q.host == entry.name for q in world.queries.values()),
        "endpoint": getattr(entry.host, "endpoint", "").partition("/;")[0],
        "pid": getattr(entry.host, "pid", None),
        "age_s": now_s - entry.leased_s,
    }


def _query(entry: QueryEntry, now_s: float) -> dict[str, Any]:
    load = entry.load if entry.host else None
    return {
        "query": entry.query.name,
        "status": entry.status(now_s),
        "host": entry.host,
        "wanted": entry.wanted,
        "cpu_cores": load.cpu_cores if load is not None else None,
        "read_mbps": entry.read_mbps if entry.host else None,
        "written_mbps": entry.written_mbps if entry.host else None,
        "rows_per_s": entry.reading(now_s).processed_per_s,
        "batch": entry.batch,
        "state_mb": entry.state_mb,
        "state_rows": entry.state_rows,
        "moves": entry.moves,
        "last_pause_s": entry.pauses_s[-1] if entry.pauses_s else None,
        "failures": entry.failures,
        "error": entry.error,
    }
