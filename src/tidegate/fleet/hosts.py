"""The protocols of a fleet's hosts and of their providers, and calls with a timeout.

The manager knows hosts only through these protocols.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Generic, Protocol, TypeVar

from tidegate.errors import BackendError
from tidegate.fleet.queries import ContinuousQuery
from tidegate.model.topology import Resources
from tidegate.spark.autoscaler.progress import Progress

__all__ = [
    "BackgroundCall",
    "FleetHost",
    "HostProvider",
    "HostRefused",
    "HostSilent",
    "HostView",
    "QueryView",
    "bounded",
    "call_all",
    "in_background",
]

T = TypeVar("T")


class HostSilent(BackendError):  # noqa: N818 - reads as what it is
    """A host did not answer in time. The request may or may not have been carried out."""


class HostRefused(BackendError):  # noqa: N818
    """A host refused the connection: its token or its TLS settings differ from ours."""


@dataclass(frozen=True)
class QueryView:
    """A query as its host reports it. The counters start when the host starts.

    Args:
        run: Id of this run.
        active: Whether the query runs.
        error: The error that ended it; None if it was stopped.
        progress: The batches that Spark still remembers, oldest first.
        cpu_s: CPU time of its tasks, in seconds; None if the host does not report it.
        read_mb: Megabytes that its tasks read (sources and shuffles); None if not reported.
        written_mb: Megabytes that its tasks wrote (sinks and shuffles); None if not reported.
    """

    run: str
    active: bool = True
    error: str | None = None
    progress: tuple[Progress, ...] = ()
    cpu_s: float | None = None
    read_mb: float | None = None
    written_mb: float | None = None


@dataclass(frozen=True)
class HostView:
    """The state of a host at one moment. A value that cannot be measured is None.

    queries: views by name. cpu_s: CPU time since the host started, in seconds. memory_mb: memory
    of its process. read_mb, written_mb: megabytes that its process has read and written since it
    started, through files and sockets.
    """

    queries: Mapping[str, QueryView] = field(default_factory=dict)
    cpu_s: float | None = None
    memory_mb: float | None = None
    read_mb: float | None = None
    written_mb: float | None = None


class FleetHost(Protocol):
    """A host that is up. Every call returns within its timeout or raises HostSilent."""

    @property
    def place(self) -> str:
        """The address of the server, which stays the same under a new manager."""

    @property
    def alive(self) -> bool:
        """False if the host has certainly ended; True otherwise, also if its state is unknown."""

    def cpu_s(self) -> float | None:
        """CPU time so far, in seconds, also of a host that does not answer; None if unknown."""

    def look(self, timeout_s: float) -> HostView:
        """Return the queries on the host and its resource usage."""

    def start(self, query: ContinuousQuery, checkpoint: str, timeout_s: float) -> None:
        """Start a query from its checkpoint."""

    def stop(self, name: str, timeout_s: float) -> None:
        """Stop a query between two batches. Stopping a query that does not run is no error.

        A start that got no answer in time is waited for and then stopped, so that it cannot happen
        later. If it does not end in time either, this raises HostSilent.
        """

    def sees(self, file: Path, text: str, timeout_s: float) -> bool:
        """Whether the host reads this text in this file, and so shares its folder with us."""


class HostProvider(Protocol):
    """A source of hosts.

    capacity: the resources of one host for its queries. limits: those besides CPU that are limited,
    ``memory_mb`` and ``network_mbps``; the policy watches them like CPU. query_mb: megabytes that a
    query needs besides its state, if memory is limited. max_hosts: the largest number of
    hosts; None means no limit. outlive: whether hosts and their queries keep running when the
    manager ends.
    """

    capacity: Resources
    limits: frozenset[str]
    query_mb: float
    max_hosts: int | None
    outlive: bool

    def lease(self, name: str) -> None:
        """Begin to start a host. Raises BackendError if no more hosts are available."""

    def host(self, name: str) -> FleetHost | None:
        """Return the host, or None while it starts. Raises BackendError if the start failed."""

    def release(self, name: str) -> None:
        """Return a host on which nothing runs."""

    def kill(self, name: str) -> bool:
        """Abandon a host that died or hangs; True if it certainly runs nothing any more."""

    def survivors(self) -> Iterable[tuple[str, FleetHost]]:
        """Lease the hosts that outlived an earlier manager; return them with their names."""

    def close(self) -> None:
        """End everything that this provider has started."""


def in_background(work: Callable[[], None]) -> None:
    """Run a function in a daemon thread."""
    threading.Thread(target=work, daemon=True).start()


class BackgroundCall(Generic[T]):
    """A call in a daemon thread. A result that arrives late is still available.

    value: the result, None until the call has returned. error: the exception that it raised.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self.value: T | None = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], T]) -> None:
        try:
            self.value = call()
        except Exception as error:
            self.error = error

    def done(self, deadline_s: float, alive: Callable[[], bool] | None = None) -> bool:
        """Wait until the call has ended or the deadline passes; return whether it has ended.

        deadline_s: on the clock of `time.monotonic`. alive: the wait ends early when it is False.
        """
        while self._thread.is_alive() and monotonic() < deadline_s and (alive is None or alive()):
            left_s = max(0.0, deadline_s - monotonic())
            self._thread.join(left_s if alive is None else min(0.25, left_s))
        return not self._thread.is_alive()


def bounded(
    call: Callable[[], T],
    timeout_s: float,
    what: str,
    alive: Callable[[], bool] | None = None,
    begun: Callable[[BackgroundCall[T]], None] | None = None,
) -> T:
    """Return the result of a call that may hang; raise HostSilent after `timeout_s` seconds.

    The call continues in its thread. A gRPC channel to a suspended process cannot be interrupted,
    and a channel to a process that has ended retries for minutes.

    what: names the call in error messages. alive: whether an answer may still come; if not, the
    function raises BackendError at once. begun: receives the call, which may outlast this one.
    """
    background = BackgroundCall(call)
    if begun is not None:
        begun(background)
    if not background.done(monotonic() + timeout_s, alive):
        if alive is not None and not alive():
            raise BackendError(f"{what}: its host has ended")
        raise HostSilent(f"{what}: no answer in {timeout_s:g} s")
    if background.error is not None:
        raise background.error
    return background.value  # type: ignore[return-value]


def call_all(calls: Iterable[Callable[[], T]], timeout_s: float) -> list[BackgroundCall[T]]:
    """Run calls in parallel and wait for them, `timeout_s` seconds in total."""
    running = [BackgroundCall(call) for call in calls]
    deadline_s = monotonic() + timeout_s
    for call in running:
        call.done(deadline_s)
    return running
