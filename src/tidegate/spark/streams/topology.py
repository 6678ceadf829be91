"""A topology of operators as streaming queries that are joined by topics.

Each operator is a separate query: it reads the topics of its inputs, works in micro-batches and
publishes each batch in its topic (`file_topics.py`, or `kafka.py`). A *stateless* operator is a
function that is applied to each batch after the batch was cut into k_i parts. k_i is read from the
live settings at each batch, so a new allocation takes effect at the next batch, without a restart.
A *stateful* operator is a function on the endless stream, with its state in Spark's state store.
Its first start fixes the number of state partitions P, and a batch has one task for each of them.
If it `rebalances`, a batch has min(k_i, P) tasks, each of which works on some partitions one after
the other: with many partitions, k_i applies from the next batch on, as for a stateless operator.

A *loop* is an operator that reads its own topic, or that of an operator after it: a batch reads
what earlier batches have published. Such a topic must exist before its producer is known, so the
producer declares the schema of its rows.

No row is lost or repeated, whichever process dies: Spark repeats a batch that was not committed
with the same input, and the topic ignores a batch that it has.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from tidegate.errors import BackendError, TopologyError
from tidegate.lifecycle import Service
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.spark.autoscaler.meter import SourceCount
from tidegate.spark.streams.checkpoints import Checkpoint
from tidegate.spark.streams.file_topics import FileTopic
from tidegate.spark.streams.live_settings import Counts, LiveSettings
from tidegate.spark.streams.locations import open_topic
from tidegate.spark.streams.ratios import RecentRatio
from tidegate.spark.streams.shedding import ShedLog, admitted, beyond, query_id, rows_of
from tidegate.spark.streams.topic import REJECTED, Manifest, Topic, accepted
from tidegate.units import finite

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

__all__ = ["RunningOperator", "RunningTopology", "StreamOperator", "StreamTopology"]

_Open = Callable[[str, "StructType"], Topic]
_STATE_PARTITIONS = "spark.sql.shuffle.partitions"
_POOL = "spark.scheduler.pool"


@dataclass(frozen=True)
class StreamOperator:
    """One processing step.

    Args:
        name: Name of the operator, its query, its topic and its scheduler pool.
        inputs: Sources or operators that it reads; several are merged, row after row.
        function: From rows to rows, of a batch, or of the endless stream when stateful. The result
            must depend on the rows alone. Native expressions are much cheaper than Python ones. A
            column `rejected` sets bad rows aside with a reason; it is null for good rows.
        state_partitions: Makes the operator stateful, with a number of partitions that never
            changes; None: stateless.
        rebalances: Whether a stateful operator's tasks follow its parallelism, as far as that was
            set. Partitions that change executors load their state there from the checkpoint.
        output_mode: What a stateful operator sends on (`append`: final rows, `update`: each
            change).
        ratio: Expected rows out per item in, used until it is measured.
        service_time_s: Mean time for one item in seconds, None when it is to be measured.
        shed_by: Columns whose hash decides what is shed; default: each row separately.
        schema: Schema of the rows that it produces. Declare it when the operator is read by itself
            or by an operator before it; otherwise it follows from the function.
        trigger_s: Minimum time between the starts of two of its batches in seconds, None for that
            of the topology.
        max_files: Files that one of its batches reads at most, None for the limit of the topology.
    """

    name: str
    inputs: tuple[str, ...]
    function: Callable[[DataFrame], DataFrame] = field(compare=False)
    state_partitions: int | None = None
    rebalances: bool = False
    output_mode: Literal["append", "update", "complete"] = "append"
    ratio: float = 1.0
    service_time_s: float | None = None
    shed_by: tuple[str, ...] = ()
    schema: StructType | None = None
    trigger_s: float | None = None
    max_files: int | None = None

    def __post_init__(self) -> None:
        if not self.inputs or len(set(self.inputs)) != len(self.inputs):
            allowed = "one or more names, each once"
            raise TopologyError(f"operator {self.name}: inputs", list(self.inputs), allowed)
        finite(self.ratio, f"operator {self.name}: ratio", low=0, error=TopologyError)
        if self.state_partitions is not None:
            key = f"operator {self.name}: state_partitions"
            finite(self.state_partitions, key, low=1, error=TopologyError)
        elif self.rebalances:
            remedy = "give state_partitions; the tasks of a stateless operator always follow"
            raise TopologyError(f"operator {self.name}: rebalances", True, "False", remedy)
        for name, low in (("trigger_s", 0), ("max_files", 1)):
            if (value := getattr(self, name)) is not None:
                finite(value, f"operator {self.name}: {name}", low=low, error=TopologyError)


@dataclass(frozen=True)
class StreamTopology:
    """Sources, and operators in the order of the stream: each after its inputs, loops apart.

    sources: the schema of each source's rows, or a topic that exists elsewhere.

    ::

        topology = StreamTopology(
            sources={"ticks": schema},
            operators=(
                StreamOperator("parse", ("ticks",), parse),
                StreamOperator("enrich", ("parse",), enrich),
            ),
        )
        with topology.start(spark, Path("out/run")) as running:
            running.live_settings.set_parallelism({"enrich": 6})
    """

    sources: Mapping[str, StructType | Topic]
    operators: tuple[StreamOperator, ...]

    def __post_init__(self) -> None:
        known = set(self.sources)
        declared = {operator.name for operator in self.operators if operator.schema is not None}
        for operator in self.operators:
            for name in operator.inputs:
                if name not in known | declared:
                    raise TopologyError(
                        f"operator {operator.name}: input",
                        name,
                        "a source, an operator before it, or one that declares its schema",
                        f"known here are {', '.join(sorted(known | declared))}; an operator that "
                        "closes a loop needs schema=",
                    )
            known.add(operator.name)
        # Refuses duplicate names, loops that amplify, and other contradictions.
        self.model().arrival_rates(dict.fromkeys(self.sources, 1.0))

    def model(self) -> Topology:
        """The topology for a policy: an instance is a task that holds one slot (one core)."""
        ratios = {operator.name: operator.ratio for operator in self.operators}
        return Topology(
            operators=tuple(
                Operator(
                    operator.name,
                    Resources(1.0),
                    service_time_s=operator.service_time_s,
                    max_instances=operator.state_partitions,
                )
                for operator in self.operators
            ),
            sources=tuple(Source(name) for name in self.sources),
            edges=tuple(
                Edge(origin, operator.name, ratios.get(origin, 1.0))
                for operator in self.operators
                for origin in operator.inputs
            ),
        )

    def start(
        self,
        spark: SparkSession,
        folder: Path,
        live_settings: LiveSettings | None = None,
        *,
        trigger_s: float = 0.1,
        max_files_per_trigger: int | None = None,
        topics: str | None = None,
    ) -> RunningTopology:
        """Start every operator's query, or continue where a run in the same folder ended.

        Queries share slots fairly when the application was started with
        `spark.scheduler.mode=FAIR`: each has a separate pool.

        Args:
            spark: The session.
            folder: Folder for topics, checkpoints and shed logs, shared by driver and executors.
            live_settings: Settings to change while it runs; default: new ones (parallelism 1, no
                shedding).
            trigger_s: Minimum time between the starts of two batches, in seconds.
            max_files_per_trigger: Limit on the files (parts of upstream batches) of one batch.
            topics: Location of the topics' rows; default: the folder. With ``kafka://host:port``
                (see `locations.py`) the folder holds only their metadata.
        """
        finite(trigger_s, "trigger_s", low=0)
        live_settings = live_settings or LiveSettings()
        metadata = folder / "topics"

        def opened(name: str, schema: StructType) -> Topic:
            return open_topic(topics or metadata, name, schema, metadata)

        by_name = {name: self._source_topic(name, opened) for name in self.sources}
        for operator in self.operators:
            if operator.schema is not None:
                by_name[operator.name] = _output(opened, operator.name, operator.schema)
        started: list[RunningOperator] = []
        with ExitStack() as undo:  # all operators start, or none
            undo.callback(_stop_all, started)
            for operator in self.operators:
                running, stream = self._prepare(
                    operator, spark, folder, by_name, opened, live_settings, max_files_per_trigger
                )
                by_name[operator.name] = running.output
                started.append(running)
                every_s = trigger_s if operator.trigger_s is None else operator.trigger_s
                writer = (
                    stream.writeStream.queryName(operator.name)
                    .outputMode(operator.output_mode)
                    .option("checkpointLocation", str(_checkpoint(folder, operator.name)))
                    .trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
                    .foreachBatch(running.run_batch)
                )
                with _query_settings(spark, operator):
                    running.query = writer.start()
            undo.pop_all()
        return RunningTopology(self.model(), started, by_name, live_settings)

    def _source_topic(self, name: str, opened: _Open) -> Topic:
        from pyspark.sql.types import StructType

        given = self.sources[name]
        if not isinstance(given, StructType):
            return given
        topic = opened(name, given)
        if isinstance(topic, FileTopic):
            topic.remove_emptied()
        return topic

    def _prepare(
        self,
        operator: StreamOperator,
        spark: SparkSession,
        folder: Path,
        topics: Mapping[str, Topic],
        opened: _Open,
        live_settings: LiveSettings,
        max_files: int | None,
    ) -> tuple[RunningOperator, DataFrame]:
        """An operator with its topic and batch function, and the stream of its query."""
        name = operator.name
        checkpoint = _checkpoint(folder, name)
        inputs = {origin: topics[origin] for origin in operator.inputs}
        max_files = max_files if operator.max_files is None else operator.max_files
        streams = [
            accepted(topic.read(spark, name, checkpoint, max_files)) for topic in inputs.values()
        ]
        stream = streams[0]
        for other in streams[1:]:
            stream = stream.unionByName(other)
        stateless = operator.state_partitions is None
        if stateless:
            # Applied to no rows, the function yields the schema of its result.
            result = operator.function(spark.createDataFrame([], stream.schema))
        else:
            result = stream = operator.function(stream)
        if operator.schema is not None and not _same_rows(operator.schema, result.schema):
            raise TopologyError(
                f"operator {name}: schema",
                operator.schema.simpleString(),
                f"that of the rows it produces, {result.schema.simpleString()}",
            )
        # The topic of a loop is opened once, so that there is one cache of its batches.
        output = topics.get(name) or _output(opened, name, result.schema)
        live_settings.record(name, output.totals(name))
        # No shedding where a loop ends: new items and returning ones are one stream there.
        back = {o.name for o in self.operators[self.operators.index(operator) :]}
        sheds = (
            stateless
            and back.isdisjoint(operator.inputs)
            and any(origin in self.sources for origin in operator.inputs)
        )
        shed_log = ShedLog(folder / "shed" / name, operator.shed_by) if sheds else None
        function = operator.function if stateless else None
        running = RunningOperator(
            name, function, inputs, output, Checkpoint(checkpoint), live_settings, shed_log,
            operator.rebalances,
        )  # fmt: skip
        return running, stream


def _stop_all(operators: list[RunningOperator]) -> None:
    for operator in operators:
        operator.stop(timeout_s=10.0)


def _output(opened: _Open, name: str, schema: StructType) -> Topic:
    """An operator's topic, cleaned up after a run that died."""
    topic = opened(name, schema)
    topic.sweep(name)
    return topic


def _same_rows(declared: StructType, made: StructType) -> bool:
    """Whether columns and types agree; files do not record whether a column is nullable."""
    kinds = [(field.name, field.dataType.simpleString()) for field in declared.fields]
    return kinds == [(field.name, field.dataType.simpleString()) for field in made.fields]


def _checkpoint(folder: Path, name: str) -> Path:
    return folder.resolve() / "checkpoints" / name


@contextmanager
def _query_settings(spark: SparkSession, operator: StreamOperator) -> Iterator[None]:
    """Settings that a query copies when it starts and that the session must not keep."""
    context = spark.sparkContext
    pool, partitions = context.getLocalProperty(_POOL), spark.conf.get(_STATE_PARTITIONS)
    context.setLocalProperty(_POOL, operator.name)
    if operator.state_partitions is not None:
        spark.conf.set(_STATE_PARTITIONS, operator.state_partitions)
    try:
        yield
    finally:
        context.setLocalProperty(_POOL, pool or "default")
        spark.conf.set(_STATE_PARTITIONS, str(partitions))


# --- a topology that runs ---------------------------------------------------------------------


class _Parked(Exception):  # noqa: N818 - not an error: leaves a batch that must not begin
    """Spark treats an exception with this text as the response to `stop()`, not as a failure.

    Spark's regular expression for it overflows the stack on a long text, such as the trace of a
    batch that was interrupted; this text is short.
    """

    def __init__(self) -> None:
        super().__init__(
            "py4j.protocol.Py4JJavaError: An error occurred while calling z:java.lang.Thread.sleep:"
            " java.lang.InterruptedException"
        )


class RunningOperator:
    """One operator of a running topology: what its query does with each batch.

    Args:
        name: Name of the operator.
        function: Applied to a batch that was cut into k_i parts. None for a stateful operator,
            whose query does the work, so that only publishing is left.
        inputs: Topics that it reads, by name.
        output: Topic that it writes.
        checkpoint: Checkpoint of its query.
        live_settings: Where it reads its parallelism and reports its counts.
        shed_log: Log of what it sheds, None when it does not shed.
        rebalances: Whether the tasks of a stateful operator follow its parallelism.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[DataFrame], DataFrame] | None,
        inputs: Mapping[str, Topic],
        output: Topic,
        checkpoint: Checkpoint,
        live_settings: LiveSettings,
        shed_log: ShedLog | None,
        rebalances: bool = False,
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.output = output
        self.query: StreamingQuery | None = None
        self._function = function
        self._checkpoint = checkpoint
        self._live_settings = live_settings
        self._shed_log = shed_log
        self._rebalances = rebalances
        self._closing = threading.Event()
        self._parked = threading.Event()

    def run_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Compute a batch and publish it, unless it was published before a restart."""
        if self._closing.is_set():
            self._park(batch)
        manifest = Manifest(self.name, batch_id, query=query_id(batch))
        done = self.output.already(manifest)
        if done is None:
            done = self._compute(batch, manifest)
        elif self._function is None:
            # The rows are published, but the state may not be: Spark must compute it once more.
            batch.write.format("noop").mode("overwrite").save()
        self._live_settings.record(self.name, done.totals)

    def _compute(self, batch: DataFrame, manifest: Manifest) -> Manifest:
        batch_id = manifest.batch_id
        # From the manifests of the batch's input: exact, and without a pass over the data.
        seen = sum(topic.items_in(self._checkpoint, batch_id) for topic in self.inputs.values())
        dropped, fraction = 0, 0.0
        parallelism: int | None = None
        if self._shed_log is not None:
            share, most = self._live_settings.shed_fraction, self._live_settings.buffer_rows
            if most is not None:
                share = max(share, beyond(most, seen))
            batch, shed = self._shed_log.settle(batch, batch_id, share)
            dropped, fraction = shed.dropped, shed.fraction
            self._live_settings.record_shed(self.name, batch_id, dropped)
        if self._function is not None:
            parallelism = self._live_settings.parallelism(self.name)
            batch = self._function(batch.repartition(parallelism))
        elif self._rebalances:
            parallelism = self._live_settings.chosen_parallelism(self.name)
            if parallelism is not None:
                # Without a shuffle: each task computes the state partitions that it holds.
                batch = batch.coalesce(parallelism)
        manifest = replace(
            manifest,
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
        with suppress(Py4JJavaError):  # interrupted by stop()
            jvm.java.lang.Thread.sleep(60_000)  # in the query's thread
        raise _Parked

    def admitted(self, spark: SparkSession) -> pa.Table | None:
        """The rows of its only input that it did not shed, None where that is unknown."""
        if self._shed_log is None or len(self.inputs) != 1:
            return None
        (source,) = self.inputs.values()
        return admitted(spark, source, self._checkpoint, self.output, self._shed_log)

    def close(self) -> None:
        """Let no further batch begin; the running batch continues to its end."""
        self._closing.set()

    def stop(self, timeout_s: float) -> None:
        """Stop the query between two batches, or at once when the timeout expires."""
        if self.query is None:
            return
        self.close()
        deadline = time.monotonic() + timeout_s
        while self.query.isActive and time.monotonic() < deadline:
            if self._parked.wait(0.02) or not self.query.status["isTriggerActive"]:
                break
        self.query.stop()


class RunningTopology(Service):
    """The handle of a started topology; a ``with`` block stops it at its end.

    live_settings: settings to change while it runs. topics: by source and operator.
    """

    def __init__(
        self,
        model: Topology,
        operators: Iterable[RunningOperator],
        topics: Mapping[str, Topic],
        live_settings: LiveSettings,
    ) -> None:
        self.live_settings = live_settings
        self.topics = dict(topics)
        self._operators = {operator.name: operator for operator in operators}
        self._model = model
        self._ratios = {name: RecentRatio() for name in self._operators}
        self._lock = threading.Lock()  # an autoscaler's thread and the user's may ask for the model

    @property
    def queries(self) -> dict[str, StreamingQuery]:
        """Spark's queries by operator, in the order of the stream."""
        return {o.name: o.query for o in self._operators.values() if o.query is not None}

    def model(self) -> Topology:
        """The topology for a policy, with counted ratios: rows out per item processed, of late."""
        now_s, counted = time.monotonic(), {}
        with self._lock:
            for name, ratio in self._ratios.items():
                total = self.live_settings.counts(name)
                found = ratio.update(now_s, total.seen - total.dropped, total.written)
                if found is not None:
                    counted[name] = found
        edges = (
            Edge(e.origin, e.target, counted[e.origin], True) if e.origin in counted else e
            for e in self._model.edges
        )
        return Topology(self._model.operators, self._model.sources, tuple(edges))

    def lag_items(self) -> dict[str, int]:
        """Exact number of items that wait before each operator or are being processed."""
        return {
            name: sum(topic.lag_items(name) for topic in operator.inputs.values())
            for name, operator in self._operators.items()
        }

    def for_autoscaler(self) -> dict[str, Any]:
        """Keyword arguments for an `Autoscaler` of this topology.

        ::

            with Autoscaler(spark, slo="5s", **running.for_autoscaler()):
                running.queries["enrich"].awaitTermination()
        """

        def count(operator: str) -> Callable[[], SourceCount]:
            inputs = self._operators[operator].inputs.values()

            def look() -> SourceCount:
                # Not seen plus waiting: a batch that has just ended is in both.
                return SourceCount(
                    float(sum(topic.lag_items(operator) for topic in inputs)),
                    float(sum(topic.arrived_items() for topic in inputs)),
                )

            return look

        sources = {name: count(name) for name in self._operators}
        # A function, called at each turn: the measured ratios become more precise.
        return {"topology": self.model, "live_settings": self.live_settings, "sources": sources}

    def admitted(self, spark: SparkSession, source: str) -> pa.Table | None:
        """Rows of a source without those that were shed, None where that is unknown."""
        readers = [o for o in self._operators.values() if source in o.inputs]
        if not any(self.live_settings.counts(reader.name).dropped for reader in readers):
            return rows_of(self.topics[source], spark)
        return readers[0].admitted(spark) if len(readers) == 1 else None

    def rejected(self, spark: SparkSession) -> dict[str, dict[str, int]]:
        """Number of rows that were set aside, by topic and reason, in batches that are still kept.

        The topic is that of the operator which set them aside, or of a source in Kafka.
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
        """Remove old batches that no consumer needs from all topics; return their number."""
        return sum(topic.trim(older_than_s) for topic in self.topics.values())

    def check(self) -> None:
        """Raise a BackendError that names the operator whose query has failed, if one has."""
        for name, query in self.queries.items():
            error = query.exception()
            if error is not None:
                raise BackendError(
                    f"operator {name} has failed: {error}: start the topology again in the same "
                    "folder to continue"
                ) from error

    def drain(self, at_most_s: float = math.inf) -> None:
        """Wait until every operator has processed what the sources hold now.

        With a loop, also wait until the loop has come to rest, and raise BackendError when that
        takes longer than `at_most_s` seconds or an operator fails. Without a loop, only the failure
        of an operator ends the wait.
        """
        if self._loops:
            self._await_rest(time.monotonic() + at_most_s)
        for query in self.queries.values():  # each operator comes after its inputs, except in loops
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
        """Wait until no item is waiting or being processed anywhere."""
        while True:
            self.check()
            before = self._totals()
            waiting = {name: count for name, count in self.lag_items().items() if count}
            # A batch that ended meanwhile may have sent items to an operator already checked.
            if not waiting and self._totals() == before:
                return
            if time.monotonic() > end_s:
                raise BackendError(
                    f"the loop has not come to rest: still waiting are {waiting}: allow more time, "
                    "or check that each round sends fewer items back than it reads"
                )
            time.sleep(0.05)

    def _totals(self) -> dict[str, Counts]:
        return {name: self.live_settings.counts(name) for name in self._operators}

    def stop(self, timeout_s: float = 60.0) -> None:
        """Stop each query between two batches; a start in the same folder continues.

        timeout_s: time to wait for a running batch before it is interrupted, in seconds.
        """
        for operator in self._operators.values():
            operator.close()
        for operator in self._operators.values():
            operator.stop(timeout_s)
