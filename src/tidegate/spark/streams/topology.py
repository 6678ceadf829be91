"""A topology of operators as streaming queries that are joined by topics.

Each operator is a query of its own: it reads its inputs' topics, works in micro-batches and
publishes each batch in its own topic at once (`topics.py`, or `kafka.py`). A *stateless* operator
is a function that is applied to each batch after it was cut into k_i parts, k_i being read from the
dials at that very batch: a new allocation takes effect at the next batch, without a restart. A
*stateful* one is a function on the endless stream, with its state in Spark's state store; its
number of state partitions is fixed by its first start, so k_i does not apply and the model says so.

A *loop* is an operator that reads its own topic, or that of an operator after it: a batch reads
what earlier batches have published. Such a topic must be there before its producer is known, so the
producer declares the schema of its rows.

Nothing is lost and nothing repeated, whatever dies: Spark repeats a batch that was not committed
with the same input, and the topic ignores a batch that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tidegate.errors import TopologyError
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.spark.streams.checkpoints import Checkpoint
from tidegate.spark.streams.file_topics import FileTopic
from tidegate.spark.streams.live_settings import Dials
from tidegate.spark.streams.locations import open_topic
from tidegate.spark.streams.running import RunningOperator, RunningTopology
from tidegate.spark.streams.shedding import ShedLedger
from tidegate.spark.streams.topic import Topic, accepted
from tidegate.units import finite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["StreamOperator", "StreamTopology"]

_Open = Callable[[str, "StructType"], Topic]
_STATE_PARTITIONS = "spark.sql.shuffle.partitions"
_POOL = "spark.scheduler.pool"


@dataclass(frozen=True)
class StreamOperator:
    """One processing step.

    name: of the operator, its query, its topic and its scheduler pool.
    inputs: sources or operators that it reads; several are merged, row after row.
    function: from rows to rows; of a batch, or of the endless stream when stateful. Its result must
        depend on its rows alone, and native expressions are much cheaper than Python ones. Bad
        rows are set aside by a reason in a column `rejected`, null for good rows.
    state_partitions: makes it stateful, with that many partitions for ever; None: stateless.
    output_mode: what a stateful operator sends on (`append`: final rows, `update`: each change).
    ratio: rows out per item in, as expected before anything was measured.
    service_time_s: mean time for one item, None when only measuring tells.
    shed_by: columns whose hash decides what is shed; none: each row by itself.
    schema: of the rows that it makes, to be declared when it is read by itself or by an operator
        before it; otherwise its function tells.
    """

    name: str
    inputs: tuple[str, ...]
    function: Callable[[DataFrame], DataFrame] = field(compare=False)
    state_partitions: int | None = None
    output_mode: Literal["append", "update", "complete"] = "append"
    ratio: float = 1.0
    service_time_s: float | None = None
    shed_by: tuple[str, ...] = ()
    schema: StructType | None = None

    def __post_init__(self) -> None:
        if not self.inputs or len(set(self.inputs)) != len(self.inputs):
            allowed = "one or more names, each once"
            raise TopologyError(f"operator {self.name}: inputs", list(self.inputs), allowed)
        finite(self.ratio, f"operator {self.name}: ratio", low=0, error=TopologyError)
        if self.state_partitions is not None:
            key = f"operator {self.name}: state_partitions"
            finite(self.state_partitions, key, low=1, error=TopologyError)


@dataclass(frozen=True)
class StreamTopology:
    """Sources, and operators in the order of the stream: each after its inputs, loops apart.

    sources: the schema of each source's rows, or a topic that exists elsewhere.

    ::

        topology = StreamTopology(
            sources={"ticks": schema},
            operators=(
                StreamOperator("parse", ("ticks",), parse),
                StreamOperator("enrich", ("parse",), lambda rows: imitate_call(rows, 0.005)),
            ),
        )
        with topology.start(spark, Path("out/run")) as running:
            running.dials.set_parallelism({"enrich": 6})
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
        # Names that are taken twice, loops that amplify, and whatever else makes no sense.
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
        dials: Dials | None = None,
        *,
        trigger_s: float = 0.1,
        max_files_per_trigger: int | None = None,
        topics: str | None = None,
    ) -> RunningTopology:
        """Start every operator's query, or go on where a run in the same folder has ended.

        folder: for topics, checkpoints and shedding ledgers, shared by driver and executors.
        dials: to be turned while it runs; new ones by default (parallelism 1, no shedding).
        trigger_s: seconds between the beginnings of two batches, at least.
        max_files_per_trigger: bound on the files (parts of upstream batches) that a batch takes.
        topics: where the rows of the topics are: in the folder too, or ``kafka://host:port``
            (`locations.py`; the folder then has only what is known of them).

        Queries share slots fairly when the application was started with
        `spark.scheduler.mode=FAIR`: each has a pool of its own.
        """
        trigger_ms = round(finite(trigger_s, "trigger_s", low=0) * 1000)
        dials = dials or Dials()
        notes = folder / "topics"

        def opened(name: str, schema: StructType) -> Topic:
            return open_topic(topics or notes, name, schema, notes)

        by_name = {name: self._source_topic(name, opened) for name in self.sources}
        for operator in self.operators:
            if operator.schema is not None:
                by_name[operator.name] = _output(opened, operator.name, operator.schema)
        started: list[RunningOperator] = []
        with ExitStack() as undo:  # a topology starts whole or not at all
            undo.callback(_stop_all, started)
            for operator in self.operators:
                running, stream = self._prepare(
                    operator, spark, folder, by_name, opened, dials, max_files_per_trigger
                )
                by_name[operator.name] = running.output
                started.append(running)
                writer = (
                    stream.writeStream.queryName(operator.name)
                    .outputMode(operator.output_mode)
                    .option("checkpointLocation", str(_checkpoint(folder, operator.name)))
                    .trigger(processingTime=f"{trigger_ms} milliseconds")
                    .foreachBatch(running.run_batch)
                )
                with _query_settings(spark, operator):
                    running.query = writer.start()
            undo.pop_all()
        return RunningTopology(self.model(), started, by_name, dials)

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
        dials: Dials,
        max_files: int | None,
    ) -> tuple[RunningOperator, DataFrame]:
        """An operator's topic and batch function, and the stream that its query runs on."""
        name = operator.name
        checkpoint = _checkpoint(folder, name)
        inputs = {origin: topics[origin] for origin in operator.inputs}
        streams = [
            accepted(topic.read(spark, name, checkpoint, max_files)) for topic in inputs.values()
        ]
        stream = streams[0]
        for other in streams[1:]:
            stream = stream.unionByName(other)
        stateless = operator.state_partitions is None
        if stateless:
            # Applied to no rows, the function tells the columns that it yields.
            result = operator.function(spark.createDataFrame([], stream.schema))
        else:
            result = stream = operator.function(stream)
        if operator.schema is not None and not _same_rows(operator.schema, result.schema):
            raise TopologyError(
                f"operator {name}: schema",
                operator.schema.simpleString(),
                f"that of the rows it makes, {result.schema.simpleString()}",
            )
        # A loop is one topic with one cache of what it holds, not two.
        output = topics.get(name) or _output(opened, name, result.schema)
        dials.record(name, output.totals(name))
        # Not where a loop ends: what comes from a source and what comes round are one stream there.
        back = {o.name for o in self.operators[self.operators.index(operator) :]}
        sheds = (
            stateless
            and back.isdisjoint(operator.inputs)
            and any(origin in self.sources for origin in operator.inputs)
        )
        ledger = ShedLedger(folder / "shed" / name, operator.shed_by) if sheds else None
        function = operator.function if stateless else None
        running = RunningOperator(
            name, function, inputs, output, Checkpoint(checkpoint), dials, ledger
        )
        return running, stream


def _stop_all(operators: list[RunningOperator]) -> None:
    for operator in operators:
        operator.stop(timeout_s=10.0)


def _output(opened: _Open, name: str, schema: StructType) -> Topic:
    """An operator's topic, without what a dead run has left half written."""
    topic = opened(name, schema)
    topic.sweep(name)
    return topic


def _same_rows(declared: StructType, made: StructType) -> bool:
    """Whether columns and types agree; whether a column may be null says nothing in a file."""
    kinds = [(field.name, field.dataType.simpleString()) for field in declared.fields]
    return kinds == [(field.name, field.dataType.simpleString()) for field in made.fields]


def _checkpoint(folder: Path, name: str) -> Path:
    return folder.resolve() / "checkpoints" / name


@contextmanager
def _query_settings(spark: SparkSession, operator: StreamOperator) -> Iterator[None]:
    """Settings that a query copies when it starts, and that the session must not keep."""
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
