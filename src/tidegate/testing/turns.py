"""Turns of a large live application, as an autoscaler writes them."""

from __future__ import annotations

import random

from tidegate.loop.backend import Outcome
from tidegate.loop.journal import Turn
from tidegate.model import Deployment, Plan
from tidegate.model.leases import HostOffer, Lease
from tidegate.model.plan import Instance, Prediction, Reason
from tidegate.model.snapshot import (
    BatchCost,
    BatchReading,
    Estimate,
    Host,
    InstanceReading,
    Latency,
    OperatorReading,
    Snapshot,
)
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology

__all__ = ["large_turn"]

SLOTS = 4
"""Slots of an executor."""


def large_turn(number: int, hosts: int = 50) -> Turn:
    """A turn of a live application whose executors have four slots each.

    All measurements differ from turn to turn, and the deployment does not.

    number: number of the turn. hosts: number of executors.
    """
    rng = random.Random(number)
    capacity = Resources(float(SLOTS), 8192)
    topology = Topology(
        (Operator("ticks", slo_s=7.0, max_instances=400),),
        (Source("to-ticks"),),
        (Edge("to-ticks", "ticks"),),
    )
    busy = [rng.random() for _ in range(hosts)]
    rate = 9_000 + 1_000 * rng.random()
    recent = tuple(round(rng.uniform(1, 3), 3) for _ in range(10))
    batches = BatchReading(
        2.0,
        recent,
        rng.random(),
        BatchCost(_estimate(rng), _estimate(rng), _estimate(rng)),
    )
    mean_s, p50_s, p95_s, p99_s = (rng.uniform(1, 4) for _ in range(4))
    latency = Latency(mean_s, p50_s, p95_s, p99_s)
    leased = tuple(
        Host(
            f"host-{n + 1}",
            capacity,
            utilisation=busy[n],
            lease=Lease(60.0, 0.0167, 1_794_788_000.123 + n),
            executor=str(n + 1),
            address=f"10.0.{n // 8}.{n % 8}",
        )
        for n in range(hosts)
    )
    instances = tuple(
        InstanceReading(
            f"ticks-{n + 1}",
            "ticks",
            f"host-{n // SLOTS + 1}",
            load=Resources(busy[n // SLOTS]),
            processed_per_s=rate / hosts / SLOTS,
        )
        for n in range(SLOTS * hosts)
    )
    reading = OperatorReading(
        "ticks",
        rate,
        rate,
        None,
        0.02,
        queue_length=rate / 2,
        recent_durations_s=recent,
        pending_tasks=0,
        running_tasks=SLOTS * hosts,
        batches=batches,
        delay=latency,
        backlog_s=0.5,
    )
    snapshot = Snapshot(
        10.0 * number,
        topology,
        HostOffer(capacity, 60.0, 0.0167),
        leased,
        instances,
        (reading,),
        latency,
        batches,
        10.0,
        hosts,
    )
    plan = Plan(
        Deployment(
            tuple(host.id for host in leased),
            tuple(Instance(i.id, i.operator, i.host) for i in instances),
        ),
        (Reason("steady", f"{rate:.0f} rows a second need {hosts - 3} hosts: no change"),),
        Prediction(rng.random(), rng.random(), rate, 50.0),
    )
    plans = [[10.0 * n, 45 + n % 5] for n in range(max(1, number - 6), number + 1)]
    memory = {"own": {}, "inner": {"own": {"plans": plans, "hosts": hosts}, "inner": {}}}
    policy = "drs → trend() → missing-metrics() → stabilisation(down_s=60.0) → effect() → bounds()"
    return Turn(number, policy, snapshot, plan, Outcome(), memory, slo_s=7.0)


def _estimate(rng: random.Random) -> Estimate:
    return Estimate(rng.random(), rng.random(), rng.random())
