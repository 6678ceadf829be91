"""How the agent is set up: addresses, TLS, tokens and the file in which it announces itself.

Nothing that is wrong with it may keep the application from running.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from tests.certificates import key_store, self_signed
from tidegate.errors import BackendError, SettingError
from tidegate.lifecycle import wait_until
from tidegate.spark.agent import JAR, PLUGIN
from tidegate.spark.autoscaler.agent import AgentGateway, NotThere, announced

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(not JAR.exists(), reason="the agent is not compiled: run make agent"),
]

LIMIT_S = 60
HALF_S = 5
"""Seconds that a request may take to be sent; 30 by default."""
THREADS = 32
OF_THE_ENVIRONMENT = "token-of-the-environment"
CHILD = """
import os, pathlib, sys
from tidegate.spark.autoscaler.agent import AgentGateway
url, token = os.environ["TIDEGATE_AGENT_URL"], os.environ["TIDEGATE_AGENT_TOKEN"]
certificate = os.environ["TIDEGATE_AGENT_CERTIFICATE"]
name = AgentGateway(url, token, watch_only=True, certificate=certificate).name
part = pathlib.Path(sys.argv[1] + ".part")
part.write_text(f"{url} {name}")
part.rename(sys.argv[1])
"""


class Driver:
    """A process with one JVM, and one Spark context after the other."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "driver.log"
        light = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        light += f" -Dsun.net.httpserver.maxReqTime={HALF_S}"
        environment = {
            **os.environ,
            "TIDEGATE_AGENT_TOKEN": OF_THE_ENVIRONMENT,
            "PYSPARK_SUBMIT_ARGS": f"--driver-class-path {JAR} --driver-java-options "
            f"'{light}' pyspark-shell",
        }
        command = [sys.executable, "-m", "tests.spark.autoscaler.contexts"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def say(self, line: str) -> str:
        """Write a line, and return the line that is the answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer, self.log.read_text()
        return answer

    @contextmanager
    def application(self, **settings: object) -> Iterator[list[str]]:
        """An application that has run a job; yields what the agent has logged so far.

        settings: those of the agent, with underscores for dots.
        """
        conf = {
            "spark.plugins": PLUGIN,
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            **{f"spark.tidegate.{k.replace('_', '.')}": str(v) for k, v in settings.items()},
        }
        before = self.log.stat().st_size
        assert self.say(json.dumps(conf)) == "counted 3", "the application runs on"
        try:
            said = self.log.read_bytes()[before:].decode().splitlines()
            yield [line for line in said if re.search(r"WARN (Agent|TidegatePlugin)", line)]
        finally:
            assert self.say("") == "stopped"

    def end(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    started = Driver(tmp_path_factory.mktemp("agent"))
    try:
        yield started
    finally:
        started.end()


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_tls_on_an_address_that_others_can_reach(driver: Driver, tmp_path: Path) -> None:
    pair, other = self_signed(tmp_path, "agent"), self_signed(tmp_path, "other")
    settings = {
        "agent_host": "0.0.0.0",
        "agent_tls_keystore": key_store(pair, "sesame"),
        "agent_tls_password_file": written(tmp_path / "password", "sesame\n"),
        "agent_announce": tmp_path / "address",
        "controller": json.dumps([sys.executable, "-c", CHILD, str(tmp_path / "child")]),
    }
    with driver.application(**settings) as said:
        assert len(said) == 1 and "listens on https://0.0.0.0:" in said[0]
        port = announced(tmp_path / "address")[0].rpartition(":")[2]
        for host in ("localhost", "127.0.0.1"):
            url = f"https://{host}:{port}"
            gateway = AgentGateway(url, OF_THE_ENVIRONMENT, pair.certificate, watch_only=True)
            assert gateway.name == "agent" and gateway.scheme == "local"
            assert [e.id for e in gateway.executors(include_driver=True)] == ["driver"]
        for trusted in (other.certificate, None):
            with pytest.raises(SettingError, match="trusted") as caught:
                AgentGateway(url, OF_THE_ENVIRONMENT, trusted, watch_only=True)
            assert "\n" not in str(caught.value) and "--ca-file" in str(caught.value)
        with pytest.raises(SettingError, match="token"):
            AgentGateway(url, "wrong", pair.certificate, watch_only=True)
        with pytest.raises(BackendError) as refused:  # without TLS nothing is said
            AgentGateway(f"http://127.0.0.1:{port}", OF_THE_ENVIRONMENT, watch_only=True)
        assert "\n" not in str(refused.value)
        assert wait_until((tmp_path / "child").exists, LIMIT_S), "the agent's own controller"
        assert (tmp_path / "child").read_text() == f"https://127.0.0.1:{port} agent"
        for name, there in (("agent", True), (gateway.application, True), ("another", False)):
            with nullcontext() if there else pytest.raises(NotThere, match="not another"):
                AgentGateway(
                    url, OF_THE_ENVIRONMENT, pair.certificate, watch_only=True, application=name
                )


def test_a_token_in_a_file_counts_more_than_one_in_the_environment(
    driver: Driver, tmp_path: Path
) -> None:
    (tmp_path / "..data").mkdir()
    target = written(tmp_path / "..data" / "token", " token-of-a-file\n", 0o440)
    file, address = tmp_path / "token", tmp_path / "address"
    file.symlink_to(target)  # as Kubernetes mounts the secret of deploy/kubernetes
    with driver.application(agent_token_file=file, agent_announce=address):
        url, said = announced(address)
        assert AgentGateway(url, "token-of-a-file", watch_only=True).application
        with pytest.raises(SettingError, match="token"):
            AgentGateway(url, OF_THE_ENVIRONMENT, watch_only=True)
        assert said == "" and "of-a-file" not in address.read_text(), "it has no need to be told"
        assert address.stat().st_mode & 0o777 == 0o600
        assert json.loads(address.read_text())["application"].startswith("local-")
    assert not address.exists()


def test_the_announcement_of_a_newer_application_stays(driver: Driver, tmp_path: Path) -> None:
    address = tmp_path / "address"
    with driver.application(agent_announce=address):
        newer = address.read_text().replace("local-", "newer-")
        address.write_text(newer)
    assert address.read_text() == newer


def test_the_environments_token_counts_without_a_file_and_is_not_shown(
    driver: Driver, tmp_path: Path
) -> None:
    with driver.application(agent_announce=tmp_path / "address"):
        url, _ = announced(tmp_path / "address")
        about = AgentGateway(url, OF_THE_ENVIRONMENT, watch_only=True)._about
        assert OF_THE_ENVIRONMENT not in json.dumps(about) + (tmp_path / "address").read_text()


def test_half_requests_end_and_then_others_are_answered(driver: Driver, tmp_path: Path) -> None:
    with driver.application(agent_announce=tmp_path / "address"), ExitStack() as opened:
        url, _ = announced(tmp_path / "address")
        host, _, port = url.removeprefix("http://").partition(":")
        halves = [
            opened.enter_context(socket.create_connection((host, int(port)), LIMIT_S))
            for _ in range(THREADS + 8)
        ]
        for half in halves:
            half.sendall(b"GET /v1 HTTP/1.1\r\nhost: ")
        for half in halves:
            with suppress(ConnectionResetError):
                assert half.recv(1) == b"", "it was closed"
        assert AgentGateway(url, OF_THE_ENVIRONMENT, watch_only=True).name


def test_what_is_wrong_with_the_agent_is_one_warning_and_the_application_runs(
    driver: Driver, tmp_path: Path
) -> None:
    pair = self_signed(tmp_path, "agent")
    store, empty = key_store(pair, "sesame"), written(tmp_path / "empty", " \n")
    wrong, short = written(tmp_path / "wrong", "wrong"), written(tmp_path / "short", "hush-hush")
    read = written(tmp_path / "read", "hush-hush-hush", 0o644)
    changed = written(tmp_path / "changed", "hush-hush-hush", 0o660)
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        cases: list[tuple[dict[str, object], str]] = [
            ({"agent_host": "0.0.0.0"}, r"needs TLS: set spark\.tidegate\.agent\.tls\.keystore"),
            ({"agent_port": port}, rf"127\.0\.0\.1:{port}.*in use"),
            ({"agent_port": "many"}, "many; it must be from 0 to 65535"),
            ({"agent_token_file": empty}, "empty; write the secret into it"),
            ({"agent_token_file": tmp_path / "none"}, "none cannot be read"),
            ({"agent_token_file": read}, "by others; run chmod 600 .*read"),
            ({"agent_token_file": changed}, "by others; run chmod 600 .*changed"),
            ({"agent_token_file": short}, "at least 12 printable ASCII characters"),
            (
                {"agent_tls_keystore": store, "agent_tls_password_file": read},
                "by others; run chmod 600 .*read",
            ),
            (
                {"agent_tls_keystore": store, "agent_tls_password_file": wrong},
                "agent.p12 cannot be used.*password",
            ),
        ]
        for settings, sentence in cases:
            with driver.application(**settings) as said:
                (line,) = said
                assert re.search(sentence, line), line
                assert "the application runs without an autoscaler" in line
                assert "Exception" not in line, "a sentence, not the name of a class"
                assert "hush" not in line


def test_an_address_that_cannot_be_announced_is_a_warning(driver: Driver, tmp_path: Path) -> None:
    with driver.application(agent_announce=tmp_path / "none" / "address") as said:
        assert "listens on" in said[0] and "cannot be written" in said[1]
        url = said[0].rpartition(" ")[2]
        assert AgentGateway(url, OF_THE_ENVIRONMENT, watch_only=True).application
