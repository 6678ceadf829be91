"""What counts as overload, at the edge of each of its conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidegate.guards.overload import overloaded, overloaded_queries
from tidegate.model import BatchReading, Latency, OperatorReading, Snapshot
from tidegate.model.topology import Edge, Operator, Resources
from tidegate.testing import steady_snapshot


def seen(slo_s: float | None = 10.0, **reading: Any) -> Snapshot:
    """The query ``work`` with some readings, before a query ``after`` of which little is known."""
    steady = steady_snapshot(hosts=2)
    operators = (
        Operator("work", Resources(1), slo_s=slo_s),
        Operator("after", Resources(1)),
    )
    topology = replace(
        steady.topology,
        operators=operators,
        edges=(*steady.topology.edges, Edge("work", "after")),
    )
    return replace(steady, topology=topology, operators=(OperatorReading("work", **reading),))


def batches(overhead_s: float | None = None, max_rows: float | None = None) -> BatchReading:
    """Batches every five seconds."""
    return BatchReading(5.0, (), overhead_s, max_rows=max_rows)


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        ({}, False),
        ({"delay": Latency(p95_s=10.0)}, False),
        ({"delay": Latency(p95_s=10.1)}, True),
        ({"slo_s": None, "delay": Latency(p95_s=99.0)}, False),
        ({"arrival_rate_per_s": 105.0, "processed_per_s": 100.0}, False),
        ({"arrival_rate_per_s": 106.0, "processed_per_s": 100.0}, True),
        ({"arrival_rate_per_s": 106.0}, False),
        ({"processed_per_s": 1.0}, False),
        # Nothing that hosts could do: the source admits 100 rows every five seconds.
        ({"arrival_rate_per_s": 18.0, "batches": batches(max_rows=100)}, True),
        ({"arrival_rate_per_s": 19.0, "batches": batches(max_rows=100)}, True),
        ({"arrival_rate_per_s": 19.2, "batches": batches(max_rows=100)}, False),
        (
            {"arrival_rate_per_s": 2.0, "queue_length": 200.0, "batches": batches(max_rows=100)},
            True,
        ),
        (
            {"arrival_rate_per_s": 2.0, "queue_length": 201.0, "batches": batches(max_rows=100)},
            False,
        ),
        # Nor for an SLO below a trigger and an overhead.
        ({"slo_s": 5.5, "batches": batches(overhead_s=0.5)}, True),
        ({"slo_s": 5.4, "batches": batches(overhead_s=0.5)}, False),
        ({"slo_s": 12.0, "batches": batches(overhead_s=6.0)}, True),
        ({"slo_s": 11.9, "batches": batches(overhead_s=6.0)}, False),
        ({"slo_s": 5.0, "batches": batches()}, True),
        ({"slo_s": 4.9, "batches": batches()}, False),
    ],
)
def test_when_a_query_is_overloaded(reading: dict[str, Any], expected: bool) -> None:
    late = {"delay": Latency(p95_s=99.0)} if "batches" in reading else {}
    now = seen(**late | reading)
    assert overloaded_queries(now) == (("work",) if expected else ())
    assert overloaded(now) == expected


def test_batches_without_a_trigger_may_follow_each_other_as_fast_as_they_can() -> None:
    """What a batch admits is no limit of the rate then."""
    batch = BatchReading(0.0, (), 0.1, max_rows=100)
    late = seen(arrival_rate_per_s=900.0, delay=Latency(p95_s=99.0), batches=batch)
    assert overloaded_queries(late) == ("work",)


def test_only_an_entry_is_behind_by_its_rates() -> None:
    """What arrives at a later query has been processed by another one, perhaps just now."""
    now = seen()
    after = OperatorReading("after", arrival_rate_per_s=200.0, processed_per_s=100.0)
    assert not overloaded(replace(now, operators=(*now.operators, after)))


@pytest.mark.parametrize(
    ("own_s", "whole_s", "expected"),
    [(None, 10.0, False), (None, 10.1, True), (None, None, False), (1.0, 99.0, False)],
)
def test_the_whole_application_counts_where_a_delay_is_unknown(
    own_s: float | None, whole_s: float | None, expected: bool
) -> None:
    now = seen(delay=Latency(p95_s=own_s))
    assert overloaded(replace(now, latency=Latency(p95_s=whole_s))) == expected


def test_without_any_slo_nothing_is_late() -> None:
    assert not overloaded(replace(seen(slo_s=None), latency=Latency(p95_s=99.0)))
