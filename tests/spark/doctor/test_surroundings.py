"""What Kubernetes and YARN answer, and what is said when they do not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.spark.doctor.servers import answering
from tidegate.errors import BackendError
from tidegate.spark.doctor.kubernetes import KubernetesAccess, pod_rights
from tidegate.spark.doctor.surroundings import with_cluster
from tidegate.spark.doctor.yarn import queue_room, resource_manager
from tidegate.spark.scalability import CHECKS, JobFacts, diagnose
from tidegate.spark.scalability.cluster_checks import NEEDED_RIGHTS, USEFUL_RIGHTS

SELF = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
OTHER = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class ApiServer:
    """Answers access reviews for one token, and remembers what it was asked."""

    def __init__(self, denied: str = "") -> None:
        self.denied = denied
        self.asked: list[Mapping[str, Any]] = []

    def __call__(
        self, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> tuple[int, Any]:
        if headers.get("Authorization") != "Bearer secret":
            return 401, {"message": "Unauthorized"}
        assert body is not None
        self.asked.append(body)
        what = body["spec"]["resourceAttributes"]
        allowed = f"{what['verb']} {what['resource']}" != self.denied
        status = {"allowed": allowed, "reason": "" if allowed else "no rule"}
        return 200, {**body, "status": status}


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("secret\n")
    return file


def on(url: str, **more: str) -> dict[str, str]:
    return {"spark.master": f"k8s://{url}", **more}


def test_all_rights_are_asked_for_in_the_namespace_of_the_job(token: Path) -> None:
    server = ApiServer()
    with answering({SELF: server}) as url:
        settings = on(url, **{"spark.kubernetes.namespace": "jobs"})
        rights = pod_rights(settings, KubernetesAccess(str(token)))
    assert (rights.denied, rights.namespace) == ({}, "jobs")
    asked = [review["spec"]["resourceAttributes"] for review in server.asked]
    assert [f"{a['verb']} {a['resource']}" for a in asked] == [*NEEDED_RIGHTS, *USEFUL_RIGHTS]
    assert {a["namespace"] for a in asked} == {"jobs"}


def test_a_missing_role_blocks_with_the_reason_of_the_server(token: Path) -> None:
    with answering({SELF: ApiServer("create pods")}) as url:
        facts = with_cluster(JobFacts(on(url)), KubernetesAccess(str(token)))
    (finding,) = diagnose(facts, checks=[CHECKS["kubernetes-rights"]]).findings
    assert (finding.severity, finding.key) == ("blocks", "right to create pods")
    assert finding.value == "denied to this account in namespace default (no rule)"


def test_in_cluster_mode_the_server_is_asked_about_the_account_of_the_driver(token: Path) -> None:
    server = ApiServer("delete pods")
    account = "spark.kubernetes.authenticate.driver.serviceAccountName"
    with answering({OTHER: server}) as url:
        settings = on(url, **{"spark.submit.deployMode": "cluster", account: "driver"})
        rights = pod_rights(settings, KubernetesAccess(str(token)))
    assert rights.subject == "system:serviceaccount:default:driver"
    assert server.asked[0]["spec"]["user"] == rights.subject
    assert list(rights.denied) == ["delete pods"]


@pytest.mark.parametrize(
    ("key", "value"), [("oauthToken", "secret"), ("oauthTokenFile", "{token}")]
)
def test_the_token_of_sparks_settings_is_used(key: str, value: str, token: Path) -> None:
    with answering({SELF: ApiServer()}) as url:
        name = f"spark.kubernetes.authenticate.{key}"
        settings = on(url, **{name: value.format(token=token)})
        assert pod_rights(settings, KubernetesAccess()).denied == {}


def test_rights_that_nobody_answers_for_are_not_checked_and_said_so(
    token: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").write_text("wrong")
    with answering({SELF: ApiServer(), "/odd" + SELF: {"kind": "Status"}}) as url:
        cases = {
            "answers 401": (on(url), KubernetesAccess(str(tmp_path / "other"))),
            "answers 404": (on(f"{url}/nothing"), KubernetesAccess(str(token))),
            "does not answer an access review": (on(f"{url}/odd"), KubernetesAccess(str(token))),
            "cannot be read": (on(url), KubernetesAccess(str(tmp_path / "gone"))),
            "there is no token": (on(url), KubernetesAccess()),
        }
        for words, (settings, access) in cases.items():
            facts = with_cluster(JobFacts(settings), access)
            found = diagnose(facts, checks=[CHECKS["kubernetes-rights"]])
            assert found.findings == () and words in found.not_checked[0].because, words
    with pytest.raises(BackendError, match="cannot be reached"):
        pod_rights(on(url), KubernetesAccess(str(token)))


# --- YARN ---------------------------------------------------------------------------------------

METRICS = {"clusterMetrics": {"totalMB": 16384, "availableMB": 10000}}
QUEUES = {
    "scheduler": {
        "schedulerInfo": {
            "type": "capacityScheduler",
            "queueName": "root",
            "queues": {
                "queue": [
                    {
                        "queueName": "streams",
                        "queuePath": "root.streams",
                        "absoluteMaxCapacity": 50.0,
                        "resourcesUsed": {"memory": 4096, "vCores": 4},
                        "state": "RUNNING",
                    }
                ]
            },
        }
    }
}
YARN = {"/ws/v1/cluster/metrics": METRICS, "/ws/v1/cluster/scheduler": QUEUES}


@pytest.mark.parametrize("name", ["streams", "root.streams"])
def test_a_queue_has_what_its_capacity_and_the_cluster_leave(name: str) -> None:
    with answering(YARN) as url:
        room = queue_room(url, name)
    assert (room.most_mb, room.free_mb, room.state) == (8192, 4096, "RUNNING")


def test_a_queue_is_bounded_by_what_others_have_taken() -> None:
    metrics = {"clusterMetrics": {"totalMB": 16384, "availableMB": 1000}}
    with answering(YARN | {"/ws/v1/cluster/metrics": metrics}) as url:
        assert queue_room(url, "streams").free_mb == 1000


def test_the_resource_manager_comes_from_the_settings_of_hadoop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with pytest.raises(BackendError, match="neither HADOOP_CONF_DIR nor --resource-manager"):
        resource_manager()
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(BackendError, match="does not name"):
        resource_manager()

    def site(**values: str) -> None:
        pairs = "".join(
            f"<property><name>yarn.{k.replace('_', '.')}</name><value>{v}</value></property>"
            for k, v in values.items()
        )
        (tmp_path / "yarn-site.xml").write_text(f"<configuration>{pairs}</configuration>")

    site(resourcemanager_webapp_address="rm:18088")
    assert resource_manager() == "http://rm:18088"
    site(
        resourcemanager_hostname="rm",
        resourcemanager_webapp_address="${yarn.resourcemanager.hostname}:8088",
    )
    assert resource_manager() == "http://rm:8088"
    site(resourcemanager_hostname="rm", http_policy="HTTPS_ONLY")
    assert resource_manager() == "https://rm:8090"


def test_a_queue_that_cannot_be_read_is_not_checked_and_said_so() -> None:
    fair = {"scheduler": {"schedulerInfo": {"type": "fairScheduler"}}}
    settings = {"spark.master": "yarn", "spark.yarn.queue": "streams"}
    cases: dict[str, Mapping[str, Any]] = {
        "answers in another form": {"/ws/v1/cluster/metrics": {}},
        "is fairScheduler": YARN | {"/ws/v1/cluster/scheduler": fair},
        "does not answer with JSON": YARN
        | {"/ws/v1/cluster/metrics": lambda body, headers: (200, b"<html>")},
        "answers 404": {},
    }
    for words, answers in cases.items():
        with answering(answers) as url:
            facts = with_cluster(JobFacts(settings), KubernetesAccess(), url)
        found = diagnose(facts, checks=[CHECKS["yarn-queue"]])
        assert words in found.not_checked[0].because, words
    with answering(YARN) as url, pytest.raises(BackendError, match="no queue x; there are: str"):
        queue_room(url, "x")


def test_a_cluster_without_a_master_is_asked_nothing() -> None:
    facts = JobFacts({})
    assert with_cluster(facts, KubernetesAccess()) is facts
    standalone = JobFacts({"spark.master": "spark://m:7077"})
    assert with_cluster(standalone, KubernetesAccess()) is standalone
