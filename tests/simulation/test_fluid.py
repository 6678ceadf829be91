"""The flow next to the items that it stands for."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from tests.simulation.helpers import BIG, chain, running
from tidegate.errors import InputError
from tidegate.lab.backtest import backtest
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.simulation import CloudSettings, FluidCloud, Poisson, ServiceTime, SimulatedCloud
from tidegate.simulation.settings import FluidInflow
from tidegate.workloads import ConstantRate, ExchangeDay, RateTrace


class Moments:
    """Items at given moments."""

    def __init__(self, *moments_s: float) -> None:
        self._moments_s = np.array(sorted(moments_s))

    def arrivals(self, start_s: float, end_s: float) -> dict[str, np.ndarray]:
        moments_s = self._moments_s
        return {"input": moments_s[(moments_s >= start_s) & (moments_s < end_s)]}


def both(
    service_s: float, scv: float, servers: int, load: float, seconds: float
) -> list[SimulatedCloud]:
    """The same items one by one and as a flow."""
    topology = chain(service_s, scv=scv)
    arrivals = Poisson({"input": load * servers / service_s})
    worlds = [
        kind(topology, BIG, arrivals, seed=1, initial=running(topology, servers))
        for kind in (SimulatedCloud, FluidCloud)
    ]
    for world in worlds:
        world.advance(seconds)
    return worlds


@pytest.mark.parametrize("service_s", [0.01, 0.1, 1.0, 5.0])
@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (1, 0.8), (4, 0.8), (4, 0.95), (16, 0.9)])
def test_a_flow_of_drawn_items_waits_as_long_as_they_do(
    service_s: float, servers: int, load: float
) -> None:
    """Services from a hundredth of a step to five, and queues that only chance makes."""
    seconds = min(40_000.0, 1e6 * service_s / servers)
    items, flow = (world.report() for world in both(service_s, 0.0, servers, load, seconds))
    assert flow.items_in == items.items_in
    assert items.latency_mean_s is not None
    assert flow.latency_mean_s == pytest.approx(items.latency_mean_s, rel=0.06)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (1, 0.8), (4, 0.8), (16, 0.9)])
def test_varying_services_add_to_the_wait_of_the_flow(servers: int, load: float) -> None:
    items, flow = (world.report() for world in both(0.1, 1.0, servers, load, 20_000 / servers))
    assert items.latency_mean_s is not None
    assert flow.latency_mean_s == pytest.approx(items.latency_mean_s, rel=0.1)


def test_a_burst_within_the_idle_servers_does_not_wait() -> None:
    topology = chain(1.75, scv=0.0)
    world = FluidCloud(
        topology, BIG, Moments(100.1, 100.2, 100.3), seed=1, initial=running(topology, 4)
    )
    world.advance(101)
    assert world.report().operators[0].processed == 0  # none has ended
    world.advance(10)
    report = world.report()
    assert report.operators[0].processed == report.items_out == 3
    assert report.latency_mean_s == pytest.approx(1.75, rel=0.01)


def test_items_that_end_after_the_last_one_came_are_as_late_as_they_are() -> None:
    """A minute at three times the capacity, then silence: nearly all items are late."""
    topology = chain(0.1, scv=0.0)
    burst = np.arange(0.0, 60.0, 1 / 30)
    settings = CloudSettings(end_to_end_slo_s=2.0)
    shares, means = [], []
    for kind in (SimulatedCloud, FluidCloud):
        world = kind(
            topology, BIG, Moments(*burst), seed=1, initial=running(topology, 1), settings=settings
        )
        world.advance(300)
        report = world.report()
        assert report.items_out == len(burst)
        shares.append(report.slo_compliance)
        means.append(report.latency_mean_s)
    assert shares[0] is not None and shares[0] < 0.03
    assert shares[1] == pytest.approx(shares[0], abs=0.01)
    assert means[1] == pytest.approx(means[0], rel=0.02)


def test_items_that_end_in_silence_are_those_of_the_source_that_left_some_behind() -> None:
    """Two shards, of which one is overloaded: what the idle one takes does not count."""
    operators = tuple(Operator(f"o{n}", Resources(0.1), 0.1, service_scv=0.0) for n in (1, 2))
    sources = (Source("s1"), Source("s2"))
    edges = (Edge("s1", "o1"), Edge("s2", "o2"))
    topology = Topology(operators, sources, edges)

    class Two:
        def arrivals(self, start_s: float, end_s: float) -> dict[str, np.ndarray]:
            found = {}
            for name, every_s in (("s1", 1 / 30), ("s2", 0.2)):
                times = np.arange(0.0, 60.0, every_s)
                found[name] = times[(times >= start_s) & (times < end_s)]
            return found

    settings = CloudSettings(end_to_end_slo_s=2.0)
    found = []
    for kind in (SimulatedCloud, FluidCloud):
        world = kind(
            topology, BIG, Two(), seed=1, initial=running(topology, 1, 1), settings=settings
        )
        world.advance(60)
        before = world.report()
        world.advance(240)
        after = world.report()
        assert before.slo_compliance is not None and after.slo_compliance is not None
        late = (1 - after.slo_compliance) * after.items_out
        late -= (1 - before.slo_compliance) * before.items_out
        found.append(late / (after.items_out - before.items_out))
    assert found == pytest.approx([1.0, 1.0], abs=0.02)


def test_whole_items_of_instances_that_work_alike_add_up() -> None:
    topology = chain(0.01, scv=0.0)
    world = FluidCloud(
        topology, BIG, Poisson({"input": 100.0}), seed=1, initial=running(topology, 16)
    )
    for _ in range(40):
        world.advance(15)
        snapshot = world.observe()
        single = [instance.processed_per_s for instance in snapshot.instances]
        assert None not in single
        whole = math.fsum(rate for rate in single if rate is not None)
        assert whole == pytest.approx(snapshot.reading["a"].processed_per_s, abs=2.5 / 15)


@pytest.mark.parametrize("inflow", ["drawn", "expected"])
def test_the_inflow_is_drawn_or_expected(inflow: FluidInflow) -> None:
    topology = chain(0.01, scv=0.0)
    steady = ConstantRate(20.0, 600.0, source="input", seed=5)
    world = FluidCloud(topology, BIG, steady, seed=1, settings=CloudSettings(fluid_inflow=inflow))
    world.advance(600)
    drawn = len(steady.arrivals(0.0, 600.0)["input"])
    assert drawn != 12_000
    assert world.report().items_in == (drawn if inflow == "drawn" else 12_000)


def test_very_many_items_are_not_drawn() -> None:
    def inflow_at(rate: float, step_s: float = 1.0) -> str:
        options = ScenarioOptions(2.0, fluid_step_s=step_s, rate_per_instance=rate)
        trace = RateTrace(np.array([0.0, 60.0]), np.array([rate, rate]))
        return options.build(trace).settings.fluid_inflow

    assert inflow_at(900.0) == inflow_at(5_000.0, step_s=0.1) == "drawn"
    assert inflow_at(1_100.0) == inflow_at(900.0, step_s=2.0) == "expected"


def test_an_unknown_inflow_is_refused_with_the_choices() -> None:
    with pytest.raises(InputError, match="drawn or expected"):
        ScenarioOptions.read({"slo_s": 2.0, "fluid_inflow": "even"}, {})


@pytest.mark.parametrize(
    "service",
    [
        ServiceTime("exponential", 2.0),
        ServiceTime("lognormal", 2.0, 0.5),
        ServiceTime.of_samples((0.5, 1.0, 4.5)),
    ],
)
def test_parts_of_service_times_have_their_mean(service: ServiceTime) -> None:
    parts = service.parts_s(4)
    assert parts == sorted(parts) and parts[0] < parts[-1]
    assert math.fsum(parts) / 4 == pytest.approx(service.mean_s)


def test_services_that_vary_end_over_time() -> None:
    """Half of all exponential times are shorter than 0.7 of their mean."""
    topology = chain(20.0, scv=1.0)
    many = Moments(*np.linspace(10.0, 10.9, 100))
    world = FluidCloud(topology, BIG, many, seed=1, initial=running(topology, 100))
    ended = []
    for until_s in (11, 20, 30, 60, 110):
        world.advance(until_s - world.time_s)
        ended.append(world.report().operators[0].processed)
    assert ended[0] == 0 and ended[-1] == 100
    assert 25 <= ended[1] <= 50 and 50 <= ended[2] <= 75 and 75 <= ended[3] <= 100


@pytest.mark.parametrize("name", ["btu", "drs", "ds2", "static", "tide"])
def test_policies_cost_and_keep_as_much_in_the_flow_as_with_items(name: str) -> None:
    day = ExchangeDay(mean_per_s=20.0, seed=3)
    scenario = ScenarioOptions(10.0, interval_s=120.0, instances_per_host=2).build(day)
    (items,), (flow,) = (backtest(scenario, [name], fluid=fluid) for fluid in (False, True))
    assert items.slo_compliance is not None and flow.slo_compliance is not None
    assert flow.slo_compliance == pytest.approx(items.slo_compliance, abs=0.02)
    assert flow.report.host_seconds == pytest.approx(items.report.host_seconds, rel=0.03)


def test_whole_seconds_are_times_like_any_other() -> None:
    """The end of a chunk of arrivals may be an integer, and the next moment is none."""
    reports = []
    for chunk_s in (60, 60.0):
        topology = chain(0.02)
        world = FluidCloud(
            topology, BIG, Poisson({"input": 100.0}), seed=1, initial=running(topology, 4),
            settings=CloudSettings(arrival_chunk_s=chunk_s),
        )  # fmt: skip
        for seconds in (100, 0.5, 0.25, 30):
            world.advance(seconds)
            world.observe()
        reports.append(world.report())
    assert reports[0] == reports[1]


@pytest.mark.parametrize("kind", [SimulatedCloud, FluidCloud])
def test_a_world_can_be_pickled_in_the_middle_of_a_run(kind: type[SimulatedCloud]) -> None:
    topology = chain(0.02)
    world = kind(topology, BIG, Poisson({"input": 100.0}), seed=1, initial=running(topology, 4))
    world.advance(10.0)
    world.observe()
    twin = pickle.loads(pickle.dumps(world))
    for each in (world, twin):
        each.advance(10.0)
    assert twin.observe() == world.observe()
    assert twin.report() == world.report()
