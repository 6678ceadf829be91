"""The cost of an autoscaler: the throughput of a query with and without one, alternately.

    python benchmarks/live_overhead.py            # some minutes

A query on the embedded cluster processes a backlog as fast as it can. An autoscaler (a dry run, so
that nothing else changes) is attached for some seconds and detached for some seconds, in turn. The
benchmark compares rows per second of whole batches between neighbouring periods, because machines
are noisy; the spread shows how much of the result is noise.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tidegate.spark.autoscaler.autoscaler import Autoscaler
from tidegate.spark.local.cluster import LocalCluster
from tidegate.spark.local.session import session

ROWS_A_FILE = 2_000
FILES_A_BATCH = 10
SCHEMA = "id long, symbol string, cents long"


def write(folder: Path, files: int) -> None:
    """The backlog: small files of ticks."""
    folder.mkdir(parents=True)
    for number in range(files):
        first = number * ROWS_A_FILE
        lines = [
            json.dumps({"id": first + n, "symbol": f"S{n % 50}", "cents": 1000 + n % 77})
            for n in range(ROWS_A_FILE)
        ]
        (folder / f"{number:06d}.json").write_text("\n".join(lines), encoding="ascii")


def throughput(query: Any, from_s: float, until_s: float) -> float | None:
    """Rows per second of the batches that began and ended in between."""
    rows, took_s = 0, 0.0
    for progress in query.recentProgress:
        plain = json.loads(progress.json)
        began_s = _moment_s(plain["timestamp"])
        duration_s = plain["durationMs"]["triggerExecution"] / 1000
        if began_s >= from_s and began_s + duration_s <= until_s:
            rows += plain["numInputRows"]
            took_s += duration_s
    return rows / took_s if took_s else None


def _moment_s(text: str) -> float:
    from tidegate.spark.autoscaler.progress import read_progress

    event = json.dumps({"id": "", "runId": "", "timestamp": text})
    return read_progress(event).began_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pairs", type=int, default=8, help="turns with and without")
    parser.add_argument("--seconds", type=float, default=15.0, help="of a turn")
    parser.add_argument("--interval", default="5s", help="between two looks of the autoscaler")
    options = parser.parse_args()
    logging.getLogger("tidegate").setLevel(logging.ERROR)  # each dry run would give its account
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-bench-")))
        write(folder / "in", files=200 + int(options.pairs * options.seconds * 2 * 30))
        cluster = stack.enter_context(LocalCluster(cores=1, max_hosts=2).start(hosts=2))
        spark = stack.enter_context(
            session(
                cluster,
                folder / "driver.log",
                {
                    "spark.sql.shuffle.partitions": "2",
                    "spark.sql.streaming.numRecentProgressUpdates": "10000",
                },
            )
        )
        query = (
            spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", FILES_A_BATCH)
            .json(str(folder / "in"))
            .groupBy("symbol")
            .count()
            .writeStream.outputMode("update")
            .format("noop")
            .queryName("ticks")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )
        stack.callback(query.stop)
        began_s = time.time()
        time.sleep(3 * options.seconds)  # to compile, and warm up the JVMs
        cold = throughput(query, began_s, time.time())
        print(
            f"warm-up, not counted: {time.time() - began_s:.0f} s, "
            f"{'no batch ended' if not cold else f'{cold:.0f} rows/s'}",
            flush=True,
        )
        ratios = []
        for number in range(options.pairs):
            rates = {}
            # Which comes first changes, so that a trend counts for neither.
            for watched in (True, False) if number % 2 else (False, True):
                began_s = time.time()
                with contextlib.ExitStack() as watching:
                    if watched:
                        watching.enter_context(
                            Autoscaler(
                                spark,
                                slo="5s",
                                interval=options.interval,
                                journal=folder / f"{number}.jsonl",
                                dry_run=True,
                            )
                        )
                    time.sleep(options.seconds)
                rates[watched] = throughput(query, began_s, time.time())
            alone, watched_too = rates[False], rates[True]
            if alone and watched_too:
                ratios.append(watched_too / alone)
                change = f"{ratios[-1] - 1:+.1%}"
                print(
                    f"pair {number + 1}: {alone:.0f} rows/s alone, {watched_too:.0f} watched "
                    f"({change})",
                    flush=True,
                )
        middle = statistics.median(ratios)
        error = statistics.stdev(ratios) / len(ratios) ** 0.5
        print(f"\nwatched over alone: median {middle - 1:+.1%}, standard error {error:.1%}")


if __name__ == "__main__":
    main()
