"""One cluster and one jar for all tests of this folder, which `make test` leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.agent.standalone import HOSTS, SLOTS, OpenCluster, compiled
from tidegate.spark.local.cluster import LocalCluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A master and its workers."""
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(SLOTS, 512, HOSTS, folder).start(hosts=HOSTS) as running:
        yield running


@pytest.fixture
def open_cluster(cluster: LocalCluster, tmp_path: Path) -> Iterator[OpenCluster]:
    """Another one without authentication, next to the first, which is given no application."""
    with OpenCluster(SLOTS, 512, HOSTS, tmp_path / "open").start(hosts=HOSTS) as running:
        yield running


@pytest.fixture(scope="session")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job in Java."""
    return compiled(tmp_path_factory.mktemp("jar"))
