"""The cost of an autoscaler: the throughput of a query with and without one, alternately.

    python benchmarks/live_overhead.py            # half an hour at most
    python benchmarks/live_overhead.py --report   # only the result of the pairs so far

A query on the embedded cluster works as fast as it can on rows that Spark makes. An autoscaler (a
dry run, so that nothing else changes) is attached for some seconds and detached for some seconds,
in turn. The first `SETTLE_S` seconds after a change do not count, so that the figure is the cost of
an autoscaler that watches, not of attaching one. A *pair* is two such periods, one of each
kind, and its figure is the ratio of their rows per second, over whole batches. Which of the two
comes first changes with every pair, so that a trend counts for neither.

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
ROWS_A_BATCH = 400_000
SETTLE_S = 6.0
"""Seconds after a change that do not count; the first look takes longer than the later ones."""
WARM_UP_S = 60.0


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


def throughput(running: Any, from_s: float, until_s: float) -> float | None:
    """Rows per second of the batches that began and ended in between."""
    rows, took_s = 0, 0.0
    for progress in running.recentProgress:
        plain = json.loads(progress.json)
        began = datetime.fromisoformat(plain["timestamp"].replace("Z", "+00:00"))
        began_s = began.replace(tzinfo=UTC).timestamp()
        duration_s = plain["durationMs"]["triggerExecution"] / 1000
        if began_s >= from_s and began_s + duration_s <= until_s:
            rows += plain["numInputRows"]
            took_s += duration_s
    return rows / took_s if took_s else None


def period(
    spark: Any, running: Any, seconds: float, interval: str, journal: Path | None
) -> float | None:
    """Rows per second of one period. journal: of the autoscaler, None without one."""
    scaler = None
    if journal is not None:
        scaler = Autoscaler(spark, slo="5s", interval=interval, journal=journal, dry_run=True)
        scaler.start()
    time.sleep(SETTLE_S)
    began_s = time.time()
    time.sleep(seconds)
    found = throughput(running, began_s, time.time())
    if scaler is not None:
        scaler.stop()
    return found


def interval_of(ratios: list[float]) -> tuple[float, float]:
    """The mean difference and half the width of its 95 % interval, as shares."""
    return (statistics.fmean(ratios) - 1 if ratios else math.nan), half_width(ratios)


def sentence(ratios: list[float], seconds: float, interval: str) -> str:
    """The result."""
    mean, half = interval_of(ratios)
    narrow = (
        "The interval is narrower than ±1 percentage point"
        if half < NARROW
        else "The time limit ended the measurement before the interval was narrower than ±1 point"
    )
    inside = "and lies within ±1 point" if abs(mean) + half <= NARROW else (
        "but does not lie within ±1 point"
    )  # fmt: skip
    return (
        f"Throughput with the autoscaler relative to without: {100 * mean:+.2f} %, 95 % interval "
        f"{100 * (mean - half):+.2f} % to {100 * (mean + half):+.2f} %, from {len(ratios)} pairs "
        f"of {seconds:.0f} s each way, with a decision every {interval}. {narrow}, {inside}."
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
    ratios: list[float] = read.get("ratios", []) if read.get("settings") == settings else []
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
                    rates: dict[bool, float | None] = {}
                    for watched in (True, False) if number % 2 else (False, True):
                        journal = folder / f"{number}.jsonl" if watched else None
                        rates[watched] = period(
                            spark, running, options.seconds, options.interval, journal
                        )
                    alone, with_it = rates[False], rates[True]
                    if not alone or not with_it:
                        print("no whole batch in a period: give more --seconds", flush=True)
                        continue
                    ratios.append(with_it / alone)
                    kept.write_text(json.dumps({"settings": settings, "ratios": ratios}))
                    mean, half = interval_of(ratios)
                    print(
                        f"pair {len(ratios)}: {alone:.0f} rows/s alone, {with_it:.0f} watched "
                        f"({ratios[-1] - 1:+.1%}); so far {mean:+.2%} ± {half:.2%}",
                        flush=True,
                    )
    if len(ratios) < 2:
        raise SystemExit("fewer than two pairs: nothing to report")
    text = sentence(ratios, options.seconds, options.interval)
    print(f"\n{text}")
    if len(ratios) >= FEWEST:
        write(options.page, "overhead", text)
        print(f"written to {options.page}")


if __name__ == "__main__":
    main()
