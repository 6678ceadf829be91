"""How runs end: signals that arrive at any moment."""

from __future__ import annotations

import os
import signal
import threading

from tidegate.lifecycle import Background, from_handler, on_signals


def test_a_handler_sets_an_event_that_its_thread_is_about_to_wait_for() -> None:
    asked = threading.Event()

    def interrupted_at_the_worst_moment() -> bool:
        # Event.wait holds this lock for an instant before and after it waits, and a handler that
        # runs in the same thread in that instant must not need it.
        with asked._cond:  # type: ignore[attr-defined]
            from_handler(asked.set)
        return asked.wait(60)

    waiting = Background(interrupted_at_the_worst_moment)
    assert waiting.ended(60), "the handler waits for a lock that its own thread holds"
    assert waiting.result()


def test_both_signals_are_heard_and_given_back() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        asked = threading.Event()
        with on_signals(lambda event=asked: from_handler(event.set)):  # type: ignore[misc]
            os.kill(os.getpid(), number)
            assert asked.wait(60)
    assert before == {number: signal.getsignal(number) for number in before}
