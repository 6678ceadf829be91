"""What a proxy adds, the probe finds again; judged by what the proxy says it did."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pytest

from tests.probe.proxy import ENOUGH, Direction, Passed, Proxy, Weather
from tidegate.listening import Listening
from tidegate.probe import ProbePlan, ProbeServer, measure, sender, verdict
from tidegate.probe.results import StreamFigures, Transport
from tidegate.probe.sender import Recording
from tidegate.probe.server import LONGEST_MOMENT_S
from tidegate.probe.session import Session
from tidegate.probe.tally import tally
from tidegate.probe.verdict import judge
from tidegate.probe.wire import PING, STREAM

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the proxy needs the kernel's time stamps"
)
BIN = 0.012
"""Percentiles of the probe are at most this share too long."""
WAY_S = 0.001
"""Time for the way over loopback, which the proxy does not see."""
STORM = Weather(delay_s=(0.005, 0.015), loss=0.05)
CALMER = Weather(delay_s=(0.005, 0.010), loss=0.03)


def recorded_through(proxy: Proxy, rate: float, over: Transport) -> Recording:
    """One stream, which the proxy ends when it has seen enough."""
    with Session(proxy.address, None, over, rate, LONGEST_MOMENT_S, 1 << 16) as session:
        return sender.send_stream(session, LONGEST_MOMENT_S, 100, 0.5, proxy.enough)


def transits_ns(recording: Recording) -> dict[int, int]:
    """From the sender to the server, by the number of the packet."""
    rows = np.array(recording.answers).reshape(-1, len(sender.COLUMNS))
    number, sent, arrived = (sender.COLUMNS.index(name) for name in ("number", "sent", "arrived"))
    return {int(row[number]): int(row[arrived] - row[sent]) for row in rows}


def found_through(proxy: Proxy, rate: float, over: Transport) -> StreamFigures:
    return tally(recorded_through(proxy, rate, over), over, one_machine=True).figures()


def quantile_s(recorded_ns: Iterable[int], share: float = 0.5) -> float:
    """A quantile of what the proxy recorded, by the definition of the probe."""
    return float(np.quantile([*recorded_ns], share, method="inverted_cdf")) / 1e9


def by_tuple(recorded_ns: Mapping[int, int], passed: Mapping[int, Passed]) -> Iterator[int]:
    """Each value for every tuple of its packet; several share one if the sender was late."""
    for number, value in recorded_ns.items():
        yield from (value,) * passed[number].tuples


def about(found_s: float | None, recorded_s: float) -> bool:
    assert found_s is not None
    return recorded_s - WAY_S <= found_s <= recorded_s * (1 + BIN) + WAY_S


def first_copies(way: Direction, kind: int) -> list[int]:
    """Numbers in the order in which they left."""
    numbers = [way.passed[serial].number for serial in way.order if way.passed[serial].kind == kind]
    return list(dict.fromkeys(numbers))


def test_loss_delay_jitter_and_order_of_datagrams_are_found_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender, "SHORTEST_LINGER_S", 1.5)  # the proxy may be late, too
    with ProbeServer(Listening()) as server, Proxy(server.address, STORM, CALMER) as proxy:
        recording = recorded_through(proxy, 300.0, "udp")
    found = tally(recording, "udp", one_machine=True).figures()
    there, back = proxy.there.of_kind(STREAM), proxy.back.of_kind(STREAM)
    came = {p.number for p in proxy.there.passed.values() if p.kind == STREAM}
    assert found.packets == len(came) >= ENOUGH
    assert found.lost_there == len(came) - len(there) > 0
    assert found.lost_back == len(there) - len(back) > 0
    assert found.duplicates == 0
    highest = np.maximum.accumulate([-1, *first_copies(proxy.there, STREAM)])
    left = first_copies(proxy.there, STREAM)
    assert found.out_of_order == sum(n < before for n, before in zip(left, highest, strict=False))

    assert found.one_way and found.network and found.delay and found.jitter
    delays = {number: there[number].delay_ns for number in sorted(back)}
    assert about(found.one_way.p50_s, quantile_s(by_tuple(delays, back)))
    changes = [abs(delays[n] - delays[n - 1]) for n in delays if n - 1 in delays]
    assert about(found.jitter.p50_s, quantile_s(changes))
    # A stall between a time stamp and its datagram is seen by one side only, so a tenth may differ.
    transit = transits_ns(recording)
    same = [abs(transit[n] - delays[n]) < WAY_S * 1e9 for n in delays]
    assert transit.keys() == delays.keys() and np.mean(same) >= 0.9
    whole = [abs(transit[n] - transit[n - 1]) for n in transit if n - 1 in transit]
    assert found.jitter.count == len(whole)
    assert found.jitter.mean_s == pytest.approx(np.mean(whole) / 1e9)
    to, fro = proxy.there.of_kind(PING), proxy.back.of_kind(PING)
    pings = recording.pings[:: len(sender.COLUMNS)]  # others were still under way at the end
    trips = [to[number].delay_ns + fro[number].delay_ns for number in pings]
    assert about(found.network.p50_s, quantile_s(trips))
    assert found.delay.p50_s is not None
    both = {number: there[number].delay_ns + back[number].delay_ns for number in back}
    lost = [1 << 62] * (found.sent - found.answered)
    assert found.delay.p50_s >= quantile_s([*by_tuple(both, back), *lost]) - WAY_S
    assert found.delay.p99_s is None, "more than 1 % was lost, so 99 % never arrived"


def test_datagrams_that_arrive_twice_are_counted_once() -> None:
    twice = Weather(repeats=0.2)
    with ProbeServer(Listening()) as server, Proxy(server.address, twice) as proxy:
        found = found_through(proxy, 500.0, "udp")
    there = proxy.there.of_kind(STREAM)
    assert found.duplicates == sum(len(p.left_ns) - 1 for p in there.values()) > 0
    assert found.sent == found.received == found.answered
    assert found.loss == 0


def test_the_delay_of_a_tcp_stream_is_found_again() -> None:
    slow = Weather(delay_s=(0.010, 0.010))
    with ProbeServer(Listening()) as server, Proxy(server.address, slow) as proxy:
        found = found_through(proxy, 200.0, "tcp")
    assert found.delay and found.one_way and found.delay.p50_s and found.one_way.p50_s
    there_s, back_s = (
        quantile_s(left - came for chunks in way.tcp.values() for came, left, _ in chunks)
        for way in (proxy.there, proxy.back)
    )
    assert there_s >= 0.010 <= back_s
    # Processes read late on a busy machine, so only the lower bounds are sharp.
    assert found.one_way.p50_s >= 0.010
    assert found.delay.p50_s >= 0.020
    assert found.lost_there is None and found.loss is None, "TCP does not show what it lost"


def test_a_path_that_is_too_slow_is_judged_by_what_it_let_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender, "TOO_LATE_S", 30.0)  # everything is sent, if in bursts
    narrow = Weather(bytes_per_s=60_000.0)
    with ProbeServer(Listening()) as server, Proxy(server.address, narrow, Weather()) as proxy:
        result = measure(proxy.address, ProbePlan((1000.0,), 1.0, ("tcp",)))
    (stream,) = result.streams
    chunks = max(proxy.there.tcp.values(), key=lambda passed: sum(size for *_, size in passed))
    let_pass_per_s = (
        1e9 * sum(size for *_, size in chunks[1:]) / 100 / (chunks[-1][1] - chunks[0][1])
    )
    assert let_pass_per_s < 700
    carried = stream.figures.carried_per_s
    # A server that reads late shortens or lengthens the time; a third of 1.6 s is a long while.
    assert carried is not None and carried == pytest.approx(let_pass_per_s, rel=0.33)
    assert judge(stream).limit == "path"
    assert verdict(result).startswith("This path carried none of the rates: at 1,000 tuples/s it ")
