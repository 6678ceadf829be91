"""FUGU's window queries: the stream against a computation of all ticks at once."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from tidegate.apps.application import application
from tidegate.apps.market import COMPANIES, SHARES, read_recording
from tidegate.apps.records import REASONS, spoiled
from tidegate.apps.ticks import draw_queries
from tidegate.errors import InputError

START_S = 1_700_000_040.0
NAME = "ticks"


def test_all_queries_equal_the_reference_and_bad_ticks_are_set_aside(
    spark: SparkSession, tmp_path: Path
) -> None:
    app, random = application("ticks"), np.random.default_rng(3)
    batches, added = [], 0
    for n in range(3):
        moments = START_S + 30 * n + np.sort(random.random(1_000)) * 30
        # Ticks come in disorder, as from many desks, and the order of files says nothing.
        table = app.generate(NAME, moments, 1_000 * n, random).take(random.permutation(1_000))
        batches.append(spoiled(table, 0.03, random))
        added += batches[-1].num_rows - 1_000
    check = app.run_through(spark, tmp_path, {NAME: batches})
    assert check.exact, check.wrong
    results = check.results["prices"].to_pylist()
    queries = draw_queries()
    assert len({row["query"] for row in results}) > 25
    assert all(row["start"] % queries[row["query"] - 1][0] == 0 for row in results)
    sectors = dict(COMPANIES)
    assert all(sectors[row["comp"]] == queries[row["query"] - 1][1] for row in results)
    assert set(check.rejected["parse"]) == set(REASONS)
    assert sum(check.rejected["parse"].values()) == added
    assert "queries had an answer" in app.tally(check.inputs, check.results)[0]


def test_the_reference_by_hand() -> None:
    app = application("ticks", queries=35)
    (window_s, sector) = draw_queries()[0]
    comp = next(name for name, where in COMPANIES if where == sector)
    from tidegate.apps.records import texts

    start_us = 1_700_000_040_000_000 // (window_s * 1_000_000) * window_s * 1_000_000
    at_us = start_us + np.array([5, 1, 1, 9], dtype=np.int64)
    table = texts(
        np.append(at_us, start_us + 3_600_000_000) / 1e6, id=[1, 3, 2, 4, 5], comp=[comp] * 5,
        sector=[sector] * 5, cents=[50, 30, 20, 40, 1],
    )  # fmt: skip
    rows = app.reference({NAME: table})["prices"].to_pylist()
    (row,) = [row for row in rows if row["query"] == 1]
    assert row == {
        "query": 1, "comp": comp, "start": start_us // 1_000_000, "first": 20, "min": 20,
        "avg": 35.0, "max": 50, "last": 40, "ticks": 4,
    }  # fmt: skip


def test_the_market_is_skewed_and_days_are_bursty() -> None:
    by_sector: dict[str, float] = {}
    for (_, sector), share in zip(COMPANIES, SHARES, strict=True):
        by_sector[sector] = by_sector.get(sector, 0.0) + share
    assert len({name for name, _ in COMPANIES}) == len(COMPANIES) == 682
    assert by_sector["Consumer Discretionary"] > 30 * by_sector["Energy"]
    assert SHARES.sum() == pytest.approx(1) and SHARES.max() > 0.02
    day = application("ticks").shape(NAME, 100.0, 511 * 60.0, 1)
    counts = np.histogram(day.arrivals(3600, 3900)[NAME], np.arange(3600, 3901))[0]
    assert counts.var() / counts.mean() > 4


def test_a_recorded_day_is_played_whole(tmp_path: Path) -> None:
    file = tmp_path / "day_keyed.csv.gz"
    lines = ["minute,symbol,trades,volume,open,high,low,close"]
    lines += ["0,SAP,5,1,10.0,12.0,9.0,11.0", "0,1COV,1,1,7.0,7.0,7.0,7.0", "1,SAP,2,1,11,13,11,13"]
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    (tmp_path / "xetra_symbols.csv.gz").write_bytes(gzip.compress(b"symbol,sector\nSAP,Software\n"))
    day = read_recording(file)
    sap = day.cents[[name == "SAP" for name in day.comp]].tolist()
    assert (sap[0], sap[4], min(sap[:5]), max(sap[:5]), sap[5:]) == (
        1000,
        1100,
        900,
        1200,
        [1100, 1300],
    )
    assert set(zip(day.comp, day.sector, strict=True)) == {
        ("SAP", "Software"),
        ("X1COV", "Unmapped"),
    }
    app = application("ticks", replay=file)
    workload = app.shape(NAME, 1.0, 12.0, 1)
    assert len(workload.arrivals(0, 12)[NAME]) == 8 and app.replays
    table = app.generate(
        NAME, START_S + workload.arrivals(0, 12)[NAME], 0, np.random.default_rng(1)
    )
    assert table["value"].to_pylist()[0].startswith('{"id":1,"comp":')


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "no rows"), ("a,b\n1,2\n", "columns"), ("t_ms,symbol,price\nx,SAP,1\n", "numbers")],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "day.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        application("ticks", replay=file)
    with pytest.raises(InputError, match="No such file"):
        application("ticks", replay=tmp_path / "nowhere.csv")
