"""A fleet as a backend: it asks its hosts for measurements and moves queries as plans require.

`FleetWorld.observe` and `FleetWorld.apply` are all that a controller needs. A manager also calls
`recover` once before the first turn, `reconcile` between turns, so that moves need not wait for the
next plan, and `close` at the end.

Everything runs in the thread of the caller, except the moves. These take seconds, so each one has
its own thread and puts its result into a queue.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tidegate.errors import BackendError, InputError
from tidegate.fleet.fence import MOST_LEASE_S, Fence
from tidegate.fleet.holds import ShunnedHosts, hold_for, shared_fence, stop_or_fence_off
from tidegate.fleet.hosts import (
    BackgroundCall,
    HostProvider,
    HostRefused,
    HostView,
    call_all,
    in_background,
)
from tidegate.fleet.moves import MoveLog, MoveResult, carry_out, copy_to_keep
from tidegate.fleet.queries import ContinuousQuery, topology_of
from tidegate.fleet.registry import SLOW_S, HostEntry, QueryEntry, Usage, measure
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
from tidegate.units import finite, natural

__all__ = ["FleetWorld"]

log = logging.getLogger(__name__)

BACK_OFF_S = 5.0
STEADY_S = 60.0
PAUSED_S = 1.0
"""A wait that ends later than its deadline by more seconds than this was interrupted."""
T = TypeVar("T")


def _find(kind: str, name: str, entries: Mapping[str, T]) -> T:
    if name not in entries:
        known = ", ".join(entries) or "none"
        raise InputError(kind, name, "one of the fleet's", f"known are {known}")
    return entries[name]


class FleetWorld:
    """The backend of a fleet.

    Args:
        provider: The source of hosts.
        folder: Folder for the log of moves, and for checkpoints of queries that name none.
        interval_s: Time between two turns, in seconds.
        silence_s: A host that does not answer for this many seconds is lost, unless it is only
            slow (`HostEntry.patience_s`). None means two intervals.
        moves_at_once: Number of moves that may be under way at a time.
        move_limit_s: Timeout for stopping and for starting a query, in seconds each.
        max_failures: A query that fails this often in a row is parked.
        lease_s: Seconds that a host may run a query without renewing its lease, a day at most. If a
            host can be neither reached nor ended, its queries start elsewhere after this time.
        clock: Unix time in seconds, for snapshots, rates and the log of moves.
        steady_clock: Seconds of a clock that never jumps, for everything that the fleet waits for.
        spawn: Runs work in the background.
        move_log: The log of moves; None means ``moves.jsonl`` in the folder.
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
        lease_s: float = 30.0,
        clock: Callable[[], float] = time.time,
        steady_clock: Callable[[], float] = time.monotonic,
        spawn: Callable[[Callable[[], None]], None] = in_background,
        move_log: MoveLog | None = None,
    ) -> None:
        self.provider = provider
        self.folder = folder
        self.interval_s = interval_s
        self.silence_s = 2 * interval_s if silence_s is None else silence_s
        self.moves_at_once = moves_at_once
        self.move_limit_s = move_limit_s
        self.max_failures = max_failures
        self.lease_s = finite(
            lease_s, "--lease", low=1.0, high=MOST_LEASE_S, remedy="give a few seconds"
        )
        self.clock = clock
        self.steady_clock = steady_clock
        self.spawn = spawn
        self.log = move_log or MoveLog(folder / "moves.jsonl", clock)
        self.hosts: dict[str, HostEntry] = {}
        self.queries: dict[str, QueryEntry] = {}
        self.shunned = ShunnedHosts()
        self.leased_so_far = 0
        self._results: queue.SimpleQueue[MoveResult] = queue.SimpleQueue()
        self._startups_s: list[float] = []
        self._under_way = 0

    # --- the backend protocol -----------------------------------------------------------------

    def observe(self) -> Snapshot:
        """Ask every host and return what is measured; BackendError if no query is to run."""
        self.refresh()
        now_s = self.clock()
        placed = self._to_place()
        if not placed:
            raise BackendError("the fleet has no queries: add one")
        loads = {e.name: e.load for e in placed if e.load is not None}
        points = [p for e in placed if e.host for p in e.meter.latencies(now_s)]
        startups_s = self._startups_s[-5:]
        capacity, most = self.provider.capacity, self.provider.max_hosts
        startup_s = sum(startups_s) / max(1, len(startups_s))
        return Snapshot(
            time_s=now_s,
            topology=topology_of((e.query for e in placed), loads),
            offer=HostOffer(capacity, startup_s=startup_s, max_hosts=most),
            hosts=tuple(
                Host(
                    h.name,
                    capacity,
                    h.status,
                    h.utilisation,
                    memory_share=h.memory_share,
                    network_share=h.network_share,
                    limits=self.provider.limits,
                )
                for h in self.hosts.values()
            ),
            instances=tuple(self._instance(e) for e in placed if e.target in self.hosts),
            operators=tuple(e.reading(now_s) for e in placed),
            latency=latency_of(points),
            interval_s=self.interval_s,
            leased_so_far=self.leased_so_far,
        )

    def apply(self, plan: Plan) -> Outcome:
        """Lease hosts, set the target of every query, and begin the moves that are possible now."""
        before, refused = self.requested, []
        for name in plan.deployment.hosts:
            if name not in self.hosts:
                try:
                    self.lease(name)
                except BackendError as error:
                    refused.append(str(error))
        for instance in plan.deployment.instances:
            entry = self.queries.get(instance.operator)
            if entry is None or entry.parked:
                refused.append(f"start {instance.id}: the fleet has no such query to run")
            elif instance.host in self.hosts:
                entry.target = instance.host
        for name, host in self.hosts.items():
            if name not in plan.deployment.hosts:
                host.leaving = True
        self.reconcile()
        return Outcome(diff(before, self.requested), tuple(refused))

    @property
    def requested(self) -> Deployment:
        """The hosts and placements that were requested and not abandoned."""
        hosts = tuple(name for name, entry in self.hosts.items() if not entry.leaving)
        instances = tuple(
            Instance(f"{name}-1", name, entry.target)
            for name, entry in self.queries.items()
            if entry.target in hosts
        )
        return Deployment(hosts, instances)

    @property
    def idle(self) -> bool:
        """Whether no query is to run, so that there is nothing to observe."""
        return not self._to_place()

    def _to_place(self) -> list[QueryEntry]:
        return [e for e in self.queries.values() if not e.parked and not e.removing]

    def _instance(self, entry: QueryEntry) -> InstanceReading:
        up = entry.host == entry.target and self.hosts[entry.target].host is not None
        id_, place = f"{entry.name}-1", entry.target
        if not up:
            return InstanceReading(id_, entry.name, place, "starting")
        return InstanceReading(id_, entry.name, place, "running", entry.load)

    # --- queries and hosts, as people change them ---------------------------------------------

    def add(self, queries: Iterable[ContinuousQuery]) -> None:
        """Register queries; the next plan places them."""
        for query in queries:
            if query.name in self.queries:
                remedy = "remove it first, or rename one of the two"
                raise InputError("query", query.name, "new to the fleet", remedy)
            checkpoint = query.checkpoint or str(self.folder.resolve() / "checkpoints" / query.name)
            meter = QueryMeter(4 * self.interval_s)
            fence = Fence.of(checkpoint, self.lease_s)
            self.queries[query.name] = QueryEntry(query, checkpoint, fence=fence, meter=meter)

    def remove(self, names: Iterable[str]) -> None:
        """Stop queries and forget them; their checkpoints stay."""
        for entry in [self.query(name) for name in names]:
            entry.removing = True

    def move(self, query: str, host: str) -> None:
        """Request a move of a query to a host."""
        entry = self.query(query)
        if self.host(host).leaving:
            raise InputError("host", host, "one that stays", "it is being drained")
        if entry.parked:
            raise InputError("query", query, "not parked", f"unpark it first; {entry.error}")
        entry.target = host

    def drain(self, host: str) -> int:
        """Request the release of a host; return the number of queries that have to leave it."""
        self.host(host).leaving = True
        return self._queries_on(host)

    def unpark(self, query: str) -> None:
        """Place a parked query again."""
        entry = self.query(query)
        entry.parked, entry.failures, entry.retry_s = False, 0, 0.0

    def query(self, name: str) -> QueryEntry:
        """A registered query; InputError for an unknown one."""
        return _find("query", name, self.queries)

    def host(self, name: str) -> HostEntry:
        """A leased host; InputError for an unknown one."""
        return _find("host", name, self.hosts)

    def status(self) -> dict[str, Any]:
        """Hosts and queries as plain values; shares are of a host's CPU, unknown values None."""
        now_s, steady_s = self.clock(), self.steady_clock()
        pauses = [pause_s for entry in self.queries.values() for pause_s in entry.pauses_s]
        return {
            "time_s": now_s,
            "hosts": [h.describe(steady_s, self._queries_on(h.name)) for h in self.hosts.values()],
            "queries": [entry.describe(now_s, steady_s) for entry in self.queries.values()],
            "moves": len(pauses),
            "mean_pause_s": sum(pauses) / len(pauses) if pauses else None,
        }

    def lease(self, name: str) -> None:
        """Request a host."""
        self.provider.lease(name)
        self.register(name)

    def register(self, name: str) -> HostEntry:
        """Add a host that the provider has leased."""
        number = natural(name.rpartition("-")[2]) or 0
        self.leased_so_far = max(self.leased_so_far + 1, number)
        self.hosts[name] = HostEntry(name, self.steady_clock())
        return self.hosts[name]

    def _queries_on(self, host: str) -> int:
        return sum(entry.host == host for entry in self.queries.values())

    # --- the start and the end of a manager ---------------------------------------------------

    def recover(self) -> None:
        """Take over the hosts that outlived an earlier manager. Add the queries first.

        Of two copies of a query, the one that the log names stays. A copy of an unknown query is
        stopped. Hosts without queries are released. A host that refuses the connection is an
        error, since it would always refuse it. So is a new fleet of which no host answers. A host
        that does not answer and cannot be ended may run any query that was not found elsewhere, so
        these queries are held.
        """
        found = dict(self.provider.survivors())
        limit_s = max(self.silence_s, SLOW_S)  # a host that is abandoned here may run copies
        silent = []
        views = call_all([partial(host.look, limit_s) for host in found.values()], limit_s)
        copies: dict[str, dict[str, str]] = {}
        for (name, host), call in zip(found.items(), views, strict=True):
            if isinstance(call.error, HostRefused):
                raise call.error
            if call.value is None:
                silent.append(str(call.error or f"{host.place}: no answer in {limit_s:g} s"))
                log.warning("%s is left out: %s", name, silent[-1])
                if not self.provider.kill(name) and host.alive:
                    self.shunned.add(host)
                continue
            entry = self.register(name)
            entry.host = host
            entry.up_s = entry.answered_s = self.steady_clock()
            for query, view in call.value.queries.items():
                if view.active:
                    copies.setdefault(query, {})[name] = host.place
        if silent and not self.hosts and not self.log.moves:
            remedy = "start a server, or correct --endpoint"
            raise BackendError(f"no host: {'; '.join(silent)}: {remedy}")
        for query, where in copies.items():
            known = self.queries.get(query)
            kept = copy_to_keep(where, self.log.moves.get(query)) if known is not None else ""
            for name in where:
                if name != kept:
                    self._stop_copy(name, query)
            if known is not None:
                known.host = known.target = kept
                known.since_s = self.steady_clock()
        if self.log.moves:  # a new fleet has no copies anywhere
            for nowhere in [e for e in self.queries.values() if not e.host]:
                self._hold(nowhere, self.shunned)
        for name in [name for name in self.hosts if not self._in_use(name)]:
            del self.hosts[name]
            self.provider.release(name)

    def close(self, leave_queries: bool = False) -> None:
        """Wait for the moves under way, stop the queries between batches, and end the hosts.

        leave_queries: let the queries run on, if their hosts outlive the manager.
        """
        deadline_s = time.monotonic() + 2 * self.move_limit_s
        while any(e.busy for e in self.queries.values()) and time.monotonic() < deadline_s:
            self._take_results()
            time.sleep(0.05)
        if not (leave_queries and self.provider.outlive):
            running = [
                (entry.name, entry.fence, host.host)
                for entry in self.queries.values()
                if (host := self.hosts.get(entry.host)) is not None and host.host is not None
            ]
            stop_or_fence_off(running, self.move_limit_s)
        self.provider.close()
        self.log.close()

    # --- measuring ----------------------------------------------------------------------------

    def refresh(self) -> None:
        """Ask every host for its view; notice lost hosts, failed queries and stale copies."""
        self._take_results()
        self._take_new_hosts()
        up = {name: e for name, e in self.hosts.items() if e.host is not None}
        for name in [name for name, e in up.items() if e.host is not None and not e.host.alive]:
            self._lose(name, "its process has ended")
            del up[name]
        deadline_s = time.monotonic() + self.interval_s
        for entry in up.values():
            if entry.pending is None and entry.host is not None:
                entry.asked_s = self.steady_clock()
                limit_s = max(self.silence_s, SLOW_S)
                entry.pending = BackgroundCall(partial(entry.host.look, limit_s))
        self.shunned.look(self.interval_s)
        calls = [entry.pending for entry in up.values() if entry.pending is not None]
        in_time = all(call.done(deadline_s) for call in calls)
        if not in_time and time.monotonic() > deadline_s + PAUSED_S:
            # This process was paused itself, and the answers wait to be read.
            deadline_s = time.monotonic() + self.interval_s
        for entry in up.values():
            self._take_answer(entry, deadline_s)

    def _take_answer(self, entry: HostEntry, deadline_s: float) -> None:
        """Take in the view of a host, or note that it is missing."""
        call, why = entry.pending, "too slow"
        assert call is not None and entry.host is not None
        if call.done(deadline_s):
            entry.pending = None
            if call.value is not None:
                self._take_view(entry, call.value)
                return
            why = str(call.error)
        now_s = self.steady_clock()
        silent_s = now_s - entry.answered_s
        if not entry.host.alive:
            self._lose(entry.name, "its process has ended")
        elif silent_s >= entry.patience_s(now_s, self.silence_s):
            self._lose(entry.name, f"no answer for {silent_s:.0f} s: {why}")
        else:
            entry.utilisation = entry.memory_share = entry.network_share = None
            log.info("%s gave no answer: %s", entry.name, why)

    def _take_new_hosts(self) -> None:
        """Take in hosts that have come up."""
        for name, entry in list(self.hosts.items()):
            if entry.host is not None:
                continue
            try:
                found = self.provider.host(name)
            except BackendError as error:
                self._lose(name, str(error))
                continue
            if found is not None and found.place in self.shunned:
                # It has not answered since it was abandoned, or still runs copies.
                if self.steady_clock() - entry.leased_s >= max(self.silence_s, SLOW_S):
                    self._lose(name, f"{found.place} still gives no answer")
                continue
            entry.host = found
            if entry.host is not None:
                entry.up_s = entry.answered_s = self.steady_clock()
                self._startups_s.append(entry.up_s - entry.leased_s)

    def _lose(self, name: str, why: str) -> None:
        """Abandon a host; its queries start on other hosts from their checkpoints.

        If the host cannot be ended, its copies lose the checkpoint at once, and the queries are
        held until their leases are over or the host has answered.
        """
        if name not in self.hosts:
            return
        log.warning("%s is lost: %s", name, why)
        host = self.hosts.pop(name).host
        ended = self.provider.kill(name)
        places: list[str] = []
        if not ended and host is not None and host.alive:
            self.shunned.add(host)
            places = [host.place]
        for entry in self.queries.values():
            if entry.host == name:
                entry.host = ""
                self._hold(entry, places)
            if entry.target == name:
                entry.target = entry.host

    def _hold(self, entry: QueryEntry, places: Iterable[str]) -> None:
        """End the epoch of a query that may run on hosts that do not answer; hold it for them."""
        before, now = entry.held, hold_for(entry.fence, places, self.steady_clock)
        entry.held = now
        if now is not None and (before is None or before.reason != now.reason):
            log.warning("%s is held: %s", entry.name, now.describe())

    def _still_held(self, entry: QueryEntry) -> bool:
        if entry.held is None:
            return False
        if entry.held.error is not None:  # its epoch could not be ended, for example: a full disk
            self._hold(entry, entry.held.places & set(self.shunned))
        if entry.held is not None and not entry.held.over(self.shunned):
            return True
        entry.held = None
        log.info("%s is held no longer", entry.name)
        return False

    def _take_view(self, entry: HostEntry, view: HostView) -> None:
        now_s = self.steady_clock()
        passed_s, before = now_s - entry.answered_s, entry.view
        entry.answered_s, entry.view = now_s, view
        used: dict[str, Usage] = {}
        for name, seen in view.queries.items():
            known = self.queries.get(name)
            if known is not None and known.since_s > entry.asked_s:
                continue  # it has come or gone since the host was asked
            if known is None or (known.host != entry.name and not known.busy):
                if seen.active:
                    self._stop_copy(entry.name, name)
            elif known.host == entry.name and seen.active:
                used[name] = known.update(seen)
                if now_s - known.since_s > STEADY_S:
                    known.failures = 0
            elif known.host == entry.name and not known.busy:
                self._failed(known, seen.error or "it was stopped, but not by the fleet")
        for known in self.queries.values():
            here = known.host == entry.name and not known.busy and known.since_s <= entry.asked_s
            if here and known.name not in view.queries:
                self._failed(known, "its host no longer knows it")
        if before is not None and passed_s > 0:
            measure(
                entry,
                before,
                passed_s,
                self.queries,
                used,
                self.provider.capacity,
                self.provider.query_mb,
                self.provider.limits,
            )

    def _failed(self, entry: QueryEntry, error: str) -> None:
        """Handle the failure of a query: restart it with exponential back-off, then park it.

        A query that was just moved and has completed no batch since returns to its old host.
        """
        name, old = entry.name, self.hosts.get(entry.came_from)
        failed_on, entry.host, entry.error, entry.came_from = entry.host, "", error, ""
        if old is not None and old.host is not None and not old.leaving:
            entry.target, entry.retry_s = old.name, 0.0
            log.warning("%s failed on %s, back to %s: %s", name, failed_on, old.name, error)
            return
        entry.failures += 1
        if entry.failures >= self.max_failures:
            entry.parked, entry.target = True, ""
            log.error("%s is parked after %d failures: %s", name, entry.failures, error)
            return
        wait_s = BACK_OFF_S * 2 ** (entry.failures - 1)
        entry.retry_s = self.steady_clock() + wait_s
        log.warning("%s failed and restarts in %g s: %s", name, wait_s, error)

    def _stop_copy(self, host: str, query: str) -> None:
        """Stop a stale copy, so that a query never runs twice."""
        log.warning("%s runs a stale copy of %s, which is stopped", host, query)
        server = self.hosts[host].host
        try:
            if server is not None:
                server.stop(query, self.interval_s)
        except Exception as error:
            log.warning("%s did not stop its stale copy of %s: %s", host, query, error)

    # --- moving -------------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Continue with what was requested: begin moves, and release hosts that are empty."""
        self._take_results()
        self._take_new_hosts()
        for name in [n for n, e in self.queries.items() if e.removing and not e.busy]:
            self._stop_removed(self.queries.pop(name))
        now_s = self.steady_clock()
        for entry in list(self.queries.values()):
            target = self.hosts.get(entry.target)
            if self._under_way >= self.moves_at_once:
                break
            if entry.busy or entry.parked or entry.removing or now_s < entry.retry_s:
                continue
            if self._still_held(entry):
                continue
            if target is not None and target.host is not None and entry.target != entry.host:
                self._begin(entry, target)
                self._take_results()  # `spawn` may have completed the move already
        for name in [n for n, e in self.hosts.items() if e.leaving and not self._in_use(n)]:
            del self.hosts[name]
            log.info("%s is empty and released", name)
            self.spawn(partial(self.provider.release, name))

    def _in_use(self, host: str) -> bool:
        """Whether a query runs or is to run there; during a move, every host is in use."""
        return any(host in (e.host, e.target) or e.busy for e in self.queries.values())

    def _begin(self, entry: QueryEntry, target: HostEntry) -> None:
        origin = self.hosts.get(entry.host)
        server = target.host
        assert server is not None
        old = origin.host if origin is not None else None
        old_at = old.place if old is not None else ""
        try:
            move = self.log.begin(entry.name, entry.host, target.name, old_at, server.place)
        except OSError as error:  # a full disk: nothing has begun, and it is tried again
            entry.error = f"the log of moves cannot be written: {error}"
            entry.retry_s = self.steady_clock() + BACK_OFF_S
            log.warning("%s does not go to %s: %s", entry.name, target.name, entry.error)
            return
        entry.busy = True
        self._under_way += 1
        details = {}
        if entry.state_mb is not None:
            details = {"state_mb": round(entry.state_mb, 3), "state_rows": entry.state_rows}

        def work() -> None:
            limit_s = self.move_limit_s
            try:
                entry.fence = shared_fence(entry.fence, server, limit_s)
            except Exception as error:  # nothing was stopped or started yet
                self._results.put(MoveResult(move, move.origin, None, str(error)))
                return
            try:
                result = carry_out(
                    move,
                    entry.query,
                    entry.checkpoint,
                    old,
                    server,
                    self.log,
                    limit_s,
                    details,
                    fence=entry.fence,
                )
            except Exception as error:
                # The log itself failed (a full disk). `refresh` finds a copy that runs.
                result = MoveResult(move, "", None, f"{type(error).__name__}: {error}")
            self._results.put(result)

        self.spawn(work)

    def _take_results(self) -> None:
        """Take in the results of moves that have ended."""
        while True:
            try:
                result = self._results.get_nowait()
            except queue.Empty:
                return
            self._under_way -= 1
            entry = self.queries.get(result.move.query)
            if result.doubtful:
                self._lose(result.doubtful, "it may run a copy of a query and does not answer")
            if entry is not None:
                self._ended(entry, result)

    def _ended(self, entry: QueryEntry, result: MoveResult) -> None:
        entry.busy = False
        entry.since_s = self.steady_clock()
        entry.host = result.where if result.where in self.hosts else ""
        move = result.move
        if not entry.host:
            self._hold(entry, {move.origin_at, move.host_at} & set(self.shunned))
        if result.error is None:
            entry.error = None
            entry.came_from = move.origin
            if move.origin:
                entry.moves += 1
                entry.pauses_s.append(result.pause_s or 0.0)
            return
        log.warning("%s is not on %s: %s", entry.name, move.host, result.error)
        entry.error = result.error
        if entry.host:
            entry.target = entry.host
            entry.retry_s = self.steady_clock() + BACK_OFF_S
        elif not result.doubtful and {move.origin, move.host} - {""} <= set(self.hosts):
            self._failed(entry, result.error)  # its hosts are well, so the query is at fault

    def _stop_removed(self, entry: QueryEntry) -> None:
        host = self.hosts.get(entry.host)
        if host is not None and host.host is not None:
            try:
                host.host.stop(entry.name, self.move_limit_s)
            except Exception as error:
                message = "%s was removed, but %s did not stop it: %s"
                log.warning(message, entry.name, host.name, error)
        if entry.fence is not None:
            with contextlib.suppress(BackendError):  # the next start of the query ends it, too
                entry.fence.revoke()
