"""Distributions and the sentences that follow from figures."""

from __future__ import annotations

from array import array
from dataclasses import replace

import numpy as np
import pytest

from tidegate.codec import from_json, to_json
from tidegate.probe.distribution import Distribution
from tidegate.probe.page import probe_page, stream_rows
from tidegate.probe.results import (
    Durations,
    Moment,
    Outlier,
    ProbeResult,
    Stream,
    StreamFigures,
    Transport,
)
from tidegate.probe.sender import Recording
from tidegate.probe.session import Counts
from tidegate.probe.tally import Tally, tally
from tidegate.probe.verdict import judge, notes, verdict


@pytest.mark.parametrize("seed", range(10))
def test_quantiles_are_within_a_bin_of_the_exact_ones_and_never_too_short(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.lognormal(-6, 2, 5000)
    weights = random.integers(1, 9, 5000)
    kept = Distribution()
    kept.add(values[:2000], weights[:2000])
    rest = Distribution()
    rest.add(values[2000:], weights[2000:])
    kept.merge(rest)
    each = np.repeat(values, weights)
    found = kept.durations()
    assert found is not None
    assert (found.count, found.worst_s) == (len(each), values.max())
    assert found.mean_s == pytest.approx(each.mean())
    for share, got in ((0.5, found.p50_s), (0.95, found.p95_s), (0.99, found.p99_s)):
        exact = np.quantile(each, share, method="inverted_cdf")
        assert got is not None and exact <= got <= exact * 1.0121


def test_lost_tuples_are_later_than_any() -> None:
    kept = Distribution()
    kept.add([0.001] * 98)
    assert kept.quantile(0.98, missing=2) is not None
    assert kept.quantile(0.99, missing=2) is None
    assert Distribution().durations(missing=5) is None


def test_times_outside_of_the_bins_are_kept() -> None:
    kept = Distribution()
    kept.add([-1e-6, 0.0, 5000.0])
    assert kept.quantile(0.5) == pytest.approx(1e-7)
    assert kept.quantile(1.0) == kept.worst_s == 5000.0


MS = 1_000_000


def recorded(*answers: tuple[int, ...], clock_ns: int = 0) -> Recording:
    """A recording with answers as (number, tuples, sent, transit, back); times in milliseconds."""
    flat = array("q")
    for number, tuples, sent, transit, back in answers:
        arrived = (sent + transit) * MS + clock_ns
        flat.extend((number, tuples, sent * MS, arrived, arrived, arrived + MS, *([back * MS] * 2)))
    total = sum(answer[1] for answer in answers)
    counts = Counts(total, len(answers), 0, 0, 0, 0.0)
    return Recording(
        duration_s=1.0, offered=total, sent=total, packets=len(answers), answers=flat, counts=counts
    )


@pytest.mark.parametrize("clock_ns", [0, -(10**16)])
def test_jitter_and_throughput_do_not_depend_on_the_clock_of_the_server(clock_ns: int) -> None:
    seen = recorded(
        (2, 1, 300, 12, 330), (0, 5, 100, 10, 130), (1, 1, 200, 17, 230), (4, 1, 500, 90, 600),
        clock_ns=clock_ns,
    )  # fmt: skip
    found = tally(seen, "udp", one_machine=clock_ns == 0).figures()
    assert found.jitter is not None
    assert (found.jitter.count, found.jitter.worst_s) == (2, 0.007), "packet 3 is missing"
    assert found.jitter.mean_s == pytest.approx(0.006)
    assert found.carried_per_s == pytest.approx(3 / 0.480)
    assert (found.one_way is None) == (clock_ns != 0)
    assert found.delay is not None and found.delay.worst_s == pytest.approx(0.1)


def test_the_time_at_the_server_is_not_the_networks() -> None:
    seen = recorded((0, 1, 100, 5, 120), clock_ns=-(10**16))
    seen.pings = array("q", seen.answers)
    found = tally(seen, "udp", one_machine=False).figures()
    assert found.network is not None and found.delay is not None and found.held is not None
    assert found.delay.worst_s == pytest.approx(0.020)
    assert found.held.worst_s == pytest.approx(0.001)
    assert found.network.worst_s == pytest.approx(0.019)


def test_what_a_full_socket_dropped_was_not_lost_by_the_network() -> None:
    whole = Tally(
        "udp", packets=100, packets_received=80, packets_answered=70, dropped_there=15,
        dropped_back=10,
    )  # fmt: skip
    found = whole.figures()
    assert (found.lost_there, found.lost_back, found.loss) == (5, 0, 0.05)


def stream(
    rate: float,
    over: Transport = "tcp",
    p99_s: float | None = 0.012,
    **changes: object,
) -> Stream:
    sent = int(10 * rate)
    delay = Durations(sent, 0.008, 0.008, 0.010, p99_s, 0.050)
    figures = StreamFigures(
        duration_s=10.0, offered=sent, skipped=0, refused=0, sent=sent, received=sent,
        answered=sent, carried_per_s=rate, delay=delay, network=replace(delay, p50_s=0.006),
        one_way=None, jitter=replace(delay, mean_s=2.5e-6), held=None, lateness=None, packets=sent,
        lost_there=None, lost_back=None, dropped_there=None, dropped_back=None, out_of_order=None,
        duplicates=None, resent_share=0.0, sender_cpu=0.2, server_cpu=0.2, throttled_s=0.0,
    )  # fmt: skip
    return Stream(over, rate, replace(figures, **changes), 10, 0.01, 1)  # type: ignore[arg-type]


def result(*streams: Stream, **changes: object) -> ProbeResult:
    moments = tuple(
        Moment(s.transport, s.rate_per_s, 10.0 * n, s.figures) for n, s in enumerate(streams)
    )
    made = ProbeResult(
        "10.0.0.7:9470", "2026-01-01T00:00:00+00:00", 60.0, 60.0, 100, False, True, streams,
        moments, (Outlier(3.0, "tcp", 100.0, 0.05),), 0.0,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def test_the_verdict_is_the_highest_rate_that_was_carried() -> None:
    found = result(stream(100.0), stream(40_000.0, p99_s=0.01151), stream(1000.0))
    assert verdict(found) == (
        "This path carries 40,000 tuples/s over TCP with 99 % under 12 ms, there and back. "
        "Higher rates were not tried."
    )
    assert probe_page(found).html().count("<svg") == 5


@pytest.mark.parametrize(
    ("changes", "limit", "sentence"),
    [
        ({"skipped": 4000, "throttled_s": 2.0}, "sender",
         "At 1,000 tuples/s the sender itself sent only 600/s, because it reached its limit of CPU "
         "time for 2 s; this is not the limit of the path."),
        ({"skipped": 4000}, "sender",
         "At 1,000 tuples/s the sender itself sent only 600/s, because it was not scheduled in "
         "time; this is not the limit of the path."),
        ({"carried_per_s": 400.0}, "path", "At 1,000 tuples/s it carried 400/s."),
        ({"carried_per_s": 400.0, "server_cpu": 0.98}, "server",
         "At 1,000 tuples/s one of the two processes was too slow (the server used 98% of a core, "
         "0 packets were dropped at full sockets); this is not the limit of the path."),
        ({"p99_s": None, "answered": 9500}, "path", "At 1,000 tuples/s 95.0% were answered."),
        ({"delay": None, "answered": 0, "carried_per_s": None}, "path",
         "At 1,000 tuples/s nothing came through."),
        ({"p99_s": None, "answered": 9500, "dropped_there": 500}, "server",
         "At 1,000 tuples/s one of the two processes was too slow (the server used 20% of a core, "
         "500 packets were dropped at full sockets); this is not the limit of the path."),
    ],
)  # fmt: skip
def test_the_verdict_says_whose_limit_was_reached(
    changes: dict[str, object], limit: str, sentence: str
) -> None:
    slow = stream(1000.0, **changes)  # type: ignore[arg-type]
    assert judge(slow).limit == limit
    assert (
        verdict(result(stream(100.0), slow))
        == ("This path carries 100 tuples/s over TCP with 99 % under 12 ms, there and back. ")
        + sentence
    )
    alone = verdict(result(slow))
    none = "This path carried none of the rates: at 1,000 tuples/s "
    assert alone.startswith(
        none if limit == "path" else "Nothing is known about this path: at 1,000"
    )


def test_notes_say_how_to_read_the_figures() -> None:
    silent = stream(100.0, "udp", delay=None, answered=0, network=None)
    found = result(
        silent, stream(100.0), outage_s=4.0, measured_s=30.0, kernel_times=False,
        moments=(Moment("tcp", 100.0, 0.0, None, "Connection refused"),),
    )  # fmt: skip
    said = " ".join(notes(found))
    assert "so delays are round trips" in said
    assert "includes the scheduling of the processes" in said
    assert "a firewall may drop UDP" in said
    assert "The network makes up 75% of the application-level round trip at 100 tuples/s" in said
    assert "There was no connection for 4 s (Connection refused)" in said
    assert "stopped after 30 s of 1 min" in said
    assert "share its clock" in " ".join(notes(replace(found, one_machine=True)))
    assert probe_page(found).html(), "missing figures leave gaps"


def test_a_result_can_be_read_again() -> None:
    found = result(stream(100.0), stream(50.0, "udp"))
    assert from_json(ProbeResult, to_json(found)) == found


def test_a_rate_that_was_not_kept_has_a_star() -> None:
    rows = stream_rows(result(stream(100.0, skipped=900), stream(1000.0)))
    assert [row[2] for row in rows] == ["100 *", "1,000"]
