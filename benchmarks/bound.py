"""Benchmark of the hindsight bound: two hours and a day, at several billing units.

A noisy daily curve, up to 20 hosts of one core, items of 0.1 s, an SLO of 2 s, hosts billed while
they run. All rows have the same price per host-hour. With `any`, leases may start at any time; with
`slot`, on the minute; `fractions` allows fractions of hosts.

    python benchmarks/bound.py [--quick] [--limit SECONDS]
"""

from __future__ import annotations

import argparse
import math
import random
import time
from typing import Literal

from tidegate.lab.bound import Demand, hindsight_bound
from tidegate.model import HostOffer
from tidegate.model.topology import Resources


def trace(minutes: int) -> Demand:
    rng = random.Random(1)
    items = [
        3600 * (1.1 + math.sin(2 * math.pi * m / min(minutes, 720) * 2)) * rng.uniform(0.8, 1.2)
        for m in range(minutes)
    ]
    return Demand.of(items, [0.1 * n for n in items], period_s=60)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--quick", action="store_true", help="two hours only")
    reader.add_argument("--limit", type=float, default=20.0, help="seconds for HiGHS per case")
    given = reader.parse_args()
    modes: list[tuple[Literal["any", "slot"], bool]] = [
        ("any", False),
        ("any", True),
        ("slot", True),
    ]
    print("minutes  unit_s  starts  hosts      seconds  bound_usd  plan_usd     gap")
    for minutes in (120,) if given.quick else (120, 1440):
        demand = trace(minutes)
        for unit_s in (60, 600, 3600):
            offer = HostOffer(Resources(1), unit_s, unit_s / 3600, startup_s=60, max_hosts=20)
            for starts, whole in modes:
                begin = time.perf_counter()
                bound = hindsight_bound(
                    demand,
                    offer,
                    slo_s=2.0,
                    penalty_usd=0.001,
                    starts=starts,
                    whole_hosts=whole,
                    time_limit_s=given.limit,
                )
                seconds = time.perf_counter() - begin
                kind = "whole" if whole else "fractions"
                plan = "-" if bound.plan_usd is None else f"{bound.plan_usd:.3f}"
                gap = "-" if bound.gap is None else f"{bound.gap:.2%}"
                print(
                    f"{minutes:7}  {unit_s:6}  {starts:6}  {kind:9}  {seconds:7.2f}"
                    f"  {bound.cost_usd:9.3f}  {plan:>8}  {gap:>6}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
