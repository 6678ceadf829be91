"""Traces from logs with bad rows: every row is counted, and figures are those of numpy."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tidegate.cli import app
from tidegate.errors import InputError
from tidegate.lab.traces.build import build_trace
from tidegate.lab.traces.read import find_log
from tidegate.simulation.trace_input import read_workload
from tidegate.workloads import RateTrace
from tidegate.workloads.built import read_built
from tidegate.workloads.burstiness import block_sums, hurst_from_variances, usable_scales

START_MS = 1_700_000_003_250


def events() -> tuple[np.ndarray, np.ndarray]:
    """Milliseconds and keys of a bursty log that is silent in its middle third."""
    random = np.random.default_rng(9)
    t = np.concatenate([random.integers(0, 100_000, 900), random.integers(200_000, 300_000, 500)])
    return START_MS + t, random.choice(["A", "B,b", "Ç"], len(t), p=[0.7, 0.2, 0.1])


def counts(t_ms: np.ndarray, step_ms: int) -> np.ndarray:
    slots = t_ms // step_ms
    return np.bincount(slots - slots.min()).astype(float)


def rejected_rows(out: Path) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for file in (out / "rejected").glob("*.json"):
        for row in map(json.loads, file.read_text().splitlines()):
            found[row["reason"], row["row"]] += row["times"]
    return found


def test_csv_of_several_files_with_bad_rows(spark: SparkSession, tmp_path: Path) -> None:
    t, key = events()
    bad = {
        ("invalid time", "soon,A,1"): 2,
        ("invalid time", "12d,A,1"): 1,
        ("missing time", ",A,1"): 1,
        ("missing key", f"{START_MS}, ,1"): 1,
        ("unreadable row", f"{START_MS},A"): 1,
        ("unreadable row", f"{START_MS},A,1,2"): 1,
        ("outside the span", "5,A,1"): 1,
    }
    good = [f'{ms},"{k}",1' if "," in k else f"{ms},{k},1" for ms, k in zip(t, key, strict=True)]
    spoilt = [row for (_, row), times in bad.items() for _ in range(times)]
    log = tmp_path / "log"
    log.mkdir()
    header = "ts,symbol,qty"
    (log / "one.csv").write_text("\n".join([header, *good[:600], *spoilt[:4]]))
    with gzip.open(log / "two.csv.gz", "wt") as file:
        file.write("\r\n".join([header, *spoilt[4:], *good[600:]]) + "\r\n")

    out = tmp_path / "out"
    given = find_log(str(log), None, "ts", key="symbol", start_us=10**15)
    build_trace(spark, given, 0.5, out)

    assert rejected_rows(out) == Counter(bad)
    built = read_built(out)
    assert built.provenance["unit"] == "ms"
    assert built.provenance["rows"] == len(t) + 8
    assert built.provenance["rows_used"] == built.provenance["events"] == len(t)
    assert built.provenance["rejected"] == dict(
        sum((Counter({r: n}) for (r, _), n in bad.items()), Counter())
    )
    whole = counts(t, 500)
    trace = read_workload(out / "trace.csv")
    assert isinstance(trace, RateTrace)
    assert (trace.rate_per_s * 0.5).tolist() == whole.tolist()
    assert (trace.rate_per_s[210:390] == 0).all()
    first = int(t.min()) // 500
    assert built.keys["key"] == ["A", "B,b", "Ç"]
    for i, name in enumerate(built.keys["key"]):
        slots = t[key == name] // 500 - first
        own = np.bincount(slots, minlength=len(whole)).astype(float)
        got = {column: float(values[i]) for column, values in built.keys.items() if column != "key"}
        scales = usable_scales(len(own), first)
        variances = np.array([(block_sums(own, m, first) / m).var() for m in scales])
        assert got == pytest.approx(
            {
                "events": own.sum(),
                "rate_per_s": own.mean() / 0.5,
                "share": own.sum() / len(t),
                "peak_to_mean": own.max() / own.mean(),
                "cv": own.std() / own.mean(),
                "dispersion": own.var() / own.mean(),
                "hurst": float(hurst_from_variances(scales, variances)[0]),
            }
        )
        assert got["hurst"] > 0.6


def test_json_lines_with_counts_and_iso_times(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        '{"at": "2026-07-01 09:00:00", "who": "x", "n": 3}',
        '{"at": "2026-07-01T09:00:02.5+02:00", "who": "y", "n": 1, "more": [1, {"a": 2}]}',
        '{"at": "2026-07-01T07:00:02Z", "who": 7, "n": 2}',
        '{"at": "2026-07-01T07:00:01Z", "who": "x", "n": -1}',
        '{"at": "2026-07-01T07:00:01Z", "who": null, "n": 1}',
        '{"at": "2026-07-01T07:00:01Z", "who": "x", "n": 1',
        '{"at": "2026", "who": "x", "n": 1}',
    ]
    log = tmp_path / "log.jsonl.gz"
    log.write_bytes(gzip.compress("\n".join(rows).encode()))
    given = find_log(str(log), None, "at", key="who", count="n")
    built = build_trace(spark, given, 1.0, tmp_path / "out", time_zone="Europe/Berlin")
    assert built.trace.rate_per_s.tolist() == [3, 0, 3]
    assert dict(zip(built.keys["key"], built.keys["events"], strict=True)) == {
        "x": 3,
        "7": 2,
        "y": 1,
    }
    reasons = ("invalid count", "missing key", "unreadable row", "invalid time")
    assert rejected_rows(tmp_path / "out") == Counter(zip(reasons, rows[3:], strict=True))
    assert built.provenance["first_step"] == "2026-07-01T07:00:00+00:00"


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    t, key = events()
    times = pa.array([*t.tolist(), None], pa.timestamp("ms", "UTC"))
    pq.write_table(pa.table({"ts": times, "user": [*key.tolist(), "A"]}), tmp_path / "log.parquet")
    return tmp_path / "log.parquet"


def test_the_commands(
    spark: SparkSession, parquet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def shared(*_: object) -> Iterator[SparkSession]:
        yield spark

    module = importlib.import_module("tidegate.cli.traces")  # its name is also the command's
    monkeypatch.setattr(module, "_spark", shared)
    out = tmp_path / "out"
    command = ["traces", "build", str(parquet), "--time", "ts", "--key", "user", "--out", str(out)]
    first = CliRunner().invoke(app, [*command, "--table", "parquet", "--max-keys", "2"])
    assert first.exit_code == 0, first.output
    assert "1 rows rejected" in first.output
    assert f"tidegate backtest {out / 'trace.parquet'}" in first.output
    ((reason, row),) = rejected_rows(out)
    assert (reason, json.loads(row)["row_index"]) == ("missing time", 1400)
    workload = read_workload(out / "trace.parquet")
    assert isinstance(workload, RateTrace)
    assert workload.rate_per_s.tolist() == counts(events()[0], 1000).tolist()
    skew = read_built(out).provenance["skew"]
    assert (skew["keys"], skew["listed"]) == (3, 2)

    again = CliRunner().invoke(app, command)
    assert isinstance(again.exception, InputError)
    assert "--overwrite" in str(again.exception)
    replaced = CliRunner().invoke(app, [*command, "--overwrite", "--step", "10s"])
    assert replaced.exit_code == 0, replaced.output
    assert not (out / "trace.parquet").exists()
    assert read_built(out).provenance["step_s"] == 10

    page = tmp_path / "page.html"
    shown = CliRunner().invoke(app, ["traces", "describe", str(out), "--report", str(page)])
    assert shown.exit_code == 0, shown.output
    assert "B,b" in shown.output
    for part in ("Lorenz curve", "Events per second", "rejected: missing time"):
        assert part in page.read_text()


def test_a_build_that_fails_leaves_what_was_there(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("ts,k\n1,a\n2000000000,a\n")
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("precious")
    with pytest.raises(InputError, match="holds other files"):
        build_trace(spark, find_log(str(log), None, "ts"), 1.0, out, overwrite=True)
    for step_s, problem in ((1.0, "remove stray times"), (1e10, "several")):
        with pytest.raises(InputError, match=problem):
            build_trace(spark, find_log(str(log), None, "ts"), step_s, tmp_path / "other")
    log.write_text("ts,k\nsoon,a\nlater,b\n")
    with pytest.raises(InputError, match="2 x invalid time; such as"):
        build_trace(spark, find_log(str(log), None, "ts"), 1.0, tmp_path / "other")
    with pytest.raises(InputError, match="a column of ts, k"):
        build_trace(spark, find_log(str(log), None, "when"), 1.0, tmp_path / "other")
    assert sorted(f.name for f in tmp_path.iterdir()) == ["log.csv", "out"]
    assert (out / "mine.txt").read_text() == "precious"


def test_inputs_that_are_refused_before_spark_starts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="quote patterns in a shell"):
        find_log(str(tmp_path / "*.csv"), None, "ts")
    (tmp_path / "a.csv").write_text("ts,k\n1,a\n")
    (tmp_path / "b.csv").write_text("k,ts\na,1\n")
    with pytest.raises(InputError, match=r"b\.csv, line 1: header"):
        find_log(str(tmp_path / "*.csv"), None, "ts")
    (tmp_path / "b.csv").rename(tmp_path / "b.json")
    with pytest.raises(InputError, match="--format"):
        find_log(str(tmp_path), None, "ts")
    assert find_log(str(tmp_path / "a.csv"), None, "ts").format == "csv"
