"""Jobs and controllers on the embedded standalone cluster, and their processes."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tests.clusters.submitted import TIDEGATE, Command, Submitted
from tidegate.loop.journal import Turn
from tidegate.spark.agent import PLUGIN, agent_jar
from tidegate.spark.local.cluster import LocalCluster
from tidegate.spark.local.processes import spark_home

HOSTS, SLOTS = 3, 2
FEW_PER_S = 20.0
"""Rows a second from which the time that a row takes is known."""
BUSY_PER_S = 200.0
"""Rows a second that keep more than two slots busy."""
QUICK = ("--slo", "5s", "--interval", "2s", "--stabilise", "5s", "--max-executors", str(HOSTS))
_AT_ONCE = ("--without-guard", "effect", "--without-guard", "change-cost")
BY_LOAD = ("--policy", "ds2", "--set", "utilisation=0.25", "--set", "boundary=0.05", *_AT_ONCE)
"""A policy whose decision is known: the largest number of executors when busy, one when idle."""


def compiled(folder: Path) -> Path:
    """The jar of Job.java, compiled against the jars of PySpark."""
    source = Path(__file__).with_name("Job.java")
    classes = folder / "classes"
    command = ["javac", "--release", "17", "-Xlint:all,-path", "-cp", f"{spark_home()}/jars/*"]
    subprocess.run([*command, "-d", str(classes), str(source)], check=True)
    jar = folder / "job.jar"
    with zipfile.ZipFile(jar, "w") as file:
        for one in classes.rglob("*.class"):
            file.write(one, one.relative_to(classes))
    return jar


class OpenCluster(LocalCluster):
    """One without authentication: Spark's cluster mode on a standalone master fails with it.

    Workers take the secret out of the settings of a driver, which does not start without it.
    """

    daemon_settings: ClassVar[Mapping[str, str]] = {
        key: value
        for key, value in LocalCluster.daemon_settings.items()
        if not key.startswith("spark.authenticate")
    }

    def conf(self) -> dict[str, str]:
        """The settings of an application."""
        every = super().conf()
        return {k: v for k, v in every.items() if not k.startswith("spark.authenticate")}


def environment(cluster: LocalCluster | None = None) -> dict[str, str]:
    """The environment of this process, for one that imports the same Tidegate.

    cluster: where its application runs, if it is one.
    """
    path = os.pathsep.join(word for word in sys.path if word)
    return {**os.environ, "PYTHONPATH": path, **(cluster.environment() if cluster else {})}


def spark_words(cluster: LocalCluster, **settings: str) -> list[str]:
    """Options of spark-submit for a cluster. settings: more of them, with underscores for dots."""
    more = {key.replace("_", "."): value for key, value in settings.items()}
    pairs = (cluster.conf() | {"spark.driver.memory": "512m"} | more).items()
    confs = [word for key, value in pairs for word in ("--conf", f"{key}={value}")]
    return ["--master", cluster.url, *confs]


def with_agent(cluster: LocalCluster, announce: Path, **settings: str) -> list[str]:
    """The same with the agent. announce: the file in which it announces itself."""
    agent = {"spark.tidegate.agent.announce": str(announce), "spark.plugins": PLUGIN}
    return spark_words(cluster, **agent, **{"spark.jars": str(agent_jar())}, **settings)


def plain_job(cluster: LocalCluster, folder: Path) -> Submitted:
    """The job in PySpark, started by spark-submit with the agent and without a controller."""
    program = [str(spark_home() / "bin" / "spark-submit")]
    words = with_agent(cluster, folder / "agent")
    return Submitted(folder, words, environment(cluster), program=program)


def attach(agent: Path, folder: Path, name: str, *words: str) -> Command:
    """A controller. agent: the file in which the agent announced itself. name: of its log."""
    journal = ("--journal", str(folder / "tidegate.jsonl"))
    command = [sys.executable, "-c", TIDEGATE, "attach", *journal, *words, str(agent)]
    return Command(command, folder, name, environment())


def measured(turns: Sequence[Turn]) -> dict[str, float]:
    """Seconds that a row takes by query, in the last turn, where they are known."""
    snapshot = turns[-1].snapshot if turns else None
    readings = snapshot.operators if snapshot is not None else ()
    return {one.operator: one.service_time_s for one in readings if one.service_time_s is not None}


def shrinks_at_first(job: Submitted) -> None:
    """Rows that are measured, then none: of the executors that the cluster gives, one is left."""
    name = job.application
    job.feed.per_s = FEW_PER_S
    job.until("its rows are measured", lambda: measured(job.turns()))
    job.feed.per_s = 0.0
    job.until("without load one is left", lambda: len(executors(name)) == 1)


def executors(application: str) -> list[int]:
    """The executor processes of an application on this machine."""
    return [
        pid
        for pid, words in _commands().items()
        if application in words and any("ExecutorBackend" in word for word in words)
    ]


def drivers(jar: Path) -> list[int]:
    """The drivers that workers run for a jar."""
    return [
        pid
        for pid, words in _commands().items()
        if str(jar) in " ".join(words) and any("DriverWrapper" in word for word in words)
    ]


def controllers(driver: int) -> list[int]:
    """The processes of a controller that a driver has started."""
    return [
        pid for pid, words in _commands().items() if "attach" in words and parent(pid) == driver
    ]


def group(leader: int) -> list[int]:
    """The processes that a command has started and that still run, with itself."""
    return [pid for pid in _commands() if _group(pid) == leader]


def parent(pid: int) -> int:
    """The parent of a process, 0 when it is gone."""
    try:
        return int(
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1]
        )
    except (OSError, ValueError):
        return 0


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _commands() -> dict[int, list[str]]:
    """The words of all commands that run on this machine, without those that have ended."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                text = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if text:  # an ended process that nobody has waited for has none
                found[int(entry.name)] = text.rstrip("\0").split("\0")
    return found
