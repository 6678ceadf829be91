"""Snapshots for the tests of the BTU-based policy: who sits where, how late, how much waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.model import (
    Host,
    HostOffer,
    InstanceReading,
    Lease,
    OperatorReading,
    Snapshot,
)
from tidegate.model.topology import Operator, Resources, Topology
from tidegate.testing import HOST

NOW_S = 10_000.0
UNIT_S = 600.0
LATE = (60.0, (2.0,))
"""More than 50 items wait and the last took 2 s, with an SLO of 1 s."""
IDLE = (0.0, (0.1,))
BUSY = (5.0, (0.1,))
"""In time, and something waits: nothing to add and no bonus for releasing."""


def world(
    hosts: Mapping[str, Sequence[str]],
    readings: Mapping[str, tuple[float, Sequence[float]]],
    cores: Mapping[str, float] | None = None,
    left_s: Mapping[str, float] | None = None,
    young: Sequence[str] = (),
    images: Mapping[str, str] | None = None,
    max_hosts: int | None = None,
    interval_s: float | None = None,
) -> Snapshot:
    """Operators (of one core, SLO 1 s) by host; hosts of four cores, half of 600 s left.

    readings: items waiting and last durations by operator, in topology order.
    left_s: paid time left by host; young: hosts leased less than three minutes ago.
    """
    instances = []
    numbers: dict[str, int] = {}
    for host, names in hosts.items():
        for name in names:
            numbers[name] = numbers.get(name, 0) + 1
            instances.append(InstanceReading(f"{name}-{numbers[name]}", name, host))
    leases = {}
    for host in hosts:
        left = (left_s or {}).get(host, UNIT_S / 2)
        age_s = UNIT_S - left + (0 if host in young else 3 * UNIT_S)
        leases[host] = Lease(UNIT_S, 1.0, started_s=NOW_S - age_s)
    return Snapshot(
        NOW_S,
        Topology(
            tuple(
                Operator(name, Resources((cores or {}).get(name, 1.0), 512), slo_s=1.0)
                for name in readings
            )
        ),
        HostOffer(HOST, UNIT_S, 1.0, max_hosts=max_hosts),
        tuple(
            Host(
                host,
                HOST,
                lease=leases[host],
                images=frozenset({(images or {})[host]} if host in (images or {}) else ()),
            )
            for host in hosts
        ),
        tuple(instances),
        tuple(
            OperatorReading(name, queue_length=waiting, recent_durations_s=tuple(durations))
            for name, (waiting, durations) in readings.items()
        ),
        interval_s=interval_s,
        leased_so_far=len(hosts),
    )
