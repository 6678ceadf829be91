"""The embedded provider: what it starts, refuses and abandons. No JVM is started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tidegate.errors import BackendError, InputError
from tidegate.fleet import providers
from tidegate.fleet.connect import ConnectHost, process_usage, session_id
from tidegate.fleet.hosts import HostSilent, HostView, bounded
from tidegate.fleet.providers import EmbeddedProvider, StaticProvider
from tidegate.model.topology import Resources
from tidegate.spark.local import processes


class FakeProcess:
    """A process with a log that the test writes."""

    made: list[FakeProcess] = []  # noqa: RUF012 - a register, emptied by each test

    def __init__(self, command: list[str], log: Path, env: dict[str, str]) -> None:
        self.command, self.log, self.env = command, log, env
        self.pid, self.running, self.text = 4_000_000 + len(self.made), True, ""
        self.made.append(self)

    def wait_for(self, pattern: str, timeout_s: float) -> Any:
        import re

        found = re.search(pattern, self.text)
        if found is None:
            raise BackendError("it did not start")
        return found

    def stop(self) -> None:
        self.running = False

    kill = stop


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[FakeProcess]:
    FakeProcess.made = []
    monkeypatch.setattr(providers, "Process", FakeProcess)
    monkeypatch.setattr(processes, "memory_available_mb", lambda: 10_000.0)
    monkeypatch.setattr(ConnectHost, "warm_up", lambda self, timeout_s: None)
    return FakeProcess.made


def test_everything_listens_on_loopback(tmp_path: Path, started: list[FakeProcess]) -> None:
    EmbeddedProvider("f", tmp_path).lease("host-1")
    words = started[0].command
    assert "spark.connect.grpc.binding.address=127.0.0.1" in words
    assert "spark.driver.bindAddress=127.0.0.1" in words
    assert started[0].env["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_each_host_has_a_token_that_no_command_line_shows(
    tmp_path: Path, started: list[FakeProcess]
) -> None:
    provider = EmbeddedProvider("f", tmp_path)
    provider.lease("host-1")
    provider.lease("host-2")
    tokens = [process.env["SPARK_CONNECT_AUTHENTICATE_TOKEN"] for process in started]
    assert len(set(tokens)) == 2 and all(len(token) > 40 for token in tokens)
    assert not any(token in word for token in tokens for word in started[0].command)
    started[0].text = "'SparkUI' on port 4040.\nConnect server started at: 127.0.0.1:15002"
    while (host := provider.host("host-1")) is None:
        pass
    assert tokens[0] not in host.place


def test_a_host_is_up_when_it_has_told_its_ports_and_answered(
    tmp_path: Path, started: list[FakeProcess]
) -> None:
    provider = EmbeddedProvider("f", tmp_path)
    provider.lease("host-1")
    assert provider.host("host-1") is None
    started[0].text = "'SparkUI' on port 4040.\nConnect server started at: 127.0.0.1:15002"
    while (host := provider.host("host-1")) is None:
        pass
    assert host.place == "sc://localhost:15002"
    started[0].running = False
    assert not host.alive


def test_a_server_that_ends_while_it_starts_is_told(
    tmp_path: Path, started: list[FakeProcess]
) -> None:
    provider = EmbeddedProvider("f", tmp_path)
    provider.lease("host-1")
    started[0].running = False
    with pytest.raises(BackendError, match="did not start"):
        provider.host("host-1")


def test_a_spare_is_taken_and_replaced(tmp_path: Path, started: list[FakeProcess]) -> None:
    provider = EmbeddedProvider("f", tmp_path, max_hosts=3, spares=1)
    provider.lease("host-1")
    assert len(started) == 2
    provider.lease("host-2")
    assert provider.pid("host-2") == started[1].pid and len(started) == 3
    provider.lease("host-3")  # the last that there may be: no spare is of use any more
    assert len(started) == 3
    with pytest.raises(BackendError, match="max_hosts is 3"):
        provider.lease("host-4")
    provider.close()
    assert not any(process.running for process in started)


def test_without_memory_a_host_is_refused(
    tmp_path: Path, started: list[FakeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "memory_available_mb", lambda: 100.0)
    with pytest.raises(BackendError, match="100 MB free"):
        EmbeddedProvider("f", tmp_path).lease("host-1")


def test_a_call_that_hangs_ends_in_time() -> None:
    import threading

    never = threading.Event()
    with pytest.raises(HostSilent, match=r"no answer in 0\.05 s"):
        bounded(never.wait, 0.05, "a look")
    with pytest.raises(BackendError, match="has ended"):
        bounded(never.wait, 60, "a look", alive=lambda: False)
    never.set()


def test_what_a_process_takes_is_measured_or_missing() -> None:
    import os

    used = process_usage(os.getpid())
    assert used.cpu_s and used.memory_mb and used.memory_mb > 1
    assert process_usage(999_999_999) == HostView()


def test_a_fleets_session_on_a_server_is_always_the_same() -> None:
    assert session_id("a", "sc://x:1") == session_id("a", "sc://x:1")
    assert session_id("a", "sc://x:1") != session_id("b", "sc://x:1")


def test_hosts_of_one_machine_share_its_processors(tmp_path: Path) -> None:
    processors = os.cpu_count() or 1
    many = EmbeddedProvider("f", tmp_path, cores=2, max_hosts=4 * processors)
    assert many.capacity.cpu_cores == 0.25
    assert EmbeddedProvider("f", tmp_path, cores=1, max_hosts=1).capacity.cpu_cores == 1


def made(
    kind: str, folder: Path, queries_mb: float | None = None, network_mbps: float | None = None
) -> EmbeddedProvider | StaticProvider:
    if kind == "embedded":
        return EmbeddedProvider(
            "f", folder, memory_mb=640, queries_mb=queries_mb, network_mbps=network_mbps
        )
    place, capacity = ["sc://x:1"], Resources(2, 640, 10_000)
    return StaticProvider("f", place, capacity, queries_mb=queries_mb, network_mbps=network_mbps)


@pytest.mark.parametrize("kind", ["embedded", "static"])
def test_memory_and_network_are_limited_only_where_that_is_asked_for(
    kind: str, tmp_path: Path
) -> None:
    free = made(kind, tmp_path)
    assert not free.limits and free.capacity.memory_mb >= 640 and free.capacity.network_mbps >= 1000
    both = made(kind, tmp_path, queries_mb=300.0, network_mbps=50.0)
    assert both.limits == {"memory_mb", "network_mbps"}
    assert (both.capacity.memory_mb, both.capacity.network_mbps) == (300.0, 50.0)
    assert both.capacity.cpu_cores == free.capacity.cpu_cores
    with pytest.raises(InputError, match="network_mbps is -1"):
        made(kind, tmp_path, network_mbps=-1.0)
