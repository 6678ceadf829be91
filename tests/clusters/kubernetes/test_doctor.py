"""`tidegate doctor` asks a real API server about the rights of the driver."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.clusters.kubernetes import job
from tests.clusters.kubernetes.cluster import ACCOUNT, NAMESPACE, KubernetesCluster
from tests.clusters.kubernetes.containers import of_this_machine

pytestmark = pytest.mark.kubernetes


def doctor(cluster: KubernetesCluster, settings: dict[str, str], *words: str) -> dict[str, Any]:
    confs = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    command = [sys.executable, "-m", "tidegate", "doctor", "--json", "--slo", "5s", *words]
    done = subprocess.run(
        [*command, "--max-executors", "4", "--master", cluster.master, *confs, job.__file__],
        env=of_this_machine(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return {"code": done.returncode, **json.loads(done.stdout)}


def rights(found: dict[str, Any]) -> set[str]:
    """What the driver may not do."""
    keys = (finding["key"] for finding in found["findings"])
    return {key.removeprefix("right to ") for key in keys if key.startswith("right to ")}


@pytest.fixture
def powerless(cluster: KubernetesCluster) -> str:
    """An account without a role."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "powerless"}}
    cluster.apply(account)
    return "powerless"


def test_the_role_of_the_repository_is_enough(cluster: KubernetesCluster) -> None:
    found = doctor(cluster, cluster.conf(cluster.token()))
    assert rights(found) == set()
    assert not any("Kubernetes" in text for text in map(str, found["not_checked"]))


def test_an_account_without_a_role_is_found(cluster: KubernetesCluster, powerless: str) -> None:
    found = doctor(cluster, cluster.conf(cluster.token(powerless)))
    assert {"create pods", "delete pods", "watch pods", "create configmaps"} <= rights(found)
    assert found["code"] == 1, "nothing could be scaled"


def test_in_cluster_mode_the_account_of_the_driver_counts(
    cluster: KubernetesCluster, powerless: str, tmp_path: Path
) -> None:
    """The person who submits may ask about other accounts."""
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(cluster.admin.token, encoding="ascii")
    asked = ("--kubernetes-token-file", str(token), "--kubernetes-ca-file", str(cluster.plane.ca))
    for account, missing in ((ACCOUNT, False), (powerless, True)):
        settings = {
            "spark.submit.deployMode": "cluster",
            "spark.kubernetes.namespace": NAMESPACE,
            "spark.kubernetes.authenticate.driver.serviceAccountName": account,
        }
        assert ("create pods" in rights(doctor(cluster, settings, *asked))) == missing
