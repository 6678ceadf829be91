"""A storm over an application that reads from Kafka, whose broker is killed and paused.

Everything else is as in `tests.storm.application`. It needs Kafka's jars: ``make kafka``.

    python -m tests.storm.kafka FOLDER FAULTS SEED...
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from unittest.mock import patch

from tests.storm import watch
from tests.storm.application import Application, Cluster, main
from tests.storm.seed import Happened, stopped
from tests.storm.watch import Shows
from tidegate.loop.journal import Turn
from tidegate.spark.agent import agent_jar
from tidegate.spark.local.broker import LocalBroker
from tidegate.spark.local.kafka_jars import connector_jars

KINDS = {
    "broker killed": 5,
    "broker paused": 5,
    "executor killed": 1,
    "controller killed": 1,
    "driver paused": 1,
    "missing metrics": 1,
    "full disk": 1,
}
"""Kinds of faults with their weights."""


class KafkaCluster(Cluster):
    """A cluster with a broker. folder: for everything."""

    def __init__(self, folder: Path) -> None:
        with contextlib.ExitStack() as stack:
            self.broker = stack.enter_context(LocalBroker(folder=folder / "broker"))
            super().__init__(folder)
            self._with_broker = stack.pop_all()

    def close(self) -> None:
        """End all processes."""
        super().close()
        self._with_broker.close()

    def more_words(self) -> list[str]:
        """The connector, next to the agent."""
        return ["--jars", f"{agent_jar()},{connector_jars()}"]

    def restart_broker(self, away_s: float) -> None:
        """Kill the broker; start it again at the same address after some seconds."""
        ports = list(self.broker.ports.values())
        assert self.broker._process is not None
        self.broker._process.kill()
        time.sleep(away_s)
        with patch("tidegate.spark.local.broker._free_ports", return_value=ports):
            self.broker.start()


class KafkaApplication(Application):
    """The world of a seed."""

    name = "kafka"
    cluster: KafkaCluster

    def servers(self) -> str:
        """The address of the broker."""
        return self.cluster.broker.address()

    def kinds(self) -> dict[str, int]:
        """Those of the broker, and some others."""
        return KINDS

    def _broker_killed(self) -> Happened:
        before, began_s = self.watch.last, time.monotonic()
        self.cluster.restart_broker(self.rng.choice((0.0, 3.0)))
        away_s = time.monotonic() - began_s
        return Happened(f"broker, away for {away_s:.1f} s", broker_silent(before, 0.5 * away_s))

    def _broker_paused(self) -> Happened:
        before, pause_s = self.watch.last, self.rng.choice((4.0, 8.0))
        pid = self.cluster.broker.pid
        with stopped([pid] if pid is not None else []):
            time.sleep(pause_s)
        return Happened(f"broker, for {pause_s:g} s", broker_silent(before, 0.5 * pause_s))


def broker_silent(before: Turn | None, pause_s: float) -> Shows:
    """A batch that took so long, or a source that did not answer before there was one."""
    return watch.either(watch.slow_batch(before, pause_s), watch.silent_source(pause_s))


if __name__ == "__main__":
    main(KafkaCluster, KafkaApplication)
