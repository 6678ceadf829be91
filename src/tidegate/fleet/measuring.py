"""From two looks at a host to what it and each of its queries took in between."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tidegate.fleet.hosts import HostView
from tidegate.fleet.registry import HostEntry, Look, QueryEntry, Taken, shares
from tidegate.model.topology import Resources

__all__ = ["SLOW_S", "expected_look", "measure", "patience_s", "recent_looks"]

SLOW_S = 60.0
"""So long a host may give no answer whose process works, or that has just come up."""
NEARLY_S = 1.0
"""Looks are not on the dot: so much less than the window is enough."""
WORKING_CORES = 0.05
"""A process that takes less while it owes an answer does not work on it."""


def measure(
    host: HostEntry,
    before: HostView,
    passed_s: float,
    queries: Mapping[str, QueryEntry],
    taken: Mapping[str, Taken],
    cores: float,
) -> None:
    """Write down what a host and its queries took of late.

    taken: by query, what Spark counted. passed_s: seconds between the looks; cores: of a host.

    A host works in batches: between two of them it would seem idle, and in them full. So what is
    told is the mean over the last looks, as many as a batch of its slowest query is from the next,
    up to a minute. A query that comes or goes takes its past with it (`expected_look`).

    CPU of the queries and what is `unattributed` sum to the host's. A host whose process is on this
    machine tells its own traffic; of another it is what Spark counted of its queries.
    """
    view = host.view
    assert view is not None
    look = Look(
        passed_s,
        _since(before.cpu_s, view.cpu_s),
        _since(before.read_mb, view.read_mb),
        _since(before.written_mb, view.written_mb),
        taken,
    )
    period_s = min(SLOW_S, max((queries[name].period_s for name in taken), default=0.0))
    if host.looks and host.looks[-1].taken.keys() != taken.keys():
        host.looks = expected_look(host, {name: queries[name] for name in taken}, period_s)
    host.looks = recent_looks((*host.looks, look), period_s)
    whole = _total(host.looks)
    passed_s, used_s, every = whole.passed_s, whole.cpu_s, whole.taken
    task_s = {name: took.cpu_s or 0.0 for name, took in every.items()}
    told = used_s is not None or any(took.cpu_s is not None for took in every.values())
    parts = shares(used_s, task_s, {name: took.batch_s for name, took in every.items()})
    whole_s = sum(parts.values()) if used_s is None else used_s
    host.utilisation = whole_s / passed_s / cores if told else None
    host.unattributed = (whole_s - sum(parts.values())) / passed_s / cores
    host.shared = max(0.0, sum(parts.values()) - sum(task_s.values())) / passed_s / cores
    for name, took in every.items():
        entry = queries[name]
        entry.read_mbps = _mbps(took.read_mb, passed_s)
        entry.written_mbps = _mbps(took.written_mb, passed_s)
        if told:
            # A load has no missing parts: what was not measured does not bind its placement.
            network_mbps = (entry.read_mbps or 0.0) + (entry.written_mbps or 0.0)
            entry.load = Resources(parts[name] / passed_s, entry.state_mb or 0.0, network_mbps)
    read_mb, written_mb = whole.read_mb, whole.written_mb
    if view.read_mb is None and view.written_mb is None:
        read_mb = _sum([took.read_mb for took in every.values()])
        written_mb = _sum([took.written_mb for took in every.values()])
    host.read_mbps, host.written_mbps = _mbps(read_mb, passed_s), _mbps(written_mb, passed_s)


def expected_look(
    host: HostEntry, here: Mapping[str, QueryEntry], window_s: float
) -> tuple[Look, ...]:
    """What a host would have taken in each second of a window with the queries that are on it now.

    Without it, what is seen of a host just after a move would depend on whether its batches run at
    that moment. Nothing for queries that were never measured.
    """
    loads = {name: entry.load.cpu_cores for name, entry in here.items() if entry.load is not None}
    if not loads or len(loads) < len(here):
        return ()
    taken = {
        name: Taken(loads[name], _megabytes(entry.read_mbps), _megabytes(entry.written_mbps))
        for name, entry in here.items()
    }
    moved_mb = _megabytes(host.read_mbps), _megabytes(host.written_mbps)
    return (Look(1.0, sum(loads.values()), *moved_mb, taken),) * math.ceil(window_s)


def recent_looks(looks: tuple[Look, ...], window_s: float) -> tuple[Look, ...]:
    """The last looks that cover a window together."""
    covered_s, first = 0.0, len(looks)
    for look in reversed(looks):
        if covered_s > max(0.0, window_s - NEARLY_S):
            break
        covered_s, first = covered_s + look.passed_s, first - 1
    return looks[first:]


def _total(looks: tuple[Look, ...]) -> Look:
    return Look(
        sum(look.passed_s for look in looks),
        _sum([look.cpu_s for look in looks]),
        _sum([look.read_mb for look in looks]),
        _sum([look.written_mb for look in looks]),
        {
            name: Taken(
                _sum([look.taken[name].cpu_s for look in looks]),
                _sum([look.taken[name].read_mb for look in looks]),
                _sum([look.taken[name].written_mb for look in looks]),
                sum(look.taken[name].batch_s for look in looks),
            )
            for name in looks[-1].taken
        },
    )


def patience_s(host: HostEntry, now_s: float, silence_s: float) -> float:
    """How long a host may give no answer before it is lost, in seconds.

    One whose process takes CPU is slow, and is given a minute: on a crowded machine a JVM that
    compiles its first queries answers late. One whose process takes none is hung. Where the process
    cannot be asked, a host that has just come up is given the minute.
    """
    cpu_s = host.host.cpu_s() if host.host is not None else None
    known_s = host.view.cpu_s if host.view is not None else None
    if cpu_s is None or known_s is None:
        fresh = host.view is None or now_s - (host.up_s or now_s) < SLOW_S
        return max(silence_s, SLOW_S) if fresh else silence_s
    works = cpu_s - known_s > WORKING_CORES * (now_s - host.looked_s)
    return max(silence_s, SLOW_S) if works else silence_s


def _since(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else max(0.0, now - before)


def _mbps(megabytes: float | None, passed_s: float) -> float | None:
    return None if megabytes is None else megabytes * 8 / passed_s


def _megabytes(mbps: float | None) -> float | None:
    """Of one second."""
    return None if mbps is None else mbps / 8


def _sum(parts: list[float | None]) -> float | None:
    """The sum of what is known; None when nothing is, or there is nothing."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None
