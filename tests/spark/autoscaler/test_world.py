from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.spark.autoscaler.recordings import events
from tidegate.errors import BackendError, SettingError
from tidegate.loop.backend import Outcome
from tidegate.loop.controller import Controller
from tidegate.loop.journal import Journal, read_journal
from tidegate.model import HostOffer, Latency, Plan, SloByQuery
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.packing import Packing, Style
from tidegate.packing.feasibility import broken_rules
from tidegate.policies import available, create
from tidegate.spark.autoscaler import world as world_module
from tidegate.spark.autoscaler.executors import ExecutorHosts, WorkerHosts
from tidegate.spark.autoscaler.gateway import Trigger
from tidegate.spark.autoscaler.jobs import JobWork, StageWork
from tidegate.spark.autoscaler.meter import SourceCount
from tidegate.spark.autoscaler.world import SparkWorld
from tidegate.spark.streams.live_settings import LiveSettings
from tidegate.testing.spark import START_S, FakeCluster, FakeGateway, moment, progress_json

OFFER = HostOffer(Resources(2), billing_unit_s=60, price_per_unit_usd=1.0, max_hosts=6)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "BOUNDARY_WAIT_S", 0.05)


def started(gateway: FakeGateway, style: Style = "engines", **more: Any) -> SparkWorld:
    """A world on executors that listens."""
    hosts = more.pop("hosts", None) or ExecutorHosts(gateway, gateway.clock)
    world = SparkWorld(
        gateway, hosts, OFFER, style=style, warm_up_s=0, clock=gateway.clock,
        **{"slo": SloByQuery(5.0)} | more,
    )  # fmt: skip
    world.start()
    return world


def busy(executors: int = 2, style: Style = "engines", **more: Any) -> tuple[FakeGateway, Any]:
    """An application in full swing: a query, a few batches, and executors that worked."""
    gateway = FakeGateway(executors)
    gateway.query("ticks", trigger_s=2.0)
    world = started(gateway, style, **more)
    world.observe()
    for number in range(4):
        gateway.advance(2)
        gateway.batch("ticks", number, rows=100, behind=40)
        for executor in gateway.up:
            gateway.work(executor, busy_s=1.0)
    return gateway, world


def resized(world: SparkWorld, by: int) -> Plan:
    """The plan of the world as it is with hosts more, or the youngest fewer."""
    packing = Packing(world.observe())
    for _ in range(by):
        host = packing.lease()
        assert host is not None
        packing.start(next(iter(packing.snapshot.topology.by_name)), host)
    for host in list(packing.hosts)[len(packing.hosts) + by :] if by < 0 else []:
        packing.release(host)
    return packing.plan()


# --- observing --------------------------------------------------------------------------------


def test_before_the_first_batch_nothing_is_measured_and_all_is_known() -> None:
    gateway = FakeGateway(2)
    gateway.query("ticks")
    seen = started(gateway).observe()
    assert [host.status for host in seen.hosts] == ["running", "running"]
    assert seen.requested.counts == {"ticks": 4}, "every slot is an instance"
    assert all(host.utilisation is None for host in seen.hosts)
    assert seen.latency == Latency() and seen.batches is None
    reading = seen.reading["ticks"]
    assert reading.arrival_rate_per_s is None and reading.queue_length is None


def test_the_size_of_an_executor_is_seen_when_one_is_there() -> None:
    gateway = FakeGateway(0, cores=4)
    gateway.query("ticks")
    world = started(gateway)
    assert world.observe().offer.capacity.cpu_cores == 2, "as was thought"
    gateway.request_total(1)
    gateway.advance(6)
    assert world.observe().offer.capacity.cpu_cores == 4
    assert world.observe().requested.counts == {"ticks": 4}


def test_a_busy_application_is_measured() -> None:
    _, world = busy()
    seen = world.observe()
    reading = seen.reading["ticks"]
    assert reading.arrival_rate_per_s == pytest.approx(50)
    assert reading.queue_length == 40
    assert reading.service_time_s == pytest.approx(0.01)
    assert reading.batches is not None and reading.batches.trigger_interval_s == 2.0
    assert seen.batches == reading.batches
    assert [host.utilisation for host in seen.hosts] == pytest.approx([0.25, 0.25])
    assert sum(i.processed_per_s or 0 for i in seen.instances) == pytest.approx(50)
    assert seen.topology.by_name["ticks"].max_instances == 8, "no slot beyond the tasks"
    assert seen.topology.by_name["ticks"].slo_s == 5.0


def test_every_query_has_its_own_latency_target() -> None:
    gateway = FakeGateway(2)
    for name in ("alerts", "totals"):
        gateway.query(name, trigger_s=2.0)
    world = started(gateway, slo=SloByQuery.read("alerts=2s,30s"))
    seen = world.observe().topology.by_name
    assert {name: operator.slo_s for name, operator in seen.items()} == {
        "alerts": 2.0,
        "totals": 30.0,
    }


def test_a_target_by_name_takes_precedence_over_the_topology() -> None:
    topology = Topology((Operator("ticks", slo_s=7.0), Operator("rest", slo_s=8.0)))
    _, world = busy(topology=topology, slo=SloByQuery.read("ticks=2s,30s"))
    seen = world.observe().topology.by_name
    assert (seen["ticks"].slo_s, seen["rest"].slo_s) == (2.0, 8.0)


def test_a_target_for_a_query_that_there_is_not_is_warned_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, world = busy(slo=SloByQuery.read("alrets=2s,30s"))
    for _ in range(9):
        world.observe()
    (warning,) = [record.getMessage() for record in caplog.records if "SLO" in record.msg]
    assert warning == "the SLO names alrets, but no query has that name; the queries are ticks"


def test_without_a_query_there_is_nothing_to_observe() -> None:
    with pytest.raises(BackendError, match="no streaming query is running"):
        started(FakeGateway(1)).observe()


def test_a_run_that_ends_is_no_failed_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway, world = busy()
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        controller = Controller(world, create("drs"), journal)
        assert controller.step().snapshot is not None
        gateway.queries.clear()
        for ended in (False, True):
            gateway.ended = ended
            gateway.broken = "the connection is closed" if ended else ""
            turn = controller.step()
            assert turn.snapshot is None and turn.error is None
        gateway.query("ticks")
        gateway.ended, gateway.broken = False, ""
        assert controller.step().number == 2
    assert [turn.number for turn in read_journal(path)] == [1, 2]
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_broken_spark_is_a_backend_error_and_the_next_turn_is_fine() -> None:
    gateway, world = busy()
    controller = Controller(world, create("drs"))
    gateway.broken = "the status store did not answer"
    turn = controller.step()
    assert turn.error == "BackendError: the status store did not answer"
    gateway.broken = ""
    assert controller.step().error is None


def test_an_idle_query_is_a_measured_zero() -> None:
    gateway, world = busy()
    for _ in range(12):
        gateway.advance(2)
        ids = '"id": "id-of-ticks", "runId": "run-of-ticks"'
        gateway.publish("idle", f'{{{ids}, "timestamp": "{moment(gateway.now_s)}"}}')
    reading = world.observe().reading["ticks"]
    assert reading.arrival_rate_per_s == 0 and reading.queue_length == 0


def test_a_query_that_is_idle_from_the_first_has_its_name() -> None:
    gateway = FakeGateway(1)
    gateway.query("ticks")
    world = started(gateway)
    ids = '"id": "id-of-ticks", "runId": "run-of-ticks"'
    gateway.publish("idle", f'{{{ids}, "timestamp": "{moment(gateway.now_s)}"}}')
    assert [o.operator for o in world.observe().operators] == ["ticks"]


def test_a_busy_query_beside_one_that_reads_nothing_is_measured_completely() -> None:
    gateway, world = busy()
    gateway.query("quiet", trigger_s=2.0)
    ids = '"id": "id-of-quiet", "runId": "run-of-quiet"'
    gateway.publish("idle", f'{{{ids}, "timestamp": "{moment(gateway.now_s)}"}}')
    seen = world.observe()
    assert seen.missing(["operator.arrival_rate_per_s", "operator.queue_length"]) == ()
    assert seen.reading["quiet"].arrival_rate_per_s == 0
    assert seen.reading["ticks"].arrival_rate_per_s == pytest.approx(50)


def test_three_queries_at_one_trigger_have_the_overhead_of_one() -> None:
    """Each batch takes 0.5 s and 34 slot-seconds on a third of the 12 slots."""
    gateway = FakeGateway(6)
    names = ["one", "three", "two"]
    for name in names:
        gateway.query(name, trigger_s=10.0)
    world = started(gateway)
    world.observe()
    for number in range(5):
        gateway.advance(10)
        for job, name in enumerate(names):
            began_s = gateway.now_s - 9
            stage = StageWork(began_s + 0.5, began_s + 9, 34.0, 24, 34 / 24)
            run = f"run-of-{name}"
            work = JobWork(3 * number + job, number, 34, 34, 24, run=run, stages=(stage,))
            gateway.works.append(work)
            gateway.publish("progress", progress_json(name, number, began_s, 9.0, 1000))
    for reading in world.observe().operators:
        assert reading.batches is not None and reading.batches.cost is not None
        assert reading.batches.overhead_s == pytest.approx(0.5, abs=0.01)
        assert reading.batches.cost.slots == pytest.approx(4)


def test_more_queries_than_slots_share_a_host() -> None:
    gateway = FakeGateway(1)
    for name in "abcde":
        gateway.query(name, trigger_s=2.0)
    world = started(gateway)
    seen = world.observe()
    assert seen.requested.counts == dict.fromkeys("abcde", 1)
    assert seen.topology.by_name["a"].demand.cpu_cores == pytest.approx(0.4)
    assert not broken_rules(seen, Packing(seen).plan())
    world.apply(resized(world, +1))
    gateway.advance(6)
    assert not broken_rules(seen := world.observe(), Packing(seen).plan())
    gateway.query("f", trigger_s=2.0)
    after = world.observe()
    assert set(after.requested.counts) == set("abcdef"), "a new one gets its share of every host"
    assert not broken_rules(after, Packing(after).plan())
    load = Counter(i.host for i in after.instances)
    share = after.topology.by_name["f"].demand.cpu_cores
    assert all(count * share <= 2 + 1e-9 for count in load.values())
    del gateway.queries["id-of-f"]
    assert set(world.observe().requested.counts) == set("abcde")


def test_the_target_may_be_about_the_age_of_events() -> None:
    times = {"min": moment(START_S - 99), "avg": moment(START_S - 98), "max": moment(START_S - 97)}
    worlds = {by: busy(slo_by=by) for by in ("delay", "event-age")}
    for by, (gateway, world) in worlds.items():
        gateway.advance(2)
        gateway.batch("ticks", 4, rows=100, behind=0, eventTime=times)
        seen = world.observe()
        assert seen.event_age.mean_s is not None and seen.event_age.mean_s > 90
        assert (seen.latency == seen.event_age) == (by == "event-age")
        assert seen.reading["ticks"].delay.p95_s is not None
    with pytest.raises(SettingError, match="slo_by is 'both'; it must be delay or event-age"):
        busy(slo_by="both")


def test_while_a_continuous_query_runs_nothing_is_changed_and_every_turn_says_why() -> None:
    gateway, world = busy()
    controller = Controller(world, create("drs"))
    gateway.query("alerts")
    gateway.triggers["id-of-alerts"] = Trigger("ContinuousTrigger", 1.0)
    for _ in range(3):
        turn = controller.step()
        assert turn.error is not None and "query alerts has a continuous trigger" in turn.error
        assert turn.outcome is None
    assert gateway.requests == [] and gateway.leaving == set()
    del gateway.queries["id-of-alerts"]
    assert controller.step().error is None


def test_a_failed_query_is_named_and_its_restart_begins_afresh() -> None:
    gateway, world = busy()
    world.observe()
    gateway.publish("ended", "run-of-ticks\nSparkException: out of luck\n\tat somewhere")
    del gateway.queries["id-of-ticks"]
    with pytest.raises(BackendError, match="no streaming query"):
        world.observe()
    assert world.errors == {"ticks": "SparkException: out of luck"}
    gateway.query("ticks", trigger_s=9.0)
    assert world.observe().reading["ticks"].arrival_rate_per_s is None
    gateway.advance(2)
    gateway.batch("ticks", 4, rows=10)
    batches = world.observe().batches
    assert batches is not None and batches.trigger_interval_s == 9.0
    assert world.errors == {}


@pytest.mark.parametrize("scenario", ["failing", "files", "kafka", "rate", "stateful", "two"])
def test_recorded_events_make_a_snapshot(scenario: str) -> None:
    gateway = FakeGateway(1)
    world = started(gateway)
    for kind, text in events(scenario)[:-2]:
        gateway.publish(kind, text)
    gateway.query("left")
    gateway.query("right")
    assert world.observe().operators


def test_a_given_lag_is_taken_where_spark_tells_none() -> None:
    _, world = busy(sources={"ticks": lambda: SourceCount(1234.0)})
    assert world.observe().reading["ticks"].queue_length == 1234
    _, blind = busy(sources={"ticks": SourceCount})
    assert blind.observe().reading["ticks"].queue_length is None


def test_a_host_whose_executor_died_disappears_with_its_instances() -> None:
    gateway, world = busy(2)
    world.observe()
    gateway.lose("0")
    seen = world.observe()
    assert list(seen.host) == ["host-2"]
    assert {i.host for i in seen.instances} == {"host-2"}
    gateway.advance(6)
    assert list(world.observe().host) == ["host-2", "host-3"], "and is replaced"


# --- applying ---------------------------------------------------------------------------------


def test_the_journal_has_the_names_of_the_executor_behind_a_host(tmp_path: Path) -> None:
    gateway, world = busy(executors=2)
    gateway.up["0"] = replace(gateway.up["0"], pod="job-1a2b-exec-0", host="10.0.0.7")
    gateway.up["1"] = replace(gateway.up["1"], container="container_17_0001_01_000003")
    with Journal(tmp_path / "journal.jsonl") as journal:
        Controller(world, create("static", hosts=3), journal).step()
        gateway.up["1"] = replace(gateway.up["1"], excluded=True)
        Controller(world, create("static", hosts=3), journal).step()
    first, second = [turn.snapshot for turn in read_journal(tmp_path / "journal.jsonl")]
    assert first is not None and second is not None
    one, two = first.hosts
    assert (one.executor, one.address, one.pod) == ("0", "10.0.0.7", "job-1a2b-exec-0")
    assert (two.executor, two.address, two.pod) == ("1", "worker-1", None)
    assert two.container == "container_17_0001_01_000003" and not two.excluded
    assert second.host["host-2"].excluded and second.host["host-2"].status == "draining"
    new = second.host["host-3"]
    assert (new.status, new.executor, new.address) == ("starting", None, None)


def test_growth_is_requested_as_a_total_and_the_executor_takes_the_planned_name() -> None:
    gateway, world = busy(1)
    plan = resized(world, +2)
    world.apply(plan)
    assert gateway.requests == [3]
    assert {h.id: h.status for h in world.observe().hosts} == {
        "host-1": "running",
        "host-2": "starting",
        "host-3": "starting",
    }
    gateway.advance(6)
    seen = world.observe()
    assert all(host.status == "running" for host in seen.hosts)
    assert seen.offer.startup_s == pytest.approx(5.0), "as was seen"
    assert seen.requested == plan.deployment


def test_a_release_waits_for_the_end_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "BOUNDARY_WAIT_S", 30.0)
    gateway, world = busy(2)
    gateway.batches = {"run-of-ticks": "ticks"}
    plan = resized(world, -1)
    applied = threading.Thread(target=world.apply, args=(plan,))
    applied.start()
    try:
        end_s = time.monotonic() + 0.3
        while time.monotonic() < end_s:
            assert gateway.leaving == set(), "in the middle of a batch nothing is taken away"
            time.sleep(0.01)
    finally:
        gateway.batch("ticks", 4, rows=100)
        applied.join(timeout=10)
    assert gateway.leaving == {"1"} and gateway.requests[-1] == 1


def test_a_release_waits_for_all_queries_and_is_postponed_if_they_never_pause() -> None:
    gateway, world, _ = chain(2, "engines")
    plan = resized(world, -1)
    gateway.batches = {"run-of-match": "match"}
    outcome = []
    applied = threading.Thread(target=lambda: outcome.append(world.apply(plan)))
    applied.start()
    while applied.is_alive():
        gateway.publish("progress", progress_json("parse", 9, run="run-of-parse"))
        applied.join(0.01)
    late = "host-2 is not released yet: there was no pause between the batches of match"
    assert outcome == [Outcome((), (late,))], "an event of another query is no boundary"
    assert gateway.leaving == set()
    assert list(world.observe().requested.hosts) == ["host-1", "host-2"], "it stays as it was"
    assert world.observe().requested.counts == {"parse": 2, "match": 2}
    gateway.batches = {}
    assert str(world.apply(resized(world, -1)).steps[-1]) == "release host-2"
    assert gateway.leaving == {"1"}


def test_a_release_is_not_postponed_for_ever_and_says_what_it_costs() -> None:
    gateway, world = busy(2)
    gateway.batches = {"run-of-ticks": "ticks"}
    for _ in range(2):
        assert world.apply(resized(world, -1)).refused
        gateway.now_s += 10
    outcome = world.apply(resized(world, -1))
    assert gateway.leaving == {"1"} and not outcome.refused
    assert outcome.notes == (
        "released during a batch of ticks, after 20 s without a pause between the batches: tasks "
        "that run there end first; their shuffle data is computed again",
    )


def test_a_postponed_release_keeps_its_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, world = busy(4)
    gateway.batches = {"run-of-ticks": "ticks"}
    looks: list[float] = []

    def state_partitions() -> None:
        looks.append(gateway.now_s)

    monkeypatch.setattr(gateway, "state_partitions", state_partitions)
    first = gateway.now_s
    for _ in range(2):
        assert world.apply(resized(world, -1)).refused
        gateway.now_s += 5
    assert looks == [first], "the same host"
    assert world.apply(resized(world, -2)).refused
    assert len(looks) == 2, "two hosts are another choice"
    world.apply(resized(world, 0))
    world.apply(resized(world, -2))
    assert len(looks) == 3, "the plan had changed in between"


def test_a_query_that_has_just_ended_a_batch_is_between_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(world_module, "BOUNDARY_WAIT_S", 30.0)
    gateway, world = busy(2)
    plan = resized(world, -1)
    gateway.batches = {"run-of-ticks": "ticks"}
    looks = iter(range(10))
    asked = gateway.in_batch

    def in_batch() -> dict[str, str]:
        if next(looks) == 1:  # the batch ends, and the next one has begun at the same moment
            gateway.publish("progress", progress_json("ticks", 4, run="run-of-ticks"))
        return asked()

    monkeypatch.setattr(gateway, "in_batch", in_batch)
    assert not world.apply(plan).refused and gateway.leaving == {"1"}


def test_a_world_that_is_closed_waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "BOUNDARY_WAIT_S", 1e9)
    gateway, world = busy(2, interval_s=1e9)
    plan = resized(world, -1)
    gateway.batches = {"run-of-ticks": "ticks"}
    world.close()
    assert world.apply(plan).refused and gateway.leaving == set()


def test_a_release_without_decommissioning_says_what_it_costs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway, world = busy(3)
    gateway.settings.clear()
    for _ in range(2):
        (note,) = world.apply(resized(world, -1)).notes
        assert note.startswith("spark.decommission.enabled is false: tasks that run on a released")
        gateway.advance(1)
    assert len([r for r in caplog.records if "decommission" in r.message]) == 1, "logged once"


def test_a_refused_request_leaves_the_world_as_it_was_and_is_planned_again() -> None:
    gateway, world = busy(2)
    gateway.deaf = True
    grown = world.apply(resized(world, +1))
    shrunk = world.apply(resized(world, -1))
    for outcome in (grown, shrunk):
        assert outcome.steps == () and "did not acknowledge" in outcome.refused[0]
    assert [(h.id, h.status) for h in world.observe().hosts] == [
        ("host-1", "running"),
        ("host-2", "running"),
    ]
    gateway.deaf = False
    assert world.apply(resized(world, -1)).refused == ()
    assert gateway.leaving == {"1"}


def test_the_load_of_exchanged_executors_is_still_known() -> None:
    gateway, world = busy(3)
    world.observe()
    gateway.state = {"1": 2, "2": 2}
    gateway.advance(10)
    world.observe()
    world.apply(resized(world, -1))
    assert gateway.leaving == {"0"}
    gateway.advance(10)
    assert all(host.utilisation is not None for host in world.observe().hosts)


def test_a_refused_lease_is_told_and_not_believed() -> None:
    gateway = FakeGateway(1)
    gateway.query("ticks")
    cluster = FakeCluster(gateway, hosts=1, room=1)
    world = started(gateway, hosts=WorkerHosts(gateway, gateway.clock, cluster))
    outcome = world.apply(resized(world, +1))
    assert outcome.refused == ("host-2 is refused: the machine is full: end something",)
    assert outcome.steps == ()
    assert list(world.observe().host) == ["host-1"]


def test_shedding_without_live_settings_is_refused() -> None:
    _, world = busy(1)
    outcome = world.apply(Plan(world.observe().requested, shed_fraction=0.25))
    assert outcome.refused[0].startswith("25% should be shed, but the query reads no live settings")


CHAIN = Topology(
    (Operator("parse", Resources(1)), Operator("match", Resources(1))),
    (Source("input"),),
    (Edge("input", "parse"), Edge("parse", "match", ratio=0.5)),
)


def chain(
    executors: int = 2, style: Style = "instances"
) -> tuple[FakeGateway, SparkWorld, LiveSettings]:
    gateway, live_settings = FakeGateway(executors), LiveSettings()
    for name in CHAIN.by_name:
        gateway.query(name, trigger_s=2.0)
    world = started(gateway, style, topology=CHAIN, live_settings=live_settings)
    world.observe()
    for number in range(3):
        gateway.advance(2)
        gateway.batch("parse", number, rows=100, behind=0)
        gateway.batch("match", number, rows=50, behind=5)
        for executor in gateway.up:
            gateway.work(executor, busy_s=2.0)
    return gateway, world, live_settings


def test_a_chain_has_an_operator_for_each_query_and_its_settings_are_set() -> None:
    _, world, live_settings = chain()
    seen = world.observe()
    assert seen.requested.counts == {"parse": 2, "match": 2}
    assert seen.reading["parse"].arrival_rate_per_s == pytest.approx(50)
    assert seen.reading["match"].arrival_rate_per_s == pytest.approx(25)
    assert seen.topology.by_name["parse"].max_instances is None, "tasks are ours to choose"
    world.apply(Plan(seen.requested, shed_fraction=0.1))
    assert [live_settings.parallelism(name) for name in ("parse", "match")] == [2, 2]
    assert live_settings.shed_fraction == 0.1


def test_queries_have_their_own_slots_with_live_settings_only() -> None:
    assert chain()[1].observe().own_slots is True
    gateway = FakeGateway(2)
    world = started(gateway)
    gateway.query("parse")
    assert world.observe().own_slots is None, "one query has all slots"
    gateway.query("match")
    assert world.observe().own_slots is False


def test_shed_rows_are_offered_and_not_processed() -> None:
    _, world, live_settings = chain()
    for number in range(3):
        live_settings.record_shed("parse", number, 40)
    seen = world.observe().reading
    assert seen["parse"].arrival_rate_per_s == pytest.approx(50)
    assert seen["parse"].processed_per_s == pytest.approx(30)
    assert seen["parse"].shed_per_s == pytest.approx(20)
    assert seen["match"].shed_per_s is None and seen["match"].dropped_per_s is None


def test_a_chain_shows_the_delay_along_it() -> None:
    _, world, _ = chain()
    seen = world.observe()
    delays = [seen.reading[name].delay for name in ("parse", "match")]
    assert delays[0].mean_s == pytest.approx(2.0), "from 1 s to 3 s"
    assert delays[1].mean_s is not None and delays[1].at_least, "some rows were there before"
    assert seen.latency.mean_s == pytest.approx(2.0 + delays[1].mean_s)
    assert seen.latency.at_least


def test_for_placement_a_query_is_cut_into_shards_with_a_home_each() -> None:
    _, world = busy(2, "placement")
    seen = world.observe()
    assert len(seen.topology.operators) == 16
    assert set(seen.requested.counts.values()) == {1}
    homes = [instance.host for instance in seen.instances]
    assert homes.count("host-1") == homes.count("host-2") == 8
    assert sum(r.arrival_rate_per_s or 0 for r in seen.operators) == pytest.approx(50)
    assert sum(i.load.cpu_cores for i in seen.instances if i.load) == pytest.approx(1.0)


# --- every policy -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", available())
@pytest.mark.parametrize("state", ["fresh", "busy", "starting", "draining", "chain", "narrow"])
def test_every_policy_decides_in_this_world(name: str, state: str) -> None:
    policy = create(name)
    style = policy.style
    if state == "chain":
        gateway, world, _ = chain(style=style)
    else:
        gateway, world = busy(1 if state == "fresh" else 3, style)
    if state == "fresh":
        gateway = FakeGateway(1)
        gateway.query("ticks")
        world = started(gateway, style)
    elif state == "starting":
        world.apply(resized(world, +1))
    elif state == "draining":
        world.apply(resized(world, -1))
    elif state == "narrow":
        gateway.works.clear()
        for number in range(4, 16):
            gateway.advance(2)
            gateway.batch("ticks", number, rows=100, tasks=2)
    controller = Controller(world, policy)
    for number in range(20, 26):
        turn = controller.step()
        assert turn.error is None
        assert turn.snapshot is not None and turn.plan is not None and turn.outcome is not None
        if state != "narrow":  # more slots than tasks is what was found, not what was planned
            assert not broken_rules(turn.snapshot, turn.plan, policy.measure)
        assert world.apply(turn.plan).steps == ()
        for query in gateway.queries.values():
            gateway.batch(query, number, rows=400, behind=200)
        for executor in gateway.up:
            gateway.work(executor, busy_s=19.0)
        gateway.advance(10)
