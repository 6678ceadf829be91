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


# --- the driver's clock ---------------------------------------------------------------------------


class Machine:
    """The clocks of two machines, and the way between them; only the driver's time is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steady_s, self.wall_s, self.driver_s = 100.0, 1e9, 1e9 + 40.0
        monkeypatch.setattr("time.monotonic", lambda: self.steady_s)
        monkeypatch.setattr("time.time", lambda: self.wall_s)
        self.calls = AgentCalls(URL, TOKEN, None)
        monkeypatch.setattr(self.calls, "_exchange", self.exchange)
        self.there_s = self.back_s = 0.0

    def passes(self, seconds: float) -> None:
        self.steady_s += seconds
        self.wall_s += seconds
        self.driver_s += seconds

    def exchange(self, *_: object) -> tuple[Any, bytes]:
        self.passes(self.there_s)
        header = {"Tidegate-Time": str(int(self.driver_s * 1000)), "Tidegate-Instance": "one"}
        self.passes(self.back_s)
        return SimpleNamespace(status=200, getheader=header.get), b"{}"

    def asks(self, there_s: float, back_s: float) -> float:
        """Ask for something, and return by how much the driver's clock is misjudged."""
        self.there_s, self.back_s = there_s, back_s
        self.calls.get("/v1/queries")
        return self.calls.clock() - self.driver_s


def test_the_driver_counts_whatever_happens_to_this_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A jump was in the journal, or was not, by the speed of the next answer: now it never is."""
    here = Machine(monkeypatch)
    assert here.calls.clock() == here.wall_s, "nothing is known yet"
    assert here.asks(0.004, 0.002) == pytest.approx(0.0, abs=0.004)
    for step_s in (172_800.0, -172_800.0, -90.0):
        here.wall_s += step_s
        here.passes(0.5)
        assert here.calls.clock() == pytest.approx(here.driver_s, abs=0.004), "before an answer"
        assert here.asks(0.2, 0.3) == pytest.approx(0.0, abs=0.004), "a slow one spoils nothing"


def test_a_driver_whose_clock_was_set_is_followed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Machine(monkeypatch)
    here.asks(0.001, 0.001)
    for step_s in (3600.0, -7200.0):
        here.driver_s += step_s
        assert here.asks(0.1, 0.3) == pytest.approx(0.0, abs=0.11), "though it was a slow answer"
    assert here.asks(0.001, 0.001) == pytest.approx(0.0, abs=0.002), "a quick one is more exact"


def test_answers_without_a_time_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Machine(monkeypatch)
    here.asks(0.001, 0.001)
    for text in (None, "", "soon", "-5"):
        here.calls._compare_clocks(text, here.steady_s)
    assert here.calls.clock() == pytest.approx(here.driver_s, abs=0.002)
