"""How a controller waits for an agent: its driver may be suspended, or have another controller."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.errors import BackendError
from tidegate.spark.autoscaler import agent_calls, attach
from tidegate.spark.autoscaler.agent import AgentGateway, NoAnswer, NotInControl, NotThere
from tidegate.spark.autoscaler.agent_calls import AgentCalls
from tidegate.spark.autoscaler.attach import Place

URL, TOKEN = "http://127.0.0.1:8271", "a-long-random-word"
ABOUT = {
    "protocol": 1,
    "id": "app-1",
    "name": "job",
    "spark": "4.0.0",
    "lastEvent": 0,
    "settings": {"spark.master": "spark://m:7077", "spark.decommission.enabled": "true"},
}


class Answer:
    """An answer of the agent. status: of HTTP."""

    def __init__(self, status: int) -> None:
        self.status = status

    def getheader(self, name: str) -> str:
        return "one" if name == "Tidegate-Instance" else ""


Waits = Callable[..., AgentGateway | None]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    """Runs a controller that waits for 60 s.

    Each of its attempts has the seconds that pass before it and what it finds. gone: nobody
    listens. silent: the agent does not answer. broken: it ends the connection. taken: another
    controller is in control. free: it lets the controller in.
    """
    monkeypatch.setattr(attach, "LOOK_S", 0.0)

    def wait(*attempts: tuple[float, str], standby: bool = False) -> AgentGateway | None:
        script, now_s, finds = list(attempts), 1000.0, ""

        def place() -> Place:
            nonlocal now_s, finds
            passed_s, finds = script.pop(0)
            now_s += passed_s
            if finds == "gone":
                raise NotThere("nobody answers")
            return Place(URL, TOKEN)

        def exchange(
            self: AgentCalls, method: str, path: str, body: str | None, headers: Mapping[str, str]
        ) -> tuple[Any, bytes]:
            if path == "/v1/application":
                return Answer(200), json.dumps(ABOUT).encode()
            if finds == "silent":
                raise TimeoutError("timed out")
            if finds == "broken":
                raise http.client.RemoteDisconnected("closed without an answer")
            if finds == "taken":
                return Answer(409), b'{"error": "it is controlled by another"}'
            return Answer(200), b'{"key": "k"}'

        monkeypatch.setattr(AgentCalls, "_exchange", exchange)
        monkeypatch.setattr(attach, "time", SimpleNamespace(monotonic=lambda: now_s))
        found = attach._await(place, "", False, 60.0, standby, threading.Event())
        assert not script
        return found

    return wait


def test_a_standby_controller_waits_on_when_the_driver_is_suspended_or_dies(waits: Waits) -> None:
    gateway = waits(
        (0, "taken"), (10, "silent"), (20, "taken"), (50, "broken"), (5, "free"), standby=True
    )
    assert gateway is not None and gateway.application == "app-1"


def test_a_controller_that_got_no_answer_waits_for_the_end_of_its_own_lease(waits: Waits) -> None:
    assert waits((0, "silent"), (10, "taken"), (10, "free")) is not None
    with pytest.raises(NotInControl):
        waits((0, "silent"), (70, "taken"))
    with pytest.raises(NotInControl):
        waits((0, "taken"))


def test_the_time_to_wait_counts_from_the_last_sign_of_the_application(waits: Waits) -> None:
    attempts = [(0, "taken"), (300, "taken"), (10, "gone"), (10, "free")]
    assert waits(*attempts, standby=True) is not None
    with pytest.raises(BackendError, match="raise --wait"):
        waits((0, "taken"), (61, "gone"), standby=True)


def test_a_driver_that_stays_silent_is_given_up_after_the_time_to_wait(waits: Waits) -> None:
    with pytest.raises(NoAnswer, match=f"the agent at {URL} did not answer: timed out"):
        waits((0, "silent"), (61, "silent"))


def test_a_process_that_is_suspended_gives_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_calls, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as suspended:  # connects, and nobody reads
        port = suspended.getsockname()[1]
        with pytest.raises(NoAnswer, match="timed out"):
            AgentGateway(f"http://127.0.0.1:{port}", TOKEN)
