"""The one bill of a run: what its hosts cost, from the turns of its loop.

The summary of a journal, the dashboard, the Prometheus metrics and a dry run all use `Bill`, and
the simulator bills its leases with the same `Lease.units_paid`, so they agree to the cent. The
counter of the metrics never falls: if a host is lost before its planned end, the counter keeps the
larger amount.
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.loop.journal import Turn
from tidegate.model import Lease, Snapshot

__all__ = ["Bill"]


class Bill:
    """Money and time of all leases, added up turn by turn.

    What is billed:

    - Every host that a snapshot shows, whatever its status: a host is billed while it starts, while
      it runs and while it drains. A host whose release was refused stays in the snapshots and is
      billed on.
    - From the start of its lease, or from the first turn of the bill where the lease is older. A
      host that a turn leases is billed from that turn on, unless the next snapshot does not show
      it: then the request had no effect and costs nothing.
    - Until the moment that a snapshot gives as the end of the lease. Journals without these moments
      (version 0.1.0, live runs): until the turn that released the host if the next snapshot no
      longer shows it, otherwise until the first snapshot without it.
    - By started billing unit at the price of the lease. The last unit is billed in full however
      little of it was used; a lease that ends exactly with a unit does not start another.

    A turn lasts until the next one is due, so the bill includes the interval after the last turn.
    A turn without a snapshot changes nothing: the hosts stay billed as they were.

    >>> from tidegate.testing import steady_snapshot
    >>> bill = Bill()
    >>> bill.add(Turn(1, "static", steady_snapshot(hosts=3)))
    >>> bill.cost_usd()
    3.0
    """

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._until_s = 0.0
        self._open: dict[str, Lease] = {}
        self._released_s: dict[str, float] = {}
        """When the last turn released a host that it still saw."""
        self._unseen: set[str] = set()
        """Hosts that the last turn leased and no snapshot has shown yet."""
        self._closed_usd = 0.0
        self._closed_s = 0.0

    def add(self, turn: Turn) -> None:
        """Take in the next turn."""
        now = turn.snapshot
        if now is None:
            return
        began_s = self._from(now)
        ends_s = {end.host: end.time_s for end in now.ended}
        for name in [name for name in self._open if name not in now.host]:
            lease = self._open.pop(name)
            if name in ends_s or name not in self._unseen:
                self._close(lease, ends_s.get(name, self._released_s.get(name, now.time_s)))
        for host in now.hosts:
            if host.id not in self._open or (host.id in self._unseen and host.lease):
                lease = host.lease or now.offer.lease(now.time_s)
                self._open[host.id] = replace(lease, started_s=max(began_s, lease.started_s))
        steps = turn.outcome.steps if turn.outcome is not None else ()
        self._released_s = {step.host: now.time_s for step in steps if step.kind == "release"}
        leased = [step.host for step in steps if step.kind == "lease"]
        self._unseen = {name for name in leased if name not in self._open}
        self._open |= {name: now.offer.lease(now.time_s) for name in self._unseen}

    def resize(self, now: Snapshot, hosts: int) -> None:
        """Bill a number of hosts that nobody leased; when it falls, the newest lease ends first.

        A dry run bills in this way what the policy would have done. Do not mix with `add`.
        """
        self._from(now)
        while len(self._open) > hosts:
            self._close(self._open.popitem()[1], now.time_s)
        while len(self._open) < hosts:
            self._open[f"host-{len(self._open)}"] = now.offer.lease(now.time_s)

    def cost_usd(self, until_s: float | None = None) -> float:
        """Cost of all units started so far, in $.

        until_s: bill up to this moment, at or after the last turn; by default the end of the
        interval after it.
        """
        return self._closed_usd + sum(
            lease.cost_usd(self._end_s(name, until_s)) for name, lease in self._open.items()
        )

    def host_seconds(self, until_s: float | None = None) -> float:
        """Seconds of all leases, not rounded up to units. until_s: as in `cost_usd`."""
        return self._closed_s + sum(
            max(0.0, self._end_s(name, until_s) - lease.started_s)
            for name, lease in self._open.items()
        )

    def _from(self, now: Snapshot) -> float:
        """Move the end of the bill to the end of a turn's interval; return when the bill began."""
        self._until_s = now.time_s + (now.interval_s or 0.0)
        if self._began_s is None:
            self._began_s = now.time_s
        return self._began_s

    def _end_s(self, name: str, until_s: float | None) -> float:
        end_s = self._until_s if until_s is None else until_s
        return min(end_s, self._released_s.get(name, end_s))

    def _close(self, lease: Lease, end_s: float) -> None:
        self._closed_usd += lease.cost_usd(end_s)
        self._closed_s += max(0.0, end_s - lease.started_s)
