"""Prediction of rates, and latency as an early signal, for adaptive provisioning."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from tidegate.codec import Value
from tidegate.lab.future.questions import Finding, Question, Size, Table, direction
from tidegate.lab.papers.cervino.world import SERVICE_SCV, SMALL, engines
from tidegate.lab.papers.claims import Progress
from tidegate.lab.papers.statistics import interval, mean
from tidegate.model import Plan, Snapshot
from tidegate.packing import Packing
from tidegate.packing.sizing import set_engines
from tidegate.policies.adaptive_provisioning import (
    AdaptiveProvisioning,
    AdaptiveProvisioningMemory,
)
from tidegate.policies.base import setting
from tidegate.report.charts import Series, lines
from tidegate.simulation.run import run as run_policy
from tidegate.workloads import ExchangeDay, RateTrace, Workload, cervino_steps, peak_per_s

__all__ = ["QUESTION", "EarlyMemory", "EarlyProvisioning", "Signal"]

SCALE = 200.0
"""Divisor of the paper's rates and capacities, which changes no ratio."""
QUEUE_S = 2.0
"""Seconds of one VM's work that may wait; what finds the queue full is dropped."""
STARTUP_S, PERIOD_S = 45.0, 30.0
HEADROOMS = (0.0, 0.2, 0.5)
TURNS = 6
"""Rates from which the trend is taken."""
VMS_AT_PEAK = 10
WAVE_S = 1800.0

Signal = Literal["rate", "forecast", "latency"]
SIGNALS: tuple[Signal, ...] = ("rate", "forecast", "latency")


@dataclass(frozen=True, slots=True)
class EarlyMemory(Value):
    """capacity: what Algorithm 1 remembers; rates: (time, tuples per second), oldest first."""

    capacity: AdaptiveProvisioningMemory = field(default_factory=AdaptiveProvisioningMemory)
    rates: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class EarlyProvisioning(AdaptiveProvisioning):
    """Adaptive provisioning with a headroom, and a signal that comes before an overload.

    Algorithm 1 decides as published. Once it knows the capacity of an engine, there are at least
    the engines for the expected rate and the headroom. With the signal ``forecast``, the expected
    rate follows the trend until a VM leased now runs; with ``latency``, one engine is added when
    the mean latency exceeds `late_s`.

    >>> EarlyProvisioning(signal="latency").late_s
    0.5
    """

    memory_type: ClassVar[type] = EarlyMemory

    signal: Literal["rate", "forecast", "latency"] = setting(
        "rate", "what is looked at besides the rate", choices=("rate", "forecast", "latency")
    )
    headroom: float = setting(0.0, "additional rate to provide for, share", low=0)
    late_s: float = setting(0.5, "mean latency that counts as a signal, s", low=0)

    def decide(  # type: ignore[override]
        self, snapshot: Snapshot, memory: EarlyMemory
    ) -> tuple[Plan, EarlyMemory]:
        """Algorithm 1, then what the signal adds."""
        plan, known = super().decide(snapshot, memory.capacity)
        rates = snapshot.external_rates()
        if not rates or known.max_rate_per_s is None:
            return plan, EarlyMemory(known, memory.rates)
        now = math.fsum(rates.values())
        seen = (*memory.rates, (snapshot.time_s, now))[-TURNS:]
        expected = now
        if self.signal == "forecast":
            lead_s = snapshot.offer.startup_s + (snapshot.interval_s or 0.0)
            expected = max(now, now + lead_s * _slope(seen))
        wanted = math.ceil(expected * (1 + self.headroom) / known.max_rate_per_s)
        late = snapshot.latency.mean_s
        if self.signal == "latency" and late is not None and late > self.late_s:
            wanted = max(wanted, snapshot.hosts_running + 1)
        packing = Packing(snapshot)
        set_engines(packing, max(wanted, len(plan.deployment.hosts)))
        return packing.plan(), EarlyMemory(known, seen)


def _slope(seen: Sequence[tuple[float, float]]) -> float:
    """Change of the rate per second, by least squares; 0 for fewer than three."""
    if len(seen) < 3:
        return 0.0
    return float(np.polyfit([t for t, _ in seen], [rate for _, rate in seen], 1)[0])


# --- traffic --------------------------------------------------------------------------------------


def _steps(seed: int) -> tuple[Workload, float]:
    """The paper's Fig. 7."""
    return cervino_steps().multiplied(1 / SCALE), SMALL / SCALE


def _waves(seed: int) -> tuple[Workload, float]:
    """Rates that rise and fall smoothly, with noise of 5 % from minute to minute."""
    times = np.arange(0.0, 4 * WAVE_S, 30.0)
    noise = 1 + 0.05 * np.random.default_rng(seed).standard_normal(len(times))
    wave = 1 + 0.7 * np.sin(2 * np.pi * times / WAVE_S)
    rate = 60_000 / SCALE * wave * np.clip(noise, 0.5, 1.5)
    return RateTrace(times, rate, source="stocks", seed=seed), SMALL / SCALE


def _exchange(seed: int) -> tuple[Workload, float]:
    """A generated exchange day whose peak keeps seven VMs busy."""
    day = ExchangeDay(seed=seed, source="stocks")
    return day, peak_per_s(day) / (0.7 * VMS_AT_PEAK)


TRAFFIC: Mapping[str, Callable[[int], tuple[Workload, float]]] = {
    "steps of the paper": _steps,
    "smooth waves": _waves,
    "exchange days": _exchange,
}


@dataclass(frozen=True)
class Provided:
    """A run: share of the tuples that were dropped, in percent, and mean number of VMs."""

    dropped: float
    vms: float


def follow(traffic: str, signal: Signal, headroom: float, seed: int, length: float) -> Provided:
    """Let a policy follow the traffic from two VMs on."""
    workload, rate_per_vm = TRAFFIC[traffic](seed)
    queue = max(2, round(QUEUE_S * rate_per_vm))
    world = engines(workload, rate_per_vm, 2, seed, queue, 0.0, SERVICE_SCV, STARTUP_S)
    world.advance(PERIOD_S * math.modf(seed * (math.sqrt(5) - 1) / 2)[0])
    end_s = max(600.0, workload.duration_s * length)
    policy = EarlyProvisioning(signal=signal, headroom=headroom, last_second=False)
    report = run_policy(
        world, policy, duration_s=min(end_s, workload.duration_s), interval_s=PERIOD_S, seed=seed
    )
    return Provided(
        100 * report.items_dropped / max(1, report.items_in),
        report.host_seconds / report.duration_s,
    )


# --- the experiment -------------------------------------------------------------------------------

Runs = Mapping[tuple[str, Signal, float], Sequence[Provided]]


def run(size: Size, progress: Progress) -> Finding:
    """Every signal with every headroom on every traffic."""
    runs: dict[tuple[str, Signal, float], list[Provided]] = {}
    for n, seed in enumerate(size.numbers):
        for m, traffic in enumerate(TRAFFIC):
            progress((n + m / len(TRAFFIC)) / size.seeds, f"seed {seed}, {traffic}")
            for signal in SIGNALS:
                for headroom in HEADROOMS:
                    one = follow(traffic, signal, headroom, seed, size.length)
                    runs.setdefault((traffic, signal, headroom), []).append(one)
    return _finding(runs)


def at_equal_cost(runs: Runs, traffic: str, signal: Signal) -> list[float]:
    """Points of drops more than the rate alone has with as many VMs, by seed.

    The drops of the rate alone are interpolated between its headrooms; runs with fewer or more VMs
    than all of these are left out. The figure of a seed is the mean over the headrooms.
    """
    found = []
    for n in range(len(runs[traffic, signal, HEADROOMS[0]])):
        curve = sorted(
            (runs[traffic, "rate", h][n].vms, runs[traffic, "rate", h][n].dropped)
            for h in HEADROOMS
        )
        vms, dropped = zip(*curve, strict=True)
        inside = [
            one.dropped - float(np.interp(one.vms, vms, dropped))
            for one in (runs[traffic, signal, h][n] for h in HEADROOMS)
            if vms[0] <= one.vms <= vms[-1]
        ]
        if inside:
            found.append(mean(inside))
    return found


def _finding(runs: Runs) -> Finding:
    rows = []
    parts: dict[int, list[str]] = {-1: [], 1: [], 0: []}
    for traffic in TRAFFIC:
        for signal in SIGNALS:
            more = at_equal_cost(runs, traffic, signal)
            for headroom in HEADROOMS:
                some = runs[traffic, signal, headroom]
                rows.append(
                    (
                        f"{traffic}, {signal}",
                        f"{100 * headroom:g} %",
                        interval([one.dropped for one in some], 2),
                        interval([one.vms for one in some], 2),
                    )
                )
            if signal != "rate" and more:
                shown = f"{signal} on {traffic} ({interval(more, 2, sign=True)} points)"
                parts[direction(more)].append(shown)
    chart = lines(
        [
            Series(
                signal,
                [mean([one.vms for one in runs["smooth waves", signal, h]]) for h in HEADROOMS],
                [mean([one.dropped for one in runs["smooth waves", signal, h]]) for h in HEADROOMS],
            )
            for signal in SIGNALS
        ],
        "Drops by cost on smooth waves",
        "VMs on average",
        "dropped, %",
    )
    return Finding(
        "Compared with the rate alone at the same number of VMs, "
        + "; ".join(
            f"{word} drops with {', '.join(parts[way])}"
            for way, word in ((-1, "fewer"), (1, "more"), (0, "no clear change of"))
            if parts[way]
        )
        + ".",
        (
            Table(
                "Adaptive provisioning by signal and headroom:",
                ("traffic and signal", "headroom", "dropped, %", "VMs"),
                tuple(rows),
            ),
        ),
        (
            f"VMs take {STARTUP_S:g} s to start and decisions are made every {PERIOD_S:g} s; in "
            "the paper VMs are created in advance. Tuples for two seconds of one VM's work may "
            "wait, so that latency rises before tuples are dropped.",
            "The forecast is the trend of six turns until a new VM runs; only rises count. The "
            "latency signal adds one VM above a mean of 0.5 s. None was tuned.",
            "The comparison at equal cost interpolates the drops of the rate alone between its "
            "headrooms.",
        ),
        (("Drops by the number of VMs, for three signals and three headrooms.", chart),),
    )


QUESTION = Question(
    "early",
    "Does it help to predict the rate, or to take latency as an early signal?",
    "Cerviño et al. 2012, section VI",
    "Adaptive provisioning follows the paper's steps, smooth waves and generated exchange days. It "
    "looks at the rate alone as published, at a forecast of the rate, or at latency too. Each runs "
    "with three headrooms, so that drops can be compared at equal cost.",
    run,
)
