"""A real YARN for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clusters.yarn import LocalYarn, why_not


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalYarn]:
    """Two nodes; tests are skipped where YARN's jars cannot be fetched."""
    if reason := why_not():
        pytest.skip(reason)
    with LocalYarn(nodes=2, folder=tmp_path_factory.mktemp("yarn")) as running:
        yield running
