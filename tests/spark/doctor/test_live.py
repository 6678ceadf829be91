"""The doctor on a real cluster, with a job that is wrong on purpose: before it starts and after."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import tidegate
from tests.spark.autoscaler.live import LIGHT, until
from tests.spark.doctor import wrong_job
from tidegate.errors import SettingError
from tidegate.spark import LocalCluster
from tidegate.spark.agent import PLUGIN, agent_jar
from tidegate.spark.autoscaler.agent import AgentGateway, announced
from tidegate.spark.local.processes import Process, spark_home

pytestmark = pytest.mark.java

ASKED = ("--slo", "1s", "--max-executors", "4")
EVERYWHERE = {
    "spark.dynamicAllocation.enabled": "blocks",
    "spark.sql.shuffle.partitions": "limits",
    "spark.locality.wait": "limits",
}
"""What is wrong with it wherever one looks."""


@dataclass
class Wrong:
    """The job. words: its command line for spark-submit. folder: its input and its checkpoint."""

    words: list[str]
    folder: Path
    process: Process
    files: int = 0

    def feed(self, files: int = 30) -> None:
        """Write input, one batch a file."""
        for _ in range(files):
            self.files += 1
            new = self.folder / "in" / f".{self.files}"
            new.write_text("ebb\nflow\nebb\n", encoding="ascii")
            new.rename(self.folder / "in" / f"{self.files}.txt")

    @property
    def batches(self) -> int:
        """Batches that were committed."""
        return len(list((self.folder / "checkpoint" / "commits").glob("[0-9]*")))


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wrong]:
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "in").mkdir()
    with LocalCluster(cores=2, memory_mb=512, max_hosts=1).start(hosts=1) as cluster:
        settings = {
            **cluster.conf(),
            **LIGHT,
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.plugins": PLUGIN,
            "spark.tidegate.agent.port": "0",
            "spark.tidegate.agent.announce": str(folder / "agent.json"),
        }
        words = ["--master", cluster.url, "--jars", str(agent_jar())]
        words += [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
        program = str(spark_home() / "bin" / "spark-submit")
        env = os.environ | cluster.environment() | {"PYSPARK_PYTHON": sys.executable}
        script = str(Path(wrong_job.__file__))
        process = Process([program, *words, script, str(folder)], folder / "log", env)
        job = Wrong([*words, script, str(folder)], folder, process)
        try:
            job.feed()
            until("three batches", lambda: job.batches >= 3 or not process.running)
            assert process.running, (folder / "log").read_text()[-2000:]
            yield job
        finally:
            process.kill()


def found(job: Wrong, *words: str) -> tuple[dict[str, str], set[str], dict[str, Any]]:
    """Severities by key, and checks that could not be made."""
    done = tidegate("doctor", "--json", *ASKED, *words)
    assert done.returncode == 1, done.stderr
    read = json.loads(done.stdout)
    severities = {finding["key"]: finding["severity"] for finding in read["findings"]}
    return severities, {one["check"] for one in read["not_checked"]}, read


def test_the_command_line_and_the_code_show_it_before_it_starts(wrong: Wrong) -> None:
    severities, missing, read = found(wrong, *wrong.words)
    assert severities == {
        "spark.dynamicAllocation.enabled": "blocks",
        "--slo of query words": "limits",
        "maxFilesPerTrigger of query words": "limits",
        "spark.sql.shuffle.partitions": "limits",
        "spark.locality.wait": "limits",
    }
    remedies = {finding["key"]: finding["remedy"] for finding in read["findings"]}
    assert "change it in wrong_job.py, line" in remedies["spark.dynamicAllocation.enabled"]
    assert {"source-partitions", "state-partitions", "settings-in-code"} <= missing


def test_the_spark_ui_shows_it_without_the_agent(wrong: Wrong) -> None:
    severities, missing, read = found(wrong, (wrong.folder / "ready").read_text())
    assert severities == {**EVERYWHERE, "tasks of query words": "limits"}
    assert {"triggers", "rate-limits", "slo-and-trigger"} <= missing
    assert read["subject"].startswith("wrong (app-")


def test_the_agent_shows_all_of_it(wrong: Wrong) -> None:
    wrong.feed()  # so that batches go on while the doctor listens
    severities, missing, _ = found(wrong, str(wrong.folder / "agent.json"), "--wait", "5m")
    wanted = {
        "spark.dynamicAllocation.enabled": "blocks",
        "--slo of query words": "limits",
        "maxFilesPerTrigger of query words": "limits",
        "tasks of query words": "limits",
        "state of query words": "limits",
        "spark.locality.wait": "limits",
    }
    assert severities == wanted, "state has its partitions already, whatever the setting says"
    assert missing == set()


def test_the_agent_says_where_the_checkpoint_is(wrong: Wrong) -> None:
    url, token = announced(wrong.folder / "agent.json")
    gateway = AgentGateway(url, token, watch_only=True)
    (query,) = gateway.active_queries()
    assert str(gateway.checkpoint_of(query)).endswith(f"{wrong.folder}/checkpoint")


def test_the_autoscaler_refuses_what_the_doctor_says_blocks(wrong: Wrong) -> None:
    url, token = announced(wrong.folder / "agent.json")
    with pytest.raises(SettingError, match=r"spark\.dynamicAllocation\.enabled is 'true'"):
        AgentGateway(url, token)


def test_the_job_goes_on(wrong: Wrong) -> None:
    wrong.feed(3)
    before = wrong.batches
    until("another batch", lambda: wrong.batches > before or not wrong.process.running)
    assert wrong.process.running
