"""The embedded Kafka broker: one process on loopback, for trials and tests.

It is Kafka itself (KRaft, one node that is broker and controller), with a small heap. Its log is in
a folder that is removed when it stops. For data that must last, use a permanent broker.

::

    with LocalBroker() as broker:
        topology.start(spark, folder, topics=broker.location)
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tidegate.errors import BackendError
from tidegate.lifecycle import Service
from tidegate.spark.local.kafka_jars import broker_jars
from tidegate.spark.local.processes import LOOPBACK, Process, java_program, run_to_end, spark_home
from tidegate.units import finite

__all__ = ["LocalBroker"]

START_S = 90.0


class LocalBroker(Service):
    """A Kafka broker that runs while a ``with`` block runs.

    heap_mb: heap of its JVM, in MB. folder: for its log and settings; a folder of an earlier broker
    is continued. None: a temporary folder, removed at the end.
    listeners: more listeners by their security protocol (``SASL_SSL``), each with Kafka's settings
        for it (``ssl.keystore.location``), to try such a connection.
    """

    def __init__(
        self,
        heap_mb: int = 256,
        folder: str | os.PathLike[str] | None = None,
        listeners: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.heap_mb = int(finite(heap_mb, "heap_mb", low=128, remedy="Kafka needs more"))
        self._own_folder = folder is None
        self.folder = Path(folder or tempfile.mkdtemp(prefix="tidegate-kafka-")).resolve()
        self.listeners = dict(listeners or {})
        self.ports: dict[str, int] = {}
        self._process: Process | None = None

    @property
    def location(self) -> str:
        """Location of its topics, for `open_topic` and `StreamTopology.start`."""
        return f"kafka://{self.address()}"

    def address(self, protocol: str = "PLAINTEXT") -> str:
        """Host and port of a listener. protocol: its security protocol."""
        return f"{LOOPBACK}:{self.ports.get(protocol, 0)}"

    @property
    def pid(self) -> int | None:
        """Its process id, None while it does not run."""
        return self._process.pid if self._process is not None else None

    def start(self) -> Self:
        """Start it and wait until it answers; BackendError with its last output if it does not."""
        java = self._java()
        settings, data = self.folder / "server.properties", self.folder / "data"
        self.folder.mkdir(parents=True, exist_ok=True)
        names = ("PLAINTEXT", "CONTROLLER", *self.listeners)
        self.ports = dict(zip(names, _free_ports(len(names)), strict=True))
        settings.touch(mode=0o600)  # it may have passwords
        text = _settings(self.ports, data, self.listeners)
        settings.write_text(text, encoding="utf-8")
        try:
            if not data.exists():
                _format(java, settings)
            self._process = Process(
                [*java, "kafka.Kafka", str(settings)], self.folder / "broker.log", os.environ
            )
            self._process.wait_for("Kafka Server started", START_S)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop it and remove a temporary folder."""
        if self._process is not None:
            self._process.stop()
            self._process = None
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _java(self) -> list[str]:
        # Kafka comes with a logging interface only; the implementation is Spark's.
        spark = spark_home() / "jars"
        names = ("slf4j-api-*", "log4j-slf4j2-impl-*", "log4j-api-2*", "log4j-core-*")
        logging = [jar for name in names for jar in spark.glob(f"{name}.jar")]
        return [
            java_program(),
            f"-Xmx{self.heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # it runs for minutes: a quick start matters most
            "-Dlog4j2.level=INFO",
            "-cp",
            ":".join(map(str, [*logging, *broker_jars()])),
        ]


def _format(java: list[str], settings: Path) -> None:
    """Prepare Kafka's folder, with a name for the cluster, before the first start."""
    name = "dGlkZWdhdGUtYnJva2VyIQ"  # any 16 bytes in base64
    command = [*java, "kafka.tools.StorageTool", "format", "-t", name, "-c", str(settings)]
    succeeded, output = run_to_end(command, START_S)
    if not succeeded:
        raise BackendError(
            f"the folder {settings.parent} of the Kafka broker could not be prepared "
            f"({output[-1]}): put Java 17 or later on the path or set JAVA_HOME, or choose another "
            "folder"
        )


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [one.getsockname()[1] for one in sockets]


def _settings(
    ports: Mapping[str, int], data: Path, listeners: Mapping[str, Mapping[str, str]]
) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{LOOPBACK}:{ports['CONTROLLER']}",
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(
            f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}" for name in ports
        ),
        "log.dirs": data,
        # One node: nothing is replicated.
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "auto.create.topics.enable": "false",
    }
    for name, own in listeners.items():
        settings |= {f"listener.name.{name.lower()}.{key}": value for key, value in own.items()}
    # A backslash begins an escape in a file of properties.
    shown = {key: str(value).replace("\\", "\\\\") for key, value in settings.items()}
    return "".join(f"{key}={value}\n" for key, value in shown.items())
