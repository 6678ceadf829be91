"""How far the fluid world is from the item-level one, on open traces.

    python benchmarks/fluid_error.py FOLDER [--days 0.25] [--each 2] [--policies drs,ds2]

FOLDER holds ``<family>/*_rate.csv`` or ``.csv.gz``, with the columns t_s and rate; the first traces
of each family are used, each cut to its first part. Traces with more than five million items are
left out. Every policy has its suggested parameters and the default guards. Items arrive at random,
and the flow at the expected rate, so chance is a part of the difference: the last column is the
difference in compliance between two draws of the items.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from policies import QUEUES, cut
from tidegate.lab.backtest import Result, run_policy, stack_for
from tidegate.workloads import RateTrace, describe, read_trace

POLICIES = "adaptive-provisioning,btu,drs,ds2,lag,queue-threshold,static,tide"
MOST_ITEMS = 5_000_000
ROW = "{:34}{:24}{:>10}{:>10}{:>12}{:>10}{:>12}"


def traces(folder: Path, days: float, each: int) -> list[tuple[str, RateTrace]]:
    found = []
    for family in sorted(path for path in folder.iterdir() if path.is_dir()):
        taken = 0
        for path in sorted(family.glob("*_rate.csv*")):
            trace = cut(read_trace(path), days * 86_400)
            assert isinstance(trace, RateTrace)
            if taken < each and describe(trace).items <= MOST_ITEMS:
                found.append((path.name.split("_rate.csv")[0], trace))
                taken += 1
    return found


def result(trace: RateTrace, name: str, fluid: bool) -> Result:
    scenario = QUEUES.build(trace)
    settings, policy = stack_for(name, scenario)
    return Result(name, settings, run_policy(scenario, policy, 0, fluid=fluid), None)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    reader.add_argument("folder", type=Path)
    reader.add_argument("--days", type=float, default=0.25, help="days of each trace")
    reader.add_argument("--each", type=int, default=2, help="traces of each family")
    reader.add_argument("--policies", default=POLICIES, help="names, separated by commas")
    given = reader.parse_args()
    print(ROW.format("trace", "policy", "items", "fluid", "difference", "cost", "noise"))
    worst: dict[str, tuple[float, float, float]] = {}
    for label, trace in traces(given.folder, given.days, given.each):
        for name in given.policies.split(","):
            items, other = (result(replace(trace, seed=n), name, fluid=False) for n in (0, 1))
            flow = result(trace, name, fluid=True)
            points = 100 * (flow.slo_compliance - items.slo_compliance)
            noise = 100 * abs(other.slo_compliance - items.slo_compliance)
            cost = flow.report.resource_cost_usd / items.report.resource_cost_usd - 1
            print(
                ROW.format(
                    label, name, f"{items.slo_compliance:.2%}", f"{flow.slo_compliance:.2%}",
                    f"{points:+.2f} pt", f"{cost:+.1%}", f"{noise:.2f} pt",
                ),
                flush=True,
            )  # fmt: skip
            before = worst.get(name, (0.0, 0.0, 0.0))
            now = (abs(points), abs(cost), noise)
            worst[name] = tuple(map(max, before, now))  # type: ignore[assignment]
    print("\nlargest differences")
    for name, (points, cost, noise) in worst.items():
        print(ROW.format("", name, "", "", f"{points:.2f} pt", f"{cost:.1%}", f"{noise:.2f} pt"))


if __name__ == "__main__":
    main()
