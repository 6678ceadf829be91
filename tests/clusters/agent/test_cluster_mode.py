"""``tidegate submit --deploy-mode cluster`` of a jar: driver and controller run on a worker."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.clusters.agent.standalone import (
    BUSY_PER_S,
    BY_LOAD,
    HOSTS,
    QUICK,
    OpenCluster,
    controllers,
    drivers,
    environment,
    executors,
    parent,
    shrinks_at_first,
    spark_words,
)
from tests.clusters.submitted import Submitted
from tidegate.lifecycle import wait_until
from tidegate.spark.agent import JAR

pytestmark = [pytest.mark.agent, pytest.mark.java]


def test_a_jar_on_a_worker_is_scaled_by_a_controller_beside_it(
    open_cluster: OpenCluster, jar: Path, tmp_path: Path
) -> None:
    cluster = open_cluster
    waits = {"spark.standalone.submit.waitAppCompletion": "true"}
    words = [*spark_words(cluster, **waits), "--deploy-mode", "cluster", "--driver-cores", "1"]
    words += ["--controller-python", sys.executable, "--agent-jar", str(JAR)]
    app = ("--class", "Job", str(jar))
    with Submitted(tmp_path, [*QUICK, *BY_LOAD, *words], environment(), app) as job:
        name = job.application
        (driver,) = drivers(jar)
        assert parent(driver) in {worker.pid for worker in cluster.workers.values()}
        shrinks_at_first(job)
        (controller,) = controllers(driver)
        job.feed.per_s = BUSY_PER_S
        # The driver takes the room of one executor.
        job.until("it grows with its load", lambda: len(executors(name)) == HOSTS - 1)
        job.until("the journal has them", lambda: job.hosts() == HOSTS - 1)
        job.feed.per_s = 0.0
        job.until("it shrinks", lambda: len(executors(name)) == 1)
        assert controllers(driver) == [controller]
        assert job.end() == 0
        assert job.errors() == []
        assert wait_until(lambda: not controllers(driver) and not drivers(jar), 120)
        assert wait_until(lambda: not executors(name), 120), "its executors end"
