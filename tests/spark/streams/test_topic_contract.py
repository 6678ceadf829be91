"""Topics of files and topics in Kafka, held to one contract on a real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tidegate.spark.streams.locations import open_topic
from tidegate.spark.streams.topic import Topic
from tidegate.testing.topics import OpenTopic, check_publishing, check_reading, check_writing


@pytest.fixture(params=["files", "kafka"])
def opened(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> OpenTopic:
    """Opens one and the same topic, as often as it is called."""
    metadata = tmp_path / "topics"
    place: str | Path = metadata
    if request.param == "kafka":
        name = "".join(c if c.isalnum() else "-" for c in request.node.name)
        place = f"{request.getfixturevalue('broker').location}/{name}?partitions=2"

    def open_it(schema: StructType | None) -> Topic:
        return open_topic(place, "items", schema, metadata)

    return open_it


def test_publishing(opened: OpenTopic, spark: SparkSession) -> None:
    check_publishing(opened, spark)


def test_batches_of_queries(opened: OpenTopic, spark: SparkSession) -> None:
    check_writing(opened, spark)


def test_reading_lag_and_trimming(opened: OpenTopic, spark: SparkSession, tmp_path: Path) -> None:
    check_reading(opened, spark, tmp_path)
