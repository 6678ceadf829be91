"""A fleet as a world: hosts are looked at and queries brought to where a plan wants them.

All of it runs in one thread, the manager's, but for the moves themselves: these take seconds, so
each has a thread of its own and leaves its result in a queue.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from tidegate.errors import BackendError, InputError
from tidegate.fleet.hosts import Asked, HostProvider, HostView, beside
from tidegate.fleet.measuring import SLOW_S, measure, patience_s
from tidegate.fleet.moves import Moved, MoveLog, carry
from tidegate.fleet.queries import ContinuousQuery, topology_of
from tidegate.fleet.registry import HostEntry, QueryEntry, Taken
from tidegate.loop.backend import Outcome
from tidegate.model import (
    Deployment,
    Host,
    HostOffer,
    Instance,
    InstanceReading,
    Plan,
    Snapshot,
)
from tidegate.model.steps import diff
from tidegate.spark.autoscaler.meter import QueryMeter, latency_of

__all__ = ["FleetWorld"]

log = logging.getLogger(__name__)

BACK_OFF_S = 5.0
STEADY_S = 60.0


class FleetWorld:
    """The backend of a fleet.

    provider: of hosts. folder: for the log of moves, and for checkpoints of queries without one.
    interval_s: between turns. silence_s: a host that gives no answer for so long is lost (one that
    is only slow later, see `patience_s`), None: two intervals. moves_at_once: moves under way at a
    time; move_limit_s: seconds for each half of one. max_failures: a query that fails so often in a
    row is parked.
    clock: Unix seconds. spawn: how work is done beside the manager.
    """

    def __init__(
        self,
        provider: HostProvider,
        folder: Path,
        *,
        interval_s: float = 5.0,
        silence_s: float | None = None,
        moves_at_once: int = 2,
        move_limit_s: float = 60.0,
        max_failures: int = 3,
        clock: Callable[[], float] = time.time,
        spawn: Callable[[Callable[[], None]], None] = beside,
        move_log: MoveLog | None = None,
    ) -> None:
        self.provider = provider
        self.folder = folder
        self.interval_s = interval_s
        self.silence_s = 2 * interval_s if silence_s is None else silence_s
        self.moves_at_once = moves_at_once
        self.move_limit_s = move_limit_s
        self.max_failures = max_failures
        self.clock = clock
        self.spawn = spawn
        self.log = move_log or MoveLog(folder / "moves.jsonl", clock)
        self.hosts: dict[str, HostEntry] = {}
        self.queries: dict[str, QueryEntry] = {}
        self.leased_so_far = 0
        self.done: queue.SimpleQueue[Moved] = queue.SimpleQueue()
        self.startups_s: list[float] = []
        self._under_way = 0

    # --- queries come and go ------------------------------------------------------------------

    def add(self, queries: Iterable[ContinuousQuery]) -> None:
        """Take queries into the books; the next plan places them."""
        for query in queries:
            if query.name in self.queries:
                remedy = "remove it first, or rename one of the two"
                raise InputError("query", query.name, "new to the fleet", remedy)
            checkpoint = query.checkpoint or str(self.folder.resolve() / "checkpoints" / query.name)
            meter = QueryMeter(4 * self.interval_s)
            self.queries[query.name] = QueryEntry(query, checkpoint, meter=meter)

    def remove(self, name: str) -> None:
        """Stop a query and forget it; its checkpoint stays."""
        self.entry(name).removing = True

    def entry(self, name: str) -> QueryEntry:
        """A query in the books; InputError for one that is not."""
        if name not in self.queries:
            known = ", ".join(self.queries) or "none"
            raise InputError("query", name, "one of the fleet's", f"known are {known}")
        return self.queries[name]

    # --- look: what every turn begins with ----------------------------------------------------

    def look(self) -> None:
        """See which hosts are up and answer, which queries have failed, and what all of it took."""
        self.settle()
        self._welcome()
        up = {name: e for name, e in self.hosts.items() if e.host is not None}
        for name in [name for name, e in up.items() if e.host is not None and not e.host.alive]:
            self.lose(name, "its process has ended")
            del up[name]
        end_s = time.monotonic() + self.interval_s
        for entry in up.values():
            if entry.asked is None and entry.host is not None:
                entry.asked_s = self.clock()
                entry.asked = Asked(partial(entry.host.look, max(self.silence_s, SLOW_S)))
        for name, entry in up.items():
            self._hear(name, entry, end_s)

    def _hear(self, name: str, entry: HostEntry, end_s: float) -> None:
        """Take in a host's answer, or that there is none. end_s: when waiting for it ends."""
        asked, why = entry.asked, "too slow"
        assert asked is not None and entry.host is not None
        if asked.done(end_s):
            entry.asked = None
            if asked.value is not None:
                self._read(entry, asked.value)
                return
            why = str(asked.error)
        silent_s = self.clock() - entry.looked_s
        if not entry.host.alive:
            self.lose(name, "its process has ended")
        elif silent_s >= patience_s(entry, self.clock(), self.silence_s):
            self.lose(name, f"no answer for {silent_s:.0f} s: {why}")
        else:
            entry.utilisation = None
            log.info("%s gave no answer: %s", name, why)

    def _welcome(self) -> None:
        """Hosts that have come up since."""
        for name, entry in list(self.hosts.items()):
            if entry.host is not None:
                continue
            try:
                entry.host = self.provider.host(name)
            except BackendError as error:
                self.lose(name, str(error))
                continue
            if entry.host is not None:
                entry.up_s = entry.looked_s = self.clock()
                self.startups_s.append(entry.up_s - entry.leased_s)

    def lose(self, name: str, why: str) -> None:
        """Give up a host; its queries start elsewhere from their checkpoints."""
        if name not in self.hosts:
            return
        log.warning("%s is lost: %s", name, why)
        del self.hosts[name]
        self.provider.kill(name)
        for entry in self.queries.values():
            if entry.host == name:
                entry.host = ""
            if entry.wanted == name:
                entry.wanted = entry.host

    def _read(self, entry: HostEntry, view: HostView) -> None:
        """Take in what a host told."""
        now_s = self.clock()
        taken_s, before = now_s - entry.looked_s, entry.view
        entry.looked_s, entry.view = now_s, view
        taken: dict[str, Taken] = {}
        for name, seen in view.queries.items():
            known = self.queries.get(name)
            if known is not None and known.since_s > entry.asked_s:
                continue  # it has come or gone since that was seen
            if known is None or (known.host != entry.name and not known.busy):
                if seen.active:
                    self.stop_stale(entry.name, name)
            elif known.host == entry.name and seen.active:
                taken[name] = known.read(seen)
                if now_s - known.since_s > STEADY_S:
                    known.failures = 0
            elif known.host == entry.name and not known.busy:
                self._failed(known, seen.error or "it was stopped, and not by the fleet")
        for known in self.queries.values():
            here = known.host == entry.name and not known.busy and known.since_s <= entry.asked_s
            if here and known.query.name not in view.queries:
                self._failed(known, "its host does not know it any more")
        if before is not None and taken_s > 0:
            cores = self.provider.capacity.cpu_cores
            measure(entry, before, taken_s, self.queries, taken, cores)

    def _failed(self, entry: QueryEntry, error: str) -> None:
        """A query ended by its own fault: wait twice as long each time, then give up.

        One that had just been moved and has not done a batch since goes back where it ran well.
        """
        name, old = entry.query.name, self.hosts.get(entry.came_from)
        failed_on, entry.host, entry.error, entry.came_from = entry.host, "", error, ""
        if old is not None and old.host is not None and not old.leaving:
            entry.wanted, entry.retry_s = old.name, 0.0
            log.warning("%s failed on %s, back to %s: %s", name, failed_on, old.name, error)
            return
        entry.failures += 1
        if entry.failures >= self.max_failures:
            entry.parked, entry.wanted = True, ""
            log.error("%s is parked after %d failures: %s", name, entry.failures, error)
            return
        wait_s = BACK_OFF_S * 2 ** (entry.failures - 1)
        entry.retry_s = self.clock() + wait_s
        log.warning("%s failed and starts again in %g s: %s", name, wait_s, error)

    def stop_stale(self, host: str, query: str) -> None:
        """Stop a copy that should not be: never two of one query."""
        log.warning("%s runs a stale copy of %s, which is stopped", host, query)
        server = self.hosts[host].host
        try:
            if server is not None:
                server.stop(query, self.interval_s)
        except Exception as error:
            log.warning("%s did not stop its stale copy of %s: %s", host, query, error)

    # --- observe and apply --------------------------------------------------------------------

    def observe(self) -> Snapshot:
        """What was seen at the last look."""
        now_s = self.clock()
        placed = [e for e in self.queries.values() if not e.parked and not e.removing]
        if not placed:
            raise BackendError("no query is to run: add one")
        loads = {e.query.name: e.load for e in placed if e.load is not None}
        points = [p for e in placed if e.host for p in e.meter.latencies(now_s)]
        startup_s = sum(self.startups_s[-5:]) / max(1, len(self.startups_s[-5:]))
        capacity, most = self.provider.capacity, self.provider.max_hosts
        return Snapshot(
            time_s=now_s,
            topology=topology_of((e.query for e in placed), loads),
            offer=HostOffer(capacity, startup_s=startup_s, max_hosts=most),
            hosts=tuple(
                Host(h.name, capacity, h.status, h.utilisation) for h in self.hosts.values()
            ),
            instances=tuple(self._instance(e) for e in placed if e.wanted in self.hosts),
            operators=tuple(e.reading(now_s) for e in placed),
            latency=latency_of(points),
            interval_s=self.interval_s,
            leased_so_far=self.leased_so_far,
        )

    def _instance(self, entry: QueryEntry) -> InstanceReading:
        up = entry.host == entry.wanted and self.hosts[entry.wanted].host is not None
        name = entry.query.name
        status, load = ("running", entry.load) if up else ("starting", None)
        return InstanceReading(f"{name}-1", name, entry.wanted, status, load)  # type: ignore[arg-type]

    @property
    def wanted(self) -> Deployment:
        """What was asked for and not given up."""
        hosts = tuple(name for name, entry in self.hosts.items() if not entry.leaving)
        instances = tuple(
            Instance(f"{name}-1", name, entry.wanted)
            for name, entry in self.queries.items()
            if entry.wanted in hosts
        )
        return Deployment(hosts, instances)

    def apply(self, plan: Plan) -> Outcome:
        """Note what is wanted, lease hosts, and begin what can begin at once."""
        before, refused = self.wanted, []
        for name in plan.deployment.hosts:
            if name not in self.hosts:
                try:
                    self.lease(name)
                except BackendError as error:
                    refused.append(str(error))
        for instance in plan.deployment.instances:
            entry = self.queries.get(instance.operator)
            if entry is not None and instance.host in self.hosts and not entry.parked:
                entry.wanted = instance.host
        for name, host in self.hosts.items():
            if name not in plan.deployment.hosts:
                host.leaving = True
        self.reconcile()
        return Outcome(diff(before, self.wanted), tuple(refused))

    def lease(self, name: str) -> None:
        """Ask for a host."""
        self.provider.lease(name)
        self.book(name)

    def book(self, name: str) -> None:
        """Take a host into the books."""
        number = name.rpartition("-")[2]
        self.leased_so_far = max(self.leased_so_far + 1, int(number) if number.isdecimal() else 0)
        self.hosts[name] = HostEntry(name, self.clock())

    # --- bringing about what is wanted --------------------------------------------------------

    def reconcile(self) -> None:
        """Begin the moves that can begin, and let go of hosts that are empty."""
        self.settle()
        self._welcome()
        for name in [n for n, e in self.queries.items() if e.removing and not e.busy]:
            self._finish(self.queries.pop(name))
        now_s = self.clock()
        for entry in list(self.queries.values()):
            target = self.hosts.get(entry.wanted)
            if self._under_way >= self.moves_at_once:
                break
            if entry.busy or entry.parked or entry.removing or now_s < entry.retry_s:
                continue
            if target is not None and target.host is not None and entry.wanted != entry.host:
                self._begin(entry, target)
                self.settle()  # where work is not done beside us but at once
        for name in [n for n, e in self.hosts.items() if e.leaving and not self.in_use(n)]:
            del self.hosts[name]
            log.info("%s is empty and released", name)
            self.spawn(partial(self.provider.release, name))

    def in_use(self, host: str) -> bool:
        """Whether a query runs there or is to; while anything moves, every host is in use."""
        return any(host in (e.host, e.wanted) or e.busy for e in self.queries.values())

    def _begin(self, entry: QueryEntry, target: HostEntry) -> None:
        origin = self.hosts.get(entry.host)
        server = target.host
        assert server is not None
        entry.busy = True
        self._under_way += 1
        old = origin.host if origin is not None else None
        old_at = old.place if old is not None else ""
        name = entry.query.name
        move = self.log.begin(name, entry.host, target.name, old_at, server.place)
        details = {}
        if entry.state_mb is not None:
            details = {"state_mb": round(entry.state_mb, 3), "state_rows": entry.state_rows}

        def work() -> None:
            limit_s = self.move_limit_s
            try:
                moved = carry(
                    move, entry.query, entry.checkpoint, old, server, self.log, limit_s, details
                )
            except Exception as error:
                # The log itself failed (a full disk). If a copy runs, the next look finds it.
                moved = Moved(move, "", None, f"{type(error).__name__}: {error}")
            self.done.put(moved)

        self.spawn(work)

    def settle(self) -> None:
        """Take in the moves that have ended."""
        while True:
            try:
                moved = self.done.get_nowait()
            except queue.Empty:
                return
            self._under_way -= 1
            entry = self.queries.get(moved.move.query)
            if entry is not None:
                self._ended(entry, moved)
            if moved.doubtful:
                self.lose(moved.doubtful, "it may run a copy of a query and does not answer")

    def _ended(self, entry: QueryEntry, moved: Moved) -> None:
        entry.busy = False
        entry.since_s = self.clock()
        entry.host = moved.where if moved.where in self.hosts else ""
        if moved.error is None:
            entry.error = None
            entry.came_from = moved.move.origin
            if moved.move.origin:
                entry.moves += 1
                entry.pauses_s.append(moved.pause_s or 0.0)
            return
        log.warning("%s is not on %s: %s", entry.query.name, moved.move.host, moved.error)
        entry.error = moved.error
        if entry.host:
            entry.wanted = entry.host
            entry.retry_s = self.clock() + BACK_OFF_S
        elif not moved.doubtful and {moved.move.origin, moved.move.host} - {""} <= set(self.hosts):
            self._failed(entry, moved.error)  # its hosts are well, so it is the query itself

    def _finish(self, entry: QueryEntry) -> None:
        """Stop a query that was removed."""
        host = self.hosts.get(entry.host)
        if host is not None and host.host is not None:
            server, name = host.host, entry.query.name
            try:
                server.stop(name, self.move_limit_s)
            except Exception as error:
                log.warning("%s was removed, but %s did not stop it: %s", name, host.name, error)
