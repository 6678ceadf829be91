"""``tidegate doctor`` asks a real ResourceManager for the room in a queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.helpers import tidegate
from tests.clusters.yarn import CONTAINER_MB, CONTAINERS, LocalYarn, why_not

pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(why_not()), reason=why_not())]


@pytest.fixture(scope="module")
def yarn() -> Iterator[LocalYarn]:
    with LocalYarn(nodes=1) as running:
        yield running


def looked_at(yarn: LocalYarn, *words: str) -> dict[str, Any]:
    sizes = ("spark.executor.memory", "spark.executor.memoryOverhead", "spark.executor.cores")
    conf = [f"{key}={yarn.conf()[key]}" for key in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_CONF_DIR", yarn.environment()["HADOOP_CONF_DIR"])
        done = tidegate(
            *("doctor", "--json", "--slo", "5s", "--master", "yarn"),
            *(word for pair in conf for word in ("--conf", pair)),
            *(*words, "job.jar"),
        )
    assert done.returncode == 0, done.stderr
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def test_a_queue_that_is_too_small_limits(yarn: LocalYarn) -> None:
    read = looked_at(yarn, "--max-executors", "8")
    (finding,) = [f for f in read["findings"] if f["check"] == "yarn-queue"]
    assert (finding["severity"], finding["value"]) == ("limits", "default")
    wanted = f"room for {CONTAINERS} executors of {CONTAINER_MB} MB at most"
    assert wanted in finding["why"]


def test_a_queue_with_room_is_no_finding(yarn: LocalYarn) -> None:
    for words in ((), ("--queue", "root.default")):
        read = looked_at(yarn, "--max-executors", str(CONTAINERS), *words)
        assert "yarn-queue" in read["passed"]


def test_a_queue_that_is_not_there_is_not_checked_and_said_so(yarn: LocalYarn) -> None:
    read = looked_at(yarn, "--max-executors", "8", "--queue", "fast")
    because = {one["check"]: one["because"] for one in read["not_checked"]}
    assert because["yarn-queue"] == "YARN has no queue fast; there are: default"
