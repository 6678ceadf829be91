"""What a host is to the manager, and who provides hosts. Everything else talks to these two."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

from tidegate.errors import BackendError
from tidegate.fleet.queries import ContinuousQuery
from tidegate.model.topology import Resources
from tidegate.spark.autoscaler.progress import Progress

__all__ = [
    "Asked",
    "FleetHost",
    "HostProvider",
    "HostRefused",
    "HostSilent",
    "HostView",
    "QueryView",
    "beside",
    "bounded",
    "together",
]

T = TypeVar("T")


class HostSilent(BackendError):  # noqa: N818 - reads as what it is
    """A host that gave no answer in time: what was asked of it may or may not have happened."""


class HostRefused(BackendError):  # noqa: N818
    """A host that does not take us: its token or its TLS is not what we were given."""


@dataclass(frozen=True)
class QueryView:
    """A query as its host sees it.

    run: id of this run. active: whether it runs. error: what ended it, None when it was stopped.
    progress: the batches that are still remembered, oldest first.
    cpu_s, read_mb, written_mb: what its tasks took of the CPU, read and wrote (sources, sinks and
    shuffles) since the host came up, None when the host does not tell.
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
    """One look at a host. What cannot be measured of it is None.

    cpu_s: seconds of CPU since it came up. read_mb, written_mb: that its process read and wrote
    since, through files and sockets alike.
    """

    queries: Mapping[str, QueryView] = field(default_factory=dict)
    cpu_s: float | None = None
    memory_mb: float | None = None
    read_mb: float | None = None
    written_mb: float | None = None


class FleetHost(Protocol):
    """A host that is up. Every call ends within its time limit, with HostSilent if need be."""

    @property
    def place(self) -> str:
        """Which server it is, whatever the manager calls it."""

    @property
    def alive(self) -> bool:
        """False when it has certainly ended; True also when nobody knows."""

    def cpu_s(self) -> float | None:
        """Seconds of CPU that it took so far, also of one that gives no answer; None: not known."""

    def look(self, timeout_s: float) -> HostView:
        """What runs on it and how busy it is."""

    def start(self, query: ContinuousQuery, checkpoint: str, timeout_s: float) -> None:
        """Start a query from its checkpoint."""

    def stop(self, name: str, timeout_s: float) -> None:
        """Stop a query between two batches; no error when it does not run."""


class HostProvider(Protocol):
    """Where hosts come from and go to.

    capacity: what a host has to give; max_hosts: how many can be had, None: no end.
    outlive: whether hosts and their queries go on when the manager ends.
    """

    capacity: Resources
    max_hosts: int | None
    outlive: bool

    def lease(self, name: str) -> None:
        """Begin to bring up a host; BackendError when there is no more to be had."""

    def host(self, name: str) -> FleetHost | None:
        """The host, None while it is starting; BackendError when it did not come up."""

    def release(self, name: str) -> None:
        """Give a host back that nothing runs on."""

    def kill(self, name: str) -> bool:
        """Give up a host that died or hangs; True when it certainly runs nothing any more."""

    def survivors(self) -> Iterable[tuple[str, FleetHost]]:
        """Hosts that outlived an earlier manager, with their names; they are leased by this."""

    def close(self) -> None:
        """End what was started here."""


def beside(work: Callable[[], None]) -> None:
    """Do something beside the manager."""
    threading.Thread(target=work, daemon=True).start()


def bounded(
    call: Callable[[], T], timeout_s: float, what: str, alive: Callable[[], bool] | None = None
) -> T:
    """The result of a call that may hang; HostSilent when it takes longer than `timeout_s`.

    The call goes on in a thread that nobody waits for: a gRPC channel to a stopped process has no
    other end, and one to a process that has ended tries again for minutes.

    alive: whether an answer may still come; BackendError as soon as it may not.
    """
    (result,) = together([call], timeout_s, alive)
    if result is None and alive is not None and not alive():
        raise BackendError(f"{what}: its host has ended")
    if result is None:
        raise HostSilent(f"{what}: no answer in {timeout_s:g} s")
    value, error = result
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


class Asked(Generic[T]):
    """A call under way beside us. One that is late may still be answered, and then counts."""

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

    def done(self, end_s: float) -> bool:
        """Whether it has ended, waiting for that no longer than until a moment (`monotonic`)."""
        self._thread.join(max(0.0, end_s - monotonic()))
        return not self._thread.is_alive()


def together(
    calls: Iterable[Callable[[], T]], timeout_s: float, alive: Callable[[], bool] | None = None
) -> list[tuple[T | None, Exception | None] | None]:
    """(value, error) of calls that run side by side, None for those that took too long.

    alive: when it says no, nothing is waited for any longer.
    """
    every = list(calls)
    results: list[tuple[Any, Exception | None] | None] = [None] * len(every)

    def run(index: int) -> None:
        try:
            results[index] = (every[index](), None)
        except Exception as error:
            results[index] = (None, error)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(len(every))]
    for thread in threads:
        thread.start()
    end_s = monotonic() + timeout_s
    for thread in threads:
        while thread.is_alive() and monotonic() < end_s and (alive is None or alive()):
            thread.join(min(0.25, max(0.0, end_s - monotonic())))
    return list(results)
