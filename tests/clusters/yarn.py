"""A real YARN on this machine: a ResourceManager and NodeManagers, each in a separate process.

    python -m tests.clusters.yarn            # start it, print how to submit to it, until Ctrl-C
    python -m tests.clusters.yarn --fetch    # only fetch its jars; also: make yarn

The daemons are those of Hadoop, in the version that PySpark's client has. They listen on loopback
only. Each NodeManager has its own address (127.0.0.2, 127.0.0.3, …), so that Spark sees
different machines. A node has room for two containers, and the application master takes one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from tidegate.errors import BackendError
from tidegate.lifecycle import Service
from tidegate.spark.local.maven import cache_folder, fetch_jars
from tidegate.spark.local.processes import LOOPBACK, Process, java_program, run_to_end, spark_home

HADOOP = "3.5.0"
CRYPTO = "1.78.1"
DIGESTS = {
    f"hadoop-client-minicluster-{HADOOP}.jar": (
        "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c"
    ),
    f"bcpkix-jdk18on-{CRYPTO}.jar": (
        "4b48ea084e5232b9d79ebca1887b9de037b124931807cd60710748c2aee08cc9"
    ),
    f"bcprov-jdk18on-{CRYPTO}.jar": (
        "add5915e6acfc6ab5836e1fd8a5e21c6488536a8c1f21f386eeb3bf280b702d7"
    ),
    f"bcutil-jdk18on-{CRYPTO}.jar": (
        "d9fa56f97b0f761ce3bc8d9d74c5d7137a987bf5bd3abfe1003f9bafa45a1d2f"
    ),
}
WANTED = {
    "yarn->master": (
        ("org.apache.hadoop", "hadoop-client-minicluster", HADOOP),
        ("org.bouncycastle", "bcpkix-jdk18on", CRYPTO),  # the ResourceManager makes certificates
        ("org.bouncycastle", "bcprov-jdk18on", CRYPTO),
        ("org.bouncycastle", "bcutil-jdk18on", CRYPTO),
    )
}
START_S = 180.0
"""Nothing takes so long on an idle machine; it is there for one that is very busy."""
EXPIRY_S = 10
"""A NodeManager that is silent for so long is lost, in seconds; YARN's default is ten minutes."""
CONTAINER_MB = 640
"""Memory of an application master or an executor, as YARN counts it, in MB."""
CONTAINERS = 2
"""Containers of a node."""
_SERVER = "org.apache.hadoop.yarn.server"
_LIGHT = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=INFO")


def jar_folder() -> Path:
    """The folder of the jars: ``TIDEGATE_YARN_JARS``, or a folder in the user's cache."""
    return cache_folder("TIDEGATE_YARN_JARS", f"yarn-{HADOOP}")


def fetch() -> Path:
    """Download the jars unless they are there; BackendError if they cannot be had."""
    return fetch_jars("YARN's jars", jar_folder(), WANTED, DIGESTS)


def why_not() -> str:
    """Why YARN cannot run here, empty if it can."""
    have = next((spark_home() / "jars").glob("hadoop-client-api-*.jar"), None)
    if have is None or have.stem != f"hadoop-client-api-{HADOOP}":
        return f"PySpark has {have.stem if have else 'no Hadoop client'}, not version {HADOOP}"
    if not (jar_folder() / "yarn").is_dir():
        return f"YARN's jars are not in {jar_folder()}: run make yarn where Maven Central is"
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.2", 0))
    except OSError:
        return "a node needs its own address, and 127.0.0.2 is none of this machine"
    return ""


class LocalYarn(Service):
    """A ResourceManager and NodeManagers that run while a ``with`` block runs.

    nodes: NodeManagers at the start. folder: for settings, logs and the files of applications;
    None: a temporary folder, removed at the end.
    """

    def __init__(self, nodes: int = 2, folder: Path | None = None) -> None:
        self._first = nodes
        self._own_folder = folder is None
        self.folder = (folder or Path(tempfile.mkdtemp(prefix="tidegate-yarn-"))).resolve()
        self.managers: dict[str, Process] = {}
        self._retired: list[Process] = []
        self._resource_manager: Process | None = None
        self._started = 0
        self._ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))

    @property
    def properties(self) -> Path:
        """The file with the settings of `conf`, for ``--properties-file``."""
        return self.folder / "spark.conf"

    # --- the cluster ------------------------------------------------------------------------

    def start(self) -> Self:
        """Start it and wait until all nodes are registered."""
        for name in ("core-site", "capacity-scheduler", "yarn-site"):
            _write(self.folder / "conf" / f"{name}.xml", self._settings(name))
        (self.folder / "conf" / "excluded").touch()
        settings = "".join(f"{key} {value}\n" for key, value in self.conf().items())
        self.properties.write_text(settings, encoding="utf-8")
        try:
            self._resource_manager = self._launch("resourcemanager", "ResourceManager")
            for _ in range(self._first):
                self.start_node()
            self.until("all nodes are there", lambda: len(self.nodes()) == self._first)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop all daemons and what is left of their containers."""
        if self._resource_manager is not None:
            self._resource_manager.kill()
            self._resource_manager = None
        for process in [*self.managers.values(), *self._retired]:
            process.kill()  # in order, it would take ten seconds each
        self.managers.clear()
        for pid in self._processes(""):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def start_node(self) -> str:
        """Start one more NodeManager; return its address."""
        self._started += 1
        address = f"127.0.0.{self._started + 1}"
        _write(self.folder / address / "yarn-site.xml", self._settings("yarn-site", address))
        self.managers[address] = self._launch("nodemanager", "NodeManager", address)
        return address

    def kill_node(self, address: str, containers: bool = False) -> None:
        """Kill a NodeManager. containers: and all that runs there, as if the machine had failed.

        Otherwise its containers run on until the ResourceManager says that they are lost.
        """
        self.managers.pop(address).kill()
        for pid in self._processes(f"{address}/local") if containers else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def take_away(self, address: str) -> None:
        """Take a node out of service, as its operator does; it ends when its containers have."""
        (self.folder / "conf" / "excluded").write_text(f"{address}\n", encoding="ascii")
        self._retired.append(self.managers.pop(address))  # from now on it may end
        words = ["org.apache.hadoop.yarn.client.cli.RMAdminCLI", "-refreshNodes", "-g", "600"]
        succeeded, output = run_to_end([*self._with_jars(), *words, "-server"], START_S)
        if not succeeded:
            raise BackendError(f"{address} could not be taken away: {output[-1]}")

    def nodes(self) -> list[str]:
        """Addresses of the nodes that the ResourceManager counts as running."""
        found = self._ask("nodes?states=RUNNING").get("nodes") or {}
        return sorted(node["id"].partition(":")[0] for node in found.get("node", ()))

    def application(self, name: str) -> dict[str, Any]:
        """What the ResourceManager says of an application, empty if it knows none."""
        return dict(self._ask(f"apps/{name}").get("app", {}))

    def pending(self, name: str) -> int:
        """Containers that an application has requested and not got."""
        requests = self.application(name).get("resourceRequests") or ()
        return sum(r["numContainers"] for r in requests if r["resourceName"] == "*")

    def executors(self, name: str) -> dict[int, str]:
        """The executor processes of an application with the address of their node."""
        return self._java(name, b"org.apache.spark.executor.YarnCoarseGrainedExecutorBackend")

    def masters(self, name: str) -> dict[int, str]:
        """The process of an application's master, with the address of its node."""
        found = self._java(name, b"org.apache.spark.deploy.yarn.ExecutorLauncher")
        return found or self._java(name, b"org.apache.spark.deploy.yarn.ApplicationMaster")

    def until(self, what: str, true: Callable[[], object], limit_s: float = START_S) -> None:
        """Wait until something is true; BackendError if a daemon ends or the limit is over."""
        end_s = time.monotonic() + limit_s
        while not true():
            daemons = [*self.managers.values(), self._resource_manager]
            ended = [daemon.log for daemon in daemons if daemon is not None and not daemon.running]
            if ended:
                raise BackendError(f"a daemon of YARN has ended; see {ended[0]}")
            if time.monotonic() > end_s:
                raise BackendError(f"not within {limit_s:g} s: {what}; logs are in {self.folder}")
            time.sleep(0.2)

    # --- applications -----------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """The environment of spark-submit."""
        return {
            **os.environ,
            "HADOOP_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_IP": LOOPBACK,
        }

    def conf(self) -> dict[str, str]:
        """The Spark settings of an application on this cluster.

        The jars and Python of this machine are used where they are, and an executor or application
        master is as large as a container.
        """
        heap, rest = f"{CONTAINER_MB - 128}m", "128m"
        return {
            "spark.yarn.jars": f"local:{spark_home()}/jars/*",
            "spark.yarn.stagingDir": (self.folder / "staging").as_uri(),
            "spark.yarn.am.memory": heap,
            "spark.yarn.am.memoryOverhead": rest,
            "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": LOOPBACK,
            "spark.yarn.scheduler.heartbeat.interval-ms": "1000",
            "spark.pyspark.python": sys.executable,
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.memory": heap,
            "spark.driver.memoryOverhead": rest,
            "spark.executor.cores": "2",
            "spark.executor.memory": heap,
            "spark.executor.memoryOverhead": rest,
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "spark.storage.decommission.enabled": "false",
            "spark.task.maxFailures": "8",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }

    # --- the daemons ------------------------------------------------------------------------

    def _settings(self, name: str, address: str = "") -> dict[str, object]:
        if name == "core-site":
            return {"fs.defaultFS": "file:///", "hadoop.tmp.dir": self.folder / "tmp"}
        if name == "capacity-scheduler":
            root = "yarn.scheduler.capacity"
            return {
                f"{root}.root.queues": "default",
                f"{root}.root.default.capacity": 100,
                f"{root}.maximum-am-resource-percent": 0.5,
            }
        ports = {f"yarn.resourcemanager.{p}": f"{LOOPBACK}:{n}" for p, n in self._ports.items()}
        node = "yarn.nodemanager"
        places = ("address", "localizer.address", "webapp.address", "collector-service.address")
        return {
            **ports,
            "yarn.resourcemanager.hostname": LOOPBACK,
            "yarn.resourcemanager.nodes.exclude-path": self.folder / "conf" / "excluded",
            "yarn.resourcemanager.connect.retry-interval.ms": 500,
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": 500,
            "yarn.nm.liveness-monitor.expiry-interval-ms": EXPIRY_S * 1000,
            "yarn.scheduler.minimum-allocation-mb": 128,
            f"{node}.resource.memory-mb": CONTAINERS * CONTAINER_MB,
            f"{node}.vmem-check-enabled": "false",
            f"{node}.pmem-check-enabled": "false",
            f"{node}.disk-health-checker.max-disk-utilization-per-disk-percentage": 99.5,
            **({f"{node}.hostname": address} if address else {}),
            **({f"{node}.{place}": f"{address}:0" for place in places} if address else {}),
            f"{node}.local-dirs": self.folder / address / "local",
            f"{node}.log-dirs": self.folder / address / "logs",
        }

    def _launch(self, package: str, name: str, address: str = "") -> Process:
        """Start a daemon. address: of a node, whose settings come first."""
        command = [*self._with_jars(address), f"{_SERVER}.{package}.{name}"]
        log = self.folder / "logs" / f"{address or package}.log"
        return Process(command, log, {**os.environ, "JAVA_HOME": _java_home()})

    def _with_jars(self, address: str = "") -> list[str]:
        folders = [*([self.folder / address] if address else []), self.folder / "conf"]
        jars = [jar_folder() / "yarn" / "*", spark_home() / "jars" / "*"]
        path = os.pathsep.join(map(str, [*folders, *jars]))
        return [java_program(), *_LIGHT, "-cp", path]

    def _ask(self, what: str) -> dict[str, Any]:
        """An answer of the ResourceManager, empty as long as it does not answer."""
        url = f"http://{LOOPBACK}:{self._ports['webapp.address']}/ws/v1/cluster/{what}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return dict(json.load(answer))
        except (OSError, ValueError):
            return {}

    def _java(self, application: str, main: bytes) -> dict[int, str]:
        """Processes of Java with a main class in the containers of an application."""
        found = {}
        for pid, place in self._processes(application).items():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if words[0].endswith(b"java") and main in words:
                    found[pid] = place.parts[0]
        return found

    def _processes(self, part: str) -> dict[int, Path]:
        """Processes in containers, with their folder. part: that the folder's name contains."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError, ValueError):
                    place = (entry / "cwd").readlink().relative_to(self.folder)
                    if part in str(place):
                        found[int(entry.name)] = place
        return found


_PORTS = (
    "address",
    "scheduler.address",
    "resource-tracker.address",
    "admin.address",
    "webapp.address",
)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in opened:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in opened]


def _java_home() -> str:
    """The folder of Java; containers call it by this name."""
    found = shutil.which(java_program())
    if found is None:
        raise BackendError("Java is not on the path: install Java 17, or set JAVA_HOME")
    return str(Path(found).resolve().parent.parent)


def _write(path: Path, settings: Mapping[str, object]) -> None:
    """Write a settings file of Hadoop."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pairs = "".join(
        f"<property><name>{key}</name><value>{value}</value></property>\n"
        for key, value in settings.items()
    )
    path.write_text(f"<configuration>\n{pairs}</configuration>\n", encoding="utf-8")


def submit_words(yarn: LocalYarn, mode: str = "client") -> list[str]:
    """The options of ``tidegate submit`` or spark-submit for this cluster."""
    return ["--master", "yarn", "--deploy-mode", mode, "--properties-file", str(yarn.properties)]


def main() -> None:
    """Run it until it is interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--fetch", action="store_true", help="only fetch the jars")
    parser.add_argument("--nodes", type=int, default=2, help="NodeManagers")
    options = parser.parse_args()
    try:
        print(f"YARN's jars are in {fetch()}", flush=True)
    except BackendError as problem:
        sys.exit(str(problem))
    if options.fetch:
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # still cleans up
    with LocalYarn(options.nodes) as yarn:
        print(
            f"{len(yarn.nodes())} nodes run, with room for {CONTAINERS} containers each. Submit:\n"
            f"  export HADOOP_CONF_DIR={yarn.folder / 'conf'} SPARK_LOCAL_IP={LOOPBACK}\n"
            f"  tidegate submit --slo 5s --max-executors 3 --master yarn \\\n"
            f"    --properties-file {yarn.properties} app.py\n"
            f"Its page is http://{LOOPBACK}:{yarn._ports['webapp.address']}. Stop it with Ctrl-C.",
            flush=True,
        )
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
