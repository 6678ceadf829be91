"""Engines on small and large VMs, fed by submitters at even distances, that shed what is too much.

Everything per second is divided by a scale (rates and capacities alike), which changes no ratio.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

from tidegate.model import Deployment, HostOffer, Instance
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.policies.adaptive_provisioning import AdaptiveProvisioning
from tidegate.simulation import CloudSettings, RunReport, SimulatedCloud
from tidegate.simulation.run import run
from tidegate.workloads import ConstantRate, RateTrace, Workload, cervino_ramp, cervino_steps

__all__ = ["LARGE", "SMALL", "Steady", "Stepped", "follow_steps", "hold", "ramp"]

SMALL, LARGE = 24_000.0, 96_000.0
"""Assumed tuples/s of a VM: 80 % of the 30,000 that overload a small one, and by EC2's compute
units four times as many on a large one."""
SERVICE_SCV = 0.25
ROW_S = 1.0
TOLERANCE = 0.01
CLOSE_TO_SATURATION = 0.95


def _world(
    workload: Workload, rate_per_vm: float, vms: int, seed: int, queue: int | None, noise: float
) -> SimulatedCloud:
    topology = Topology(
        (Operator("engine", Resources(1.0), 1 / rate_per_vm, SERVICE_SCV),),
        (Source("stocks"),),
        (Edge("stocks", "engine"),),
    )
    hosts = tuple(f"host-{n}" for n in range(1, vms + 1))
    return SimulatedCloud(
        topology,
        HostOffer(Resources(1.0)),
        workload,
        seed=seed,
        initial=Deployment(hosts, tuple(Instance(f"engine-{h[5:]}", "engine", h) for h in hosts)),
        settings=CloudSettings(
            host_startup_s=(0.0, 0.0),
            instance_startup_s=(0.0, 0.0),
            image_download_s=0.0,
            queue_limit=queue,
            monitoring_s=ROW_S,
            measurement_noise=noise,
        ),
    )


@dataclass(frozen=True)
class Steady:
    """A constant rate on a fixed number of VMs."""

    offered: int
    carried: int
    dropped: int
    p99_s: float


def hold(
    rate_per_s: float,
    rate_per_vm: float,
    vms: int,
    seed: int,
    *,
    queue: int | None,
    scale: float,
    duration_s: float = 30.0,
) -> Steady:
    """Keep a rate on so many VMs."""
    workload = ConstantRate(rate_per_s / scale, duration_s, source="stocks", spacing="even")
    world = _world(workload, rate_per_vm / scale, vms, seed, queue, 0.0)
    world.advance(duration_s)
    report = world.report()
    p99 = report.latency_p99_s
    return Steady(
        report.items_in, report.items_out, report.items_dropped, math.nan if p99 is None else p99
    )


def ramp(
    rate_per_vm: float, seed: int, *, queue: int, scale: float, step_s: float = 60.0
) -> list[tuple[float, int, float]]:
    """Fig. 5: (rate, VMs, share carried) at each step from 100,000 to 200,000 tuples/s.

    As in the paper another VM is added by hand when those that run come close to saturation.
    """
    found = []
    for rate in cervino_ramp().curve.rates.tolist():
        vms = math.ceil(rate / (CLOSE_TO_SATURATION * rate_per_vm))
        run_ = hold(rate, rate_per_vm, vms, seed, queue=queue, scale=scale, duration_s=step_s)
        found.append((rate, vms, run_.carried / run_.offered))
    return found


@dataclass(frozen=True)
class Stepped:
    """Fig. 7: the step-wise rates under control; one entry a second.

    rates_per_s: unscaled. last_vms: VMs at the end of each step, with its rate.
    needed: VMs that carry the rate. late_drops: those not within two periods after a rise.
    """

    offered: int
    dropped: int
    late_drops: int
    waste: float
    most_vms: int
    last_vms: tuple[tuple[float, int], ...]
    p99_s: float = math.nan
    time_s: tuple[float, ...] = field(repr=False, default=())
    rates_per_s: tuple[float, ...] = field(repr=False, default=())
    vms: tuple[float, ...] = field(repr=False, default=())
    drops_per_s: tuple[float, ...] = field(repr=False, default=())

    @property
    def returns(self) -> bool:
        """Whether the same rate always ends with the same number of VMs."""
        by_rate: dict[float, set[int]] = {}
        for rate, vms in self.last_vms:
            by_rate.setdefault(rate, set()).add(vms)
        return all(len(counts) == 1 for counts in by_rate.values())

    @property
    def drop_share(self) -> float:
        """Dropped of offered."""
        return self.dropped / self.offered

    @property
    def cost(self) -> float:
        """Drops plus waste, as a share of what was offered."""
        return (self.dropped + self.waste) / self.offered


def follow_steps(
    rate_per_vm: float,
    seed: int,
    *,
    queue: int | None,
    scale: float,
    period_s: float = 30.0,
    noise: float = 0.0,
    tolerance: float = TOLERANCE,
    shed: bool = False,
) -> Stepped:
    """Let Algorithm 1 follow the step-wise rates, invoked at a phase that depends on the seed.

    queue: tuples that may wait, None for any number; shed: the policy sheds, by plan.
    """
    steps = cervino_steps()
    workload: RateTrace = steps.multiplied(1 / scale)
    world = _world(workload, rate_per_vm / scale, 1, seed, queue, noise)
    world.advance(period_s * math.modf(seed * (math.sqrt(5) - 1) / 2)[0])
    policy = AdaptiveProvisioning(tolerance=tolerance, shed=shed)
    report = run(world, policy, duration_s=steps.duration_s, interval_s=period_s, seed=seed)
    return _stepped(report, steps, rate_per_vm, period_s, scale)


def _stepped(
    report: RunReport, steps: RateTrace, rate_per_vm: float, period_s: float, scale: float
) -> Stepped:
    rows = report.series
    times = [time or 0.0 for time in rows.time_s]
    vms = [count or 0.0 for count in rows.operators["engine"]["instances"]]
    drops = [rate or 0.0 for rate in rows.dropped_per_s]
    begins, levels = steps.curve.knots_s.tolist()[:-1], steps.curve.rates.tolist()
    rises = [t for t, (a, b) in zip(begins[1:], itertools.pairwise(levels), strict=True) if b > a]
    ends = [*begins[1:], steps.duration_s]
    late = waste = 0.0
    last = dict.fromkeys(ends, 0)
    for time, count, dropped in zip(times, vms, drops, strict=True):
        middle = time - ROW_S / 2
        if not any(rise <= middle < rise + 2 * period_s for rise in rises):
            late += dropped * ROW_S
        needed = math.ceil(steps.rate(middle) / rate_per_vm)
        waste += max(0.0, count - needed) * rate_per_vm / scale * ROW_S
        for end in ends:
            if time <= end + 1e-6 and time > end - ROW_S - 1e-6:
                last[end] = round(count)
    return Stepped(
        report.items_in,
        report.items_dropped,
        round(late),
        waste,
        round(max(vms)),
        tuple((level, last[end]) for level, end in zip(levels, ends, strict=True)),
        math.nan if report.latency_p99_s is None else report.latency_p99_s,
        tuple(times),
        tuple(steps.rate(time - ROW_S / 2) for time in times),
        tuple(vms),
        tuple(rate * scale for rate in drops),
    )
