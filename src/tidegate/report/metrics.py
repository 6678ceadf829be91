"""Prometheus metrics of an autoscaler: fed with turns, read by a scraper.

::

    metrics = Metrics(slo_s=5)
    with serve_metrics(metrics, port=9464), Autoscaler(spark, slo="5s", on_turn=metrics.observe):
        query.awaitTermination()

A value that was not measured is absent, never zero. Spark exports its own metrics (memory, garbage
collection, shuffles): see ``spark.ui.prometheus.enabled``.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from tidegate import __version__
from tidegate.codec import Value
from tidegate.credentials import secret_from
from tidegate.errors import InputError
from tidegate.listening import Listening, read_address
from tidegate.loop.billing import Bill
from tidegate.loop.journal import Turn
from tidegate.model import Snapshot
from tidegate.report.points import points_of
from tidegate.report.queries import FirstBatches, first_delay
from tidegate.report.query_metrics import QUERY_METRICS, Histogram, QueryMetrics, Values
from tidegate.report.query_metrics import Metric as _Kind
from tidegate.report.summary import (
    MOST_INTERVALS,
    capacity_of,
    decisions_of,
    latency_points,
    rate_of,
    slo_of,
)

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["METRICS", "Metrics", "ServedMetrics", "serve_metrics", "serve_metrics_on"]

log = logging.getLogger(__name__)

REQUEST_S = 5.0
"""Longest time for a request, from its first byte to the last of the answer, in seconds."""
MOST_REQUESTS = 16
"""Requests at the same time; more are refused."""
PREFIX = "--metrics-"
"""How the options for the address of the metrics begin."""
TOKEN_VARIABLE = "TIDEGATE_METRICS_TOKEN"
"""The environment variable with the token, unless a file has it."""


METRICS = {
    "tidegate_build_info": _Kind("gauge", "Always 1; the version is its label.", ("version",)),
    "tidegate_executors_target": _Kind("gauge", "Planned executors, after all guards."),
    "tidegate_executors_raw_target": _Kind(
        "gauge", "Executors that the policy targets, before any guard."
    ),
    "tidegate_executors_running": _Kind("gauge", "Running executors."),
    "tidegate_executors_leased": _Kind(
        "gauge", "Executors that are paid for: running, starting or draining."
    ),
    "tidegate_input_items_per_second": _Kind("gauge", "Input from outside."),
    "tidegate_capacity_items_per_second": _Kind(
        "gauge", "Input that the running executors can process."
    ),
    "tidegate_lag_items": _Kind("gauge", "Items waiting at an operator.", ("operator",)),
    "tidegate_operator_input_items_per_second": _Kind(
        "gauge", "Arrivals at an operator.", ("operator",)
    ),
    "tidegate_operator_service_seconds": _Kind(
        "gauge", "Mean service time of an item.", ("operator",)
    ),
    "tidegate_operator_instances": _Kind(
        "gauge", "Requested instances of an operator.", ("operator",)
    ),
    "tidegate_host_utilisation_ratio": _Kind("gauge", "Share of a host's CPU in use.", ("host",)),
    "tidegate_latency_seconds": _Kind(
        "histogram",
        "End-to-end latency, estimated from the percentiles of each turn; lower bounds count at "
        "their value.",
    ),
    "tidegate_event_age_p95_seconds": _Kind(
        "gauge", "95th percentile of the items' age by their own time stamps at their results."
    ),
    "tidegate_slo_seconds": _Kind("gauge", "Latency target of queries without their own."),
    "tidegate_predicted_latency_seconds": _Kind(
        "gauge", "Mean end-to-end latency predicted by the last plan."
    ),
    "tidegate_shed_ratio": _Kind("gauge", "Share of the input dropped by load shedding."),
    "tidegate_cost_usd_total": _Kind(
        "counter", "Cost of the hosts since the first turn, by started billing unit."
    ),
    "tidegate_cost_usd_per_hour": _Kind("gauge", "Price of the leased hosts per hour."),
    "tidegate_decisions_total": _Kind(
        "counter",
        "Turns that changed the executors, or tried to.",
        ("policy", "direction", "reason"),
    ),
    "tidegate_guard_bindings_total": _Kind(
        "counter", "Turns in which a guard changed the plan.", ("guard",)
    ),
    "tidegate_turns_total": _Kind("counter", "Turns of the control loop."),
    "tidegate_errors_total": _Kind("counter", "Turns that failed; the stream continued."),
    "tidegate_last_turn_timestamp_seconds": _Kind("gauge", "Unix time of the last turn."),
    "tidegate_staleness_seconds": _Kind(
        "gauge", "Age of the last turn with a snapshot; grows while the loop stands still."
    ),
    **QUERY_METRICS,
}
"""All metrics: kind, help and labels. The reference documentation is generated from this."""


class Metrics:
    """The state of the metrics; it may be fed and read from any thread.

    slo_s: latency target, in seconds; None for the target in the turns. clock: Unix seconds.

    >>> from tidegate.testing import steady_snapshot
    >>> metrics = Metrics(slo_s=5, clock=lambda: 12.0)
    >>> metrics.observe(Turn(1, "static", steady_snapshot()))
    >>> [line for line in metrics.text().decode().splitlines() if line.startswith("tidegate_turns")]
    ['tidegate_turns_total 1.0']
    """

    def __init__(self, slo_s: float | None = None, clock: Callable[[], float] = time.time) -> None:
        self.slo_s = slo_s
        self._clock = clock
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._last: Turn | None = None
        self._seen_s: float | None = None
        self._turns = self._errors = 0
        self._decisions: Counter[tuple[str, ...]] = Counter()
        self._bindings: Counter[tuple[str, ...]] = Counter()
        self._bill = Bill()
        self._cost_usd = 0.0
        self._latency = Histogram()
        self._queries = QueryMetrics()
        self._firsts = FirstBatches()

    def begin_again(self) -> None:
        """Forget all turns, as after a restart: counters start from zero."""
        with self._lock:
            self._clear()

    def observe(self, turn: Turn) -> None:
        """Take in a turn; suitable as `on_turn` of an `Autoscaler`."""
        with self._lock:
            self._turns += 1
            self._errors += turn.error is not None
            if turn.snapshot is None:
                return
            before = self._last.snapshot if self._last else None
            self._last, self._seen_s = turn, self._clock()
            for decision in decisions_of([turn]):
                change = decision.wanted - decision.before
                direction = "up" if change > 0 else "down" if change < 0 else "none"
                codes = [reason.code for reason in turn.plan.reasons] if turn.plan else []
                # The description of the stack would be a new series for each setting of a guard.
                policy = turn.policy.split("(")[0].split(" ")[0]
                self._decisions[policy, direction, codes[0] if codes else "none"] += 1
            for binding in turn.plan.bindings if turn.plan else ():
                self._bindings[(binding.guard,)] += 1
            self._bill.add(turn)
            # A counter must not fall: a host that is lost early is billed for less than foreseen.
            self._cost_usd = max(self._cost_usd, self._bill.cost_usd())
            span_s = 0.0 if before is None else _span_s(turn.snapshot, before)
            self._latency.add(latency_points(turn.snapshot, span_s))
            for name, first in self._firsts.new(turn.snapshot).items():
                if name in turn.snapshot.topology.entries:
                    self._latency.add(points_of(first_delay(first), first.rows))
            self._queries.add(turn, span_s, self._slo_s(turn))

    def _slo_s(self, turn: Turn) -> float | None:
        return slo_of(turn) if self.slo_s is None else self.slo_s

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that the registry does not collect at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as the Prometheus client expects them."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        with self._lock:
            values = self._values()
            histograms: dict[str, dict[tuple[str, ...], Histogram]] = {
                "tidegate_latency_seconds": {(): self._latency.copy()},
                "tidegate_query_delay_seconds": {
                    (name,): delays.copy() for name, delays in self._queries.delays.items()
                },
            }
        for name, (kind, text, labels) in METRICS.items():
            if kind == "histogram":
                shown = HistogramMetricFamily(name, text, labels=labels)
                for key, found in histograms[name].items():
                    shown.add_metric(key, found.buckets, found.total_s)
                yield shown
                continue
            family = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            metric = family(name, text, labels=labels)
            for key, value in values.get(name, {}).items():
                if value is not None:
                    metric.add_metric(key, value)
            yield metric

    def _values(self) -> dict[str, Values]:
        """Return values by metric and labels; None if not measured."""
        found: dict[str, Values] = {
            "build_info": {(__version__,): 1.0},
            "turns_total": {(): float(self._turns)},
            "errors_total": {(): float(self._errors)},
            "decisions_total": {key: float(n) for key, n in self._decisions.items()},
            "guard_bindings_total": {key: float(n) for key, n in self._bindings.items()},
        }
        turn, seen_s = self._last, self._seen_s
        if turn is not None and turn.snapshot is not None and seen_s is not None:
            found |= _of_turn(turn, turn.snapshot)
            found |= self._queries.values(turn.snapshot, self._slo_s(turn))
            found["slo_seconds"] = {(): self._slo_s(turn)}
            found["event_age_p95_seconds"] = {(): turn.snapshot.event_age.p95_s}
            found["cost_usd_total"] = {(): self._cost_usd}
            found["last_turn_timestamp_seconds"] = {(): seen_s}
            found["staleness_seconds"] = {(): self._clock() - seen_s}
        return {f"tidegate_{name}": values for name, values in found.items()}


def _span_s(now: Snapshot, before: Snapshot) -> float:
    """Return the seconds for which a snapshot stands: since the one before, or one interval."""
    span_s = max(0.0, now.time_s - before.time_s)
    if now.interval_s and span_s > MOST_INTERVALS * now.interval_s:
        return now.interval_s  # nobody watched in between
    return span_s


def _of_turn(turn: Turn, now: Snapshot) -> dict[str, Values]:
    plan, counts = turn.plan, now.requested.counts
    operators = {(name,): reading for name, reading in now.reading.items()}
    return {
        "executors_target": {(): plan.bounded_target if plan else None},
        "executors_raw_target": {(): plan.raw_target if plan else None},
        "executors_running": {(): len(now.running_hosts)},
        "executors_leased": {(): len(now.hosts)},
        "input_items_per_second": {(): rate_of(now)},
        "capacity_items_per_second": {(): capacity_of(now)},
        "lag_items": {key: reading.queue_length for key, reading in operators.items()},
        "operator_input_items_per_second": {
            key: reading.arrival_rate_per_s for key, reading in operators.items()
        },
        "operator_service_seconds": {
            key: reading.service_time_s for key, reading in operators.items()
        },
        "operator_instances": {(o.name,): counts[o.name] for o in now.topology.operators},
        "host_utilisation_ratio": {(host.id,): host.utilisation for host in now.hosts},
        "predicted_latency_seconds": {(): plan.predicted.sojourn_s if plan else None},
        "shed_ratio": {(): plan.shed_fraction if plan else None},
        "cost_usd_per_hour": {(): len(now.hosts) * now.offer.usd_per_h},
    }


@dataclass(frozen=True, slots=True)
class ServedMetrics(Value):
    """Where metrics are served, as it is sent to a driver: no secret is part of it.

    Args:
        address: ``HOST:PORT``; empty: metrics are not served.
        token_file: File with the token that scrapers send; empty: the environment variable
            ``TIDEGATE_METRICS_TOKEN``, if it is set.
        certificate: PEM file with a certificate, for TLS; empty: none.
        key: PEM file with its key; empty: it is in the file of the certificate.
    """

    address: str = ""
    token_file: str = ""
    certificate: str = ""
    key: str = ""

    def check(self) -> None:
        """Raise InputError for an address that is missing or wrong.

        Files and variables are not looked at, since they are those of the machine that serves.
        """
        if self.address:
            read_address(self.address, f"{PREFIX}address")
            return
        for name, value in (("token-file", self.token_file), ("certificate", self.certificate)):
            if value:
                remedy = f"give a {PREFIX}address too"
                raise InputError(f"{PREFIX}{name}", value, "left out", remedy)

    def listening(self) -> Listening | None:
        """The address with its token, None if there is none; raises InputError."""
        self.check()
        if not self.address:
            return None
        host, port = read_address(self.address, f"{PREFIX}address")
        token = secret_from(self.token_file, TOKEN_VARIABLE, f"{PREFIX}token-file")
        certificate, key = self.certificate or None, self.key or None
        return Listening(host, port, token, certificate, key, prefix=PREFIX)


@contextmanager
def serve_metrics(
    metrics: Metrics,
    port: int = 9464,
    host: str = "127.0.0.1",
    token: str | None = None,
    certificate: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    *,
    prefix: str = PREFIX,
) -> Iterator[str]:
    """Serve ``/metrics`` in threads while the block runs; yields its address.

    A scraper that is slow or sends half a request delays neither the others nor the end.

    Args:
        metrics: What is served.
        port: 0 for any free port.
        host: An address other than loopback requires a token.
        token: At least 12 characters that scrapers send as ``Authorization: Bearer …``.
        certificate: PEM file with a certificate, for TLS; a renewed file is noticed.
        key: PEM file with its key; None: it is in the file of the certificate.
        prefix: How the options begin that errors name.
    """
    at = Listening(host, port, token, certificate, key, prefix=prefix)
    server = _serve(metrics, at)
    try:
        yield server.address
    finally:
        server.shutdown()
        server.server_close()


def serve_metrics_on(metrics: Metrics, at: Listening) -> str:
    """Serve ``/metrics`` until the process ends; returns its address. See `serve_metrics`."""
    return _serve(metrics, at).address


def _serve(metrics: Metrics, at: Listening) -> _Server:
    from prometheus_client import CONTENT_TYPE_LATEST

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        if not at.is_named(environ.get("HTTP_HOST", at.shown_host)):
            start("421 Misdirected Request", [("Content-Type", "text/plain")])
            return [b"these metrics can be read at localhost and 127.0.0.1 only\n"]
        if not at.admits(environ.get("HTTP_AUTHORIZATION", "")):
            start("401 Unauthorized", [("WWW-Authenticate", "Bearer")])
            return [b"a token is required\n"]
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            start("405 Method Not Allowed", [("Allow", "GET, HEAD")])
            return [b"use GET\n"]
        if environ.get("PATH_INFO") not in ("/", "/metrics"):
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"not found: use /metrics\n"]
        start("200 OK", [("Content-Type", CONTENT_TYPE_LATEST)])
        return [metrics.text()]

    try:
        server = _Server(at, answer)
    except OSError as error:
        remedy = "choose another, or port 0 for any free port"
        allowed = f"a free port ({error.strerror})"
        where = f"{at.shown_host}:{at.port}"
        raise InputError(f"{at.prefix}port", where, allowed, remedy) from None
    at.warn_if_readable("metrics")
    threading.Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True).start()
    return server


class _Request(WSGIRequestHandler):
    """A request, which must be sent and answered within `REQUEST_S` seconds."""

    timeout = REQUEST_S

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: one line per scrape would drown everything else."""


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each request in a separate thread, which does not keep the process from ending."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, at: Listening, answer: Callable[..., Any]) -> None:
        self.address_family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
        self._free = threading.BoundedSemaphore(MOST_REQUESTS)
        self._tls = at.tls()
        super().__init__((at.host, at.port), _Request)
        self.set_app(answer)
        self.address = f"{at.scheme}://{at.shown_host}:{self.server_port}/metrics"

    def server_bind(self) -> None:
        """Bind without asking for the name of the host, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a request, or refuse it if too many are under way."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a request in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer a request in its time, the handshake of TLS included."""
        late = threading.Timer(REQUEST_S, _hang_up, (request,))  # for one that comes byte by byte
        late.daemon = True
        late.start()
        try:
            if self._tls is None:
                super().finish_request(request, client_address)
                return
            # A duplicate: the timer holds the socket itself, which TLS would take away from it.
            with request.dup() as lower:
                lower.settimeout(REQUEST_S)
                with self._tls.wrap_socket(lower, server_side=True) as secure:
                    super().finish_request(secure, client_address)
        finally:
            late.cancel()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing on the application's terminal: the scraper has gone or was too slow."""
        log.debug("a request for metrics failed", exc_info=True)


def _hang_up(request: socket.socket) -> None:
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)
