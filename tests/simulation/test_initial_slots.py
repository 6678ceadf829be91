"""Applications of several queries begin with all slots of their hosts in use, as live ones do."""

from __future__ import annotations

import pytest

from tidegate.model import HostOffer
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.simulation import BatchSettings, CloudSettings
from tidegate.simulation.scenario import Scenario
from tidegate.workloads import ConstantRate


def chain(limit: int | None, shared: bool) -> Scenario:
    """Three queries, the last of which has at most `limit` tasks, on five hosts of five slots."""
    names = ("extract", "match", "aggregate")
    limits = {"aggregate": limit}
    return Scenario(
        Topology(
            tuple(Operator(n, Resources(1), 0.2, max_instances=limits.get(n)) for n in names),
            (Source("input"),),
            tuple(Edge(a, b) for a, b in zip(("input", *names), names, strict=False)),
        ),
        HostOffer(Resources(5), max_hosts=5),
        ConstantRate(10.0, 60.0),
        slo_s=20.0,
        interval_s=10.0,
        duration_s=60.0,
        settings=CloudSettings(),
        initial_hosts=5,
        batches=BatchSettings(shared=shared),
    )


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("limit", "counts"), [(4, [11, 10, 4]), (1, [12, 12, 1]), (None, [9, 8, 8])]
)
def test_a_query_with_few_tasks_leaves_its_slots_to_the_others(
    shared: bool, limit: int | None, counts: list[int]
) -> None:
    scenario = chain(limit, shared)
    running = scenario.world("instances").observe().running.counts
    assert [running[name] for name in ("extract", "match", "aggregate")] == counts


def test_slots_that_no_query_can_use_stay_free() -> None:
    scenario = chain(4, shared=False)
    few = tuple(
        Operator(o.name, o.demand, 0.2, max_instances=2) for o in scenario.topology.operators
    )
    counts = scenario.initial(
        Topology(few, scenario.topology.sources, scenario.topology.edges)
    ).counts
    assert set(counts.values()) == {2}
