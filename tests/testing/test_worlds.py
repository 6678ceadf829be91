from __future__ import annotations

import pytest

from tidegate.errors import BackendError
from tidegate.model import Deployment, Instance, Plan
from tidegate.model.steps import diff
from tidegate.packing import Packing
from tidegate.policies.base import Style
from tidegate.testing import ImaginaryWorld, RecordedWorld, steady_snapshot

STYLES: tuple[Style, ...] = ("engines", "instances", "placement")


def test_a_recording_is_shown_once_and_then_ends() -> None:
    first, second = steady_snapshot(hosts=1), steady_snapshot(hosts=2)
    world = RecordedWorld([first, second])
    assert world.observe() == first
    plan = Plan(second.requested)
    assert world.apply(plan).steps == ()
    assert world.observe() == second
    assert world.plans == [plan]
    with pytest.raises(BackendError, match="recording has ended"):
        world.observe()


@pytest.mark.parametrize("style", STYLES)
def test_the_same_seed_is_the_same_world(style: Style) -> None:
    one, two = ImaginaryWorld(7, style), ImaginaryWorld(7, style)
    for _ in range(5):
        assert one.observe() == two.observe()
        one.advance()
        two.advance()
    assert ImaginaryWorld(8, style).observe() != ImaginaryWorld(7, style).observe()


def test_a_released_host_drains_before_it_is_gone() -> None:
    world = ImaginaryWorld(3)
    packing = Packing(world.observe())
    new = str(packing.lease())
    world.apply(packing.plan())
    gone = Packing(world.observe())
    gone.release(new)
    world.apply(gone.plan())
    assert world.observe().host[new].status == "draining"
    world.advance()
    assert new not in world.observe().host


def test_time_goes_on_and_hosts_come_up() -> None:
    world = ImaginaryWorld(11)
    before = world.observe().time_s
    seen = set()
    for _ in range(20):
        world.advance()
        seen |= {host.status for host in world.observe().hosts}
    assert world.observe().time_s > before
    assert "running" in seen


def test_imagined_worlds_have_gaps_in_their_measurements() -> None:
    missing = 0
    for seed in range(20):
        needs = ("host.utilisation", "operator.queue_length", "latency.mean_s", "batches")
        missing += bool(ImaginaryWorld(seed).observe().missing(needs))
    assert 0 < missing < 20


def test_operators_to_be_placed_have_one_instance_each() -> None:
    for seed in range(10):
        world = ImaginaryWorld(seed, "placement")
        assert all(operator.max_instances == 1 for operator in world.topology.operators)
        assert max(world.observe().requested.counts.values()) == 1


def test_an_instance_of_an_unknown_operator_is_refused() -> None:
    world = ImaginaryWorld(3)
    requested = world.observe().requested
    unknown = Instance("x-1", "x", requested.hosts[0])
    plan = Plan(Deployment(requested.hosts, (*requested.instances, unknown)))
    assert world.apply(plan).refused == ("start x-1: x is unknown",)
    assert diff(world.observe().requested, requested) == ()
