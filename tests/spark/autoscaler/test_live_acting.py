"""Requests and releases on a real cluster, through Spark's own cluster manager."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.spark.autoscaler.live import (
    Live,
    Obedient,
    Order,
    Stream,
    live,
    running,
    stream,
    until,
)
from tidegate.loop.journal import read_journal
from tidegate.spark import Autoscaler

pytestmark = pytest.mark.java

__all__ = ["live", "stream"]

QUICK: dict[str, Any] = {"slo": "5s", "interval": "1s", "stabilise": "1ms"}


def total_in_spark(live: Live) -> int | None:
    """The total that Spark would publish, None if nobody has requested any."""
    totals = live.spark.sparkContext._jsc.sc().schedulerBackend().getRequestedTotalExecutors()
    return None if totals.isEmpty() else int(totals.values().head())


def executors(autoscaler: Autoscaler) -> list[str]:
    """Ids of the executors that run and stay."""
    hosts = list(autoscaler.world.hosts.hosts.values())
    return [h.executor.id for h in hosts if h.status == "running" and h.executor is not None]


def test_the_total_comes_first_and_is_requested_again_when_it_was_forgotten(
    live: Live, stream: Stream
) -> None:
    live.cluster.lease("another")
    live.cluster.wait_for_host("another")
    stream.feed(2)
    order = Order(hosts=2)
    asked: list[tuple[str, int | None]] = []
    with Autoscaler(live.spark, policy=Obedient(order), journal=None, **QUICK) as autoscaler:
        gateway = autoscaler.gateway
        release = gateway.decommission

        def decommission(ids: Sequence[str], why: str) -> list[str]:
            asked.append(("before", total_in_spark(live)))
            leaving = release(ids, why)
            asked.append(("after", total_in_spark(live)))
            return leaving

        gateway.decommission = decommission  # type: ignore[method-assign]
        until("both hosts run", lambda: len(running(autoscaler)) == 2)
        assert total_in_spark(live) in (None, 2)
        until(
            "its two partitions of state are found",
            lambda: sum((gateway.state_partitions() or {}).values()) == 2,
        )
        order.hosts = 1
        until("one is released", lambda: asked)
        until("it is gone", lambda: len(gateway.executors()) == 1)
        assert asked == [("before", 1), ("after", 1)], "the release does not change the total"

        until("one is left", lambda: len(executors(autoscaler)) == 1)
        (first,) = executors(autoscaler)
        scala = live.spark.sparkContext._jsc.sc()
        jvm: Any = live.spark.sparkContext._jvm
        nobody = jvm.PythonUtils.toScalaMap({})
        assert scala.requestTotalExecutors(0, 0, nobody), "as a restarted application master does"
        for host in list(live.cluster.workers):
            for pid in live.executor_pids(host):
                os.kill(pid, signal.SIGKILL)
        until(
            "the lost executor is replaced",
            lambda: executors(autoscaler) not in ([], [first]) and total_in_spark(live) == 1,
        )
        stream.feed(2)
        stream.check()


def test_queries_of_other_sessions_are_seen_and_the_end_of_all_is_no_failure(
    live: Live, stream: Stream, tmp_path: Path
) -> None:
    elsewhere = live.spark.newSession()
    source = elsewhere.readStream.format("rate").option("rowsPerSecond", 20).load()
    journal = tmp_path / "journal.jsonl"
    with Autoscaler(live.spark, policy=Obedient(), journal=journal, **QUICK) as autoscaler:
        writer = source.writeStream.format("noop").queryName("elsewhere")
        query = writer.option("checkpointLocation", str(tmp_path / "other")).start()

        def measured() -> bool:
            seen = autoscaler.last.snapshot if autoscaler.last else None
            reading = seen.reading.get("elsewhere") if seen else None
            return reading is not None and bool(reading.processed_per_s)

        until("its rate is measured", measured)
        assert autoscaler.gateway.in_batch().keys() <= {str(query.runId), str(stream.query.runId)}
        query.stop()
        stream.query.stop()
        turns = autoscaler.controller.turns
        until("it waits", lambda: not autoscaler.gateway.active_queries())
        again = source.writeStream.format("noop").queryName("again")
        query = again.option("checkpointLocation", str(tmp_path / "again")).start()
        until("it goes on", lambda: autoscaler.controller.turns > turns + 2)
        query.stop()
    assert all(turn.error is None for turn in read_journal(journal))
