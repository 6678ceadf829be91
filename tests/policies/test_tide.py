"""Tide: forecasts with scores, a promise that is kept in the long run, and prices."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.policies.batch_world import BatchWorld, Query
from tidegate.lab.backtest import situation_of
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.model import (
    Host,
    HostOffer,
    InstanceReading,
    Latency,
    Lease,
    OperatorReading,
    Plan,
    Snapshot,
)
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.policies import Situation, create
from tidegate.policies.tide import Tide, TideMemory
from tidegate.policies.tide.forecast import FORECASTERS, HEADROOM, STEEPEST, Ensemble, Histogram
from tidegate.policies.tide.policy import FIRST_PART, LEAST_PART, MOST_PART
from tidegate.policies.tide.promise import Promise, late_now, late_share
from tidegate.policies.wrapper import innermost
from tidegate.testing import check_policy
from tidegate.workloads import ConstantRate

TEN_SEEDS = range(10)
QUICK = Latency(mean_s=0.3, p50_s=0.3, p95_s=0.5, p99_s=0.6)
SLOW = Latency(mean_s=9.0, p50_s=9.0, p95_s=9.5, p99_s=9.9)
LEAD_S = 60.0


def moment(
    time_s: float,
    rate: float | None,
    hosts: int = 2,
    *,
    waiting: float = 0.0,
    latency: Latency = QUICK,
    leased_s: float = 0.0,
    unit_s: float = 60.0,
    usd_per_unit: float = 0.1,
) -> Snapshot:
    """One operator of 0.25 s an item on hosts with four slots: 16 items/s keep a host busy."""
    capacity = Resources(4, 8192)
    names = [f"host-{n}" for n in range(1, hosts + 1)]
    return Snapshot(
        time_s=time_s,
        topology=Topology(
            (Operator("work", Resources(1, 256), service_time_s=0.25),),
            (Source("input"),),
            (Edge("input", "work"),),
        ),
        offer=HostOffer(capacity, unit_s, usd_per_unit, startup_s=45.0),
        hosts=tuple(Host(n, capacity, lease=Lease(unit_s, usd_per_unit, leased_s)) for n in names),
        instances=tuple(
            InstanceReading(f"work-{4 * h + n + 1}", "work", name)
            for h, name in enumerate(names)
            for n in range(4)
        ),
        operators=(OperatorReading("work", rate, rate, queue_length=waiting),),
        latency=latency,
        interval_s=15.0,
        leased_so_far=hosts,
    )


class Story:
    """The policy, turn after turn. The number of hosts follows the plans at once."""

    def __init__(self, hosts: int = 2, unit_s: float = 60.0, **settings: float) -> None:
        self.policy = Tide(**{"slo_s": 2.0, **settings})
        self.unit_s = unit_s
        self.memory: TideMemory = self.policy.initial_memory()
        self.hosts, self.time_s = hosts, 0.0

    def turn(self, rate: float | None, **measured: float | Latency) -> Plan:
        given = {"unit_s": self.unit_s, **measured}
        now = moment(self.time_s, rate, self.hosts, **given)  # type: ignore[arg-type]
        plan, self.memory = self.policy.decide(now, self.memory)
        self.hosts = plan.bounded_target
        self.time_s += 15.0
        return plan


# --- the promise ----------------------------------------------------------------------------------


Adversary = Callable[[Promise, random.Random, int], tuple[float, float]]


def against_the_careless(promise: Promise, rng: random.Random, turn: int) -> tuple[float, float]:
    """All items are late as soon as the care is low, else as many as are allowed."""
    return rng.uniform(50, 150), 1.0 if promise.care < 1.0 else 0.01


def in_bursts(promise: Promise, rng: random.Random, turn: int) -> tuple[float, float]:
    """Long calm times, then many more items than usual that are all late."""
    return (1000.0, 1.0) if turn % 200 > 190 else (rng.uniform(1, 100), 0.0)


def at_random(promise: Promise, rng: random.Random, turn: int) -> tuple[float, float]:
    """Shares and numbers of items without any order."""
    return rng.expovariate(0.01), rng.random() ** 4


def always(promise: Promise, rng: random.Random, turn: int) -> tuple[float, float]:
    """Everything is late, whatever is done."""
    return 100.0, 1.0


@pytest.mark.parametrize("seed", TEN_SEEDS)
@pytest.mark.parametrize("adversary", [against_the_careless, in_bursts, at_random, always])
def test_late_items_are_allowed_or_counted_as_out_of_reach(adversary: Adversary, seed: int) -> None:
    """The theorem of designs/020-tide.md, for any series and in every turn."""
    rng, promise = random.Random(seed), Promise(0.3)
    share, step, most = 0.95, 0.1, math.log(5)
    late = allowed = beyond = 0.0
    for turn in range(1500):
        items, part = adversary(promise, rng, turn)
        usual = (promise.items + items) / (promise.turns + 1)
        before = promise.out_of_reach
        promise = promise.after(items, part, share, step, most)
        late += items / usual * part
        allowed += items / usual * (1 - share)
        beyond += (promise.out_of_reach - before) / usual
        assert 0 <= promise.care <= most
        assert late <= allowed + (most - 0.3) / step + beyond + 1e-6
    if adversary is always:  # it is not claimed that the promise was kept
        assert beyond > 0.9 * 0.95 * 1500


@pytest.mark.parametrize("seed", TEN_SEEDS)
@pytest.mark.parametrize("delay", [1, 5])
def test_what_can_be_kept_is_kept_although_effects_come_late(delay: int, seed: int) -> None:
    """An adversary makes items late whenever the care of some turns ago was below a limit."""
    rng, promise = random.Random(seed), Promise(0.0)
    share, step, most = 0.99, 0.05, math.log(10)
    cares = [0.0] * delay
    limit = 0.0
    for turn in range(20_000):
        if turn % 500 == 0:
            limit = rng.uniform(0.0, 1.9)  # at most the largest care minus the delay's steps
        late = 1.0 if cares[-delay] < limit else 0.0
        promise = promise.after(100.0, late, share, step, most)
        cares.append(promise.care)
    assert promise.out_of_reach == 0
    bound = (1 - share) + most / step / 20_000
    assert promise.in_time is not None and promise.in_time >= 1 - bound


def test_unused_allowance_makes_it_cheaper_again() -> None:
    promise = Promise(1.0)
    for _ in range(1000):
        promise = promise.after(100.0, 0.0, 0.95, 0.1, 2.0)
    assert promise.care == 0


def test_a_turn_with_many_items_counts_for_more() -> None:
    steady = Promise(0.0, turns=100, items=10_000.0)
    few = steady.after(10.0, 1.0, 0.99, 0.1, 5.0)
    many = steady.after(1000.0, 1.0, 0.99, 0.1, 5.0)
    assert many.care > 50 * few.care


def test_a_turn_without_items_changes_nothing() -> None:
    assert Promise(0.5).after(0.0, 0.0, 0.99, 0.1, 1.0) == Promise(0.5)


@pytest.mark.parametrize(
    ("latency", "late"),
    [
        (Latency(), None),
        (Latency(mean_s=1.0), 0.0),
        (Latency(mean_s=3.0), 1.0),
        (Latency(p50_s=1.0, p95_s=1.5, p99_s=1.9), 0.0),
        (Latency(p50_s=1.0, p95_s=3.0), 0.275),
        (Latency(p50_s=2.5, p95_s=3.0, p99_s=3.0), 1.0),
        (Latency(p95_s=2.5), 0.05),
    ],
)
def test_the_late_share_is_read_from_the_percentiles(latency: Latency, late: float | None) -> None:
    assert late_share(latency, 2.0) == pytest.approx(late)


def test_queries_with_a_delay_are_judged_by_their_own_target() -> None:
    now = moment(0.0, 20.0, latency=QUICK)
    work = replace(now.topology.operators[0], slo_s=0.4)
    delayed = replace(now.operators[0], delay=Latency(p50_s=0.5))
    topology = replace(now.topology, operators=(work,))
    assert late_now(replace(now, topology=topology, operators=(delayed,)), 2.0) == (300.0, 1.0)
    assert late_now(now, 2.0) == (300.0, 0.0)


# --- forecasts ------------------------------------------------------------------------------------


def fed(rates: Iterator[float] | list[float], quantile: float) -> tuple[Ensemble, list[bool]]:
    """An ensemble after these rates, every 15 s, and whether each forecast held."""
    ensemble, held = Ensemble(), []
    waiting: list[float] = []
    for turn, rate in enumerate(rates):
        ensemble = ensemble.observe(15.0 * turn, rate)
        if len(waiting) == 4:
            held.append(rate <= waiting.pop(0))
        forecast, ensemble = ensemble.forecast(LEAD_S, quantile, 0.99)
        waiting.append(forecast.rate_per_s)
    return ensemble, held


@pytest.mark.parametrize("seed", TEN_SEEDS)
def test_a_quantile_is_not_exceeded_more_often_than_it_says(seed: int) -> None:
    rng = random.Random(seed)
    rates = [100 * rng.lognormvariate(0, 0.4) for _ in range(2500)]
    _, held = fed(rates, 0.9)
    assert 0.88 <= sum(held[500:]) / len(held[500:]) <= 0.95


def test_weights_follow_the_scores_and_a_loser_is_demoted() -> None:
    """The rate alternates each minute: the last value is always wrong, the maximum never."""
    ensemble, _ = fed([100.0 if turn // 4 % 2 else 10.0 for turn in range(800)], 0.9)
    forecast, _ = ensemble.forecast(LEAD_S, 0.9, 0.99)
    weights = dict(zip(FORECASTERS, ensemble.weights(ensemble.due[-1].values), strict=True))
    assert math.isclose(sum(weights.values()), 1)
    assert weights["max-5m"] > 10 * weights["trend"]
    assert "trend" in forecast.demoted
    assert 100 <= forecast.rate_per_s < 110


def test_the_opening_of_yesterday_is_expected_today() -> None:
    """900/s from 9:00 to 17:00, 10/s at night. The day before shows what 9:00 brings."""
    nine, five = 9 * 240, 17 * 240
    day = [900.0 if nine <= turn < five else 10.0 for turn in range(5760)]
    before, _ = fed(day[: nine - 2], 0.9)
    after, _ = fed(day + day[: nine - 2], 0.9)
    (first, _), (second, _) = (e.forecast(LEAD_S, 0.9, 0.99) for e in (before, after))
    assert before.due[-1].values[FORECASTERS.index("day")] is None
    assert after.due[-1].values[FORECASTERS.index("day")] == 900.0
    assert second.rate_per_s > 2 * first.rate_per_s


def test_a_histogram_forgets_and_returns_its_quantiles() -> None:
    histogram = Histogram()
    for _ in range(5000):
        histogram = histogram.add(4.0)
    for _ in range(5000):
        histogram = histogram.add(1.05)
    assert histogram.seen <= 2000
    middle, high = histogram.ratios((0.5, 0.99))
    assert middle == pytest.approx(1.05, rel=0.05)
    assert high < 4.5
    assert Histogram().add(0.0).add(1e9).seen == 2


def test_a_clock_that_goes_back_and_a_gap_lose_no_margin() -> None:
    ensemble, _ = fed([50.0] * 100, 0.9)
    back = ensemble.observe(5.0, 60.0)
    assert back.seen_s == 5.0 and back.histograms == ensemble.histograms and not back.due
    later = ensemble.observe(1e6, 60.0)
    assert later.histograms == ensemble.histograms  # nobody knows what came in the gap
    assert later.minutes == (60.0,)
    assert ensemble.observe(99 * 15.0, 70.0) == ensemble  # the same moment, asked again


# --- decisions ------------------------------------------------------------------------------------


def test_every_decision_says_forecast_quantile_need_and_price() -> None:
    story = Story()
    for _ in range(30):
        plan = story.turn(20.0)
    reason = plan.reasons[0]
    assert reason.code == "forecast"
    assert reason.text.startswith("2")
    for part in ("/s at most in 1 min", "% sure, mostly by", "host", "a missing one costs"):
        assert part in reason.text
    assert reason.text.endswith("; promised: 95 % in time, so far 100 %")


def test_every_decision_says_the_promise_and_what_was_kept_of_it() -> None:
    story = Story(share=0.95)
    text = story.turn(20.0, latency=SLOW).reasons[0].text
    assert text.endswith("; promised: 95 % in time, so far 0 %")


def test_more_input_leases_and_late_items_make_it_more_careful() -> None:
    calm, late = Story(), Story()
    for turn in range(40):
        calm.turn(30.0 + 5 * (turn % 3))
        late.turn(30.0 + 5 * (turn % 3), latency=SLOW)
    assert late.memory.promise.care > calm.memory.promise.care == 0
    assert late.hosts > calm.hosts >= 3
    before = calm.hosts
    calm.turn(100.0)
    assert calm.hosts > before


def test_a_host_without_a_price_is_not_kept_until_a_unit_ends() -> None:
    """`Autoscaler` knows no price unless it is told one; its unit of an hour means nothing then."""
    free = {"unit_s": 3600.0, "usd_per_unit": 0.0}
    story = Story(hosts=4)
    for _ in range(20):
        story.turn(10.0, **free)
    assert story.time_s < 3600 and story.hosts == 1


@pytest.mark.parametrize("seed", TEN_SEEDS)
def test_at_least_the_rate_now_is_expected_when_a_silence_ends(seed: int) -> None:
    """25 minutes without items teach the means that next to nothing comes. Then something does."""
    rng, story = random.Random(seed), Story()
    for turn in range(5):
        story.turn(5 + 55 * min(1.0, 0.4 * turn) * rng.uniform(0.9, 1.1))
    for _ in range(100):
        story.turn(0.0)
    for turn in range(1, 9):
        rate = 12 * turn * rng.uniform(0.95, 1.05)
        said = story.turn(rate).reasons[0].text
        assert max(float(word) for word in re.findall(r"([\d.e+-]+)/s", said)) >= 0.99 * rate, said
    assert story.hosts >= 96 / 16


def test_hosts_are_released_when_their_unit_ends_and_they_were_not_needed_for_one() -> None:
    story = Story(hosts=8)
    seen = []
    for turn in range(12):
        plan = story.turn(10.0)
        seen.append(plan.bounded_target)
        if plan.bounded_target < 8:
            assert (15 * turn) % 60 == 45  # leased at 0: the unit ends before the next turn
            break
    assert seen[-1] < 8


def test_a_host_that_was_needed_within_the_last_unit_is_kept() -> None:
    hourly, by_minute = Story(hosts=1), Story(hosts=1)
    for story, unit_s in ((hourly, 3600.0), (by_minute, 60.0)):
        for _ in range(20):
            story.turn(10.0, unit_s=unit_s)
        story.turn(60.0, unit_s=unit_s)
        for _ in range(60):
            story.turn(10.0, unit_s=unit_s)
    assert hourly.hosts > by_minute.hosts


def test_of_a_long_unit_the_last_minutes_decide() -> None:
    """One minute of ten times the rate, an hour ago, keeps no host for another hour."""
    story = Story(hosts=1)
    for _ in range(20):
        story.turn(10.0, unit_s=3600.0)
    story.turn(60.0, unit_s=3600.0)
    most = story.hosts
    for _ in range(240):
        story.turn(10.0, unit_s=3600.0, leased_s=15.0)
    assert story.hosts < most


def test_what_a_missing_host_makes_late_is_measured() -> None:
    """Two hosts less than needed: all items are late on one, and none where there is time."""
    prices = {}
    for name, latency in (("late", SLOW), ("in time", QUICK)):
        story = Story(hosts=1)
        for turn in range(60):
            story.hosts = 1
            story.turn(40.0 + turn % 2, latency=latency)
        prices[name] = story.memory.part_late
    assert prices["late"] == MOST_PART
    assert prices["in time"] == LEAST_PART
    assert Story().memory.part_late == pytest.approx(FIRST_PART)


def test_a_spike_is_not_forecast_to_grow_as_it_began() -> None:
    """Eight times the rate at once: the margins of that turn are not paid for at the top."""
    ensemble, _ = fed([10.0] * 30 + [80.0] * 5, 0.97)
    forecast, _ = ensemble.forecast(LEAD_S, 0.97, 0.99)
    assert 80.0 <= forecast.rate_per_s <= HEADROOM * STEEPEST * 80.0
    ensemble, _ = fed([10.0] * 30 + [80.0] * 30, 0.97)
    forecast, _ = ensemble.forecast(LEAD_S, 0.97, 0.99)
    assert forecast.rate_per_s <= HEADROOM * 80.0


def test_a_forecast_of_nothing_needs_one_host() -> None:
    """Every second 5 min are silent, and only the day before knows when."""
    story, silent = Story(hosts=1), []
    for _ in range(1700):
        slot = math.floor(story.time_s / 300.0)
        rate = 0.0 if slot % 2 else 10.0 + 90 * random.Random(slot % 288).random()
        plan = story.turn(rate)
        if rate > 0 and plan.reasons[0].text.startswith("0/s at most"):
            silent.append(plan.bounded_target)
        story.time_s += 45.0
    assert silent and min(silent) >= 1


def test_the_price_of_a_late_item_comes_from_the_scenario() -> None:
    cheap, dear = (ScenarioOptions(2.0, penalty_usd=usd) for usd in (0.001, 0.01))
    prices = [situation_of(o.build(ConstantRate(40, 600))).late_price for o in (cheap, dear)]
    assert None not in prices and math.isclose(prices[1] or 0, 10 * (prices[0] or 1))
    assert situation_of(ScenarioOptions(2.0).build(ConstantRate(40, 600))).late_price == (
        pytest.approx(10)
    )
    assert Tide.suggested(Situation(2.0, late_price=3.0)) == {"slo_s": 2.0, "late_price": 3.0}
    assert Tide(**Tide.suggested(Situation(2.0, late_price=1e-9))).late_price == 0.01


def test_waiting_items_add_spare_hosts() -> None:
    quiet, behind = Story(), Story()
    for _ in range(20):
        quiet.turn(20.0)
        behind.turn(20.0)
    quiet.turn(20.0)
    plan = behind.turn(20.0, waiting=2000.0)
    assert behind.hosts > quiet.hosts
    assert "for the backlog" in plan.reasons[0].text


@pytest.mark.parametrize(("unit_s", "turns"), [(60.0, 5), (3600.0, 1)])
def test_a_spike_counts_for_some_usual_turns_and_the_rest_apart(unit_s: float, turns: int) -> None:
    """Care for all of its items would be paid for hours after it."""
    story = Story(unit_s=unit_s)
    for _ in range(60):
        story.turn(20.0)
    plan = story.turn(2000.0, latency=SLOW)
    (said,) = [r.text for r in plan.reasons if r.code == "out-of-reach"]
    promise = story.memory.promise
    assert promise.care == pytest.approx(turns * story.policy.step)
    usual = promise.items / promise.turns
    beyond = (2000 * 15 / usual * 0.95 - turns) * usual
    assert promise.out_of_reach == pytest.approx(beyond)
    why = f"a turn counts for at most {turns} usual ones"
    assert said == f"{beyond:.0f} late items are counted apart: {why}"
    story.turn(20.0, latency=SLOW)
    assert story.memory.promise.care > promise.care  # what is late after it counts


@pytest.mark.parametrize(
    ("hosts", "waiting", "helps"), [(2, 0, True), (3, 0, False), (3, 99, True)]
)
def test_items_that_are_late_while_hosts_are_idle_raise_no_care(
    hosts: int, waiting: float, helps: bool
) -> None:
    """They take long by themselves: more hosts would be paid for and make none of them faster."""
    story = Story()
    story.turn(20.0)
    for _ in range(10):
        story.hosts = hosts
        story.turn(20.0, latency=SLOW, waiting=waiting)
    promise = story.memory.promise
    assert (promise.care > 0.5) == helps and (promise.out_of_reach > 0) != helps
    assert promise.late == 10 * 20 * 15


def test_late_items_count_if_hosts_became_idle_after_they_came() -> None:
    """They waited for these hosts, so more hosts before would have helped."""
    story, late = Story(), Latency(mean_s=40.0, p50_s=40.0, p95_s=50.0, p99_s=60.0)
    story.turn(20.0)
    story.turn(20.0, latency=late, waiting=800.0)
    before = story.memory.promise
    for _ in range(5):  # the items that waited a minute came before there were hosts for them
        story.hosts = 4
        story.turn(20.0, latency=late)
    counted = story.memory.promise
    assert counted.care > before.care + 0.4 and counted.out_of_reach == before.out_of_reach
    for _ in range(5):  # later ones came while hosts were idle
        story.hosts = 4
        story.turn(20.0, latency=late)
    assert story.memory.promise.care < counted.care + 0.1
    assert story.memory.promise.out_of_reach > counted.out_of_reach


@pytest.mark.parametrize(
    ("unit_s", "most", "limit"),
    [
        (60.0, 9.5, "hosts for more than 2 times the present rate"),
        (3600.0, 4.75, "more than 4.75 times the price of a late item"),
    ],
)
def test_a_promise_that_costs_too_much_is_said_to_be_out_of_reach(
    unit_s: float, most: float, limit: str
) -> None:
    """A host for a margin is paid for a whole unit, so an hour is too long for margins."""
    story = Story(unit_s=unit_s)
    for _ in range(60):
        plan = story.turn(20.0, latency=SLOW, waiting=2000.0)
    assert story.memory.promise.care == pytest.approx(math.log(most))
    assert [r.text for r in plan.reasons if r.code == "out-of-reach"] == [
        f"0.0% in time so far, 95.0% promised: to keep the promise would take {limit}"
    ]


def test_care_beyond_the_largest_price_provides_for_a_multiple_of_the_rate() -> None:
    """While items are late at a steady rate, the model asks for too few hosts."""
    story = Story(share=0.99, most=5.0, margin=4.0)
    cautious = Story(share=0.99, most=5.0, margin=1.0)
    for _ in range(25):
        for one in (story, cautious):
            one.turn(20.0, latency=SLOW, waiting=2000.0)
    story.hosts = cautious.hosts = 2  # those for the backlog are gone
    plan = story.turn(20.0, latency=SLOW)
    multiple = math.exp(story.memory.promise.care) / 5
    assert 1.5 < multiple < 4
    (said,) = [r.text for r in plan.reasons if r.code == "margin"]
    assert said.startswith(f"{multiple:.3g} times the present rate")
    assert not [r for r in cautious.turn(20.0, latency=SLOW).reasons if r.code == "margin"]
    assert story.hosts > cautious.hosts


@pytest.mark.parametrize("rate", [20.0, 200.0])
def test_the_largest_care_provides_for_the_peak_at_the_foot_and_for_no_more_at_the_top(
    rate: float,
) -> None:
    """After square waves of 10 min, while nothing is late."""
    story = Story(share=0.99)
    for turn in range(400):
        story.turn(200.0 if turn // 40 % 2 else 20.0)
    for _ in range(30):
        story.turn(rate)
    promise = replace(story.memory.promise, care=math.log(24.75 * 20**0.5))
    story.memory = replace(story.memory, promise=promise)
    said = story.turn(rate).reasons[0].text
    rates = [float(word) for word in re.findall(r"([\d.e+-]+)/s", said)]
    assert 200 < max(rates) <= 1.2 * 200, said


def test_one_item_in_a_turn_says_little_about_the_rate() -> None:
    rng, told, ensemble = random.Random(1), [], Ensemble()
    for turn in range(2000):
        items = sum(rng.random() < 0.05 for _ in range(15))  # 0.05/s
        ensemble = ensemble.observe(15.0 * turn, items / 15, 15.0)
        told.append(ensemble.rate_per_s)
    assert sum(0.05 / 3 < rate < 0.05 * 3 for rate in told[200:]) > 0.95 * len(told[200:])
    assert ensemble.observe(30_000.0, 40.0).rate_per_s == 40, "that many items say it at once"


def test_days_of_silence_are_no_error() -> None:
    story = Story()
    for _ in range(240):
        story.turn(20.0)
    for _ in range(4 * 60 * 24 * 3):
        story.turn(0.0)
    assert story.turn(20.0).predicted.hosts_needed == 2


def test_forecasts_are_scored_where_turns_are_minutes_apart() -> None:
    story = Story()
    for _ in range(50):
        now = replace(moment(story.time_s, 20.0), interval_s=180.0)
        _, story.memory = story.policy.decide(now, story.memory)
        story.time_s += 180.0
    assert story.memory.ensemble.histograms[0].seen > 40


def test_a_decision_adds_some_thousand_hosts_at_most() -> None:
    story = Story(late_price=1e12)
    plan = story.turn(20.0, latency=SLOW, waiting=1e12)
    assert plan.predicted.hosts_needed == 2 + 1000
    assert "a decision adds 1000 hosts at most" in [r.text for r in plan.reasons]


def test_a_forecaster_that_lost_is_said_to_be_demoted() -> None:
    story = Story()
    for turn in range(400):
        plan = story.turn(100.0 if turn % 100 == 0 else 20.0)
    (said,) = [r.text for r in plan.reasons if r.code == "demoted"]
    assert said.startswith("hardly counted: ") and "last" not in said


@pytest.mark.parametrize(
    ("share", "most", "margin"),
    [(0.5, 1, 1), (0.95, 4.75, 2), (0.99, 24.75, 20**0.5), (0.9999, 2499.75, 10)],
)
def test_a_stricter_promise_is_worth_more(share: float, most: float, margin: float) -> None:
    story = Story(share=share)
    for _ in range(400):
        story.turn(20.0, latency=SLOW, waiting=2000.0)
    assert story.memory.promise.care == pytest.approx(math.log(most * margin))


def test_unknown_input_changes_nothing() -> None:
    story = Story(hosts=3)
    story.turn(20.0)
    memory = story.memory
    plan = story.turn(None)
    assert plan.bounded_target == story.hosts and plan.reasons[0].code == "missing"
    assert story.memory == memory


def test_silence_needs_one_host_and_a_higher_price_never_fewer() -> None:
    story = Story(hosts=1)
    for _ in range(5):
        plan = story.turn(0.0)
    assert plan.bounded_target == 1
    wanted = []
    for late_price in (1, 10, 100):
        priced = Story(late_price=late_price)
        for turn in range(80):
            priced.turn(40.0 + 20 * (turn % 5 == 0))
        wanted.append(priced.hosts)
    assert wanted == sorted(wanted) and wanted[0] < wanted[-1]


def test_micro_batches_are_sized_by_their_model() -> None:
    """The load grows from two busy slots to eight, and goes back."""
    query = Query("q", lambda t: 4000.0 if 300 < t < 1500 else 1000.0, 12.0, service_s=0.002)
    world = BatchWorld([query], slots=4, most=20, hosts=2)
    hosts = world.run(Tide(slo_s=12.0), turns=400)
    assert max(hosts[:25]) < hosts[140] == max(hosts[130:145])
    assert hosts[-1] < hosts[140]
    assert not [at_s for at_s, *_ in world.late if 600.0 < at_s < 1500.0]


def test_the_memory_is_bounded_and_survives_json() -> None:
    rng, story = random.Random(1), Story()
    for _ in range(3000):
        story.turn(20 * rng.lognormvariate(0, 0.5))
    saved = json.dumps(story.policy.save_memory(story.memory))
    assert len(saved) < 20_000
    assert story.policy.load_memory(json.loads(saved)) == story.memory


@pytest.mark.parametrize("stabilise_s", [0.0, 240.0])
def test_a_host_is_kept_for_the_time_that_the_user_names(stabilise_s: float) -> None:
    """`--stabilise` holds for every policy, also for one that picks the moment of a release."""
    free = {"unit_s": 3600.0, "usd_per_unit": 0.0}
    story = Story(hosts=1, stabilise_s=stabilise_s)
    for rate in (10.0, 10.0, 60.0, 60.0, 60.0):
        story.turn(rate, **free)
    most, since_s = story.hosts, story.time_s
    assert most > 1
    while story.hosts == most and story.time_s < since_s + 3600:
        story.turn(10.0, **free)
    assert (story.time_s - since_s >= 240.0) == (stabilise_s == 240.0)
    stack = build_stack("tide", Situation(slo_s=2.0), StackOptions(stabilise_s=240.0))
    assert innermost(stack) == create("tide", slo_s=2.0, stabilise_s=240.0)


def test_its_forecasts_replace_the_trend_of_the_stack() -> None:
    stack = build_stack("tide", Situation(slo_s=2.0))
    assert stack.describe().startswith("tide → missing-metrics() → first-look(")
    assert innermost(stack) == create("tide", slo_s=2.0, stabilise_s=60.0)


@pytest.mark.parametrize(
    "settings", [{"share": 0.95}, {"slo_s": "100ms"}, {"late_price": 1000, "most": 1}]
)
def test_it_keeps_the_contract_in_its_variants(settings: dict[str, object]) -> None:
    check_policy(create("tide", **settings), seed=8)
