"""A real embedded cluster with a session and a query, shared by the live tests of a module.

Import `live` and `stream` to have them as fixtures. One Spark context lives in a process: what is
active from other tests is ended first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.autoscaler import ticks
from tidegate.model import Plan, Snapshot
from tidegate.packing import Packing
from tidegate.packing.sizing import set_engines
from tidegate.policies.base import NoMemory, Policy, Style
from tidegate.spark import Autoscaler, LocalCluster
from tidegate.spark.agent import JAR, PLUGIN
from tidegate.spark.autoscaler.agent import AgentGateway, announced

LIMIT_S = 300.0
"""Nothing takes so long on an idle machine; it is there for one that is very busy."""

# A JVM that lives for a minute is through sooner when it does not optimise.
_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
LIGHT = {"spark.driver.extraJavaOptions": _OPTIONS}
# The JVM of the tests has the agent on its class path, see conftest.py; executors fetch it.
SECRETS = {"spark.x.password": "hidden", "spark.driver.x": "-Dpassword=hidden"}
WITH_AGENT = {"spark.plugins": PLUGIN, "spark.jars": str(JAR), **SECRETS}
CONF = {**LIGHT, "spark.executor.extraJavaOptions": _OPTIONS, "spark.sql.shuffle.partitions": "2"}


def until(what: str, true: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Wait until something is true, which it must become in time."""
    end_s = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end_s, f"not in {limit_s:g} s: {what}"
        time.sleep(0.1)


def end_other_sessions() -> None:
    """End a Spark context that other tests have left."""
    context = SparkContext._active_spark_context
    if context is not None:
        context.stop()


@dataclass
class Live:
    """A cluster of one host, and a session on it."""

    cluster: LocalCluster
    spark: SparkSession
    announced: Path

    def agent(self, **more: Any) -> AgentGateway:
        """A gateway to the agent of the driver, for a controller or only to watch."""
        return AgentGateway(*announced(self.announced), **more)

    def executor_pids(self, host: str) -> list[int]:
        """Processes of a host's executors: they are in the group that its worker leads."""
        worker = self.cluster.workers[host].pid
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    group = os.getpgid(int(entry.name))
                    command = (entry / "cmdline").read_bytes()
                except (OSError, ProcessLookupError):
                    continue  # it has just ended
                if group == worker and b"CoarseGrainedExecutorBackend" in command:
                    found.append(int(entry.name))
        return found


@dataclass
class Stream:
    """The query of `ticks`, fed file by file."""

    folder: Path
    query: StreamingQuery
    files: int = 0

    def feed(self, files: int) -> None:
        ticks.write_input(self.folder / "in", self.files, files)
        self.files += files

    def check(self) -> None:
        """Wait for all that was fed; the output must be that of a batch computation, exactly."""
        wanted = ticks.batch_result(self.folder / "in")
        until(
            "all values are written", lambda: len(ticks.written(self.folder / "out")) >= len(wanted)
        )
        assert ticks.written(self.folder / "out") == wanted
        assert self.query.isActive


@dataclass
class Order:
    """What the policy of a test is to do from now on."""

    hosts: int = 1
    error: str = ""


@dataclass(frozen=True)
class Obedient(Policy):
    """Wants what the test wants, or fails when it is told to."""

    name: ClassVar[str] = "obedient"
    paper: ClassVar[str] = "a test"
    style: ClassVar[Style] = "engines"
    needs: ClassVar[tuple[str, ...]] = ()

    order: Order = field(default_factory=Order)

    def decide(self, snapshot: Snapshot, memory: NoMemory) -> tuple[Plan, NoMemory]:
        if self.order.error:
            raise RuntimeError(self.order.error)
        packing = Packing(snapshot)
        set_engines(packing, self.order.hosts)
        packing.because("order", f"{self.order.hosts} hosts are wanted")
        return packing.plan(), memory


def running(autoscaler: Autoscaler) -> list[str]:
    """Hosts that ran in the last turn's snapshot."""
    turn = autoscaler.last
    return [] if turn is None or turn.snapshot is None else [
        host.id for host in turn.snapshot.running_hosts
    ]  # fmt: skip


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    end_other_sessions()
    announced = tmp_path_factory.mktemp("agent") / "address.json"
    settings = {"spark.tidegate.agent.announce": str(announced), **WITH_AGENT}
    with LocalCluster(cores=2, memory_mb=512, max_hosts=3).start(hosts=1) as cluster:
        spark = cluster.session(**CONF, **settings)
        spark.sparkContext.setLogLevel("ERROR")
        yield Live(cluster, spark, announced)
        end_other_sessions()


@pytest.fixture
def stream(live: Live, tmp_path: Path) -> Iterator[Stream]:
    (tmp_path / "in").mkdir()
    folders = (tmp_path / name for name in ("in", "out", "checkpoint"))
    made = Stream(tmp_path, ticks.start(live.spark, *folders))
    yield made
    made.query.stop()
