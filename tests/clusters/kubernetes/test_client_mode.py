"""A submitted job on Kubernetes, driver on this machine: one job goes through everything.

The tests run in their order. Each leaves the job as the next one expects it, and each ends with
rows that went through the query exactly once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.kubernetes import job as ticks_job
from tests.clusters.kubernetes import load
from tests.clusters.kubernetes.cluster import ACCOUNT, NAMESPACE, KubernetesCluster, role
from tests.clusters.kubernetes.submitted import SETTINGS, Submitted

pytestmark = [pytest.mark.kubernetes, pytest.mark.java]

AWAY_S = 30.0
OBEY = ["--slo", "5s", "--policy", "static", "--set", "hosts=1", "--interval", "2s"]
OBEY += ["--without-guard", "all"]


@pytest.fixture(scope="module")
def job(
    cluster: KubernetesCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Submitted]:
    settings = SETTINGS | cluster.conf(cluster.token())
    folder = tmp_path_factory.mktemp("client") / "job"
    with Submitted(cluster, folder, ticks_job.__file__, OBEY, settings) as submitted:
        yield submitted


def test_it_starts_and_grows(job: Submitted) -> None:
    job.works()
    job.has(1)
    job.want(2)
    job.has(2)
    job.works()


def test_a_pod_that_stays_pending_is_named_and_starts_when_there_is_room(job: Submitted) -> None:
    job.cluster.node.executors = 2
    job.want(3)
    job.until("the journal names the pod", lambda: job.says("is pending: 0/1 nodes are available"))
    pending = job.cluster.pods(phase="Pending")
    assert len(pending) == 1 and job.says(f"pod {pending[0]['metadata']['name']} is pending")
    job.works()
    job.cluster.node.executors = None
    job.has(3)
    job.works()


def test_an_evicted_pod_is_replaced(job: Submitted) -> None:
    node = job.cluster.node
    first, second, _ = (pod["metadata"]["name"] for pod in job.cluster.pods())
    job.feed(3)
    node.evict(first, "The node was low on resource: memory.")
    job.until("the first is gone", lambda: first not in names(job))
    job.has(3)
    job.works()
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": second}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{second}/eviction"
    job.feed(3)
    job.cluster.admin.create(path, eviction)
    job.until("the second is gone", lambda: second not in names(job))
    job.has(3)
    job.works()


def test_an_executor_that_is_requested_during_a_drain_comes_after_it(job: Submitted) -> None:
    """Executors that are frozen cannot leave, so they drain until the test lets them."""
    many, node = job.pods(), job.cluster.node
    with node.frozen(names(job)) as thaw:
        job.want(many - 1)
        job.until("an executor drains", lambda: "draining" in job.statuses)
        (leaving,) = job.pods_of("draining")
        thaw(set(names(job)) - {leaving})
        job.want(many)
        job.until("another one is requested", lambda: "starting" in job.statuses)
        job.works()
        assert names(job).count(leaving) == 1 and job.pods() == many, "Kubernetes counts it"
    job.has(many)
    assert leaving not in names(job)
    assert "did not start within" not in job.log, "the wait for the drain is no failed start"
    job.works()


def test_a_denied_request_is_a_sentence_with_a_remedy(job: Submitted) -> None:
    job.cluster.apply(role(without="create"))
    said, many = len(job.said), job.pods()
    job.want(many + 1)
    job.until(
        "the journal says what is missing",
        lambda: any("give its role the verb create on pods" in s for s in job.said[said:]),
    )
    assert any("is refused: the driver's account may not create pods" in s for s in job.said[said:])
    job.works()
    lost = names(job)[0]
    job.cluster.node.evict(lost, "The node was low on resource: memory.")
    job.until("one executor is lost", lambda: lost not in names(job))
    count = job.log.count("cannot create resource")
    job.until(
        "Spark is denied, again and again", lambda: job.log.count("cannot create") > count + 8
    )
    job.works()
    job.cluster.apply(role())
    job.has(many + 1)
    job.works()


def test_pods_that_a_quota_forbids_are_missed(job: Submitted) -> None:
    many = job.pods()
    path = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas/few"
    full = {"pods": str(many)}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
    job.cluster.apply({**quota, "spec": {"hard": full}})
    # There is no controller that counts, so the test does.
    job.cluster.admin.patch(f"{path}/status", {"status": {"hard": full, "used": full}})
    job.want(many + 1)
    missing = f"Spark has created {many} of {many + 1} executor pods"
    job.until("the journal misses a pod", lambda: job.says(missing))
    assert "exceeded quota" in job.log
    job.works()
    job.cluster.admin.delete(path)
    job.has(many + 1)
    job.works()


def names(job: Submitted) -> list[str]:
    return [pod["metadata"]["name"] for pod in job.cluster.pods()]


@pytest.mark.parametrize("how", ["frozen", "stopped"])
def test_scaling_goes_on_after_the_api_server_was_away(job: Submitted, how: str) -> None:
    plane, began = job.cluster.plane, len(job.turns)
    job.want(2)
    job.until("two are wanted", lambda: job.statuses.count("running") <= 2)
    if how == "stopped":
        plane.stop_api_server()
    end_s = time.monotonic() + AWAY_S

    def over() -> bool:
        return time.monotonic() > end_s

    def away() -> None:
        job.works()  # nothing of the job needs the API server
        turns = len(job.turns)
        job.want(4)
        job.until("turns go on", lambda: len(job.turns) > turns + 2)
        job.until("half a minute is over", over)

    if how == "frozen":
        with plane.frozen():
            away()
    else:
        away()
        plane.start_api_server()
    job.has(4)
    job.works()
    job.want(3)
    job.has(3)
    job.works()
    assert not [turn.error for turn in job.turns[began:] if turn.error]


def test_it_ends_as_it_should_and_leaves_nothing_behind(job: Submitted) -> None:
    job.works()
    assert job.end() == 0
    cluster = job.cluster
    deadline_s = time.monotonic() + 60
    while cluster.pods() and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert not cluster.pods()


def test_executors_follow_the_load(cluster: KubernetesCluster, tmp_path: Path) -> None:
    options = ["--slo", "10s", "--max-executors", "4", "--interval", "2s", "--stabilise", "10s"]
    settings = SETTINGS | cluster.conf(cluster.token())
    folder = tmp_path / "job"
    with Submitted(cluster, folder, load.__file__, options, settings) as job:
        job.until("it grows", lambda: job.statuses.count("running") >= 2)
        (folder / "calm").touch()
        job.has(1)
        assert job.end() == 0
    assert not [turn.error for turn in job.turns if turn.error]


def test_the_role_has_the_rights_that_were_used_and_no_others(cluster: KubernetesCluster) -> None:
    """By the audit log of everything that the drivers of the tests above have done."""
    user = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    used: set[tuple[str, str]] = set()
    denied: set[tuple[str, str]] = set()
    for request in cluster.plane.requests():
        target = request.get("objectRef", {})
        if request["user"]["username"] != user or target.get("namespace") != NAMESPACE:
            continue
        right = (target["resource"], request["verb"])
        refused = request["responseStatus"].get("code") == 403
        (denied if refused else used).add(right)
    granted = {
        (resource, verb)
        for rule in role()["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert denied <= {("pods", "create")}, "only what a test has denied"
    assert used == granted
