"""Hosts that were abandoned without being ended, and the queries that wait for them.

A server that the manager did not start cannot be killed. If it stops answering, its queries may
still run there. It is shunned: it gets no new queries and is asked again and again until it
answers; then the copies that it runs are stopped. Until then its queries are held, at most for the
time of their lease.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tidegate.errors import BackendError
from tidegate.fleet.fence import Fence, LeaseWatch
from tidegate.fleet.hosts import BackgroundCall, FleetHost, call_all

__all__ = [
    "Hold",
    "ShunnedHosts",
    "hold_for",
    "shared_fence",
    "stop_copies",
    "stop_or_fence_off",
]

log = logging.getLogger(__name__)

LONGEST_S = 600.0
"""A call to a shunned host waits at most this many seconds before the next one is made."""


@dataclass(frozen=True)
class Hold:
    """Why a query must not start: hosts that do not answer may run a copy of it.

    places: the addresses of these hosts. watch: of the query's lease; None if it has no fence, so
    that the hold lasts until all of these hosts have answered. error: why its epoch could not be
    ended, so that it has to be tried again; None if it was ended, or there is none.
    """

    places: frozenset[str]
    watch: LeaseWatch | None = None
    error: str | None = None

    @property
    def reason(self) -> tuple[frozenset[str], str | None]:
        """What differs between two holds that are worth two lines in the log."""
        return self.places, self.error

    def over(self, shunned: Mapping[str, object]) -> bool:
        """Whether the query may start. shunned: the hosts that have not answered, by address."""
        if not any(place in shunned for place in self.places):
            return True
        return self.watch is not None and self.watch.over()

    def describe(self) -> str:
        """What the query waits for, in one line."""
        who = ", ".join(sorted(self.places))
        if self.error is not None:
            return f"{who} may still run it, and its epoch cannot be ended yet: {self.error}"
        if self.watch is None:
            return f"{who} may still run it and must answer first: it has no fence"
        return f"{who} may still run it; its lease is over in {self.watch.left_s:.0f} s"


def hold_for(fence: Fence | None, places: Iterable[str], clock: Callable[[], float]) -> Hold | None:
    """End the epoch of a query that may run at these places; return its hold, None without places.

    If the fence cannot be written, the hold has the error; call this again.

    fence: of the query, None for none. clock: seconds of a monotonic clock.
    """
    where = frozenset(places)
    if not where:
        return None
    try:
        if fence is not None and fence.in_use:
            return Hold(where, LeaseWatch(fence, fence.revoke(), clock))
    except BackendError as error:
        return Hold(where, error=str(error))
    return Hold(where)


def shared_fence(fence: Fence | None, host: FleetHost, timeout_s: float) -> Fence | None:
    """The fence, if the manager and the host share its folder; otherwise None, after a warning.

    A host that does not see the folder would create an empty checkpoint in place of the link. If
    other hosts have used the fence, such a host is an error: it does not see the checkpoint either.

    timeout_s: timeout of a call to the host, in seconds.
    """
    if fence is None:
        return None
    known = fence.in_use
    try:
        file, text = fence.probe()
    except BackendError as error:
        if known:
            raise
        log.warning("%s is used without a fence: %s", fence.checkpoint, error)
        return None
    if host.sees(file, text, timeout_s):
        return fence
    if known:
        remedy = "mount the folder of the checkpoints there, as on the other hosts"
        raise BackendError(f"{host.place} does not see {fence.checkpoint}: {remedy}")
    log.warning(
        "%s is used without a fence: %s does not see its folder", fence.checkpoint, host.place
    )
    fence.disuse()
    return None


def stop_copies(host: FleetHost, timeout_s: float) -> bool:
    """Stop everything that runs in the session of the fleet; return whether nothing is left.

    timeout_s: timeout of each call, in seconds.
    """
    for name, seen in host.look(timeout_s).queries.items():
        if seen.active:
            log.warning("%s answers again; its copy of %s is stopped", host.place, name)
            host.stop(name, timeout_s)
    return not any(seen.active for seen in host.look(timeout_s).queries.values())


def stop_or_fence_off(
    running: Sequence[tuple[str, Fence | None, FleetHost]], timeout_s: float
) -> None:
    """Stop queries; one that may run on loses its checkpoint, and the log names it.

    running: name, fence and host of each query. timeout_s: timeout of all calls, in seconds.
    """
    stops = [partial(host.stop, name, timeout_s) for name, _, host in running]
    for (name, fence, host), call in zip(running, call_all(stops, timeout_s), strict=True):
        if call.done(0.0) and call.error is None:
            continue
        why = call.error or f"no answer in {timeout_s:g} s"
        log.warning("%s may still run: %s did not stop it: %s", name, host.place, why)
        if fence is not None:
            try:
                fence.revoke()
            except BackendError as error:
                log.warning("%s keeps its checkpoint: %s", name, error)


class ShunnedHosts(Mapping[str, FleetHost]):
    """The shunned hosts by address. `look` asks them in the background.

    call: runs a function in the background; a test replaces it.
    """

    def __init__(
        self, call: Callable[[Callable[[], bool]], BackgroundCall[bool]] = BackgroundCall
    ) -> None:
        self._hosts: dict[str, FleetHost] = {}
        self._calls: dict[str, BackgroundCall[bool]] = {}
        self._asked: dict[str, int] = {}
        self._call = call

    def __getitem__(self, place: str) -> FleetHost:
        return self._hosts[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)

    def add(self, host: FleetHost) -> None:
        """Shun a host."""
        self._forget(host.place)
        self._hosts[host.place] = host

    def look(self, timeout_s: float) -> None:
        """Ask every host; forget those that have answered and run nothing any more.

        This does not wait for answers. A call to a suspended process never ends and keeps its
        thread, so each call waits twice as long for an answer as the one before.

        timeout_s: timeout of the first call to a host, in seconds.
        """
        for place, host in list(self._hosts.items()):
            call = self._calls.get(place)
            if not host.alive:
                self._forget(place)
            elif call is None:
                asked = self._asked.get(place, 0)
                limit_s = min(LONGEST_S, timeout_s * 2.0 ** min(asked, 20))
                self._asked[place] = asked + 1
                self._calls[place] = self._call(partial(stop_copies, host, limit_s))
            elif call.done(time.monotonic()):
                del self._calls[place]
                if call.value:
                    self._forget(place)
                    log.info("%s runs nothing any more and can be used again", place)

    def _forget(self, place: str) -> None:
        self._hosts.pop(place, None)
        self._calls.pop(place, None)
        self._asked.pop(place, None)
