"""The autoscaler of a running Structured Streaming application."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tidegate.errors import InputError, SettingError
from tidegate.lifecycle import Service
from tidegate.loop.controller import Controller
from tidegate.loop.controls import ControlFile
from tidegate.loop.journal import Journal, Turn, read_journal
from tidegate.loop.stack import guarded
from tidegate.model import HostOffer
from tidegate.model.topology import Topology
from tidegate.policies import create, policy_class
from tidegate.policies.base import Policy
from tidegate.spark.autoscaler.dry_run import DryRunBooks
from tidegate.spark.autoscaler.executors import MakeManager, WorkerHosts, executor_manager
from tidegate.spark.autoscaler.gateway import Gateway
from tidegate.spark.autoscaler.meter import SourceCount
from tidegate.spark.autoscaler.world import Settable, SparkWorld
from tidegate.theory.microbatch import AIM, SUITED
from tidegate.units import duration_s, finite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.spark.local.cluster import LocalCluster

__all__ = ["Autoscaler", "policy_stack"]

log = logging.getLogger(__name__)

FAILURES_UNTIL_WATCHING = 3


class Autoscaler(Service):
    """Holds a latency target by the number of executors, while the ``with`` block runs.

    Every few seconds it reads what Spark says of the streaming queries, lets a policy decide and
    changes the executors of the running application. A policy or Spark that fails never takes a
    query down: the autoscaler then only watches, says so, and goes on when it can.

    spark: the session; Spark's own dynamic allocation must be off.
    slo: within which an item should be processed, ``"5s"``.
    policy: its name (see ``tidegate policies``) or a policy with guards of its own.
    parameters: settings of the policy by name. guards: more guards by name with their settings.
    min_executors, max_executors: bounds that always hold; no upper one: as many as the cluster has.
    interval: between two decisions. stabilise: an executor goes only after it was superfluous for
    so long.
    journal: file with one line a turn, continued if it exists: a restarted driver goes on with
    what its predecessor had learnt. None: nothing is written or remembered.
    dry_run: decide and journal, touch nothing.
    price_per_hour, billing_unit: of an executor, for policies and reports that count money.
    cluster: the embedded cluster, whose workers are then leased and given back.
    topology, dials: of a running `StreamTopology`. sources: what whoever fills a query's source
    knows, by its name, where Spark's progress does not tell the lag (files). seed: for policies
    that draw lots.
    on_turn: called after each turn with it.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        slo: str | float,
        policy: str | Policy = "drs",
        parameters: Mapping[str, Any] | None = None,
        guards: Mapping[str, Mapping[str, Any]] | None = None,
        min_executors: int = 1,
        max_executors: int | None = None,
        interval: str | float = "10s",
        stabilise: str | float = "60s",
        journal: str | os.PathLike[str] | None = "tidegate.jsonl",
        dry_run: bool = False,
        price_per_hour: float = 0.0,
        billing_unit: str | float = "1h",
        cluster: LocalCluster | None = None,
        executors: MakeManager | None = None,
        topology: Topology | Callable[[], Topology] | None = None,
        dials: Settable | None = None,
        sources: Mapping[str, Callable[[], SourceCount]] | None = None,
        seed: int = 0,
        on_turn: Callable[[Turn], None] | None = None,
    ) -> None:
        self.slo_s = duration_s(slo, "slo")
        self.interval_s = duration_s(interval, "interval")
        billing_unit_s = duration_s(billing_unit, "billing_unit")
        finite(price_per_hour, "price_per_hour", low=0)
        stack: dict[str, Any] = {
            "slo_s": self.slo_s,
            "parameters": parameters,
            "guards": guards,
            "min_executors": min_executors,
            "max_executors": max_executors,
            "stabilise": stabilise,
        }
        self.policy = policy_stack(policy, **stack, dry_run=dry_run)
        self._undry = policy_stack(policy, **stack)
        self.gateway = Gateway(spark, watch_only=dry_run)
        make = executors or executor_manager
        if cluster is not None:
            make = partial(WorkerHosts, cluster=cluster)
        hosts = make(self.gateway, time.time)
        if not hosts.scalable and not dry_run:
            raise SettingError(
                "spark.master",
                self.gateway.setting("spark.master"),
                "a cluster",
                "a local master has no executors to add: use a cluster, or dry_run=True to watch",
            )
        self.offer = HostOffer(
            hosts.capacity(),
            billing_unit_s,
            price_per_hour * billing_unit_s / 3600,
            max_hosts=max_executors,
        )
        self.world = SparkWorld(
            self.gateway,
            hosts,
            self.offer,
            style=self.policy.style,
            slo_s=AIM * self.slo_s,
            interval_s=self.interval_s,
            topology=topology,
            dials=dials,
            sources=sources,
        )
        memory = self._remembered(journal) if journal is not None else None
        self.journal = Journal(journal) if journal is not None else None
        self.controls = ControlFile(journal, self.policy) if journal is not None else None
        self.controller = Controller(
            self.world, self.policy, self.journal, memory, seed, self.controls, self.slo_s
        )
        self.books = DryRunBooks() if dry_run else None
        """What would have been done, in a dry run."""
        self.on_turn = on_turn
        self.last: Turn | None = None
        self.failures = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidegate", daemon=True)

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> Self:
        """Begin; returns at once."""
        self.world.start()
        self._thread.start()
        return self

    def stop(self) -> None:
        """End after the turn under way; the executors stay as they are."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        self.world.close()
        if self.journal is not None:
            self.journal.close()
        if self.controls is not None:
            self.controls.close()

    def __exit__(self, *error: object) -> None:
        self.stop()
        if self.books is not None:
            log.warning("%s", self.account())

    def account(self) -> str:
        """What a dry run would have done, cost and violated, for people; empty without one."""
        if self.books is None:
            return ""
        return f"{self.books.report()}\n{self.books.estimate(self._undry, self.slo_s)}"

    @property
    def watching(self) -> bool:
        """Whether it has failed so often in a row that it only watches."""
        return self.failures >= FAILURES_UNTIL_WATCHING

    # --- the loop -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            if self._await_queries():
                self.controller.run(self.interval_s, self._after, wait=self._stop.wait)
        except Exception:  # the journal's disk is full, say: the query goes on without us
            log.exception("the autoscaler has ended; the application goes on as it is")

    def _await_queries(self) -> bool:
        """Wait for the first streaming query; False when the end comes before it."""
        while not self._stop.is_set() and not self.gateway.stopped:
            try:
                if self.gateway.active_queries():
                    return True
            except Exception as error:
                log.debug("not yet: %s", error)
            self._stop.wait(min(1.0, self.interval_s))
        return False

    def _after(self, turn: Turn) -> bool:
        """Note how the turn went; say whether there is another."""
        self.last = turn
        if self.books is not None:
            self.books.add(turn)
        watched = self.watching
        self.failures = self.failures + 1 if turn.error else 0
        if self.watching and not watched:
            log.warning("%d turns failed: only watching until one succeeds", self.failures)
        elif watched and not self.watching:
            log.warning("resumed: turn %d succeeded", turn.number)
        if self.on_turn is not None:
            try:
                self.on_turn(turn)
            except Exception:
                log.exception("on_turn failed")
        return not self._stop.is_set() and not self.gateway.stopped and self._await_queries()

    # --- settings -----------------------------------------------------------------------------

    def _remembered(self, path: str | os.PathLike[str]) -> Any:
        """What the last turn of the journal left in memory, None when there is none to use."""
        if not Path(path).exists():
            return None
        last = None
        for turn in read_journal(path):
            last = turn
        if last is None or last.memory is None:
            return None
        if last.policy != self.policy.describe():
            log.warning("the journal is of %s: starting without its memory", last.policy)
            return None
        try:
            memory = self.policy.load_memory(last.memory)
        except (InputError, KeyError, TypeError) as error:
            log.warning("the journal's memory cannot be read (%s): starting without", error)
            return None
        log.info("going on after turn %d of %s", last.number, path)
        return memory


def policy_stack(
    policy: str | Policy,
    *,
    slo_s: float,
    parameters: Mapping[str, Any] | None = None,
    guards: Mapping[str, Mapping[str, Any]] | None = None,
    min_executors: int = 1,
    max_executors: int | None = None,
    stabilise: str | float = "60s",
    dry_run: bool = False,
) -> Policy:
    """The policy inside the guards of an autoscaler, each wrong setting an error.

    slo_s: seconds; a policy that takes a latency bound and is given none aims at `AIM` of it. The
    rest as in `Autoscaler`.
    """
    if isinstance(policy, str):
        settings = {**SUITED.get(policy, {}), **(parameters or {})}
        if "t_max_s" in {parameter.name for parameter in policy_class(policy).parameters()}:
            settings.setdefault("t_max_s", AIM * slo_s)
        policy = create(policy, **settings)
    every: dict[str, Mapping[str, Any]] = {
        "trend": {},
        "missing-metrics": {},
        "stabilisation": {"down_s": duration_s(stabilise, "stabilise")},
        "useful-hosts": {},
        "effect": {},
        "bounds": {"min_hosts": min_executors, "max_hosts": max_executors},
    }
    if policy.picks_its_moment:
        del every["stabilisation"]
    every |= guards or {}
    if dry_run:
        every["dry-run"] = {}
    return guarded(policy, every)
