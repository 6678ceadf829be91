"""The DRS paper's runs with the scheduler switched on after 13 minutes (Figs. 9 and 10)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidegate.lab.papers.drs.world import Allocation, App
from tidegate.lab.papers.statistics import mean_between
from tidegate.loop.backend import Outcome
from tidegate.model import Deployment, HostOffer, Instance, Plan
from tidegate.model.topology import Resources
from tidegate.policies.drs import Drs
from tidegate.simulation import CloudSettings, RunReport, SimulatedCloud
from tidegate.simulation.run import run

__all__ = ["ENABLED_S", "END_S", "Controlled", "RestartingCloud", "add_or_remove", "rebalance"]

ENABLED_S, SETTLED_S, END_S = 13 * 60.0, 16 * 60.0, 27 * 60.0
TURN_S, ROW_S = 60.0, 2.0
PER_MACHINE, RESERVED, MACHINES = 5, 3, 5


class RestartingCloud(SimulatedCloud):
    """A cloud that rebalances as Storm does: whatever changes, every executor starts anew.

    What an executor has in hand it finishes; what waits goes on waiting until the new ones are up.
    """

    def apply(self, plan: Plan) -> Outcome:
        """Replace all instances when the plan changes any."""
        before = self.observe().requested
        if plan.deployment == before:
            return super().apply(plan)
        after = plan.deployment
        used = max(int(i.id.rpartition("-")[2]) for i in (*before.instances, *after.instances))
        fresh = tuple(
            Instance(f"{i.operator}-{used + n}", i.operator, i.host)
            for n, i in enumerate(after.instances, start=1)
        )
        return super().apply(replace(plan, deployment=Deployment(after.hosts, fresh)))


@dataclass(frozen=True)
class Controlled:
    """One run of 27 minutes: mean sojourn time by minute, and the allocations on the way.

    changes: (time, allocation planned, hosts planned) of each turn that changed something;
    pause_s: how long after the first change fewer executors ran than both before and after it.
    """

    minutes_s: tuple[float, ...]
    before_s: float
    after_s: float
    changes: tuple[tuple[float, Allocation, int], ...]
    pause_s: float

    @property
    def last(self) -> tuple[Allocation, int] | None:
        """The last allocation and its machines, None when nothing was changed."""
        return self.changes[-1][1:] if self.changes else None

    @property
    def peak_s(self) -> float:
        """The mean of the minute that begins with the first change, NaN when there is none."""
        return self.minutes_s[int(self.changes[0][0] / 60)] if self.changes else math.nan


def rebalance(app: App, start: Allocation, seed: int, restarting: bool = False) -> Controlled:
    """Fig. 9: 22 executors, badly distributed at first.

    All machines are one pool of 25 executors, 3 of them reserved: their number is not at stake.
    With `min_gain` 0 any better distribution is taken, as the authors' code does.
    """
    policy = Drs(t_max_s=1.0, min_gain=0.0, reserved=RESERVED)
    executors = sum(start) + RESERVED
    offer = HostOffer(Resources(executors), max_hosts=1)
    return _drive(app, policy, offer, start, {"host-1": sum(start)}, seed, restarting)


def add_or_remove(
    app: App,
    t_max_s: float,
    start: Allocation,
    seed: int,
    restarting: bool = False,
    turn_s: float = TURN_S,
) -> Controlled:
    """Fig. 10: machines of five executors, of which three are taken by spouts and the scheduler."""
    policy = Drs(t_max_s=t_max_s, reserved=RESERVED)
    machines = math.ceil((sum(start) + RESERVED) / PER_MACHINE)
    rooms = {f"host-{n}": PER_MACHINE for n in range(1, machines + 1)}
    rooms["host-1"] -= RESERVED
    offer = HostOffer(Resources(PER_MACHINE), max_hosts=MACHINES)
    return _drive(app, policy, offer, start, rooms, seed, restarting, turn_s)


def _drive(
    app: App,
    policy: Drs,
    offer: HostOffer,
    start: Allocation,
    rooms: Mapping[str, int],
    seed: int,
    restarting: bool,
    turn_s: float = TURN_S,
) -> Controlled:
    topology = app.topology
    wanted = [name for name, k in zip(topology.by_name, start, strict=True) for _ in range(k)]
    places = [host for host, room in rooms.items() for _ in range(room)]
    instances = tuple(
        Instance(f"{name}-{n}", name, host)
        for n, (name, host) in enumerate(zip(wanted, places, strict=True), start=1)
    )
    kind = RestartingCloud if restarting else SimulatedCloud
    world = kind(
        topology,
        offer,
        app.workload(END_S, seed),
        seed=seed,
        initial=Deployment(tuple(rooms), instances),
        settings=CloudSettings(monitoring_s=ROW_S, decision_s=turn_s),
    )
    # Nobody looks before minute 14, so the first decision rests on all 13 minutes: the authors'
    # scheduler runs passively until then and pools what it measures.
    world.advance(ENABLED_S)
    changes: list[tuple[float, Allocation, int]] = []
    while world.time_s < END_S - 1e-9:
        before = world.observe().requested
        at_s = world.time_s
        run(world, policy, duration_s=min(END_S, at_s + turn_s), interval_s=turn_s)
        after = world.observe().requested
        if dict(after.counts) != dict(before.counts) or len(after.hosts) != len(before.hosts):
            counts = tuple(after.counts[name] for name in topology.by_name)
            changes.append((at_s, counts, len(after.hosts)))
    report = world.report()
    return Controlled(
        tuple(mean_between(report, 60.0 * m, 60.0 * (m + 1)) for m in range(round(END_S / 60))),
        mean_between(report, 60.0, ENABLED_S),
        mean_between(report, SETTLED_S, END_S),
        tuple(changes),
        _pause_s(report, start, changes),
    )


def _pause_s(
    report: RunReport, start: Allocation, changes: list[tuple[float, Allocation, int]]
) -> float:
    """How long some operator had fewer executors than both before and after the first change."""
    if not changes:
        return 0.0
    at_s, planned, _ = changes[0]
    rows = report.series
    last = at_s
    until_s = changes[1][0] if len(changes) > 1 else END_S
    for operator, old, new in zip(rows.operators.values(), start, planned, strict=True):
        for time_s, running in zip(rows.time_s, operator["instances"], strict=True):
            if time_s is None or running is None or not at_s < time_s <= until_s:
                continue
            if running < min(old, new):
                last = max(last, time_s)
    return last - at_s
