"""A page about one path: the verdict, and Figs. 2 to 4 of Cerviño et al. drawn for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tidegate.probe.results import Durations, Moment, ProbeResult, Stream, Transport
from tidegate.probe.verdict import judge, notes, preferred, verdict
from tidegate.report.charts import Series, bars, lines, time_unit
from tidegate.report.page import Page
from tidegate.units import show_duration

__all__ = ["COLUMNS", "probe_page", "stream_rows"]

COLUMNS = (
    "over", "tuples/s", "carried/s", "lost", "network p50", "delay p50 · p99 · worst",
    "jitter mean · p99",
)  # fmt: skip
_UNITS = ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (float("inf"), 1.0, "s"))


def stream_rows(result: ProbeResult) -> list[tuple[str, ...]]:
    """A row of text for each stream, under `COLUMNS`."""
    rows: list[tuple[str, ...]] = []
    for stream in result.streams:
        figures = stream.figures
        mark = " *" if judge(stream).limit in ("sender", "server") else ""
        rows.append(
            (
                stream.transport.upper(),
                f"{stream.rate_per_s:,.10g}",
                ("–" if figures.carried_per_s is None else f"{figures.carried_per_s:,.0f}") + mark,
                "–" if figures.loss is None else f"{figures.loss:.2%}",
                _shown(figures.network, "p50_s"),
                _shown(figures.delay, "p50_s", "p99_s", "worst_s"),
                _shown(figures.jitter, "mean_s", "p99_s"),
            )
        )
    return rows


def _shown(durations: Durations | None, *names: str) -> str:
    """Durations of a distribution as text; ``lost`` for a percentile that was never answered."""
    if durations is None:
        return "–"
    values = [getattr(durations, name) for name in names]
    return " · ".join("lost" if value is None else show_duration(value) for value in values)


def probe_page(result: ProbeResult) -> Page:
    """A page with the verdict, the three figures, all streams and the longest delays."""
    page = Page(f"What does the path to {result.address} carry?", verdict(result))
    page.text(
        f"Measured from {result.started} for {show_duration(result.measured_s)} with tuples of "
        f"{result.tuple_bytes} bytes. " + " ".join(notes(result))
    )
    page.section(
        "Streams",
        "Carried: tuples per second that arrived. Network: round trip of small datagrams by the "
        "kernels' time stamps. Delay: round trip of tuples from process to process; lost tuples "
        "count as longer than any. A star marks a rate that the sender or the server could not "
        "keep up with, which says nothing about the path.",
    )
    page.table(COLUMNS, stream_rows(result))
    resent = [
        f"{stream.figures.resent_share:.2%} at {stream.rate_per_s:,.10g} tuples/s"
        for stream in result.streams
        if stream.figures.resent_share is not None
    ]
    if resent:
        page.text(
            f"TCP sends again what is lost. Segments that it sent again: {', '.join(resent)}."
        )
    _jitter(page, result)
    _delays(page, result)
    _over_time(page, result)
    _longest(page, result)
    return page


def _jitter(page: Page, result: ProbeResult) -> None:
    page.section(
        "Jitter by stream rate (Fig. 2)",
        "Mean change of the transit time from one packet to the next. Over UDP by the time stamps "
        "of the server's kernel, over TCP when its process reads the stream.",
    )
    shown = [(f"over {over.upper()}", over, _mean_jitter_s) for over in _transports(result)]
    page.picture(_by_rate(result, shown, "Mean jitter"))


def _delays(page: Page, result: ProbeResult) -> None:
    page.section(
        "Network- and application-level delay (Fig. 3)",
        "Medians of round trips. The paper measures the network by ICMP; here small datagrams go "
        "through the same port as the stream, and the time at the server is subtracted.",
    )
    series = []
    for over in _transports(result):
        series += [
            (f"network, {over.upper()}", over, _median_network_s),
            (f"application, {over.upper()}", over, _median_delay_s),
        ]
    page.picture(_by_rate(result, series, "Median round trip"))


def _mean_jitter_s(stream: Stream) -> float | None:
    return None if stream.figures.jitter is None else stream.figures.jitter.mean_s


def _median_network_s(stream: Stream) -> float | None:
    return None if stream.figures.network is None else stream.figures.network.p50_s


def _median_delay_s(stream: Stream) -> float | None:
    return None if stream.figures.delay is None else stream.figures.delay.p50_s


def _over_time(page: Page, result: ProbeResult) -> None:
    """Throughput and latency over time, of the fastest stream that was carried."""
    streams = preferred(result)
    chosen = next((s for s in reversed(streams) if judge(s).limit == "none"), streams[-1])
    name = f"{chosen.rate_per_s:,.10g} tuples/s over {chosen.transport.upper()}"
    text = f"The stream of {name}, one point for each of its {chosen.moments} moments."
    if chosen.carried_cv is not None:
        text += f" Its throughput varies by {chosen.carried_cv:.2%} (coefficient of variation)."
    if chosen.outlying is not None:
        text += (
            f" The 99th percentile of delay is an outlier in {chosen.outlying} of them (more than "
            "three interquartile ranges above the third quartile)."
        )
    page.section("Throughput and latency over time (Fig. 4)", text)
    per_unit_s, unit = time_unit(result.measured_s)
    moments = [
        m for m in result.moments
        if (m.transport, m.rate_per_s) == (chosen.transport, chosen.rate_per_s)
    ]  # fmt: skip
    x = [m.at_s / per_unit_s for m in moments]
    marks = [
        (m.at_s / per_unit_s, f"no connection: {m.failed}") for m in result.moments if m.failed
    ]
    axis = f"time since {result.started}, {unit}"
    carried = [None if m.figures is None else m.figures.carried_per_s for m in moments]
    page.picture(lines([Series("carried", x, carried)], "Throughput", axis, "tuples/s", marks))
    percentiles = [("p50", "p50_s"), ("p99", "p99_s"), ("worst", "worst_s")]
    values = {label: [_delay_s(m, name) for m in moments] for label, name in percentiles}
    scale, shown = _unit(v for label in ("p50", "p99") for v in values[label])
    page.picture(
        lines(
            [Series(label, x, _scaled(values[label], scale)) for label in ("p50", "p99")],
            "Application-level round trip", axis, shown, marks,
        ),
        "A gap is a moment without a connection, or one in which more was lost than the "
        "percentile leaves.",
    )  # fmt: skip
    scale, shown = _unit(values["worst"])
    page.picture(
        lines([Series("worst", x, _scaled(values["worst"], scale))],
              "Longest application-level round trip", axis, shown, marks)
    )  # fmt: skip


def _longest(page: Page, result: ProbeResult) -> None:
    page.section("Longest delays", "Application-level round trips; at most three of a moment.")
    page.table(
        ["after", "over", "tuples/s", "delay"],
        [
            [show_duration(o.at_s), o.transport.upper(), f"{o.rate_per_s:,.10g}",
             show_duration(o.delay_s)]
            for o in result.outliers
        ],
    )  # fmt: skip


def _transports(result: ProbeResult) -> list[Transport]:
    return [over for over in ("udp", "tcp") if any(s.transport == over for s in result.streams)]


def _by_rate(
    result: ProbeResult,
    series: Sequence[tuple[str, Transport, Callable[[Stream], float | None]]],
    title: str,
) -> str:
    """Groups of bars, one group for each rate. series: name, transport and figure of the bars."""
    rates = sorted({stream.rate_per_s for stream in result.streams})
    by_key = {(stream.transport, stream.rate_per_s): stream for stream in result.streams}
    values = []
    for name, over, figure in series:
        found = [by_key.get((over, rate)) for rate in rates]
        values.append((name, [None if stream is None else figure(stream) for stream in found]))
    scale, unit = _unit(v for _, row in values for v in row)
    groups = [f"{rate:,.10g} tuples/s" for rate in rates]
    return bars(groups, [(name, _scaled(row, scale)) for name, row in values], title, unit)


def _delay_s(moment: Moment, name: str) -> float | None:
    if moment.figures is None or moment.figures.delay is None:
        return None
    found: float | None = getattr(moment.figures.delay, name)
    return found


def _unit(values: Iterable[float | None]) -> tuple[float, str]:
    """The factor and the name of the unit in which the largest value reads well."""
    largest = max((value for value in values if value is not None), default=0.0)
    return next((scale, name) for below, scale, name in _UNITS if largest < below)


def _scaled(values: Iterable[float | None], scale: float) -> list[float | None]:
    return [None if value is None else value * scale for value in values]
