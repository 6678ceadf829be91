"""Which executor is which host: what was asked for, what has come, and what is on its way out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate.errors import BackendError
from tidegate.model import HostStatus
from tidegate.spark.autoscaler.gateway import ExecutorInfo, Gateway
from tidegate.spark.local.cluster import LocalCluster

__all__ = ["ExecutorHosts", "LeasedHost", "WorkerHosts"]

log = logging.getLogger(__name__)

START_LIMIT_S = 300.0
DRAIN_LIMIT_S = 60.0


@dataclass
class LeasedHost:
    """A host in the books. leased_s: since when; executor: None while it is still to come.

    waiting_s: since when its executor is awaited: later than the lease if one has died on it.
    """

    name: str
    leased_s: float
    waiting_s: float
    executor: ExecutorInfo | None = None
    draining_s: float | None = None

    @property
    def status(self) -> HostStatus:
        """Where in its life it is."""
        if self.draining_s is not None:
            return "draining"
        return "starting" if self.executor is None else "running"


class ExecutorHosts:
    """Executors of any cluster manager as hosts; a new executor is the host that was asked for.

    gateway: the application; clock: Unix seconds.
    """

    def __init__(self, gateway: Gateway, clock: Callable[[], float]) -> None:
        self.gateway = gateway
        self.clock = clock
        self.hosts: dict[str, LeasedHost] = {}
        self.leased_so_far = 0
        self.startups_s: list[float] = []
        """How long the hosts that have come so far took to start, in seconds."""

    def update(self) -> None:
        """Compare the books with the executors that are up."""
        executors = {e.id: e for e in self.gateway.executors()}
        self._match(executors)
        now_s = self.clock()
        for host in list(self.hosts.values()):
            if host.status == "starting" and now_s - host.waiting_s > START_LIMIT_S:
                log.warning("%s did not come in %g s and is given up", host.name, START_LIMIT_S)
                self._forget(host.name)
                self._set_total()

    def lease(self, names: Sequence[str]) -> list[str]:
        """Ask for hosts; return why some are refused, a sentence each."""
        for name in names:
            self._book(name)
        self._set_total()
        return []

    def release(self, names: Sequence[str]) -> None:
        """Let hosts finish what they do and go."""
        known = [self.hosts[name] for name in names if name in self.hosts]
        for host in known:
            host.draining_s = self.clock()
        here = [host.executor.id for host in known if host.executor is not None]
        self.gateway.decommission(here, "Tidegate releases it")
        for host in known:
            if host.executor is None:
                self._forget(host.name)
        self._set_total()

    def close(self) -> None:
        """Nothing to do: executors belong to the application."""

    # --- inside -------------------------------------------------------------------------------

    def _match(self, executors: dict[str, ExecutorInfo]) -> None:
        for host in list(self.hosts.values()):
            if host.executor is not None:
                seen = executors.pop(host.executor.id, None)
                if seen is None:
                    self._forget(host.name)
                else:
                    host.executor = seen
        for executor in executors.values():
            waiting = [h for h in self.hosts.values() if h.status == "starting"]
            host = waiting[0] if waiting else self._book(f"host-{self.leased_so_far + 1}")
            self._arrived(host, executor)

    def _arrived(self, host: LeasedHost, executor: ExecutorInfo) -> None:
        if host.waiting_s < executor.added_s:
            self.startups_s.append(executor.added_s - host.waiting_s)
        host.leased_s = min(host.leased_s, executor.added_s)
        host.executor = executor

    def _book(self, name: str) -> LeasedHost:
        self.leased_so_far += 1
        now_s = self.clock()
        self.hosts[name] = host = LeasedHost(name, now_s, waiting_s=now_s)
        return host

    def _forget(self, name: str) -> None:
        self.hosts.pop(name, None)

    def _set_total(self) -> None:
        staying = [host for host in self.hosts.values() if host.status != "draining"]
        self.gateway.request_total(len(staying))


class WorkerHosts(ExecutorHosts):
    """Workers of the embedded cluster as hosts: leased, drained, given back.

    cluster: where they run.
    """

    def __init__(self, gateway: Gateway, clock: Callable[[], float], cluster: LocalCluster) -> None:
        super().__init__(gateway, clock)
        self.cluster = cluster
        for name in cluster.workers:
            self._book(name)

    def lease(self, names: Sequence[str]) -> list[str]:
        """Start workers, as far as the machine carries them."""
        refused = []
        for name in names:
            try:
                self.cluster.lease(name)
            except BackendError as error:
                refused.append(str(error))
            else:
                self._book(name)
        self._set_total()
        return refused

    def release(self, names: Sequence[str]) -> None:
        """Decommission workers: no new work, the running tasks end, then they stop."""
        for name in names:
            host = self.hosts.get(name)
            if host is None:
                continue
            host.draining_s = self.clock()
            if host.executor is None:
                self._forget(name)
            else:
                self.cluster.drain(name)
        self._set_total()

    def _match(self, executors: dict[str, ExecutorInfo]) -> None:
        for name in self.cluster.lost():
            self.hosts.pop(name, None)
        for host in list(self.hosts.values()):
            ids = self.cluster.executors_on(host.name, self.gateway.application)
            here = [executors[e] for e in ids if e in executors]
            if here:
                if host.executor is None:
                    self._arrived(host, here[-1])
                host.executor = here[-1]
            elif host.draining_s is not None:
                self._forget(host.name)
            elif host.executor is not None:  # it died, and the worker starts another
                host.executor, host.waiting_s = None, self.clock()
            if host.draining_s is not None and self.clock() - host.draining_s > DRAIN_LIMIT_S:
                log.warning("%s was not empty after %g s and is ended", host.name, DRAIN_LIMIT_S)
                self._forget(host.name)

    def _forget(self, name: str) -> None:
        self.hosts.pop(name, None)
        self.cluster.give_back(name)
