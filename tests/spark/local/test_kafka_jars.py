"""Kafka's connector is refused where Spark has another Scala."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.errors import BackendError
from tidegate.spark.local import kafka_jars


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
