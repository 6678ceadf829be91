"""``tidegate attach`` to a job in PySpark that already runs with the agent."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.clusters.agent.standalone import (
    BUSY_PER_S,
    BY_LOAD,
    HOSTS,
    QUICK,
    attach,
    executors,
    group,
    plain_job,
    shrinks_at_first,
)
from tidegate.lifecycle import wait_until
from tidegate.spark.local.cluster import LocalCluster

pytestmark = [pytest.mark.agent, pytest.mark.java]


def test_one_controller_after_the_other_scales_a_running_job(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with plain_job(cluster, tmp_path) as job:
        name, agent = job.application, tmp_path / "agent"
        assert (agent.stat().st_mode & 0o777) == 0o600, "it has the token"
        job.until("the cluster gives what it has", lambda: len(executors(name)) == HOSTS)
        with attach(agent, tmp_path, "first", *QUICK, *BY_LOAD) as first:
            shrinks_at_first(job)
            job.feed.per_s = BUSY_PER_S
            first.until("it grows", lambda: len(executors(name)) == HOSTS == job.hosts())
            before = set(executors(name))
            first.process.send_signal(signal.SIGTERM)
            assert first.process.wait(300) == 0
            assert first.says("detached; the executors stay as they are")
        kept = f"the total of executors stays at {HOSTS} until another controller comes"
        job.until("the agent says so", lambda: job.says(f"has left; {kept}"))
        seen = job.turns()
        job.feed.per_s = 0.0  # without a controller nobody acts on it
        with attach(agent, tmp_path, "next", *QUICK, *BY_LOAD) as following:
            following.until("the journal is continued", lambda: len(job.turns()) > len(seen))
            taken = job.turns()[len(seen)].snapshot
            assert taken is not None
            assert [host.status for host in taken.hosts] == ["running"] * HOSTS
            assert before == before | set(executors(name)), "no executor was replaced"
            following.until("it scales", lambda: len(executors(name)) == 1)
            assert job.turns()[: len(seen)] == seen
            assert job.end() == 0
            assert following.process.wait(300) == 0, "it ends with the application"
            assert following.says("the application has ended")
        assert job.errors() == []
        assert group(job.process.pid) == []
        assert wait_until(lambda: not executors(name), 120), "its executors end"
