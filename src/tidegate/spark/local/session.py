"""A Spark session of one's own: the driver's JVM starts quietly and ends with its session."""

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
"""For the driver with its heap, the master and this process together; an estimate."""


def check_java() -> None:
    """BackendError with a remedy when there is no Java that runs Spark."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else which("java")
    remedy = (
        f"install a Java {JAVA} runtime (for example: apt install openjdk-17-jre-headless), or set "
        "JAVA_HOME to one"
    )
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java here"
        raise BackendError(f"Spark needs Java, and {where}: {remedy}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version.group(1)) < JAVA:
        found = said.strip().splitlines()[:1] or ["it does not say its version"]
        raise BackendError(
            f"Spark needs Java {JAVA} or later, and {java} is not: {found[0]}: {remedy}"
        )


def hosts_that_fit(wanted: int, memory_mb: int) -> int:
    """Of so many hosts, those that this machine's free memory carries beside the driver.

    memory_mb: heap of a host's executor. BackendError when not even one host fits.
    """
    free = memory_available_mb()
    if free is None:
        return wanted
    each = memory_mb + JVM_OVERHEAD_MB
    fit = int((free - DRIVER_AND_MASTER_MB) // each)
    if fit < 1:
        raise BackendError(
            f"this machine has {free:.0f} MB of free memory; the driver takes "
            f"{DRIVER_AND_MASTER_MB} MB and a host {each} MB: end something first"
        )
    return min(wanted, fit)


def session(
    cluster: LocalCluster, log: Path, settings: Mapping[str, str], app_name: str = "tidegate"
) -> AbstractContextManager[SparkSession]:
    """A session on a cluster, which ends with the block, and its JVM with it.

    log: the file for all that the JVM has to say. settings: Spark settings.
    """
    return _opened(lambda: cluster.session(app_name, **settings), log)


def session_on(
    master: str, log: Path, settings: Mapping[str, str], app_name: str = "tidegate"
) -> AbstractContextManager[SparkSession]:
    """A session on any master, such as ``local[*]``, ``spark://…``, ``yarn`` or ``k8s://…``.

    log, settings: as in `session`; the settings of ``spark-defaults.conf`` hold where these are
    silent.
    """
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    if master.startswith("local"):
        # PySpark reads no setting for this, only the variable: else it takes any python3 there is.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        heap_mb = int(max(1024, min(4096, (memory_available_mb() or 4096.0) * 0.4)))
        quiet |= dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), LOOPBACK)
        quiet["spark.driver.memory"] = f"{heap_mb}m"

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
    """Have processes that are started meanwhile write their errors to a file, for good.

    The JVM inherits this process's error output; it warns about incubators, host names and native
    libraries before any setting of its own is read.
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
    """Keep this process's answer to Ctrl-C: PySpark's own cancels all jobs, which fails queries."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _end(spark: SparkSession | None) -> None:
    """Stop a session and the JVM behind it: it would linger until this process ends."""
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
        process.stdin.close()  # Spark's sign to leave
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
