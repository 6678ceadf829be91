"""The settings that the guide recommends are those of the cluster that is measured."""

from __future__ import annotations

import re
from pathlib import Path

from tidegate.spark.autoscaler.submit import DEFAULTS
from tidegate.spark.local.cluster import LocalCluster

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "clusters.md"


def recommended() -> dict[str, str]:
    found = re.search(r"```ini\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return dict(line.split() for line in found.group(1).splitlines())


def test_the_guide_recommends_the_cluster_that_is_measured(tmp_path: Path) -> None:
    measured = {"spark.dynamicAllocation.enabled": "false"} | LocalCluster(folder=tmp_path).conf()
    guide = recommended()
    assert {key: measured[key] for key in guide} == guide
    ours = [key for key in measured if "decommission" in key or "maxFailures" in key]
    assert set(ours) <= set(guide), "what makes releases cheap there is recommended here"


def test_submit_sets_what_the_guide_recommends() -> None:
    assert {key: recommended()[key] for key in DEFAULTS} == DEFAULTS
