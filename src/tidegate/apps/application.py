"""What a streaming application consists of, and how it is run to its end and checked.

An application is a generator of input, a topology that Tidegate can scale, and a *reference*: the
same results computed from all of the input at once, by code that has nothing in common with the
stream. What the stream delivers must equal the reference, row by row, whatever was scaled, moved or
killed in between.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.errors import BackendError, InputError
from tidegate.spark.streams.shedding import rows_of
from tidegate.spark.streams.topology import StreamTopology
from tidegate.workloads import ConstantRate, Workload

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

    from tidegate.spark.streams.topology import RunningTopology

__all__ = [
    "APPLICATIONS",
    "Application",
    "Generate",
    "Outcome",
    "application",
    "columns",
    "differences",
]

Tables = Mapping[str, "pa.Table"]
Generate = Callable[[str, "NDArray[np.float64]", int, "np.random.Generator"], "pa.Table"]
"""generate(source, moments, first_id, random): one row of the source for each moment.

moments: event times, Unix seconds, ascending. first_id: the first row's number in its source.
"""

Shape = Callable[[str, float, float, int], Workload]
"""shape(source, mean_per_s, seconds, seed): when that source's items come in so many seconds."""

Spoil = Callable[["pa.Table", float, "np.random.Generator"], "pa.Table"]
"""spoil(table, share, random): the table with about that share of bad rows added."""

APPLICATIONS = ("ticks", "max-price", "factory", "logos", "patterns")
"""Names of the applications; each is a module of `tidegate.apps`."""


def _steady(source: str, mean_per_s: float, seconds: float, seed: int) -> Workload:
    return ConstantRate(mean_per_s, seconds, seed=seed, source=source)


@dataclass(frozen=True)
class Application:
    """A streaming application.

    name, summary: for people; paper: where it comes from.
    topology: its sources with their schemas and its operators.
    rates_per_s: items a second of each source, as published; a run scales them all.
    generate: makes input (see `Generate`).
    closing: from a Unix time to rows by source that let every window before it close.
    results: the operators whose topics are the results.
    reference: from all input by source to the results by operator, at once and without Spark.
    outcome: what counts of the results' rows, such as the last version of each; all by default.
    shape: how a live run's rate changes (see `Shape`); steady by default.
    spoil: mixes a share of bad rows into a table of input, None where nobody has written that.
    replays: whether the rows are those of a recording, the first row's number being 0.
    usable: from inputs and results to the input that the reference gets: without what a part that
        may err, such as text recognition, has refused; all of it by default.
    slo: a latency that suits it, ``"5s"``. settings: Spark settings that it wants.
    tally: sentences for the end of a run, such as precision and recall, from inputs and results.
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
    outcome: Callable[[Tables], Tables] = lambda results: results
    usable: Callable[[Tables, Tables], Tables] = lambda inputs, results: inputs
    tally: Callable[[Tables, Tables], list[str]] = lambda inputs, results: []
    shape: Shape = _steady
    spoil: Spoil | None = None
    replays: bool = False
    slo: str = "10s"
    settings: Mapping[str, str] = field(default_factory=dict)

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
    ) -> Outcome:
        """Put input through the whole topology and compare what comes out with the reference.

        folder: for topics and checkpoints. inputs: batches by source, as `generate` makes them; bad
        rows are welcome. at_most_s: wait no longer for the end. close_at_s: Unix time of the
        rows that close the last windows, after all others; now by default.
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
        return self.outcome_of(spark, running)

    @contextmanager
    def _set(self, spark: SparkSession) -> Iterator[None]:
        """The settings that a running session can still take; queries copy them as they start."""
        wanted = {k: v for k, v in self.settings.items() if k.startswith("spark.sql.")}
        before = {key: spark.conf.get(key, None) for key in wanted}
        for key, value in wanted.items():
            spark.conf.set(key, value)
        try:
            yield
        finally:
            for key, was in before.items():
                spark.conf.unset(key) if was is None else spark.conf.set(key, was)

    def outcome_of(self, spark: SparkSession, running: RunningTopology) -> Outcome:
        """What a run that has come to its end has brought, compared with the reference.

        The reference gets what was let in: rows that were shed are none of its input.
        """
        let_in = {source: running.admitted(spark, source) for source in self.topology.sources}
        inputs = {name: rows for name, rows in let_in.items() if rows is not None}
        results = self.outcome(
            {name: rows_of(running.topics[name], spark) for name in self.results}
        )
        rejected = running.rejected(spark)
        if len(inputs) < len(let_in):
            return Outcome(inputs, results, {}, rejected, compared=False)
        expected = self.reference(self.usable(inputs, results))
        wrong = {
            name: differences(expected[name].to_pylist(), results[name].to_pylist())
            for name in self.results
        }
        return Outcome(inputs, results, wrong, rejected)


@dataclass(frozen=True)
class Outcome:
    """Input and results by name, and how they compare.

    wrong: by operator, rows that the reference has and the results lack, and the other way round.
    rejected: rows that an operator has set aside, by operator and reason.
    compared: False where rows were shed and nobody can tell which.
    """

    inputs: Tables
    results: Tables
    wrong: Mapping[str, tuple[Counter[Any], Counter[Any]]]
    rejected: Mapping[str, Mapping[str, int]]
    compared: bool = True

    @property
    def exact(self) -> bool:
        """Whether the results equal the reference."""
        return self.compared and not any(lacks or more for lacks, more in self.wrong.values())


def application(name: str, **settings: Any) -> Application:
    """The application of that name; settings are those of its module's `application`."""
    from importlib import import_module

    if name not in APPLICATIONS:
        raise InputError("application", name, f"one of {', '.join(APPLICATIONS)}")
    module = import_module(f"tidegate.apps.{name.replace('-', '_')}")
    made = module.application(**settings)
    assert isinstance(made, Application)
    return made


def columns(**kinds: DataType) -> StructType:
    """A schema of these columns, without a Spark session, which reading DDL would need."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def settle(running: RunningTopology, at_most_s: float) -> None:
    """Wait until nothing is left to do; BackendError when an operator fails or it lasts."""
    end_s = time.monotonic() + at_most_s
    while True:
        running.check()
        running.drain(max(0.0, end_s - time.monotonic()))
        waiting = {name: count for name, count in running.lag_items().items() if count}
        if not waiting:
            return
        if time.monotonic() > end_s:
            raise BackendError(f"still waiting after {at_most_s:.0f} s: {waiting}")


def differences(
    expected: Iterable[Mapping[str, Any]], found: Iterable[Mapping[str, Any]]
) -> tuple[Counter[Any], Counter[Any]]:
    """Rows that are missing and rows that are too many, whatever their order.

    Floats are equal when nine significant digits agree, since sums depend on the order.

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
