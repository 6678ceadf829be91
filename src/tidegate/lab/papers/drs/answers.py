"""From the numbers of the DRS experiments to answers: the criteria of the ledger, nothing else."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.lab.papers.claims import Answer, Verdict
from tidegate.lab.papers.drs.algorithm import PAPER_MS
from tidegate.lab.papers.drs.control_runs import Controlled
from tidegate.lab.papers.drs.world import Allocation, shape
from tidegate.lab.papers.statistics import mean, ranks, spread
from tidegate.lab.papers.verdicts import SOMEWHERE, WORLDS, because, failing, join, overall

__all__ = [
    "Row",
    "Six",
    "accuracy",
    "exact",
    "falls",
    "lowest",
    "machines",
    "meeting",
    "monotonic",
    "more_underestimated",
    "pauses",
    "peaks",
    "scheduling",
    "smallest_deviation",
]


@dataclass(frozen=True)
class Row:
    """One allocation: estimate by the model, mean and standard deviation measured by each seed.

    stretches_s: means of ten-minute stretches, all seeds after one another.
    """

    allocation: Allocation
    estimate_s: float
    means_s: tuple[float, ...]
    deviations_s: tuple[float, ...]
    stretches_s: tuple[float, ...] = ()

    @property
    def ratio(self) -> float:
        """Measured over estimated."""
        return mean(self.means_s) / self.estimate_s


@dataclass(frozen=True)
class Six:
    """Six allocations in one world. best: the one that the paper recommends."""

    best: Allocation
    rows: tuple[Row, ...]

    @property
    def correlation(self) -> float:
        """Spearman's rank correlation of estimated with measured."""
        a = ranks([row.estimate_s for row in self.rows])
        b = ranks([mean(row.means_s) for row in self.rows])
        n = len(self.rows)
        return 1 - 6 * sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / (n * (n * n - 1))

    @property
    def ratio(self) -> float:
        """Measured over estimated, on average."""
        return mean([row.ratio for row in self.rows])

    def won_stretches(self) -> float:
        """Share of ten-minute stretches in which the recommended allocation has the lowest mean."""
        both = list(zip(*(row.stretches_s for row in self.rows), strict=True))
        place = [row.allocation for row in self.rows].index(self.best)
        return mean([float(stretch[place] == min(stretch)) for stretch in both])


def lowest(claim: str, sixes: Mapping[str, Six], why: str = "") -> Answer:
    """D-01, D-02: the recommended allocation has the lowest mean sojourn time."""
    holds, parts = {}, []
    for name, six in sixes.items():
        order = sorted(six.rows, key=lambda row: mean(row.means_s))
        holds[name] = [order[0].allocation == six.best]
        mine = next(row for row in six.rows if row.allocation == six.best)
        other = next(row for row in order if row.allocation != six.best)
        parts.append(
            f"{name}: {shape(six.best)} {spread(mine.means_s, 4, 1000, ' ms')}, best other "
            f"{shape(other.allocation)} {spread(other.means_s, 4, 1000, ' ms')} "
            f"(lowest in {six.won_stretches():.0%} of stretches of 10 minutes at most)"
        )
    reason = join(because(holds, why), "Simulated, not live.")
    return Answer(claim, "; ".join(parts), overall(holds), reason, WORLDS)


def smallest_deviation(sixes: Mapping[str, Six], why: str = "") -> Answer:
    """D-03: it has the smallest standard deviation too."""
    holds, parts = {}, []
    for name, six in sixes.items():
        order = sorted(six.rows, key=lambda row: mean(row.deviations_s))
        holds[name] = [order[0].allocation == six.best]
        mine = next(row for row in six.rows if row.allocation == six.best)
        other = next(row for row in order if row.allocation != six.best)
        parts.append(
            f"{name}: {spread(mine.deviations_s, 4, 1000, ' ms')}, best other "
            f"{shape(other.allocation)} {spread(other.deviations_s, 4, 1000, ' ms')}"
        )
    return Answer("D-03", "; ".join(parts), overall(holds), because(holds, why), WORLDS)


def monotonic(sixes: Mapping[str, Six], why: str = "") -> Answer:
    """D-04: estimates and measurements have the same order."""
    holds = {name: [six.correlation > 1 - 1e-12] for name, six in sixes.items()}
    measured = "rank correlation " + "; ".join(
        f"{name} {six.correlation:.3g}" for name, six in sixes.items()
    )
    return Answer("D-04", measured, overall(holds), because(holds, why), WORLDS)


def accuracy(sixes: Mapping[str, Six], why: str = "") -> Answer:
    """D-05: measured over estimated lies between 1.0 and 1.25, for each of the six."""
    holds = {name: [all(1.0 <= r.ratio <= 1.25 for r in six.rows)] for name, six in sixes.items()}
    measured = "measured/estimated " + "; ".join(
        f"{name} {min(r.ratio for r in six.rows):.3f} to {max(r.ratio for r in six.rows):.3f}"
        for name, six in sixes.items()
    )
    return Answer("D-05", measured, overall(holds), because(holds, why), WORLDS)


def more_underestimated(patterns: Mapping[str, Six], logos: Six, why: str = "") -> Answer:
    """D-06: frequent patterns have a higher ratio than logo detection."""
    holds = {name: [six.ratio > logos.ratio] for name, six in patterns.items()}
    measured = f"measured/estimated on average: logo detection {logos.ratio:.3f}; " + "; ".join(
        f"{name} {six.ratio:.3f}" for name, six in patterns.items()
    )
    return Answer("D-06", measured, overall(holds), because(holds, why), WORLDS)


def falls(ratios: Mapping[float, Sequence[float]], why: str = "") -> Answer:
    """D-07: the ratio falls from each workload to the next. ratios: by CPU time in ms, by seed."""
    middle = [mean(ratios[cpu]) for cpu in sorted(ratios)]
    steps = [later < earlier for earlier, later in itertools.pairwise(middle)]
    measured = "measured/estimated " + ", ".join(
        f"{spread(ratios[cpu], 4)} at {cpu:.4g} ms" for cpu in sorted(ratios)
    )
    return Answer("D-07", measured, overall({"": steps}), why, "at some of the five steps")


def meeting(
    runs: Mapping[str, Sequence[tuple[Controlled, Controlled]]],
    best: Mapping[str, Allocation],
    why: str = "",
) -> Answer:
    """D-08: from bad starts to the recommended allocation, within 5 % of its sojourn time.

    runs: by start, for each seed the run from there and the run from the recommended allocation.
    """
    near, reached, parts = {}, {}, []
    for name, pairs in runs.items():
        ratios = [bad.after_s / good.after_s for bad, good in pairs]
        near[name] = [abs(ratio - 1) <= 0.05 for ratio in ratios]
        reached[name] = [bool(b.changes) and b.changes[0][1] == best[name] for b, _ in pairs]
        parts.append(
            f"{name}: {spread(ratios, 3)} of the other's time, {shape(best[name])} chosen first in "
            f"{sum(reached[name])} of {len(pairs)}"
        )
    verdict = overall(near)
    if verdict == "reproduced" and overall(reached) != "reproduced":
        verdict = "partly"
    where = failing({f"time, {k}": v for k, v in near.items()})
    missed = [name for name, values in reached.items() if not all(values)]
    other = f"Another allocation was chosen at first from {', '.join(missed)}." if missed else ""
    reason = join(where, other, why) if verdict != "reproduced" else ""
    partly = "times meet from some starts or seeds, or all after another allocation"
    return Answer("D-08", "; ".join(parts), verdict, reason, partly)


def pauses(runs: Mapping[str, Sequence[Controlled]], why: str = "") -> Answer:
    """D-09: the pause is below 10 s, the minute's mean up by less than 50 %."""
    holds, parts = {}, []
    for name, each in runs.items():
        changed = [c for c in each if c.changes]
        ups = [c.peak_s / c.before_s - 1 for c in changed]
        waits = [c.pause_s for c in changed]
        holds[name] = [p < 10 and up < 0.5 for p, up in zip(waits, ups, strict=True)] or [False]
        rise = mean(ups)
        rises = f"{rise:+.0%}" if abs(rise) < 10 else f"times {1 + rise:.0f}"
        longest = max(waits, default=math.nan)
        parts.append(f"{name}: pause {longest:.2g} s at most, minute {rises}")
    return Answer("D-09", "; ".join(parts), overall(holds), because(holds, why), SOMEWHERE)


def machines(
    claim: str,
    runs: Mapping[str, Sequence[Controlled]],
    target: tuple[Allocation, int],
    t_max_s: float,
    exceeded_before: bool,
    why: str = "",
) -> Answer:
    """D-10, D-11: the right machines and allocation, on the right sides of the bound, kept.

    target: allocation and machines at the end; exceeded_before: whether T_max is exceeded at first.
    """
    holds, parts = {}, []
    for name, each in runs.items():
        first = [bool(c.changes) and c.changes[0][1:] == target for c in each]
        kept = [
            c.last == target and all(hosts == target[1] for _, _, hosts in c.changes) for c in each
        ]
        sides = [
            c.after_s < t_max_s and (c.before_s > t_max_s or not exceeded_before) for c in each
        ]
        holds[name] = [a and b and c for a, b, c in zip(first, kept, sides, strict=True)]
        hosts = [sum(x[2] != y[2] for x, y in itertools.pairwise(c.changes)) for c in each]
        parts.append(
            f"{name}: {spread([c.before_s for c in each], 3, 1000, ' ms')} before, "
            f"{spread([c.after_s for c in each], 3, 1000, ' ms')} after; to {shape(target[0])} on "
            f"{target[1]} machines at first in {sum(first)}, for good in {sum(kept)} of "
            f"{len(each)} runs, machines changed again {mean([float(h) for h in hosts]):.1f} times"
        )
    return Answer(claim, "; ".join(parts), overall(holds), because(holds, why), SOMEWHERE)


def peaks(runs: Mapping[str, Sequence[tuple[Controlled, Controlled]]], why: str = "") -> Answer:
    """D-12: the minute in which a machine is added is worse than the one in which one goes."""
    holds, parts = {}, []
    for name, pairs in runs.items():
        holds[name] = [added.peak_s > removed.peak_s for added, removed in pairs]
        adding = [a.peak_s for a, _ in pairs if a.changes]
        removing = [r.peak_s for _, r in pairs if r.changes]
        parts.append(
            f"{name}: {spread(adding, 3, 1000, ' ms')} adding, "
            f"{spread(removing, 3, 1000, ' ms')} removing"
        )
    return Answer("D-12", "; ".join(parts), overall(holds), because(holds, why), SOMEWHERE)


def scheduling(took_ms: Mapping[int, float], why: str = "") -> Answer:
    """D-13: faster at each K, and no worse than linear in it."""
    faster = [took_ms[k] < paper for k, paper in PAPER_MS.items()]
    base = min(took_ms)
    linear = [took / took_ms[base] <= k / base for k, took in took_ms.items()]
    measured = "published/ours " + ", ".join(
        f"{PAPER_MS[k] / took:.1f} at {k}" for k, took in took_ms.items()
    )
    measured += f"; {took_ms[max(took_ms)] / took_ms[base]:.1f} times as long for "
    measured += f"{max(took_ms) // base} times the processors"
    holds = {"faster": faster, "linear": linear}
    partly = "faster at some K, or linear up to some"
    return Answer("D-13", measured, overall(holds), join(failing(holds), why), partly)


def exact(claim: str, solved: int, instances: int, extra: str = "") -> Answer:
    """D-14, D-15: equal to the exhaustive search on every instance."""
    measured = f"{solved} of {instances} random instances equal{extra}"
    verdict: Verdict = "reproduced" if solved == instances > 0 else "partly" if solved else "not"
    return Answer(claim, measured, verdict, partly="on some instances")
