"""Draw the README's picture: ``python scripts/readme_picture.py``.

It simulates an exchange day with ten times the volume of Frankfurt and shows the load, the capacity
under `tide`, and the capacity of a cluster that is sized for the peak.
"""

from __future__ import annotations

from pathlib import Path

from tidegate.lab.backtest import backtest
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.report.charts import Series, lines
from tidegate.report.page import standalone
from tidegate.workloads import ExchangeDay, Scaled

TARGET = Path(__file__).parent.parent / "docs" / "img" / "tide.svg"


def main() -> None:
    """Simulate the day and write the picture."""
    day = Scaled(ExchangeDay(seed=1), rate_factor=10.0)
    scenario = ScenarioOptions(slo_s=2.0, billing_unit_s=60.0).build(day)
    results = {r.policy: r for r in backtest(scenario, ("static", "tide"))}
    per_host = scenario.rounds / scenario.bottleneck_s
    shown = results["tide"].report.series
    hours = [(t or 0.0) / 3600 for t in shown.time_s]

    def capacity(policy: str) -> list[float | None]:
        hosts = results[policy].report.series.hosts_running
        return [None if n is None else n * per_host for n in hosts]

    tide, static = results["tide"], results["static"]
    series = [
        Series("load", hours, shown.arrival_rate_per_s),
        Series("capacity under tide", hours, capacity("tide"), step=True),
        Series("peak-sized cluster", hours, capacity("static"), step=True, dashed=True),
    ]
    chart = lines(series, "An exchange day", "hours", "items/s")
    TARGET.write_text(standalone(chart), encoding="utf-8")
    share = tide.report.resource_cost_usd / static.report.resource_cost_usd
    print(f"tide: {tide.slo_compliance:.1%} within 2 s, at {share:.0%} of the peak-sized cost")


if __name__ == "__main__":
    main()
