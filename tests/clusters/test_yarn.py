"""``tidegate submit`` on a real YARN: grow, shrink, a full queue, and daemons that are killed.

The cluster has two nodes with room for two containers each, so that three executors run beside the
application master, and a fourth has to wait.
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
        job.until("one executor", lambda: job.hosts() == 1)
        job.feed.per_s = BUSY_PER_S

        def three_and_one_waits() -> bool:
            return len(yarn.executors(name)) == 3 and yarn.pending(name) == 1

        job.until("it grows with its load until the queue is full", three_and_one_waits)

        (master,), first = yarn.masters(name), set(yarn.executors(name))
        os.kill(master, signal.SIGKILL)
        # By itself, the next application master starts as many as --num-executors says.
        job.until(
            "the total is asserted again",
            lambda: not first & set(yarn.executors(name)) and three_and_one_waits(),
        )
        assert yarn.masters(name).keys() not in ({master}, set())

        (home,) = yarn.masters(name).values()
        victim = next(node for node in yarn.executors(name).values() if node != home)
        lost = {pid for pid, node in yarn.executors(name).items() if node == victim}
        yarn.kill_node(victim)
        job.until(
            "the executors of the killed NodeManager are lost",
            lambda: not lost & set(yarn.executors(name)),
        )
        job.until("the log says that some wait", lambda: job.says("YARN has not started"))
        job.until("the journal does", lambda: "the queue default may be full" in job.notes())
        job.until(
            "none of the requests is forgotten",
            lambda: job.hosts() + job.hosts("starting") == 4 and yarn.pending(name) > 0,
        )
        spare = yarn.start_node()
        job.until(
            "there is room, and they come",
            lambda: job.hosts() == 3 and three_and_one_waits(),
        )
        assert set(yarn.executors(name).values()) == {home, spare}

        shrinks_and_ends(job, yarn)


def test_an_application_in_cluster_mode_is_scaled_by_a_controller_beside_its_driver(
    yarn: LocalYarn, tmp_path: Path
) -> None:
    with on_yarn(yarn, tmp_path, "cluster", *BY_LOAD) as job:
        name = job.application
        job.feed.per_s = BUSY_PER_S
        job.until("it grows with its load", lambda: job.hosts() >= 2)
        assert job.hosts() <= len(yarn.executors(name))
        shrinks_and_ends(job, yarn)
