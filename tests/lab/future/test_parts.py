"""The parts of the experiments: models, rules and policies that they compare."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.lab.environment import TideEnv
from tidegate.lab.future.control import Mpc, MpcMemory, Pid, PidMemory, needed_hosts
from tidegate.lab.future.early import EarlyMemory, EarlyProvisioning, Signal
from tidegate.lab.future.moves import STEP, cheapest_to_move, peak_s
from tidegate.lab.future.placement import (
    ALGORITHMS,
    fewest_hosts,
    fewest_moves,
    hosts_at_least,
    loads_of_day,
    pack,
    relieved,
)
from tidegate.lab.future.reward import LatencySarsa, with_latency
from tidegate.lab.future.train import MAX_HOSTS, MAX_STEP, Piece, cost_of, train
from tidegate.lab.future.trained import BEFORE, Features, Trained, read_trained
from tidegate.lab.future.visp import CriticalBtu, PredictiveBtu
from tidegate.lab.papers.fugu.runs import FORMER, Case, run_case
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.model import Latency, OperatorReading, Snapshot
from tidegate.policies.adaptive_provisioning import AdaptiveProvisioningMemory
from tidegate.policies.btu import Btu
from tidegate.policies.sarsa import Pending
from tidegate.testing import check_policy, engine_snapshot, fleet_snapshot, steady_snapshot
from tidegate.workloads import RateTrace

# --- latency in the reward ------------------------------------------------------------------------


def test_without_a_weight_the_policy_is_the_published_one() -> None:
    plain, case = with_latency(0.0), Case("sarsa", **FORMER)
    assert run_case(1, case, 60, policy=plain) == run_case(1, case, 60)


def _with_latency(seconds: float) -> Snapshot:
    seen = fleet_snapshot({"host-1": [2.4]})
    (operator,) = seen.topology.operators
    return seen.with_operators((OperatorReading(operator.name, recent_durations_s=(seconds,)),))


def test_latency_that_falls_is_rewarded_by_its_weight() -> None:
    policy, slow, fast = LatencySarsa(weight=2.0, limit_s=2.0), *map(_with_latency, (1.0, 0.5))
    (host,) = slow.hosts
    begun = policy.begun(host, 12, 1, slow)
    kept, better = (policy.gained(begun, host, seen) for seen in (slow, fast))
    assert better - kept == pytest.approx(2.0 * (1.0 - 0.5) / 2.0)
    cancelled = replace(begun, cancelled=True)
    assert policy.gained(cancelled, host, fast) == policy.penalty
    assert isinstance(begun, Pending) and begun.utilisation == host.utilisation


# --- moves ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pause_s", [0.7, 4.0, 12.0])
@pytest.mark.parametrize("busy", [0.2, 0.6])
def test_the_forecast_is_the_mean_latency_of_a_fluid_queue(pause_s: float, busy: float) -> None:
    rate, turn_s = 1000.0, 5.0
    arrived = np.arange(0.0, 60.0, 1 / rate)
    left = np.empty_like(arrived)
    free_s = pause_s
    for n, at in enumerate(arrived):
        free_s = left[n] = max(free_s, at) + busy / rate
    turn = (left > pause_s) & (left <= pause_s + turn_s)
    expected = float((left - arrived)[turn].mean())
    assert peak_s(pause_s, rate, busy / rate, turn_s) == pytest.approx(expected, rel=0.02)


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=7),
    st.lists(st.integers(0, 9), min_size=7, max_size=7),
    st.integers(1, 90),
)
def test_no_other_selection_that_is_enough_costs_less(
    sizes: list[int], prices: list[int], needed: int
) -> None:
    loads = {f"o{n}": STEP * size for n, size in enumerate(sizes)}
    costs = {name: float(price) for name, price in zip(loads, prices, strict=False)}
    chosen = cheapest_to_move(loads, STEP * needed, costs)
    steps = dict(zip(loads, sizes, strict=True))
    if sum(sizes) <= needed:
        assert set(chosen) == set(loads)
        return
    assert sum(steps[name] for name in chosen) >= needed
    cheapest = min(
        sum(costs[name] for name in some)
        for count in range(len(loads) + 1)
        for some in itertools.combinations(loads, count)
        if sum(steps[name] for name in some) >= needed
    )
    assert sum(costs[name] for name in chosen) == cheapest


# --- placement ------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_algorithm_overfills_or_beats_the_optimum(algorithm: str) -> None:
    for every in loads_of_day(1, turns=3, factor=4):
        loads = dict(itertools.islice(every.items(), 12))
        placed = pack(loads, algorithm)
        assert sorted(itertools.chain(*placed)) == sorted(loads)
        assert all(sum(loads[name] for name in names) <= 1 + 1e-6 for names in placed)
        assert len(placed) >= fewest_hosts(loads)[0] >= hosts_at_least(loads)


def test_the_optimum_finds_what_first_fit_decreasing_misses() -> None:
    sizes = (0.45, 0.35, 0.35, 0.3, 0.3, 0.25)  # 0.45 + 0.3 + 0.25 and 0.35 + 0.35 + 0.3
    loads = {f"o{n}": size for n, size in enumerate(sizes)}
    assert len(pack(loads, "first fit decreasing")) == 3
    assert fewest_hosts(loads) == (2, True)
    before = [["o0", "o3", "o5"], ["o1", "o4"], ["o2"]]
    after = fewest_moves(loads, before, hosts=2)
    assert after is not None and len(after) == 2
    assert sorted(map(sorted, after)) == [["o0", "o3", "o5"], ["o1", "o2", "o4"]]


def test_a_turn_moves_what_is_too_much_and_releases_what_is_spare() -> None:
    full = {"a": 0.6, "b": 0.6, "c": 0.2}
    placed, moves = relieved(full, [["a", "b"], ["c"]], "first fit")
    assert moves == 1 and len(placed) == 2
    placed, moves = relieved({"a": 0.5, "b": 0.2}, [["a"], ["b"]], "first fit")
    assert (placed, moves) == ([["a", "b"]], 1)


# --- control --------------------------------------------------------------------------------------


def _loaded(rate_per_s: float, waiting: float = 0.0, time_s: float = 0.0) -> Snapshot:
    """Three hosts with one operator at a rate."""
    seen = steady_snapshot(hosts=3, queue_length=waiting)
    (reading,) = seen.operators
    measured = OperatorReading(
        reading.operator, rate_per_s, rate_per_s, queue_length=waiting, service_time_s=1.0
    )
    return replace(seen, time_s=time_s, interval_s=15.0, operators=(measured,))


def test_load_and_backlog_are_counted_in_hosts() -> None:
    seen = _loaded(2.0, waiting=120.0)
    cores = seen.offer.capacity.cpu_cores / seen.topology.operators[0].demand.cpu_cores
    assert needed_hosts(seen, catch_up_s=60.0) == pytest.approx((2.0 / cores, 2.0 / cores))
    unknown = seen.with_operators((OperatorReading(seen.operators[0].operator),))
    assert needed_hosts(unknown, 60.0) is None


@pytest.mark.parametrize("policy", [Pid(), Pid(derivative=0.1), Mpc(), Trained()])
def test_the_policies_keep_the_contract(policy: Pid | Mpc | Trained) -> None:
    check_policy(policy)


def test_the_controller_settles_at_its_target() -> None:
    policy, memory = Pid(target=0.5), PidMemory()
    per_host = _loaded(1.0).offer.capacity.cpu_cores
    for turn in range(200):
        seen = _loaded(4.0 * per_host, time_s=15.0 * turn)
        plan, memory = policy.decide(seen, memory)
    assert memory.hosts == pytest.approx(8.0, rel=0.01)
    assert len(plan.deployment.hosts) == 8


def test_a_rising_load_gets_more_hosts_than_a_steady_one_by_prediction() -> None:
    steady, rising = (
        Mpc().decide(_loaded(8.0), MpcMemory(rates))[0].deployment.hosts
        for rates in ((2.0,) * 10, tuple(np.linspace(0.2, 2.0, 10).tolist()))
    )
    assert len(rising) > len(steady) >= 2


# --- early signals --------------------------------------------------------------------------------


def _engines(signal: Signal, late_s: float = 0.0, headroom: float = 0.0) -> int:
    policy = EarlyProvisioning(signal=signal, headroom=headroom, last_second=False)
    seen = engine_snapshot(arrival_rate_per_s=18_000, processed_per_s=[9_000, 9_000])
    seen = replace(seen, time_s=90.0, interval_s=30.0, latency=Latency(mean_s=late_s))
    past = tuple((30.0 * n, 3_000.0 + 5_000 * n) for n in range(3))
    memory = EarlyMemory(AdaptiveProvisioningMemory(10_000.0), past)
    plan, after = policy.decide(seen, memory)
    assert after.rates[-1] == (90.0, 18_000)
    return len(plan.deployment.hosts)


def test_a_forecast_a_headroom_or_latency_add_engines_before_an_overload() -> None:
    assert _engines("rate", late_s=9.0) == 2
    assert _engines("rate", headroom=0.2) == 3
    assert _engines("forecast") == 3
    assert (_engines("latency", late_s=0.4), _engines("latency", late_s=0.6)) == (2, 3)


# --- VISP -----------------------------------------------------------------------------------------


def _ending(durations_s: tuple[float, ...]) -> Snapshot:
    return steady_snapshot(hosts=2, queue_length=0, lease_left_s=20, durations_s=durations_s)


def test_a_host_is_kept_while_its_operators_get_slower() -> None:
    slo_s = _ending((0.1,)).topology.operators[0].slo_s
    assert slo_s is not None
    rising = tuple(slo_s * share for share in (0.3, 0.5, 0.7, 0.9))
    for policy, hosts in ((Btu(), 1), (PredictiveBtu(), 2)):
        plan, _ = policy.decide(_ending(rising), policy.initial_memory())
        assert len(plan.deployment.hosts) == hosts
        plan, _ = policy.decide(_ending((0.01,) * 4), policy.initial_memory())
        assert len(plan.deployment.hosts) == 1


def test_operators_at_the_end_make_way_first() -> None:
    from tidegate.lab.papers.visp.world import HOST, make_topology
    from tidegate.model import HostOffer
    from tidegate.simulation import SimulatedCloud
    from tidegate.workloads import VispPattern

    cloud = SimulatedCloud(make_topology(), HostOffer(HOST), VispPattern("stepwise"), seed=1)
    turn = CriticalBtu().turn(cloud.observe(), Btu().initial_memory())
    assert turn.in_order()[0] == "O1"
    assert turn.by_preference({"O1": 9.0, "O9": 1.0, "O7": 1.0}) == ["O9", "O7", "O1"]


# --- the trained policy ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def piece() -> Piece:
    t = np.arange(0.0, 600.0, 60.0)
    scenario = ScenarioOptions(slo_s=2.0).build(RateTrace(t, 60 + 40 * np.sin(t / 100), seed=1))
    return Piece("wave", TideEnv(scenario, max_step=MAX_STEP, max_hosts=MAX_HOSTS), 1.0)


def test_training_finds_a_cheaper_policy(piece: Piece) -> None:
    said: list[str] = []
    found = train([piece], seed=1, rounds=2, candidates=6, say=said.append)
    assert len(said) == 3
    assert cost_of(found, piece) < cost_of(BEFORE, piece)
    assert train([piece], seed=1, rounds=2, candidates=6) == found, "the seed decides"


def test_a_wasteful_policy_costs_more_in_the_environment(piece: Piece) -> None:
    assert cost_of(replace(BEFORE, constant=20.0), piece) > cost_of(BEFORE, piece) > 0


def test_the_stored_policy_asks_for_more_hosts_under_more_load() -> None:
    policy = read_trained()
    hosts = [policy.hosts(x, 0.0, Features().after(x)) for x in (1.0, 4.0, 10.0)]
    assert hosts == sorted(hosts) and hosts[-1] > 10 and hosts[0] >= 1
    assert math.isfinite(sum(policy.weights)) and policy != BEFORE
