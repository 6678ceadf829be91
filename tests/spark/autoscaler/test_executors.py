from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidegate.model.topology import Resources
from tidegate.spark.autoscaler.executors import (
    DRAIN_LIMIT_S,
    EXECUTOR_MANAGERS,
    START_LIMIT_S,
    DriverHost,
    ExecutorHosts,
    WorkerHosts,
    executor_manager,
)
from tidegate.spark.autoscaler.gateway import Gateway
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
    gateway.kill("0")
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
    gateway.kill("0")
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


# --- the choice of a manager ------------------------------------------------------------------


class OnMaster(FakeGateway):
    """An application on any master."""

    def __init__(self, master: str) -> None:
        super().__init__(1)
        self._context = SimpleNamespace(master=master)

    scheme = Gateway.scheme


@pytest.mark.parametrize(
    ("master", "kind"),
    [
        ("local[2]", DriverHost),
        ("spark://127.0.0.1:7077", ExecutorHosts),
        ("yarn", ExecutorHosts),
        ("k8s://https://host:6443", ExecutorHosts),
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
    hosts.release(["host-1"])
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
