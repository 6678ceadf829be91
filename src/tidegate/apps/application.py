"""What a streaming application consists of, and how its results are checked.

An application is a generator of input, a topology that Tidegate can scale, and a *reference*: the
same results, computed from the whole input at once, by code that shares nothing with the stream.
The results of the stream must equal the reference, row by row, whatever was scaled, moved or killed
during the run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.apps import APPLICATIONS
from tidegate.apps.loads import Shape, steady
from tidegate.errors import BackendError, InputError
from tidegate.spark.streams.shedding import rows_of
from tidegate.spark.streams.topology import StreamTopology

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

    from tidegate.spark.streams.topology import RunningTopology

__all__ = [
    "Application",
    "Generate",
    "InputCount",
    "ResultCheck",
    "application",
    "columns",
    "differences",
    "has_setting",
    "settle",
]

Tables = Mapping[str, "pa.Table"]
Generate = Callable[[str, "NDArray[np.float64]", int, "np.random.Generator"], "pa.Table"]
"""generate(source, moments, first_id, random): one row of the source for each moment.

moments: event times, Unix seconds, ascending. first_id: the first row's number in its source.
"""

Spoil = Callable[["pa.Table", float, "np.random.Generator"], "pa.Table"]
"""spoil(table, share, random): the table with about that share of bad rows added."""


@dataclass(frozen=True)
class InputCount:
    """Where the results count the input rows that they are made of.

    column: number of input rows of a result row; None: each result row is one input row. key:
    columns that identify a result row.
    """

    column: str | None
    key: tuple[str, ...]

    def lost_and_repeated(self, missing: Counter[Any], extra: Counter[Any]) -> tuple[int, int]:
        """Input rows that the results lack, and input rows that they count more than once.

        missing, extra: result rows, as `differences` returns them.

        >>> count = InputCount("n", ("a",))
        >>> count.lost_and_repeated(*differences([{"a": 1, "n": 5}], [{"a": 1, "n": 3}]))
        (2, 0)
        """
        balance: Counter[tuple[Any, ...]] = Counter()
        for rows, sign in ((missing, -1), (extra, 1)):
            for row, times in rows.items():
                values = dict(row)
                key = tuple(values[name] for name in self.key)
                balance[key] += sign * times * (values[self.column] if self.column else 1)
        lost = -sum(count for count in balance.values() if count < 0)
        return lost, sum(count for count in balance.values() if count > 0)


@dataclass(frozen=True)
class Application:
    """A streaming application.

    Args:
        name: As in `APPLICATIONS`.
        summary: One line about it.
        paper: Where it comes from.
        topology: Its sources with their schemas, and its operators.
        rates_per_s: Items per second of each source, as published; a run scales all of them.
        generate: Makes input, see `Generate`.
        results: The operators whose topics are the results.
        reference: From the whole input by source to the results by operator, without Spark.
        closing: From a Unix time to rows by source that close every window before that time.
        usable: From input and results to the input that the reference gets: without the rows that
            an operator that may err, such as text recognition, has refused. By default all of it.
        tally: From input and results to sentences for the end of a run, such as precision and
            recall.
        input_count: Where the results count input rows, so that lost and repeated input rows can be
            counted: of the only result, or by operator; None: they do not.
        shape: How the rate changes in a live run, see `Shape`; by default it does not.
        spoil: Adds a share of bad rows to a table of input; None: not supported.
        replays: Whether the rows come from a recording, whose first row has number 0.
        slo: A latency target that suits it, such as ``"5s"``.
        settings: Spark settings that it needs.
        max_files: Input files that a micro-batch reads at most; None: no bound.
    """

    name: str
    summary: str
    paper: str
    topology: StreamTopology
    rates_per_s: Mapping[str, float]
    generate: Generate
    results: tuple[str, ...]
    reference: Callable[[Tables], Tables]
    closing: Callable[[float], Tables] = lambda at_s: {}
    usable: Callable[[Tables, Tables], Tables] = lambda inputs, results: inputs
    tally: Callable[[Tables, Tables], list[str]] = lambda inputs, results: []
    input_count: InputCount | Mapping[str, InputCount] | None = None
    shape: Shape = steady
    spoil: Spoil | None = None
    replays: bool = False
    slo: str = "10s"
    settings: Mapping[str, str] = field(default_factory=dict)
    max_files: int | None = None

    def __post_init__(self) -> None:
        if set(self.rates_per_s) != set(self.topology.sources):
            raise InputError("rates_per_s", dict(self.rates_per_s), "one for each source")

    def run_through(
        self,
        spark: SparkSession,
        folder: Path,
        inputs: Mapping[str, Iterable[pa.Table]],
        *,
        parallelism: int = 2,
        at_most_s: float = 300.0,
        close_at_s: float | None = None,
    ) -> ResultCheck:
        """Send input through the whole topology and compare the results with the reference.

        Args:
            spark: The session.
            folder: For topics and checkpoints.
            inputs: Batches by source, as `generate` makes them, with or without bad rows.
            parallelism: Tasks of each operator.
            at_most_s: Timeout for the whole input, in seconds.
            close_at_s: Unix time of the rows that close the last windows; now by default.
        """
        from tidegate.spark.streams.live_settings import LiveSettings

        live_settings = LiveSettings(default_parallelism=parallelism)
        with self._set(spark), self.topology.start(spark, folder, live_settings) as running:
            for source, batches in inputs.items():
                for table in batches:
                    running.topics[source].append(table)
            settle(running, at_most_s)
            for source, table in self.closing(close_at_s or time.time()).items():
                running.topics[source].append(table)
            settle(running, at_most_s)
        return self.compare(spark, running)

    @contextmanager
    def _set(self, spark: SparkSession) -> Iterator[None]:
        """Apply the settings that a session can still change; queries copy them when they start."""
        wanted = {k: v for k, v in self.settings.items() if k.startswith("spark.sql.")}
        before = {key: spark.conf.get(key, None) for key in wanted}
        for key, value in wanted.items():
            spark.conf.set(key, value)
        try:
            yield
        finally:
            for key, was in before.items():
                spark.conf.unset(key) if was is None else spark.conf.set(key, was)

    def compare(self, spark: SparkSession, running: RunningTopology) -> ResultCheck:
        """Compare the results of a run that has ended with the reference.

        The reference gets the rows that were admitted: shed rows are not part of its input.
        """
        admitted = {source: running.admitted(spark, source) for source in self.topology.sources}
        inputs = {name: rows for name, rows in admitted.items() if rows is not None}
        results = {name: rows_of(running.topics[name], spark) for name in self.results}
        rejected = running.rejected(spark)
        if len(inputs) < len(admitted):
            return ResultCheck(inputs, results, None, rejected)
        expected = self.reference(self.usable(inputs, results))
        wrong = {
            name: differences(expected[name].to_pylist(), results[name].to_pylist())
            for name in self.results
        }
        return ResultCheck(inputs, results, wrong, rejected)

    def lost_and_repeated(self, check: ResultCheck | None) -> tuple[int | None, int | None]:
        """Input rows that the results have lost and repeated, None where they are not counted."""
        if self.input_count is None or check is None or check.wrong is None:
            return None, None
        given = self.input_count
        by_name = dict.fromkeys(self.results, given) if isinstance(given, InputCount) else given
        counted = [by_name[name].lost_and_repeated(*check.wrong[name]) for name in self.results]
        return sum(lost for lost, _ in counted), sum(repeated for _, repeated in counted)


@dataclass(frozen=True)
class ResultCheck:
    """Input and results of a run by name, compared with the reference.

    wrong: by operator, the rows that the results lack and the rows that only they have. None: not
        compared, because rows were shed and it is unknown which.
    rejected: number of rows that an operator has set aside, by operator and reason.
    """

    inputs: Tables
    results: Tables
    wrong: Mapping[str, tuple[Counter[Any], Counter[Any]]] | None
    rejected: Mapping[str, Mapping[str, int]]

    @property
    def exact(self) -> bool:
        """Whether the results equal the reference."""
        return self.wrong is not None and not any(
            missing or extra for missing, extra in self.wrong.values()
        )


def application(name: str, **settings: Any) -> Application:
    """The application of that name; settings are the arguments of its `application` function."""
    made = _maker(name)(**settings)
    assert isinstance(made, Application)
    return made


def has_setting(name: str, setting: str) -> bool:
    """Whether the application of that name has that setting."""
    return setting in signature(_maker(name)).parameters


def _maker(name: str) -> Callable[..., Any]:
    if name not in APPLICATIONS:
        raise InputError("application", name, f"one of {', '.join(APPLICATIONS)}")
    found: Callable[..., Any] = import_module(APPLICATIONS[name]).application
    return found


def columns(**kinds: DataType | str) -> StructType:
    """A schema of these columns; unlike one from DDL it needs no Spark session."""
    from pyspark.sql.types import StructType

    schema = StructType()
    for name, kind in kinds.items():
        schema.add(name, kind)
    return schema


def settle(running: RunningTopology, at_most_s: float) -> None:
    """Wait until nothing is left to do; BackendError when an operator fails or on a timeout."""
    end_s = time.monotonic() + at_most_s
    while True:
        running.check()
        running.drain(max(0.0, end_s - time.monotonic()))
        waiting = {name: count for name, count in running.lag_items().items() if count}
        if not waiting:
            return
        if time.monotonic() > end_s:
            raise BackendError(f"items still waiting after {at_most_s:.0f} s: {waiting}")


def differences(
    expected: Iterable[Mapping[str, Any]], found: Iterable[Mapping[str, Any]]
) -> tuple[Counter[Any], Counter[Any]]:
    """Rows that are missing and rows that are too many, in any order.

    Floats are equal when nine significant digits agree, because sums depend on the order.

    >>> differences([{"a": 1, "b": 0.1 + 0.2}, {"a": 2, "b": None}], [{"b": 0.3, "a": 1}])
    (Counter({(('a', 2), ('b', None)): 1}), Counter())
    """
    wanted, got = Counter(map(_comparable, expected)), Counter(map(_comparable, found))
    return wanted - got, got - wanted


def _comparable(row: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, _rounded(row[name])) for name in sorted(row))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list):
        return tuple(map(_rounded, value))
    if isinstance(value, dict):
        return _comparable(value)
    return value
