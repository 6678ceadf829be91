"""Slower cases on a real YARN than those of `test_yarn`: ``make test-yarn`` runs both."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.clusters.on_yarn import BUSY_PER_S, BY_LOAD, on_yarn, shrinks_and_ends
from tests.clusters.yarn import LocalYarn

pytestmark = [pytest.mark.java, pytest.mark.yarn]

SHORT = ("--conf", "spark.rpc.askTimeout=10s")
"""How long a turn waits for an application master that does not answer."""
ENOUGH = 5
"""More failed executors than end an application by default that starts with one."""


def test_nodes_fail_or_are_taken_away_and_executors_die(yarn: LocalYarn, tmp_path: Path) -> None:
    with on_yarn(yarn, tmp_path, "client", *BY_LOAD) as job:
        name = job.application
        job.feed.per_s = BUSY_PER_S
        job.until("one has to wait", lambda: job.hosts() == 3 and yarn.pending(name) == 1)
        before = set(yarn.executors(name))
        job.decide("ds2", max_parallelism=6)
        job.until("it waits no longer", lambda: yarn.pending(name) == 0)
        assert set(yarn.executors(name)) == before, "only the request is withdrawn"

        yarn.start_node()
        (master,) = yarn.masters(name).values()
        victim = next(node for node in yarn.executors(name).values() if node != master)
        yarn.kill_node(victim, containers=True)
        job.until(
            "after a machine has failed, all run elsewhere",
            lambda: job.hosts() == 3 and victim not in job.addresses(),
        )

        yarn.start_node()
        job.until("its node is there", lambda: len(yarn.nodes()) == 3)
        taken = next(node for node in yarn.executors(name).values() if node != master)
        yarn.take_away(taken)
        job.until(
            "after a node was taken away, all run elsewhere",
            lambda: job.hosts() == 3 and taken not in job.addresses(),
        )
        assert job.says("somebody else decommissions it")

        for _ in range(ENOUGH):
            pid = next(iter(yarn.executors(name)))
            os.kill(pid, signal.SIGKILL)
            job.until(
                "another one comes",
                lambda pid=pid: (
                    pid not in yarn.executors(name)  # type: ignore[misc]
                    and len(yarn.executors(name)) == 3
                ),
            )

        shrinks_and_ends(job, yarn)


def test_an_application_master_that_does_not_answer_is_asked_again(
    yarn: LocalYarn, tmp_path: Path
) -> None:
    with on_yarn(yarn, tmp_path, "client", *BY_LOAD, *SHORT) as job:
        name = job.application
        job.until("one executor", lambda: job.hosts() == 1)
        job.decide("ds2", max_parallelism=4)
        job.feed.per_s = BUSY_PER_S
        job.until("two executors", lambda: job.hosts() == 2)
        (pid,) = yarn.masters(name)
        os.kill(pid, signal.SIGSTOP)
        job.feed.per_s = 0.0
        job.until("nobody acknowledges", lambda: job.says("a total of 2 could not be requested"))
        assert len(yarn.executors(name)) == 2, "nothing is changed"
        os.kill(pid, signal.SIGCONT)
        shrinks_and_ends(job, yarn)


def test_a_driver_on_the_cluster_that_is_killed_is_scaled_again(
    yarn: LocalYarn, tmp_path: Path
) -> None:
    with on_yarn(yarn, tmp_path, "cluster") as job:
        name = job.application
        job.feed.per_s = BUSY_PER_S
        job.until("it grows with its load", lambda: job.hosts() >= 2)
        (driver,) = yarn.masters(name)
        turns = len(job.turns())
        (tmp_path / "application").unlink()
        os.kill(driver, signal.SIGKILL)
        assert job.application == name, "YARN starts the driver again"
        assert driver not in yarn.masters(name)
        job.until("and it grows again", lambda: len(job.turns()) > turns and job.hosts() >= 2)
        shrinks_and_ends(job, yarn)
