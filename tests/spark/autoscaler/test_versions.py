"""Versions of Spark: which calls they need, and what is said of those that do not work."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.errors import SettingError
from tidegate.lab.traces.build import build_trace
from tidegate.spark.autoscaler.versions import (
    KNOWN_VERSIONS,
    require_spark_4,
    version_of,
    warn_if_untested,
)


class Executions:
    """Spark 3.5's store of SQL executions: each with its root and its jobs."""

    def __init__(self, *executions: tuple[int, set[int]]) -> None:
        self.executions = executions

    def executionsCount(self) -> int:
        return len(self.executions)

    def executionsList(self, first: int, count: int) -> Any:
        part = self.executions[first : first + count]

        def nth(number: int) -> Any:
            root, jobs = part[number]
            has = SimpleNamespace(contains=lambda job: job in jobs)
            return SimpleNamespace(jobs=lambda: has, rootExecutionId=lambda: root)

        return SimpleNamespace(size=lambda: len(part), apply=nth)


def shared(*executions: tuple[int, set[int]]) -> Any:
    return SimpleNamespace(statusStore=lambda: Executions(*executions))


def test_spark_3_5_finds_the_batch_of_a_job_among_the_newest_executions() -> None:
    old = version_of("3.5.9")
    state = shared((1, {10}), (2, {20, 21}), (2, {22}))
    assert [old.root_execution({"jobId": job}, state) for job in (10, 22, 99)] == [1, 2, None]
    many = shared(*((n, {n}) for n in range(50)))
    assert old.root_execution({"jobId": 49}, many) == 49
    assert old.root_execution({"jobId": 3}, many) is None, "only the newest are searched"


def test_spark_4_reads_it_from_the_tags_of_the_job() -> None:
    job = {"jobId": 1, "jobTags": ["mine", "spark-session-x-execution-root-id-7"]}
    assert version_of("4.3.0").root_execution(job, None) == 7
    assert version_of("4.0.0").root_execution({"jobId": 1}, None) is None


def test_an_untested_version_is_a_warning_and_a_tested_one_is_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for minor in KNOWN_VERSIONS:
        warn_if_untested(f"{minor}.1")
    assert not caplog.records
    warn_if_untested("4.10.0")
    assert caplog.messages == [
        f"Spark 4.10.0 is untested; tested versions: {', '.join(KNOWN_VERSIONS)}"
    ]


def test_what_needs_spark_4_is_refused_in_a_sentence(tmp_path: Path) -> None:
    require_spark_4("4.0.0", "this")
    session: Any = SimpleNamespace(version="3.5.9")
    log: Any = None
    with pytest.raises(SettingError, match=r"version of Spark is '3\.5\.9'.*traces build"):
        build_trace(session, log, 1.0, tmp_path / "out")
