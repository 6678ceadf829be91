"""Spark sessions whose JVM starts without output and stops with the session."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

from tidegate.errors import BackendError
from tidegate.spark.local.cluster import LocalCluster
from tidegate.spark.local.processes import JVM_OVERHEAD_MB, LOOPBACK, memory_available_mb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_java", "hosts_that_fit", "session", "session_on"]

JAVA = 17
DRIVER_AND_MASTER_MB = 1500
"""Estimated memory of the driver, the master and this process together, in MB."""


def check_java() -> None:
    """Raise BackendError when there is no Java that can run Spark."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else which("java")
    remedy = (
        f"install a Java {JAVA} runtime (for example: apt install openjdk-17-jre-headless), or set "
        "JAVA_HOME to one"
    )
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "java is not on the path"
        raise BackendError(f"Spark needs Java, but {where}: {remedy}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version.group(1)) < JAVA:
        found = said.strip().splitlines()[:1] or ["it reports no version"]
        raise BackendError(
            f"Spark needs Java {JAVA} or later, but {java} is older ({found[0]}): {remedy}"
        )


def hosts_that_fit(wanted: int, memory_mb: int) -> int:
    """Number of hosts, at most `wanted`, that fit into the free memory next to the driver.

    memory_mb: heap of a host's executor, in MB. Raises BackendError when no host fits.
    """
    free = memory_available_mb()
    if free is None:
        return wanted
    each = memory_mb + JVM_OVERHEAD_MB
    fit = int((free - DRIVER_AND_MASTER_MB) // each)
    if fit < 1:
        raise BackendError(
            f"this machine has {free:.0f} MB of free memory; the driver needs "
            f"{DRIVER_AND_MASTER_MB} MB and a host {each} MB: stop another process first"
        )
    return min(wanted, fit)


def session(
    cluster: LocalCluster, log: Path, settings: Mapping[str, str], app_name: str = "tidegate"
) -> AbstractContextManager[SparkSession]:
    """A session on a cluster; the end of the ``with`` block stops the session and its JVM.

    log: file for the output of the JVM. settings: Spark settings.
    """
    return _opened(lambda: cluster.session(app_name, **settings), log)


def session_on(
    master: str, log: Path, settings: Mapping[str, str], app_name: str = "tidegate"
) -> AbstractContextManager[SparkSession]:
    """A session on any master, such as ``local[*]``, ``spark://…``, ``yarn`` or ``k8s://…``.

    log, settings: as in `session`; ``spark-defaults.conf`` applies to what they do not set.
    """
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    if master.startswith("local"):
        # PySpark reads this variable only; without it, PySpark takes any python3 on the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        heap_mb = int(max(1024, min(4096, (memory_available_mb() or 4096.0) * 0.4)))
        quiet |= dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), LOOPBACK)
        quiet["spark.driver.memory"] = f"{heap_mb}m"
        # Every user can connect to loopback. Spark makes a secret for its own processes.
        quiet["spark.authenticate"] = "true"

    def open_session() -> SparkSession:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName(app_name).master(master)
        for key, value in (quiet | dict(settings)).items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    return _opened(open_session, log)


@contextlib.contextmanager
def _opened(open_session: Callable[[], SparkSession], log: Path) -> Iterator[SparkSession]:
    log.parent.mkdir(parents=True, exist_ok=True)
    spark = None
    try:
        with _errors_into(log), _own_interrupt():
            spark = open_session()
            spark.sparkContext.setLogLevel("ERROR")
        yield spark
    finally:
        _end(spark)


@contextlib.contextmanager
def _errors_into(log: Path) -> Iterator[None]:
    """Send the error output of processes that are started meanwhile to a file, permanently.

    The JVM inherits the error output of this process and prints warnings about incubators, host
    names and native libraries before it reads any settings.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextlib.contextmanager
def _own_interrupt() -> Iterator[None]:
    """Keep this process's Ctrl-C handler: PySpark's cancels all jobs, which fails queries."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _end(spark: SparkSession | None) -> None:
    """Stop a session and its JVM, which would otherwise run until this process ends."""
    from pyspark import SparkContext

    if spark is not None:
        with contextlib.suppress(Exception):  # the connection may be broken already
            spark.stop()
    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    with contextlib.suppress(OSError):
        process.stdin.close()  # makes Spark exit
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
