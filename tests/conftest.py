"""What all tests share: one Hypothesis profile, one Spark session, one Kafka broker, some journals.

The profile gives the same examples on every machine and sets no deadline. A JVM takes seconds to
start, so sessions are shared. A test that uses one is marked ``java``; `make unit` leaves it out.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tidegate.spark.agent import JAR

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.spark.local.broker import LocalBroker

settings.register_profile(
    "tidegate",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tidegate")

# The class path of a JVM is fixed when it starts, and the sessions of a process share one JVM.
os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--driver-class-path {JAR} pyspark-shell")
# Commands with a dashboard keep a token there, which must not be that of the developer.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="tidegate-tests-")

NEEDS_JAVA = {"spark", "broker"}
"""Fixtures behind which a JVM stands."""


def pytest_unconfigure() -> None:
    """Remove the folder of tokens; a forked process ends without its exit handlers."""
    shutil.rmtree(os.environ["XDG_STATE_HOME"], ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a JVM through a fixture."""
    for item in items:
        if NEEDS_JAVA & set(getattr(item, "fixturenames", ())):
            item.add_marker("java")
        if item.path.parent.name == "browser":
            item.add_marker("browser")


@pytest.fixture(scope="session")
def journals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Simulated journals by policy, for tests that look at journals; not to be written to."""
    from tests.dashboard.journals import make_journals

    return make_journals(tmp_path_factory.mktemp("journals"))


@pytest.fixture(scope="session")
def _spark_ends() -> Iterator[None]:
    """Stop the shared session after the last test."""
    yield
    from pyspark.sql import SparkSession

    if (session := SparkSession.getActiveSession()) is not None:
        session.stop()


@pytest.fixture
def spark(_spark_ends: None) -> SparkSession:
    """The local session that tests share.

    A process has one Spark context, so a test that runs a session on a cluster ends this one. It is
    therefore created again when it is gone.
    """
    from tests.spark.streams.chains import local_session

    return local_session()


@pytest.fixture(scope="session")
def broker() -> Iterator[LocalBroker]:
    """An embedded Kafka broker; tests are skipped where its jars cannot be fetched."""
    from tidegate.errors import BackendError
    from tidegate.spark.local.broker import LocalBroker
    from tidegate.spark.local.kafka_jars import broker_jars

    try:
        broker_jars()
    except BackendError as error:
        pytest.skip(str(error))
    with LocalBroker() as running:
        yield running
