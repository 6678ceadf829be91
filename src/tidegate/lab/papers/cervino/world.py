"""Engines on small and large VMs that shed under overload; submitters send at even distances.

All rates and capacities are divided by the same scale, which changes no ratio.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.model import Deployment, HostOffer, Instance
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.policies.adaptive_provisioning import AdaptiveProvisioning
from tidegate.probe.results import ProbeResult
from tidegate.simulation import CloudSettings, RunReport, SimulatedCloud
from tidegate.simulation.run import run
from tidegate.workloads import ConstantRate, RateTrace, Workload, cervino_ramp, cervino_steps

__all__ = [
    "LARGE",
    "SMALL",
    "CervinoResults",
    "Costs",
    "Ramp",
    "Steady",
    "Stepped",
    "engines",
    "follow_steps",
    "hold",
    "ramp",
]

SMALL, LARGE = 24_000.0, 96_000.0
"""Assumed tuples/s of a VM: 80 % of the 30,000 that overload a small one, and by EC2's compute
units four times as many on a large one."""
SERVICE_SCV = 0.25
ROW_S = 1.0
TOLERANCE = 0.01
CLOSE_TO_SATURATION = 0.95

Ramp = Sequence[tuple[float, int, float]]
"""(rate, VMs, share carried) by step."""


def engines(
    workload: Workload,
    rate_per_vm: float,
    vms: int,
    seed: int,
    queue: int | None,
    noise: float,
    service_scv: float,
    startup_s: float = 0.0,
) -> SimulatedCloud:
    """Identical engines, one on each VM.

    Args:
        workload: Tuples of the source ``stocks``.
        rate_per_vm: Capacity of a VM, in tuples per second.
        vms: Number of VMs at the start.
        seed: Random seed.
        queue: Number of tuples that may wait, None for any number.
        noise: Relative error of each measurement.
        service_scv: Squared coefficient of variation of the service times.
        startup_s: Time until a leased VM runs, in seconds.
    """
    topology = Topology(
        (Operator("engine", Resources(1.0), 1 / rate_per_vm, service_scv),),
        (Source("stocks"),),
        (Edge("stocks", "engine"),),
    )
    hosts = tuple(f"host-{n}" for n in range(1, vms + 1))
    return SimulatedCloud(
        topology,
        HostOffer(Resources(1.0), startup_s=startup_s),
        workload,
        seed=seed,
        initial=Deployment(hosts, tuple(Instance(f"engine-{h[5:]}", "engine", h) for h in hosts)),
        settings=CloudSettings(
            host_startup_s=(startup_s, startup_s),
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
    service_scv: float = SERVICE_SCV,
) -> Steady:
    """Send tuples at a constant rate to a fixed number of VMs.

    Args:
        rate_per_s: Offered rate, in tuples per second.
        rate_per_vm: Capacity of a VM, in tuples per second.
        vms: Number of VMs.
        seed: Random seed.
        queue: Number of tuples that may wait, None for any number.
        scale: Divisor of rates and capacities.
        duration_s: Length of the run, in seconds.
        service_scv: Squared coefficient of variation of the service times.
    """
    workload = ConstantRate(rate_per_s / scale, duration_s, source="stocks", spacing="even")
    world = engines(workload, rate_per_vm / scale, vms, seed, queue, 0.0, service_scv)
    world.advance(duration_s)
    report = world.report()
    p99 = report.latency_p99_s
    return Steady(
        report.items_in, report.items_out, report.items_dropped, math.nan if p99 is None else p99
    )


def ramp(rate_per_vm: float, seed: int, *, queue: int, scale: float, step_s: float = 60.0) -> Ramp:
    """Fig. 5: the offered rate rises from 100,000 to 200,000 tuples/s.

    As in the paper, a VM is added by hand when the running ones come close to saturation.
    """
    found = []
    for rate in cervino_ramp().curve.rates.tolist():
        vms = math.ceil(rate / (CLOSE_TO_SATURATION * rate_per_vm))
        run_ = hold(rate, rate_per_vm, vms, seed, queue=queue, scale=scale, duration_s=step_s)
        found.append((rate, vms, run_.carried / run_.offered))
    return found


@dataclass(frozen=True)
class Stepped:
    """Fig. 7: a run under control with step-wise rates. Series have one entry per second.

    Args:
        offered: Number of tuples offered.
        dropped: Number of tuples dropped.
        late_drops: Those dropped more than two periods after a rise.
        waste: Capacity beyond that of the needed VMs, in tuples.
        most_vms: Greatest number of VMs.
        last_vms: Rate of each step and number of VMs at its end.
        p99_s: 99th percentile of the latency, in seconds.
        time_s: Ends of the seconds.
        rates_per_s: Offered rates, unscaled.
        vms: Number of VMs.
        drops_per_s: Drop rates, unscaled.
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
        """Dropped tuples as a share of the offered ones."""
        return self.dropped / self.offered

    @property
    def cost(self) -> float:
        """Drops plus waste, as a share of the offered tuples."""
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
    service_scv: float = SERVICE_SCV,
    last_second: bool = True,
    later: float = 0.0,
) -> Stepped:
    """Let Algorithm 1 follow the step-wise rates, invoked at a phase that depends on the seed.

    The steps come at a moment within a second of the monitor that depends on the seed too.

    Args:
        rate_per_vm: Capacity of a VM, in tuples per second.
        seed: Random seed.
        queue: Number of tuples that may wait, None for any number.
        scale: Divisor of rates and capacities.
        period_s: Time between two invocations, in seconds.
        noise: Relative error of each measurement.
        tolerance: Share of the input under way that does not count as overload.
        shed: The policy sheds tuples as part of its plan.
        service_scv: Squared coefficient of variation of the service times.
        last_second: The algorithm compares the rates of the last second, else means of the period.
        later: Share of a period by which the phase is later.
    """
    steps = _shifted(cervino_steps(), ROW_S * math.modf(seed * math.sqrt(2))[0])
    workload: RateTrace = steps.multiplied(1 / scale)
    world = engines(workload, rate_per_vm / scale, 1, seed, queue, noise, service_scv)
    world.advance(period_s * math.modf(seed * (math.sqrt(5) - 1) / 2 + later)[0])
    policy = AdaptiveProvisioning(tolerance=tolerance, shed=shed, last_second=last_second)
    report = run(world, policy, duration_s=steps.duration_s, interval_s=period_s, seed=seed)
    return _stepped(report, steps, rate_per_vm, period_s, scale)


def _shifted(steps: RateTrace, by_s: float) -> RateTrace:
    """The same steps, each later by less than a second."""
    times = steps.t_s.copy()
    times[1:] += by_s
    return replace(steps, t_s=times, end_s=steps.duration_s + by_s)


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
        if not any(rise - ROW_S / 2 <= middle < rise + 2 * period_s for rise in rises):
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


@dataclass(frozen=True, slots=True)
class Costs:
    """What an invocation period costs with one seed, mean over runs at several phases.

    cost: drops plus waste, drop_share: drops, both as a share of the offered tuples.
    """

    cost: float
    drop_share: float

    @staticmethod
    def of(runs: Sequence[Stepped]) -> Costs:
        """The mean of some runs."""
        return Costs(
            math.fsum(run.cost for run in runs) / len(runs),
            math.fsum(run.drop_share for run in runs) / len(runs),
        )


@dataclass(frozen=True)
class CervinoResults:
    """All runs. Lists have one entry per seed.

    Args:
        small: Fig. 5 with small VMs.
        large: Fig. 5 with large VMs.
        overload: A calm and an overloaded run by reading.
        with_small: Fig. 7 with small VMs by reading.
        with_large: Fig. 7 with large VMs by reading.
        periods: Costs by reading and invocation period in seconds.
        scale: Divisor of rates and capacities.
        network: What the probe found on loopback, None if it was not run.
    """

    small: Sequence[Ramp] = ()
    large: Sequence[Ramp] = ()
    overload: Mapping[str, Sequence[tuple[Steady, Steady]]] = field(default_factory=dict)
    with_small: Mapping[str, Sequence[Stepped]] = field(default_factory=dict)
    with_large: Mapping[str, Sequence[Stepped]] = field(default_factory=dict)
    periods: Mapping[str, Mapping[float, Sequence[Costs]]] = field(default_factory=dict)
    scale: float = 1.0
    network: ProbeResult | None = None
