"""``tidegate submit`` of a jar: it is scaled, its controller may die, and nothing is left of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.clusters.agent.standalone import (
    BUSY_PER_S,
    BY_LOAD,
    HOSTS,
    QUICK,
    attach,
    controllers,
    environment,
    executors,
    group,
    shrinks_at_first,
    spark_words,
)
from tests.clusters.submitted import Submitted
from tidegate.lifecycle import wait_until
from tidegate.spark.local.cluster import LocalCluster

pytestmark = [pytest.mark.agent, pytest.mark.java]


def submitted(cluster: LocalCluster, jar: Path, folder: Path) -> Submitted:
    """The job in Java, with an agent that announces itself in the file named agent."""
    words = spark_words(cluster, spark_tidegate_agent_announce=str(folder / "agent"))
    app = ("--class", "Job", str(jar))
    return Submitted(folder, [*QUICK, *BY_LOAD, *words], environment(cluster), app)


def test_a_jar_is_scaled_with_its_load_and_its_controller_may_die(
    cluster: LocalCluster, jar: Path, tmp_path: Path
) -> None:
    with submitted(cluster, jar, tmp_path) as job:
        name = job.application
        shrinks_at_first(job)
        job.feed.per_s = BUSY_PER_S
        job.until("it grows with its load", lambda: len(executors(name)) == HOSTS)
        job.until("the journal has them", lambda: job.hosts() == HOSTS)

        with attach(tmp_path / "agent", tmp_path, "second", *QUICK) as second:
            assert second.process.wait(300) != 0
        (line,) = second.output().splitlines()
        assert "the application is already controlled by" in line

        (old,) = controllers(job.process.pid)
        os.kill(old, signal.SIGKILL)
        job.until("the agent says so", lambda: job.says("The controller has ended with code 137"))
        job.until("it starts another", lambda: controllers(job.process.pid) not in ([old], []))
        before = job.turns()
        kept = f"the total of executors stays at {HOSTS} until another controller comes"
        job.until("it keeps the total", lambda: job.says(kept))
        assert len(executors(name)) == HOSTS
        job.until("the journal is continued", lambda: len(job.turns()) > len(before))
        job.feed.per_s = 0.0
        job.until("scaling goes on", lambda: len(executors(name)) == 1)
        job.until("the journal has it", lambda: (job.hosts(), job.hosts("draining")) == (1, 0))
        assert job.turns()[: len(before)] == before
        assert job.end() == 0
        assert group(job.process.pid) == []
        assert job.errors() == []
        assert wait_until(lambda: not executors(name), 120), "its executors end"


def test_a_driver_that_is_killed_leaves_no_controller(
    cluster: LocalCluster, jar: Path, tmp_path: Path
) -> None:
    with submitted(cluster, jar, tmp_path) as job:
        name = job.application
        job.until("the controller works", job.turns)
        assert controllers(job.process.pid)
        os.kill(job.process.pid, signal.SIGKILL)
        job.process.wait()
        assert wait_until(lambda: not group(job.process.pid), 120), "the controller ends"
        assert wait_until(lambda: not executors(name), 120), "its executors end"
        assert job.says("the application has ended")
