"""Four queries in one application: its input and reference without Spark, and scaling for real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from shutil import which

import numpy as np
import pyarrow as pa
import pytest

from tidegate.apps.application import ResultCheck, application, differences
from tidegate.apps.four_queries import LOW, QUERIES, SLO_S, silence
from tidegate.loop.journal import read_journal
from tidegate.model import SloByQuery

APP = application("four-queries", silence_s=120.0)
START_S = 1_000_000.0
ROOT = Path(__file__).parents[2]


def rows(source: str, count: int) -> pa.Table:
    """Rows of a source, eight a second."""
    moments = START_S + np.arange(count) / 8
    return APP.generate(source, moments, 0, np.random.default_rng(1))


def inputs() -> dict[str, pa.Table]:
    """A minute of every source but the empty one, and what closes the windows."""
    found = {source: rows(source, 480) for source in QUERIES.values()}
    found["faults"] = found["faults"].slice(0, 0)
    closing = APP.closing(START_S + 60)["payments"].cast(found["payments"].schema)
    return found | {"payments": pa.concat_tables([found["payments"], closing])}


def test_the_load_rises_tenfold_is_silent_for_two_minutes_and_rises_again() -> None:
    workload = APP.shape("orders", 300.0, 200.0, 1)
    begin_s, end_s = silence(200.0, 120.0)
    assert end_s - begin_s == 120
    assert workload.rate(0.0) == pytest.approx(LOW * 300) == pytest.approx(30)
    assert workload.rate(begin_s - 0.1) == workload.rate(199.9) == pytest.approx(300)
    assert len(workload.arrivals(begin_s + 0.1, end_s - 0.1)["orders"]) == 0
    assert workload.rate(end_s + 0.01) < 40
    assert APP.shape("faults", 0.0, 200.0, 1).rate(50.0) == 0


def test_each_query_has_its_own_target_and_only_one_has_a_limit_and_one_state() -> None:
    operators = {operator.name: operator for operator in APP.topology.operators}
    assert SloByQuery.read(APP.slo) == SloByQuery(60.0, SLO_S)
    assert [n for n, o in operators.items() if o.state_partitions] == ["totals"]
    assert operators["totals"].state_partitions == 64
    assert [n for n, o in operators.items() if o.max_files] == ["archive"]
    assert "RocksDB" in "".join(APP.settings.values())


def test_a_reference_has_every_row_of_every_source_once() -> None:
    found = APP.reference(inputs())
    assert {name: table.num_rows for name, table in found.items() if name != "totals"} == {
        "enrich": 480, "alarms": 0, "archive": 480,
    }  # fmt: skip
    totals = found["totals"].to_pylist()
    assert sum(row["payments"] for row in totals) == 480
    assert sum(row["checksum"] for row in totals) == sum(range(480))
    order = rows("orders", 480).to_pylist()[17]
    assert found["enrich"].to_pylist()[17]["score"] == order["cents"] * 3 + 17 % 7


def test_lost_and_repeated_rows_are_counted_over_all_queries() -> None:
    expected = {name: table.to_pylist() for name, table in APP.reference(inputs()).items()}

    def counted(**shown: list[dict[str, object]]) -> tuple[int | None, int | None]:
        wrong = {n: differences(expected[n], shown.get(n, expected[n])) for n in expected}
        return APP.lost_and_repeated(ResultCheck({}, {}, wrong, {}))

    assert counted() == (0, 0)
    assert counted(enrich=expected["enrich"][2:]) == (2, 0)
    assert counted(archive=[*expected["archive"], expected["archive"][0]]) == (0, 1)
    first = expected["totals"][0]
    assert counted(totals=expected["totals"][1:], enrich=expected["enrich"][1:]) == (
        first["payments"] + 1,
        0,
    )


@pytest.mark.java
@pytest.mark.trust
@pytest.mark.skipif(which("java") is None, reason="Spark needs Java")
def test_executors_follow_the_load_and_no_query_holds_them(tmp_path: Path) -> None:
    # A process has one Spark context, and the shared session may have it already.
    command = [sys.executable, "-m", "tests.apps.four_queries_live", str(tmp_path)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    turns = [t for t in read_journal(tmp_path / "journal.jsonl") if t.snapshot is not None]
    last = turns[-1].snapshot
    assert last is not None and {o.name: o.slo_s for o in last.topology.operators} == SLO_S
