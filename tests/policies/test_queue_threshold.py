"""VISP's baseline: 50 / 250 / 1."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.errors import SettingError
from tidegate.policies.base import NoMemory
from tidegate.policies.queue_threshold import QueueThreshold
from tidegate.testing import steady_snapshot


@pytest.mark.parametrize(
    ("waiting", "instances"),
    [(None, 3), (0, 2), (0.99, 2), (1, 3), (50, 3), (51, 4), (250, 4), (251, 5), (9999, 5)],
)
def test_the_three_thresholds_of_the_paper(waiting: float | None, instances: int) -> None:
    snapshot = steady_snapshot(hosts=3, queue_length=waiting)
    plan, _ = QueueThreshold().decide(snapshot, NoMemory())
    assert plan.deployment.counts["work"] == instances


def test_the_last_instance_stays() -> None:
    plan, _ = QueueThreshold().decide(steady_snapshot(hosts=1, queue_length=0), NoMemory())
    assert plan.deployment.counts["work"] == 1
    assert plan.reasons == ()


def test_a_host_goes_with_its_last_instance_paid_time_or_not() -> None:
    snapshot = steady_snapshot(hosts=2, queue_length=0, lease_left_s=599)
    plan, _ = QueueThreshold().decide(snapshot, NoMemory())
    assert plan.deployment.hosts == ("host-1",)
    assert [reason.code for reason in plan.reasons] == ["idle", "release"]


def test_a_host_is_leased_when_all_others_are_full() -> None:
    snapshot = steady_snapshot(hosts=1, queue_length=60)
    full = replace(
        snapshot,
        instances=tuple(replace(snapshot.instances[0], id=f"work-{n}") for n in range(1, 5)),
    )
    plan, _ = QueueThreshold().decide(full, NoMemory())
    assert plan.deployment.hosts == ("host-1", "host-2")
    assert plan.deployment.home["work-5"] == "host-2"


def test_an_exhausted_offer_is_unmet_demand() -> None:
    snapshot = steady_snapshot(hosts=1, queue_length=300)
    full = replace(
        snapshot,
        offer=replace(snapshot.offer, max_hosts=1),
        instances=tuple(replace(snapshot.instances[0], id=f"work-{n}") for n in range(1, 4)),
    )
    plan, _ = QueueThreshold().decide(full, NoMemory())
    assert plan.deployment.counts["work"] == 4
    assert [(u.operator, u.instances) for u in plan.unmet] == [("work", 1)]


def test_thresholds_must_not_cross() -> None:
    with pytest.raises(SettingError, match="in rising order"):
        QueueThreshold(up=300)
