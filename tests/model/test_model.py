from __future__ import annotations

import math
import pickle
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import InputError
from tidegate.model import (
    BatchReading,
    Deployment,
    Host,
    HostOffer,
    Instance,
    InstanceReading,
    Lease,
    OperatorReading,
    Plan,
    Snapshot,
)
from tidegate.model import snapshot as snapshot_module
from tidegate.model.snapshot import Once, Rates
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.testing import steady_snapshot

CAPACITY = Resources(4)
PAIR = Topology(
    (Operator("a", service_time_s=0.1), Operator("b")),
    (Source("in"),),
    (Edge("in", "a"), Edge("a", "b", 0.5), Edge("a", "a", 0.2)),
)


def snapshot(**changes: Any) -> Snapshot:
    base = Snapshot(
        0.0,
        PAIR,
        HostOffer(CAPACITY),
        (
            Host("up", CAPACITY),
            Host("soon", CAPACITY, "starting"),
            Host("out", CAPACITY, "draining"),
        ),
        (
            InstanceReading("a-1", "a", "up"),
            InstanceReading("a-2", "a", "soon", "starting"),
            InstanceReading("a-3", "a", "out"),
            InstanceReading("b-1", "b", "up", "stopping"),
        ),
    )
    return replace(base, **changes)


def test_an_instance_that_stays_is_the_same_object_in_the_next_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def seen(home: str) -> Deployment:
        hosts = tuple(Host(name, Resources(4)) for name in ("h1", "h2"))
        placed = (InstanceReading("a-1", "a", "h1"), InstanceReading("a-2", "a", home))
        topology = Topology((Operator("a"),))
        return Snapshot(0.0, topology, HostOffer(Resources(4)), hosts, placed).requested

    before, after = seen("h1"), seen("h2")
    assert before.by_id["a-1"] is after.by_id["a-1"]
    assert before.by_id["a-2"] == Instance("a-2", "a", "h1")
    assert after.by_id["a-2"] == Instance("a-2", "a", "h2")
    assert seen("h2") is after, "the same placement is the same object"
    monkeypatch.setattr(snapshot_module, "MOST_INSTANCES", 0)  # what is remembered is limited
    snapshot_module._last_placement.cache_clear()
    assert seen("h2") == after
    assert seen("h2").by_id["a-1"] is not after.by_id["a-1"]


DERIVED = ("home", "by_host", "counts", "host_names", "by_id")


def shown(deployment: Deployment) -> list[object]:
    """A deployment and all that is derived from it, with the order of dictionaries."""
    derived = [getattr(deployment, name) for name in DERIVED]
    return [deployment.hosts, deployment.instances, *map(repr, derived)]


@given(
    homes=st.lists(st.sampled_from("abcd"), min_size=1, max_size=30),
    moves=st.lists(st.tuples(st.integers(0, 29), st.sampled_from("abcd")), max_size=8),
    asked=st.sets(st.sampled_from(DERIVED)),
    more_hosts=st.none() | st.just("dcbae"),
)
def test_a_deployment_with_moved_instances_is_like_one_that_is_made_anew(
    homes: list[str], moves: list[tuple[int, str]], asked: set[str], more_hosts: str | None
) -> None:
    before = [Instance(f"x-{n}", f"x{n % 3}", host) for n, host in enumerate(homes)]
    moved = {n: replace(before[n], host=host) for n, host in moves if n < len(before)}
    start = Deployment(tuple("abcd"), tuple(before))
    seen = {name: getattr(start, name) for name in asked}  # what is known is taken over
    kept = repr(seen)

    after = start.with_moved(moved.values(), more_hosts)

    every = [moved.get(n, one) for n, one in enumerate(before)]
    assert shown(after) == shown(Deployment(tuple(more_hosts or "abcd"), tuple(every)))
    assert repr(seen) == kept, "the deployment before is as it was"


@pytest.mark.parametrize("instances", [1, 2, 40, 400])
def test_the_requested_deployment_is_the_same_whatever_was_seen_before(instances: int) -> None:
    rng = random.Random(instances)
    hosts = [f"h{n}" for n in range(5)]
    homes = rng.choices(hosts, k=instances)
    for changes in (0, 1, 1, instances // 40, instances, 2, 0):
        for n in rng.sample(range(instances), min(changes, instances)):
            homes[n] = rng.choice(hosts)
        placed = [InstanceReading(f"a-{n}", "a", host) for n, host in enumerate(homes)]
        seen = replace(
            snapshot(instances=()),
            hosts=tuple(Host(name, CAPACITY) for name in hosts),
            instances=tuple(placed),
        ).requested
        plain = Deployment(tuple(hosts), tuple(Instance(i.id, "a", i.host) for i in placed))
        assert shown(seen) == shown(plain)


def test_running_and_requested_are_not_confused() -> None:
    now = snapshot()
    assert now.running.hosts == ("up",)
    assert set(now.running.home) == {"a-1", "a-3"}
    assert now.requested.hosts == ("soon", "up")
    assert set(now.requested.home) == {"a-1", "a-2"}


@pytest.mark.parametrize(
    ("now_s", "left_s", "units"),
    [(0, 600, 1), (599, 1, 1), (600, 600, 1), (601, 599, 2), (1750, 50, 3)],
)
def test_a_lease_is_paid_by_started_unit(now_s: float, left_s: float, units: int) -> None:
    for started_s in (0, 90):
        lease = Lease(600, 1.0, started_s)
        assert lease.time_left_s(started_s + now_s) == left_s
        assert lease.units_paid(started_s + now_s) == units
        assert lease.cost_usd(started_s + now_s) == units


def test_an_offer_knows_its_price_by_the_hour() -> None:
    assert HostOffer(CAPACITY, billing_unit_s=600, price_per_unit_usd=0.5).usd_per_h == 3.0


def test_small_values_of_an_offer_are_allowed() -> None:
    small = HostOffer(Resources(0.25), 0.5, 0.25, 0.5)
    assert (small.billing_unit_s, small.price_per_unit_usd, small.startup_s) == (0.5, 0.25, 0.5)
    assert small.usd_per_h == 1800.0


def test_an_offer_without_further_words_is_free_and_there_at_once() -> None:
    offer = HostOffer(CAPACITY)
    assert (offer.usd_per_h, offer.startup_s, offer.max_hosts) == (0.0, 0.0, None)
    assert offer.billing_unit_s == 3600.0
    assert HostOffer(CAPACITY, 600.0, 0.5).lease(30.0) == Lease(600.0, 0.5, 30.0)


@pytest.mark.parametrize(
    ("offer", "words"),
    [
        ({"capacity": Resources(0)}, "cpu_cores"),
        ({"billing_unit_s": 0}, "billing_unit_s"),
        ({"price_per_unit_usd": -0.5}, "price_per_unit_usd"),
        ({"startup_s": -1}, "startup_s"),
    ],
)
def test_an_offer_out_of_range_is_refused(offer: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=f"offer: {words}"):
        HostOffer(**({"capacity": CAPACITY} | offer))


@pytest.mark.parametrize(("unit_s", "price"), [(0, 1), (-1, 1), (600, -1)])
def test_a_lease_out_of_range_is_refused(unit_s: float, price: float) -> None:
    with pytest.raises(InputError):
        Lease(unit_s, price, 0.0)
    Lease(600, 0, 0.0)  # free hosts are allowed


def test_equal_deployments_are_equal_in_any_order() -> None:
    one, two = Instance("a-1", "a", "x"), Instance("b-1", "b", "y")
    assert Deployment(("x", "y"), (one, two)) == Deployment(("y", "x"), (two, one))
    assert Deployment(("x", "y"), (one, two)).counts == {"a": 1, "b": 1}
    assert Deployment(("x", "y"), (one, two)).home == {"a-1": "x", "b-1": "y"}


def test_a_measured_service_time_comes_before_the_declared_one() -> None:
    assert snapshot().service_time_s("a") == 0.1
    measured = snapshot(operators=(OperatorReading("a", service_time_s=0.3),))
    assert measured.service_time_s("a") == 0.3
    assert measured.service_time_s("b") is None


def test_external_rates_are_what_arrives_less_what_operators_send() -> None:
    known = snapshot(operators=(OperatorReading("a", arrival_rate_per_s=10.0),))
    assert known.external_rates() == {"a": 8.0}  # a sends 0.2 of its items to itself
    assert snapshot().external_rates() is None


def test_external_rates_are_unknown_when_an_operator_in_between_is() -> None:
    back = replace(PAIR, edges=(*PAIR.edges, Edge("b", "a", 0.1)))
    half = snapshot(topology=back, operators=(OperatorReading("a", arrival_rate_per_s=10.0),))
    assert half.external_rates() is None


def test_missing_names_what_was_not_measured_on_what_runs() -> None:
    now = snapshot(operators=(OperatorReading("a", queue_length=0.0),))
    assert now.missing(["host.utilisation"]) == ("up.utilisation",)
    assert now.missing(["instance.load"]) == ("a-1.load", "a-3.load")
    assert now.missing(["operator.queue_length"]) == ("b.queue_length",)
    assert now.missing(["operator.service_time_s"]) == ("b.service_time_s",)
    assert now.missing(["latency.mean_s", "batches"]) == ("latency.mean_s", "batches")
    assert now.missing([]) == ()


def test_zero_is_a_measurement() -> None:
    idle = snapshot(
        hosts=(Host("up", CAPACITY, utilisation=0.0),),
        instances=(),
        operators=(OperatorReading("a", queue_length=0.0), OperatorReading("b", queue_length=0)),
    )
    assert idle.missing(["host.utilisation", "operator.queue_length"]) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"hosts": (Host("up", CAPACITY), Host("up", CAPACITY)), "instances": ()},
        {"instances": (InstanceReading("x", "nobody", "up"),)},
        {"instances": (InstanceReading("x", "a", "nowhere"),)},
        {"instances": (InstanceReading("x", "a", "up"), InstanceReading("x", "a", "up"))},
        {"operators": (OperatorReading("nobody"),)},
        {"time_s": math.nan},
    ],
)
def test_a_snapshot_that_contradicts_itself_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        snapshot(**changes)


def test_measurements_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match="host h: utilisation"):
        Host("h", CAPACITY, utilisation=-0.1)
    with pytest.raises(InputError, match="operator a: queue_length"):
        OperatorReading("a", queue_length=-1)
    with pytest.raises(InputError, match="billing_unit_s"):
        Lease(0, 1, 0)
    with pytest.raises(InputError, match="offer: cpu_cores"):
        HostOffer(Resources(0))


def test_a_plan_shows_the_raw_and_the_bounded_target() -> None:
    plan = Plan(Deployment(("h1",)), raw=Deployment(("h1", "h2", "h3")))
    assert (plan.raw_target, plan.bounded_target) == (3, 1)
    assert Plan(Deployment(("h1",))).raw_target == 1


def test_an_operator_without_reading_has_one_with_everything_missing() -> None:
    reading = steady_snapshot().reading["work"]
    assert reading.queue_length is None
    assert snapshot().reading["b"] == OperatorReading("b")


def test_what_arrives_within_a_trigger_is_no_backlog_before_the_first_batch() -> None:
    reading = OperatorReading(
        "a", arrival_rate_per_s=10, queue_length=70, batches=BatchReading(5.0, ())
    )
    assert snapshot(operators=(reading,)).backlog("a") == 20


def test_a_value_is_computed_once_and_its_copy_has_it() -> None:
    asked = []

    def make() -> tuple[int, ...]:
        asked.append(1)
        return (1, 2)

    value = Once(make)
    assert not asked
    assert value() is value()
    assert asked == [1]
    assert pickle.loads(pickle.dumps(value))() == (1, 2)


def test_arrivals_can_be_multiplied_without_computing_the_readings() -> None:
    work, rest = Operator("work", Resources(1)), Operator("rest", Resources(1))
    edges = (Edge("in", "work"), Edge("work", "rest", 0.5))
    topology = Topology((work, rest), (Source("in"),), edges)
    readings = (
        OperatorReading("work", arrival_rate_per_s=10.0, processed_per_s=8.0),
        OperatorReading("rest", arrival_rate_per_s=4.0),
    )
    asked = []

    def read() -> tuple[OperatorReading, ...]:
        asked.append(1)
        return readings

    known = {"rates": Rates({"work": 10.0, "rest": 4.0}, {"work": 8.0, "rest": None})}
    later = Snapshot.unchecked(
        time_s=0.0, topology=topology, offer=HostOffer(Resources(4)), operators_later=Once(read),
        batched=(), delayed=(), **known,
    )  # fmt: skip
    more = later.with_arrivals_times(2.0, {"work"})
    assert more.external_rates() == {"work": 20.0}
    assert more.batched == more.delayed == ()
    assert not asked
    given = Snapshot(0.0, topology, HostOffer(Resources(4)), operators=readings)
    same = given.with_arrivals_times(2.0, {"work"})
    assert (
        more.operators
        == same.operators
        == (replace(readings[0], arrival_rate_per_s=20.0), readings[1])
    )
    assert more.rates == same.rates
    assert later.operators == readings
    assert asked == [1]
