"""A job in Java and its twin in PySpark give the same journal, turn by turn, for the same load.

The job in Java is read through the agent, the one in PySpark in its process. They run side by side,
each with its own driver and executors, so the bytes of their journals differ: times, ids and
measured figures are those of two applications. The test compares everything else, in each of four
phases of load:

- of the turns in which the executors are those that the load needs, five in a row, one by one: the
  queries, the offer, which readings are known, hosts with their status, slots, what the policy
  planned, which guards changed it, the target and the steps; arrival rate, throughput and service
  time within the tolerance of `journals.FIGURES`;
- of the turns before them, in which executors start and leave: the decided targets in their order.
  How many turns an executor takes to start is a matter of the machine, so repetitions do not count.

The policy is DS2. A row keeps a slot busy for some 12.5 ms and slots are to be busy for a quarter
of the time, so 30 rows/s need 1.5 executors of one slot and 50 rows/s need 2.5.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clusters.agent.journals import differing_figures, facts, settled, targets
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

QUARTER_BUSY = (
    *("--policy", "ds2", "--set", "utilisation=0.25", "--set", "boundary=0.05"),
    *("--set", "catch_up_s=0", "--without-guard", "effect", "--without-guard", "change-cost"),
)
PHASES = ((30.0, 2), (50.0, 3), (30.0, 2), (0.0, 1))
"""Rows a second, and the executors that they need."""
SETTLED = 5
"""Turns that are compared one by one in each phase."""


def played(job: Submitted) -> list[tuple[list[Turn], list[Turn]]]:
    """Play the phases; return the turns of each before and after it has settled."""
    name = job.application
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
        turns = job.turns()[began:]
        found.append((turns[:-SETTLED], turns[-SETTLED:]))
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
        # Two workers with room for three executors each, so that neither job waits for the other.
        cluster = LocalCluster(most, most * 512, 2, tmp_path / "cluster").start(hosts=2)
        stack.enter_context(cluster)
        one_slot = {"spark.executor.cores": "1", "spark.executor.memory": "512m"}
        spark = spark_words(cluster, **one_slot, **{"spark.cores.max": str(most)})
        words = [*QUICK, *QUARTER_BUSY, *spark]
        in_java = Submitted(tmp_path / "java", words, environment(), ("--class", "Job", str(jar)))
        stack.enter_context(in_java)
        in_python = stack.enter_context(Submitted(tmp_path / "python", words, environment()))
        with ThreadPoolExecutor() as pool:
            of_java, of_python = pool.map(played, (in_java, in_python))
    for (before, after), (other_before, other_after) in zip(of_java, of_python, strict=True):
        assert targets([*before, *after]) == targets([*other_before, *other_after])
        for one, other in zip(after, other_after, strict=True):
            assert facts(one) == facts(other)
            assert differing_figures(one, other) == []
