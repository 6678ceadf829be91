"""The autoscaler on a real cluster: few tests, in an order that lets each use what is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.spark.autoscaler import ticks
from tests.spark.autoscaler.live import (
    CONF,
    LIGHT,
    LIMIT_S,
    Live,
    Obedient,
    Order,
    Stream,
    end_other_sessions,
    live,
    running,
    stream,
    until,
)
from tests.spark.local.doors import (
    answer_to_submission,
    answer_without_secret,
    command_lines,
    doors,
    files_with,
    groups,
    is_refused,
    other_addresses,
)
from tests.spark.streams.chains import kafka_jars
from tidegate.errors import SettingError
from tidegate.loop.journal import Turn, read_journal
from tidegate.spark import Autoscaler
from tidegate.testing import check_backend

pytestmark = pytest.mark.java

__all__ = ["live", "stream"]

QUICK: dict[str, Any] = {"slo": "5s", "interval": "1s", "stabilise": "1ms"}


def turns(journal: Path) -> list[Turn]:
    return list(read_journal(journal)) if journal.exists() else []


def steps(journal: Path) -> list[str]:
    """Hosts leased and released, in order."""
    done = [step for turn in turns(journal) if turn.outcome for step in turn.outcome.steps]
    return [str(step) for step in done if step.kind in ("lease", "release")]


def executor_of(autoscaler: Autoscaler, host: str) -> str | None:
    """The executor that is on a host now, None while it is to come."""
    known = autoscaler.world.hosts.hosts.get(host)
    return known.executor.id if known is not None and known.executor is not None else None


# --- settings ---------------------------------------------------------------------------------


@pytest.fixture
def local_session() -> Iterator[SparkSession]:
    end_other_sessions()
    settings = {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        **LIGHT,  # what its JVM is started with, the sessions after it get too
        "spark.jars": kafka_jars(),
    }
    builder = SparkSession.builder.appName("local")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    yield spark
    spark.stop()


def test_what_cannot_be_scaled_is_refused(local_session: SparkSession) -> None:
    conf = local_session.sparkContext._conf
    conf.set("spark.dynamicAllocation.enabled", "true")
    with pytest.raises(SettingError, match="two autoscalers on one application"):
        Autoscaler(local_session, slo="5s", journal=None)
    conf.set("spark.dynamicAllocation.enabled", "false")
    with pytest.raises(SettingError, match="a local master has no executors to add"):
        Autoscaler(local_session, slo="5s", journal=None)
    Autoscaler(local_session, slo="5s", journal=None, dry_run=True)


# --- on the cluster ---------------------------------------------------------------------------


def test_executors_follow_the_policy_and_no_row_is_lost_or_repeated(
    live: Live, stream: Stream, tmp_path: Path
) -> None:
    order, journal = Order(hosts=2), tmp_path / "journal.jsonl"
    stream.feed(1)
    with Autoscaler(
        live.spark, policy=Obedient(order), cluster=live.cluster, journal=journal, **QUICK
    ) as autoscaler:
        until("the second host runs", lambda: running(autoscaler) == ["host-1", "host-2"])
        stream.feed(2)
        order.hosts = 1
        until("it is released", lambda: "release host-2" in steps(journal))
        until("it is gone", lambda: "host-2" not in live.cluster.workers)
        until("one runs", lambda: running(autoscaler) == ["host-1"])
        stream.feed(1)
        stream.check()
    assert steps(journal) == ["lease host-2", "release host-2"]
    log = next((live.cluster.folder / "logs").glob("host-2-*.log")).read_text()
    assert "Decommission" in log, "it left in good order"
    seen = [turn.snapshot.host.get("host-2") for turn in turns(journal) if turn.snapshot]
    statuses = [host.status for host in seen if host]
    assert statuses[0] == "starting" and "running" in statuses
    names = {(h.executor, h.address) for h in seen if h and h.status == "running"}
    assert len(names) == 1, "one executor was on it"
    executor, address = names.pop()
    assert executor is not None and executor.isdecimal() and address == "127.0.0.1"
    assert all(turn.error is None and turn.plan and turn.plan.reasons for turn in turns(journal))


def test_the_live_world_keeps_the_contract_of_backends(live: Live, stream: Stream) -> None:
    autoscaler = Autoscaler(
        live.spark, policy=Obedient(), cluster=live.cluster, journal=None, **QUICK
    )  # its world, without its loop
    autoscaler.world.start()
    check_backend(autoscaler.world, lambda: time.sleep(0.5), turns=round(LIMIT_S / 0.5))
    autoscaler.stop()


def test_nobody_else_can_use_the_cluster_or_the_driver(live: Live) -> None:
    cluster = live.cluster
    (secret,) = cluster.environment().values()
    assert cluster._master is not None
    leaders = [cluster._master.pid, *(worker.pid for worker in cluster.workers.values())]
    driver = SparkContext._gateway.proc.pid  # type: ignore[union-attr]
    here = doors([*groups(leaders), driver])
    assert {door.pid for door in here} >= {*leaders, driver}
    assert [door for door in here if not door.address.is_loopback] == []
    reached = [(at, d.port) for at in other_addresses() for d in here if not is_refused(at, d.port)]
    assert reached == []
    daemons = [door.port for door in here if door.pid in leaders]
    assert [port for port in daemons if b"Submission" in answer_to_submission(port)] == []
    # Web pages do not understand the call; the remaining ports demand the secret.
    ports = [int(cluster.url.rpartition(":")[2])]
    ports += [int(live.spark.conf.get("spark.driver.port") or 0)]
    for port in ports:
        assert b"SaslMessage" in answer_without_secret(port)
    assert [pid for pid, line in command_lines().items() if secret.encode() in line] == []
    assert files_with(cluster.folder, secret) == []


def test_killed_executors_and_workers_lose_and_repeat_nothing(live: Live, stream: Stream) -> None:
    stream.feed(2)
    with Autoscaler(
        live.spark, policy=Obedient(), cluster=live.cluster, journal=None, **QUICK
    ) as autoscaler:
        until("the host runs", lambda: running(autoscaler) == ["host-1"])
        first = executor_of(autoscaler, "host-1")
        (victim,) = live.executor_pids("host-1")
        os.kill(victim, signal.SIGKILL)
        until("it is replaced", lambda: executor_of(autoscaler, "host-1") not in (None, first))
        until("the host runs again", lambda: running(autoscaler) == ["host-1"])
        stream.feed(2)
        os.kill(live.cluster.workers["host-1"].pid, signal.SIGKILL)
        until("the host is gone", lambda: "host-1" not in live.cluster.workers)
        until("another runs in its place", lambda: running(autoscaler) == ["host-2"])
        stream.check()


def test_a_policy_that_fails_takes_nothing_down_and_memory_outlives_the_autoscaler(
    live: Live, stream: Stream, tmp_path: Path
) -> None:
    order, journal = Order(error="out of ideas"), tmp_path / "journal.jsonl"
    quick = QUICK | {"interval": "300ms"}
    with Autoscaler(
        live.spark, policy=Obedient(order), cluster=live.cluster, journal=journal, **quick
    ) as autoscaler:
        until("it only watches", lambda: autoscaler.watching)
        assert stream.query.isActive
        order.error = ""
        until("it has resumed", lambda: autoscaler.last and not autoscaler.last.error)
        assert not autoscaler.watching
    errors = [turn.error for turn in turns(journal)]
    assert errors[:3] == ["RuntimeError: out of ideas"] * 3 and errors[-1] is None

    learnt = tmp_path / "learnt.jsonl"
    sarsa: dict[str, Any] = quick | {"policy": "sarsa", "max_executors": 1, "journal": learnt}
    with Autoscaler(live.spark, cluster=live.cluster, **sarsa):
        until("three turns", lambda: len(turns(learnt)) >= 3)
    last = turns(learnt)[-1]
    again = Autoscaler(live.spark, cluster=live.cluster, **sarsa)
    assert again.policy.save_memory(again.controller.memory) == last.memory
    assert again.controller.memory != again.policy.initial_memory()
    again.stop()


# --- tidegate submit --------------------------------------------------------------------------


def submit(live: Live, folder: Path, files: int) -> subprocess.Popen[str]:
    """The application by itself, with an autoscaler that wants one executor."""
    conf = {
        **live.cluster.conf(),
        **CONF,
        "spark.log.level": "ERROR",
        "spark.local.dir": str(folder / "scratch"),
    }
    command = [
        *(sys.executable, "-c", "from tidegate.cli import main; main()", "submit"),
        *("--slo", "5s", "--policy", "static", "--set", "hosts=1"),
        *("--interval", "1s", "--stabilise", "1ms", "--journal", str(folder / "journal.jsonl")),
        *("--master", live.cluster.url),
        *(word for key, value in conf.items() for word in ("--conf", f"{key}={value}")),
        str(Path(ticks.__file__)),
        *(str(folder / name) for name in ("in", "out", "checkpoint")),
        str(files),
    ]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | live.cluster.environment(),
        text=True,
        start_new_session=True,
    )


def test_a_driver_killed_while_it_scales_and_started_again_is_exact(
    live: Live, tmp_path: Path
) -> None:
    live.spark.stop()  # its executors make room
    live.cluster.lease("another")
    live.cluster.wait_for_host("another")
    files, journal = 4, tmp_path / "journal.jsonl"
    # The application waits for the other half, so that it cannot have ended when it is killed.
    ticks.write_input(tmp_path / "in", 0, files // 2)

    first = submit(live, tmp_path, files)
    try:
        # Without a limit it gets an executor on both hosts, of which one is then released.
        until(
            "it is releasing", lambda: first.poll() is not None or "release" in str(steps(journal))
        )
        assert first.poll() is None, first.communicate()[0]
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
    ticks.write_input(tmp_path / "in", files // 2, files // 2)
    scaled = len(turns(journal))

    second = submit(live, tmp_path, files)
    try:
        said, _ = second.communicate(timeout=LIMIT_S)
    finally:
        if second.poll() is None:
            os.killpg(second.pid, signal.SIGKILL)
    assert second.returncode == ticks.ENDED_WELL, said
    assert "ticks: started" in said and "ticks: done" in said
    assert ticks.written(tmp_path / "out") == ticks.batch_result(tmp_path / "in")
    assert len(turns(journal)) > scaled, "the journal goes on"
