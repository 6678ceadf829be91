"""Runs that processes share, and that are done only once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidegate.lab.papers import jobs
from tidegate.lab.papers.jobs import run_jobs, running_with


def squared_by(number: int) -> tuple[int, int]:
    return number**2, os.getpid()


def test_processes_share_the_runs_and_keep_their_order() -> None:
    told: list[tuple[int, int]] = []
    with running_with(processes=2):
        found = run_jobs(squared_by, [3, 1, 2], lambda n, job: told.append((n, job)))
    assert [square for square, _ in found] == [9, 1, 4]
    assert all(process != os.getpid() for _, process in found)
    assert told == [(1, 3), (2, 1), (3, 2)]


def test_a_finished_run_is_not_repeated(tmp_path: Path) -> None:
    done: list[int] = []

    def run(number: int) -> int:
        done.append(number)
        if number == 3:
            raise KeyboardInterrupt
        return 10 * number

    with running_with(keep=tmp_path):
        with pytest.raises(KeyboardInterrupt):
            run_jobs(run, [1, 2, 3])
        assert run_jobs(run, [1, 2]) == [10, 20]
    assert done == [1, 2, 3]


def test_what_other_code_has_kept_is_void(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_with(keep=tmp_path):
        run_jobs(str, [1])
        monkeypatch.setattr(jobs, "_code", lambda: "other")
        calls: list[int] = []
        run_jobs(str, [1], lambda n, job: calls.append(job))
    assert calls == [1]


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    with running_with(keep=tmp_path):
        run_jobs(str, [1])
        (file,) = tmp_path.iterdir()
        file.write_bytes(file.read_bytes()[:-2])
        assert run_jobs(str, [1]) == ["1"]
