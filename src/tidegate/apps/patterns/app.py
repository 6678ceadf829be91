"""patterns: the maximal frequent itemsets of the latest short texts, as they change (DRS, FPD).

A pattern is a set of words. It is frequent if enough texts of the window contain it, and maximal if
no frequent pattern contains it. The window is a number of texts and moves on by slides.

::

    texts ──► generate ──► detect ──► report
                            ▲   │
                            └───┘  patterns that have become frequent or ceased to be

`generate` makes the candidates of each text, one row for each instance of the detector with the
candidates that it holds. An instance knows only the counts of the patterns that it holds. Whether a
pattern is maximal depends on larger patterns, which other instances report through the loop.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, StringType

from tidegate.apps.application import Application, Tables, columns
from tidegate.apps.patterns.detector import DetectorInstance, Event, Rules
from tidegate.apps.patterns.texts import (
    AHEAD_S,
    BEHIND_S,
    LIMIT,
    MOST_WORDS,
    brute_force,
    spoiled,
    texts,
)
from tidegate.spark.streams.topology import StreamOperator, StreamTopology
from tidegate.units import finite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["application"]

TEXTS = columns(id="long", value="string", sent_us="long")
EVENTS = columns(
    kind="string", slide="long", instance="integer", patterns=ArrayType(StringType()),
    gone=ArrayType(StringType()), times="long", rejected="string",
)  # fmt: skip
STATE = columns(state="binary")


def application(
    window: int = 2000,
    slide: int = 200,
    support: float = 0.02,
    longest: int = 4,
    instances: int = 8,
    state_partitions: int = 4,
    rebalances: bool = False,
    wait_s: float = 0.0,
) -> Application:
    """The application.

    Args:
        window: Length in texts, a multiple of the slide. The paper's window is 50,000.
        slide: Length in texts.
        support: Share of the texts of a window that contain a frequent pattern.
        longest: Words of a pattern at most; maximal means among patterns up to this length.
        instances: Parts into which the detector's patterns are divided, fixed by the state.
        state_partitions: Instances that work at the same time, at most.
        rebalances: Whether the detector's tasks follow its parallelism, see `StreamOperator`.
        wait_s: Time that the detector waits for each of its rows, in seconds, so that slots are
            scarce and not processors.
    """
    finite(wait_s, "wait_s", low=0)
    rules = Rules(window, slide, support, longest, instances)
    topology = StreamTopology(
        sources={"texts": TEXTS},
        operators=(
            StreamOperator(
                "generate", ("texts",), lambda rows: _generate(rows, rules), ratio=instances
            ),
            StreamOperator(
                "detect",
                ("generate", "detect"),
                lambda rows: _detect(rows, rules, wait_s),
                state_partitions=state_partitions,
                rebalances=rebalances,
                ratio=0.01,  # changes and reports of a slide, relative to its texts
                schema=EVENTS,
            ),
            StreamOperator("report", ("detect",), lambda rows: _report(rows, rules), ratio=0.5),
        ),
    )
    return Application(
        name="patterns",
        summary=f"maximal frequent itemsets over the latest {window} short texts",
        paper="DRS (Fu et al.), frequent pattern detection",
        topology=topology,
        rates_per_s={"texts": 320.0},
        generate=texts,
        spoil=spoiled,
        results=("report",),
        reference=lambda inputs: _reference(inputs, rules),
        tally=lambda inputs, results: _tally(inputs, results, rules),
    )


def _generate(rows: DataFrame, rules: Rules) -> DataFrame:
    """The candidate patterns of each text, by instance; a bad text has none and is set aside."""
    words = "array_sort(array_distinct(regexp_extract_all(lower(text), '[a-z]+', 0)))"
    room = f"length(p) - length(replace(p, ' ', '')) < {rules.longest - 1}"
    patterns = f"""aggregate(words, cast(array() AS array<string>), (found, word) -> concat(
        found, array(word), transform(filter(found, p -> {room}), p -> concat(p, ' ', word))))"""
    share = _event(
        "'text'", "n", f"filter(patterns, p -> crc32(p) % {rules.instances} = n)", "NULL"
    )
    return (
        rows.selectExpr("*", "try_parse_json(value) AS record")
        .selectExpr(
            "*",
            # A number or an object is not a text, although Spark would convert it to one.
            "if(schema_of_variant(record) LIKE '%text: STRING%', "
            "try_variant_get(record, '$.text', 'string'), NULL) AS text",
            "try_variant_get(record, '$.at_us', 'bigint') - sent_us AS ahead_us",
        )
        .selectExpr("*", f"coalesce({words}, array()) AS words")
        .selectExpr(
            "*",
            f"id IS NOT NULL AND id >= 0 AND id < {LIMIT} AS numbered",
            f"""CASE WHEN record IS NULL THEN 'malformed JSON'
                     WHEN size(words) = 0 THEN 'no words'
                     WHEN size(words) > {MOST_WORDS} THEN 'more than {MOST_WORDS} words'
                     WHEN ahead_us IS NULL THEN 'no time'
                     WHEN ahead_us < -{BEHIND_S}000000 THEN 'the clock is behind'
                     WHEN ahead_us > {AHEAD_S}000000 THEN 'the clock is ahead' END AS bad""",
        )
        .selectExpr(
            f"id DIV {rules.slide} AS slide",
            "numbered",
            "value",
            "if(numbered, bad, coalesce(bad, 'no number')) AS why",
            f"if(bad IS NULL, {patterns}, array()) AS patterns",
        )
        .selectExpr(
            f"""inline(concat(
                if(why IS NULL, array(), array({_event("'bad'", "-1", "array(value)", "why")})),
                if(numbered, transform(sequence(0, {rules.instances - 1}), n -> {share}), array())
            ))"""
        )
    )


def _event(kind: str, instance: str, patterns: str, rejected: str) -> str:
    """A row of `EVENTS` as a SQL expression."""
    return f"""named_struct(
        'kind', {kind}, 'slide', slide, 'instance', {instance}, 'patterns', {patterns},
        'gone', cast(array() AS array<string>), 'times', cast(NULL AS long),
        'rejected', cast({rejected} AS string))"""


def _detect(rows: DataFrame, rules: Rules, wait_s: float) -> DataFrame:
    """Texts go to the instance that they are for; reports of an instance go to all instances."""

    def work(key: tuple[Any, ...], groups: Iterable[Any], state: Any) -> Iterator[Any]:
        import pandas as pd  # type: ignore[import-untyped]

        instance = (
            DetectorInstance.unpack(state.get[0]) if state.exists else DetectorInstance(int(key[0]))
        )
        events = [
            Event(kind, int(slide), int(number), list(patterns), list(gone))
            for group in groups
            for kind, slide, number, patterns, gone in zip(
                *(group[name] for name in ("kind", "slide", "instance", "patterns", "gone")),
                strict=True,
            )
        ]
        if wait_s:
            time.sleep(wait_s * len(events))
        made = pd.DataFrame(list(instance.work(events, rules)), columns=list(Event._fields))
        state.update((instance.pack(),))
        if len(made):
            yield made.astype({"slide": "Int64", "times": "Int64", "instance": "int32"})

    receiver = f"if(kind = 'text', array(instance), sequence(0, {rules.instances - 1}))"
    return (
        rows.filter("kind IN ('text', 'closed')")
        .selectExpr("*", f"explode({receiver}) AS receiver")
        .groupBy("receiver")
        .applyInPandasWithState(work, EVENTS, STATE, "append", "NoTimeout")
    )


def _report(rows: DataFrame, rules: Rules) -> DataFrame:
    """The changes of the result, in readable form."""
    return rows.filter("kind IN ('+', '-')").selectExpr(
        f"(slide + 1) * {rules.slide} AS until",
        "patterns[0] AS pattern",
        "kind AS change",
        "times",
    )


def _reference(inputs: Tables, rules: Rules) -> Tables:
    import pyarrow as pa

    schema = pa.schema(
        {
            "until": pa.int64(),
            "pattern": pa.string(),
            "change": pa.string(),
            "times": pa.int64(),
        }
    )
    return {"report": pa.Table.from_pylist(brute_force(inputs["texts"], rules), schema=schema)}


def _tally(inputs: Tables, results: Tables, rules: Rules) -> list[str]:
    changes = results["report"].to_pylist()
    now: dict[str, int] = {}
    for row in sorted(changes, key=lambda row: row["until"]):
        if row["change"] == "+":
            now[row["pattern"]] = row["times"]
        else:
            now.pop(row["pattern"], None)
    longest = sorted(now, key=lambda pattern: (-pattern.count(" "), pattern))[:5]
    return [
        f"{inputs['texts'].num_rows} texts, {len(changes)} changes of the maximal patterns "
        f"in windows of {rules.window}, frequent from {rules.least} texts",
        f"maximal in the last window: {len(now)}, among them "
        + ", ".join(f"{{{pattern.replace(' ', ', ')}}}" for pattern in longest),
    ]
