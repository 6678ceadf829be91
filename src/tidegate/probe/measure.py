"""Measure a path for minutes or days: every stream in turn, a moment at a time.

A moment is a few seconds of one stream. The streams take turns, so that a change of the network
meets all of them, and each round begins with another one. Every moment opens its own connections: a
connection that breaks costs one moment, and the run goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from tidegate.errors import BackendError, InputError
from tidegate.lifecycle import Stopped
from tidegate.probe.results import Moment, Outlier, ProbeResult, Stream, StreamFigures, Transport
from tidegate.probe.sender import send_stream
from tidegate.probe.server import LONGEST_MOMENT_S, MOST_TUPLES_PER_S
from tidegate.probe.session import Session
from tidegate.probe.tally import Tally, tally
from tidegate.probe.wire import LARGEST_DATAGRAM, SMALLEST_PACKET
from tidegate.units import finite

__all__ = ["ProbePlan", "measure"]

SHORTEST_MOMENT_S = 1.0
ROUNDS = 10
"""Rounds that a run should have at least, if its duration allows."""
MOST_BITS_PER_S = 1e9
MOST_STREAMS = 40
MOST_OUTLIERS = 20
RETRY_S = 2.0
QUEUE_S = 0.5
"""Tuples of this time may wait in the sender while TCP's socket is full."""
_SMALLEST_QUEUE = 1 << 16
_FEW_FOR_CV, _FEW_FOR_OUTLIERS = 3, 8


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """What to send.

    Args:
        rates_per_s: Rates of the streams, in tuples per second.
        duration_s: Duration of the whole run, in seconds.
        transports: ``udp`` shows loss and jitter, ``tcp`` what a source that needs every tuple
            gets. Each rate is sent over each of them.
        tuple_bytes: Size of a tuple.
        cpu_share: Share of one core that the sender may use.

    >>> plan = ProbePlan((100.0, 1000.0), 600.0)
    >>> plan.streams
    (('udp', 100.0), ('udp', 1000.0), ('tcp', 100.0), ('tcp', 1000.0))
    >>> plan.moment_s
    15.0
    """

    rates_per_s: tuple[float, ...]
    duration_s: float
    transports: tuple[Transport, ...] = ("udp", "tcp")
    tuple_bytes: int = 100
    cpu_share: float = 0.5

    def __post_init__(self) -> None:
        finite(self.tuple_bytes, "--tuple-bytes", low=SMALLEST_PACKET, high=LARGEST_DATAGRAM)
        finite(self.cpu_share, "--cpu", low=0.01, high=1.0, remedy="a share of one core")
        finite(self.duration_s, "--for", above=0)
        for rate in self.rates_per_s:
            finite(rate, "--rates", low=0.1, high=MOST_TUPLES_PER_S, remedy="tuples per second")
            if rate * self.tuple_bytes * 8 > MOST_BITS_PER_S:
                shown = f"{rate:g} tuples/s of {self.tuple_bytes} bytes"
                raise InputError("--rates", shown, "at most 1 Gbit/s", "choose a lower rate")
        for name, given, example in (
            ("--rates", self.rates_per_s, "100,1000"),
            ("--over", self.transports, "udp,tcp"),
        ):
            if not given or len(set(given)) < len(given):
                shown = ",".join(map(str, given))
                raise InputError(name, shown, "a list of different values", f"such as {example}")
        if set(self.transports) - {"udp", "tcp"}:
            raise InputError("--over", ",".join(self.transports), "udp, tcp or both")
        if len(self.streams) > MOST_STREAMS:
            allowed = f"at most {MOST_STREAMS // len(self.transports)} rates"
            raise InputError("--rates", f"{len(self.rates_per_s)} rates", allowed)

    @property
    def streams(self) -> tuple[tuple[Transport, float], ...]:
        """The streams, in the order of the first round."""
        return tuple((over, rate) for over in self.transports for rate in self.rates_per_s)

    @property
    def moment_s(self) -> float:
        """Duration of a moment, in seconds."""
        each_s = self.duration_s / len(self.streams)
        return min(max(each_s / ROUNDS, SHORTEST_MOMENT_S), each_s, LONGEST_MOMENT_S)

    def order(self) -> Iterator[tuple[Transport, float]]:
        """The streams in turn, without end; each round begins with the next one."""
        first = 0
        while True:
            yield from self.streams[first:]
            yield from self.streams[:first]
            first = (first + 1) % len(self.streams)


def measure(
    address: tuple[str, int],
    plan: ProbePlan,
    token: str | None = None,
    stop: threading.Event | None = None,
    on_moment: Callable[[Moment, float], None] = lambda moment, share: None,
) -> ProbeResult:
    """Send the streams of a plan to a server; what was measured until the end or until `stop`.

    Raises BackendError if the server cannot be reached or refuses the first stream, and `Stopped`
    if the run was stopped before anything was measured.

    Args:
        address: Host and port of a `ProbeServer`.
        plan: What to send.
        token: The token of the server.
        stop: Ends the run early.
        on_moment: Called after each moment with it and the share of the run that is done.
    """
    run = _Run(address, plan, token, stop or threading.Event())
    run.go(on_moment)
    if not run.tallies:
        raise Stopped
    return run.result()


class _Run:
    def __init__(
        self,
        address: tuple[str, int],
        plan: ProbePlan,
        token: str | None,
        stop: threading.Event,
    ) -> None:
        self._address, self._plan, self._token, self._stop = address, plan, token, stop
        self._began_s = time.monotonic()
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._one_machine = self._kernel_times = True
        self._moments: list[Moment] = []
        self._outliers: list[Outlier] = []
        self._outage_s = 0.0
        self.tallies: dict[tuple[Transport, float], Tally] = {}

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def go(self, on_moment: Callable[[Moment, float], None]) -> None:
        plan = self._plan
        # Streams that were not sent yet have their moment even if lingering took longer than
        # planned; otherwise a short run would leave them out.
        for number, (transport, rate) in enumerate(plan.order()):
            left_s = plan.duration_s - self._elapsed_s()
            first_round = number < len(plan.streams)
            if self._stop.is_set() or (left_s < plan.moment_s / 2 and not first_round):
                return
            self._moment(transport, rate)
            on_moment(self._moments[-1], min(1.0, self._elapsed_s() / plan.duration_s))

    def _moment(self, transport: Transport, rate: float) -> None:
        at_s, moment_s = self._elapsed_s(), self._plan.moment_s
        try:
            found = self._send(transport, rate, moment_s)
        except (OSError, BackendError) as error:
            if not self.tallies:
                raise _unreachable(self._address, error) from None
            self._moments.append(Moment(transport, rate, at_s, None, _reason(error)))
            self._stop.wait(min(RETRY_S, moment_s))
            self._outage_s += self._elapsed_s() - at_s
            return
        self.tallies.setdefault((transport, rate), Tally(transport)).merge(found)
        self._moments.append(Moment(transport, rate, at_s, found.figures()))
        self._outliers += [Outlier(at_s + t, transport, rate, delay) for delay, t in found.worst]
        self._outliers.sort(key=lambda outlier: -outlier.delay_s)
        del self._outliers[MOST_OUTLIERS:]

    def _send(self, transport: Transport, rate: float, for_s: float) -> Tally:
        plan = self._plan
        room = max(_SMALLEST_QUEUE, int(rate * QUEUE_S) * plan.tuple_bytes)
        with Session(self._address, self._token, transport, rate, for_s, room) as session:
            self._one_machine &= session.one_machine
            self._kernel_times &= session.kernel_times
            recording = send_stream(session, for_s, plan.tuple_bytes, plan.cpu_share, self._stop)
            return tally(recording, transport, session.one_machine)

    def result(self) -> ProbeResult:
        host, port = self._address
        return ProbeResult(
            address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            started=self._started,
            planned_s=self._plan.duration_s,
            measured_s=self._elapsed_s(),
            tuple_bytes=self._plan.tuple_bytes,
            one_machine=self._one_machine,
            kernel_times=self._kernel_times,
            streams=tuple(self._streams()),
            moments=tuple(self._moments),
            outliers=tuple(self._outliers),
            outage_s=self._outage_s,
        )

    def _streams(self) -> Iterator[Stream]:
        for transport, rate in self._plan.streams:
            if (transport, rate) not in self.tallies:
                continue
            known = [
                moment.figures
                for moment in self._moments
                if (moment.transport, moment.rate_per_s) == (transport, rate) and moment.figures
            ]
            total = self.tallies[transport, rate].figures()
            yield Stream(transport, rate, total, len(known), _variation(known), _outlying(known))


def _variation(moments: list[StreamFigures]) -> float | None:
    carried = [m.carried_per_s for m in moments if m.carried_per_s is not None]
    if len(carried) < _FEW_FOR_CV:
        return None
    return float(np.std(carried, ddof=1) / np.mean(carried))


def _outlying(moments: list[StreamFigures]) -> int | None:
    """Moments far above the others, by Tukey's rule; those without a 99th percentile count."""
    p99 = [m.delay.p99_s if m.delay else None for m in moments]
    known = [p for p in p99 if p is not None]
    if len(known) < _FEW_FOR_OUTLIERS:
        return None
    low, high = np.quantile(known, (0.25, 0.75))
    limit = float(high + 3 * (high - low))
    return sum(p is None or p > limit for p in p99)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _unreachable(address: tuple[str, int], error: Exception) -> BackendError:
    host, port = address
    if isinstance(error, BackendError):
        return BackendError(f"{host}:{port}: {error}")
    return BackendError(
        f"no probe answers at {host}:{port} ({_reason(error)}): start tidegate probe serve there, "
        "and allow its port for TCP and UDP"
    )
