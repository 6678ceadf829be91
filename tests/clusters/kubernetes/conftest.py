"""One cluster for all tests of this folder, which `make test` leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.kubernetes.cluster import KubernetesCluster
from tests.clusters.kubernetes.programs import api_server, etcd
from tidegate.errors import BackendError


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    try:
        api_server(), etcd()
    except BackendError as error:
        pytest.skip(str(error))
    with KubernetesCluster(Path(tmp_path_factory.mktemp("kubernetes"))) as running:
        yield running
