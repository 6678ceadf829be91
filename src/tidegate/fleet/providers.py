"""Providers of hosts: Connect servers started on this machine, or a list of endpoints."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidegate.errors import BackendError, InputError
from tidegate.fleet.connect import ConnectHost, Endpoint, read_endpoint, session_id
from tidegate.fleet.hosts import FleetHost
from tidegate.model.topology import Resources
from tidegate.spark.local.processes import (
    LOOPBACK,
    Process,
    check_host_limit,
    check_memory,
    spark_environment,
    spark_home,
)
from tidegate.units import finite

__all__ = ["NETWORK_MBPS", "QUERY_MB", "EmbeddedProvider", "StaticProvider"]

START_S = 300.0
NETWORK_MBPS = 10_000.0
"""Network of a host where none is given."""
QUERY_MB = 5.0
"""Heap that a query needs besides its state, in megabytes."""

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
logger.connect.name = org.apache.spark.sql.connect.service.SparkConnectServer
logger.connect.level = info
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = info
"""
"""Only warnings, and the two lines that contain the ports."""


@dataclass
class _Server:
    """A server that was started.

    process: its process. token: required in every call; other users of this machine do not know
    it. since_s: when it was started, on a monotonic clock. host: the host, once its ports are
    known. warm: whether it is ready.
    """

    process: Process
    token: str
    since_s: float
    host: ConnectHost | None = None
    warm: bool = False


def limited(
    capacity: Resources, queries_mb: float | None, network_mbps: float | None
) -> tuple[Resources, frozenset[str]]:
    """A capacity with the limits that are given, and which those are.

    >>> limited(Resources(2, 640, 10_000), None, 100)
    (Resources(cpu_cores=2, memory_mb=640, network_mbps=100), frozenset({'network_mbps'}))
    """
    given = {"memory_mb": queries_mb, "network_mbps": network_mbps}
    names = {"memory_mb": "queries_mb", "network_mbps": "network_mbps"}
    found = {name: value for name, value in given.items() if value is not None}
    for name, value in found.items():
        finite(value, names[name], above=0, remedy="leave it out if it is not limited")
    return replace(capacity, **found), frozenset(found)


class EmbeddedProvider:
    """Real Connect servers as processes on loopback, from the installed `pyspark` package.

    They end with the manager, even if it is killed; the next manager resumes the queries from their
    checkpoints. Each server requires its own token: a client of a Connect server can run code in
    it, and every user of a machine can connect to loopback.

    Args:
        fleet: Id of the fleet.
        folder: Folder for logs and scratch files.
        cores: Task slots of a host.
        memory_mb: Heap of a host in megabytes, at least 450.
        queries_mb: Megabytes of it that the queries of a host may need together; None means that
            memory is not limited. A server without queries uses about 200 MB.
        network_mbps: Megabits per second that the queries of a host may read and write together;
            None means that the network is not limited.
        query_mb: Megabytes that a query needs besides its state, if memory is limited.
        max_hosts: Largest number of hosts. They share this machine, so the CPU capacity of a host
            is its share of the processors if that is less than its slots; otherwise no host would
            ever count as busy.
        spares: Number of hosts that are kept warm, since a JVM takes seconds to start.
        settings: More Spark settings of every host.
    """

    outlive = False

    def __init__(
        self,
        fleet: str,
        folder: Path,
        *,
        cores: int = 2,
        memory_mb: int = 640,
        queries_mb: float | None = None,
        network_mbps: float | None = None,
        query_mb: float = QUERY_MB,
        max_hosts: int | None = None,
        spares: int = 0,
        settings: dict[str, Any] | None = None,
    ) -> None:
        finite(cores, "cores", low=1)
        finite(memory_mb, "memory_mb", low=450, remedy="Spark refuses to run with less")
        finite(query_mb, "query_mb", low=0)
        finite(spares, "spares", low=0)
        self.fleet = fleet
        self.folder = folder
        self.cores = cores
        self.memory_mb = memory_mb
        self.max_hosts = max_hosts
        self.spares = spares
        self.settings = settings or {}
        share = (os.cpu_count() or cores) / (max_hosts or 1)
        capacity = Resources(min(cores, share), memory_mb, NETWORK_MBPS)
        self.capacity, self.limits = limited(capacity, queries_mb, network_mbps)
        self.query_mb = query_mb
        self._servers: dict[str, _Server] = {}
        self._kept: list[_Server] = []
        self._started = 0

    def lease(self, name: str) -> None:
        """Start a server, or use a spare one."""
        if name in self._servers:
            return
        check_host_limit(name, len(self._servers), self.max_hosts)
        self._kept = [server for server in self._kept if server.process.running]
        self._servers[name] = self._kept.pop(0) if self._kept else self._launch()
        self._warm_up()

    def host(self, name: str) -> FleetHost | None:
        """The host, once its server is ready."""
        server = self._servers.get(name)
        if server is None:
            raise BackendError(f"{name} is not a leased host")
        self._advance(server)
        for spare in self._kept:
            with contextlib.suppress(BackendError):  # `lease` skips a spare that has failed
                self._advance(spare)
        return server.host if server.warm else None

    def release(self, name: str) -> None:
        """Stop a server gracefully."""
        server = self._servers.pop(name, None)
        if server is not None:
            server.process.stop()

    def kill(self, name: str) -> bool:
        """Kill a server; then nothing runs on it."""
        server = self._servers.pop(name, None)
        if server is not None:
            server.process.kill()
        return True

    def survivors(self) -> Iterable[tuple[str, FleetHost]]:
        """Empty: the servers of an earlier manager have ended with it."""
        return ()

    def pid(self, name: str) -> int:
        """Process id of a host."""
        return self._servers[name].process.pid

    def close(self) -> None:
        """Kill all servers."""
        for server in (*self._servers.values(), *self._kept):
            server.process.kill()
        self._servers.clear()
        self._kept.clear()
        shutil.rmtree(self.folder / "scratch", ignore_errors=True)

    # --- inside -------------------------------------------------------------------------------

    def _warm_up(self) -> None:
        limit = self.max_hosts
        room = self.spares if limit is None else min(self.spares, limit - len(self._servers))
        while len(self._kept) < room:
            try:
                self._kept.append(self._launch())
            except BackendError:
                return  # spares are optional: without memory there are none

    def _advance(self, server: _Server) -> None:
        """Find the ports of a starting server, then warm it up in the background."""
        process = server.process
        late = time.monotonic() - server.since_s > START_S
        if server.host is not None:
            if not server.warm and (late or not process.running):
                raise BackendError(f"{process.log.stem} did not answer in {START_S:g} s")
            return
        try:
            port = process.wait_for(r"Connect server started at: [\d.]+:(\d+)", 0.0).group(1)
            ui_port = process.wait_for(r"'SparkUI' on port (\d+)", 0.0).group(1)
        except BackendError:
            if process.running and not late:
                return
            raise
        # Spark's client sends a token without TLS only to this name.
        endpoint = Endpoint(f"sc://localhost:{port}", (f"token={server.token}",))
        server.host = ConnectHost(
            endpoint.url(),
            session_id(self.fleet, f"{endpoint.address}#{process.pid}"),
            f"http://{LOOPBACK}:{ui_port}",
            process.pid,
            lambda: process.running,
        )
        threading.Thread(target=self._warm, args=(server, server.host), daemon=True).start()

    @staticmethod
    def _warm(server: _Server, host: ConnectHost) -> None:
        with contextlib.suppress(Exception):  # `_advance` notices that it never becomes warm
            host.warm_up(START_S)
            server.warm = True

    def _launch(self) -> _Server:
        check_memory("a host", self.memory_mb)
        self._started += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        logging = self.folder / "log4j2.properties"
        logging.write_text(_LOGGING, encoding="utf-8")
        conf = {
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": "0",
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.authenticate": "true",  # with a secret that Spark makes and keeps to itself
            "spark.ui.port": "0",
            "spark.ui.killEnabled": "false",
            "spark.ui.retainedJobs": "400",
            "spark.ui.retainedStages": "800",
            "spark.ui.retainedTasks": "2000",
            "spark.sql.ui.retainedExecutions": "50",
            "spark.sql.shuffle.partitions": str(self.cores),
            "spark.sql.streaming.numRecentProgressUpdates": "20",
            "spark.scheduler.mode": "FAIR",
            **{key: str(value) for key, value in self.settings.items()},
        }
        options = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={logging}"
        command = [
            str(spark_home() / "bin" / "spark-submit"),
            *("--master", f"local[{self.cores}]", "--driver-memory", f"{self.memory_mb}m"),
            *("--driver-java-options", options),
            *(word for key, value in conf.items() for word in ("--conf", f"{key}={value}")),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *("--name", f"tidegate fleet host {self._started}", "spark-internal"),
        ]
        token = secrets.token_urlsafe(32)
        # In the environment, because every user of the machine can read a command line.
        env = spark_environment(self.folder, SPARK_CONNECT_AUTHENTICATE_TOKEN=token)
        env.setdefault("PYSPARK_PYTHON", sys.executable)  # for functions of the queries
        for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE"):
            env.pop(name, None)  # these settings are for clients
        log = self.folder / "logs" / f"server-{self._started}-{time.time_ns()}.log"
        return _Server(Process(command, log, env), token, time.monotonic())


class StaticProvider:
    """Existing Connect servers; leasing takes the next free one.

    The servers and their queries outlive the manager, and the provider cannot end a server that
    does not answer. The fence of a query's checkpoint prevents damage then.

    fleet: id of the fleet, from which the session ids on the servers are derived.
    endpoints: ``sc://host:port/;token=…;use_ssl=true``; the parameter ``ui=http://…`` is the web UI
    of the server, for the CPU time of queries.
    capacity: the resources of one host. queries_mb: megabytes of its memory that its queries may
    need together; None means that memory is not limited. network_mbps: megabits per second that
    they may read and write together; None means that the network is not limited. query_mb:
    megabytes that a query needs besides its state, if memory is limited.
    """

    outlive = True

    def __init__(
        self,
        fleet: str,
        endpoints: Iterable[str],
        capacity: Resources,
        *,
        queries_mb: float | None = None,
        network_mbps: float | None = None,
        query_mb: float = QUERY_MB,
    ) -> None:
        self.fleet = fleet
        self.capacity, self.limits = limited(capacity, queries_mb, network_mbps)
        self.query_mb = query_mb
        self.endpoints = [read_endpoint(text) for text in endpoints]
        places = [endpoint.address for endpoint in self.endpoints]
        if len(set(places)) < len(places):
            raise InputError("--endpoint", ", ".join(places), "each server once")
        self.max_hosts: int | None = len(self.endpoints)
        self._hosts: dict[str, tuple[Endpoint, ConnectHost]] = {}
        self._failed: list[Endpoint] = []

    def lease(self, name: str) -> None:
        """Use the next free endpoint; endpoints that failed before come last."""
        if name in self._hosts:
            return
        taken = {endpoint for endpoint, _ in self._hosts.values()}
        free = [e for e in self.endpoints if e not in taken and e not in self._failed]
        free += [e for e in self._failed if e not in taken]
        if not free:
            raise BackendError(f"{name} is refused: all {len(self.endpoints)} endpoints are in use")
        self._hosts[name] = (free[0], self._connect(free[0]))

    def host(self, name: str) -> FleetHost | None:
        """The host, which is assumed to be up."""
        if name not in self._hosts:
            raise BackendError(f"{name} is not a leased host")
        return self._hosts[name][1]

    def release(self, name: str) -> None:
        """Stop using a server."""
        self._hosts.pop(name, None)

    def kill(self, name: str) -> bool:
        """Stop using a server that does not answer; its queries may still run."""
        gone = self._hosts.pop(name, None)
        if gone is not None:
            self._failed = [*(e for e in self._failed if e != gone[0]), gone[0]]
        return False

    def survivors(self) -> Iterable[tuple[str, FleetHost]]:
        """All endpoints, since queries of an earlier manager may run on any of them."""
        for number, endpoint in enumerate(self.endpoints, start=1):
            name = f"host-{number}"
            self._hosts[name] = (endpoint, self._connect(endpoint))
            yield name, self._hosts[name][1]

    def close(self) -> None:
        """Forget the servers, which keep running."""
        self._hosts.clear()

    def _connect(self, endpoint: Endpoint) -> ConnectHost:
        session = session_id(self.fleet, endpoint.address)
        return ConnectHost(endpoint.url(), session, endpoint.ui_url)
