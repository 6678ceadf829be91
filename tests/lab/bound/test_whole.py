"""The bound by prices of slots: below everything that anyone can do, and close to it."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from tests.lab.bound.test_bound_properties import CORES, PERIOD_S, cost, plan, world
from tidegate.lab.backtest import backtest, bound_of
from tidegate.lab.bound import Demand, FineDemand, hindsight_bound, whole, whole_host_bound
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.model import HostOffer
from tidegate.model.topology import Resources
from tidegate.simulation.scenario import Scenario
from tidegate.workloads import RateTrace


@pytest.fixture(params=["short programs", "as it is"])
def _programs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "short programs":  # several of them, and for short units too
        monkeypatch.setattr(whole, "MOST_SLOTS", 30)
        monkeypatch.setattr(whole, "LONG_UNIT_S", 0.0)
        monkeypatch.setattr(whole, "STRETCH_UNITS", 3)


# --- below every plan -----------------------------------------------------------------------------


@pytest.mark.usefixtures("_programs")
@pytest.mark.parametrize("seed", range(40))
def test_below_every_plan_with_leases_at_any_moment(seed: int) -> None:
    rng = random.Random(seed)
    w = world(rng, sizes="one")
    if not w.items:
        return
    size_s = w.items[0].work_core_s / CORES
    slot_s = rng.choice([1.0, 2.0, 7.0, 20.0])
    slots = math.ceil(w.demand.periods * PERIOD_S / slot_s)
    work = np.zeros(slots)
    for item in w.items:
        work[int(item.arrival_s / slot_s)] += size_s
    demand = FineDemand(slot_s, work, w.slo_s, w.offer.billing_unit_s, 1.0, w.penalty_usd / size_s)
    bound = whole_host_bound(demand)
    for _ in range(25):
        leases = plan(rng, w, grid=False, request=rng.random() < 0.5)
        units, late = cost(w, leases, math.inf, rng.random() < 0.7)
        assert bound <= units + w.penalty_usd * late + 1e-9


@pytest.mark.usefixtures("_programs")
@pytest.mark.parametrize("seed", range(25))
def test_below_the_cheapest_of_all_lease_schedules(seed: int) -> None:
    """The integer program with leases on slots is one way to lease: none may be cheaper."""
    rng = random.Random(seed)
    slot_s, slo_s = 10.0, rng.choice([2.0, 10.0, 25.0])
    unit_s = slot_s * rng.choice([1, 3, 6])
    work = np.array([rng.choice([0, 0.2, 0.9, 1.0, 1.7, 3.0]) * slot_s for _ in range(12)])
    penalty_usd = rng.choice([0.001, 0.02, 0.5])
    items = Demand.of(work.tolist(), work.tolist(), period_s=slot_s)
    offer = HostOffer(Resources(1), unit_s, 1.0, max_hosts=6)
    exact = hindsight_bound(
        items, offer, slo_s, penalty_usd, starts="slot", method="milp", gap=0, time_limit_s=5
    )
    assert exact.plan_usd is not None
    found = whole_host_bound(FineDemand(slot_s, work, slo_s, unit_s, 1.0, penalty_usd))
    assert found <= exact.plan_usd + 1e-6


def test_below_brute_force_with_fine_starts() -> None:
    """All ways to start up to three units on a grid of seconds; the work flows in evenly."""
    unit_s, slo_s, penalty_usd = 6, 2, 0.3
    for load in (0.25, 0.6, 1.0, 1.5):
        work = np.full(16, load)
        bound = whole_host_bound(
            FineDemand(1.0, work, float(slo_s), float(unit_s), 1.0, penalty_usd)
        )
        best = math.inf
        for count in range(4):
            for starts in itertools.combinations_with_replacement(range(-5, 17), count):
                hosts = [sum(s <= t < s + unit_s for s in starts) for t in range(18)]
                late, queue = 0.0, [0.0] * (slo_s + 1)
                for t in range(18):
                    queue = [*queue[1:], load if t < 16 else 0.0]
                    room = float(hosts[t])
                    for age in range(len(queue)):
                        done = min(room, queue[age])
                        queue[age], room = queue[age] - done, room - done
                    late += queue[0]
                    queue[0] = 0.0
                best = min(best, count + penalty_usd * (late + sum(queue)))
        assert bound <= best + 1e-9
        assert bound >= 0.4 * best, "and not far below"


# --- close to what is possible --------------------------------------------------------------------


@pytest.mark.parametrize("unit_s", [60.0, 3600.0])
@pytest.mark.parametrize("load", [0.05, 0.3, 0.9])
def test_a_small_steady_load_needs_one_host_all_day(unit_s: float, load: float) -> None:
    work = np.full(43_200, load * 2.0)
    day = FineDemand(2.0, work, 2.0, unit_s, unit_s / 3600, 0.01)
    assert 0.93 * 24 <= whole_host_bound(day) <= 24


def test_an_hour_is_paid_for_each_burst() -> None:
    """Ten minutes of load every three hours, hosts by the hour: eight of them."""
    work = np.zeros(1440)
    for start in range(0, 1440, 180):
        work[start : start + 10] = 2.5 * 60
    day = FineDemand(60.0, work, 2.0, 3600.0, 1.0, 1.0)
    assert 0.95 * 24 <= whole_host_bound(day) <= 24.0


def test_much_work_costs_its_time() -> None:
    work = np.full(10_000, 37.4 * 2.0)
    found = whole_host_bound(FineDemand(2.0, work, 2.0, 60.0, 1 / 60, 0.01))
    assert found == pytest.approx(float(work.sum()) / 3600, rel=0.01)


def test_free_late_items_cost_nothing_and_cheap_ones_little() -> None:
    work = np.full(1_000, 1.0)
    free = FineDemand(2.0, work, 2.0, 60.0, 1.0, 0.0)
    assert whole_host_bound(free) == 0.0
    cheap = replace(free, penalty_usd=1e-4)
    assert 0 < whole_host_bound(cheap) <= 1e-4 * 1_000


# --- in a backtest --------------------------------------------------------------------------------


def tide(hours: float, unit_s: float, peak: float = 60.0, step_s: float = 300.0) -> Scenario:
    times = np.arange(0, hours * 3600, step_s)
    rates = peak * (0.25 + np.maximum(0, np.sin(times / 86_400 * 2 * math.pi)) ** 4)
    trace = RateTrace(times, rates, seed=3)
    options = ScenarioOptions(2.0, billing_unit_s=unit_s, rate_per_instance=10.0)
    return options.build(trace)


@pytest.mark.parametrize("unit_s", [60.0, 3600.0])
def test_no_policy_is_cheaper_on_a_long_trace(unit_s: float) -> None:
    scenario = tide(10.0, unit_s)
    bound = bound_of(scenario)
    assert bound.method == "prices"
    results = backtest(scenario, ["static", "lag", "btu", "queue-threshold"], bound=bound)
    assert all(bound.cost_usd <= result.cost_usd for result in results)


def test_the_bound_of_a_quiet_night_is_one_host() -> None:
    scenario = tide(10.0, 60.0, peak=20.0)
    bound = bound_of(scenario)
    assert bound.cost_usd > 0.9 * 10 * scenario.offer.usd_per_h


def test_many_days_have_a_bound() -> None:
    """The slots are few enough for a trace of two months."""
    bound = bound_of(tide(24 * 55, 3600.0, peak=20.0), fluid=True)
    assert bound.cost_usd > 0.95 * 24 * 55


def test_too_few_hosts_are_counted() -> None:
    scenario = tide(10.0, 60.0)
    tight = replace(scenario, offer=replace(scenario.offer, max_hosts=1))
    assert bound_of(tight, fluid=True).cost_usd > bound_of(scenario, fluid=True).cost_usd


@pytest.mark.parametrize("days", [1, 30, 1_000_000])
def test_a_unit_of_any_length_takes_no_more_memory_than_the_work(days: int) -> None:
    unit_s = days * 86_400.0
    hour = FineDemand(2.0, np.full(1800, 0.2), 2.0, unit_s, unit_s / 3600, 0.01)
    # One host does it all for one unit; all late, it costs 3.60.
    assert 0 < whole_host_bound(hour) <= min(unit_s / 3600, 0.01 * float(hour.work.sum()))
