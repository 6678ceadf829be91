"""Objects that are started and stopped, processes, and how a run ends early."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Self, TypeVar

__all__ = [
    "Background",
    "Closing",
    "Service",
    "Stop",
    "Stopped",
    "can_copy_process",
    "from_handler",
    "on_signals",
    "usable_cores",
    "wait_until",
    "within",
]

T = TypeVar("T")


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def can_copy_process() -> bool:
    """Whether a *fork* is safe: with other threads, the copy may inherit a lock of one of them."""
    return hasattr(os, "fork") and sys.platform != "darwin" and threading.active_count() == 1


class Closing:
    """Base of classes that release something: a ``with`` block calls `close` at its end."""

    def close(self) -> None:
        """Release what this object holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Service(Closing):
    """Base of classes that run something: a ``with`` block calls `start`, and `stop` at its end."""

    def start(self) -> Self:
        """Start, and return this object."""
        return self

    def stop(self) -> None:
        """Stop."""
        raise NotImplementedError

    def close(self) -> None:
        """The same as `stop`."""
        self.stop()

    def __enter__(self) -> Self:
        return self.start()


class Stopped(Exception):  # noqa: N818 - not an error
    """A stop was requested before there was anything to measure."""


class Stop(threading.Event):
    """An event that ends a run early and in order.

    starting: the run does not check this event while `starting` is true. A signal handler that sets
    the event during that time must also raise `Stopped`.
    """

    starting = True

    def check(self) -> None:
        """Raise `Stopped` if the event is set."""
        if self.is_set():
            raise Stopped


def from_handler(do: Callable[[], object]) -> None:
    """Call `do`, which may need a lock, from a signal handler: in another thread.

    Python calls handlers in the main thread, between any two of its instructions. If the main
    thread is just entering or leaving ``event.wait()``, it holds the lock that ``event.set()``
    needs, and a handler that sets the event would wait for it for ever.
    """
    # Not threading.Thread: its start() takes locks that the main thread may hold as well.
    _thread.start_new_thread(do, ())


@contextmanager
def on_signals(handler: Callable[[], None]) -> Iterator[None]:
    """Call `handler` on SIGINT (Ctrl-C) and SIGTERM while the block runs, in the main thread."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: handler()) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def wait_until(
    done: Callable[[], bool],
    at_most_s: float,
    stop: threading.Event | None = None,
    check: Callable[[], None] = lambda: None,
) -> bool:
    """Wait until `done` returns true, the timeout expires or `stop` is set.

    at_most_s: the timeout, in seconds. check: called at least twice a second; what it raises ends
    the wait. Returns whether `done` returned true.
    """
    end_s = time.monotonic() + at_most_s
    stop = stop or threading.Event()
    while not stop.is_set():
        if done():
            return True
        check()
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            return False
        stop.wait(min(0.5, left_s))
    return False


class Background(Generic[T]):
    """A function that runs in a daemon thread, which does not keep the process from ending.

    do: the function; it begins at once. name: of the thread, for those who look at a stack.
    """

    def __init__(self, do: Callable[[], T], name: str = "tidegate-background") -> None:
        self._results: list[T] = []
        self._errors: list[Exception] = []
        self._do = do
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._results.append(self._do())
        except Exception as error:
            self._errors.append(error)

    def ended(self, within_s: float = 0.0) -> bool:
        """Whether it has ended, or ends within a time in seconds."""
        self._thread.join(max(0.0, within_s))
        return not self._thread.is_alive()

    def results(self) -> list[T]:
        """What it returned, once it has ended; empty before that and if it failed."""
        return self._results

    def result(self) -> T:
        """What it returned; raises what it raised. Only for one that has ended."""
        if self._errors:
            raise self._errors[0]
        return self._results[0]


def within(at_most_s: float, do: Callable[[], T], otherwise: T) -> T:
    """The result of `do`, or `otherwise` if it takes longer than `at_most_s` seconds.

    What takes longer goes on in the background. What `do` raises in time is raised here.

    >>> within(5.0, lambda: 2 + 2, 0)
    4
    """
    work = Background(do)
    return work.result() if work.ended(at_most_s) else otherwise
