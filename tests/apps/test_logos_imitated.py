"""Logo detection whose operators wait for the times of the paper."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tidegate.apps.application import application
from tidegate.apps.logos import imitated
from tidegate.lab.papers.drs.world import VLD_26
from tidegate.spark.streams.file_topics import FileTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_its_loads_are_those_of_the_reproduction() -> None:
    rates = dict(VLD_26.service)
    assert pytest.approx(1 / rates["extract"]) == imitated.EXTRACT_S
    assert pytest.approx(1 / rates["match"]) == imitated.MATCH_S
    assert VLD_26.rate_per_s == imitated.FRAMES_PER_S
    assert VLD_26.service_scv == imitated.SERVICE_SCV
    drawn = imitated.frames("frames", np.arange(50_000.0), 0, np.random.default_rng(1))
    extract_s = drawn["extract_ms"].to_numpy() / 1000
    assert extract_s.mean() == pytest.approx(imitated.EXTRACT_S, rel=0.01)
    assert extract_s.var() / extract_s.mean() ** 2 == pytest.approx(0.25, abs=0.02)


def test_each_frame_takes_its_time_and_comes_out_once(spark: SparkSession, tmp_path: Path) -> None:
    app = application("logos", imitate=True, trigger_s=0.2, state_partitions=3)
    random = np.random.default_rng(1)
    table = app.generate("frames", 1e9 + np.arange(12) / 26, 0, random)
    work_s = sum(table["extract_ms"].to_pylist()) / 1000
    began_s = monotonic()
    check = app.run_through(spark, tmp_path, {"frames": [table]}, parallelism=1)
    assert monotonic() - began_s > work_s, "one slot waits for one frame after the other"
    assert check.exact, check.wrong
    assert check.results["aggregate"].num_rows == 12
    assert {b.parallelism for b in FileTopic(tmp_path / "topics/match").batches()} == {1}
