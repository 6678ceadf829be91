"""How far the fluid world is from the item-level one, on open traces.

    python benchmarks/fluid_error.py FOLDER [--days 0.25] [--each 2] [--skip 1] [--expected]

FOLDER holds ``<family>/*_rate.csv`` or ``.csv.gz``, with the columns t_s and rate; the first traces
of each family are used, each cut to its first part. Traces with more than five million items are
left out. Every policy has its suggested parameters and the default guards. Both worlds get the same
items, but hosts and instances start after random times, so chance is a part of the difference: the
last columns are the differences between this draw of the items and one with another seed, both item
by item. With --expected, the flow has the expected rate in place of the items.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from policies import QUEUES, cut
from tidegate.lab.backtest import Result, run_policy, stack_for
from tidegate.simulation.settings import FluidInflow
from tidegate.workloads import RateTrace, describe, read_trace

POLICIES = "adaptive-provisioning,btu,drs,ds2,lag,queue-threshold,static,tide"
MOST_ITEMS = 5_000_000
ROW = "{:34}{:24}{:>10}{:>10}{:>12}{:>10}{:>12}{:>10}"


def traces(folder: Path, days: float, each: int, skip: int) -> list[tuple[str, RateTrace]]:
    found = []
    for family in sorted(path for path in folder.iterdir() if path.is_dir()):
        taken = 0
        for path in sorted(family.glob("*_rate.csv*")):
            trace = cut(read_trace(path), days * 86_400)
            assert isinstance(trace, RateTrace)
            if taken < skip + each and describe(trace).items <= MOST_ITEMS:
                taken += 1
                if taken > skip:
                    found.append((path.name.split("_rate.csv")[0], trace))
    return found


def result(trace: RateTrace, name: str, fluid: bool, inflow: FluidInflow = "drawn") -> Result:
    scenario = replace(QUEUES, fluid_inflow=inflow).build(trace)
    settings, policy = stack_for(name, scenario)
    return Result(name, settings, run_policy(scenario, policy, 0, fluid=fluid), None)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    reader.add_argument("folder", type=Path)
    reader.add_argument("--days", type=float, default=0.25, help="days of each trace")
    reader.add_argument("--each", type=int, default=2, help="traces of each family")
    reader.add_argument("--skip", type=int, default=0, help="traces of each family to pass over")
    reader.add_argument("--policies", default=POLICIES, help="names, separated by commas")
    reader.add_argument("--expected", action="store_true", help="a flow at the expected rate")
    given = reader.parse_args()
    heads = ("trace", "policy", "items", "fluid", "difference", "cost", "other items", "cost")
    print(ROW.format(*heads))
    worst: dict[str, tuple[float, ...]] = {}
    for label, trace in traces(given.folder, given.days, given.each, given.skip):
        for name in given.policies.split(","):
            items, other = (result(replace(trace, seed=n), name, fluid=False) for n in (0, 1))
            flow = result(trace, name, True, "expected" if given.expected else "drawn")
            points = 100 * (flow.slo_compliance - items.slo_compliance)
            noise = 100 * abs(other.slo_compliance - items.slo_compliance)
            paid_usd = items.report.resource_cost_usd
            cost = flow.report.resource_cost_usd / paid_usd - 1
            other_cost = other.report.resource_cost_usd / paid_usd - 1
            print(
                ROW.format(
                    label, name, f"{items.slo_compliance:.2%}", f"{flow.slo_compliance:.2%}",
                    f"{points:+.2f} pt", f"{cost:+.1%}", f"{noise:.2f} pt", f"{other_cost:+.1%}",
                ),
                flush=True,
            )  # fmt: skip
            now = (abs(points), abs(cost), noise, abs(other_cost))
            worst[name] = tuple(map(max, worst.get(name, now), now))
    print("\nlargest differences")
    for name, (points, cost, noise, other_cost) in worst.items():
        shown = f"{points:.2f} pt", f"{cost:.1%}", f"{noise:.2f} pt", f"{other_cost:.1%}"
        print(ROW.format("", name, "", "", *shown))


if __name__ == "__main__":
    main()
