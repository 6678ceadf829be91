"""DRS by scenario: the paper's Fig. 10 in machines of five executors, three of them reserved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tidegate.errors import SettingError
from tidegate.model import OperatorReading, Plan, Snapshot
from tidegate.policies.base import NoMemory
from tidegate.policies.drs import Drs
from tidegate.testing import station_snapshot
from tidegate.theory.queueing import Station, assign_processors, sojourn_s

RATES = {"extract": (40.0, 5.714), "match": (40.0, 5.333), "aggregate": (40.0, 400.0)}


def scene(allocation: Sequence[int], mean_latency_s: float | None = None) -> Snapshot:
    return station_snapshot(
        RATES, allocation, cores_per_host=5, reserved=3, mean_latency_s=mean_latency_s
    )


def decide(snapshot: Snapshot, **settings: Any) -> Plan:
    plan, _ = Drs(**{"reserved": 3, **settings}).decide(snapshot, NoMemory())
    return plan


def shape(plan: Plan) -> tuple[int, ...]:
    return tuple(plan.deployment.counts[name] for name in RATES)


def test_exp_a_adds_a_machine_because_17_processors_miss_500_ms() -> None:
    plan = decide(scene((8, 8, 1)), t_max_s=0.5)
    assert shape(plan) == (10, 11, 1)
    assert plan.bounded_target == 5
    assert plan.predicted.sojourn_s == pytest.approx(0.388, abs=1e-3)
    assert [reason.code for reason in plan.reasons] == ["latency"]
    assert "780 ms against a bound of 500 ms: 10:11:1 instances on 5 hosts give 388 ms" in (
        plan.reasons[0].text
    )


def test_exp_b_releases_a_machine_because_17_processors_hold_1000_ms() -> None:
    plan = decide(scene((10, 11, 1)), t_max_s=1.0)
    assert shape(plan) == (8, 8, 1)
    assert plan.bounded_target == 4
    assert plan.predicted.sojourn_s == pytest.approx(0.779, abs=1e-3)
    assert plan.reasons[0].code == "spare"


@pytest.mark.parametrize(("allocation", "t_max_s"), [((10, 11, 1), 0.5), ((8, 8, 1), 1.0)])
def test_both_experiments_stay_where_they_arrived(
    allocation: tuple[int, ...], t_max_s: float
) -> None:
    snapshot = scene(allocation)
    assert decide(snapshot, t_max_s=t_max_s).deployment == snapshot.requested


def test_a_measured_latency_above_the_estimate_raises_the_estimate() -> None:
    slower = scene((8, 8, 1), mean_latency_s=2 * 0.779)
    plan = decide(slower, t_max_s=1.0)
    assert plan.bounded_target == 5
    assert plan.predicted.sojourn_s == pytest.approx(2 * 0.388, abs=2e-3)


def test_a_measured_latency_below_the_estimate_is_not_trusted() -> None:
    plan = decide(scene((8, 8, 1), mean_latency_s=0.1), t_max_s=0.5)
    assert plan.bounded_target == 5
    assert plan.predicted.sojourn_s == pytest.approx(0.388, abs=1e-3)


def test_the_correction_has_an_end() -> None:
    absurd = scene((10, 11, 1), mean_latency_s=99.0)
    held = decide(absurd, t_max_s=0.6, max_correction=1.5)
    assert held.deployment == absurd.requested
    assert held.predicted.sojourn_s == pytest.approx(1.5 * 0.388, abs=2e-3)
    assert decide(absurd, t_max_s=0.6, max_correction=3.0).bounded_target > 5


def test_a_small_gain_is_not_worth_a_disturbance() -> None:
    nearly = scene((11, 10, 1))  # 3 % above the optimum
    assert decide(nearly, t_max_s=0.5, min_gain=0.05).deployment == nearly.requested
    assert shape(decide(nearly, t_max_s=0.5, min_gain=0.0)) == (10, 11, 1)


def test_a_large_gain_at_the_same_number_of_hosts_is() -> None:
    assert shape(decide(scene((8, 13, 1)), t_max_s=0.5)) == (10, 11, 1)


def test_hosts_are_only_released_when_the_bound_holds_with_a_margin() -> None:
    tight = scene((10, 11, 1))
    assert decide(tight, t_max_s=0.8, min_gain=0.05).deployment == tight.requested
    assert decide(tight, t_max_s=0.8, min_gain=0.0).bounded_target == 4


def test_the_end_of_the_offer_is_unmet_demand() -> None:
    snapshot = scene((8, 8, 1))
    limited = replace(snapshot, offer=replace(snapshot.offer, max_hosts=4))
    plan = decide(limited, t_max_s=0.5)
    assert plan.bounded_target == 4
    assert [(u.instances, u.why) for u in plan.unmet] == [(2, "at most 4 hosts are available")]


def test_too_few_processors_for_the_load_are_shared_by_load() -> None:
    snapshot = scene((1, 1, 1))
    limited = replace(snapshot, offer=replace(snapshot.offer, max_hosts=2))
    plan = decide(limited, t_max_s=0.5)
    assert shape(plan) == (3, 3, 1)
    assert plan.predicted.sojourn_s is None  # it would grow without end
    assert plan.unmet


def test_a_bound_that_nothing_reaches_is_unmet_and_not_chased_to_infinity() -> None:
    plan = decide(scene((10, 11, 1)), t_max_s=0.01)
    assert "cannot be reached" in plan.unmet[0].why
    assert (
        plan.bounded_target == 6
    )  # 22 on five hosts give 388 ms, and 1.05 times the best is 383 ms
    assert (plan.predicted.sojourn_s or 0) < 1.05 * (7.0 + 7.5 + 0.1) / 40 * 1.01


def test_an_operator_at_its_limit_gets_all_that_it_may_have() -> None:
    snapshot = scene((8, 8, 1))
    operators = tuple(
        replace(o, max_instances=5) if o.name == "extract" else o
        for o in snapshot.topology.operators
    )
    limited = replace(snapshot, topology=replace(snapshot.topology, operators=operators))
    plan = decide(limited, t_max_s=0.5)
    assert any("at least 8" in unmet.why for unmet in plan.unmet)
    assert plan.deployment.counts["match"] >= 8


@pytest.mark.parametrize("scv", [0.0, 9.0])
def test_general_streams_need_fewer_or_more_than_exponential_ones(scv: float) -> None:
    snapshot = scene((8, 8, 1))
    readings = tuple(replace(r, arrival_scv=scv, service_scv=scv) for r in snapshot.operators)
    measured = replace(snapshot, operators=readings)
    exponential = decide(measured, t_max_s=0.5, model="mmk")
    general = decide(measured, t_max_s=0.5, model="ggk")
    assert exponential.bounded_target == 5
    assert general.bounded_target == (4 if scv == 0 else 6)


def test_general_streams_of_exponential_variability_are_the_same() -> None:
    snapshot = scene((8, 8, 1))
    assert decide(snapshot, t_max_s=0.5, model="ggk") == decide(snapshot, t_max_s=0.5)


@pytest.mark.parametrize("missing", ["arrival rate", "service time"])
def test_a_missing_measurement_changes_nothing_and_says_so(missing: str) -> None:
    snapshot = scene((10, 11, 1))
    if missing == "arrival rate":
        blind = replace(snapshot, operators=(*snapshot.operators[1:], OperatorReading("extract")))
    else:
        operators = tuple(replace(o, service_time_s=None) for o in snapshot.topology.operators)
        blind = replace(snapshot, topology=replace(snapshot.topology, operators=operators))
    plan = decide(blind, t_max_s=1.0)
    assert plan.deployment == snapshot.requested
    assert [reason.code for reason in plan.reasons] == ["missing"]


def test_an_overloaded_system_is_brought_back_whatever_the_gain() -> None:
    plan = decide(scene((7, 7, 1)), t_max_s=1.0, min_gain=1.0)
    assert shape(plan) == (8, 8, 1)
    assert math.isfinite(plan.predicted.sojourn_s or math.inf)


def test_parameters_out_of_range_are_refused() -> None:
    with pytest.raises(SettingError, match="drs: t_max_s is 0"):
        Drs(t_max_s=0)
    with pytest.raises(SettingError, match="one of mmk, ggk"):
        Drs.with_settings({"model": "mm1"})


def test_hosts_that_stay_for_safety_are_used_as_best_they_can() -> None:
    rates = {"extract": (40.0, 5.714), "match": (40.0, 5.333), "aggregate": (40.0, 400.0)}
    stations = [Station(name, *pair) for name, pair in rates.items()]
    twenty = sojourn_s(stations, assign_processors(stations, 20), 40.0)
    lopsided = station_snapshot(rates, (8, 16, 1), cores_per_host=5)
    plan = decide(lopsided, t_max_s=1.01 * twenty, reserved=0)  # four hosts would just do
    assert plan.bounded_target == 5
    assert shape(plan) == assign_processors(stations, 25)


def test_a_backlog_counts_as_arrivals_until_it_is_worked_off() -> None:
    now = station_snapshot({"work": (40.0, 5.0)}, (12,), cores_per_host=4)
    waiting = replace(
        now, operators=(OperatorReading("work", arrival_rate_per_s=40.0, queue_length=1240.0),)
    )
    calm, late = decide(now, reserved=0), decide(waiting, reserved=0)
    needed = (40 + 1200 / 60) / 5  # instances that keep pace with both
    assert calm.deployment.counts["work"] <= needed < late.deployment.counts["work"]
    ignored = decide(waiting, reserved=0, catch_up_s=0.0)
    assert ignored.deployment == calm.deployment


def with_readings(snapshot: Snapshot, **readings: OperatorReading) -> Snapshot:
    """The snapshot with other readings of some operators, whose service times are not declared."""
    operators = tuple(
        replace(o, service_time_s=None) if o.name in readings else o
        for o in snapshot.topology.operators
    )
    return replace(
        snapshot,
        topology=replace(snapshot.topology, operators=operators),
        operators=tuple(readings.get(r.operator, r) for r in snapshot.operators),
    )


def test_an_operator_that_never_had_an_item_does_not_freeze_the_others() -> None:
    idle = OperatorReading("aggregate", arrival_rate_per_s=0.0)
    plan = decide(with_readings(scene((8, 8, 1)), aggregate=idle), t_max_s=0.5)
    assert plan.bounded_target == 5
    assert plan.deployment.counts["aggregate"] == 1


def test_a_rare_operator_without_a_service_time_keeps_its_instances() -> None:
    rare = OperatorReading("aggregate", arrival_rate_per_s=0.01)
    plan = decide(with_readings(scene((8, 6, 3)), aggregate=rare), t_max_s=0.5)
    assert plan.bounded_target == 5
    assert plan.deployment.counts["aggregate"] == 3
    assert sum(shape(plan)) == 22


def test_zero_input_shrinks_to_one_instance_each() -> None:
    silent = {name: OperatorReading(name, arrival_rate_per_s=0.0) for name in RATES}
    plan = decide(with_readings(scene((10, 11, 1)), **silent), t_max_s=0.5)
    assert shape(plan) == (1, 1, 1)
    assert plan.bounded_target == 2  # three instances beside three reserved processors
    assert "no input" in plan.reasons[0].text


def test_a_silent_source_while_queues_drain() -> None:
    readings = {
        "extract": OperatorReading("extract", 0.0, service_time_s=0.175, queue_length=0.0),
        "match": OperatorReading("match", 0.0, service_time_s=0.1875, queue_length=600.0),
        "aggregate": OperatorReading("aggregate", 0.0, service_time_s=0.0025),
    }
    plan = decide(with_readings(scene((8, 8, 1)), **readings), t_max_s=0.5)
    assert plan.deployment.counts["match"] >= 2  # 600 items in a minute, 0.19 s each


def test_nothing_is_decided_while_the_entry_is_unknown() -> None:
    blind = OperatorReading("extract")
    plan = decide(with_readings(scene((8, 8, 1)), extract=blind), t_max_s=0.5)
    assert plan.deployment == scene((8, 8, 1)).requested
    assert plan.reasons[0].code == "missing"
