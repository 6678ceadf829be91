"""Policies that run in several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.helpers import tidegate
from tidegate.errors import BackendError, InputError
from tidegate.lab import backtest as backtests
from tidegate.lab.backtest import backtest, suited_processes
from tidegate.lab.parallel import in_processes
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.loop.journal import read_journal
from tidegate.workloads import RateTrace

TRACE = RateTrace(np.array([0.0, 300.0]), np.array([20.0, 60.0]), seed=5)


def half(job: int, report: Callable[[float], None]) -> float:
    report(0.5)
    if job == 13:
        raise InputError("job", job, "a lucky number")
    if job == 99:
        os._exit(9)
    return job / 2


HERE: list[str] = []


def known_here(job: int, report: Callable[[float], None]) -> int:
    return len(HERE)


def note(job: tuple[list[str], str], report: Callable[[float], None]) -> list[str]:
    job[0].append(job[1])
    return job[0]


@pytest.mark.parametrize("threads", [1, 2])
def test_what_jobs_have_in_common_is_one_object_in_a_process(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threading.active_count", lambda: threads)
    common: list[str] = []
    jobs = [(common, "first"), (common, "second")]
    found = dict(in_processes(note, jobs, 1, lambda n, share: None))
    assert found == {0: ["first"], 1: ["first", "second"]} and not common


def test_results_in_two_processes_are_the_same_as_in_one(tmp_path: Path) -> None:
    scenario = ScenarioOptions(slo_s=2.0).build(TRACE)
    names = ["drs", "sarsa", "static"]
    shares: dict[str, float] = {}
    apart = backtest(
        scenario, names, processes=2, progress=shares.__setitem__, journals=tmp_path, fluid=True
    )
    together = backtest(scenario, names, fluid=True)
    assert apart == together
    assert shares == dict.fromkeys(names, 1.0)
    assert len(list(read_journal(tmp_path / "drs.jsonl"))) == 40


def test_what_a_job_raises_is_raised_and_a_process_that_dies_is_said() -> None:
    seen: list[int] = []
    found = dict(in_processes(half, [4, 6], 2, lambda n, share: seen.append(n)))
    assert found == {0: 2.0, 1: 3.0} and set(seen) <= {0, 1}
    with pytest.raises(InputError, match="lucky"):
        list(in_processes(half, [4, 13], 2, lambda n, share: None))
    with pytest.raises(BackendError, match="use fewer processes"):
        list(in_processes(half, [99], 1, lambda n, share: None))


@pytest.mark.parametrize(("threads", "inherited"), [(1, 1), (2, 0)])
def test_only_a_process_with_one_thread_is_copied(
    threads: int, inherited: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threading.active_count", lambda: threads)
    monkeypatch.setattr(f"{__name__}.HERE", ["something that only this process has"])
    assert list(in_processes(known_here, [7], 1, lambda n, share: None)) == [(0, inherited)]


def test_short_backtests_stay_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.lab.backtest.usable_cores", lambda: 8)
    short = ScenarioOptions(slo_s=2.0).build(TRACE)
    assert suited_processes(short, 12) == 1
    monkeypatch.setattr("threading.active_count", lambda: 1)  # processes can be copied
    assert suited_processes(short, 100) == 8
    monkeypatch.setattr("threading.active_count", lambda: 2)
    assert suited_processes(short, 100) == 1
    times = np.arange(0, 86_400 * 3, 300.0)
    long = ScenarioOptions(slo_s=2.0).build(RateTrace(times, np.full(len(times), 9.0), seed=1))
    assert suited_processes(long, 12) == 8 and suited_processes(long, 3) == 3


def test_the_command_takes_a_number_of_processes(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("t_s,rate\n0,20\n300,60\n")
    given = ["backtest", str(trace), "--policies", "static,lag", "--json", "--processes"]
    wrong = tidegate(*given, "0")
    assert wrong.returncode == 2 and "--processes is 0" in wrong.stderr


def test_jobs_begin_in_the_order_that_is_given() -> None:
    common: list[str] = []
    jobs = [(common, "first"), (common, "second")]
    found = dict(in_processes(note, jobs, 1, lambda n, share: None, order=[1, 0]))
    assert found == {1: ["second"], 0: ["second", "first"]}


def test_a_long_backtest_begins_with_the_policies_that_take_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = ScenarioOptions(slo_s=2.0).build(TRACE)
    asked: list[str] = []
    orders: list[list[int]] = []

    def taken_s(job: Any) -> float:
        asked.append(job.name)
        return {"drs": 2.0, "sarsa": 9.0, "static": 1.0}[job.name]

    def in_turn(
        work: Any, jobs: Sequence[Any], processes: int, progress: Any, order: Sequence[int]
    ) -> Iterator[tuple[int, Any]]:
        orders.append(list(order))
        return ((n, work(jobs[n], lambda share: None)) for n in order)

    monkeypatch.setattr(backtests, "_first_turns_s", taken_s)
    monkeypatch.setattr(backtests, "in_processes", in_turn)
    names = ["drs", "sarsa", "static"]
    short = backtest(scenario, names, processes=2, fluid=True)
    assert orders == [[0, 1, 2]] and not asked  # it would take too long to find out
    monkeypatch.setattr(backtests, "LONG_TURNS", 10)
    assert backtest(scenario, names, processes=2, fluid=True) == short
    assert orders[1:] == [[1, 0, 2]] and set(asked) == set(names)


def test_the_first_turns_of_a_policy_take_time_and_change_no_result() -> None:
    scenario = ScenarioOptions(slo_s=2.0).build(TRACE)
    before = backtest(scenario, ["sarsa"], fluid=True)
    job = backtests._Job(scenario, "sarsa", None, 0, True, None, False)
    assert backtests._first_turns_s(job) > 0
    assert backtest(scenario, ["sarsa"], fluid=True) == before
