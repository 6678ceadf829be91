"""What is measured of real queries, on the shared local session."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.autoscaler.live import until
from tests.spark.streams.test_kafka import send, servers
from tidegate.errors import BackendError
from tidegate.model import HostOffer, OperatorReading, Snapshot
from tidegate.spark.autoscaler.executors import executor_manager
from tidegate.spark.autoscaler.in_process import InProcessGateway
from tidegate.spark.autoscaler.world import SparkWorld
from tidegate.spark.local.broker import LocalBroker

ROWS = 40
SLEEP_MS = 5


class Bench:
    """Queries over folders in a local session, and a world that observes them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.gateway = InProcessGateway(spark, watch_only=True)
        hosts = executor_manager(self.gateway, time.time)
        offer = HostOffer(hosts.capacity())
        self.world = SparkWorld(self.gateway, hosts, offer, interval_s=1.0, warm_up_s=0)
        self.world.start()
        self.queries: list[StreamingQuery] = []
        self._files = 0

    def feed(self, name: str) -> None:
        """A file of `ROWS` rows in a folder."""
        (self.folder / name).mkdir(exist_ok=True)
        new = self.folder / f"{self._files}.new"
        new.write_text("".join(json.dumps({"v": n}) + "\n" for n in range(ROWS)))
        new.rename(self.folder / name / f"{self._files:04}.json")
        self._files += 1

    def read(self, name: str, **options: Any) -> DataFrame:
        """A folder as a stream whose rows wait a little."""
        (self.folder / name).mkdir(exist_ok=True)
        rows = self.spark.readStream.schema("v long").options(**options)
        return rows.json(str(self.folder / name))

    def start(self, writer: Any, name: str, **trigger: Any) -> None:
        writer = writer.queryName(name).trigger(**trigger or {"processingTime": "500 milliseconds"})
        place = str(self.folder / f"at-{name}")
        self.queries.append(writer.option("checkpointLocation", place).start())

    def until(self, what: str, true: Callable[[Snapshot], object]) -> Snapshot:
        """The first snapshot for which something is true."""
        found: list[Snapshot] = []

        def look() -> bool:
            found.append(self.world.observe())
            return bool(true(found[-1]))

        until(what, look)
        return found[-1]

    def end(self) -> None:
        for query in self.queries:
            query.stop()
        self.world.close()


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(spark, tmp_path)
    yield made
    made.end()


def slow(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("v", f"reflect('java.lang.Thread', 'sleep', {SLEEP_MS}L) as w")


def known(reading: OperatorReading) -> bool:
    return reading.arrival_rate_per_s is not None and reading.queue_length is not None


def test_a_busy_query_and_one_that_reads_an_empty_folder_are_both_measured(bench: Bench) -> None:
    for _ in range(8):
        bench.feed("full")
    full = slow(bench.read("full", maxFilesPerTrigger=2))
    bench.start(full.writeStream.format("noop"), "full")
    bench.start(bench.read("empty").writeStream.format("noop"), "empty")
    seen = bench.until(
        "four batches of the one and the other's idleness are known",
        lambda s: (
            known(s.reading["empty"])
            and (batches := s.reading["full"].batches)
            and len(batches.recent_durations_s) >= 4
            and batches.max_rows
        ),
    )
    empty, busy = seen.reading["empty"], seen.reading["full"]
    assert (empty.arrival_rate_per_s, empty.queue_length) == (0, 0)
    assert busy.arrival_rate_per_s and busy.delay.mean_s is not None
    assert busy.batches is not None and busy.batches.cost is not None
    assert busy.batches.admission == "maxFilesPerTrigger=2"
    assert busy.batches.max_rows == pytest.approx(2 * ROWS)
    assert busy.service_time_s is not None and busy.service_time_s >= SLEEP_MS / 1000 * 0.9
    assert busy.batches.cost.slots is not None and 0 < busy.batches.cost.slots <= 2.01
    idle = bench.until(
        "the other falls idle, too", lambda s: s.reading["full"].arrival_rate_per_s == 0
    )
    assert idle.missing(["operator.arrival_rate_per_s", "operator.queue_length"]) == ()
    bench.feed("full")
    bench.until("and rises again", lambda s: s.reading["full"].arrival_rate_per_s)


def test_work_of_foreach_batch_under_other_groups_and_in_threads_is_attributed(
    bench: Bench,
) -> None:
    context = bench.spark.sparkContext
    threads = ThreadPoolExecutor(1)

    def write(rows: DataFrame, number: int) -> None:
        slow(rows).collect()
        context.setJobGroup("mine", "my own words")
        slow(rows).collect()
        threads.submit(lambda: slow(rows).collect()).result()  # an error in it ends the query

    for _ in range(6):
        bench.feed("in")
    rows = bench.read("in", maxFilesPerTrigger=1)
    bench.start(rows.writeStream.foreachBatch(write), "writes")
    least_s = 3 * ROWS * SLEEP_MS / 1000

    def parts_s() -> list[float]:
        """Work of all batches but the first, which never counts for the cost."""
        assert bench.world.observe() and bench.queries[0].exception() is None
        return [run_s for _, run_s in bench.world.work_of("writes")][1:]

    try:
        until(
            "all three parts of at least four batches are attributed",
            lambda: len(work := parts_s()) >= 4 and all(run_s >= least_s for run_s in work),
        )
    finally:
        threads.shutdown()


def test_rows_behind_a_limit_of_kafka_are_counted_and_delayed(
    bench: Bench, broker: LocalBroker
) -> None:
    send(bench.spark, broker, "limited", *map(str, range(400)))
    place = {"kafka.bootstrap.servers": servers(broker), "subscribe": "limited"}
    options = place | {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    rows = bench.spark.readStream.format("kafka").options(**options).load()
    bench.start(rows.writeStream.format("noop"), "limited")
    seen = bench.until(
        "three batches",
        lambda s: (b := s.reading["limited"].batches) and len(b.recent_durations_s) >= 3,
    ).reading["limited"]
    assert seen.batches is not None
    assert (seen.batches.max_rows, seen.batches.admission) == (10, "maxOffsetsPerTrigger=10")
    assert seen.queue_length and seen.queue_length > 100
    assert seen.backlog_s is not None and seen.processed_per_s is not None
    assert seen.backlog_s == pytest.approx(seen.queue_length / seen.processed_per_s)
    assert seen.delay.at_least and seen.delay.p95_s is not None
    assert seen.delay.p95_s >= seen.backlog_s


def test_a_continuous_query_is_refused_and_goes_on(bench: Bench) -> None:
    rate = bench.spark.readStream.format("rate").load()
    bench.start(rate.writeStream.format("noop"), "forever", continuous="1 second")
    with pytest.raises(BackendError, match="query forever has a continuous trigger"):
        bench.world.observe()
    assert bench.queries[0].isActive
