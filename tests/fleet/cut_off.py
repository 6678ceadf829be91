"""Connect servers in network namespaces of their own, which can be cut off and suspended.

The program that uses this has a network namespace too (`enter`). It is the middle of a star: a veth
pair leads to each server, and nothing else is connected. Namespaces and links have no names outside
of their processes, so they are gone when these have ended, whatever ended them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tidegate.fleet.connect import connect
from tidegate.spark.agent import agent_jar
from tidegate.spark.local.processes import LOOPBACK, Process, spark_environment, spark_home

__all__ = ["CUT_OFF", "FAULTS", "HUB", "Server", "enter", "why_not"]

HUB = "10.77.0.1"
"""The address of the program, on its loopback interface; servers reach it through their link."""
PORT = 15002
INSIDE = "TIDEGATE_IN_NAMESPACE"
LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex{8}
logger.connect.name = org.apache.spark.sql.connect.service.SparkConnectServer
logger.connect.level = info
"""


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


def why_not() -> str:
    """Why this machine cannot make network namespaces; empty if it can."""
    missing = [name for name in ("ip", "unshare", "nsenter") if shutil.which(name) is None]
    if missing:
        return f"there is no {missing[0]}"
    probe = "ip link set lo up && ip link add tg1 type veth peer name tg2"
    command = ["unshare", "--net", "sh", "-c", probe]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip()


def enter(module: str, words: list[str]) -> None:
    """Continue as the same module in a new network namespace."""
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        program = [sys.executable, "-m", module, *words]
        os.execvp("unshare", ["unshare", "--net", *program])
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{HUB}/32", "dev", "lo")


class Server:
    """A Connect server with the fleet's plugin, at the end of a link.

    number: from 1, unique in the program. folder: for its log and scratch files. jars: more jars,
    separated by commas.
    """

    def __init__(self, number: int, folder: Path, jars: str = "") -> None:
        self.number, self.folder, self.jars = number, folder, jars
        self.near, self.far = f"10.77.{number}.1", f"10.77.{number}.2"
        self.endpoint = f"sc://{self.far}:{PORT}"
        self.process = self._launch()
        self._link()

    @property
    def pid(self) -> int:
        return self.process.pid

    def ready(self, limit_s: float = 300.0) -> None:
        """Wait until it serves, and let it load the classes that queries need."""
        self.process.wait_for("Connect server started at", limit_s)
        session = connect(self.endpoint, "00000000-0000-0000-0000-00000000000" + str(self.number))
        session.range(10).groupBy().count().collect()
        session.stop()

    def processes(self) -> list[int]:
        """The processes in its namespace."""
        mine, found = Path(f"/proc/{self.pid}/ns/net").readlink(), []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if (folder / "ns/net").readlink() == mine:
                    found.append(int(folder.name))
            except OSError:  # it has just ended
                continue
        return found

    def close(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)
        self.process.kill()

    # --- faults: each returns what mends it -----------------------------------------------------

    def link_down(self) -> Callable[[], None]:
        """Set the link down: nothing passes either way."""
        name = f"tg{self.number}"
        run("ip", "link", "set", name, "down")
        return lambda: run("ip", "link", "set", name, "up")

    def deaf(self) -> Callable[[], None]:
        """Drop what the manager sends; what the server sends arrives."""
        route = ("blackhole", f"{self.far}/32")
        run("ip", "route", "add", *route)
        return lambda: run("ip", "route", "delete", *route)

    def mute(self) -> Callable[[], None]:
        """Drop what the server sends; what the manager sends arrives."""
        routes = [("blackhole", f"{self.near}/32"), ("blackhole", f"{HUB}/32")]
        for route in routes:
            self._inside("ip", "route", "add", *route)

        def mend() -> None:
            for route in routes:
                self._inside("ip", "route", "delete", *route)

        return mend

    def suspended(self) -> Callable[[], None]:
        """Suspend the server and its Python workers."""
        os.killpg(self.pid, signal.SIGSTOP)
        return lambda: os.killpg(self.pid, signal.SIGCONT)

    def driver_suspended(self) -> Callable[[], None]:
        """Suspend the server, but not its Python workers."""
        os.kill(self.pid, signal.SIGSTOP)
        return lambda: os.kill(self.pid, signal.SIGCONT)

    # --- inside ---------------------------------------------------------------------------------

    def _inside(self, *words: str) -> None:
        run("nsenter", "--target", str(self.pid), "--net", *words)

    def _link(self) -> None:
        mine = Path("/proc/self/ns/net").readlink()
        while Path(f"/proc/{self.pid}/ns/net").readlink() == mine:  # it has not left ours yet
            time.sleep(0.02)
        name = f"tg{self.number}"
        pair = ("type", "veth", "peer", "name", "tg0", "netns", str(self.pid))
        run("ip", "link", "add", name, *pair)
        run("ip", "address", "add", f"{self.near}/24", "dev", name)
        run("ip", "link", "set", name, "up")
        self._inside("ip", "address", "add", f"{self.far}/24", "dev", "tg0")
        self._inside("ip", "link", "set", "tg0", "up")
        self._inside("ip", "route", "add", "default", "via", self.near)

    def _spark_home(self) -> Path:
        """Spark without its zipped Python modules, which Python compiles anew in every process.

        With them, Python workers often take longer to start than the 10 s that Spark gives them.
        """
        view = self.folder / "spark"
        if not view.exists():
            view.mkdir()
            for part in ("bin", "jars", "sbin"):
                (view / part).symlink_to(spark_home() / part)
        return view

    def _launch(self) -> Process:
        self.folder.mkdir(parents=True, exist_ok=True)
        logging = self.folder / "log4j2.properties"
        logging.write_text(LOGGING, encoding="utf-8")
        conf = {
            "spark.plugins": "io.tidegate.spark.FleetPlugin",
            "spark.connect.grpc.binding.address": "0.0.0.0",  # nobody else is in its network
            "spark.connect.grpc.binding.port": str(PORT),
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.streaming.numRecentProgressUpdates": "20",
        }
        options = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={logging}"
        command = [
            *("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"),
            str(self._spark_home() / "bin" / "spark-submit"),
            *("--master", "local[2]", "--driver-memory", "640m"),
            *("--driver-java-options", options),
            *("--jars", ",".join(filter(None, (str(agent_jar()), self.jars)))),
            *(word for key, value in conf.items() for word in ("--conf", f"{key}={value}")),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *("--name", f"server {self.number}", "spark-internal"),
        ]
        env = spark_environment(self.folder) | {"SPARK_HOME": str(self._spark_home())}
        env.setdefault("PYSPARK_PYTHON", sys.executable)
        for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE"):
            env.pop(name, None)  # these settings are for clients
        return Process(command, self.folder / "server.log", env)


FAULTS: dict[str, Callable[[Server], Callable[[], None]]] = {
    "link down": Server.link_down,
    "one way, to the server": Server.deaf,
    "one way, from the server": Server.mute,
    "suspended": Server.suspended,
    "driver suspended": Server.driver_suspended,
}
"""The faults by name."""
CUT_OFF = ("link down", "one way, to the server", "one way, from the server")
"""Faults in which the server goes on, and has to stop the query before it runs elsewhere. A server
that was suspended may still call the function of the batch that it had begun."""
