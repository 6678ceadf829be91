"""How the events of an agent are followed, with an agent that fails now and then."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tidegate.errors import BackendError
from tidegate.spark.autoscaler import agent as module
from tidegate.spark.autoscaler.agent import AgentGateway, NotThere


class Calls:
    """Gives one answer after the other; an error is raised, and after the last nobody listens."""

    gone = False

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def get(self, path: str, **query: object) -> Any:
        if not self.answers:
            self.gone = True
            raise NotThere("nobody answers")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def followed(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> tuple[AgentGateway, list[str]]:
    """The gateway after the last answer, and what it heard."""
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    gateway, heard = AgentGateway.__new__(AgentGateway), list[str]()
    gateway._calls = Calls(*answers)  # type: ignore[assignment]
    gateway._event, gateway._ended = 0, threading.Event()
    gateway._follow(lambda kind, text: heard.append(f"{kind} {text}"), threading.Event())
    return gateway, heard


EVENTS = {"events": [{"number": 1, "kind": "started", "text": "run"}], "dropped": 0}
RESET = BackendError("the connection was reset")


def test_the_end_of_the_application_is_no_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gateway, heard = followed(monkeypatch, EVENTS, RESET)
    assert gateway.stopped and heard == ["started run"]
    assert not caplog.records


def test_an_agent_that_stays_silent_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, heard = followed(monkeypatch, RESET, RESET, RESET, EVENTS, RESET, EVENTS)
    assert heard == ["started run"] * 2
    assert caplog.messages == ["events of queries are missing: the connection was reset"]
