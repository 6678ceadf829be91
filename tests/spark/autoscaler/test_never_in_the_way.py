"""No journal, port, version, disk or lock ends or delays the application."""

from __future__ import annotations

import gc
import itertools
import json
import re
import socket
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.request import urlopen

import pytest

from tests.spark.autoscaler.fakes import FakeWorld, without_spark
from tidegate.codec import to_json
from tidegate.errors import BackendError
from tidegate.loop.journal import Journal, Turn, read_journal
from tidegate.model import InstanceReading, Plan, Snapshot
from tidegate.model.topology import Resources
from tidegate.report.metrics import ServedMetrics
from tidegate.spark.autoscaler import autoscaler as module
from tidegate.spark.autoscaler import world as world_module
from tidegate.spark.autoscaler.attachment import Attachment
from tidegate.spark.autoscaler.autoscaler import Autoscaler, DryRunAccount
from tidegate.spark.autoscaler.submitted import run
from tidegate.testing import steady_snapshot
from tidegate.testing.spark import FakeGateway as SparkGateway

LONG_S = 60.0
"""For what must happen, however slow the machine is."""

ANY: Any = None
"""In place of a session."""


def autoscaler(journal: Path | None, **settings: Any) -> Autoscaler:
    return Autoscaler(ANY, slo="5s", policy="static", interval=0.01, journal=journal, **settings)


def ends(do: Callable[[], object]) -> bool:
    """Whether something ends, in a thread of its own so that the test ends in any case."""
    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    thread.join(LONG_S)
    return not thread.is_alive()


# --- what is in the way of the journal --------------------------------------------------------


def damaged(path: Path) -> None:
    lines = [to_json(Turn(n, "static", steady_snapshot())) for n in (1, 2, 3)]
    path.write_text("\n".join([lines[0], lines[1][:70], lines[2]]) + "\n")


def newer(path: Path) -> None:
    plain = json.loads(to_json(Turn(1, "static", steady_snapshot())))
    path.write_text(json.dumps(plain | {"mood": "calm", "version": 9}) + "\n")


def folder(path: Path) -> None:
    path.mkdir()


def binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 40)


def unwritable(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("a file where the folder should be")


HINDRANCES = [damaged, newer, folder, binary, unwritable]


@pytest.mark.parametrize("hinder", HINDRANCES)
def test_the_autoscaler_starts_and_scales(hinder: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "folder" / "tidegate.jsonl"
    path.parent.mkdir()
    hinder(path)
    world = FakeWorld()
    with without_spark(world), autoscaler(path) as scaler:
        assert world.turned.wait(LONG_S)
    assert scaler.last is not None and scaler.last.error is None
    if scaler.journal is not None:
        assert list(read_journal(scaler.journal.path))[-1].number == scaler.last.number


def test_a_journal_that_opens_late_is_there_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, world = threading.Event(), FakeWorld()

    def slow(name: Path) -> Journal:
        go.wait()
        return Journal(name)

    monkeypatch.setattr("tidegate.loop.records.OPEN_S", 0.05)
    monkeypatch.setattr("tidegate.loop.records.Journal", slow)
    with without_spark(world):
        scaler = autoscaler(tmp_path / "j.jsonl")
        assert scaler.journal is None
        go.set()
        assert scaler.records.opening is not None and scaler.records.opening.ended(LONG_S)
        with scaler:
            assert world.turned.wait(LONG_S)
    assert scaler.journal is not None and scaler.journal.path == tmp_path / "j.jsonl"
    assert list(read_journal(scaler.journal.path))


def test_a_clock_of_this_machine_that_was_set_is_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, ended = FakeWorld(), threading.Event()

    def look(turn: Turn) -> None:
        if turn.notes:
            ended.set()

    with without_spark(world):
        scaler = autoscaler(tmp_path / "j.jsonl", on_turn=look)
        news = iter(["the clock was set"])
        monkeypatch.setattr(scaler._machine, "news", lambda: next(news, ""))
        with scaler:
            assert ended.wait(LONG_S)
    notes = [turn.notes for turn in read_journal(tmp_path / "j.jsonl") if turn.notes]
    assert notes == [("the clock was set",)]


@pytest.mark.parametrize("hinder", HINDRANCES)
def test_a_submitted_application_runs_to_its_own_end(
    hinder: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "folder" / "tidegate.jsonl"
    path.parent.mkdir()
    hinder(path)
    assert submitted(tmp_path, Attachment("5s", "static", interval="10ms", journal=str(path))) == 7
    assert "Traceback" not in capsys.readouterr().err


def test_an_occupied_port_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        attachment = Attachment(
            "5s", "static", interval="10ms", metrics=ServedMetrics(f"127.0.0.1:{port}")
        )
        assert submitted(tmp_path, replace(attachment, journal=str(tmp_path / "j.jsonl"))) == 7
    (warning,) = [text for text in capsys.readouterr().err.splitlines() if "metrics" in text]
    assert warning.startswith("tidegate: there are no metrics: --metrics-port is")
    turns = list(read_journal(tmp_path / "j.jsonl"))
    assert len(turns) >= 3, "it scales all the same"
    assert turns[0].notes == (warning.removeprefix("tidegate: "),)
    assert not any(turn.notes for turn in turns[1:])


def test_a_bad_certificate_in_the_driver_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_METRICS_TOKEN", "tide-and-gate-and-tide")
    certificate = tmp_path / "server.pem"
    certificate.write_text("it was fine when the command checked it")
    served = ServedMetrics("0.0.0.0:0", certificate=str(certificate))
    attachment = Attachment("5s", "static", interval="10ms", metrics=served)
    assert submitted(tmp_path, replace(attachment, journal=str(tmp_path / "j.jsonl"))) == 7
    (warning,) = [text for text in capsys.readouterr().err.splitlines() if "metrics" in text]
    assert warning.startswith("tidegate: there are no metrics: --metrics-certificate is")
    assert len(list(read_journal(tmp_path / "j.jsonl"))) >= 3, "it scales all the same"


def test_logs_of_a_submitted_application_may_be_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_LOG_FORMAT", "json")
    path = tmp_path / "j.jsonl"
    attachment = Attachment("5s", "static", interval="10ms", journal=str(path))
    with mock.patch.object(FakeWorld, "apply", failing(2, FakeWorld.apply)):
        assert submitted(tmp_path, replace(attachment, metrics=ServedMetrics("localhost:0"))) == 7
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    metrics, failed = (next(x for x in lines if w in x["message"]) for w in ("metrics:", "turn 2"))
    assert metrics["level"] == failed["level"] == "WARNING"
    assert metrics["logger"] == "tidegate.spark.autoscaler.attachment" and "turn" not in metrics
    assert (failed["application"], failed["turn"]) == ("app-1", 2)
    assert failed["message"] == "turn 2 failed: BackendError: the cluster\nis away"
    moment = datetime.fromisoformat(failed["time"])
    assert moment.utcoffset() == timedelta(0) and abs(moment.timestamp() - time.time()) < 3600


def failing(turn: int, apply: Callable[..., Any]) -> Callable[..., Any]:
    """`apply` of a world, which fails at one turn."""
    count = itertools.count(1)

    def wrapped(world: FakeWorld, plan: Plan) -> Any:
        if next(count) == turn:
            raise BackendError("the cluster\nis away")
        return apply(world, plan)

    return wrapped


def test_an_unknown_format_of_logs_in_the_driver_is_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_LOG_FORMAT", "xml")
    plain = {"slo": "5s", "policy": "static", "interval": "10ms", "mood": "calm"}
    assert submitted(tmp_path, json.dumps(plain | {"journal": str(tmp_path / "j.jsonl")})) == 7
    assert "tidegate: these settings are unknown" in capsys.readouterr().err


def test_metrics_are_served_until_the_process_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    attachment = Attachment("5s", "static", interval="10ms", metrics=ServedMetrics("127.0.0.1:0"))
    world = FakeWorld()
    with without_spark(world):
        scaler = replace(attachment, journal=str(tmp_path / "j.jsonl")).autoscaler(ANY)
        with scaler:
            assert world.turned.wait(LONG_S)
    (url,) = [text.split()[1] for text in caplog.messages if text.startswith("metrics: ")]
    with urlopen(url) as response:
        assert re.search(rb"tidegate_turns_total [3-9]|tidegate_turns_total \d\d", response.read())


def test_settings_of_another_version_do_not_end_the_application(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = json.loads(to_json(Attachment("5s", "static", interval="10ms", journal="j.jsonl")))
    plain |= {"journal": str(tmp_path / "j.jsonl"), "mood": "calm"}
    assert submitted(tmp_path, json.dumps(plain)) == 7
    assert "unknown in the driver and ignored: mood" in capsys.readouterr().err
    assert submitted(tmp_path, '{"slo": {"alerts": "2s"}}', wait=False) == 7
    assert "runs without an autoscaler: the settings cannot be read" in capsys.readouterr().err


def submitted(tmp_path: Path, attachment: Attachment | str, wait: bool = True) -> int:
    """Run an application that ends with 7, after three turns of its autoscaler."""
    from pyspark.sql import SparkSession

    app = tmp_path / "app.py"
    app.write_text(
        "import sys\n"
        "from pyspark.sql import SparkSession\n"
        "SparkSession.builder.getOrCreate()\n"
        "sys.exit(7 if sys.turned() else 8)\n"
    )
    world = FakeWorld()
    settings = attachment if isinstance(attachment, str) else to_json(attachment)
    with (
        without_spark(world),
        mock.patch.object(SparkSession.Builder, "getOrCreate", lambda builder: object()),
        mock.patch.object(
            sys, "turned", lambda: world.turned.wait(LONG_S if wait else 0) or not wait, create=True
        ),
        mock.patch.object(sys, "argv", []),
        mock.patch.object(sys, "path", list(sys.path)),
    ):
        return run([settings, str(app)])


def test_two_applications_in_one_folder_keep_two_journals(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, one, two = tmp_path / "tidegate.jsonl", FakeWorld(), FakeWorld()
    with without_spark(one), autoscaler(path) as first:
        with without_spark(two), autoscaler(path) as second:
            assert one.turned.wait(LONG_S) and two.turned.wait(LONG_S)
            assert first.journal is not None and second.journal is not None
            assert second.journal.path == tmp_path / "tidegate-2.jsonl"
            assert (tmp_path / "tidegate.jsonl.controls").exists()
        assert (tmp_path / "tidegate.jsonl.controls").exists(), "it is the first one's"
    for journal in (first.journal, second.journal):
        numbers = [turn.number for turn in read_journal(journal.path)]
        assert numbers == list(range(1, len(numbers) + 1))
    assert "this run writes its journal to" in caplog.text


def test_a_restarted_application_goes_on_with_the_last_readable_memory(tmp_path: Path) -> None:
    path, world = tmp_path / "tidegate.jsonl", FakeWorld()
    with without_spark(world), autoscaler(path, stabilise="60s") as first:
        assert world.turned.wait(LONG_S)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:99] + b"\n" + b"".join(lines[2:]) + b'{"number":9,"po')
    with without_spark(FakeWorld()):
        second = autoscaler(path, stabilise="60s")
        assert second.controller.memory == first.controller.memory != second.policy.initial_memory()
        second.stop()
        other = autoscaler(path, stabilise="90s")
        assert other.records.memory is None, "another policy's memory is not taken over"
        other.stop()


# --- the end of the application ---------------------------------------------------------------


class BusyWorld(FakeWorld):
    """A world whose second turn never ends, as when Spark does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = threading.Event()

    def observe(self) -> Snapshot:
        if self.applied:
            self.busy.set()
            threading.Event().wait()
        return super().observe()


def test_a_turn_that_does_not_end_does_not_keep_the_application_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.1)
    world = BusyWorld()
    with without_spark(world):
        scaler = autoscaler(tmp_path / "j.jsonl").start()
    assert world.busy.wait(LONG_S)
    assert ends(scaler.stop)
    assert "still busy after 0.1 s" in caplog.text


def test_a_release_that_waits_for_a_pause_ends_with_the_autoscaler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "STOP_S", LONG_S)
    monkeypatch.setattr(world_module, "BOUNDARY_WAIT_S", 1e9)
    gateway = SparkGateway(3)
    gateway.query("ticks")
    gateway.batches = {"run-of-ticks": "ticks"}
    monkeypatch.setattr(module, "InProcessGateway", lambda spark, watch_only: gateway)
    scaler = Autoscaler(
        ANY, slo="5s", policy="static", parameters={"hosts": 1}, interval=1e9, journal=None,
        without_guards=["all"],
    )  # fmt: skip
    waits = scaler.world._waits
    with scaler:
        assert waits.wait(LONG_S)
    assert not waits.is_set() and "still busy" not in caplog.text
    assert gateway.leaving == set()


def test_closing_that_fails_or_does_not_end_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.1)
    failing, waiting = FakeWorld(), FakeWorld()
    monkeypatch.setattr(failing, "close", lambda: 1 / 0)
    monkeypatch.setattr(waiting, "close", lambda: threading.Event().wait())
    for world in (failing, waiting):
        with without_spark(world):
            scaler = autoscaler(None).start()
        assert world.turned.wait(LONG_S)
        assert ends(scaler.stop)
    assert "did not end in order: division by zero" in caplog.text
    assert "still busy" in caplog.text


def test_the_simulation_after_a_dry_run_does_not_keep_the_application_from_ending(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.1)
    world = FakeWorld()
    with without_spark(world):
        scaler = autoscaler(None, dry_run=True)
    monkeypatch.setattr(DryRunAccount, "estimate", lambda *_: threading.Event().wait())

    def whole() -> None:
        with scaler:
            assert world.turned.wait(LONG_S)

    assert ends(whole)
    assert "the simulation took too long" in caplog.text
    monkeypatch.setattr(DryRunAccount, "estimate", lambda *_: 1 / 0)
    assert "the simulation failed" in scaler.dry_run_report(LONG_S)


def test_stopping_from_on_turn_ends_the_loop(tmp_path: Path) -> None:
    world, stopped = FakeWorld(), threading.Event()

    def stop(turn: Turn) -> None:
        scaler.stop()
        stopped.set()

    with without_spark(world):
        scaler = autoscaler(tmp_path / "j.jsonl", on_turn=stop)
    scaler.start()
    assert stopped.wait(LONG_S)
    assert ends(scaler._thread.join)
    assert len(world.applied) == 1 and world.closed


def test_an_autoscaler_that_cannot_start_gives_its_journal_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = FakeWorld()
    monkeypatch.setattr(world, "start", lambda: 1 / 0)
    with without_spark(world), pytest.raises(ZeroDivisionError):
        autoscaler(tmp_path / "j.jsonl").start()
    Journal(tmp_path / "j.jsonl").close()


# --- the memory of a dry run --------------------------------------------------------------------


def large_turn(number: int) -> Turn:
    """50 executors of 4 slots."""
    snapshot = steady_snapshot(50, time_s=10.0 * number)
    instances = tuple(
        InstanceReading(f"work-{n}", "work", host.id, load=Resources(0.5), processed_per_s=9.0 + n)
        for n, host in enumerate(host for host in snapshot.hosts for _ in range(4))
    )
    snapshot = replace(snapshot, instances=instances)
    return Turn(number, "static", snapshot, Plan(snapshot.requested))


def test_a_dry_run_needs_constant_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRY_RUN_TURNS", 60)
    account = DryRunAccount()
    sizes = []
    tracemalloc.start()
    try:
        for number in range(1, 241):
            account.add(large_turn(number))
            if number % 60 == 0:
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[-1] - sizes[0] < 100_000, "after the first turns it does not grow"
    assert sizes[0] < 60 * 8_000, "a kept turn takes less than 8 kB"
    assert account.turns == 240 and account.watched_s == 2390
