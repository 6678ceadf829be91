"""FUGU's experiments on days from files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.cli.helpers import tidegate
from tidegate.lab.papers.fugu import experiment as fugu
from tidegate.lab.papers.fugu.runs import Case, run_case
from tidegate.lab.papers.fugu.world import TICKS_PER_S, FuguWorld, read_days


def _write_day(path: Path, rates: Sequence[float], step_s: float = 60.0) -> Path:
    rows = "".join(f"{n * step_s:g},{rate:g}\n" for n, rate in enumerate(rates))
    path.write_text(f"t_s,rate\n{rows}")
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """A day of minutes, a louder one, and a half day of ten-second steps."""
    return [
        _write_day(tmp_path / "calm.csv", [10.0 + minute % 7 for minute in range(511)]),
        _write_day(tmp_path / "loud.csv", [26.0] * 511),
        _write_day(tmp_path / "half.csv", [5.0] * 765 + [15.0] * 765, step_s=10.0),
    ]


def test_days_from_files_keep_their_shape_and_their_volume_beside_day_one(
    files: list[Path],
) -> None:
    days = read_days(files)
    assert [day.name for day in days] == ["calm.csv", "loud.csv", "half.csv"]
    assert days[0].level_per_s == pytest.approx(13.0, abs=0.01)
    world = FuguWorld(1, days=days)
    first, loud, half = (world.day(number).minutes for number in (1, 2, 3))
    assert first[:7] * (days[0].level_per_s / TICKS_PER_S) == pytest.approx(np.arange(10.0, 17.0))
    assert loud == pytest.approx(np.full(511, TICKS_PER_S * 26 / days[0].level_per_s))
    assert half.mean() == pytest.approx(TICKS_PER_S * 10 / days[0].level_per_s)
    assert half[-1] == pytest.approx(3 * half[0])
    assert np.array_equal(FuguWorld(2, days=days).day(1).minutes, first)
    assert FuguWorld(2, days=days).queries != world.queries


def test_runs_follow_the_days_from_files(files: list[Path]) -> None:
    case, days = Case("local", day=2), read_days(files)
    recorded = run_case(1, case, 8, days)
    assert recorded != run_case(1, case, 8)
    assert recorded == run_case(1, case, 8, read_days(files))


def test_the_command_reads_days_from_files(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = replace(fugu.PAPER, measure=partial(fugu.measure, points=2))
    monkeypatch.setattr(fugu, "PAPER", short)
    words = [word for file in files for word in ("--days", file)]
    done = tidegate("reproduce", "fugu", "--quick", *words)
    assert done.returncode == 0, done.stderr
    assert "calm.csv (mean 13/s)" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("rates", "step_s", "words"),
    [
        ([1.0, math.nan, 2.0], 60.0, "day.csv, line 3: rate is 'nan'"),
        ([1.0, -2.0, 2.0], 60.0, "day.csv, line 3: rate is '-2'"),
        ([1.0] * 511, 1.0, "--days day.csv: duration is 511.0; it must be 3600 to 86400 s"),
        ([1.0] * 511, 3600.0, "cut the file to one day"),
        ([0.0] * 511, 60.0, "--days day.csv: mean rate is 0.0; it must be above 0"),
        ([], 60.0, "only its header is there"),
    ],
)
def test_a_bad_day_is_one_sentence(
    rates: list[float], step_s: float, words: str, tmp_path: Path, files: list[Path]
) -> None:
    bad = _write_day(tmp_path / "day.csv", rates, step_s)
    done = tidegate("reproduce", "fugu", "--days", files[0], "--days", files[1], "--days", bad)
    assert done.returncode == 2
    assert words in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("paper", "count", "words"),
    [
        ("fugu", 2, "--days is 2; it must be 3 files: give Days 1, 2 and 3"),
        ("fugu", 4, "--days is 4; it must be 3 files"),
        ("drs", 3, "it must be used with fugu"),
        ("all", 3, "it must be used with fugu"),
    ],
)
def test_three_days_are_wanted_by_fugu_only(paper: str, count: int, words: str) -> None:
    done = tidegate("reproduce", paper, *["--days", "none.csv"] * count)
    assert done.returncode == 2
    assert words in done.stderr and done.stderr.count("\n") == 1
