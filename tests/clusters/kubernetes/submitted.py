"""A job that was submitted with ``tidegate submit``, and what its test sees of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

from tests.clusters.kubernetes.cluster import KubernetesCluster
from tests.clusters.kubernetes.containers import of_this_machine
from tests.spark.autoscaler import ticks
from tidegate.errors import BackendError
from tidegate.lifecycle import Service
from tidegate.loop.controls import Control, submit
from tidegate.loop.journal import Turn, read_journal
from tidegate.spark.local.processes import Process, spark_home

__all__ = ["LIMIT_S", "SETTINGS", "Submitted"]

LIMIT_S = 600.0
"""Nothing takes so long on an idle machine; it is there for one that is very busy."""
TIDEGATE = "import sys; from tidegate.cli import main; sys.argv[0] = 'tidegate'; main()"
# A JVM that lives for a minute is through sooner when it does not optimise.
_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SETTINGS = {
    "spark.executor.cores": "2",
    "spark.executor.memory": "512m",
    "spark.executor.instances": "1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": _OPTIONS,
    "spark.executor.extraJavaOptions": _OPTIONS,
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.task.maxFailures": "8",
    # As in deploy/kubernetes/driver.yaml: Kubernetes removes these with the driver.
    "spark.kubernetes.driver.service.deleteOnTermination": "false",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
}


class Submitted(Service):
    """A job with its journal and its files, fed by the test.

    Args:
        cluster: Where it runs.
        folder: For its files.
        app: The application's file or address; it gets the folder as its argument.
        options: Of ``tidegate submit``.
        settings: Of Spark.
    """

    def __init__(
        self,
        cluster: KubernetesCluster,
        folder: Path,
        app: str,
        options: list[str],
        settings: Mapping[str, str],
    ) -> None:
        self.cluster, self.folder, self.app = cluster, folder, app
        self.options, self.settings = options, settings
        self.journal = folder / "journal.jsonl"
        self.program = [sys.executable, "-c", TIDEGATE, "submit", "--journal", str(self.journal)]
        self.files = 0
        self.process: Process | None = None

    def start(self) -> Self:
        """Submit it."""
        (self.folder / "in").mkdir(parents=True)
        confs = [word for k, v in self.settings.items() for word in ("--conf", f"{k}={v}")]
        command = [
            *(*self.program, *self.options, "--master", self.cluster.master, *confs),
            *(self.app, str(self.folder)),
        ]
        env = of_this_machine() | {"SPARK_LOCAL_IP": "127.0.0.1"}
        self.process = Process(command, self.folder / "driver.log", env)
        return self

    def by_spark_submit(self) -> Self:
        """Let Spark's own program submit it, to the cluster."""
        self.program = [str(spark_home() / "bin" / "spark-submit"), "--deploy-mode", "cluster"]
        return self

    def stop(self) -> None:
        """Kill what is left of it."""
        if self.process is not None:
            self.process.kill()

    @property
    def log(self) -> str:
        """What the driver has printed."""
        return (self.folder / "driver.log").read_text(encoding="utf-8", errors="replace")

    def end(self) -> int:
        """Let it end by itself; its exit code."""
        (self.folder / "stop").touch()
        process = self.process
        assert process is not None
        self._wait("the job ends", lambda: not process.running)
        code = process.exit_code
        assert code is not None
        return code

    def until(self, what: str, true: Callable[[], object], limit_s: float = LIMIT_S) -> None:
        """Wait until something is true while the job runs."""
        self._wait(what, true, self._check, limit_s)

    def after_the_end(self, what: str, true: Callable[[], object]) -> None:
        """Wait until something is true, after the job has ended."""
        self._wait(what, true)

    def _wait(
        self,
        what: str,
        true: Callable[[], object],
        check: Callable[[str], None] = lambda _: None,
        limit_s: float = LIMIT_S,
    ) -> None:
        end_s = time.monotonic() + limit_s
        while not true():
            check(what)
            assert time.monotonic() < end_s, f"not in {limit_s:g} s: {what}; {self._tail()}"
            time.sleep(0.2)

    def _check(self, what: str) -> None:
        process = self.process
        assert process is not None and process.running, f"ended before {what}; {self._tail()}"

    def _tail(self) -> str:
        notes = self.said[-3:]
        return f"last lines of {self.folder / 'driver.log'}: {self.log[-1500:]}\njournal: {notes}"

    # --- rows ---------------------------------------------------------------------------------

    def feed(self, files: int = 1) -> None:
        """More input for `ticks`."""
        ticks.write_input(self.folder / "in", self.files, files)
        self.files += files

    def works(self) -> None:
        """Feed a file and wait for its rows; the output must be that of a batch, exactly."""
        self.feed()
        wanted = ticks.batch_result(self.folder / "in")
        self.until(
            "all rows are written", lambda: len(ticks.written(self.folder / "out")) >= len(wanted)
        )
        assert ticks.written(self.folder / "out") == wanted

    # --- the autoscaler -----------------------------------------------------------------------

    @property
    def turns(self) -> list[Turn]:
        """The turns of the journal so far."""
        return list(read_journal(self.journal)) if self.journal.exists() else []

    @property
    def said(self) -> list[str]:
        """What the journal says about changes that were refused, and their cost, in order."""
        return list(self._sentences())

    def _sentences(self) -> Iterator[str]:
        for turn in self.turns:
            if turn.error:
                yield turn.error
            if turn.outcome is not None:
                yield from (*turn.outcome.refused, *turn.outcome.notes)

    def says(self, part: str) -> bool:
        """Whether the journal has a sentence with these words."""
        return any(part in sentence for sentence in self.said)

    def want(self, hosts: int) -> None:
        """Let the policy ``static`` want another number of executors."""
        control = Control("policy", "static", {"hosts": hosts}, time.time())

        def sent() -> bool:
            try:
                submit(self.journal, control)
            except BackendError:
                return False
            return True

        self.until("the loop listens", sent)

    @property
    def statuses(self) -> list[str]:
        """The statuses of the hosts in the last snapshot."""
        seen = [turn.snapshot for turn in self.turns[-1:] if turn.snapshot is not None]
        return sorted(host.status for snapshot in seen for host in snapshot.hosts)

    def pods_of(self, status: str) -> list[str]:
        """The pods of the hosts with a status in the last snapshot."""
        seen = [turn.snapshot for turn in self.turns[-1:] if turn.snapshot is not None]
        return [h.pod or "" for snapshot in seen for h in snapshot.hosts if h.status == status]

    def has(self, executors: int) -> None:
        """Wait until so many executors run, by the journal and by the pods, and no others."""
        self.until(
            f"{executors} executors run",
            lambda: self.statuses == ["running"] * executors and self.pods() == executors,
        )

    def pods(self) -> int:
        """The number of executor pods, in any phase."""
        return len(self.cluster.pods())
