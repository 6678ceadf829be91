"""Drivers in pods: `tidegate submit` in cluster mode, and the files of deploy/kubernetes.

These files run as they are, except that a pod is a process here and the image is this machine.
"""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clusters.kubernetes import job as ticks_job
from tests.clusters.kubernetes import load
from tests.clusters.kubernetes.cluster import (
    DEPLOY,
    NAMESPACE,
    KubernetesCluster,
    documents,
    role,
)
from tests.clusters.kubernetes.submitted import LIMIT_S, SETTINGS, Submitted
from tests.clusters.kubernetes.test_manifests import SECRET
from tidegate.loop.journal import read_journal
from tidegate.spark.agent import agent_jar

pytestmark = [pytest.mark.kubernetes, pytest.mark.java]

OBEY = ["--slo", "5s", "--policy", "static", "--set", "hosts=1", "--interval", "2s"]
OBEY += ["--without-guard", "all", "--deploy-mode", "cluster"]


@pytest.fixture
def job(cluster: KubernetesCluster, tmp_path: Path) -> Iterator[Submitted]:
    options = [*OBEY, "--agent-jar", f"local://{agent_jar()}", "--controller-python"]
    settings = SETTINGS | cluster.conf_in_cluster()
    app = f"local://{ticks_job.__file__}"
    with Submitted(cluster, tmp_path / "job", app, [*options, sys.executable], settings) as made:
        yield made


def driver_of(cluster: KubernetesCluster) -> dict[str, Any]:
    (driver,) = cluster.pods("driver")
    return driver


def controllers(journal: Path) -> list[int]:
    """Processes of controllers with a journal."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                if b"attach" in words.split(b"\0") and str(journal).encode() in words:
                    found.append(int(entry.name))
    return found


def test_a_driver_on_the_cluster_brings_its_controller(
    job: Submitted, cluster: KubernetesCluster
) -> None:
    job.works()
    job.has(1)
    cluster.node.executors = 2
    job.want(3)
    job.until("the journal names the pod", lambda: job.says("is pending: 0/1 nodes are available"))
    cluster.node.executors = None
    job.has(3)
    job.works()
    cluster.apply(role(without="create"))
    job.want(4)
    job.until("a right is missed", lambda: job.says("give its role the verb create on pods"))
    cluster.apply(role())
    job.has(4)
    (first,) = controllers(job.journal)
    os.kill(first, signal.SIGKILL)
    job.works()
    job.until("another controller", lambda: controllers(job.journal) not in ([], [first]))
    turns = len(job.turns)
    job.until("it has control", lambda: len(job.turns) > turns)
    job.want(2)
    job.has(2)
    job.works()
    assert job.end() == 0
    assert driver_of(cluster)["status"]["phase"] == "Succeeded"
    job.after_the_end("no executor is left", lambda: not cluster.pods())
    job.after_the_end("no controller is left", lambda: not controllers(job.journal))


# --- the files of deploy/kubernetes -----------------------------------------------------------


def metrics(cluster: KubernetesCluster, token: str) -> str:
    """The metrics of the driver's pod, asked with a token."""
    url = f"http://{driver_of(cluster)['status']['podIP']}:9464/metrics"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return str(answer.read().decode())


def until(what: str, true: Callable[[], object]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end_s, f"not in {LIMIT_S:g} s: {what}"
        time.sleep(0.2)


def running(journal: Path) -> int:
    """Executors that ran in the last turn of a journal."""
    turns = list(read_journal(journal)) if journal.exists() else []
    seen = turns[-1].snapshot if turns else None
    return 0 if seen is None else len(seen.running_hosts)


def journal_of(cluster: KubernetesCluster) -> Path:
    """The journal of the sidecar."""
    name = driver_of(cluster)["metadata"]["name"]
    return cluster.node.volume(name, "journal") / "tidegate.jsonl"


def follows(cluster: KubernetesCluster, folder: Path) -> None:
    """The executors of a job of `load` grow and shrink, and its metrics need the token."""
    journal = journal_of(cluster)
    until("it grows", lambda: running(journal) >= 2)
    assert "tidegate_executors_running" in metrics(cluster, SECRET["stringData"]["metrics"])
    with pytest.raises(urllib.error.HTTPError, match="401"):
        metrics(cluster, "another")
    (folder / "calm").touch()
    until("it shrinks", lambda: running(journal) == 1)
    assert driver_of(cluster)["status"]["phase"] == "Running"
    (folder / "stop").touch()
    until("it ends", lambda: driver_of(cluster)["status"]["phase"] == "Succeeded")
    until("no executor is left", lambda: not cluster.pods(phase="Running"))


@pytest.fixture
def empty(cluster: KubernetesCluster) -> Iterator[KubernetesCluster]:
    """The cluster with the secret of the files, room for four executors, and no driver."""

    def remove() -> None:
        for pod in (*cluster.pods("driver"), *cluster.pods()):
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
            cluster.admin.delete(path, {"gracePeriodSeconds": 0})
        until("the pods are gone", lambda: not cluster.node.pods)

    remove()
    cluster.apply(copy.deepcopy(SECRET))
    cluster.node.executors = 4
    yield cluster
    cluster.node.executors = None
    remove()


def test_the_driver_pod_of_the_repository_runs_with_its_sidecar(
    empty: KubernetesCluster, tmp_path: Path
) -> None:
    """Its image and its application are replaced, and the machine's memory is respected."""
    (pod,) = documents(DEPLOY / "driver.yaml")
    (driver,) = pod["spec"]["containers"]
    assert driver["args"].pop() == "/opt/app/app.py"
    driver["args"] += [f"--conf={key}={value}" for key, value in SETTINGS.items()]
    driver["args"] += [load.__file__, str(tmp_path)]
    empty.apply(pod)
    until("the driver runs", lambda: empty.pods("driver", phase="Running"))
    until("there are turns", lambda: running(journal_of(empty)) >= 1)
    turns = len(list(read_journal(journal_of(empty))))
    empty.node.kill("job-driver", "driver")
    until("it is started again", lambda: restarts(driver_of(empty)) == 1)
    until("turns go on", lambda: len(list(read_journal(journal_of(empty)))) > turns + 3)
    follows(empty, tmp_path)


def restarts(pod: dict[str, Any]) -> int:
    """How often the driver of a pod was started again."""
    (status,) = pod["status"]["containerStatuses"]
    return int(status["restartCount"])


def test_the_template_of_the_repository_runs_in_cluster_mode(
    empty: KubernetesCluster, tmp_path: Path
) -> None:
    agent = {
        "spark.kubernetes.driver.podTemplateFile": str(DEPLOY / "driver-template.yaml"),
        "spark.kubernetes.driver.podTemplateContainerName": "driver",
        "spark.dynamicAllocation.enabled": "false",
        "spark.decommission.enabled": "true",
        "spark.plugins": "io.tidegate.spark.TidegatePlugin",
        "spark.tidegate.agent.port": "8271",
        "spark.tidegate.agent.token.file": "/etc/tidegate/agent",
    }
    settings = SETTINGS | empty.conf_in_cluster() | agent
    app = f"local://{load.__file__}"
    with Submitted(empty, tmp_path / "job", app, [], settings).by_spark_submit() as job:
        job.until("there is a driver", lambda: empty.pods("driver", phase="Running"))
        follows(empty, job.folder)
