"""The bound on small cases: against brute force, a dynamic program and plain reasoning."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from scipy.optimize import linprog

from tidegate.codec import from_json, to_json
from tidegate.errors import Infeasible, InputError
from tidegate.lab.bound import Bound, Demand, Stream, hindsight_bound
from tidegate.model import HostOffer
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology

PERIOD_S = 60.0


def offer(
    unit_s: float = 60, price: float = 1.0, hosts: int | None = 3, startup_s: float = 0
) -> HostOffer:
    return HostOffer(Resources(1), unit_s, price, startup_s, hosts)


def demand(*host_periods: float, size: float = 1.0) -> Demand:
    """The work of that number of hosts in each minute, in items of `size` core-seconds."""
    work = [n * PERIOD_S for n in host_periods]
    return Demand.of([w / size for w in work], work, period_s=PERIOD_S)


def most_in_time(work: list[float], hosts: tuple[int, ...], slo: float) -> float:
    """Host-periods of work in time, by a transport problem written down from the definition.

    Pieces of time between the period starts and due points; work n may go to the pieces between
    its release and its due point.
    """
    points = {float(m) for m in range(len(hosts) + 1)}
    points |= {n + 1 + slo for n in range(len(work)) if n + 1 + slo <= len(hosts)}
    pieces = list(itertools.pairwise(sorted(points)))
    pairs = [
        (n, j)
        for n in range(len(work))
        for j, (a, b) in enumerate(pieces)
        if a >= n and b <= n + 1 + slo + 1e-12
    ]
    a_ub = np.zeros((len(work) + len(pieces), len(pairs)))
    for column, (n, j) in enumerate(pairs):
        a_ub[n, column] = 1
        a_ub[len(work) + j, column] = 1
    b_ub = [*work, *((b - a) * hosts[int(a)] for a, b in pieces)]
    return float(-linprog(-np.ones(len(pairs)), a_ub, b_ub).fun)


def brute_force(
    work: list[float], unit: int, price: float, penalty: float, hosts: int, slo: float
) -> float:
    """The cheapest of all ways to start whole units; penalty per host-period of late work."""
    slots = len(work) + math.ceil(slo)
    best = math.inf
    for starts in itertools.product(range(hosts + 1), repeat=slots):
        running = tuple(sum(starts[max(0, m - unit + 1) : m + 1]) for m in range(slots))
        if max(running) > hosts or sum(starts) * price >= best:
            continue
        late = sum(work) - most_in_time(work, running, slo)
        best = min(best, sum(starts) * price + penalty * late)
    return best


def small_cases() -> list[tuple[list[float], int, float, float, int, float]]:
    rng = random.Random(7)
    cases = []
    for _ in range(14):
        work = [round(rng.uniform(0, 2.6), 2) for _ in range(rng.choice([1, 2, 3]))]
        hosts = rng.choice([1, 2])
        slo = rng.choice([0.05, 0.5, 1.0, 1.25])
        cases.append((work, rng.choice([1, 2, 3]), 1.0, rng.choice([0.7, 1.5, 4]), hosts, slo))
    return cases


@pytest.mark.parametrize("case", small_cases())
def test_dynamic_program_and_milp_equal_brute_force(
    case: tuple[list[float], int, float, float, int, float],
) -> None:
    work, unit, price, penalty, hosts, slo = case
    best = brute_force(*case)
    given = demand(*work), offer(unit * PERIOD_S, price, hosts), slo * PERIOD_S, penalty / 60
    exact = hindsight_bound(*given, starts="slot", method="dp")
    milp = hindsight_bound(*given, starts="slot", method="milp", gap=0)
    anywhere = hindsight_bound(*given, starts="any", gap=0)
    fractions = hindsight_bound(*given, starts="any", whole_hosts=False)
    assert exact.method == "dp"
    assert milp.method == "milp"
    assert exact.cost_usd == pytest.approx(best, rel=2e-6, abs=1e-9)
    assert milp.cost_usd == pytest.approx(best, rel=1e-5, abs=1e-9)
    assert anywhere.cost_usd <= best + 1e-9
    assert fractions.cost_usd <= anywhere.cost_usd * (1 + 2e-6) + 1e-9


def test_longer_cases_dynamic_program_equals_milp() -> None:
    rng = random.Random(3)
    for unit, slo in ((1, 2), (3, 30), (4, 90)):
        work = [rng.uniform(0, 4) for _ in range(14)]
        given = demand(*work), offer(unit * 60, 1, 4), slo, 0.04
        exact = hindsight_bound(*given, starts="slot", method="dp")
        milp = hindsight_bound(*given, starts="slot", method="milp", gap=0)
        assert milp.cost_usd == pytest.approx(exact.cost_usd, rel=1e-5)
        assert exact.plan_usd == pytest.approx(
            sum_of_units(exact, unit) + 0.04 * (exact.late_items or 0), rel=1e-6
        )


def sum_of_units(bound: Bound, unit: int) -> float:
    """Fewest units that give these hosts: a unit is started when more run than before."""
    ends = [0] * (len(bound.hosts) + unit + 1)
    running, total = 0, 0
    for m, hosts in enumerate(bound.hosts):
        running -= ends[m]
        started = round(hosts) - running
        assert started >= 0
        ends[m + unit] += started
        running += started
        total += started
    return total


def test_no_demand_costs_nothing() -> None:
    for nothing in (demand(0, 0, 0), Demand.of([5, 5], [0, 0], period_s=60)):
        for starts in ("any", "slot"):
            bound = hindsight_bound(nothing, offer(), 2, 1, starts=starts)
            assert bound.cost_usd == 0
            assert bound.regret(0) == 0
            assert bound.regret(1) == math.inf
            assert sum(bound.hosts) == 0


def test_one_period_needs_one_unit_or_lets_all_be_late() -> None:
    assert hindsight_bound(demand(0.9), offer(), 2, 1).cost_usd == pytest.approx(1, rel=1e-5)
    assert hindsight_bound(demand(0.9), offer(), 2, 0.01).cost_usd == pytest.approx(0.54, rel=1e-5)


def test_beyond_all_hosts_the_rest_is_late() -> None:
    # 5 hosts' work, 3 hosts for 60 s, and for 2 s more if another unit of each is paid.
    bound = hindsight_bound(demand(5), offer(), 2, 1, starts="slot")
    assert bound.late_items == pytest.approx(5 * 60 - 3 * 62)
    assert bound.cost_usd == pytest.approx(6 + 5 * 60 - 3 * 62, rel=1e-5)
    with pytest.raises(Infeasible, match="smaller share"):
        hindsight_bound(demand(5), offer(), 2, 0, share=0.9)
    assert hindsight_bound(demand(5), offer(), 2, 0, share=0.6).cost_usd == pytest.approx(
        3, rel=1e-5
    )


def test_unit_longer_than_the_trace_is_paid_once_per_host() -> None:
    for starts in ("any", "slot"):
        bound = hindsight_bound(demand(1, 3, 2), offer(3600, 10), 2, 10, starts=starts)
        # Two hosts and the 2 s of carry-over are not enough for the second minute.
        assert bound.cost_usd == pytest.approx(30, rel=1e-5)


def test_run_that_stops_with_the_trace_forgives_the_last_period() -> None:
    stopped = hindsight_bound(demand(1, 1), offer(), 2, 1, run_s=120, starts="slot")
    assert stopped.cost_usd == pytest.approx(1, rel=1e-5)
    assert hindsight_bound(demand(1, 1), offer(), 2, 1, starts="slot").cost_usd > 1.9
    with pytest.raises(InputError, match="run_s"):
        hindsight_bound(demand(1, 1), offer(), 2, 1, run_s=100)


def test_startup_is_paid_from_the_request_and_closes_the_beginning() -> None:
    slow = offer(120, 1, 3, startup_s=60)
    load = demand(0, 1, 1, 1)
    free = hindsight_bound(load, slow, 1, 1, starts="slot").cost_usd
    paid = hindsight_bound(load, slow, 1, 1, starts="slot", billed_from="request").cost_usd
    assert free == pytest.approx(2, rel=1e-5)
    assert paid == pytest.approx(2, rel=1e-5)  # requested in the empty minute, renewed once
    late = demand(1, 0, 0, 0)
    nobody = hindsight_bound(late, slow, 1, 1, starts="slot", initial_hosts=0)
    # Only the second after the minute is left for the items of the first minute.
    assert nobody.cost_usd == pytest.approx(1 + 59, rel=1e-5)
    one = hindsight_bound(late, slow, 1, 1, starts="slot", billed_from="request", initial_hosts=1)
    assert one.cost_usd == pytest.approx(1, rel=1e-5)
    short = offer(60, 1, 3, startup_s=60)
    twice = hindsight_bound(demand(0, 1, 0), short, 1, 1, starts="slot", billed_from="request")
    assert twice.cost_usd == pytest.approx(2, rel=1e-5)


def test_all_hosts_also_bind_when_startup_is_paid() -> None:
    slow = offer(120, 1, 1, startup_s=60)
    bound = hindsight_bound(demand(0, 3), slow, 2, 1, starts="slot", billed_from="request")
    assert bound.cost_usd == pytest.approx(2 + 180 - 62, rel=1e-5)


def test_units_that_fit_no_slot_are_rounded_for_the_policy() -> None:
    load = demand(1, 1, 1, 1, 1, 1)
    even = hindsight_bound(load, offer(90), 1, 1).cost_usd
    assert even == pytest.approx(4, rel=1e-3)  # six minutes are four units of 90 s
    assert hindsight_bound(load, offer(60 * 1.0137), 1, 1).cost_usd <= 6
    second = hindsight_bound(load, offer(1.7, 0.01), 1, 1)
    assert second.method == "lp"
    assert second.cost_usd == pytest.approx(360 / 1.7 * 0.01, rel=1e-3)


def test_share_lies_on_the_penalty_curve() -> None:
    load = demand(1, 2.5, 0.5, 3)
    whole = hindsight_bound(load, offer(), 2, 0, share=1.0, starts="slot")
    assert whole.late_items == pytest.approx(0, abs=1e-6)
    assert whole.cost_usd == pytest.approx(1 + 3 + 1 + 3, rel=1e-5)
    costs = [hindsight_bound(load, offer(), 2, 0, share=q).cost_usd for q in (0, 0.3, 0.6, 0.9, 1)]
    assert costs == sorted(costs)
    assert costs[0] == 0


def test_late_items_are_the_large_ones() -> None:
    rng = np.random.default_rng(1)
    arrivals, sizes = rng.uniform(0, 60, 4000), rng.exponential(0.05, 4000)
    real = Demand.from_items(arrivals.tolist(), sizes.tolist(), period_s=60, periods=1, sizes=12)
    mean = Demand.from_items(arrivals.tolist(), sizes.tolist(), period_s=60, periods=1, sizes=1)
    assert real.work_core_s == pytest.approx(float(sizes.sum()))
    assert real.items == pytest.approx(4000)
    least = float(np.sort(sizes)[:3600].sum())  # 90 % of the items, the smallest ones
    second = offer(60 / 10, 0.01, hosts=None)
    fluid_price = 0.01 / 6
    chosen = (
        hindsight_bound(real, second, 1, 0, share=0.9, whole_hosts=False).cost_usd / fluid_price
    )
    blind = hindsight_bound(mean, second, 1, 0, share=0.9, whole_hosts=False).cost_usd / fluid_price
    assert blind == pytest.approx(0.9 * sizes.sum(), rel=1e-4)
    assert 0.94 * least < chosen <= least * (1 + 1e-6)


def tandem() -> Topology:
    return Topology(
        (Operator("a", service_time_s=0.5), Operator("b", service_time_s=1.0, slo_s=3)),
        (Source("s"),),
        (Edge("s", "a"), Edge("a", "b", ratio=2)),
    )


def test_demand_of_a_topology() -> None:
    rates = {"s": [1.0, 0.0, 4.0]}
    whole = Demand.from_rates(tandem(), rates, period_s=60)
    assert whole.streams[0].work_core_s == (150.0, 0.0, 600.0)
    surely = Demand.from_rates(tandem(), rates, period_s=60, confidence=0.99)
    # sqrt(2 · 240 · (2·0.25 + 2·2·1) · ln(3 / 0.01))
    margin = math.sqrt(2 * 240 * 4.5 * math.log(300))
    assert surely.streams[0].work_core_s[2] == pytest.approx(600 - margin)
    each = Demand.per_operator(tandem(), rates, period_s=60, slo_s=2)
    assert [(s.name, s.slo_s, s.after) for s in each.streams] == [
        ("a", 2, ()),
        ("b", 5, (("a", 2.0),)),
    ]
    assert each.streams[1].items == (120.0, 0.0, 480.0)


def test_a_late_item_excuses_what_follows_from_it() -> None:
    each = Demand.per_operator(tandem(), {"s": [1.0]}, period_s=60, slo_s=2)
    # Nobody works: 60 items of a are late, and b never sees any.
    nothing = hindsight_bound(each, offer(3600, 1e6), 2, 1)
    assert nothing.cost_usd == pytest.approx(60, rel=1e-5)
    # Serving all needs 0.5 + 2 hosts.
    assert hindsight_bound(each, offer(3600, 1), 2, 1).cost_usd == pytest.approx(3, rel=1e-5)


def test_a_loop_has_no_order_of_operators() -> None:
    loop = Topology(
        (Operator("a", service_time_s=1),),
        (Source("s"),),
        (Edge("s", "a"), Edge("a", "a", ratio=0.5)),
    )
    assert Demand.from_rates(loop, {"s": [1.0]}, period_s=60).work_core_s == pytest.approx(120)
    with pytest.raises(InputError, match="loops"):
        Demand.per_operator(loop, {"s": [1.0]}, period_s=60, slo_s=1)


def test_bound_survives_json() -> None:
    bound = hindsight_bound(demand(1, 2), offer(), 2, 1)
    assert from_json(Bound, to_json(bound)) == bound
    assert from_json(Demand, to_json(demand(1, 2))) == demand(1, 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Demand.of([1], [1, 2], period_s=60), "work_core_s"),
        (lambda: Demand.of([-1], [1], period_s=60), r"items\[0\] is -1"),
        (lambda: Demand.of([math.nan], [1], period_s=60), "items"),
        (lambda: Demand.of([], [], period_s=60), "at least one"),
        (lambda: Demand(60, (Stream("b", (1,), (1,), after=(("a", 1),)),)), "after"),
        (lambda: Demand.from_items([-1], [1], period_s=60, periods=1), "at least 0"),
        (lambda: hindsight_bound(demand(1), offer(), 0, 1), "slo_s"),
        (lambda: hindsight_bound(demand(1), offer(), 1, -1), "penalty_usd"),
        (lambda: hindsight_bound(demand(1), offer(), 1, 1, method="dp"), "starts='slot'"),
        (lambda: hindsight_bound(demand(1), offer(), 1, 1, starts="x"), "any or slot"),  # type: ignore[arg-type]
        (lambda: hindsight_bound(demand(1), offer(), 1, 0, share=1.5), "share"),
    ],
)
def test_what_cannot_be_used_is_refused(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]
