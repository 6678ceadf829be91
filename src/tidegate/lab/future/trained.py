"""A policy that was trained in the Gymnasium environment on open traces.

It has six numbers, which `tidegate.lab.future.train` finds and ``trained.json`` stores. It is an
experiment, not a recommendation, so it is no policy that users can name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tidegate.codec import Value
from tidegate.lab.backtest import bound_of
from tidegate.lab.future.control import lease_or_release, needed_hosts
from tidegate.lab.future.days import DayResult, day_scenario, exchange_days, run_day
from tidegate.lab.future.questions import Finding, Question, Size, Table, change_text
from tidegate.lab.papers.claims import Progress
from tidegate.lab.papers.statistics import interval, mean
from tidegate.model import Plan, Snapshot
from tidegate.packing import Packing
from tidegate.policies.base import Policy, Style, setting
from tidegate.report.charts import scatter

__all__ = ["BEFORE", "QUESTION", "STORED", "Features", "Trained", "read_trained"]

STORED = Path(__file__).with_name("trained.json")
"""The file with the numbers that were learnt."""
KEEP, FADE = 0.95, 0.985
"""Weight of the past in a mean, and what is left of a peak after a turn. With turns of 15 s, five
minutes and eleven minutes."""
MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Features(Value):
    """What the policy remembers of the load, in hosts: a mean, a fading peak, and a deviation."""

    mean: float | None = None
    peak: float = 0.0
    deviation: float = 0.0

    def after(self, load: float) -> Features:
        """The features after one more load.

        >>> Features().after(2.0).after(4.0)
        Features(mean=2.1, peak=4.0, deviation=0.1)
        """
        if self.mean is None:
            return Features(load, load, 0.0)
        gap = abs(load - self.mean)
        return Features(
            round(KEEP * self.mean + (1 - KEEP) * load, 9),
            round(max(load, FADE * self.peak), 9),
            round(KEEP * self.deviation + (1 - KEEP) * gap, 9),
        )


@dataclass(frozen=True)
class Trained(Policy):
    """A number of hosts that is a linear function of the load, its past and the backlog.

    >>> from tidegate.testing import steady_snapshot
    >>> policy = Trained(load=2.0)
    >>> plan, memory = policy.decide(steady_snapshot(hosts=1, queue_length=0), Features())
    >>> memory.mean is not None
    True
    """

    name: ClassVar[str] = "trained"
    paper: ClassVar[str] = "trained in the Gymnasium environment"
    style: ClassVar[Style] = "engines"
    needs: ClassVar[tuple[str, ...]] = ("operator.arrival_rate_per_s",)
    memory_type: ClassVar[type] = Features
    forecasts: ClassVar[bool] = True

    constant: float = setting(0.5, "hosts at no load")
    load: float = setting(1.0, "hosts for each host that the present load keeps busy")
    mean: float = setting(0.0, "the same for the mean load")
    peak: float = setting(0.4, "the same for the fading peak of the load")
    deviation: float = setting(0.0, "the same for the deviation of the load")
    backlog: float = setting(1.0, "hosts for each host-minute of waiting work")

    @property
    def weights(self) -> tuple[float, ...]:
        """All numbers, in order."""
        return tuple(float(getattr(self, p.name)) for p in self.parameters())

    def hosts(self, load: float, backlog_s: float, features: Features) -> int:
        """The number of hosts. load: in hosts; backlog_s: in host-seconds; features: with it."""
        seen = (
            1.0,
            load,
            features.mean or 0.0,
            features.peak,
            features.deviation,
            backlog_s / MINUTE_S,
        )
        wanted = math.fsum(w * x for w, x in zip(self.weights, seen, strict=True))
        return max(1, min(1000, math.ceil(wanted)))

    def decide(self, snapshot: Snapshot, memory: Features) -> tuple[Plan, Features]:
        """The hosts of the linear function."""
        packing = Packing(snapshot)
        needed = needed_hosts(snapshot, 1.0)
        if needed is None:
            return packing.plan(), memory
        load, backlog_s = needed
        features = memory.after(load)
        lease_or_release(packing, self.hosts(load, backlog_s, features), load)
        return packing.plan(), features


BEFORE = Trained()
"""The policy before training, set by hand."""


def read_trained(path: Path = STORED) -> Trained:
    """The policy with the numbers in a file.

    >>> len(read_trained().weights)
    6
    """
    return Trained(**json.loads(path.read_text(encoding="utf-8"))["weights"])


# --- the experiment -------------------------------------------------------------------------------


def run(size: Size, progress: Progress) -> Finding:
    """The trained policy, the same before training, and others on days that it has not seen."""
    rules: Mapping[str, str | Policy] = {
        "trained": read_trained(),
        "before training": BEFORE,
        "drs": "drs",
        "tide": "tide",
    }
    found: dict[str, list[DayResult]] = {name: [] for name in rules}
    for n, (seed, workload) in enumerate(exchange_days(size)):
        scenario = day_scenario(workload, size.length)
        bound = bound_of(scenario).cost_usd
        for m, (name, policy) in enumerate(rules.items()):
            progress((n + m / len(rules)) / size.seeds, f"seed {seed}, {name}")
            found[name].append(run_day(scenario, policy, seed, bound))
    return _finding(found)


def _ratios(days: Sequence[DayResult]) -> list[float]:
    return [day.ratio for day in days]


def _finding(found: Mapping[str, Sequence[DayResult]]) -> Finding:
    rows = tuple(
        (
            name,
            interval([100 * day.in_time for day in days], 1),
            interval(_ratios(days), 2),
            interval([float(day.rescales) for day in days], 0),
        )
        for name, days in found.items()
    )
    mine = found["trained"]
    parts = ", ".join(
        f"{change_text(_ratios(mine), _ratios(found[name]))} than `{name}`"
        for name in ("drs", "tide")
    ).replace("no clear change than", "no clear change from")
    before = change_text(_ratios(mine), _ratios(found["before training"]))
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    points = [
        (name, 100 * mean([day.in_time for day in days]), mean(_ratios(days)))
        for name, days in found.items()
    ]
    chart = scatter(points, "Trained and other policies", "in time, %", "cost over the bound")
    return Finding(
        f"The trained policy costs {mean(_ratios(mine)):.2f} times the bound with "
        f"{100 * mean([day.in_time for day in mine]):.1f} % in time. That is {parts} in cost, and "
        f"{before} compared with the same policy before training.",
        (
            Table(
                "Days that were not trained on, with the default guards:",
                ("policy", "in time, %", "cost over the bound", "rescales"),
                rows,
            ),
            Table(
                "What was learnt:",
                ("", *(p.name for p in Trained.parameters())),
                (
                    ("before", *(f"{w:.2f}" for w in BEFORE.weights)),
                    ("after", *(f"{w:.2f}" for w in read_trained().weights)),
                ),
            ),
        ),
        (
            f"Trained on {', '.join(stored['traces'])}: {stored['how']}. "
            "`python -m tidegate.lab.future.train FOLDER` trains again.",
            "The policy is a row of `make bench-policies`, which has other open traces.",
        ),
        (("Share in time and cost of the trained policy and of others.", chart),),
    )


QUESTION = Question(
    "trained",
    "What does a policy achieve that was trained on open traces?",
    "FUGU (Heinze et al. 2014), section VI, which learns online only",
    "A policy with six numbers, linear in the load, its mean, peak and deviation, and the backlog, "
    "is trained by cross-entropy search in the Gymnasium environment. It is tested on exchange "
    "days, in the world of `tidegate backtest`.",
    run,
)
