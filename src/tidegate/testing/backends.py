"""What every backend promises, whatever world is behind it."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.loop.backend import Backend
from tidegate.model.steps import diff
from tidegate.packing import Packing


def check_backend(world: Backend, until: Callable[[Callable[[], bool]], None]) -> None:
    """Grow a world by a host, shrink it again, and hold it to the contract of `Backend`.

    until: lets time pass until something is true, and fails when it does not become so. The world
    must have one host at least and room for another.
    """
    before = world.observe()
    assert world.observe().requested == before.requested, "looking changes nothing"

    packing = Packing(before)
    new = str(packing.lease())
    grown = packing.plan()
    assert new not in before.host and new not in before.requested.hosts
    outcome = world.apply(grown)
    assert [step.kind for step in outcome.steps if step.host == new][:1] == ["lease"]
    assert outcome.refused == ()
    assert world.apply(grown).steps == (), "the same plan again changes nothing"
    asked = world.observe()
    assert set(asked.requested.hosts) == set(grown.deployment.hosts), "asked for is requested"
    assert diff(asked.requested, grown) == ()
    assert asked.leased_so_far > before.leased_so_far, "a name is never given twice"
    until(lambda: world.observe().host[new].status == "running")
    assert set(world.observe().requested.hosts) == set(grown.deployment.hosts)

    packing = Packing(world.observe())
    packing.release(new)
    shrunk = packing.plan()
    outcome = world.apply(shrunk)
    assert [step.kind for step in outcome.steps if step.host == new][-1:] == ["release"]
    assert world.apply(shrunk).steps == ()
    seen = world.observe()
    assert new not in seen.host or seen.host[new].status == "draining"
    assert set(seen.requested.hosts) == set(shrunk.deployment.hosts)
    until(lambda: new not in world.observe().host)
    assert set(world.observe().requested.hosts) == set(before.requested.hosts)
    assert Packing(world.observe()).lease() != new, "nor after it has gone"
