"""A topology that runs: the batches of its operators, and the handle to watch and end it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from tidegate.errors import BackendError
from tidegate.lifecycle import Service
from tidegate.model.topology import Edge, Topology
from tidegate.spark.autoscaler.meter import SourceCount
from tidegate.spark.streams.admission import admitted, rows_of
from tidegate.spark.streams.checkpoints import Checkpoint
from tidegate.spark.streams.live_settings import Counts, Dials
from tidegate.spark.streams.manifests import Manifest
from tidegate.spark.streams.shedding import ShedLedger, query_id
from tidegate.spark.streams.topic import REJECTED, Topic

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["RunningOperator", "RunningTopology"]


class _Parked(Exception):  # noqa: N818 - not an error: how a batch that must not begin is left
    """Spark takes an exception with these words for the answer to `stop()`, not for a failure.

    It looks for them with a regular expression that overflows the stack on a long text, such as the
    trace of a batch that was interrupted at its work; this text is short.
    """

    def __init__(self) -> None:
        super().__init__(
            "py4j.protocol.Py4JJavaError: An error occurred while calling z:java.lang.Thread.sleep:"
            " java.lang.InterruptedException"
        )


class RunningOperator:
    """One operator of a running topology: what its query does with each batch.

    function: applied to a batch that was cut into k_i parts; None when the query has done the work
    (stateful), and only the publishing is left.
    inputs, output: its topics. ledger: where it sheds, None when it does not.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[DataFrame], DataFrame] | None,
        inputs: Mapping[str, Topic],
        output: Topic,
        checkpoint: Checkpoint,
        dials: Dials,
        ledger: ShedLedger | None,
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.output = output
        self.query: StreamingQuery | None = None
        self._function = function
        self._checkpoint = checkpoint
        self._dials = dials
        self._ledger = ledger
        self._closing = threading.Event()
        self._parked = threading.Event()

    def run_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Compute a batch and publish it, unless that was done before a restart."""
        if self._closing.is_set():
            self._park(batch)
        wanted = Manifest(self.name, batch_id, query=query_id(batch))
        done = self.output.already(wanted)
        if done is None:
            done = self._compute(batch, wanted)
        elif self._function is None:
            # The rows are there, the state may not be: Spark wants it computed once more.
            batch.write.format("noop").mode("overwrite").save()
        self._dials.record(self.name, done.totals)

    def _compute(self, batch: DataFrame, wanted: Manifest) -> Manifest:
        batch_id = wanted.batch_id
        # From the manifests of what the batch reads: exact, and without a pass over the data.
        seen = sum(topic.items_in(self._checkpoint, batch_id) for topic in self.inputs.values())
        dropped, fraction = 0, 0.0
        parallelism: int | None = None
        if self._ledger is not None:
            batch, shed = self._ledger.settle(batch, batch_id, self._dials.shed_fraction)
            dropped, fraction = shed.dropped, shed.fraction
        if self._function is not None:
            parallelism = self._dials.parallelism(self.name)
            batch = self._function(batch.repartition(parallelism))
        manifest = replace(
            wanted,
            counts=Counts(seen, dropped),
            parallelism=parallelism,
            shed_fraction=fraction,
        )
        return self.output.write(batch, manifest)

    def _park(self, batch: DataFrame) -> NoReturn:
        """Hold the query before a batch that must not begin, until `stop()` interrupts it."""
        from py4j.protocol import Py4JJavaError

        self._parked.set()
        jvm = batch.sparkSession._jvm
        assert jvm is not None  # a batch has a JVM
        with suppress(Py4JJavaError):  # interrupted, as it should be
            jvm.java.lang.Thread.sleep(60_000)  # in the query's own thread
        raise _Parked

    def admitted(self, spark: SparkSession) -> pa.Table | None:
        """The rows of its one input that it has let in, None where that cannot be told."""
        if self._ledger is None or len(self.inputs) != 1:
            return None
        (source,) = self.inputs.values()
        return admitted(spark, source, self._checkpoint, self.output, self._ledger)

    def close(self) -> None:
        """No batch begins from now on; the one at work goes on to its end."""
        self._closing.set()

    def stop(self, timeout_s: float) -> None:
        """End the query between two batches, or at once when that takes longer than the timeout."""
        if self.query is None:
            return
        self.close()
        deadline = time.monotonic() + timeout_s
        while self.query.isActive and time.monotonic() < deadline:
            if self._parked.wait(0.02) or not self.query.status["isTriggerActive"]:
                break
        self.query.stop()


class RunningTopology(Service):
    """The handle of a started topology; as a context manager it stops at the end.

    dials: to turn. queries: by operator. topics: by source and operator.
    """

    def __init__(
        self,
        model: Topology,
        operators: Iterable[RunningOperator],
        topics: Mapping[str, Topic],
        dials: Dials,
    ) -> None:
        self.dials = dials
        self.topics = dict(topics)
        self._operators = {operator.name: operator for operator in operators}
        self._model = model

    @property
    def queries(self) -> dict[str, StreamingQuery]:
        """Spark's queries by operator, in the order of the stream."""
        return {o.name: o.query for o in self._operators.values() if o.query is not None}

    def model(self) -> Topology:
        """The topology for a policy, with measured ratios: rows out per item processed."""
        ratios = {}
        for name in self._operators:
            total = self.dials.counts(name)
            if total.seen > total.dropped:
                ratios[name] = total.written / (total.seen - total.dropped)
        edges = (Edge(e.origin, e.target, ratios.get(e.origin, e.ratio)) for e in self._model.edges)
        return Topology(self._model.operators, self._model.sources, tuple(edges))

    def lag_items(self) -> dict[str, int]:
        """Items that wait before each operator or are being worked on, exactly."""
        return {
            name: sum(topic.lag_items(name) for topic in operator.inputs.values())
            for name, operator in self._operators.items()
        }

    def for_autoscaler(self) -> dict[str, Any]:
        """What an `Autoscaler` needs to scale this topology, as its keyword arguments.

        ::

            with Autoscaler(spark, slo="5s", **running.for_autoscaler()):
                running.queries["enrich"].awaitTermination()
        """

        def count(operator: str) -> Callable[[], SourceCount]:
            inputs = self._operators[operator].inputs.values()

            def look() -> SourceCount:
                # Not what was seen and what waits: a batch that ends just now is in both.
                return SourceCount(
                    float(sum(topic.lag_items(operator) for topic in inputs)),
                    float(sum(topic.arrived_items() for topic in inputs)),
                )

            return look

        sources = {name: count(name) for name in self._operators}
        # Asked at each turn: rows out per item are known better and better.
        return {"topology": self.model, "dials": self.dials, "sources": sources}

    def admitted(self, spark: SparkSession, source: str) -> pa.Table | None:
        """Rows of a source without those that were shed, None where that cannot be told."""
        readers = [o for o in self._operators.values() if source in o.inputs]
        if not any(self.dials.counts(reader.name).dropped for reader in readers):
            return rows_of(self.topics[source], spark)
        return readers[0].admitted(spark) if len(readers) == 1 else None

    def rejected(self, spark: SparkSession) -> dict[str, dict[str, int]]:
        """Rows that were set aside, by topic and reason; only of batches that are still kept.

        By topic: that of the operator which has set them aside, or of a source in Kafka.
        """
        found = {}
        for name, topic in self.topics.items():
            if REJECTED in topic.schema.names:
                rows = topic.frame(spark).filter(f"{REJECTED} IS NOT NULL")
                found[name] = {
                    str(r[0]): int(r[1]) for r in rows.groupBy(REJECTED).count().collect()
                }
        return {name: reasons for name, reasons in found.items() if reasons}

    def trim(self, older_than_s: float) -> int:
        """Remove batches of that age that nobody needs any more, of all topics; their number."""
        return sum(topic.trim(older_than_s) for topic in self.topics.values())

    def check(self) -> None:
        """Raise a BackendError that names the operator whose query has failed, if one has."""
        for name, query in self.queries.items():
            error = query.exception()
            if error is not None:
                raise BackendError(
                    f"operator {name} has failed: {error}: start the topology again from the same "
                    "folder, and it goes on where it was"
                ) from error

    def drain(self, at_most_s: float = math.inf) -> None:
        """Wait until all that the sources hold now has passed through every operator.

        With a loop: until it has come to rest as well. BackendError when that takes longer than
        `at_most_s` seconds or an operator fails; without a loop, an operator's failure alone ends
        the wait.
        """
        if self._loops:
            self._await_rest(time.monotonic() + at_most_s)
        for query in self.queries.values():  # each operator stands after its inputs, loops apart
            query.processAllAvailable()

    @property
    def _loops(self) -> bool:
        place = {name: n for n, name in enumerate(self._operators)}
        return any(
            place.get(origin, -1) >= place[name]
            for name, operator in self._operators.items()
            for origin in operator.inputs
        )

    def _await_rest(self, end_s: float) -> None:
        """Wait until no item is before, in or between any operators."""
        while True:
            self.check()
            before = self._totals()
            waiting = {name: count for name, count in self.lag_items().items() if count}
            # A batch that ended while we looked may have sent items to where we had been.
            if not waiting and self._totals() == before:
                return
            if time.monotonic() > end_s:
                raise BackendError(
                    f"the loop has not come to rest: still waiting are {waiting}: allow more time, "
                    "or see whether each round sends fewer items back than it has read"
                )
            time.sleep(0.05)

    def _totals(self) -> dict[str, Counts]:
        return {name: self.dials.counts(name) for name in self._operators}

    def stop(self, timeout_s: float = 60.0) -> None:
        """End all queries between two batches each; a start from the same folder goes on.

        timeout_s: how long to wait for a batch at work before it is interrupted.
        """
        for operator in self._operators.values():
            operator.close()
        for operator in self._operators.values():
            operator.stop(timeout_s)
