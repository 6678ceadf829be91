"""Whatever anyone leases, whenever, and whichever items they drop: the bound lies below."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.lab.bound import Demand, hindsight_bound
from tidegate.lab.bound.slots import Starts
from tidegate.model import HostOffer
from tidegate.model.topology import Resources

PERIOD_S = 60.0
CORES = 2.0


@dataclass(frozen=True)
class Item:
    arrival_s: float
    work_core_s: float


@dataclass(frozen=True)
class Leased:
    """A host paid from `paid_s` for whole units, working from `works_s` until they end."""

    paid_s: float
    works_s: float
    units: int


def finishes(
    items: list[Item], leases: list[Leased], unit_s: float, slo_s: float, drop: bool
) -> int:
    """Items in time when all hosts together work as one fluid server, first come first served.

    drop: an item that would not be in time is not begun (the choice of a clairvoyant).
    """
    points = sorted(
        {0.0, 1e6}
        | {lease.works_s for lease in leases}
        | {lease.paid_s + lease.units * unit_s for lease in leases}
    )
    pieces = [
        (
            a,
            b,
            CORES * sum(x.works_s <= a and b <= x.paid_s + x.units * unit_s + 1e-9 for x in leases),
        )
        for a, b in itertools.pairwise(points)
    ]
    now, in_time = 0.0, 0
    for item in sorted(items, key=lambda i: i.arrival_s):
        at, left = max(now, item.arrival_s), item.work_core_s
        for a, b, rate in pieces:
            if b <= at or left <= 0:
                continue
            begin = max(a, at)
            if rate > 0 and left <= rate * (b - begin) + 1e-12:
                at, left = begin + left / rate, 0.0
            else:
                left -= rate * (b - begin)
                at = b
        done = left <= 0 and at <= item.arrival_s + slo_s
        in_time += done
        if done or not drop:
            now = at
    return in_time


@dataclass(frozen=True)
class World:
    items: list[Item]
    demand: Demand
    offer: HostOffer
    slo_s: float
    penalty_usd: float


def world(rng: random.Random, *, sizes: str) -> World:
    periods = rng.choice([1, 2, 4, 6])
    items = []
    mean = rng.choice([0.5, 2.0, 6.0])
    for n in range(periods):
        count = int(rng.choice([0, 0.3, 1.2, 2.5]) * CORES * PERIOD_S / mean)
        # Bunched anywhere in the period: the bound may not care.
        a, b = sorted((rng.random(), rng.random()))
        for _ in range(count):
            size = mean if sizes == "one" else rng.expovariate(1 / mean)
            items.append(Item((n + a + (b - a) * rng.random()) * PERIOD_S, size))
    demand = Demand.from_items(
        [i.arrival_s for i in items],
        [i.work_core_s for i in items],
        period_s=PERIOD_S,
        periods=periods,
        sizes=rng.choice([2, 3, 6]),
    )
    offer = HostOffer(
        Resources(CORES),
        billing_unit_s=rng.choice([20, 60, 90, 120, 600, 77]),
        price_per_unit_usd=1.0,
        startup_s=rng.choice([0, 45, 60, 70]),
        max_hosts=rng.choice([2, 4]),
    )
    slo_s = rng.choice([2.0, 20.0, 60.0, 75.0])
    return World(items, demand, offer, slo_s, rng.choice([0.02, 0.1, 1.0]))


def plan(rng: random.Random, w: World, *, grid: bool, request: bool) -> list[Leased]:
    """Leases at random, or where many items arrive; at most max_hosts at a time."""
    offer, leases = w.offer, []
    end_s = w.demand.periods * PERIOD_S
    for _ in range(rng.randint(0, 6)):
        near = rng.choice(w.items).arrival_s if w.items and rng.random() < 0.7 else 0.0
        works = max(0.0, near + rng.uniform(-5, 5)) if rng.random() < 0.8 else end_s * rng.random()
        paid = works
        if request:
            paid = max(0.0, works - offer.startup_s)
        if grid:
            paid = round(paid / PERIOD_S) * PERIOD_S
        works = paid + offer.startup_s if request else paid
        leases.append(Leased(paid, works, rng.randint(1, 3)))
    chosen: list[Leased] = []
    for lease in leases:
        until = lease.paid_s + lease.units * offer.billing_unit_s
        overlap = [
            x
            for x in chosen
            if x.paid_s < until and lease.paid_s < x.paid_s + x.units * offer.billing_unit_s
        ]
        if len(overlap) < (offer.max_hosts or 0):
            chosen.append(lease)
    return chosen


def cost(w: World, leases: list[Leased], drop_above: float, drop: bool) -> tuple[float, float]:
    """What a plan costs in units, and how many items are late."""
    kept = [i for i in w.items if i.work_core_s <= drop_above]
    in_time = finishes(kept, leases, w.offer.billing_unit_s, w.slo_s, drop)
    return float(sum(lease.units for lease in leases)), len(w.items) - in_time


def check(seed: int, *, sizes: str, grid: bool) -> None:
    rng = random.Random(seed)
    w = world(rng, sizes=sizes)
    request = rng.random() < 0.5
    if grid:  # leases that begin and end with the minutes
        unit = rng.choice([60.0, 120.0, 180.0])
        startup = 60.0 if request else 0.0
        offer = HostOffer(Resources(CORES), unit, 1.0, startup, w.offer.max_hosts)
        w = World(w.items, w.demand, offer, w.slo_s, w.penalty_usd)
    bound = hindsight_bound(
        w.demand,
        w.offer,
        w.slo_s,
        w.penalty_usd,
        starts="slot" if grid else "any",
        billed_from="request" if request else "running",
        initial_hosts=None if not request else 0,
        time_limit_s=2,
    )
    shares: dict[float, float] = {}
    for _ in range(25):
        leases = plan(rng, w, grid=grid, request=request)
        largest = math.inf if rng.random() < 0.6 else rng.uniform(0.2, 12)
        units, late = cost(w, leases, largest, rng.random() < 0.7)
        assert bound.cost_usd <= units + w.penalty_usd * late + 1e-9
        if w.items:
            share = 1 - late / len(w.items)
            shares[share] = min(units, shares.get(share, math.inf))
    for share, units in sorted(shares.items())[-2:]:
        least = hindsight_bound(
            w.demand,
            w.offer,
            w.slo_s,
            0.0,
            share=share * (1 - 1e-12),
            starts="slot" if grid else "any",
            whole_hosts=False,
        )
        assert least.cost_usd <= units + 1e-9


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_below_every_plan_with_leases_at_any_moment(seed: int) -> None:
    check(seed, sizes="one", grid=False)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_below_every_plan_when_sizes_vary_and_large_items_are_dropped(seed: int) -> None:
    check(seed, sizes="exponential", grid=False)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_below_every_plan_on_the_grid(seed: int) -> None:
    check(seed, sizes="one", grid=True)


def test_a_good_plan_comes_close() -> None:
    """Were the bound far too low, all of the above would pass for nothing."""
    rng = random.Random(5)
    items = [Item(60 * n + 60 * k / 40, 2.1 * CORES) for n in range(4) for k in range(40)]
    demand = Demand.from_items(
        [i.arrival_s for i in items], [i.work_core_s for i in items], period_s=60, periods=4
    )
    offer = HostOffer(Resources(CORES), 240, 1.0, max_hosts=4)
    w = World(items, demand, offer, 10.0, 0.1)
    bound = hindsight_bound(demand, offer, w.slo_s, w.penalty_usd)
    units, late = cost(w, [Leased(0, 0, 1)], math.inf, True)
    assert late > 0
    best = units + w.penalty_usd * late
    units, late = cost(w, [Leased(0, 0, 1), Leased(rng.uniform(0, 1e-3), 0.001, 1)], math.inf, True)
    best = min(best, units + w.penalty_usd * late)
    assert bound.cost_usd == pytest.approx(best, rel=0.02)
    assert bound.cost_usd <= best


@pytest.mark.parametrize(
    ("unit_s", "slo_s", "begin_s", "load"),
    [
        (60, 2, 30, [(30, 60, 29), (60, 90, 29)]),  # across the border of two minutes
        (120, 31, 30, [(30, 60, 30), (60, 120, 90)]),  # and on after its last border
        (77, 2, 0, [(0, 60, 60), (60, 76, 16)]),  # a unit that fits no slot
    ],
)
def test_one_lease_off_the_grid_may_be_enough(
    unit_s: float, slo_s: float, begin_s: float, load: list[tuple[float, float, int]]
) -> None:
    """Plans that programs with leases only at slot borders would call impossible."""
    items = [Item(a + (b - a) * k / n, CORES) for a, b, n in load for k in range(n)]
    demand = Demand.from_items(
        [i.arrival_s for i in items], [i.work_core_s for i in items], period_s=60, periods=2
    )
    offer = HostOffer(Resources(CORES), unit_s, 1.0, max_hosts=1)
    w = World(items, demand, offer, slo_s, 1.0)
    assert cost(w, [Leased(begin_s, begin_s, 1)], math.inf, False) == (1.0, 0)
    assert hindsight_bound(demand, offer, slo_s, 1.0).cost_usd <= 1


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    st.lists(st.floats(0, 4), min_size=1, max_size=5),
    st.sampled_from([30.0, 60.0, 180.0]),
    st.floats(0.001, 0.2),
    st.sampled_from([1.0, 30.0, 60.0, 100.0]),
    st.floats(1.01, 2),
    st.sampled_from(["any", "slot"]),
)
def test_monotone(
    load: list[float], unit_s: float, penalty: float, slo_s: float, more: float, starts: Starts
) -> None:
    def bound(
        *, price: float = 1.0, penalty: float = penalty, slo_s: float = slo_s, scale: float = 1.0
    ) -> float:
        work = [60 * n * scale for n in load]
        demand = Demand.of(work, work, period_s=60)
        run_s = (len(load) + 4) * 60  # the same end for every SLO
        offer = HostOffer(Resources(1), unit_s, price, max_hosts=3)
        return hindsight_bound(
            demand,
            offer,
            slo_s,
            penalty,
            run_s=run_s,
            starts=starts,
            gap=0,
        ).cost_usd

    base = bound()
    near = 1e-5 * base + 1e-7
    assert base <= bound(price=more) + near
    assert base <= bound(penalty=penalty * more) + near
    assert base <= bound(scale=more) + near
    assert bound(slo_s=slo_s * more) <= base + near
    assert bound(price=more) <= more * base + near
    assert base <= penalty * 60 * sum(load) + near
