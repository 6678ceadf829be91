"""Applications of several queries begin with all slots of their hosts in use, as live ones do."""

from __future__ import annotations

from dataclasses import replace

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


@pytest.mark.parametrize("demand", [Resources(2), Resources(1, 400.0)])
def test_queries_that_need_more_than_a_slot_do_not_overfill_their_hosts(demand: Resources) -> None:
    scenario = chain(None, shared=False)
    offer = HostOffer(Resources(6, 1200.0), max_hosts=5)
    large = tuple(Operator(o.name, demand, 0.2) for o in scenario.topology.operators)
    topology = Topology(large, scenario.topology.sources, scenario.topology.edges)
    initial = replace(scenario, offer=offer, topology=topology).initial(topology)
    for host in initial.hosts:
        count = sum(instance.host == host for instance in initial.instances)
        assert count == 3


def test_slots_that_no_query_can_use_stay_free_on_all_hosts() -> None:
    scenario = chain(4, shared=False)
    few = tuple(
        Operator(o.name, o.demand, 0.2, max_instances=2) for o in scenario.topology.operators
    )
    initial = scenario.initial(Topology(few, scenario.topology.sources, scenario.topology.edges))
    assert set(initial.counts.values()) == {2}
    assert {instance.host for instance in initial.instances} == set(initial.hosts)
