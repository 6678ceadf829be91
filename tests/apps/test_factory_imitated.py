"""The factory whose operators wait for the times of the authors' code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tidegate.apps.application import application
from tidegate.apps.factory.imitated import FORWARDED, WAITS_S
from tidegate.lab.papers.visp.world import EDGES, OPERATORS, service_s

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_it_costs_and_forwards_what_the_reproduction_assumes() -> None:
    assert {name[:2] for name in WAITS_S} == set(OPERATORS)
    for name, wait_s in WAITS_S.items():
        assert wait_s == pytest.approx(service_s(OPERATORS[name[:2]], "code"), abs=5e-4)
    ratios = {edge.origin: edge.ratio for edge in EDGES if edge.origin in OPERATORS}
    for name, share in FORWARDED.items():
        if name[:2] in ratios:
            assert share == pytest.approx(ratios[name[:2]])
    assert FORWARDED["O9-report"] == OPERATORS["O9"].emitted


def test_the_stream_forwards_these_shares(spark: SparkSession, tmp_path: Path) -> None:
    app = application("factory", imitate=True, trigger_s=0.2)
    random = np.random.default_rng(1)
    counts = {"S1": 100, "S2": 4, "S3": 204}
    inputs = {
        source: [app.generate(source, 1e9 + np.arange(count) / 50, 0, random)]
        for source, count in counts.items()
    }
    check = app.run_through(spark, tmp_path, inputs, parallelism=2)
    assert check.exact, check.wrong
    assert check.results["O8-inform"].num_rows == 98 + 2
    assert check.results["O9-report"].num_rows == 1
