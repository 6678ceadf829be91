"""The autoscaler of a running Structured Streaming application."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from tidegate.codec import from_json, to_json
from tidegate.errors import TidegateError
from tidegate.lifecycle import Service, within
from tidegate.logs import log_fields
from tidegate.loop.billing import Bill
from tidegate.loop.clock import ClockWatch
from tidegate.loop.controller import DECISION_S, Controller
from tidegate.loop.journal import Journal, Turn
from tidegate.loop.records import open_records
from tidegate.loop.stack import StackOptions, build_stack, with_share, wrapped
from tidegate.model import HostOffer, SloByQuery
from tidegate.model.topology import Topology
from tidegate.policies import DEFAULT_POLICY
from tidegate.policies.base import Policy, Situation
from tidegate.spark.autoscaler.executors import MakeManager, WorkerHosts, executor_manager
from tidegate.spark.autoscaler.gateway import Gateway
from tidegate.spark.autoscaler.in_process import InProcessGateway
from tidegate.spark.autoscaler.meter import SourceCount
from tidegate.spark.autoscaler.world import SloBy, SparkWorld
from tidegate.spark.scalability.cluster_checks import local_master
from tidegate.spark.streams.live_settings import LiveSettings
from tidegate.units import duration_s, finite, show_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.spark.local.cluster import LocalCluster

__all__ = ["STOP_S", "Autoscaler", "DryRunAccount"]

EXPECTED_STARTUP_S = 15.0
"""Start-up time of an executor until the first one was measured, in seconds.

Without it, the first scale-out would be planned as if executors were there at once.
"""

log = logging.getLogger(__name__)

FAILURES_UNTIL_WATCHING = 3
SUCCESSOR_S = 10.0
"""An application that follows in the same process is reported after this time, in seconds."""
STOP_S = 5.0
"""Longest time for which the end of the application waits for the autoscaler, in seconds."""
DRY_RUN_TURNS = 360
"""Number of turns that a dry run keeps for its simulation."""


@dataclass
class DryRunAccount:
    """Executor-seconds that a dry run observed, and those that its plans would have used.

    A turn counts until the next one. Failed turns are skipped: the plan before them is taken to
    have stayed in force.

    Args:
        actual_s: Executors that ran, in executor-seconds.
        wanted_s: Executors that the policy asked for, in executor-seconds.
        planned_s: Executors that its guards would have allowed, in executor-seconds.
        watched_s: Time from the first turn to the last, in seconds.
        changes: How often the number of executors would have changed.
        offer: The hosts' price and size at the last turn.
        turns: Number of turns that were decided.
    """

    actual_s: float = 0.0
    wanted_s: float = 0.0
    planned_s: float = 0.0
    watched_s: float = 0.0
    changes: int = 0
    offer: HostOffer | None = None
    turns: int = 0
    _kept: deque[bytes] = field(default_factory=lambda: deque(maxlen=DRY_RUN_TURNS))
    """The last snapshots for the simulation, compressed: a twentieth of their size."""
    _last: tuple[float, int, int, int] | None = None
    _bills: tuple[Bill, Bill, Bill] = field(default_factory=lambda: (Bill(), Bill(), Bill()))
    """For the executors that ran, that the policy asked for, and that its guards allowed."""

    def add(self, turn: Turn) -> None:
        """Add a turn of the loop."""
        self._bills[0].add(turn)
        if turn.snapshot is None or turn.plan is None:
            return
        self.turns += 1
        seen = to_json(Turn(turn.number, turn.policy, turn.snapshot), defaults=False)
        self._kept.append(zlib.compress(seen.encode(), level=1))
        now_s = turn.snapshot.time_s
        planned = next(
            (b.before for b in turn.plan.bindings if b.guard == "dry-run"), turn.plan.bounded_target
        )
        if self._last is not None:
            then_s, actual, wanted, before = self._last
            passed_s = max(0.0, now_s - then_s)
            self.watched_s += passed_s
            self.actual_s += actual * passed_s
            self.wanted_s += wanted * passed_s
            self.planned_s += before * passed_s
            self.changes += planned != before
        self.offer = turn.snapshot.offer
        for bill, hosts in zip(self._bills[1:], (turn.plan.raw_target, planned), strict=True):
            bill.resize(turn.snapshot, hosts)
        actual = len(turn.snapshot.requested.hosts)
        self._last = (now_s, actual, turn.plan.raw_target, planned)

    def report(self) -> str:
        """The totals in a few lines of text."""
        if not self.watched_s:
            return "dry run: fewer than two turns were decided, so there is nothing to compare"
        lines = [
            f"dry run of {show_duration(self.watched_s)}, nothing was changed:",
            self._line("actual", self.actual_s, self._bills[0]),
            self._line("wanted by the policy", self.wanted_s, self._bills[1]),
            self._line("after its guards", self.planned_s, self._bills[2])
            + f", in {self.changes} change{'' if self.changes == 1 else 's'}",
        ]
        return "\n".join(lines)

    def estimate(self, policy: Policy, slo_s: float, at_most_s: float = math.inf) -> str:
        """A simulation of the same time with the policy in control, in two lines of text.

        Only the last `DRY_RUN_TURNS` turns are simulated, and of these no more than is possible in
        `at_most_s` seconds; the text then says how much was simulated.

        policy: with its guards, except for the dry run. slo_s: the latency target, in seconds.
        """
        end_s = time.monotonic() + at_most_s
        from tidegate.simulation.calibrate import counterfactual

        kept = [from_json(Turn, zlib.decompress(turn)) for turn in self._kept]
        try:
            would = counterfactual(
                kept, policy, slo_s, "the dry run", go_on=lambda: time.monotonic() < end_s
            )
        except TidegateError as error:
            return f"  too few measurements for a simulation: {error}"
        share = "?" if would.slo_compliance is None else f"{would.slo_compliance:.1%}"
        p95 = "?" if would.latency_p95_s is None else show_duration(would.latency_p95_s)
        mean = would.host_seconds / would.duration_s if would.duration_s else 0.0
        cost = f", {would.resource_cost_usd:.4f} $" if would.resource_cost_usd else ""
        whole = self.turns <= len(kept) and time.monotonic() < end_s
        part = "" if whole else f" {show_duration(would.duration_s)} of it"
        return (
            f"  simulated{part}, in a world calibrated from this run: {mean:.2f} executors on "
            f"average{cost},\n  {share} of the items within {show_duration(slo_s)}, p95 {p95}, "
            f"{would.rescales} rescale{'' if would.rescales == 1 else 's'}"
            + ("" if whole else "\n  (tidegate backtest on the journal simulates all of it)")
        )

    def _line(self, what: str, executor_s: float, bill: Bill) -> str:
        mean = executor_s / self.watched_s
        line = f"  {what:<21}{executor_s:>10.0f} executor-seconds, {mean:.2f} executors on average"
        if self.offer is not None and self.offer.price_per_unit_usd:
            line += f", {bill.cost_usd():.4f} $"
        return line


class Autoscaler(Service):
    """Keeps a latency target by changing the number of executors, while the ``with`` block runs.

    At each turn it reads Spark's measurements of the streaming queries, lets a policy decide and
    changes the executors of the running application. An error in the policy or in Spark never
    stops a query: the autoscaler then only watches, logs a warning, and resumes when it can.

    Args:
        spark: The session, or the gateway to an application elsewhere; Spark's own dynamic
            allocation must be off.
        slo: Latency target from arrival to result: a duration such as ``"5s"`` or in seconds. For
            several queries, a mapping of their names, with ``*`` for all others, such as
            ``{"alerts": "2s", "*": "30s"}``, or the text ``"alerts=2s,30s"``.
        share: Share of the items to keep within the target, such as ``"99%"`` or 0.99; for policies
            that promise one, such as ``tide``. Default: the policy's own.
        policy: Name of a policy (see ``tidegate policies``), or a policy object. Default: ``tide``.
        parameters: Parameters of the policy by name. Default: the policy's defaults.
        guards: Further guards by name, each with its settings. Default: none.
        min_executors: Lower limit that always holds. Default: 1.
        max_executors: Upper limit that always holds. Default: no limit but the cluster's.
        interval: Time between two decisions. Default: 10 s.
        stabilise: An executor is released only after it was not needed for this time. Default:
            60 s.
        when_blind: What to do when measurements are missing: ``"hold"`` (release nothing),
            ``"maximum"``, or a number of executors. Default: hold.
        blind_after: Time for which they must be missing before that. Default: 60 s.
        initial_executors: Executors to ask for at the start, until the first measurements are
            there. Default: those that Spark started with.
        scheduled_minimum: Minimum of executors by the time of day, such as
            ``"weekdays 08:00-18:00: 4, sat 10:00-12:00: 2"``. Default: none.
        time_zone: Time zone of that schedule, such as ``"Europe/Berlin"``. Default: UTC.
        without_guards: Names of default guards to switch off, or ``all``. Default: none.
        journal: File with one line for each turn. An existing file is continued, so a restarted
            driver resumes with what was learnt before. It is rotated at 64 MB and after a day.
            If it cannot be written, or another application writes to it, the journal is
            ``tidegate-2.jsonl`` next to it, or there is none. Default: ``tidegate.jsonl``; None: no
            file.
        dry_run: Decide and write the journal, but change nothing. Default: False.
        price_per_hour: Price of an executor in $ per hour, for policies and reports. Default: 0.
        billing_unit: Time unit in which an executor is paid. Default: 1 h.
        cluster: The embedded cluster, whose workers are then leased and returned. Default: none.
        executors: Makes the executor manager (see `executors.py`). Default: chosen by the scheme
            of ``spark.master``.
        topology: Topology of a running `StreamTopology`, or a function that returns it at each
            turn. Default: every query is an operator.
        live_settings: Live settings of a running `StreamTopology`. Default: none.
        sources: Functions that count the rows of a query's source, by query name, for sources that
            do not report their lag to Spark (files). Default: none.
        slo_by: What the target is about: ``"delay"``, from when a row could be read to the commit
            of its result, or ``"event-age"``, from the row's own time stamp, for queries with a
            watermark. Default: ``"delay"``.
        seed: Random seed for policies that choose at random. Default: 0.
        on_turn: Called with each turn after it has ended. Default: none.
    """

    def __init__(
        self,
        spark: SparkSession | Gateway,
        *,
        slo: str | float | Mapping[str, str | float] | SloByQuery,
        share: str | float | None = None,
        policy: str | Policy = DEFAULT_POLICY,
        parameters: Mapping[str, Any] | None = None,
        guards: Mapping[str, Mapping[str, Any]] | None = None,
        min_executors: int = 1,
        max_executors: int | None = None,
        interval: str | float = "10s",
        stabilise: str | float = "60s",
        when_blind: str | int = "hold",
        blind_after: str | float = "60s",
        initial_executors: int | None = None,
        scheduled_minimum: str = "",
        time_zone: str = "UTC",
        without_guards: Collection[str] = (),
        journal: str | os.PathLike[str] | None = "tidegate.jsonl",
        dry_run: bool = False,
        price_per_hour: float = 0.0,
        billing_unit: str | float = "1h",
        cluster: LocalCluster | None = None,
        executors: MakeManager | None = None,
        topology: Topology | Callable[[], Topology] | None = None,
        live_settings: LiveSettings | None = None,
        sources: Mapping[str, Callable[[], SourceCount]] | None = None,
        slo_by: SloBy = "delay",
        seed: int = 0,
        on_turn: Callable[[Turn], None] | None = None,
    ) -> None:
        self.slo = SloByQuery.read(slo)
        self.slo_s = self.slo.default_s
        """The latency target of queries without a separate one, in seconds."""
        self.interval_s = duration_s(interval, "interval")
        billing_unit_s = duration_s(billing_unit, "billing_unit")
        finite(price_per_hour, "price_per_hour", low=0)
        options = StackOptions(
            with_share(policy, parameters, share),
            guards or {},
            without_guards,
            min_hosts=min_executors,
            max_hosts=max_executors,
            stabilise_s=duration_s(stabilise, "stabilise"),
            when_blind=when_blind,
            blind_after_s=duration_s(blind_after, "blind_after"),
            initial_hosts=initial_executors,
            scheduled_minimum=scheduled_minimum,
            time_zone=time_zone,
        )
        self._acting = build_stack(policy, Situation(self.slo.largest_s), options)
        self.policy = wrapped(self._acting, {"dry-run": {}}) if dry_run else self._acting
        self.gateway: Gateway = (
            spark if isinstance(spark, Gateway) else InProcessGateway(spark, watch_only=dry_run)
        )
        make = executors or executor_manager
        if cluster is not None:
            make = partial(WorkerHosts, cluster=cluster)
        hosts = make(self.gateway, self.gateway.clock)
        if not hosts.scalable and not dry_run:
            raise local_master(self.gateway.setting("spark.master")).error()
        self.offer = HostOffer(
            hosts.capacity(),
            billing_unit_s,
            price_per_hour * billing_unit_s / 3600,
            startup_s=EXPECTED_STARTUP_S,
            max_hosts=max_executors,
        )
        self._stop = threading.Event()
        self.world = SparkWorld(
            self.gateway,
            hosts,
            self.offer,
            style=self.policy.style,
            slo=self.slo,
            interval_s=self.interval_s,
            topology=topology,
            live_settings=live_settings,
            sources=sources,
            slo_by=slo_by,
            dry_run=dry_run,
            closing=self._stop,
            clock=self.gateway.clock,
        )
        self.records = open_records(journal, self.policy)
        self.controller = Controller(
            self.world,
            self.policy,
            self.records.journal,
            self.records.memory,
            seed,
            self.records.controls,
            self.slo_s,
            self.slo.largest_s,
            DECISION_S,
        )
        self.controller.await_files(self.records)
        self.dry_run_account = DryRunAccount() if dry_run else None
        """What the plans of a dry run would have used; None without a dry run."""
        self.on_turn = on_turn
        self.last: Turn | None = None
        self.failures = 0
        self._machine = ClockWatch()
        self._thread = threading.Thread(target=self._run, name="tidegate", daemon=True)

    # --- start and stop -----------------------------------------------------------------------

    def start(self) -> Self:
        """Start the loop in a background thread."""
        try:
            self.world.start()
        except BaseException:
            self.records.close()  # so that another one can be attached
            raise
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop after the current turn, or without its end if it takes longer than `STOP_S` seconds.

        The executors stay as they are.
        """
        self._stop.set()
        if self._thread is threading.current_thread():  # called by on_turn: the turn has ended
            self._close()
        elif not within(STOP_S, self._close, False):
            log.warning(
                "the autoscaler is still busy after %g s; the application ends without it", STOP_S
            )

    def _close(self) -> bool:
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        try:
            self.world.close()
        except Exception as error:  # a session that was stopped before, for example
            log.warning("the autoscaler did not end in order: %s", error)
        self.records.close()
        return True

    def __exit__(self, *error: object) -> None:
        end_s = time.monotonic() + STOP_S
        self.stop()
        if self.dry_run_account is not None:
            log.warning("%s", self.dry_run_report(end_s - time.monotonic()))

    def dry_run_report(self, at_most_s: float = STOP_S) -> str:
        """What a dry run would have used and achieved, as text; empty without a dry run.

        at_most_s: time for the simulation in seconds; what is not simulated by then is left out.
        """
        account = self.dry_run_account
        if account is None:
            return ""
        too_long = "  the simulation took too long: run tidegate backtest on the journal"
        try:
            estimate = within(
                at_most_s,
                lambda: account.estimate(self._acting, self.slo_s, 0.7 * at_most_s),
                too_long,
            )
        except Exception as error:
            estimate = f"  the simulation failed: {error}"
        return f"{account.report()}\n{estimate}"

    @property
    def journal(self) -> Journal | None:
        """The journal, None without one and while a slow disk has not opened it."""
        return self.records.journal

    @property
    def alive(self) -> bool:
        """Whether the loop runs; it ends with the application, or after an error in the loop."""
        return self._thread.is_alive()

    @property
    def watching(self) -> bool:
        """Whether several turns in a row have failed, so that it only watches."""
        return self.failures >= FAILURES_UNTIL_WATCHING

    # --- the loop -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with log_fields(application=self.gateway.application):
                if self._await_queries():
                    self.controller.run(self.interval_s, self._after, wait=self._stop.wait)
                if self.gateway.stopped:
                    self._watch_for_another()
        except Exception:  # the queries continue
            log.exception("the autoscaler has stopped; the application continues as it is")
        finally:
            if not self._stop.is_set():  # nobody reads any more what the listener hears
                try:
                    self.world.close()
                except Exception as error:
                    log.debug("the world did not close: %s", error)

    def _await_queries(self) -> bool:
        """Wait for the first streaming query; False when stopped before."""
        while not self._stop.is_set() and not self.gateway.stopped:
            try:
                if self.gateway.active_queries():
                    return True
            except Exception as error:
                log.debug("no queries yet: %s", error)
            self._stop.wait(min(1.0, self.interval_s))
        return False

    def _watch_for_another(self) -> None:
        """After the end of the application: warn if this process starts another one."""
        log.info("the application has ended")
        while not self._stop.wait(1.0):
            # tidegate submit attaches to it as soon as it is there, and stops this one.
            if self.gateway.succeeded_by_another and not self._stop.wait(SUCCESSOR_S):
                log.warning(
                    "the session was stopped and another one was created, which is not scaled: "
                    "create an Autoscaler for it"
                )
                return

    def _after(self, turn: Turn) -> bool:
        """Record the turn; return whether the loop continues."""
        if news := self._machine.news():
            self.controller.note(news)
        if turn.snapshot is None and turn.error is None:  # no query ran: that is no turn
            return not self._stop.is_set() and self._await_queries()
        self.last = turn
        watched = self.watching
        self.failures = self.failures + 1 if turn.error else 0
        if self.watching and not watched:
            log.warning("%d turns in a row failed: only watching until one succeeds", self.failures)
        elif watched and not self.watching:
            log.warning("resumed: turn %d succeeded", turn.number)
        account = self.dry_run_account
        for hear in (account.add if account is not None else None, self.on_turn):
            try:
                if hear is not None:
                    hear(turn)
            except Exception:
                log.exception("a turn could not be passed on")
        return not self._stop.is_set() and not self.gateway.stopped and self._await_queries()
