"""The cost of an autoscaler: the throughput of a query with and without one, alternately.

    python benchmarks/live_overhead.py            # half an hour at most
    python benchmarks/live_overhead.py --report   # only the result of the pairs so far

A query on the embedded cluster works as fast as it can on rows that Spark makes. An autoscaler (a
dry run, so that nothing else changes) is attached for some seconds and detached for some seconds,
in turn. The first `SETTLE_S` seconds after a change do not count, so that the figure is the cost of
an autoscaler that watches, not of attaching one. A *pair* is two such periods, one of each
kind, and its figure is the ratio of their rows per second. Which of the two comes first changes
with every pair, so that a trend counts for neither. The batches are so large that the query keeps
both cores busy.

Rows per second depend on what else the machine does. A second figure does not: the CPU time of the
autoscaler itself (this process, and the threads of the driver that answer it), beyond that of
periods without one, as a share of the CPU time of the whole application.

The stopping rule is fixed in advance: after at least `FEWEST` pairs, stop as soon as the 95 %
interval of the mean difference (Student's) is narrower than ±1 percentage point. The rule looks at
the width only, never at the difference. Without that, stop after --minutes and say so.

Pairs are kept in OUT/overhead.json as they end, and a run that was interrupted continues with them;
--again forgets them. The result is written to docs/measured/live.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from live import PAGE, half_width, write

from tidegate.spark.autoscaler.autoscaler import Autoscaler
from tidegate.spark.local.cluster import LocalCluster
from tidegate.spark.local.session import session

FEWEST = 10
"""Pairs before the stopping rule is looked at."""
NARROW = 0.01
"""Half the width of the interval at which to stop."""
ROWS_A_BATCH = 2_000_000
LONGEST_BATCH_S = 3.0
"""Seconds after which a batch that ran is reported."""
PROGRESSES = 200
"""Latest batches in which the rows of a period are looked for."""
SETTLE_S = 6.0
"""Seconds after a change that do not count; the first look takes longer than the later ones."""
WARM_UP_S = 90.0
CALLED_FROM_PYTHON = "Thread-"
"""Names of the driver's threads that take calls from Python begin so."""
TICKS_A_S = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def query(folder: Path) -> Iterator[tuple[Any, Any]]:
    """A session and its query, which is always busy."""
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(cores=1, max_hosts=2).start(hosts=2))
        settings = {
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.numRecentProgressUpdates": "10000",
        }
        spark = stack.enter_context(session(cluster, folder / "driver.log", settings))
        running = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", ROWS_A_BATCH)
            .option("numPartitions", 2)
            .load()
            .selectExpr("substr(sha2(cast(value AS string), 256), 1, 2) AS symbol", "value")
            .groupBy("symbol")
            .count()
            .writeStream.outputMode("update")
            .format("noop")
            .queryName("rows")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )
        stack.callback(running.stop)
        yield spark, running


def cpu_s() -> tuple[float, float]:
    """CPU seconds of the application so far, and of what works for the autoscaler.

    The application is this process and everything that it started. For the autoscaler work this
    process, which does nothing else, and the threads of the driver that take calls from Python.
    """
    used: dict[int, tuple[int, int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                _, parent, ticks = _stat(folder)
                used[int(folder.name)] = parent, ticks
    ours, before = {os.getpid()}, 0
    while len(ours) > before:
        before = len(ours)
        ours |= {pid for pid, (parent, _) in used.items() if parent in ours}
    own = used[os.getpid()][1]
    for pid in ours - {os.getpid()}:
        for task in Path(f"/proc/{pid}/task").glob("*"):
            with contextlib.suppress(OSError):
                name, _, ticks = _stat(task)
                own += ticks if name.startswith(CALLED_FROM_PYTHON) else 0
    return sum(used[pid][1] for pid in ours) / TICKS_A_S, own / TICKS_A_S


def _stat(folder: Path) -> tuple[str, int, int]:
    """Name, parent and clock ticks of a process or thread."""
    before, _, after = (folder / "stat").read_text().rpartition(")")
    fields = after.split()
    return before.partition("(")[2], int(fields[1]), int(fields[11]) + int(fields[12])


def rows_done(running: Any, from_s: float, until_s: float) -> float:
    """Rows processed in a period; those of a batch are spread evenly over its time."""
    rows = 0.0
    for progress in running.recentProgress[-PROGRESSES:]:
        plain = json.loads(progress.json)
        began = datetime.fromisoformat(plain["timestamp"].replace("Z", "+00:00"))
        began_s = began.replace(tzinfo=UTC).timestamp()
        ended_s = began_s + plain["durationMs"]["triggerExecution"] / 1000
        inside_s = max(0.0, min(ended_s, until_s) - max(began_s, from_s))
        rows += plain["numInputRows"] * inside_s / max(1e-3, ended_s - began_s)
    return rows


def period(
    spark: Any, running: Any, seconds: float, interval: str, journal: Path | None
) -> tuple[float, float]:
    """Rows per second, and the share of the CPU time that works for the autoscaler.

    journal: of the autoscaler, None without one.
    """
    scaler = None
    if journal is not None:
        scaler = Autoscaler(spark, slo="5s", interval=interval, journal=journal, dry_run=True)
        scaler.start()
    time.sleep(SETTLE_S)
    began_s, (all_before_s, own_before_s) = time.time(), cpu_s()
    time.sleep(seconds)
    ended_s, (all_s, own_s) = time.time(), cpu_s()
    if scaler is not None:
        scaler.stop()
    time.sleep(LONGEST_BATCH_S)  # until the batch that ran at the end is reported
    rows = rows_done(running, began_s, ended_s)
    if not rows:
        raise SystemExit("no row in a period: give more --seconds")
    return rows / (ended_s - began_s), (own_s - own_before_s) / (all_s - all_before_s)


def interval_of(ratios: list[float]) -> tuple[float, float]:
    """The mean difference and half the width of its 95 % interval, as shares."""
    return (statistics.fmean(ratios) - 1 if ratios else math.nan), half_width(ratios)


def sentence(ratios: list[float], own: list[float], seconds: float, interval: str) -> str:
    """The result. ratios: of rows per second. own: shares of the CPU time for the autoscaler."""
    mean, half = interval_of(ratios)
    narrow = (
        "The interval is narrower than ±1 percentage point"
        if half < NARROW
        else "The time limit ended the measurement before the interval was narrower than ±1 point"
    )
    return (
        f"Rows per second with the autoscaler relative to without: {100 * mean:+.2f} %, 95 % "
        f"interval {100 * (mean - half):+.2f} % to {100 * (mean + half):+.2f} %, from "
        f"{len(ratios)} pairs of {seconds:.0f} s each way, with a decision every {interval}. "
        f"{narrow}. The autoscaler itself took {100 * statistics.fmean(own):.2f} ± "
        f"{100 * half_width(own):.2f} % of the CPU time of the application."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=15.0, help="of a period")
    parser.add_argument("--interval", default="5s", help="between two looks of the autoscaler")
    parser.add_argument("--minutes", type=float, default=30.0, help="at most")
    parser.add_argument("--pairs", type=int, default=10_000, help="at most, for a try")
    parser.add_argument("--again", action="store_true", help="forget earlier pairs")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--out", type=Path, default=Path("out/live"))
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    logging.getLogger("tidegate").setLevel(logging.ERROR)
    kept = options.out / "overhead.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    settings = [options.seconds, options.interval, ROWS_A_BATCH]
    read = json.loads(kept.read_text()) if kept.exists() and not options.again else {}
    same = read.get("settings") == settings
    ratios: list[float] = read.get("ratios", []) if same else []
    own: list[float] = read.get("own", []) if same else []
    end_s = time.monotonic() + 60 * options.minutes

    def enough() -> bool:
        narrow = len(ratios) >= FEWEST and interval_of(ratios)[1] < NARROW
        return narrow or len(ratios) >= options.pairs or time.monotonic() > end_s

    if not options.report and not enough():
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as made:
            folder = Path(made)
            with query(folder) as (spark, running):
                print("warming up", flush=True)
                time.sleep(WARM_UP_S)  # to compile
                while not enough():
                    number = len(ratios)
                    found: dict[bool, tuple[float, float]] = {}
                    for watched in (True, False) if number % 2 else (False, True):
                        journal = folder / f"{number}.jsonl" if watched else None
                        found[watched] = period(
                            spark, running, options.seconds, options.interval, journal
                        )
                    (alone, idle), (with_it, busy) = found[False], found[True]
                    ratios.append(with_it / alone)
                    own.append(busy - idle)
                    kept.write_text(
                        json.dumps({"settings": settings, "ratios": ratios, "own": own})
                    )
                    mean, half = interval_of(ratios)
                    print(
                        f"pair {len(ratios)}: {alone:.0f} rows/s alone, {with_it:.0f} watched "
                        f"({ratios[-1] - 1:+.1%}, {own[-1]:.2%} of the CPU time); so far "
                        f"{mean:+.2%} ± {half:.2%}, {statistics.fmean(own):.2%} ± "
                        f"{half_width(own):.2%}",
                        flush=True,
                    )
    if len(ratios) < 2:
        raise SystemExit("fewer than two pairs: nothing to report")
    text = sentence(ratios, own, options.seconds, options.interval)
    print(f"\n{text}")
    if len(ratios) >= FEWEST:
        write(options.page, "overhead", text)
        print(f"written to {options.page}")


if __name__ == "__main__":
    main()
