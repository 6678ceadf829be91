"""A job in Java and its twin in PySpark give the same journal, turn by turn, for the same load.

The job in Java is read through the agent, the one in PySpark in its process. They run side by side,
each with its own driver and executors, so the bytes of their journals differ: times, ids and
measured figures are those of two applications. The test compares everything else, in each of four
phases of load:

- in five turns in a row in which the executors are those that the load needs, one by one: the
  query with its properties, the offer, which readings are known, the hosts with their status, how
  many the policy planned, which guards changed that, the target, and what was requested or
  released;
- arrival rate and service time, in the mean over these turns, within `journals.FIGURES`.

The turns in between, in which executors start and leave, are not compared: what they see depends on
how long an executor takes to start, and on where in a batch a turn happens to be.

The policy is DS2. A row keeps a slot busy for some 12.5 ms, and slots are to be busy half of the
time. So 160 rows/s need more than one executor of three slots, and less than two as long as the
tasks themselves take less than a slot. 300 rows/s need more than two executors.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clusters.agent.journals import differing_figures, facts, seen_idle, settled
from tests.clusters.agent.standalone import (
    QUICK,
    environment,
    executors,
    group,
    shrinks_at_first,
    spark_words,
)
from tests.clusters.submitted import Submitted
from tidegate.lifecycle import wait_until
from tidegate.loop.journal import Turn
from tidegate.spark.local.cluster import LocalCluster

pytestmark = [pytest.mark.agent, pytest.mark.java]

HALF_BUSY = (
    *("--policy", "ds2", "--set", "utilisation=0.5", "--set", "boundary=0.05"),
    *("--set", "catch_up_s=0", "--without-guard", "effect", "--without-guard", "change-cost"),
)
PHASES = ((160.0, 2), (300.0, 3), (160.0, 2), (0.0, 1))
"""Rows a second, and the executors that they need."""
SLOTS = 3
SETTLED = 5
"""Turns that are compared one by one in each phase."""


def played(job: Submitted) -> list[list[Turn]]:
    """Play the phases; return the turns in which each of them has settled."""
    name = job.application
    job.until("it is seen without input", lambda: seen_idle(job.turns()))
    shrinks_at_first(job)
    job.until("the journal has it", lambda: (job.hosts(), job.hosts("draining")) == (1, 0))
    found = []
    for per_s, needed in PHASES:
        job.feed.per_s = per_s
        began = len(job.turns())

        def last(began: int = began) -> list[Turn]:
            return job.turns()[began:][-SETTLED:]

        def steady(per_s: float = per_s, needed: int = needed) -> bool:
            seen = [turn.snapshot for turn in last()]
            right = [one for one in seen if one is not None and settled(one, needed, per_s)]
            return len(right) == SETTLED

        job.until(f"{needed} executors for {per_s:g} rows/s", steady)
        found.append(last())
    assert job.end() == 0
    assert job.errors() == []
    assert group(job.process.pid) == []
    assert wait_until(lambda: not executors(name), 120), "its executors end"
    return found


def test_a_job_in_java_and_one_in_pyspark_give_the_same_journal(jar: Path, tmp_path: Path) -> None:
    for name in ("cluster", "java", "python"):
        (tmp_path / name).mkdir()
    most = max(needed for _, needed in PHASES)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor())  # waits for its threads after their jobs
        # Two workers with room for three executors each, so that neither job waits for the other.
        cluster = LocalCluster(most * SLOTS, most * 512, 2, tmp_path / "cluster").start(hosts=2)
        stack.enter_context(cluster)
        small = {"spark.executor.cores": str(SLOTS), "spark.executor.memory": "512m"}
        spark = spark_words(cluster, **small, **{"spark.cores.max": str(most * SLOTS)})
        words = [*QUICK, *HALF_BUSY, *spark]
        env = environment(cluster)
        in_java = Submitted(tmp_path / "java", words, env, ("--class", "Job", str(jar)))
        stack.enter_context(in_java)
        in_python = stack.enter_context(Submitted(tmp_path / "python", words, env))
        of_java, of_python = pool.map(played, (in_java, in_python))
    for phase, other_phase in zip(of_java, of_python, strict=True):
        for one, other in zip(phase, other_phase, strict=True):
            assert facts(one) == facts(other)
        assert differing_figures(phase, other_phase) == []
