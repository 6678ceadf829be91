"""Metrics: what is exported is what the turns say, and what was not measured is absent."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.certificates import self_signed
from tests.report.queries import SLOS_S, many_queries, reading
from tidegate.cli.metrics import follow
from tidegate.errors import InputError
from tidegate.lifecycle import wait_until
from tidegate.loop.backend import Outcome
from tidegate.loop.journal import Journal, Turn
from tidegate.model import Binding, Deployment, FirstBatch, Latency, Plan, Reason, Snapshot
from tidegate.model.steps import Step
from tidegate.report.metrics import METRICS, Metrics, serve_metrics
from tidegate.testing import steady_snapshot

ROOT = Path(__file__).parents[2]
TOKEN = "tide-and-gate-and-tide"
STACK = "drs(t_max_s=3.5) → stabilisation(down_s=60) → bounds(max_hosts=2)"


def turn(number: int, snapshot: Snapshot, error: str | None = None) -> Turn:
    hosts = tuple(host.id for host in snapshot.hosts)
    plan = Plan(
        deployment=Deployment((*hosts, "new")),
        reasons=(Reason("bound", "it takes too long"),),
        raw=Deployment((*hosts, "new", "newer")),
        bindings=(Binding("bounds", len(hosts) + 2, len(hosts) + 1, "at most"),),
    )
    return Turn(number, STACK, snapshot, plan, Outcome((Step("lease", host="new"),)), error=error)


def values(metrics: Metrics) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def test_a_turn_shows_with_its_decision_guard_and_cost() -> None:
    latency = Latency(p50_s=1.0, p95_s=4.0, p99_s=6.0)
    first = replace(steady_snapshot(), latency=latency)
    later = replace(first, time_s=first.time_s + 10)
    metrics = Metrics(slo_s=5.0, clock=lambda: 1000.0)
    metrics.observe(turn(1, first))
    metrics.observe(turn(2, later))
    metrics.observe(Turn(3, STACK, error="BackendError: gone"))
    found = values(metrics)
    hosts = len(first.hosts)
    assert found["tidegate_executors_target",] == hosts + 1
    assert found["tidegate_executors_raw_target",] == hosts + 2
    assert found["tidegate_executors_running",] == len(first.running_hosts)
    assert found["tidegate_decisions_total", "up", "drs", "bound"] == 2
    assert found["tidegate_guard_bindings_total", "bounds"] == 2
    assert found["tidegate_turns_total",] == 3
    assert found["tidegate_errors_total",] == 1
    assert found["tidegate_staleness_seconds",] == 0
    total = found["tidegate_latency_seconds_count",]
    within = found["tidegate_latency_seconds_bucket", "5.0"] / total
    assert total > 0
    assert 0.95 < within < 1, "p95 is below five seconds and p99 above"


def test_what_was_not_measured_is_absent() -> None:
    metrics = Metrics()
    blind = replace(
        steady_snapshot(),
        operators=(),
        hosts=tuple(replace(host, utilisation=None) for host in steady_snapshot().hosts),
    )
    metrics.observe(Turn(1, STACK, blind))
    found = values(metrics)
    for name in ("lag_items", "input_items_per_second", "host_utilisation_ratio"):
        assert not any(key[0] == f"tidegate_{name}" for key in found), name
    assert found["tidegate_latency_seconds_count",] == 0


def test_every_query_has_its_own_slo_delay_and_cost() -> None:
    metrics = Metrics()
    for each in many_queries():
        metrics.observe(each)
    found = values(metrics)
    for name, slo_s in SLOS_S.items():
        assert found["tidegate_query_slo_seconds", name] == slo_s
    assert found["tidegate_query_event_age_p95_seconds", "alerts"] == 90
    assert found["tidegate_query_delay_p95_seconds", "alerts"] < 2
    assert found["tidegate_query_backlog_seconds", "sessions"] == 2.5
    assert found["tidegate_query_state_bytes", "sessions"] == 640e6
    assert found["tidegate_query_batch_fixed_work_seconds", "sessions"] == 20
    assert found["tidegate_query_cost_identified", "audit", "overhead"] == 1
    assert found["tidegate_query_cost_identified", "audit", "per_row"] == 0
    assert found["tidegate_query_admission_rows", "audit"] == 5000
    assert ("tidegate_query_admission_rows", "alerts") not in found
    assert found["tidegate_query_late_rows_total", "alerts"] == 0
    assert found["tidegate_query_rows_total", "dead-letter"] == 0
    assert ("tidegate_query_delay_p95_seconds", "dead-letter") not in found


def test_the_wait_for_a_source_is_a_metric_where_it_was_measured() -> None:
    first, *_ = many_queries()
    assert first.snapshot is not None
    readings = tuple(
        replace(one, source_wait_s=8.0) if one.operator == "sessions" else one
        for one in first.snapshot.operators
    )
    metrics = Metrics()
    metrics.observe(replace(first, snapshot=first.snapshot.with_operators(readings)))
    found = values(metrics)
    assert found["tidegate_query_source_wait_seconds", "sessions"] == 8
    assert ("tidegate_query_source_wait_seconds", "alerts") not in found


def test_an_overload_without_a_watermark_counts_in_the_histogram_and_as_late() -> None:
    first, *_ = many_queries()
    assert first.snapshot is not None
    late = reading("sessions", "sessions", 1.0, overloaded=True)
    metrics = Metrics()
    for n in range(3):
        now = replace(
            first.snapshot,
            time_s=10.0 * n,
            operators=(late,),
            latency=Latency(p50_s=44.0, at_least=True),
        )
        metrics.observe(Turn(n + 1, STACK, now))
    found = values(metrics)
    rows = 2 * 10 * (late.processed_per_s or 0)
    assert found["tidegate_query_rows_total", "sessions"] == pytest.approx(rows)
    assert found["tidegate_query_late_rows_total", "sessions"] == pytest.approx(rows)
    assert found["tidegate_query_delay_seconds_bucket", "30.0", "sessions"] == 0
    assert found["tidegate_query_delay_seconds_count", "sessions"] == pytest.approx(rows)
    assert found["tidegate_query_delay_is_lower_bound", "sessions"] == 1
    assert found["tidegate_latency_seconds_bucket", "30.0"] == 0
    assert found["tidegate_latency_seconds_count",] > 0


def test_rows_without_a_delay_are_counted_apart() -> None:
    metrics = Metrics()
    for each in many_queries(turns=6):
        assert each.snapshot is not None
        blind = tuple(replace(r, delay=Latency()) for r in each.snapshot.operators)
        metrics.observe(replace(each, snapshot=replace(each.snapshot, operators=blind)))
    found = values(metrics)
    assert found["tidegate_query_unmeasured_rows_total", "sessions"] > 0
    assert found["tidegate_query_rows_total", "sessions"] == 0


def test_rows_of_a_first_batch_count_once_with_its_duration_as_a_bound() -> None:
    metrics, before = Metrics(), Metrics()
    first = FirstBatch(1_000_000.0, 600.0, committed_s=25.0)
    for each in many_queries(1, turns=6, from_s=0.0):
        before.observe(each)
        assert each.snapshot is not None
        now = each.snapshot
        if now.time_s > first.committed_s:
            readings = tuple(replace(r, first_batch=first) for r in now.operators)
            now = replace(now, operators=readings)
        metrics.observe(replace(each, snapshot=now))
    old, new = values(before), values(metrics)
    for name in ("rows_total", "late_rows_total", "delay_seconds_count"):
        key = (f"tidegate_query_{name}", "alerts")
        assert new[key] - old[key] == pytest.approx(1_000_000), name
    every = ("tidegate_latency_seconds_count",)
    assert new[every] - old[every] == pytest.approx(1_000_000)
    key = ("tidegate_query_unmeasured_rows_total", "alerts")
    assert new[key] == old[key]


def test_a_time_without_turns_counts_as_one_interval() -> None:
    first, second = many_queries(1, turns=30)[9:11]
    assert second.snapshot is not None
    down = replace(second, snapshot=replace(second.snapshot, time_s=second.snapshot.time_s + 36e3))
    counts = []
    for after in (second, down):
        metrics = Metrics()
        metrics.observe(first)
        metrics.observe(after)
        counts.append(values(metrics)["tidegate_query_rows_total", "alerts"])
    assert counts[0] > 0 and counts[1] == pytest.approx(counts[0])


def test_staleness_grows_while_nobody_decides() -> None:
    now = iter([100.0, 160.0, 160.0])
    metrics = Metrics(clock=lambda: next(now))
    metrics.observe(turn(1, steady_snapshot()))
    assert values(metrics)["tidegate_staleness_seconds",] == 60


def test_every_metric_has_a_help_and_the_names_are_conventional() -> None:
    for name, (kind, text, labels) in METRICS.items():
        assert re.fullmatch(r"tidegate_[a-z0-9_]+", name)
        assert text.endswith(".")
        assert (kind == "counter") == name.endswith("_total")
        assert not set(labels) & {"le", "job", "instance"}, "these are Prometheus' own"


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    metrics = Metrics()
    metrics.observe(turn(1, steady_snapshot()))
    yield metrics


def test_it_serves_on_loopback_and_beyond_only_with_a_token(metrics: Metrics) -> None:
    with serve_metrics(metrics, port=0) as url, urlopen(url) as response:
        assert b"tidegate_turns_total 1.0" in response.read()
    with pytest.raises(InputError, match="token"), serve_metrics(metrics, 0, "0.0.0.0"):
        pass
    with serve_metrics(metrics, port=0, token=TOKEN) as url:
        with pytest.raises(HTTPError, match="401"):
            urlopen(url)
        with urlopen(Request(url, headers={"Authorization": f"Bearer {TOKEN}"})) as response:
            assert response.status == 200
        with pytest.raises(InputError, match="free port"):
            port = int(url.split(":")[2].split("/")[0])
            with serve_metrics(metrics, port):
                pass


def test_a_token_must_be_the_right_one(metrics: Metrics) -> None:
    with serve_metrics(metrics, port=0, token=TOKEN) as url:
        for given in (f"Bearer {TOKEN[1:]}", f"Bearer {TOKEN}s", TOKEN, f"Basic {TOKEN}", ""):
            with pytest.raises(HTTPError, match="401"):
                urlopen(Request(url, headers={"Authorization": given}))


def test_it_serves_with_tls_on_every_address(
    metrics: Metrics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair = self_signed(tmp_path)
    with serve_metrics(metrics, 0, "0.0.0.0", TOKEN, pair.certificate, pair.key) as url:
        port = url.split(":")[2].split("/")[0]
        assert url == f"https://0.0.0.0:{port}/metrics"
        here = f"https://127.0.0.1:{port}/metrics"
        trusting = ssl.create_default_context(cafile=str(pair.certificate))
        right = Request(here, headers={"Authorization": f"Bearer {TOKEN}"})
        with urlopen(right, context=trusting) as response:
            assert b"tidegate_turns_total 1.0" in response.read()
        with pytest.raises(HTTPError, match="401"):
            urlopen(here, context=trusting)
        with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urlopen(right, context=ssl.create_default_context())
        with pytest.raises((OSError, HTTPException)):
            urlopen(here.replace("https", "http"))
        with urlopen(right, context=trusting) as response:
            assert response.status == 200, "clients that went wrong disturb nobody"
    assert "without TLS" not in caplog.text


def test_half_a_handshake_delays_neither_scrapes_nor_the_end(
    metrics: Metrics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = self_signed(tmp_path)
    trusting = ssl.create_default_context(cafile=str(pair.certificate))
    with serve_metrics(metrics, 0, certificate=pair.certificate, key=pair.key) as url:
        port = int(url.split(":")[2].split("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as half:
            half.sendall(b"\x16\x03\x01")  # the beginning of a client's greeting
            with urlopen(url, context=trusting) as response:
                assert response.status == 200
    monkeypatch.setattr("tidegate.report.metrics.REQUEST_S", 0.2)
    with serve_metrics(metrics, 0, certificate=pair.certificate, key=pair.key) as url:
        port = int(url.split(":")[2].split("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as half:
            half.sendall(b"\x16\x03\x01")
            assert half.recv(1) == b"", "it is ended after its time"


def test_a_token_without_tls_is_served_with_a_warning(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    with serve_metrics(metrics, 0, "0.0.0.0", TOKEN) as url:
        request = Request(url.replace("0.0.0.0", "127.0.0.1"))
        request.add_header("Authorization", f"Bearer {TOKEN}")
        with urlopen(request) as response:
            assert response.status == 200
    assert "metrics on 0.0.0.0 are served without TLS" in caplog.text
    assert TOKEN not in caplog.text


def test_a_page_of_another_site_cannot_read_them_on_loopback(metrics: Metrics) -> None:
    with serve_metrics(metrics, port=0) as url:
        for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:9464"):
            with pytest.raises(HTTPError, match="421"):
                urlopen(Request(url, headers={"Host": host}))
        for host in ("localhost", "127.0.0.1:9464", "[::1]:9464"):
            with urlopen(Request(url, headers={"Host": host})) as response:
                assert response.status == 200
    with serve_metrics(metrics, 0, "0.0.0.0", TOKEN) as url:
        named = {"Host": "metrics.example", "Authorization": f"Bearer {TOKEN}"}
        here = url.replace("0.0.0.0", "127.0.0.1")
        with urlopen(Request(here, headers=named)) as response:
            assert response.status == 200


def test_only_reading_is_allowed(metrics: Metrics) -> None:
    with serve_metrics(metrics, port=0) as url:
        with pytest.raises(HTTPError, match="405"):
            urlopen(url, data=b"turns=9")
        with pytest.raises(HTTPError, match="404"):
            urlopen(url + "/secret")


def test_half_a_request_delays_neither_scrapes_nor_the_end(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.report.metrics.MOST_REQUESTS", 3)
    for limit in ("REQUEST_S", "_Request.timeout"):  # what helps is not that they end soon
        monkeypatch.setattr(f"tidegate.report.metrics.{limit}", 3600.0)
    halves = []
    others = set(threading.enumerate())

    def under_way() -> int:
        return sum("process_request" in t.name for t in set(threading.enumerate()) - others)

    serving = serve_metrics(metrics, port=0)
    ending = threading.Thread(target=serving.__exit__, args=(None, None, None), daemon=True)
    try:
        url = serving.__enter__()
        port = int(url.split(":")[2].split("/")[0])
        for _ in range(2):
            halves.append(socket.create_connection(("127.0.0.1", port)))
            halves[-1].sendall(b"GET /metrics HT")
        with urlopen(url, timeout=60) as response:
            assert response.status == 200
        # Its place is free a little after its answer has come.
        assert wait_until(lambda: under_way() == 2, 60.0)
        halves.append(socket.create_connection(("127.0.0.1", port)))
        halves[-1].sendall(b"GET /met")
        refused = socket.create_connection(("127.0.0.1", port))
        halves.append(refused)
        refused.settimeout(60)
        assert refused.recv(1) == b"", "there are too many"
        ending.start()
        ending.join(60)
        assert not ending.is_alive(), "three requests are not complete, and it ends"
    finally:
        for half in halves:
            half.close()


def test_half_a_request_does_not_keep_a_process_from_ending() -> None:
    code = (
        "import socket; from tidegate.report.metrics import Metrics, serve_metrics_on;"
        "from tidegate.listening import Listening;"
        "url = serve_metrics_on(Metrics(), Listening());"
        "port = int(url.split(':')[2].split('/')[0]);"
        "half = socket.create_connection(('127.0.0.1', port)); half.sendall(b'GET /metr');"
        "print(url)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=120)


def test_a_request_that_comes_byte_by_byte_is_ended(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.report.metrics.REQUEST_S", 0.2)
    with serve_metrics(metrics, port=0) as url:
        port = int(url.split(":")[2].split("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as slow:
            slow.sendall(b"GET")
            assert slow.recv(1) == b""


@pytest.mark.parametrize(
    "headers",
    [b"x: " + b"y" * 70_000 + b"\r\n", b"".join(b"x-%d: y\r\n" % n for n in range(101))],
    ids=["long", "many"],
)
def test_long_or_many_headers_are_refused_and_others_are_answered(
    headers: bytes, metrics: Metrics
) -> None:
    with serve_metrics(metrics, port=0) as url:
        port = int(url.split(":")[2].split("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as large:
            large.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n" + headers + b"\r\n")
            assert b" 431 " in large.makefile("rb").readline()
        with urlopen(url) as response:
            assert response.status == 200


def test_it_serves_on_the_other_loopback_too(metrics: Metrics) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6: {error}")
    with serve_metrics(metrics, port=0, host="::1") as url, urlopen(url) as response:
        assert url.startswith("http://[::1]:") and response.status == 200


def test_a_growing_journal_is_followed(tmp_path: Path) -> None:
    path, seen, ended = tmp_path / "journal.jsonl", Metrics(), threading.Event()
    with Journal(path) as journal:
        journal.write(replace(turn(1, steady_snapshot()), slo_s=5.0))
        reader = threading.Thread(target=follow, args=(path, seen, ended))
        reader.start()
        journal.write(replace(turn(2, steady_snapshot()), slo_s=5.0))
        with path.open("a") as file:
            file.write("no turn\n")
    ended.set()  # it looks once more before it ends
    reader.join()
    follow(path, again := Metrics(), ended)
    assert values(again)["tidegate_turns_total",] == 2
    assert values(again)["tidegate_slo_seconds",] == 5
    assert values(seen)["tidegate_turns_total",] >= 1


def expressions() -> list[str]:
    grafana = json.loads((ROOT / "deploy/grafana/tidegate.json").read_text())
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())
    return [target["expr"] for panel in grafana["panels"] for target in panel["targets"]] + [
        rule["expr"] for group in rules["groups"] for rule in group["rules"]
    ]


def test_grafana_and_alerts_ask_for_metrics_that_there_are() -> None:
    asked = {name for e in expressions() for name in re.findall(r"tidegate_[a-z0-9_]+", e)}
    assert len(asked) > 10
    known = set(METRICS) | {
        "tidegate_latency_seconds_bucket",
        "tidegate_query_delay_seconds_bucket",
    }
    assert asked <= known


def test_the_grafana_file_is_what_its_script_makes() -> None:
    script = "import runpy; print(runpy.run_path('scripts/grafana.py')['text'](), end='')"
    made = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert made.stdout == (ROOT / "deploy/grafana/tidegate.json").read_text()
