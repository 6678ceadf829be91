"""The papers' load shapes for live runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tidegate.apps.application import application
from tidegate.apps.live import LiveRun
from tidegate.apps.loads import LOADS, load
from tidegate.errors import InputError
from tidegate.workloads import Only, VispPattern
from tidegate.workloads.papers import ITEMS_PER_TICK, TICK_S


@pytest.mark.parametrize("name", LOADS)
def test_every_shape_has_about_the_mean_rate_and_ends_with_the_run(name: str) -> None:
    played = load(name)("frames", 26.0, 600.0, 3)
    times = played.arrivals(0.0, 1200.0)["frames"]
    assert len(times) / 600 == pytest.approx(26, rel=0.2)
    assert np.all((times >= 0) & (times < 600))
    assert len(played.arrivals(0, 300)["frames"]) + len(
        played.arrivals(300, 1200)["frames"]
    ) == len(times)


@pytest.mark.parametrize("pattern", ["stepwise", "two_level", "random_walk_1", "random_walk_2"])
def test_the_factory_gets_the_machines_of_the_paper_in_the_time_of_the_run(
    tmp_path: Path, pattern: str
) -> None:
    run = LiveRun(application("factory"), tmp_path, seconds=240, load=f"visp:{pattern}")
    arrivals = run.workload().arrivals(0, 240)
    assert set(arrivals) == set(ITEMS_PER_TICK)
    paper = VispPattern(pattern).machines_by_tick  # type: ignore[arg-type]
    for source, items in ITEMS_PER_TICK.items():
        at = np.round(arrivals[source] / TICK_S).astype(int)
        sent = np.bincount(at, minlength=500)[:500] / items
        assert np.allclose(arrivals[source], at * TICK_S), "all machines at once, every 480 ms"
        assert np.array_equal(sent, paper[::30]), "every thirtieth tick of two hours"


def test_bursts_of_frames_begin_with_the_second() -> None:
    times = load("video")("frames", 26.0, 60.0, 1).arrivals(0, 60)["frames"]
    assert (times % 1).max() <= 0.65
    counts = np.bincount(times.astype(int), minlength=60)
    assert counts.min() >= 2, "two videos of at least one frame"
    assert 40 < counts.max() <= 50


def test_an_unknown_load_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="visp:stepwise"):
        LiveRun(application("logos", imitate=True), tmp_path, load="visp")


def test_only_one_source() -> None:
    with pytest.raises(InputError, match="S1, S2, S3"):
        Only(VispPattern(), "S4")
    both = [Only(VispPattern(spread_s=0.1), name) for name in ("S1", "S2")]
    assert both[0].streams.isdisjoint(both[1].streams)
