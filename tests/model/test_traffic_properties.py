"""The traffic equations against plain iteration, and loops that would never end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import topologies
from tidegate.errors import TopologyError
from tidegate.model.topology import Edge, Operator, Source, Topology


def by_iteration(topology: Topology, rounds: int = 600) -> dict[str, float]:
    """Send the input in, pass on what each operator sends, add it all up."""
    rates = dict.fromkeys(topology.by_name, 0.0)
    wave = dict.fromkeys(topology.by_name, 0.0)
    for source in topology.sources:
        for edge in topology.edges:
            if edge.origin == source.name:
                wave[edge.target] += (source.rate_per_s or 0.0) * edge.ratio
    for _ in range(rounds):
        following = dict.fromkeys(wave, 0.0)
        for name, rate in wave.items():
            rates[name] += rate
        for edge in topology.edges:
            if edge.origin in wave:
                following[edge.target] += wave[edge.origin] * edge.ratio
        wave = following
    return rates


@given(topologies())
def test_arrival_rates_are_what_plain_iteration_converges_to(topology: Topology) -> None:
    assert topology.arrival_rates() == pytest.approx(by_iteration(topology), rel=1e-9, abs=1e-9)


@given(topologies(), st.floats(0.1, 100))
def test_arrival_rates_are_linear_in_the_input(topology: Topology, factor: float) -> None:
    declared = topology.sources[0].rate_per_s or 0.0
    scaled = topology.arrival_rates({"input": declared * factor})
    expected = {name: rate * factor for name, rate in topology.arrival_rates().items()}
    assert scaled == pytest.approx(expected, rel=1e-9)


def ring(ratios: list[float]) -> Topology:
    names = [f"op{n}" for n in range(len(ratios))]
    around = zip(names, [*names[1:], names[0]], ratios, strict=True)
    edges = [Edge("input", names[0]), *(Edge(a, b, ratio) for a, b, ratio in around)]
    return Topology(tuple(Operator(n) for n in names), (Source("input", 1.0),), tuple(edges))


@given(st.lists(st.floats(0.1, 3), min_size=1, max_size=6))
def test_a_ring_is_refused_exactly_when_its_ratios_multiply_to_one_or_more(
    ratios: list[float],
) -> None:
    product = 1.0
    for ratio in ratios:
        product *= ratio
    if product >= 1:
        with pytest.raises(TopologyError, match="below 1"):
            ring(ratios).arrival_rates()
    elif product < 0.99:
        entered = ring(ratios).arrival_rates()["op0"]
        assert entered == pytest.approx(1 / (1 - product), rel=1e-6)


@given(st.floats(1.0, 5.0), topologies())
def test_one_amplifying_loop_anywhere_is_refused_by_name(gain: float, rest: Topology) -> None:
    amplifying = Topology(
        (*rest.operators, Operator("echo")),
        rest.sources,
        (*rest.edges, Edge("op0", "echo", 0.1), Edge("echo", "echo", gain)),
    )
    with pytest.raises(TopologyError, match=r"loop through .*echo"):
        amplifying.arrival_rates()
