"""Executors as hosts, behind one protocol for all cluster managers.

`EXECUTOR_MANAGERS` maps the scheme of ``spark.master`` to the class that requests and releases
executors there. To support another cluster manager, implement `ExecutorManager` and add one entry,
or pass the class to `Autoscaler` as ``executors=``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidegate.errors import BackendError
from tidegate.model import HostStatus
from tidegate.model.topology import Resources
from tidegate.spark.autoscaler.gateway import ExecutorInfo, Gateway
from tidegate.spark.local.cluster import LocalCluster

__all__ = [
    "EXECUTOR_MANAGERS",
    "DriverHost",
    "ExecutorHosts",
    "ExecutorManager",
    "LeasedHost",
    "MakeManager",
    "WorkerHosts",
    "executor_manager",
]

log = logging.getLogger(__name__)

START_LIMIT_S = 300.0
DRAIN_LIMIT_S = 60.0


@dataclass
class LeasedHost:
    """A host that was requested and not yet released.

    leased_s: start of the lease, Unix seconds.
    waiting_s: when the wait for its executor began; later than the lease if an executor has died.
    executor: None until it has registered with the driver.
    draining_s: when the release began, None before that.
    """

    name: str
    leased_s: float
    waiting_s: float
    executor: ExecutorInfo | None = None
    draining_s: float | None = None

    @property
    def status(self) -> HostStatus:
        """The host's stage of life."""
        if self.draining_s is not None:
            return "draining"
        return "starting" if self.executor is None else "running"


class ExecutorManager(Protocol):
    """All that differs between cluster managers: what a host is, and how hosts come and go.

    hosts: the leased hosts by name. leased_so_far: number of leases since the start.
    startups_s: start-up times that were measured, in seconds, the newest last.
    scalable: whether executors can be added and removed.
    """

    hosts: dict[str, LeasedHost]
    leased_so_far: int
    startups_s: list[float]
    scalable: bool

    def capacity(self) -> Resources:
        """Resources of one host."""

    def update(self) -> None:
        """Bring `hosts` in line with the executors that run now."""

    def lease(self, names: Sequence[str]) -> list[str]:
        """Request hosts; return one sentence for each that was refused."""

    def release(self, names: Sequence[str]) -> None:
        """Let hosts finish their running tasks, then remove them."""

    def close(self) -> None:
        """Release what the manager itself holds; executors keep running."""


class ExecutorHosts:
    """The executors of an application on any cluster manager that Spark itself talks to.

    The driver requests a total and decommissions executors by id. A new executor becomes the host
    that has waited longest.

    gateway: the application. clock: returns Unix seconds.
    """

    scalable = True

    def __init__(self, gateway: Gateway, clock: Callable[[], float]) -> None:
        self.gateway = gateway
        self.clock = clock
        self.hosts: dict[str, LeasedHost] = {}
        self.leased_so_far = 0
        self.startups_s: list[float] = []

    def capacity(self) -> Resources:
        """Cores of an executor by Spark's setting, else of one that runs, else one core."""
        cores = self.gateway.setting("spark.executor.cores")
        if not cores:
            running = self._executors()
            cores = str(running[0].cores) if running else "1"
        return Resources(float(cores))

    def update(self) -> None:
        """Match hosts and running executors; abandon hosts that did not start in time."""
        self._match({executor.id: executor for executor in self._executors()})
        now_s = self.clock()
        for host in list(self.hosts.values()):
            if host.status == "starting" and now_s - host.waiting_s > START_LIMIT_S:
                log.warning("%s did not start within %g s; abandoned", host.name, START_LIMIT_S)
                self._forget(host.name)
                self._set_total()

    def lease(self, names: Sequence[str]) -> list[str]:
        """Request one executor for each name; the cluster manager refuses nothing at once."""
        for name in names:
            self._add(name)
        self._set_total()
        return []

    def release(self, names: Sequence[str]) -> None:
        """Decommission the hosts' executors."""
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
        """Do nothing: executors belong to the application."""

    def _executors(self) -> list[ExecutorInfo]:
        return self.gateway.executors()

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
            host = waiting[0] if waiting else self._add(f"host-{self.leased_so_far + 1}")
            self._arrived(host, executor)

    def _arrived(self, host: LeasedHost, executor: ExecutorInfo) -> None:
        if host.waiting_s < executor.added_s:
            self.startups_s.append(executor.added_s - host.waiting_s)
        host.leased_s = min(host.leased_s, executor.added_s)
        host.executor = executor

    def _add(self, name: str) -> LeasedHost:
        self.leased_so_far += 1
        now_s = self.clock()
        self.hosts[name] = host = LeasedHost(name, now_s, waiting_s=now_s)
        return host

    def _forget(self, name: str) -> None:
        self.hosts.pop(name, None)

    def _set_total(self) -> None:
        staying = [host for host in self.hosts.values() if host.status != "draining"]
        self.gateway.request_total(len(staying))


class DriverHost(ExecutorHosts):
    """The driver of a ``local`` master: one host that runs all tasks and can only be observed."""

    scalable = False

    def lease(self, names: Sequence[str]) -> list[str]:
        """Refuse every host."""
        return [f"{name} is refused: a local master has no executors to add" for name in names]

    def release(self, names: Sequence[str]) -> None:
        """Do nothing: the driver stays."""

    def _executors(self) -> list[ExecutorInfo]:
        return self.gateway.executors(include_driver=True)


class WorkerHosts(ExecutorHosts):
    """The workers of the embedded cluster, each with one executor.

    cluster: the cluster that starts, drains and stops them.
    """

    def __init__(self, gateway: Gateway, clock: Callable[[], float], cluster: LocalCluster) -> None:
        super().__init__(gateway, clock)
        self.cluster = cluster
        for name in cluster.workers:
            self._add(name)

    def capacity(self) -> Resources:
        """Cores and heap of a worker."""
        return Resources(self.cluster.cores, self.cluster.memory_mb)

    def lease(self, names: Sequence[str]) -> list[str]:
        """Start workers, as long as the machine has room."""
        refused = []
        for name in names:
            try:
                self.cluster.lease(name)
            except BackendError as error:
                refused.append(str(error))
            else:
                self._add(name)
        self._set_total()
        return refused

    def release(self, names: Sequence[str]) -> None:
        """Drain workers: they take no new tasks and stop when the running ones have ended."""
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
            elif host.executor is not None:  # the executor died; the worker starts another
                host.executor, host.waiting_s = None, self.clock()
            if host.draining_s is not None and self.clock() - host.draining_s > DRAIN_LIMIT_S:
                log.warning("%s did not drain within %g s; stopped", host.name, DRAIN_LIMIT_S)
                self._forget(host.name)

    def _forget(self, name: str) -> None:
        self.hosts.pop(name, None)
        self.cluster.give_back(name)


MakeManager = Callable[[Gateway, Callable[[], float]], ExecutorManager]
"""Makes an executor manager from the application and a clock (Unix seconds)."""

EXECUTOR_MANAGERS: dict[str, MakeManager] = {
    "k8s": ExecutorHosts,
    "local": DriverHost,
    "spark": ExecutorHosts,
    "yarn": ExecutorHosts,
}
"""Executor managers by the scheme of ``spark.master``; other schemes use `ExecutorHosts`."""


def executor_manager(gateway: Gateway, clock: Callable[[], float]) -> ExecutorManager:
    """The executor manager for the application's master."""
    return EXECUTOR_MANAGERS.get(gateway.scheme, ExecutorHosts)(gateway, clock)
