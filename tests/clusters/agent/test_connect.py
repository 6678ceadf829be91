"""A Spark Connect server with the agent: one controller scales it for all of its clients."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clusters.agent import client
from tests.clusters.agent.standalone import (
    BUSY_PER_S,
    BY_LOAD,
    FEW_PER_S,
    HOSTS,
    QUICK,
    attach,
    environment,
    executors,
    group,
    measured,
    with_agent,
)
from tests.clusters.submitted import Command, Feed
from tidegate.lifecycle import wait_until
from tidegate.loop.journal import Turn, read_journal
from tidegate.spark.local.cluster import LocalCluster
from tidegate.spark.local.processes import spark_home

pytestmark = [pytest.mark.agent, pytest.mark.java]

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
NAMES = {"invoices", "payments"}


class Client(Command):
    """A client with its feed. url: of the server. name: of its query. folder: made for it."""

    def __init__(self, url: str, name: str, folder: Path) -> None:
        self.feed = Feed(folder / "in")
        words = [sys.executable, str(Path(client.__file__)), url, name, str(folder)]
        super().__init__(words, folder, name, environment())
        try:
            self.until("its query runs", (folder / "started").exists)
        except BaseException:
            self.close()
            raise

    def end(self) -> int:
        """Let it end by itself; return its exit code."""
        (self.folder / "stop").touch()
        return self.process.wait(300)

    def close(self) -> None:
        """Stop the feed and the client."""
        self.feed.close()
        super().close()


def turns(folder: Path) -> list[Turn]:
    """The complete turns of the controller's journal."""
    journal = folder / "tidegate.jsonl"
    found = read_journal(journal) if journal.exists() else []
    return [turn for turn in found if turn.snapshot is not None]


def test_two_clients_are_seen_and_scaled_by_one_controller(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    agent, url = tmp_path / "agent", f"sc://127.0.0.1:{port}"
    words = [*with_agent(cluster, agent, **address), "--class", SERVER]
    command = [str(spark_home() / "bin" / "spark-submit"), *words]
    with ExitStack() as stack:
        server = stack.enter_context(Command(command, tmp_path, "server", environment(cluster)))
        server.until("it listens", agent.exists)
        server.until("it answers", lambda: _answers(port))
        name = json.loads(agent.read_text(encoding="utf-8"))["application"]
        clients = [stack.enter_context(Client(url, one, tmp_path / one)) for one in sorted(NAMES)]
        controller = stack.enter_context(attach(agent, tmp_path, "attach", *QUICK, *BY_LOAD))
        for one in clients:
            one.feed.per_s = FEW_PER_S
        controller.until("it measures both queries", lambda: {*measured(turns(tmp_path))} == NAMES)
        for one in clients:
            one.feed.per_s = 0.0
        controller.until("without load one is left", lambda: len(executors(name)) == 1)
        for one in clients:
            one.feed.per_s = BUSY_PER_S / 2
        controller.until("it grows with both", lambda: len(executors(name)) == HOSTS)
        gone, stays = clients
        assert gone.end() == 0
        rest = {stays.log.stem}
        controller.until("one query is left", lambda: {*measured(turns(tmp_path))} == rest)
        stays.feed.per_s = 0.0
        controller.until("it shrinks", lambda: len(executors(name)) == 1)
        assert stays.end() == 0
        os.kill(server.process.pid, signal.SIGTERM)
        server.process.wait(300)
        assert controller.process.wait(300) == 0
        assert controller.says("the application has ended")
        assert not group(server.process.pid)
        assert wait_until(lambda: not executors(name), 120), "its executors end"


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
