"""``tidegate submit`` on a real YARN: grow, shrink, a full queue, and daemons that are killed.

One application goes through all of it. Its cluster has two nodes with room for two containers each,
so that three executors run beside the application master, and a fourth has to wait.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.clusters.on_yarn import BUSY_PER_S, BY_LOAD, on_yarn, shrinks_and_ends
from tests.clusters.yarn import LocalYarn

pytestmark = pytest.mark.java


def test_an_application_in_client_mode_survives_all_of_it(yarn: LocalYarn, tmp_path: Path) -> None:
    with on_yarn(yarn, tmp_path, "client", *BY_LOAD) as job:
        name = job.application
        assert job.hosts() <= 1
        job.feed.per_s = BUSY_PER_S
        job.until("it grows with its load", lambda: job.hosts() >= 2)
        job.until(
            "three executors run and YARN has no room for the fourth",
            lambda: len(yarn.executors(name)) == 3 and yarn.pending(name) == 1,
        )
        job.until("the log says why", lambda: job.says("YARN has not started 1 of the 4"))
        job.until("the journal does", lambda: "the queue default may be full" in job.notes())
        assert yarn.pending(name) == 1, "the request stays"
        yarn.start_node()
        job.until("there is room, and it comes", lambda: job.hosts() == 4)
        assert job.says("no requested executor is missing any more")
        assert yarn.pending(name) == 0

        (master,) = yarn.masters(name).values()
        victim = next(node for node in yarn.executors(name).values() if node != master)
        lost = {pid for pid, node in yarn.executors(name).items() if node == victim}
        yarn.kill_node(victim)
        job.until(
            "executors of the killed NodeManager are gone and the others are still there",
            lambda: len(yarn.executors(name)) == 3 and not lost & set(yarn.executors(name)),
        )
        assert victim not in yarn.executors(name).values()
        job.until(
            "as many are requested as before",
            lambda: job.hosts() + job.hosts("starting") == 4 and yarn.pending(name) == 1,
        )
        yarn.start_node()
        job.until("all are replaced", lambda: job.hosts() == 4)

        (pid,), before = yarn.masters(name), set(yarn.executors(name))
        os.kill(pid, signal.SIGKILL)
        job.until(
            "YARN has started another application master, and its executors are new",
            lambda: (
                yarn.masters(name).keys() not in ({pid}, set())
                and not before & set(yarn.executors(name))
            ),
        )
        # By itself, the new one starts as many as --num-executors says.
        job.until("the total is asserted again", lambda: len(yarn.executors(name)) == 4)
        job.until("and they work", lambda: job.hosts() == 4)

        shrinks_and_ends(job, yarn)


def test_an_application_in_cluster_mode_is_scaled_by_a_controller_beside_its_driver(
    yarn: LocalYarn, tmp_path: Path
) -> None:
    with on_yarn(yarn, tmp_path, "cluster") as job:
        name = job.application
        job.feed.per_s = BUSY_PER_S
        job.until("it grows with its load", lambda: job.hosts() >= 2)
        assert job.hosts() <= len(yarn.executors(name))
        shrinks_and_ends(job, yarn)
