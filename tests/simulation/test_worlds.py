"""The worlds that tests of decisions use are those that they describe."""

from __future__ import annotations

import pytest

from tests.simulation.worlds import FIXED_WORK_SLO_S, fixed_work_scenario
from tidegate.simulation import MicroBatchCloud


@pytest.mark.parametrize(
    ("executors", "batch_s", "oldest_s"),
    [(1, 22 / 3, 44 / 3), (2, 3.625, 8.625), (3, 2.583, 7.583), (20, 0.8125, 5.8125)],
)
def test_fixed_work_decides_how_many_executors_are_enough(
    executors: int, batch_s: float, oldest_s: float
) -> None:
    cloud = fixed_work_scenario(initial_hosts=executors).world("engines", seed=1)
    assert isinstance(cloud, MicroBatchCloud)
    cloud.advance(600)
    report = cloud.report()
    batches = cloud.observe().batches
    assert batches is not None
    assert batches.recent_durations_s[-1] == pytest.approx(batch_s, rel=0.05)
    assert report.latency_p99_s == pytest.approx(oldest_s, rel=0.05)
    assert report.latency_max_s is not None
    assert report.latency_max_s < FIXED_WORK_SLO_S
    assert batches.cost is not None
    rows = 2000 * max(5.0, batch_s)
    work_s = batches.cost.fixed_work.value + rows * batches.cost.per_row.value
    assert work_s == pytest.approx(20 + rows * 0.0005, rel=0.05)
