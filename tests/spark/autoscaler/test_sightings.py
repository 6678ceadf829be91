"""Executors as Spark's REST interface reports them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.autoscaler.test_in_process import on_jvm
from tidegate.spark.autoscaler.sightings import ExecutorInfo, read_executors

# As Spark 4.3 writes it for an executor of a standalone cluster, without fields that are not read.
PLAIN = {
    "id": "3",
    "hostPort": "10.1.2.3:38211",
    "isActive": True,
    "totalCores": 2,
    "maxTasks": 2,
    "activeTasks": 1,
    "totalDuration": 4500,
    "totalShuffleWrite": 3 * 2**20,
    "isExcluded": False,
    "maxMemory": 512 * 2**20,
    "memoryUsed": 2**20,
    "diskUsed": 0,
    "addTime": "2026-01-01T00:00:00.000GMT",
    "attributes": {},
}


def read(active: bool = True, **changed: Any) -> ExecutorInfo:
    (seen,) = read_executors([PLAIN | changed | {"isActive": active}])
    return seen


def test_an_executor_has_the_address_of_its_machine() -> None:
    seen = read()
    assert (seen.id, seen.host, seen.pod, seen.container) == ("3", "10.1.2.3", None, None)
    assert (seen.busy_s, seen.shuffle_mb, seen.cached_mb) == (4.5, 3.0, 1.0)
    assert not seen.leaving and not seen.excluded
    assert read(active=False).leaving and read(isExcluded=True).excluded


@pytest.mark.parametrize("missing", ["", None])
def test_an_executor_whose_address_is_not_known_yet_has_none(missing: str | None) -> None:
    assert read(hostPort=missing).host is None
    without = {key: value for key, value in PLAIN.items() if key not in ("hostPort", "attributes")}
    assert read_executors([without])[0].host is None


def test_an_executor_on_yarn_has_its_container() -> None:
    attributes = {"CONTAINER_ID": "container_17_0001_01_000003", "NM_HOST": "node-7"}
    seen = read(attributes=attributes)
    assert seen.described == "executor 3 on 10.1.2.3, container container_17_0001_01_000003"


@pytest.mark.parametrize(
    ("master", "pod"), [("k8s://https://127.0.0.1:6443", "job-1a2b-exec-3"), ("spark://a:1", None)]
)
def test_an_executor_on_kubernetes_has_the_name_of_its_pod(master: str, pod: str | None) -> None:
    gateway, _ = on_jvm()
    settings = {"spark.master": master, "spark.kubernetes.executor.podNamePrefix": "job-1a2b"}
    answers: dict[str, Any] = gateway._scala.answers
    driver = PLAIN | {"id": "driver"}
    answers |= {"executorList": [driver, PLAIN], "isExecutorActive": True, "getConf": settings}
    (seen,) = gateway.executors()
    assert (seen.id, seen.pod) == ("3", pod)
    of_driver, _ = sorted(gateway.executors(include_driver=True), key=lambda e: e.id == "3")
    assert (of_driver.id, of_driver.pod) == ("driver", None), "its name is chosen by the user"
