"""What is different on Kubernetes: requests that would be denied, and pods that stay pending."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from tidegate.spark.autoscaler.executors import (
    FAILURES,
    SLOW_START_S,
    KubernetesHosts,
    executor_manager,
)
from tidegate.spark.autoscaler.kubernetes_api import KubernetesApi
from tidegate.testing.spark import FakeGateway


class OnKubernetes(FakeGateway):
    """An application on Kubernetes. allowed, pods: what the API server says; None: nothing."""

    allowed: bool | None = True
    pods: list[Mapping[str, Any]] | None = None

    def __init__(self, executors: int = 1) -> None:
        super().__init__(executors)
        self.settings |= {"spark.master": "k8s://https://127.0.0.1:6443", FAILURES: "99"}
        self.settings["spark.kubernetes.namespace"] = "jobs"

    def may_create_pods(self) -> bool | None:
        return self.allowed

    def executor_pods(self) -> list[Mapping[str, Any]] | None:
        return self.pods


def pod(name: str, phase: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"phase": phase, **status}}


def hosts_on(gateway: OnKubernetes) -> KubernetesHosts:
    hosts = executor_manager(gateway, gateway.clock)
    assert isinstance(hosts, KubernetesHosts)
    hosts.update()
    return hosts


def test_a_request_that_would_be_denied_is_refused_before_it_is_made() -> None:
    gateway = OnKubernetes(1)
    hosts = hosts_on(gateway)
    gateway.allowed = False
    (refused,) = hosts.lease(["host-2"])
    assert refused == (
        "host-2 is refused: the driver's account may not create pods in namespace jobs: give its "
        "role the verb create on pods, as deploy/kubernetes/rbac.yaml does"
    )
    assert list(hosts.hosts) == ["host-1"] and not gateway.requests, "Spark would go on trying"
    gateway.allowed = True
    assert hosts.lease(["host-2"]) == [] and gateway.requests == [2]


def test_a_denial_is_logged_once_until_a_request_is_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway = OnKubernetes(1)
    hosts = hosts_on(gateway)
    for allowed, logged in ((False, 1), (False, 1), (True, 1), (False, 2)):
        gateway.allowed = allowed
        hosts.lease(["host-2"])
        assert hosts.waiting() == []
        assert len(caplog.records) == logged


def test_a_request_is_made_if_nobody_knows_whether_it_is_allowed() -> None:
    gateway = OnKubernetes(1)
    hosts = hosts_on(gateway)
    gateway.allowed = None
    assert hosts.lease(["host-2"]) == []


def test_pods_are_looked_up_only_when_they_are_slow() -> None:
    gateway = OnKubernetes(1)
    gateway.startup_s = 1000.0
    hosts = hosts_on(gateway)
    hosts.lease(["host-2"])
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes: no CPU."}
    gateway.pods = [pod("a-1", "Running"), pod("a-2", "Pending", conditions=[condition])]
    gateway.advance(SLOW_START_S)
    hosts.update()
    assert hosts.waiting() == []
    gateway.advance(1)
    hosts.update()
    assert hosts.waiting() == ["pod a-2 is pending: 0/3 nodes: no CPU"]


def test_a_pending_pod_is_not_abandoned() -> None:
    gateway = OnKubernetes(1)
    gateway.startup_s = 3600.0  # a cluster autoscaler that is slow to bring a node
    hosts = hosts_on(gateway)
    hosts.lease(["host-2"])
    gateway.advance(3000.0)
    hosts.update()
    assert hosts.hosts["host-2"].status == "starting" and gateway.requests == [2]
    hosts.release(["host-2"])
    assert list(hosts.hosts) == ["host-1"] and gateway.requests == [2, 1]


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        (None, "the API server does not answer"),
        ([pod("a-1", "Running")], "Spark has created 1 of 2 executor pods"),
        ([pod("a-1", "Running"), pod("a-2", "Pending")], "pod a-2 is pending: it has no node yet"),
        (
            [
                pod("a-1", "Running"),
                pod(
                    "a-2",
                    "Pending",
                    startTime="now",
                    containerStatuses=[{"state": {"waiting": {"reason": "ImagePullBackOff"}}}],
                ),
            ],
            "pod a-2 is pending: ImagePullBackOff",
        ),
    ],
)
def test_what_keeps_an_executor_is_said(pods: list[Any] | None, said: str) -> None:
    gateway = OnKubernetes(1)
    gateway.startup_s = 1000.0
    hosts = hosts_on(gateway)
    hosts.lease(["host-2"])
    gateway.advance(SLOW_START_S + 1)
    hosts.update()
    gateway.pods = pods
    (sentence,) = hosts.waiting()
    assert sentence.startswith(said)


def test_it_is_logged_once_and_again_after_it_was_over(caplog: pytest.LogCaptureFixture) -> None:
    gateway = OnKubernetes(1)
    gateway.startup_s = 1000.0
    hosts = hosts_on(gateway)
    hosts.lease(["host-2"])
    gateway.advance(SLOW_START_S + 1)
    hosts.update()
    gateway.pods = [pod("a-1", "Running"), pod("a-2", "Pending")]
    with caplog.at_level(logging.WARNING):
        hosts.waiting(), hosts.waiting()
        assert len(caplog.records) == 1
        gateway.pods = [pod("a-1", "Running"), pod("a-2", "Running")]
        assert hosts.waiting() == []
        gateway.pods = [pod("a-1", "Running"), pod("a-2", "Pending")]
        hosts.waiting()
    assert len(caplog.records) == 2


def test_a_limit_of_failures_that_ends_the_application_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway = OnKubernetes(1)
    executor_manager(gateway, gateway.clock)
    assert not caplog.records
    del gateway.settings[FAILURES]
    executor_manager(gateway, gateway.clock)
    (record,) = caplog.records
    assert "Spark ends the application" in record.getMessage()


class _Client:
    """The driver's client of the API server. answer: what it says; wait: until it says it."""

    def __init__(self, answer: str, wait: threading.Event | None = None) -> None:
        self.answer, self.wait, self.asked = answer, wait, 0

    def raw(self, *_: Any) -> str:
        self.asked += 1
        if self.wait is not None:
            self.wait.wait(60)
        if not self.answer:
            raise RuntimeError("403")
        return self.answer

    def getClass(self) -> _Client:
        return self

    def getDeclaredFields(self) -> list[_Client]:
        return [self]

    def getName(self) -> str:
        return "org$apache$spark$$kubernetesClient"

    def setAccessible(self, _: bool) -> None:
        pass

    def get(self, backend: object) -> _Client:
        return self


def test_the_api_server_is_asked_through_the_drivers_own_client() -> None:
    client = _Client('{"status": {"allowed": false}}')
    assert KubernetesApi(lambda: client, "jobs", "app-1").may_create_pods() is False
    client = _Client('{"items": [{"metadata": {"name": "a"}}]}')
    assert KubernetesApi(lambda: client, "jobs", "app-1").executor_pods() == [
        {"metadata": {"name": "a"}}
    ]


@pytest.mark.parametrize("answer", ["", "no JSON", "[]"])
def test_an_api_server_that_does_not_answer_is_no_error(answer: str) -> None:
    api = KubernetesApi(lambda: _Client(answer), "jobs", "app-1")
    assert api.may_create_pods() is None and api.executor_pods() is None


def test_an_api_server_that_hangs_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.spark.autoscaler.kubernetes_api.ANSWER_S", 0.01)
    wait = threading.Event()
    client = _Client('{"items": []}', wait)
    api = KubernetesApi(lambda: client, "jobs", "app-1")
    assert api.executor_pods() is None and api.executor_pods() is None
    assert client.asked == 1
    wait.set()
    while api.executor_pods() is None:
        pass
    assert client.asked > 1
