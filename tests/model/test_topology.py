from __future__ import annotations

import math

import pytest

from tidegate.errors import TopologyError
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology

DIAMOND = Topology(
    (Operator("split"), Operator("left"), Operator("right"), Operator("join")),
    (Source("in", 100.0),),
    (
        Edge("in", "split", 2.0),
        Edge("split", "left", 0.25),
        Edge("split", "right", 0.75),
        Edge("left", "join"),
        Edge("right", "join"),
    ),
)


def test_rates_follow_the_edges_and_add_up_where_they_meet() -> None:
    assert DIAMOND.arrival_rates() == {"split": 200, "left": 50, "right": 150, "join": 200}
    assert DIAMOND.arrival_rates({"in": 10})["join"] == 20


def test_propagation_starts_wherever_items_come_in() -> None:
    assert DIAMOND.propagate({"left": 8}) == {"split": 0, "left": 8, "right": 0, "join": 8}


def test_neighbours_are_those_that_exchange_items_and_never_oneself() -> None:
    assert DIAMOND.neighbours["left"] == {"split", "join"}
    loop = Topology((Operator("a"),), (), (Edge("a", "a", 0.5),))
    assert loop.neighbours["a"] == frozenset()


def test_entries_are_the_operators_that_sources_feed_or_all_without_sources() -> None:
    assert DIAMOND.entries == ("split",)
    assert Topology((Operator("a"), Operator("b"))).entries == ("a", "b")


def test_the_external_rate_is_unknown_when_one_source_is() -> None:
    two = Topology((Operator("a"),), (Source("x", 2.0), Source("y", 3.0)))
    assert two.external_rate_per_s == 5.0
    one_unknown = Topology((Operator("a"),), (Source("x", 2.0), Source("y")))
    assert one_unknown.external_rate_per_s is None


def test_a_rate_that_nobody_knows_is_asked_for_by_name() -> None:
    unknown = Topology((Operator("a"),), (Source("x"),), (Edge("x", "a"),))
    with pytest.raises(TopologyError, match="source x: rate_per_s is None"):
        unknown.arrival_rates()
    assert unknown.arrival_rates({"x": 3.0}) == {"a": 3.0}


def test_an_amplifying_loop_names_its_members_and_its_gain() -> None:
    loop = Topology(
        (Operator("in"), Operator("a"), Operator("b")),
        (Source("x", 1.0),),
        (Edge("x", "in"), Edge("in", "a"), Edge("a", "b", 2.0), Edge("b", "a", 0.5)),
    )
    with pytest.raises(TopologyError, match=r"gain of the loop through a, b is '1'"):
        loop.arrival_rates()


@pytest.mark.parametrize(
    ("operators", "sources", "edges", "words"),
    [
        ((), (), (), "at least one operator"),
        ((Operator("a"), Operator("a")), (), (), "unique"),
        ((Operator("a"),), (Source("a"),), (), "unique"),
        ((Operator("a"),), (), (Edge("a", "b"),), "edge target is 'b'"),
        ((Operator("a"),), (), (Edge("b", "a"),), "edge origin is 'b'"),
        ((Operator("a"),), (Source("s"),), (Edge("a", "s"),), "edge target is 's'"),
    ],
)
def test_a_topology_that_makes_no_sense_is_refused(
    operators: tuple[Operator, ...],
    sources: tuple[Source, ...],
    edges: tuple[Edge, ...],
    words: str,
) -> None:
    with pytest.raises(TopologyError, match=words):
        Topology(operators, sources, edges)


def test_operators_refuse_values_without_meaning() -> None:
    with pytest.raises(TopologyError, match="operator a: service_time_s is 0"):
        Operator("a", service_time_s=0)
    with pytest.raises(TopologyError, match="operator a: cpu_cores is -1"):
        Operator("a", Resources(-1))
    with pytest.raises(TopologyError, match="max_instances is 0"):
        Operator("a", max_instances=0)
    with pytest.raises(TopologyError, match=r"service_scv is -0\.5"):
        Operator("a", service_scv=-0.5)
    with pytest.raises(TopologyError, match="give each operator a name"):
        Operator("")
    with pytest.raises(TopologyError, match="source s: rate_per_s is nan"):
        Source("s", math.nan)


def test_the_image_is_the_name_unless_given() -> None:
    assert Operator("a").image_name == "a"
    assert Operator("a", image="x:1").image_name == "x:1"


def test_resources_add_subtract_and_fit_with_a_little_forgiveness() -> None:
    one = Resources(1, 100, 10)
    assert one + one == Resources(2, 200, 20)
    assert one - one == Resources(0)
    assert (Resources(0.1) + Resources(0.2)).fits(Resources(0.3))
    assert not Resources(1.001, 100, 10).fits(one)
    assert not Resources(1, 101, 10).fits(one)
    assert not Resources(1, 100, 11).fits(one)
    with pytest.raises(TopologyError, match="memory_mb is nan"):
        Resources(1, math.nan)


def test_the_largest_slo_is_that_of_an_operator_that_has_one() -> None:
    plain, strict, lax = Operator("a"), Operator("b", slo_s=2.0), Operator("c", slo_s=30.0)
    assert Topology((plain, strict, lax)).largest_slo_s == 30.0
    assert Topology((plain, strict)).largest_slo_s == 2.0
    assert Topology((plain,)).largest_slo_s == math.inf


def test_who_comes_after_whom() -> None:
    assert DIAMOND.after(["left"]) == {"join"}
    assert DIAMOND.after(["split", "join"]) == {"left", "right", "join"}
    assert DIAMOND.after([]) == set()
    loop = Topology((Operator("a"), Operator("b")), (), (Edge("a", "b"), Edge("b", "a", 0.5)))
    assert loop.after(["a"]) == {"a", "b"}


def test_what_gets_nothing_beside_a_loop_has_a_rate_of_zero() -> None:
    """And not of -2e-15, which the solver returns for the last one."""
    names = ("first", "second", "third", "idle", "last")
    edges = (
        Edge("first", "first", 0.1), Edge("first", "second", 0.02), Edge("second", "third", 0.0),
        Edge("idle", "last", 3.0), Edge("third", "last", 0.5),
    )  # fmt: skip
    topology = Topology(tuple(map(Operator, names)), (), edges)
    for rate in (0.09, 0.3, 1.7, 123.4):
        rates = topology.propagate({"first": rate, "third": 100.0 * rate})
        assert min(rates.values()) >= 0.0
        assert rates["idle"] == 0.0
