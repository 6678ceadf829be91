"""From the numbers of Cerviño's experiments to answers: the ledger's criteria, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.lab.papers.cervino.world import Steady, Stepped
from tidegate.lab.papers.claims import Answer
from tidegate.lab.papers.statistics import mean, spread
from tidegate.lab.papers.verdicts import SOMEWHERE, WORLDS, because, overall

__all__ = ["Ramp", "follows", "latency", "one_suffices", "period", "scales", "untestable"]

Ramp = Sequence[tuple[float, int, float]]
"""(rate, VMs, share carried) by step."""


def untestable(claim: str) -> Answer:
    """C-01 to C-03: what only real sites can show."""
    reason = "Needs wide-area sites and a real cloud; a simulated network would only echo itself."
    return Answer(claim, "not measured", "untestable", reason)


def scales(small: Sequence[Ramp], large: Sequence[Ramp], why: str = "") -> Answer:
    """C-04: each step carried within 2 %, with fewer large VMs than small ones. By seed."""
    holds: dict[str, list[bool]] = {}
    for name, ramps in (("small", small), ("large", large)):
        holds[f"{name} VMs carry it"] = [all(c >= 0.98 for _, _, c in ramp) for ramp in ramps]
    holds["fewer large VMs"] = [
        all(b[1] < a[1] for a, b in zip(s, lg, strict=True))
        for s, lg in zip(small, large, strict=True)
    ]
    parts = []
    for name, ramps in (("small", small), ("large", large)):
        lowest = [min(carried for _, _, carried in ramp) for ramp in ramps]
        counts = [vms for _, vms, _ in ramps[0]]
        parts.append(
            f"{counts[0]} to {counts[-1]} {name} VMs, {spread(lowest, 5)} carried at least"
        )
    partly = "one size of VM, the comparison, or some seeds"
    return Answer("C-04", "; ".join(parts), overall(holds), because(holds, why), partly)


def follows(runs: Mapping[str, Sequence[Stepped]], why: str = "") -> Answer:
    """C-05: the same rate brings the same N; no drops but within two periods after a rise."""
    holds, parts = {}, []
    for name, each in runs.items():
        holds[name] = [run.returns and run.late_drops == 0 for run in each]
        levels = ":".join(str(vms) for _, vms in each[0].last_vms)
        parts.append(
            f"{name}: N {levels}, the same for equal rates in "
            f"{sum(run.returns for run in each)} of {len(each)}, "
            f"{spread([run.drop_share for run in each], 3, 100, ' %')} dropped, "
            f"{spread([float(run.late_drops) for run in each], 3)} tuples of these later than two "
            "periods after a rise"
        )
    return Answer("C-05", "; ".join(parts), overall(holds), because(holds, why), SOMEWHERE)


def latency(runs: Mapping[str, Sequence[tuple[Steady, Steady]]], why: str = "") -> Answer:
    """C-06: p99 under overload within 4 times that without. runs: (calm, overloaded) by seed."""
    holds, parts = {}, []
    for name, pairs in runs.items():
        ratios = [hot.p99_s / calm.p99_s for calm, hot in pairs]
        holds[name] = [ratio <= 4 for ratio in ratios]
        calm = mean([c.dropped / c.offered for c, _ in pairs])
        hot = mean([h.dropped / h.offered for _, h in pairs])
        parts.append(
            f"{name}: {spread(ratios, 3)} times, {calm:.2%} dropped without overload, "
            f"{hot:.1%} under it"
        )
    return Answer("C-06", "; ".join(parts), overall(holds), because(holds, why), SOMEWHERE)


def one_suffices(runs: Mapping[str, Sequence[Stepped]], why: str = "") -> Answer:
    """C-07: one large VM all the time, less than 1 % dropped."""
    holds, parts = {}, []
    for name, each in runs.items():
        holds[name] = [run.most_vms == 1 and run.drop_share < 0.01 for run in each]
        parts.append(
            f"{name}: N at most {max(run.most_vms for run in each)}, "
            f"{spread([run.drop_share for run in each], 3, 100, ' %')} dropped"
        )
    return Answer("C-07", "; ".join(parts), overall(holds), because(holds, why), SOMEWHERE)


def period(runs: Mapping[str, Mapping[float, Sequence[Stepped]]], why: str = "") -> Answer:
    """C-08: drops plus waste are lower at 30 s than at 5 s and 120 s, on average over seeds."""
    holds, parts = {}, []
    for name, periods in runs.items():
        costs = {p: [run.cost for run in each] for p, each in periods.items()}
        middle = mean(costs[30.0])
        holds[name] = [middle < mean(costs[5.0]) and middle < mean(costs[120.0])]
        each_period = ", ".join(
            f"{spread(costs[p], 3, 100, ' %')} at {p:g} s "
            f"({mean([run.drop_share for run in periods[p]]):.1%} drops)"
            for p in sorted(costs)
        )
        parts.append(f"{name}: {each_period}")
    return Answer("C-08", "; ".join(parts), overall(holds), because(holds, why), WORLDS)
