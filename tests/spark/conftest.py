"""One Spark session and one Kafka broker for all tests here: a JVM takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.chains import local_session
from tidegate.errors import BackendError
from tidegate.spark.local.broker import LocalBroker
from tidegate.spark.local.kafka_jars import broker_jars


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[LocalBroker]:
    try:
        broker_jars()
    except BackendError as error:
        pytest.skip(str(error))
    with LocalBroker() as running:
        yield running
