"""The embedded cluster: a real standalone master, and workers that are leased hosts.

Everything is a process on loopback, started from the installed `pyspark` package. A worker carries
one executor; leasing a host starts a worker, giving it back stops it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tidegate.lifecycle import Service
from tidegate.spark.local.processes import (
    LOOPBACK,
    Process,
    check_host_limit,
    check_memory,
    spark_environment,
    spark_home,
)
from tidegate.units import finite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LocalCluster"]

START_S = 120.0


class LocalCluster(Service):
    """A master and so many workers, as processes on this machine.

    cores: task slots of a host. They may be more than the machine has cores when the work is
    mostly waiting (for a service that enriches each row, say).
    memory_mb: heap of its executor, at least 450.
    max_hosts: more are refused; None: as many as the machine's memory carries.
    folder: for logs and scratch files; None: a temporary one, removed in the end.

    A host is started by `lease` and ended by `give_back`; leaving the ``with`` block ends them all.
    """

    def __init__(
        self,
        cores: int = 2,
        memory_mb: int = 512,
        max_hosts: int | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        finite(cores, "cores", low=1)
        finite(memory_mb, "memory_mb", low=450, remedy="Spark's executors refuse to run with less")
        self.cores = cores
        self.memory_mb = memory_mb
        self.max_hosts = max_hosts
        self._own_folder = folder is None
        self.folder = Path(folder or tempfile.mkdtemp(prefix="tidegate-"))
        self.workers: dict[str, Process] = {}
        self._master: Process | None = None
        self.url = ""

    def start(self, hosts: int = 0) -> Self:
        """Start the master, and so many hosts at once, named host-1 and on."""
        if self._master is not None:
            return self
        self._master = self._launch("master", "master.Master", "--port", "0")
        try:
            port = self._master.wait_for(r"'sparkMaster' on port (\d+)", START_S).group(1)
            self.url = f"spark://{LOOPBACK}:{port}"
            for number in range(1, hosts + 1):
                self.lease(f"host-{number}")
            for name in list(self.workers):
                self.wait_for_host(name)
        except BaseException:
            self.stop()
            raise
        return self

    def lease(self, name: str) -> None:
        """Start a host; returns before it is up. BackendError when the machine has no room."""
        if name in self.workers:
            return
        check_host_limit(name, len(self.workers), self.max_hosts)
        check_memory(name, self.memory_mb)
        self.workers[name] = self._launch(
            name,
            "worker.Worker",
            *("--port", "0", "--cores", str(self.cores), "--memory", f"{self.memory_mb}m"),
            *("--work-dir", str(self.folder / "work" / name), self.url),
        )

    def wait_for_host(self, name: str, timeout_s: float = START_S) -> None:
        """Wait until a host has registered with the master."""
        self.workers[name].wait_for("Successfully registered with master", timeout_s)

    def drain(self, name: str) -> None:
        """Have a host take no new work and end when its running tasks have; returns at once."""
        worker = self.workers.get(name)
        if worker is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGPWR)  # Spark's word for "leave in good order"

    def give_back(self, name: str) -> None:
        """End a host; drain it first if anything on it matters."""
        worker = self.workers.pop(name, None)
        if worker is not None:
            worker.stop()
            shutil.rmtree(self.folder / "work" / name, ignore_errors=True)

    def lost(self) -> list[str]:
        """Hosts whose worker has ended without being asked; they are hosts no more."""
        gone = [name for name, worker in self.workers.items() if not worker.running]
        for name in gone:
            self.give_back(name)
        return gone

    def executors_on(self, name: str, application: str) -> list[str]:
        """Ids of the executors that a host has run for an application, the youngest last.

        A worker makes a folder for each, which is the one place where the two names meet: on
        loopback all executors have the same address.
        """
        folders = (self.folder / "work" / name / application).glob("*")
        return [str(n) for n in sorted(int(f.name) for f in folders if f.name.isdecimal())]

    def session(self, app_name: str = "tidegate", **settings: Any) -> SparkSession:
        """A Spark session on this cluster, with executors that fill a host each.

        settings: Spark settings, with underscores for dots or in a dictionary as ``**{...}``.
        """
        from pyspark.sql import SparkSession

        # The setting of the same name is heard by spark-submit alone.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName(app_name).master(self.url)
        for key, value in (self.conf() | settings).items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    def conf(self) -> dict[str, str]:
        """The Spark settings that an application on this cluster needs."""
        return {
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.cores": str(self.cores),
            "spark.executor.memory": f"{self.memory_mb}m",
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
            "spark.pyspark.python": sys.executable,  # the one that has what the driver has
            "spark.decommission.enabled": "true",
            # What an executor has cached is of no use after its batch, and to move it takes 30 s.
            "spark.storage.decommission.enabled": "false",
            # A host that comes or goes is the normal case here, no reason to give up a job.
            "spark.task.maxFailures": "8",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.streaming.metricsEnabled": "false",
        }

    def stop(self) -> None:
        """End all hosts, then the master; safe to call twice."""
        for worker in self.workers.values():
            worker.kill()
        self.workers.clear()
        if self._master is not None:
            self._master.kill()
            self._master = None
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _launch(self, name: str, what: str, *arguments: str) -> Process:
        command = [
            str(spark_home() / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{what}",
            *("--host", LOOPBACK, "--webui-port", "0"),
            *arguments,
        ]
        env = spark_environment(
            self.folder,
            SPARK_DAEMON_MEMORY="256m",
            SPARK_DAEMON_JAVA_OPTS="-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            SPARK_WORKER_OPTS="-Dspark.decommission.enabled=true",
        )
        env.pop("SPARK_MASTER_HOST", None)
        log = self.folder / "logs" / f"{name}-{time.monotonic_ns()}.log"
        return Process(command, log, env)
