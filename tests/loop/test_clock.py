"""Somebody sets the clock of the machine on which a loop runs."""

from __future__ import annotations

from tidegate.loop.clock import SMALLEST_S, ClockWatch


def test_only_a_clock_that_was_set_is_news() -> None:
    now = {"wall": 1e9, "steady": 500.0}
    watch = ClockWatch(lambda: now["wall"], lambda: now["steady"])

    def passed(wall_s: float, steady_s: float) -> str:
        now["wall"] += wall_s
        now["steady"] += steady_s
        return watch.news()

    assert passed(10.0, 10.0) == ""
    assert passed(10.0 + 0.9 * SMALLEST_S, 10.0) == "", "a correction"
    assert passed(10.0 - 7200.0, 10.0) == "the clock of this machine was set back by 2 h"
    assert passed(10.0, 10.0) == "", "it is said once"
    assert passed(10.0 + 172_800.0, 10.0).startswith("the clock of this machine was set forward")
    assert passed(86_400.0, 86_400.0) == "", "a day without a look"


def test_the_smallest_step_that_is_news() -> None:
    wall = iter([0.0, SMALLEST_S, SMALLEST_S + 0.5 * SMALLEST_S])
    watch = ClockWatch(lambda: next(wall), lambda: 0.0)
    assert "forward by" in watch.news() and watch.news() == ""
