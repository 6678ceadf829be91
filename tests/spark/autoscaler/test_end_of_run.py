"""The end of an application, as the autoscaler's thread sees it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import pytest

from tests.spark.autoscaler.live import until
from tidegate.loop.journal import Turn
from tidegate.spark.autoscaler import autoscaler as module
from tidegate.spark.autoscaler.autoscaler import Autoscaler
from tidegate.testing.spark import FakeGateway


class Application(FakeGateway):
    """An application that another one may follow."""

    succeeded_by_another = False


@pytest.fixture
def attach(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Application, list[Turn]], Autoscaler]:
    def make(gateway: Application, turns: list[Turn]) -> Autoscaler:
        return Autoscaler(
            gateway, slo="5s", policy="static", interval="10ms", journal=None, on_turn=turns.append
        )

    return make


def running() -> Application:
    gateway = Application(2)
    gateway.query("ticks")
    return gateway


def has_more_than(turns: list[Turn], number: int) -> bool:
    return len(turns) > number


def test_an_application_that_ends_leaves_no_failed_turn_and_no_warning(
    attach: Callable[[Application, list[Turn]], Autoscaler], caplog: pytest.LogCaptureFixture
) -> None:
    gateway, turns = running(), list[Turn]()
    with attach(gateway, turns) as autoscaler:
        until("there are turns", lambda: len(turns) > 2)
        gateway.ended = True
        gateway.queries.clear()
        gateway.broken = "the connection is closed"
    assert autoscaler.failures == 0
    assert not [turn for turn in turns if turn.error or turn.snapshot is None]
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_loop_that_broke_off_stops_listening(
    attach: Callable[[Application, list[Turn]], Autoscaler], monkeypatch: pytest.MonkeyPatch
) -> None:
    scaler = attach(running(), [])
    monkeypatch.setattr(scaler.controller, "run", lambda *_, **__: 1 / 0)
    scaler.start()
    scaler._thread.join(30)
    assert scaler.world._end_listening is None
    scaler.stop()


def test_queries_that_end_and_begin_again_leave_no_failed_turn(
    attach: Callable[[Application, list[Turn]], Autoscaler],
) -> None:
    gateway, turns = running(), list[Turn]()
    with attach(gateway, turns):
        for number in range(20):
            until("there are turns", partial(has_more_than, turns, number))
            gateway.queries.clear()
            gateway.query("ticks")
    assert not [turn for turn in turns if turn.error]


def test_a_session_that_is_built_anew_is_said_not_to_be_scaled(
    attach: Callable[[Application, list[Turn]], Autoscaler],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SUCCESSOR_S", 0.01)
    gateway = running()
    with attach(gateway, []):
        gateway.ended = gateway.succeeded_by_another = True
        until("it is said", lambda: "another one was created, which is not scaled" in caplog.text)
