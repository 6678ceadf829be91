"""A first backtest: policies on a generated exchange day, compared with the hindsight bound.

Covers: a workload, a scenario around it, the bound, the guards of all policies, a backtest and its
report with pictures.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tidegate.lab.backtest import backtest, bound_of
from tidegate.lab.backtest_report import backtest_page
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.loop.stack import StackOptions
from tidegate.workloads import ExchangeDay, Scaled, series, sparkline

TIMES = 10.0  # an exchange ten times as busy as Frankfurt
OPTIONS = StackOptions(stabilise_s=300.0)
POLICIES = ("static", "spark-dynamic-allocation", "ds2", "drs")


def main() -> None:
    day = Scaled(ExchangeDay(seed=1), rate_factor=TIMES)
    scenario = ScenarioOptions(slo_s=2.0, billing_unit_s=60.0).build(day)
    print(f"exchange day {sparkline(series(day, 60.0), 60)}")
    bound = bound_of(scenario, time_limit_s=5.0)
    results = backtest(scenario, POLICIES, bound=bound, options=OPTIONS)
    print(
        f"{'policy':26} {'cost':>7} {'in time':>8} {'rescales':>9} {'hosts':>6} {'over bound':>11}"
    )
    for result in results:
        print(
            f"{result.policy:26} {result.cost_usd:7.2f} {result.slo_compliance:8.1%} "
            f"{result.report.rescales:9} {result.mean_hosts:6.1f} {result.regret or 0:+11.0%}"
        )
    if len(sys.argv) > 1:
        page = backtest_page("an exchange day", scenario, results, bound)
        print(f"pictures: {page.write(Path(sys.argv[1]))}")


if __name__ == "__main__":
    main()
