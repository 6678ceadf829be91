"""The embedded cluster's secret is in environments only. Live: tests/spark/autoscaler/test_live."""

from __future__ import annotations

import os
import re
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tests.spark.local.doors import answer_without_secret, doors, is_refused
from tidegate.spark.local import cluster as module
from tidegate.spark.local.cluster import LocalCluster


class Launched:
    """In place of a process: keeps its command and environment."""

    pid = 1

    def __init__(self, command: list[str], log: Path, env: dict[str, str]) -> None:
        self.command, self.env = command, env

    def wait_for(self, *_: Any) -> re.Match[str] | None:
        return re.search(r"(\d+)", "7077")

    def kill(self) -> None:
        pass


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    monkeypatch.setattr(module, "Process", Launched)
    monkeypatch.setattr(module, "check_memory", lambda *_: None)
    return LocalCluster(folder=tmp_path).start(hosts=1)


def secret_of(cluster: LocalCluster) -> str:
    (secret,) = cluster.environment().values()
    return secret


def test_master_and_workers_authenticate_with_a_secret_from_the_environment(
    cluster: LocalCluster,
) -> None:
    secret = secret_of(cluster)
    assert len(secret) == 64
    launched: list[Any] = [cluster._master, *cluster.workers.values()]
    for process in launched:
        options = process.env["SPARK_DAEMON_JAVA_OPTS"]
        assert process.env["_SPARK_AUTH_SECRET"] == secret
        for setting in (
            "spark.authenticate=true",
            "spark.master.rest.enabled=false",
            "spark.ui.killEnabled=false",
            "spark.master.ui.decommission.allow.mode=DENY",
        ):
            assert f"-D{setting}" in options.split()
        assert secret not in " ".join(process.command) + options


def test_each_cluster_has_a_secret_of_its_own(tmp_path: Path) -> None:
    assert secret_of(LocalCluster(folder=tmp_path)) != secret_of(LocalCluster(folder=tmp_path))


def test_settings_have_no_secret_and_require_one(cluster: LocalCluster) -> None:
    conf = cluster.conf()
    assert conf["spark.authenticate"] == "true"
    assert "spark.authenticate.secret" in conf  # a driver does not start without it
    assert secret_of(cluster) not in str(conf)


def test_the_jvm_of_a_session_starts_without_the_secret(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[SparkConf] = []
    options: dict[str, Any] = {}

    class Builder:
        def appName(self, name: str) -> Builder:
            return self

        def master(self, url: str) -> Builder:
            return self

        def config(self, key: str, value: Any) -> Builder:
            options[key] = value
            return self

        def getOrCreate(self) -> str:
            return "session"

    monkeypatch.setattr(SparkContext, "_jvm", None)

    def start(conf: SparkConf) -> None:
        started.append(conf)

    monkeypatch.setattr(SparkContext, "_ensure_initialized", start)
    monkeypatch.setattr(SparkSession, "builder", Builder())
    settings: dict[str, Any] = {"spark.eventLog.enabled": False}
    session: Any = cluster.session(**settings)
    assert session == "session"
    (conf,) = started
    first = dict(conf.getAll())
    assert first["spark.eventLog.enabled"] == "false" and first["spark.master"] == cluster.url
    assert secret_of(cluster) not in str(first)
    assert options["spark.authenticate.secret"] == secret_of(cluster)


def test_the_check_of_doors_sees_an_open_one() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        (door,) = [one for one in doors([os.getpid()]) if one.port == port]
        assert not door.address.is_loopback
        assert not is_refused("127.0.0.2", port)
        server.accept()[0].close()

        def hang_up() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert answer_without_secret(port) == b""
        thread.join()
    assert is_refused("127.0.0.1", port)
