"""The contract of a backend."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from tidegate.codec import from_json, to_json
from tidegate.errors import CheckFailed
from tidegate.loop.backend import Backend, Outcome
from tidegate.model import Deployment, Instance, Plan, Snapshot
from tidegate.model.steps import diff
from tidegate.packing import Packing
from tidegate.testing.contracts import expect

__all__ = ["check_backend"]


def check_backend(
    world: Backend, advance: Callable[[], object], *, turns: int = 30, read_only: bool = False
) -> None:
    """Raise CheckFailed unless a world keeps the contract of `Backend`.

    The check leases a host, waits until it runs, releases it, and waits until it has gone. Then it
    applies two plans that are not possible: one with an unknown operator, and one with more hosts
    than the offer allows. The rules:

    - Observing changes nothing.
    - Time never goes backwards, and the number of leases never falls.
    - What is not measured is None: there are no placeholders for hosts and instances that are
      still starting, and every snapshot can be written to a journal and read back.
    - After `apply`, the snapshot requests what was planned. If it does not, the outcome says what
      was refused. The outcome lists exactly the steps that were begun.
    - Applying the same plan again changes nothing.
    - An instance of an unknown operator is never requested.
    - A host that is leased starts and runs; a host that is released drains and goes.
    - The name of a host is never used twice.

    world: has at least one host, and its offer has room for another. advance: lets time pass; it
    is called at most `turns` times until a host has started or gone. read_only: the world only
    records plans, so that applying one must change nothing.
    """
    checked = _CheckedWorld(world)
    before = checked.observe()
    expect(not diff(before.requested, checked.observe().requested), "observing changes nothing")
    packing = Packing(before)
    new = packing.lease()
    if new is None:
        raise CheckFailed("the world has room for another host")
    expect(new not in before.host, "the name of a new host is not in use", new)
    grown = packing.plan()
    if read_only:
        expect(world.apply(grown) == Outcome(), "a read-only world begins and refuses nothing")
        left = diff(before.requested, checked.observe().requested)
        expect(not left, "a plan changes nothing in a read-only world", left)
        return

    def until(true: Callable[[Snapshot], bool], rule: str) -> None:
        for _ in range(turns):
            snapshot = checked.observe()
            if true(snapshot):
                return
            advance()
        raise CheckFailed(f"{rule}; not in {turns} turns: {snapshot.hosts}")

    outcome = checked.apply(grown)
    kinds = [step.kind for step in outcome.steps if step.host == new]
    expect(kinds[:1] == ["lease"], "a host that is leased is a step of the outcome", kinds)
    expect(not outcome.refused, "a lease within the offer is not refused", outcome.refused)
    expect(checked.leased > before.leased_so_far, "a lease is counted, so that names stay unique")
    until(lambda s: new in s.host and s.host[new].status == "running", "a leased host runs")
    left = diff(checked.observe().requested, grown)
    expect(not left, "a plan stays requested while time passes", left)

    packing = Packing(checked.observe())
    packing.release(new)
    outcome = checked.apply(packing.plan())
    kinds = [step.kind for step in outcome.steps if step.host == new]
    expect(kinds[-1:] == ["release"], "a host that is released is a step of the outcome", kinds)
    seen = checked.observe().host.get(new)
    expect(seen is None or seen.status == "draining", "a released host drains or is gone", seen)
    until(lambda s: new not in s.host, "a released host goes")
    expect(Packing(checked.observe()).lease() != new, "the name of a host is never used twice", new)

    now = checked.observe()
    unknown = Instance("unknown-1", "unknown", now.requested.hosts[0])
    world.apply(Plan(Deployment(now.requested.hosts, (*now.requested.instances, unknown))))
    left = diff(now.requested, checked.observe().requested)
    expect(not left, "an instance of an unknown operator is never requested", left)
    most = before.offer.max_hosts
    if most is not None:
        first = now.leased_so_far + 1
        more = [f"host-{n}" for n in range(first, first + most + 1 - len(now.requested.hosts))]
        checked.apply(Plan(Deployment((*now.requested.hosts, *more), now.requested.instances)))
        checked.apply(Plan(now.requested))
        until(lambda s: not set(more) & set(s.host), "hosts beyond the offer go again")


class _CheckedWorld:
    """Checks every snapshot and every outcome of a world."""

    def __init__(self, world: Backend) -> None:
        self.world = world
        self.time_s = -math.inf
        self.leased = 0

    def observe(self) -> Snapshot:
        snapshot = self.world.observe()
        expect(snapshot.time_s >= self.time_s, "time never goes backwards", snapshot.time_s)
        expect(snapshot.leased_so_far >= self.leased, "the number of leases never falls")
        self.time_s, self.leased = snapshot.time_s, snapshot.leased_so_far
        for host in snapshot.hosts:
            if host.status == "starting":
                expect(host.utilisation is None, "a starting host has no utilisation", host)
        for instance in snapshot.instances:
            expect(instance.host in snapshot.host, "an instance is on a known host", instance)
            expect(instance.operator in snapshot.topology.by_name, "an operator is known", instance)
            if instance.status == "starting":
                bare = replace(instance, load=None, processed_per_s=None)
                expect(instance == bare, "a starting instance has no measurements", instance)
        restored = from_json(Snapshot, to_json(snapshot))  # NaN does not
        expect(restored == snapshot, "a snapshot survives a journal")
        return snapshot

    def apply(self, plan: Plan) -> Outcome:
        """Apply a plan twice; the second time must change nothing."""
        before = self.observe().requested
        outcome = self.world.apply(plan)
        after = self.observe().requested
        begun, listed = diff(before, after), outcome.steps
        rule = "the outcome lists exactly the steps that were begun"
        expect(Counter(begun) == Counter(listed), rule, f"{listed}, begun were {begun}")
        left = diff(after, plan)
        rule = "what is planned is requested, or the outcome says what was refused"
        expect(not left or bool(outcome.refused), rule, f"{left} left, nothing refused")
        again = self.world.apply(plan)
        expect(not again.steps, "applying the same plan again begins nothing", again.steps)
        left = diff(after, self.observe().requested)
        expect(not left, "applying the same plan again changes nothing", left)
        return outcome
