from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.errors import SettingError
from tidegate.model.topology import Resources
from tidegate.spark.autoscaler.executors import (
    BUSY_DRAIN_LIMIT_S,
    DRAIN_LIMIT_S,
    EXECUTOR_MANAGERS,
    SLOW_START_S,
    START_LIMIT_S,
    DriverHost,
    ExecutorHosts,
    KubernetesHosts,
    WorkerHosts,
    YarnHosts,
    executor_manager,
)
from tidegate.spark.autoscaler.scalable import check_scalable
from tidegate.testing.spark import START_S, FakeCluster, FakeGateway


def statuses(hosts: ExecutorHosts) -> dict[str, str]:
    hosts.update()
    return {name: host.status for name, host in hosts.hosts.items()}


def on_executors(executors: int = 1) -> tuple[FakeGateway, ExecutorHosts]:
    gateway = FakeGateway(executors)
    hosts = ExecutorHosts(gateway, gateway.clock)
    hosts.update()
    return gateway, hosts


def on_workers(workers: int = 1, room: int = 9) -> tuple[FakeGateway, FakeCluster, WorkerHosts]:
    gateway = FakeGateway(workers)
    cluster = FakeCluster(gateway, workers, room)
    hosts = WorkerHosts(gateway, gateway.clock, cluster)
    hosts.update()
    return gateway, cluster, hosts


# --- executors of any cluster manager ---------------------------------------------------------


def test_executors_that_are_there_already_are_adopted() -> None:
    _, hosts = on_executors(2)
    assert statuses(hosts) == {"host-1": "running", "host-2": "running"}
    assert hosts.leased_so_far == 2
    assert hosts.startups_s == [], "when they were asked for nobody knows"


def test_a_leased_host_is_starting_until_its_executor_comes() -> None:
    gateway, hosts = on_executors(1)
    assert hosts.lease(["host-2", "host-3"]) == []
    assert gateway.requests == [3], "totals, not differences"
    gateway.advance(2)
    assert statuses(hosts) == {"host-1": "running", "host-2": "starting", "host-3": "starting"}
    gateway.advance(4)
    assert set(statuses(hosts).values()) == {"running"}
    assert hosts.startups_s == pytest.approx([5.0, 5.0])
    first, second = hosts.hosts["host-2"].executor, hosts.hosts["host-3"].executor
    assert first and second and first.id != second.id
    assert hosts.hosts["host-2"].leased_s == START_S, "paid from the lease on"


def test_an_executor_that_came_unasked_gets_a_name_nobody_had() -> None:
    gateway, hosts = on_executors(1)
    hosts.lease(["host-2"])
    gateway.advance(6)
    statuses(hosts)
    hosts.release(["host-2"])
    gateway.advance(1)
    assert statuses(hosts) == {"host-1": "running"}
    gateway.request_total(2)  # somebody else
    gateway.advance(6)
    assert statuses(hosts) == {"host-1": "running", "host-3": "running"}


def test_a_released_host_drains_and_goes() -> None:
    gateway, hosts = on_executors(2)
    hosts.release(["host-2", "no-such-host"])
    assert gateway.requests[-1] == 1
    assert statuses(hosts) == {"host-1": "running", "host-2": "draining"}
    gateway.advance(1)
    assert statuses(hosts) == {"host-1": "running"}
    gateway.advance(60)
    assert statuses(hosts) == {"host-1": "running"}, "and does not come back"


def test_a_host_released_before_it_came_is_gone_at_once() -> None:
    gateway, hosts = on_executors(1)
    hosts.lease(["host-2"])
    hosts.release(["host-2"])
    assert gateway.requests == [2, 1]
    gateway.advance(60)
    assert statuses(hosts) == {"host-1": "running"}


def test_a_dead_executor_is_a_lost_host_and_the_manager_replaces_it() -> None:
    gateway, hosts = on_executors(2)
    gateway.lose("0")
    assert statuses(hosts) == {"host-2": "running"}
    gateway.advance(6)
    assert statuses(hosts) == {"host-2": "running", "host-3": "running"}


def test_a_host_that_does_not_come_is_given_up() -> None:
    gateway, hosts = on_executors(1)
    gateway.startup_s = 1e9
    hosts.lease(["host-2"])
    gateway.advance(START_LIMIT_S - 1)
    assert statuses(hosts)["host-2"] == "starting"
    gateway.advance(2)
    assert statuses(hosts) == {"host-1": "running"}
    assert gateway.requests[-1] == 1


def test_the_total_is_requested_before_the_release_and_the_release_leaves_it() -> None:
    gateway, hosts = on_executors(3)
    hosts.release(["host-3"])
    assert gateway.calls == ["total 2", "release 2"], "a total of 0 was published in between before"
    assert gateway.total == 2


@pytest.mark.parametrize("how", ["deaf", "broken"])
def test_a_lease_that_is_not_acknowledged_is_not_booked_and_can_be_tried_again(how: str) -> None:
    gateway, hosts = on_executors(1)
    setattr(gateway, how, "the cluster manager is away")
    (refused,) = hosts.lease(["host-2"])
    assert refused.startswith("host-2 is refused: the cluster manager")
    assert set(hosts.hosts) == {"host-1"} and hosts.leased_so_far == 1
    setattr(gateway, how, "")
    assert hosts.lease(["host-2"]) == []
    gateway.advance(6)
    assert statuses(hosts) == {"host-1": "running", "host-2": "running"}


@pytest.mark.parametrize("how", ["deaf", "broken"])
def test_a_release_that_is_not_acknowledged_is_undone_and_can_be_tried_again(how: str) -> None:
    gateway, hosts = on_executors(2)
    setattr(gateway, how, "the cluster manager is away")
    (refused,) = hosts.release(["host-2"])
    assert refused.startswith("host-2 is not released: the cluster manager")
    setattr(gateway, how, "")
    assert statuses(hosts) == {"host-1": "running", "host-2": "running"}, "it works and is counted"
    assert gateway.total == 2
    assert hosts.release(["host-2"]) == []
    gateway.advance(1)
    assert statuses(hosts) == {"host-1": "running"}


def test_an_executor_that_does_not_acknowledge_its_release_stays_with_its_total() -> None:
    gateway, hosts = on_executors(3)
    accepted = gateway.decommission
    gateway.decommission = lambda ids, why: accepted(ids[:1], why)  # type: ignore[method-assign]
    refused = hosts.release(["host-2", "host-3"])
    assert len(refused) == 1 and "did not acknowledge" in refused[0]
    assert sorted(statuses(hosts).values()) == ["draining", "running", "running"]
    assert gateway.total == 2


def test_the_total_is_requested_again_at_every_turn() -> None:
    gateway, hosts = on_executors(1)
    hosts.lease(["host-2"])
    gateway.advance(6)
    hosts.update()
    gateway.total = 0  # a restarted application master has forgotten it
    gateway.lose("0")
    gateway.lose("1")
    assert statuses(hosts) == {"host-3": "starting", "host-4": "starting"}, "lost, and on their way"
    assert gateway.total == 2
    gateway.advance(6)
    assert statuses(hosts) == {"host-3": "running", "host-4": "running"}


def test_nothing_is_requested_before_the_first_plan() -> None:
    gateway, hosts = on_executors(2)
    gateway.lose("0")
    for _ in range(50):
        gateway.now_s += 10
        hosts.update()
    assert gateway.calls == [], "what only watches, as a dry run, asks for nothing"
    assert statuses(hosts) == {"host-2": "running"}


def test_a_failed_assertion_of_the_total_does_not_fail_the_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway, hosts = on_executors(1)
    hosts.lease(["host-2"])
    gateway.deaf = True
    hosts.update()
    hosts.update()
    assert len([r for r in caplog.records if "requested again" in r.message]) == 1, "said once"
    gateway.deaf = False
    hosts.update()
    assert gateway.total == 2


def test_an_executor_that_does_not_leave_is_killed_in_the_end() -> None:
    gateway, hosts = on_executors(2)
    gateway.stuck = {"1"}
    hosts.release(["host-2"])
    gateway.advance(DRAIN_LIMIT_S - 1)
    assert statuses(hosts)["host-2"] == "draining"
    gateway.up["1"] = replace(gateway.up["1"], tasks=1)
    gateway.advance(2)
    assert statuses(hosts)["host-2"] == "draining", "its task may end"
    gateway.advance(BUSY_DRAIN_LIMIT_S)
    hosts.update()
    hosts.update()
    assert [call for call in gateway.calls if "kill" in call] == ["kill 1"], "once"
    assert statuses(hosts) == {"host-1": "running"}
    assert gateway.total == 1


def test_executors_that_hold_least_are_released() -> None:
    gateway, hosts = on_executors(3)
    gateway.state = {"0": 1, "1": 4, "2": 4}
    hosts.choose(["host-3"])
    hosts.release(["host-3"])
    assert gateway.leaving == {"0"}
    hosts.update()
    held = {name: host.executor.id for name, host in hosts.hosts.items() if host.executor}
    assert held == {"host-1": "2", "host-2": "1", "host-3": "0"}, "the names are those of the plan"
    assert hosts.hosts["host-3"].status == "draining"


def test_growth_while_an_executor_drains_starts_one_when_it_is_gone() -> None:
    gateway, hosts = on_executors(2)
    gateway.stuck = {"1"}
    hosts.release(["host-2"])
    assert gateway.total == 1
    hosts.lease(["host-3"])
    assert gateway.total == 2, "one stays, one is new"
    gateway.advance(30)
    assert statuses(hosts) == {"host-1": "running", "host-2": "draining", "host-3": "starting"}
    gateway.stuck = set()
    gateway.advance(6)
    assert statuses(hosts) == {"host-1": "running", "host-3": "running"}
    assert hosts.startups_s == pytest.approx([5.0]), "the wait for the drain is no start-up time"


@pytest.mark.parametrize("passed_s", [1, 5, 20])
def test_a_drain_that_ends_between_two_turns_adds_no_executor(passed_s: float) -> None:
    gateway, hosts = on_executors(4)
    gateway.stuck = {"3"}
    hosts.release(["host-4"])
    hosts.update()
    hosts.lease(["host-5"])
    gateway.stuck = set()  # it leaves before the next turn
    gateway.advance(passed_s)
    gateway.advance(6)
    assert len(gateway.up) == 4, "those of the plan"
    assert sorted(statuses(hosts)) == ["host-1", "host-2", "host-3", "host-5"]


def test_a_host_is_not_abandoned_because_of_a_long_drain() -> None:
    gateway, hosts = on_executors(2)
    gateway.stuck = {"1"}
    gateway.up["1"] = replace(gateway.up["1"], tasks=1)
    hosts.release(["host-2"])
    gateway.advance(10)
    hosts.lease(["host-3"])
    for _ in range(28):
        gateway.advance(10)
        hosts.update()
    gateway.stuck = set()
    gateway.startup_s = 60.0
    gateway.advance(30)
    assert statuses(hosts) == {"host-1": "running", "host-3": "starting"}


def test_an_excluded_executor_is_no_capacity_until_it_is_back() -> None:
    gateway, hosts = on_executors(2)
    hosts.lease(["host-3"])
    gateway.advance(6)
    gateway.up["0"] = replace(gateway.up["0"], excluded=True)
    assert statuses(hosts) == {"host-1": "draining", "host-2": "running", "host-3": "running"}
    assert gateway.total == 3, "it still counts for the cluster manager"
    gateway.advance(BUSY_DRAIN_LIMIT_S + 1)
    assert statuses(hosts)["host-1"] == "draining" and "0" in gateway.up, "and is not killed"
    gateway.up["0"] = replace(gateway.up["0"], excluded=False)
    assert set(statuses(hosts).values()) == {"running"}


def test_an_executor_that_somebody_else_decommissions_is_replaced() -> None:
    gateway, hosts = on_executors(1)
    hosts.lease(["host-2"])
    gateway.advance(6)
    hosts.update()
    gateway.stuck = gateway.leaving = {"0"}
    assert statuses(hosts) == {"host-1": "draining", "host-2": "running", "host-3": "starting"}
    gateway.advance(BUSY_DRAIN_LIMIT_S + 1)
    assert statuses(hosts)["host-1"] == "draining", "whoever decommissioned it also ends it"
    gateway.stuck = set()
    gateway.advance(6)
    assert statuses(hosts) == {"host-2": "running", "host-3": "running"}


def test_slots_are_cores_divided_by_the_cores_of_a_task() -> None:
    gateway, hosts = on_executors(1)
    gateway.settings = {"spark.executor.cores": "8", "spark.task.cpus": "3"}
    assert hosts.capacity() == Resources(2.0)


@pytest.mark.parametrize("allocator", ["statefulset", "deployment"])
def test_an_allocator_that_chooses_the_pods_itself_is_refused(allocator: str) -> None:
    settings = {"spark.kubernetes.allocation.pods.allocator": allocator}
    with pytest.raises(SettingError, match=r"must be direct: it chooses itself which pods"):
        check_scalable(settings.get)
    check_scalable(lambda key, default: default)


# --- workers of the embedded cluster ----------------------------------------------------------


def test_a_leased_worker_is_starting_until_its_executor_comes() -> None:
    gateway, cluster, hosts = on_workers(1)
    assert hosts.lease(["host-2"]) == []
    assert gateway.requests == [2]
    assert statuses(hosts) == {"host-1": "running", "host-2": "starting"}
    gateway.advance(6)
    cluster.settle()
    assert statuses(hosts) == {"host-1": "running", "host-2": "running"}
    assert hosts.startups_s == pytest.approx([5.0])


def test_what_the_machine_cannot_carry_is_refused_with_a_reason() -> None:
    gateway, _, hosts = on_workers(1, room=2)
    refused = hosts.lease(["host-2", "host-3"])
    assert refused == ["host-3 is refused: the machine is full: end something"]
    assert set(hosts.hosts) == {"host-1", "host-2"}
    assert gateway.requests == [2], "no executor is asked for that has no place"


def test_a_released_worker_is_drained_then_given_back() -> None:
    gateway, cluster, hosts = on_workers(2)
    hosts.release(["host-2"])
    assert cluster.drained == ["host-2"] and gateway.requests[-1] == 1
    assert statuses(hosts) == {"host-1": "running", "host-2": "draining"}
    assert "host-2" in cluster.workers, "its tasks still run"
    gateway.advance(1)
    assert statuses(hosts) == {"host-1": "running"}
    assert set(cluster.workers) == {"host-1"}


def test_a_worker_whose_executor_cannot_be_requested_is_given_back() -> None:
    gateway, cluster, hosts = on_workers(1)
    gateway.deaf = True
    (refused,) = hosts.lease(["host-2"])
    assert refused == "host-2 is refused: the cluster manager did not acknowledge a total of 2"
    assert set(hosts.hosts) == set(cluster.workers) == {"host-1"}


def test_a_worker_that_cannot_be_drained_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, cluster, hosts = on_workers(2)

    def drain(name: str) -> None:
        raise PermissionError("not allowed")

    monkeypatch.setattr(cluster, "drain", drain)
    assert hosts.release(["host-2"]) == ["host-2 is not released: not allowed"]
    assert statuses(hosts) == {"host-1": "running", "host-2": "running"}
    assert gateway.total == 2


def test_a_worker_that_does_not_become_empty_is_ended() -> None:
    gateway, cluster, hosts = on_workers(2)
    hosts.release(["host-2"])
    gateway.leaving.clear()  # a task that never ends
    gateway.advance(DRAIN_LIMIT_S + 1)
    assert statuses(hosts) == {"host-1": "running"}
    assert set(cluster.workers) == {"host-1"}


def test_a_worker_released_before_it_came_is_given_back_at_once() -> None:
    _, cluster, hosts = on_workers(1)
    hosts.lease(["host-2"])
    hosts.release(["host-2"])
    assert set(cluster.workers) == {"host-1"} and statuses(hosts) == {"host-1": "running"}


def test_a_dead_worker_is_a_lost_host() -> None:
    _, cluster, hosts = on_workers(2)
    cluster.dead.add("host-2")
    assert statuses(hosts) == {"host-1": "running"}


def test_an_executor_that_dies_on_an_old_worker_is_awaited_anew() -> None:
    gateway, cluster, hosts = on_workers(1)
    gateway.advance(10 * START_LIMIT_S)
    hosts.update()
    gateway.lose("0")
    assert statuses(hosts) == {"host-1": "starting"}, "old, but not to be given up"
    gateway.advance(6)
    cluster.settle()
    assert statuses(hosts) == {"host-1": "running"}
    assert hosts.startups_s == pytest.approx([5.0]), "an executor's start, not the lease's age"
    assert hosts.hosts["host-1"].leased_s == START_S, "it is still the same lease"


def test_a_worker_whose_executor_does_not_come_is_given_back() -> None:
    gateway, cluster, hosts = on_workers(1)
    gateway.startup_s = 1e9
    hosts.lease(["host-2"])
    gateway.advance(START_LIMIT_S + 1)
    assert statuses(hosts) == {"host-1": "running"}
    assert set(cluster.workers) == {"host-1"}


# --- YARN -------------------------------------------------------------------------------------


def on_yarn(executors: int = 1) -> tuple[FakeGateway, YarnHosts]:
    gateway = FakeGateway(executors)
    gateway.settings["spark.yarn.queue"] = "streams"
    hosts = YarnHosts(gateway, gateway.clock)
    hosts.update()
    return gateway, hosts


def test_a_full_queue_is_named_and_the_request_stays(caplog: pytest.LogCaptureFixture) -> None:
    gateway, hosts = on_yarn(1)
    gateway.startup_s = 1e9
    hosts.lease(["host-2", "host-3"])
    assert hosts.waiting() == [], "an executor may take a while"
    gateway.advance(SLOW_START_S + 1)
    (sentence,) = hosts.waiting()
    assert sentence == (
        "YARN has not started 2 of the 3 requested executors for more than 20 s: the queue streams "
        "may be full, no node may have room, or YARN may still wait for a lost node; the request "
        "stays"
    )
    gateway.advance(100 * START_LIMIT_S)
    assert set(statuses(hosts).values()) == {"running", "starting"}, "not given up"
    assert hosts.waiting() == [sentence] and gateway.requests == [3]
    assert caplog.messages == [sentence], "once"


def test_executors_that_waited_for_room_are_said_to_start_and_do_not_count_as_slow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway, hosts = on_yarn(1)
    gateway.startup_s = 1e9
    hosts.lease(["host-2"])
    gateway.advance(2 * START_LIMIT_S)
    statuses(hosts)
    assert hosts.waiting()
    gateway.startup_s = 5.0
    gateway.total = 1
    gateway.advance(1)
    hosts.update()  # the total is requested again, and now there is room
    gateway.advance(6)
    assert set(statuses(hosts).values()) == {"running"}
    assert hosts.waiting() == [] and hosts.startups_s == []
    assert caplog.messages[-1] == "no requested executor is missing any more"


def test_a_total_that_fails_as_the_application_ends_is_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway, hosts = on_yarn(1)
    hosts.lease(["host-2"])
    gateway.deaf = True
    gateway.ended = True
    hosts.update()
    assert caplog.messages == []


# --- the choice of a manager ------------------------------------------------------------------


class OnMaster(FakeGateway):
    """An application on any master."""

    def __init__(self, master: str) -> None:
        super().__init__(1)
        self.settings["spark.master"] = master


@pytest.mark.parametrize(
    ("master", "kind"),
    [
        ("local[2]", DriverHost),
        ("spark://127.0.0.1:7077", ExecutorHosts),
        ("yarn", YarnHosts),
        ("k8s://https://host:6443", KubernetesHosts),
        ("elsewhere://host", ExecutorHosts),
    ],
)
def test_the_master_decides_the_manager(master: str, kind: type[ExecutorHosts]) -> None:
    gateway = OnMaster(master)
    hosts = executor_manager(gateway, gateway.clock)
    assert type(hosts) is kind


def test_a_local_driver_is_one_host_that_cannot_be_scaled() -> None:
    gateway = OnMaster("local[2]")
    hosts = DriverHost(gateway, gateway.clock)
    assert statuses(hosts) == {"host-1": "running"} and not hosts.scalable
    assert hosts.lease(["host-2"]) == ["host-2 is refused: a local master has no executors to add"]
    assert hosts.release(["host-1"]) == ["host-1 is not released: the driver runs all tasks"]
    assert statuses(hosts) == {"host-1": "running"} and gateway.requests == []


def test_a_new_cluster_manager_takes_one_class_and_one_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class NomadJobs(ExecutorHosts):
        def capacity(self) -> Resources:
            return Resources(8.0)

    monkeypatch.setitem(EXECUTOR_MANAGERS, "nomad", NomadJobs)
    gateway = OnMaster("nomad://host")
    assert executor_manager(gateway, gateway.clock).capacity() == Resources(8.0)
    elsewhere = OnMaster("yarn")
    assert executor_manager(elsewhere, elsewhere.clock).capacity() == Resources(2.0)
