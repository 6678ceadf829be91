"""G/G/k on bursty traffic, and cheaper rebalancing, for DRS."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tidegate.lab.future.questions import Finding, Question, Size, Table, change_text, direction
from tidegate.lab.papers.claims import Progress
from tidegate.lab.papers.drs.runs import (
    END_S,
    MACHINES,
    PER_MACHINE,
    RESERVED,
    TO_17,
    RestartingCloud,
    filled,
)
from tidegate.lab.papers.drs.world import VLD_26, VLD_26_POISSON, App, measure
from tidegate.lab.papers.statistics import interval, mean
from tidegate.model import HostOffer
from tidegate.model.topology import Resources
from tidegate.policies.drs import Drs
from tidegate.report.charts import bars
from tidegate.simulation import CloudSettings, SimulatedCloud
from tidegate.simulation.run import run as run_policy
from tidegate.workloads import Bursty, RateTrace
from tidegate.workloads.protocol import generator, word

__all__ = ["QUESTION", "drive"]

ESTIMATED_S = 3600.0
TURN_S = 60.0
T_MAX_S = 0.5
APPS: Mapping[str, App] = {
    "Poisson": VLD_26_POISSON,
    "bursts of 0.2 s": replace(VLD_26, burst_s=0.2),
    "bursts of 0.65 s": VLD_26,
    "bursts of 1 s": replace(VLD_26, burst_s=1.0),
}
Model = Literal["mmk", "ggk"]
MODELS: tuple[Model, ...] = ("mmk", "ggk")
GAINS = (0.0, 0.05, 0.1, 0.2)
"""Smallest falls of latency for which instances change."""


@dataclass(frozen=True)
class Driven:
    """A run under control.

    Args:
        latency_s: Mean sojourn time, in seconds.
        machines: Mean number of machines.
        changed: Instances that were started or stopped.
        rescales: Plans that changed something.
    """

    latency_s: float
    machines: float
    changed: float
    rescales: float


def drive(app: App, policy: Drs, seed: int, duration_s: float, restarting: bool) -> Driven:
    """Let DRS control an application from 17 executors on, with the machines of Fig. 10.

    restarting: every executor restarts at a change, as with Storm.
    """
    counts, machines = TO_17
    rooms = {f"host-{n}": PER_MACHINE for n in range(1, machines + 1)}
    rooms["host-1"] -= RESERVED
    kind = RestartingCloud if restarting else SimulatedCloud
    world = kind(
        app.topology,
        HostOffer(Resources(PER_MACHINE), max_hosts=MACHINES + 3),
        app.workload(duration_s, seed),
        seed=seed,
        initial=filled(app, counts, rooms),
        settings=CloudSettings(decision_s=TURN_S),
    )
    report = run_policy(world, policy, duration_s=duration_s, interval_s=TURN_S, seed=seed)
    return Driven(
        math.nan if report.latency_mean_s is None else report.latency_mean_s,
        report.host_seconds / duration_s,
        float(report.steps["start"] + report.steps["stop"] + report.steps["move"]),
        float(report.rescales),
    )


@dataclass(frozen=True)
class Wavering(App):
    """Logo detection whose rate wanders between 0.7 and 1.3 of the usual one, minute by minute."""

    def workload(self, duration_s: float, seed: int) -> Bursty:
        """Bursty arrivals whose rate is drawn again every minute."""
        minutes = np.arange(0.0, duration_s, 60.0)
        factors = generator(seed, word("wavering")).uniform(0.7, 1.3, len(minutes))
        rates = RateTrace(minutes, self.rate_per_s * factors, source=self.source)
        return Bursty(rates, 3.0, 0.3, seed)


WAVERING = Wavering(**vars(VLD_26))


def run(size: Size, progress: Progress) -> Finding:
    """Estimates and decisions of both models, then rebalancing with several smallest gains."""
    length_s = max(600.0, size.length * ESTIMATED_S)
    errors: dict[tuple[str, str], list[float]] = {}
    decided: dict[tuple[str, str], list[Driven]] = {}
    gains: dict[tuple[float, bool], list[Driven]] = {}
    for n, seed in enumerate(size.numbers):
        progress(n / size.seeds, f"seed {seed}")
        for name, app in APPS.items():
            each: dict[str, list[float]] = {model: [] for model in MODELS}
            for allocation in app.allocations:
                seen = measure(app, allocation, seed, length_s)
                if not seen.items:
                    continue
                general = app.general_estimate_s(allocation, seen.scvs)
                for model, estimate in (("mmk", app.estimate_s(allocation)), ("ggk", general)):
                    each[model].append(100 * abs(estimate / seen.mean_s - 1))
            for model in MODELS:
                errors.setdefault((name, model), []).append(mean(each[model]))
                policy = Drs(t_max_s=T_MAX_S, reserved=RESERVED, model=model)
                decided.setdefault((name, model), []).append(
                    drive(app, policy, seed, min(length_s, END_S), restarting=False)
                )
        for gain in GAINS:
            for restarting in (False, True):
                policy = Drs(t_max_s=T_MAX_S, reserved=RESERVED, min_gain=gain)
                one = drive(WAVERING, policy, seed, length_s, restarting)
                gains.setdefault((gain, restarting), []).append(one)
    return _finding(errors, decided, gains)


def _ms(runs: Sequence[Driven]) -> list[float]:
    return [1000 * one.latency_s for one in runs]


def _judgement(errors: Mapping[tuple[str, str], Sequence[float]]) -> str:
    """Where which model estimates clearly better."""
    found: dict[int, list[str]] = {-1: [], 1: [], 0: []}
    for name in APPS:
        pairs = zip(errors[name, "ggk"], errors[name, "mmk"], strict=True)
        both = f"{mean(errors[name, 'ggk']):.0f} and {mean(errors[name, 'mmk']):.0f} %"
        found[direction([a - b for a, b in pairs])].append(f"{name} ({both})")
    words = ((-1, "a smaller"), (1, "a larger"), (0, "no clearly other"))
    parts = [f"{word} error for {', '.join(found[way])}" for way, word in words if found[way]]
    return f"Compared with M/M/k, estimates by G/G/k have {'; '.join(parts)}."


def _within(runs: Sequence[Driven]) -> str:
    return f"{sum(one.latency_s <= T_MAX_S for one in runs)} of {len(runs)}"


def _finding(
    errors: Mapping[tuple[str, str], Sequence[float]],
    decided: Mapping[tuple[str, str], Sequence[Driven]],
    gains: Mapping[tuple[float, bool], Sequence[Driven]],
) -> Finding:
    models = tuple(
        (
            name,
            model,
            interval(errors[name, model], 0),
            interval(_ms(decided[name, model]), 0),
            _within(decided[name, model]),
            interval([one.machines for one in decided[name, model]], 2),
        )
        for name in APPS
        for model in MODELS
    )
    rebalancing = tuple(
        (
            f"{100 * gain:g} %",
            "all restart" if restarting else "only what changes",
            interval(_ms(runs), 0),
            interval([one.changed for one in runs], 0),
            interval([one.rescales for one in runs], 0),
            interval([one.machines for one in runs], 2),
        )
        for (gain, restarting), runs in sorted(gains.items(), key=lambda item: item[0][::-1])
    )
    worst = "bursts of 0.2 s"
    latency = change_text(_ms(decided[worst, "ggk"]), _ms(decided[worst, "mmk"]))
    machines = change_text(
        [one.machines for one in decided[worst, "ggk"]],
        [one.machines for one in decided[worst, "mmk"]],
    )
    few, many = gains[GAINS[-1], True], gains[GAINS[0], True]
    rebalanced = (
        f"{change_text([o.changed for o in few], [o.changed for o in many])} in changed executors "
        f"and {change_text(_ms(few), _ms(many))} in latency, with "
        f"{change_text([o.machines for o in few], [o.machines for o in many])} in machines,"
    )
    chart = bars(
        list(APPS),
        [(model, [mean(errors[name, model]) for name in APPS]) for model in MODELS],
        "Error of the estimated latency",
        "%",
    )
    return Finding(
        f"{_judgement(errors)} Decisions by G/G/k at {worst} have {latency} in latency and "
        f"{machines} in machines. "
        f"Changing executors only for a gain of {100 * GAINS[-1]:g} % in place of any gives "
        f"{rebalanced} where every executor restarts.",
        (
            Table(
                f"Logo detection at 26 frames/s; decisions for {1000 * T_MAX_S:g} ms:",
                (
                    "arrivals",
                    "model",
                    "error of estimates, %",
                    "latency when it decides, ms",
                    "runs within the bound",
                    "machines",
                ),
                models,
            ),
            Table(
                "Rebalancing where the rate wanders, by the smallest gain of a change:",
                ("gain", "at a change", "latency, ms", "changed executors", "changes", "machines"),
                rebalancing,
            ),
        ),
        (
            "Estimates are for six allocations of 22 executors, compared with runs of "
            f"{ESTIMATED_S / 60:g} min over a network of 2 ms a hop. G/G/k is the Allen–Cunneen "
            "approximation with the variability that the run measured, between single arrivals.",
            "Decisions start with 17 executors, once a minute, for 27 min.",
            "The wandering rate is drawn each minute between 0.7 and 1.3 of 26 frames/s.",
        ),
        (("Error of the estimated latency by model and burst length.", chart),),
    )


QUESTION = Question(
    "bursts",
    "Does G/G/k serve bursty traffic better than M/M/k, and can rebalancing be cheaper?",
    "DRS (Fu et al. 2015), section VI",
    "Logo detection gets the same number of frames without bursts and in bursts of three lengths. "
    "Both models estimate the latency of six allocations, and then decide. For rebalancing, the "
    "smallest gain for which executors change is varied, with a restart of all executors at each "
    "change, as in Storm, and without.",
    run,
)
