"""The embedded cluster: a standalone master with workers as hosts, as processes on loopback.

All processes start from the installed `pyspark` package. A worker carries one executor. Leasing a
host starts a worker, and returning it stops the worker.

Every user of a machine can connect to loopback, so its processes authenticate each other with a
secret. It goes by environment only, because a command line is visible to all.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

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
SECRET = "spark.authenticate.secret"
SECRET_VARIABLE = "_SPARK_AUTH_SECRET"
"""Spark's variable for the secret. It precedes the setting, which a driver needs all the same."""


class LocalCluster(Service):
    """A master and workers, as processes on this machine.

    `lease` starts a host and `give_back` stops it; the end of a ``with`` block stops all of them.
    Only applications with its secret can use it: those of `session`, and others with `conf` and
    `environment`.

    cores: task slots of a host; more than the machine's cores are useful for work that mostly
        waits, such as calls of a service.
    memory_mb: heap of an executor in MB, at least 450.
    max_hosts: limit on the number of hosts; None: as many as fit into the machine's memory.
    folder: for logs and scratch files; None: a temporary folder, removed at the end.
    """

    daemon_settings: ClassVar[Mapping[str, str]] = {
        "spark.authenticate": "true",
        # It runs what anybody sends to it, pages of other sites included, without authentication.
        "spark.master.rest.enabled": "false",
        # Their own pages have no authentication: they may show, and change nothing.
        "spark.ui.killEnabled": "false",
        "spark.master.ui.decommission.allow.mode": "DENY",
    }
    """Spark settings of the master and the workers."""

    def __init__(
        self,
        cores: int = 2,
        memory_mb: int = 512,
        max_hosts: int | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        finite(cores, "cores", low=1)
        finite(memory_mb, "memory_mb", low=450, remedy="Spark's executors do not start with less")
        self.cores = cores
        self.memory_mb = memory_mb
        self.max_hosts = max_hosts
        self._own_folder = folder is None
        self.folder = Path(folder or tempfile.mkdtemp(prefix="tidegate-"))
        self.workers: dict[str, Process] = {}
        self._master: Process | None = None
        self._secret = os.environ.get(SECRET_VARIABLE) or secrets.token_hex(32)
        self.url = ""

    def start(self, hosts: int = 0) -> Self:
        """Start the master and a number of hosts, named host-1, host-2 and so on."""
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
        """Start a host without waiting for it; BackendError when the machine has no room."""
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
        """Let a host take no new tasks and stop when its running tasks have ended; do not wait."""
        worker = self.workers.get(name)
        if worker is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGPWR)  # Spark's signal to decommission a worker

    def give_back(self, name: str) -> None:
        """Stop a host; drain it first unless its tasks may be lost."""
        worker = self.workers.pop(name, None)
        if worker is not None:
            worker.stop()
            shutil.rmtree(self.folder / "work" / name, ignore_errors=True)

    def lost(self) -> list[str]:
        """Remove hosts whose worker has died, and return their names."""
        gone = [name for name, worker in self.workers.items() if not worker.running]
        for name in gone:
            self.give_back(name)
        return gone

    def executors_on(self, name: str, application: str) -> list[str]:
        """Ids of the executors that a host has run for an application, the newest last.

        They are known from the folders that a worker creates, because on loopback all executors
        have the same address.
        """
        folders = (self.folder / "work" / name / application).glob("*")
        return [str(n) for n in sorted(int(f.name) for f in folders if f.name.isdecimal())]

    def session(self, app_name: str = "tidegate", **settings: Any) -> SparkSession:
        """A Spark session on this cluster, with one executor for each host.

        settings: Spark settings, with underscores for dots or in a dictionary as ``**{...}``.
        """
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        # Only spark-submit reads the setting of the same name.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        every = self.conf() | settings
        shown = {key: str(v).lower() if isinstance(v, bool) else str(v) for key, v in every.items()}
        shown |= {"spark.master": self.url, "spark.app.name": app_name}
        # PySpark puts settings on the command line of the JVM, so it starts without the secret.
        start = SparkConf(loadDefaults=False).setAll(list(shown.items()))
        SparkContext._ensure_initialized(conf=start)
        builder = SparkSession.builder.appName(app_name).master(self.url)
        for key, value in (every | {SECRET: self._secret}).items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    def environment(self) -> dict[str, str]:
        """What the environment of an application in another process needs, next to `conf`."""
        return {SECRET_VARIABLE: self._secret}

    def conf(self) -> dict[str, str]:
        """The Spark settings that an application on this cluster needs; none of them is secret."""
        return {
            "spark.authenticate": "true",
            SECRET: f"see:{SECRET_VARIABLE}",  # a driver of Spark does not start without it
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.cores": str(self.cores),
            "spark.executor.memory": f"{self.memory_mb}m",
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
            "spark.pyspark.python": sys.executable,  # it has the driver's packages
            "spark.decommission.enabled": "true",
            # An executor's cache is of no use after its batch, and its migration takes 30 s.
            "spark.storage.decommission.enabled": "false",
            # Hosts come and go all the time here, which must not fail a job or the application.
            "spark.task.maxFailures": "8",
            "spark.executor.maxNumFailures": "2147483647",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.streaming.metricsEnabled": "false",
        }

    def stop(self) -> None:
        """Stop all hosts, then the master; safe to call twice."""
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
        doors = " ".join(f"-D{key}={value}" for key, value in self.daemon_settings.items())
        env = spark_environment(
            self.folder,
            **self.environment(),
            SPARK_DAEMON_MEMORY="256m",
            SPARK_DAEMON_JAVA_OPTS=f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 {doors}",
            SPARK_WORKER_OPTS="-Dspark.decommission.enabled=true",
        )
        env.pop("SPARK_MASTER_HOST", None)
        log = self.folder / "logs" / f"{name}-{time.monotonic_ns()}.log"
        return Process(command, log, env)
