"""Kafka's jars are exactly the expected ones, and are refused where Spark has another Scala."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tidegate.errors import BackendError
from tidegate.spark.local import kafka_jars, maven


@pytest.fixture
def scala(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Spark's jars; Kafka's are in another, which is complete."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "kafka" / "connector").mkdir(parents=True)
    (tmp_path / "kafka" / "connector" / "connector.jar").touch()
    monkeypatch.setattr(kafka_jars, "spark_home", lambda: tmp_path)
    monkeypatch.setenv("TIDEGATE_KAFKA_JARS", str(tmp_path / "kafka"))
    return tmp_path / "jars"


def test_the_connector_is_not_for_spark_3(scala: Path) -> None:
    (scala / "scala-library-2.12.18.jar").touch()
    with pytest.raises(BackendError, match=r"for Spark 4 \(Scala 2\.13\).*spark\.jars\.packages"):
        kafka_jars.connector_jars()


def test_the_connector_is_for_spark_4(scala: Path) -> None:
    (scala / "scala-library-2.13.18.jar").touch()
    assert kafka_jars.connector_jars().endswith("connector.jar")


def test_every_jar_has_a_digest_and_another_content_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = dict(line.split()[::-1] for line in kafka_jars.DIGESTS.read_text().splitlines())
    wanted = [jar for jars in kafka_jars._WANTED.values() for jar in jars]
    assert {f"{name}-{version}.jar" for _, name, version in wanted} <= set(digests)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests.values())

    def deliver(command: Sequence[str], timeout_s: float) -> tuple[bool, list[str]]:
        folder = Path(command[-1].partition("[conf]")[0], "broker")
        folder.mkdir(parents=True)
        for name in digests:
            (folder / name).write_bytes(b"not what was published")
        return True, []

    monkeypatch.setattr(maven, "run_to_end", deliver)
    monkeypatch.setenv("TIDEGATE_KAFKA_JARS", str(tmp_path / "kafka"))
    with pytest.raises(BackendError, match=r"not kept: .*kafka_2\.13-4\.1\.1\.jar.* SHA-256"):
        kafka_jars.fetch()
    assert not (tmp_path / "kafka").exists()


def test_the_jars_that_are_here_are_the_expected_ones() -> None:
    here = sorted(kafka_jars.jar_folder().rglob("*.jar"))
    if not here:
        pytest.skip("Kafka's jars are not here: run make kafka")
    digests = dict(line.split()[::-1] for line in kafka_jars.DIGESTS.read_text().splitlines())
    assert {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in here} == digests
