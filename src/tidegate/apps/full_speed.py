"""The throughput of an application: a backlog, processed as fast as possible."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from tidegate.apps.application import settle
from tidegate.apps.live import (
    WARM_UP,
    LiveResult,
    LiveRun,
    check_results,
    counts_of,
    start_on_cluster,
)
from tidegate.lifecycle import Stop
from tidegate.report.summary import LeftOut

__all__ = ["full_speed"]

ROWS_A_FILE = 50_000


def full_speed(run: LiveRun, say: Callable[[str], None], stop: Stop) -> LiveResult:
    """Process a backlog with all executors of the run, as fast as possible and without scaling.

    The backlog is the input of `run.seconds` at the run's rate.
    """
    app = run.application
    run = replace(run, hosts=run.max_hosts, trigger_s=0.1)
    random = np.random.default_rng(run.seed)
    now_s = time.time()
    before_s = now_s - run.seconds
    warm_up, backlog = {}, {}
    for source in app.rates_per_s:
        warm_up[source] = _backlog(run, source, before_s - 60, 1.0, 0, random)
        # Numbers continue, so that no row occurs twice.
        next_id = sum(table.num_rows for table in warm_up[source])
        backlog[source] = _backlog(run, source, before_s, run.seconds, next_id, random)
    with ExitStack() as stack:
        _, spark, running = start_on_cluster(run, stack, say, stop)
        say("a first batch compiles the queries")
        for source, tables in warm_up.items():
            for table in tables:
                running.topics[source].append(table, "warm-up")
        began_s = time.time()
        settle(running, 300.0)
        stop.check()
        early = sum(table.num_rows for tables in warm_up.values() for table in tables)
        first = LeftOut(WARM_UP, began_s, time.time(), early, None, None, exact=True)
        items = sum(table.num_rows for tables in backlog.values() for table in tables)
        say(f"a backlog of {items} items")
        from_s = time.time()
        for source, tables in backlog.items():
            for table in tables:
                running.topics[source].append(table, "feed")
        settle(running, 3600.0)
        until_s = time.time()
        checked = check_results(run, spark, running, say)
        counts = counts_of(running)
        seconds = until_s - from_s
        return LiveResult(from_s, until_s, items, seconds, counts, checked, warm_up=first)


def _backlog(
    run: LiveRun,
    source: str,
    from_s: float,
    seconds: float,
    first: int,
    random: np.random.Generator,
) -> list[Any]:
    """Tables of the input of `seconds` from `from_s` on, numbered from `first`."""
    count = max(1, round(run.rates_per_s[source] * seconds))
    moments = np.linspace(from_s, from_s + seconds, count, endpoint=False)
    made = []
    for n in range(0, count, ROWS_A_FILE):
        part = moments[n : n + ROWS_A_FILE]
        table = run.application.generate(source, part, first + n, random)
        spoil = run.application.spoil
        made.append(spoil(table, run.bad, random) if spoil and run.bad else table)
    return made
