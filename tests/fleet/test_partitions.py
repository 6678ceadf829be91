"""Two real servers: one is suspended and one is cut off in a batch, and both continue."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fleet.cut_off import FAULTS, why_not
from tests.fleet.ledger import LEDGER, PAGE, UNFENCED, Result, add, page, read
from tests.fleet.partition_scenario import SINKS, Checkpoint, Scenario

ROOT = Path(__file__).parents[2]
FIRST = 2209
"""The first of two seeds: a file sink with a suspended server, and batches with a link down."""


@pytest.mark.java
def test_servers_that_continue_do_no_harm(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    if why := why_not():
        pytest.skip(f"no network namespaces: {why}")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    ledger = tmp_path / "ledger.csv"
    words = ["--seed", str(FIRST), "--runs", "2", "--hosts", "2", "--until-noticed"]
    places = ["--ledger", str(ledger), "--logs", str(tmp_path)]
    command = [sys.executable, "-m", "tests.fleet.partitions", *words, *places]
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = read(ledger)
    assert [(r.sink, r.fault) for r in found] == [("files", "suspended"), ("batches", "link down")]
    assert all(r.equal and r.rows > 50 and not r.repeated and not r.problem for r in found)
    # Both were noticed, so that the query had to start elsewhere.
    assert all(r.noticed_s is not None and r.starts > 1 for r in found)


def test_the_page_is_drawn_from_the_ledger() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(read(LEDGER), read(UNFENCED))


def test_a_ledger_keeps_results(tmp_path: Path) -> None:
    good = Result(1, "kafka", "link down", 3.5, 2.0, True, 100, True, 12, 1, 2, 2.25, 4.0, None)
    bad = Result.failed(Scenario.of(2), "TimeoutError: all rows, and a comma")
    for result in (bad, good):
        add(tmp_path / "ledger.csv", result)
    found = [dataclasses.replace(result, commit="") for result in read(tmp_path / "ledger.csv")]
    assert found == [dataclasses.replace(good, noticed_s=2.2), bad]
    assert "Of all 2 runs, 1 had no problem" in page(found) and bad.problem in page(found)


def test_a_run_again_counts_in_place_of_the_one_before() -> None:
    bad = Result.failed(Scenario.of(2), "TimeoutError: all rows")
    good = dataclasses.replace(bad, problem="", equal=True)
    drawn = page([bad, good])
    assert "Of all 1 runs, 1 had no problem" in drawn
    assert "TimeoutError: all rows (commit ); run again since" in drawn
    assert "Of all 1 runs, 0 had no problem" in page([good, bad])


def test_files_that_a_copy_listed_before_it_ended_are_of_the_next_batch(tmp_path: Path) -> None:
    """Number 1 was listed by a copy that ended before its batch: batch 1 reads up to number 2."""
    for part in ("offsets", "commits", "sources/0"):
        (tmp_path / part).mkdir(parents=True)
    for number in range(3):
        names = [f"{2 * number + 1}.json", f"{2 * number + 2}.json"]
        lines = [json.dumps({"path": f"file:///in/{n}", "batchId": number}) for n in names]
        (tmp_path / "sources/0" / str(number)).write_text("\n".join(["v1", *lines]))
    found = Checkpoint(tmp_path)
    (tmp_path / "offsets/0").write_text('v1\n{}\n{"logOffset":0}')
    (tmp_path / "commits/0").touch()
    assert found.batches() == {"1.json": 0, "2.json": 0} and found.has_all(2)
    assert not found.has_all(6)
    (tmp_path / "offsets/1").write_text('v1\n{}\n{"logOffset":2}')
    assert sorted(found.batches().values()) == [0, 0, 1, 1, 1, 1] and not found.has_all(6)
    (tmp_path / "commits/1").touch()
    assert found.has_all(6)


def test_the_seeds_cover_every_sink_and_fault_for_every_length() -> None:
    every = [Scenario.of(seed) for seed in range(1, 201)]
    assert {(s.sink, s.fault) for s in every} == {(k, f) for k in SINKS for f in FAULTS}
    assert {(s.fault, s.lasts_s < 2, s.lasts_s >= 60) for s in every} == {
        (fault, *length)
        for fault in FAULTS
        for length in ((True, False), (False, False), (False, True))
    }
    assert every == [Scenario.of(seed) for seed in range(1, 201)]
