"""Benchmark of `tidegate traces build`: rows per second and core, and how time grows with rows.

Writes logs of ticks (one day in milliseconds, a thousand symbols with a skewed distribution, one
invalid row in ten thousand) and builds traces with a step of one second from them, after a warm-up
with the smallest log. Rows per second and core use the processor time of the JVM, which other work
on the machine changes little; the wall-clock time is printed too. Fails if a row is lost.

    python benchmarks/traces.py [--millions 4,16] [--format csv|json|parquet] [--master local[2]]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pyspark import SparkContext

from tidegate.lab.traces.build import build_trace
from tidegate.lab.traces.read import find_log
from tidegate.spark.local.session import session_on

PIECE = 1_000_000
DAY_MS = 86_400_000
ONE_IN = 10_000
AIM_PER_S = 200_000


def write_log(path: Path, rows: int) -> None:
    """Write a log with that number of rows, a million at a time."""
    random = np.random.default_rng(1)
    writer: pyarrow.parquet.ParquetWriter | None = None
    with path.open("wb") as file:
        for begin in range(0, rows, PIECE):
            n = min(PIECE, rows - begin)
            t = 1_700_000_000_000 + np.sort(random.integers(0, DAY_MS, n)) * n // rows
            t += begin * DAY_MS // rows
            invalid = np.arange(begin, begin + n) % ONE_IN == 0
            names = np.array([f"S{i}" for i in range(1000)])
            table = pa.table(
                {
                    "ts": pa.array(t, mask=invalid),
                    "symbol": names[random.zipf(1.3, n) % 1000],
                    "price": np.round(random.uniform(1, 200, n), 2),
                    "qty": random.integers(1, 1000, n),
                }
            )
            if path.suffix == ".parquet":
                writer = writer or pyarrow.parquet.ParquetWriter(file, table.schema)
                writer.write_table(table)
            elif path.suffix == ".jsonl":
                cells = zip(*(table.column(i).to_pylist() for i in range(4)), strict=True)
                lines = (
                    f'{{"ts":{"null" if t is None else t},"symbol":"{s}","price":{p},"qty":{q}}}\n'
                    for t, s, p, q in cells
                )
                file.write("".join(lines).encode())
            else:
                options = pyarrow.csv.WriteOptions(include_header=begin == 0, quoting_style="none")
                pyarrow.csv.write_csv(table, file, options)
        if writer is not None:
            writer.close()


def jvm_cpu_s() -> float:
    """Processor time of the driver's JVM, which does all work of a local master, in seconds."""
    gateway = SparkContext._gateway
    assert gateway is not None
    fields = Path(f"/proc/{gateway.proc.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--millions", default="4,16", help="rows of the logs, in millions")
    reader.add_argument("--format", choices=("csv", "json", "parquet"), default="csv")
    reader.add_argument("--master", default="local[*]")
    given = reader.parse_args()
    sizes = [round(float(n) * 1e6) for n in given.millions.split(",")]
    ending = {"csv": "csv", "json": "jsonl", "parquet": "parquet"}[given.format]
    settings = {
        "spark.sql.files.maxPartitionBytes": str(32 << 20),
        "spark.sql.shuffle.partitions": "16",
    }
    with tempfile.TemporaryDirectory() as folder:
        log_file = Path(folder) / "spark.log"
        with session_on(given.master, log_file, settings, "benchmark") as spark:
            print("      rows      MB   wall s  rows/s wall   CPU s  rows/s and core", flush=True)
            figures: list[tuple[int, float]] = []
            for number, rows in enumerate((sizes[0], *sizes)):
                path = Path(folder) / f"{rows}.{ending}"
                if not path.exists():
                    write_log(path, rows)
                log = find_log(str(path), None, "ts", key="symbol")
                begun, cpu_s = time.perf_counter(), jvm_cpu_s()
                out = Path(folder) / "out"
                known = build_trace(spark, log, 1.0, out, overwrite=True).provenance
                wall_s, cpu_s = time.perf_counter() - begun, jvm_cpu_s() - cpu_s
                invalid = -(-rows // ONE_IN)
                seen = (known["rows"], known["rows_used"], known["rejected"])
                assert seen == (rows, rows - invalid, {"missing time": invalid}), seen
                if number:
                    figures.append((rows, cpu_s))
                size_mb = path.stat().st_size / 1e6
                print(
                    f"{rows:10,} {size_mb:7.0f} {wall_s:8.1f} {rows / wall_s:12,.0f}"
                    f" {cpu_s:7.1f} {rows / cpu_s:16,.0f}{'' if number else '  (warm-up)'}",
                    flush=True,
                )
    (small, small_s), (large, large_s) = figures[0], figures[-1]
    print(f"{large / small:.3g} times the rows took {large_s / small_s:.3g} times the CPU time")
    reached = "reached" if large / large_s >= AIM_PER_S else "missed"
    print(f"goal of {AIM_PER_S:,} rows/s and core: {reached}")


if __name__ == "__main__":
    main()
