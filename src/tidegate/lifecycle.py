"""Objects that are started and stopped, and how a run ends early."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self, TypeVar

__all__ = ["Closing", "Service", "Stop", "Stopped", "wait_until", "within"]

T = TypeVar("T")


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


def within(at_most_s: float, do: Callable[[], T], otherwise: T) -> T:
    """The result of `do`, or `otherwise` if it takes longer than `at_most_s` seconds.

    What takes longer goes on in a daemon thread, which does not keep the process from ending. What
    `do` raises in time is raised here.

    >>> within(5.0, lambda: 2 + 2, 0)
    4
    """
    results: list[T] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            results.append(do())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="tidegate-within", daemon=True)
    thread.start()
    thread.join(max(0.0, at_most_s))
    if errors:
        raise errors[0]
    return results[0] if results else otherwise
