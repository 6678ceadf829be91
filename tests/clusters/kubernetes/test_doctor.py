"""``tidegate doctor`` asks a real API server for the rights of the driver."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import tidegate
from tests.clusters.kubernetes.cluster import (
    ACCOUNT,
    DEPLOY,
    NAMESPACE,
    KubernetesCluster,
    documents,
)
from tidegate.spark.scalability.cluster_checks import NEEDED_RIGHTS

pytestmark = pytest.mark.kubernetes

LIMIT_S = 120.0


def rights(
    cluster: KubernetesCluster, token: Path, *words: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Rights that are denied with their severity, and checks that were not made with the reason."""
    done = tidegate(
        *("doctor", "--json", "--slo", "5s", "--max-executors", "4", "--master", cluster.master),
        *("--kubernetes-token-file", token, "--kubernetes-ca-file", cluster.plane.ca),
        *("--kubernetes-namespace", NAMESPACE, "--executor-cores", "2", *words, "job.jar"),
    )
    read: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == int(read["blocked"]), done.stderr
    denied = {
        finding["key"].removeprefix("right to "): finding["severity"]
        for finding in read["findings"]
        if finding["check"] == "kubernetes-rights"
    }
    return denied, {one["check"]: one["because"] for one in read["not_checked"]}


@pytest.fixture
def driver(cluster: KubernetesCluster, tmp_path: Path) -> Path:
    """The token of an account with the rights of deploy/kubernetes."""
    file = tmp_path / "driver"
    file.write_text(cluster.token())
    return file


def test_the_role_of_deploy_kubernetes_is_all_that_is_needed(
    cluster: KubernetesCluster, driver: Path
) -> None:
    denied, missing = rights(cluster, driver)
    assert denied == {} and "kubernetes-rights" not in missing


def test_an_account_without_a_role_is_blocked(cluster: KubernetesCluster, tmp_path: Path) -> None:
    (tmp_path / "default").write_text(cluster.token("default"))
    denied, _ = rights(cluster, tmp_path / "default")
    assert {right for right, severity in denied.items() if severity == "blocks"} == {*NEEDED_RIGHTS}


def test_a_single_verb_that_is_missing_is_named(cluster: KubernetesCluster, driver: Path) -> None:
    role = next(d for d in documents(DEPLOY / "rbac.yaml") if d["kind"] == "Role")
    less = json.loads(json.dumps(role))
    for rule in less["rules"]:
        if "pods" in rule["resources"]:
            rule["verbs"] = [verb for verb in rule["verbs"] if verb != "watch"]
    try:
        cluster.apply(less)
        end_s = time.monotonic() + LIMIT_S
        while rights(cluster, driver)[0] != {"watch pods": "blocks"}:  # the server needs a moment
            assert time.monotonic() < end_s, rights(cluster, driver)
    finally:
        cluster.apply(role)


def test_in_cluster_mode_the_account_of_the_driver_counts(
    cluster: KubernetesCluster, driver: Path, tmp_path: Path
) -> None:
    (tmp_path / "admin").write_text(cluster.admin.token)
    mode = ("--deploy-mode", "cluster", "--conf")
    account = "spark.kubernetes.authenticate.driver.serviceAccountName"
    denied, missing = rights(cluster, tmp_path / "admin", *mode, f"{account}={ACCOUNT}")
    assert denied == {} and "kubernetes-rights" not in missing
    denied, _ = rights(cluster, tmp_path / "admin", *mode, f"{account}=default")
    assert denied.keys() >= set(NEEDED_RIGHTS), "the person who submits may do everything"
    _, missing = rights(cluster, driver, *mode, f"{account}={ACCOUNT}")
    assert "403" in missing["kubernetes-rights"], "the driver may not ask about others"


def test_a_server_that_refuses_or_does_not_answer_is_no_finding(
    cluster: KubernetesCluster, tmp_path: Path
) -> None:
    (tmp_path / "wrong").write_text("not-a-token")
    _, missing = rights(cluster, tmp_path / "wrong")
    assert "401" in missing["kubernetes-rights"]
    _, missing = rights(cluster, tmp_path / "wrong", "--master", "k8s://https://127.0.0.1:9")
    assert "cannot be reached" in missing["kubernetes-rights"]
