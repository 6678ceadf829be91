"""Executors as hosts, behind one protocol for all cluster managers.

`EXECUTOR_MANAGERS` maps the scheme of ``spark.master`` to the class that requests and releases
executors there. To support another cluster manager, implement `ExecutorManager` and add one entry,
or pass the class to `Autoscaler` as ``executors=``.

Requests and releases are checked. The total is requested first, then executors are released without
changing it, and the total is requested again at every turn: a lost executor or a restarted
application master of YARN must not leave the application with fewer executors than were planned.
What is refused or fails is undone, reported in a sentence, and planned again at the next turn.
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
from tidegate.spark.autoscaler.holdings import least_first
from tidegate.spark.autoscaler.pods import DENIED, pending_reasons, without_pods
from tidegate.spark.local.cluster import LocalCluster

__all__ = [
    "EXECUTOR_MANAGERS",
    "DriverHost",
    "ExecutorHosts",
    "ExecutorManager",
    "KubernetesHosts",
    "LeasedHost",
    "MakeManager",
    "WorkerHosts",
    "YarnHosts",
    "executor_manager",
]

log = logging.getLogger(__name__)

START_LIMIT_S = 300.0
"""A host that has not started after this time is abandoned, in seconds, except on YARN."""
DRAIN_LIMIT_S = 60.0
"""A released executor without tasks is killed after this time, in seconds."""
SLOW_START_S = 20.0
"""A host that has not started after this time is mentioned, in seconds; a pod is looked up."""
FAILURES, UNLIMITED = "spark.executor.maxNumFailures", "2147483647"
"""How many executors may fail until Spark 4 ends the application, and Spark's largest number."""
BUSY_DRAIN_LIMIT_S = 300.0
"""A released executor is killed after this time even if its tasks still run, in seconds."""


@dataclass
class LeasedHost:
    """A host that was requested and not yet released.

    leased_s: start of the lease, Unix seconds.
    waiting_s: when the wait for its executor began; later than the lease if an executor has died.
    executor: None until it has registered with the driver.
    draining_s: when the release began, None before that.
    taken: somebody else decommissioned its executor, for example a node that is shut down.
    """

    name: str
    leased_s: float
    waiting_s: float
    executor: ExecutorInfo | None = None
    draining_s: float | None = None
    taken: bool = False

    @property
    def status(self) -> HostStatus:
        """The host's stage of life; an executor that Spark has excluded counts as draining."""
        if self.draining_s is not None:
            return "draining"
        if self.executor is None:
            return "starting"
        return "draining" if self.executor.excluded else "running"

    @property
    def excluded(self) -> bool:
        """Whether Spark gives its executor no tasks for a while, because tasks failed there."""
        return self.draining_s is None and self.executor is not None and self.executor.excluded

    @property
    def described(self) -> str:
        """Its name for a log, with the names of its executor."""
        return f"{self.name} ({self.executor.described})" if self.executor else self.name


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

    def choose(self, names: Sequence[str]) -> None:
        """Prepare a release, if executors are interchangeable: hosts get those that hold least.

        It may take a second, so it is called before the wait for a pause between batches.
        """

    def release(self, names: Sequence[str]) -> list[str]:
        """Let hosts finish their tasks, then remove them; return a sentence for each that stays."""

    def waiting(self) -> list[str]:
        """Why hosts that were requested have no executor yet, in sentences, as far as is known."""

    def close(self) -> None:
        """Release what the manager itself holds; executors keep running."""


class ExecutorHosts:
    """The executors of an application on any cluster manager that Spark itself talks to.

    The driver requests a total and decommissions executors by id. A new executor becomes the host
    that has waited longest. Executors are interchangeable: a release takes those that hold the
    least state and shuffle data, and the host that was to be released takes over their executor.

    From the first request on, the total is requested again at every turn, and a lost executor is
    added as a new host that starts. Before that, as in a dry run, nothing is requested.

    gateway: the application. clock: returns Unix seconds.
    """

    scalable = True
    interchangeable = True
    start_limit_s: float | None = START_LIMIT_S
    """A host that has not started after this time is abandoned, in seconds; None: never."""
    counts_draining = True
    """Whether the cluster manager counts an executor that drains as one that runs. Standalone, YARN
    and Kubernetes do, so one that is requested meanwhile starts when the drain ends."""

    def __init__(self, gateway: Gateway, clock: Callable[[], float]) -> None:
        self.gateway = gateway
        self.clock = clock
        self.hosts: dict[str, LeasedHost] = {}
        self.leased_so_far = 0
        self.startups_s: list[float] = []
        self._in_charge = False
        self._unheard = ""

    def capacity(self) -> Resources:
        """Slots of an executor by Spark's settings, else of one that runs, else one."""
        cores = self.gateway.setting("spark.executor.cores")
        if cores.isdecimal():
            return Resources(self._slots(int(cores)))
        running = self._executors()
        return Resources(float(running[0].cores) if running else 1.0)

    def _slots(self, cores: int) -> float:
        each = self.gateway.setting("spark.task.cpus", "1")
        return float(max(1, cores // max(1, int(each) if each.isdecimal() else 1)))

    def update(self) -> None:
        """Match hosts and executors; end what takes too long; request the total again."""
        self._match({executor.id: executor for executor in self._executors()})
        now_s = self.clock()
        self._await_drains(now_s)
        for host in list(self.hosts.values()):
            if host.status == "starting" and self._waited_too_long(host, now_s):
                log.warning("%s did not start within %g s; abandoned", host.name, START_LIMIT_S)
                self._forget(host.name)
            elif self._drained_too_long(host, now_s):
                self._end(host)
        if self._in_charge:
            self._say(self._request())

    def lease(self, names: Sequence[str]) -> list[str]:
        """Request one executor for each name; nothing is added unless it is acknowledged."""
        problem = self._request(more=len(names))
        if problem:
            return [f"{name} is refused: {problem}" for name in names]
        for name in names:
            self._add(name)
        return []

    def choose(self, names: Sequence[str]) -> None:
        """Exchange executors so that the hosts to release have those that hold least."""
        running = [host for host in self.hosts.values() if host.status == "running"]
        going = [host for host in running if host.name in names]
        if not self.interchangeable or not going or len(going) == len(running):
            return
        rest = [host for host in running if host not in going]
        executors = [host.executor for host in (*going, *rest) if host.executor is not None]
        ranked = least_first(executors, self.gateway.state_partitions())
        least = {executor.id for executor in ranked[: len(going)]}
        keep = [h for h in going if h.executor is not None and h.executor.id not in least]
        give = [h for h in rest if h.executor is not None and h.executor.id in least]
        for one, other in zip(keep, give, strict=True):
            one.executor, other.executor = other.executor, one.executor

    def release(self, names: Sequence[str]) -> list[str]:
        """Lower the total, then let the executors finish their tasks and leave."""
        known = [self.hosts[n] for n in names if n in self.hosts]
        known = [host for host in known if host.draining_s is None]
        if not known:
            return []
        for host in known:
            host.draining_s = self.clock()
        problem = self._request()
        leaving, problems = ([], {}) if problem else self._dismiss([h for h in known if h.executor])
        refused = []
        for host in known:
            if problem or (host.executor is not None and host.name not in leaving):
                why = problem or problems.get(host.name, "the cluster manager did not acknowledge")
                refused.append(f"{host.name} is not released: {why}")
                host.draining_s = None
            elif host.executor is None:
                self._forget(host.name)
        if refused:
            self._say(self._request())  # the total of those that stay
        return refused

    def waiting(self) -> list[str]:
        """Nothing: other cluster managers than Kubernetes do not say it."""
        return []

    def close(self) -> None:
        """Do nothing: executors belong to the application."""

    # --- requests -----------------------------------------------------------------------------

    def _total(self, more: int = 0) -> int:
        """The total to request. more: hosts to request beyond those that are leased.

        Executors that drain are never added to start others sooner: as soon as one is gone, the
        cluster manager would fill the gap with an executor that nobody planned.
        """
        staying = sum(h.status != "draining" or h.excluded for h in self.hosts.values())
        return staying + more

    def _await_drains(self, now_s: float) -> None:
        """Restart the wait for the youngest hosts while executors drain in their place.

        Otherwise the wait would count as start-up time, and a long one as a failed start.
        """
        draining = sum(host.draining_s is not None for host in self.hosts.values())
        starting = [host for host in self.hosts.values() if host.status == "starting"]
        if self.counts_draining and draining:
            for host in starting[-draining:]:
                host.waiting_s = now_s

    def _request(self, more: int = 0) -> str:
        """Request the total; return why that failed, empty when it was acknowledged."""
        total = self._total(more)
        self._in_charge = True
        try:
            heard = self.gateway.request_total(total)
        except BackendError as error:
            return str(error)
        return "" if heard else f"the cluster manager did not acknowledge a total of {total}"

    def _say(self, problem: str) -> None:
        """Log a request that failed, once until another one succeeds."""
        if problem and not self._unheard and not self.gateway.stopped:
            log.warning("%s; it is requested again at each turn", problem)
        self._unheard = problem

    def _dismiss(self, hosts: Sequence[LeasedHost]) -> tuple[list[str], dict[str, str]]:
        """Decommission executors; return the hosts that leave, and why others do not."""
        ids = {host.executor.id: host.name for host in hosts if host.executor is not None}
        try:
            leaving = self.gateway.decommission(list(ids), "Tidegate releases it")
        except BackendError as error:
            return [], dict.fromkeys(ids.values(), str(error))
        return [ids[executor] for executor in leaving if executor in ids], {}

    def _waited_too_long(self, host: LeasedHost, now_s: float) -> bool:
        limit_s = self.start_limit_s
        return limit_s is not None and now_s - host.waiting_s > limit_s

    def _slow_starts(self) -> list[LeasedHost]:
        """Hosts that were requested and have no executor after `SLOW_START_S` seconds."""
        now_s = self.clock()
        starting = [host for host in self.hosts.values() if host.status == "starting"]
        return [host for host in starting if now_s - host.waiting_s > SLOW_START_S]

    def _drained_too_long(self, host: LeasedHost, now_s: float) -> bool:
        if host.draining_s is None or host.taken:
            return False
        at_work = host.executor is not None and host.executor.tasks > 0
        limit_s = BUSY_DRAIN_LIMIT_S if at_work else DRAIN_LIMIT_S
        return now_s - host.draining_s > limit_s

    def _end(self, host: LeasedHost) -> None:
        """Kill an executor that does not leave; if it is still there, again after the limit."""
        if host.executor is None:
            return
        host.draining_s = self.clock()  # Spark needs a moment, and refuses to kill it twice
        try:
            killed = self.gateway.kill([host.executor.id])
        except BackendError as error:
            log.warning("%s; it is tried again", error)
        else:
            what = "it is killed" if killed else "it could not be killed, which is tried again"
            log.warning("%s did not drain within its time limit; %s", host.described, what)

    # --- hosts --------------------------------------------------------------------------------

    def _executors(self) -> list[ExecutorInfo]:
        return self.gateway.executors()

    def _match(self, executors: dict[str, ExecutorInfo]) -> None:
        for host in list(self.hosts.values()):
            if host.executor is not None:
                seen = executors.pop(host.executor.id, None)
                if seen is None:
                    self._forget(host.name)
                    self._replace(host)
                else:
                    host.executor = seen
                    self._notice(host)
        for executor in executors.values():
            waiting = [h for h in self.hosts.values() if h.status == "starting"]
            host = waiting[0] if waiting else self._add(f"host-{self.leased_so_far + 1}")
            self._arrived(host, executor)
            self._notice(host)

    def _notice(self, host: LeasedHost) -> None:
        """Count an executor as draining that Spark gives no more tasks, though nobody here said so.

        Somebody else has decommissioned it, or it was lost and Spark waits for the reason.
        """
        if host.executor is not None and host.executor.leaving and host.draining_s is None:
            log.warning(
                "%s gets no more tasks: it was lost, or somebody else decommissions it",
                host.described,
            )
            self._replace(host)
            host.draining_s, host.taken = self.clock(), True

    def _replace(self, host: LeasedHost) -> None:
        """Add a host for the executor that the cluster manager starts for one that was lost."""
        if self._in_charge and host.draining_s is None:
            self._add(f"host-{self.leased_so_far + 1}")

    def _arrived(self, host: LeasedHost, executor: ExecutorInfo) -> None:
        took_s = executor.added_s - host.waiting_s
        if 0 < took_s <= START_LIMIT_S:  # longer: it has waited for room, not started
            self.startups_s.append(took_s)
        host.leased_s = min(host.leased_s, executor.added_s)
        host.executor = executor

    def _add(self, name: str) -> LeasedHost:
        self.leased_so_far += 1
        now_s = self.clock()
        self.hosts[name] = host = LeasedHost(name, now_s, waiting_s=now_s)
        return host

    def _forget(self, name: str) -> None:
        self.hosts.pop(name, None)


class DriverHost(ExecutorHosts):
    """The driver of a ``local`` master: one host that runs all tasks and can only be observed."""

    scalable = False

    def lease(self, names: Sequence[str]) -> list[str]:
        """Refuse every host."""
        return [f"{name} is refused: a local master has no executors to add" for name in names]

    def release(self, names: Sequence[str]) -> list[str]:
        """Refuse every release: the driver stays."""
        return [f"{name} is not released: the driver runs all tasks" for name in names]

    def _executors(self) -> list[ExecutorInfo]:
        return self.gateway.executors(include_driver=True)


class WorkerHosts(ExecutorHosts):
    """The workers of the embedded cluster, each with one executor.

    A worker is a machine, so a release takes the host that the plan names. The master does not
    count a worker that drains.

    cluster: the cluster that starts, drains and stops them.
    """

    interchangeable = False
    counts_draining = False

    def __init__(self, gateway: Gateway, clock: Callable[[], float], cluster: LocalCluster) -> None:
        super().__init__(gateway, clock)
        self.cluster = cluster
        for name in cluster.workers:
            self._add(name)

    def capacity(self) -> Resources:
        """Slots and heap of a worker."""
        return Resources(self._slots(self.cluster.cores), self.cluster.memory_mb)

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
        leased = [name for name in names if name in self.hosts]
        problem = self._request()
        if problem:
            for name in leased:
                self._forget(name)
            refused += [f"{name} is refused: {problem}" for name in leased]
        return refused

    def _dismiss(self, hosts: Sequence[LeasedHost]) -> tuple[list[str], dict[str, str]]:
        """Drain workers: they take no new tasks and stop when the running ones have ended."""
        leaving, problems = [], {}
        for host in hosts:
            try:
                self.cluster.drain(host.name)
            except (BackendError, OSError) as error:
                problems[host.name] = str(error)
            else:
                leaving.append(host.name)
        return leaving, problems

    def _replace(self, host: LeasedHost) -> None:
        """Add nothing: the policy sees that a machine is lost, and leases another."""

    def _end(self, host: LeasedHost) -> None:
        log.warning("%s did not drain within its time limit; stopped", host.described)
        self._forget(host.name)

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
                self._notice(host)
            elif host.draining_s is not None:
                self._forget(host.name)
            elif host.executor is not None:  # the executor died; the worker starts another
                host.executor, host.waiting_s = None, self.clock()

    def _forget(self, name: str) -> None:
        self.hosts.pop(name, None)
        self.cluster.give_back(name)


class KubernetesHosts(ExecutorHosts):
    """The executor pods of an application on Kubernetes.

    Spark acknowledges every request there and creates the pods later. A request that the API server
    would deny is therefore refused before it is made: Spark would repeat it every second, and count
    each time as a failed executor. Hosts that have waited for `SLOW_START_S` seconds are looked up.
    None is abandoned: a pending pod that is removed loses its place, and a new one waits as long.
    """

    start_limit_s = None

    def __init__(self, gateway: Gateway, clock: Callable[[], float]) -> None:
        super().__init__(gateway, clock)
        self._said: list[str] = []
        if not gateway.setting(FAILURES) and not gateway.version.startswith("3."):
            log.warning(
                "%s is not set: after a few executors that were evicted or could not be created, "
                "Spark ends the application; set it to %s",
                FAILURES,
                UNLIMITED,
            )

    def lease(self, names: Sequence[str]) -> list[str]:
        """Request one executor for each name, if the account of the driver may create pods."""
        if self.gateway.may_create_pods() is False:
            self._note([self._denied])
            return [f"{name} is refused: {self._denied}" for name in names]
        self._said = [sentence for sentence in self._said if sentence != self._denied]
        return super().lease(names)

    def waiting(self) -> list[str]:
        """Why pods are not created, or stay pending."""
        slow = self._slow_starts()
        if not slow and self._denied in self._said:
            return []  # the refusal says it already
        return self._note(self._reasons() if slow else [])

    def _note(self, found: list[str]) -> list[str]:
        """Log sentences that were not true at the last turn."""
        for sentence in found:
            if sentence not in self._said:
                log.warning("%s", sentence)
        self._said = found
        return found

    def _reasons(self) -> list[str]:
        if self.gateway.may_create_pods() is False:
            return [self._denied]
        pods = self.gateway.executor_pods()
        if pods is None:
            return ["the API server does not answer, so it is not known why executors are missing"]
        missing = without_pods(self._total(), pods)
        return [*pending_reasons(pods), *([missing] if missing else [])]

    @property
    def _denied(self) -> str:
        namespace = self.gateway.setting("spark.kubernetes.namespace", "default")
        return DENIED.format(namespace=namespace)


class YarnHosts(ExecutorHosts):
    """The executors of an application on YARN.

    A request never fails there. If the queue is full, it waits until there is room, so a host that
    has not started is never abandoned. The application master asks YARN again for what is missing.
    """

    start_limit_s = None
    _slow = 0  # hosts that were mentioned

    def waiting(self) -> list[str]:
        """Say how many executors are missing, and what may be the reason."""
        slow = len(self._slow_starts())
        queue = self.gateway.setting("spark.yarn.queue", "default")
        sentence = (
            f"YARN has not started {slow} of the {self._total()} requested executors for more than "
            f"{SLOW_START_S:g} s: the queue {queue} may be full, no node may have room, or YARN "
            "may still wait for a lost node; the request stays"
        )
        if slow > self._slow:
            log.warning("%s", sentence)
        elif self._slow and not slow:
            log.warning("no requested executor is missing any more")
        self._slow = slow
        return [sentence] if slow else []


MakeManager = Callable[[Gateway, Callable[[], float]], ExecutorManager]
"""Makes an executor manager from the application and a clock (Unix seconds)."""

EXECUTOR_MANAGERS: dict[str, MakeManager] = {
    "k8s": KubernetesHosts,
    "local": DriverHost,
    "spark": ExecutorHosts,
    "yarn": YarnHosts,
}
"""Executor managers by the scheme of ``spark.master``; other schemes use `ExecutorHosts`."""


def executor_manager(gateway: Gateway, clock: Callable[[], float]) -> ExecutorManager:
    """The executor manager for the application's master."""
    return EXECUTOR_MANAGERS.get(gateway.scheme, ExecutorHosts)(gateway, clock)
