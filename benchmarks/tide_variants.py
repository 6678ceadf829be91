"""What each part of the policy `tide` is worth: the policy with one part changed at a time.

    python benchmarks/tide_variants.py FOLDER [--only xetra] [--world hourly]

FOLDER holds the traces of `benchmarks/policies.py`. Only traces on which settings may be chosen are
used, so the numbers say why a part is as it is, and not how good the policy is. The last variant
knows the rate that it has to forecast. No policy can, so it shows what better forecasts could save.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from policies import CHOSEN_ON, WORLDS, workloads
from tidegate.lab.backtest import bound_of, run_policy, stack_for
from tidegate.loop.stack import StackOptions
from tidegate.policies.tide import forecast as forecasts
from tidegate.policies.tide import policy as decisions
from tidegate.policies.tide.forecast import FORECASTERS, Ensemble, Forecast, Values
from tidegate.workloads import Workload

PROMISED = {"share": 0.99}
TRACES = (
    "xetra_2017-07-03",
    "xetra_2018-02-14",
    "eurex_2017-07-28",
    "azure_llm_conv_2023-11-16_1s",
)


def mean(weights: Sequence[float], values: Values) -> float:
    pairs = zip(weights, values, strict=True)
    return math.fsum(w * value for w, value in pairs if value is not None)


def only(name: str) -> Callable[[Ensemble, Values], tuple[float, ...]]:
    return lambda self, values: tuple(float(n == name) for n in FORECASTERS)


def no_memory(snapshot: Any, needs: Any, hosts: int, least_s: float) -> Any:
    return ((snapshot.time_s, hosts),)


Changes = list[tuple[Any, str, Any]]


def part_late(part: float) -> Changes:
    return [(decisions, name, part) for name in ("FIRST_PART", "LEAST_PART", "MOST_PART")]


def foreseen(workload: Workload) -> Changes:
    """The largest rate of the turn that a forecast is for."""

    def forecast(self: Ensemble, lead_s: float, quantile: float, most: float) -> Any:
        at_s = [(self.seen_s or 0.0) + lead_s - back_s for back_s in (0.0, 5.0, 10.0, 15.0)]
        rate = max(workload.rate(min(t, workload.duration_s - 1e-6)) for t in at_s)
        return Forecast(rate, quantile, FORECASTERS[0]), self

    return [(Ensemble, "forecast", forecast)]


FORESEEN = "the rate is known in advance"
VARIANTS: dict[str, tuple[dict[str, float], Changes]] = {
    "as it is": ({}, []),
    "weighted mean of the forecasts": ({}, [(forecasts, "_median", mean)]),
    "the last rate as only forecaster": ({}, [(Ensemble, "weights", only("last"))]),
    "the maximum of 5 min as only forecaster": ({}, [(Ensemble, "weights", only("max-5m"))]),
    "no higher price before the multiple of the rate": ({"most": 1.0}, []),
    "up to five times the price of late items": ({"most": 5.0}, []),
    "no multiple of the present rate": ({"margin": 1.0}, []),
    "twice the present rate at most": ({"margin": 2.0}, []),
    "late items count while hosts are idle": ({}, [(decisions, "IDLE", math.inf)]),
    "hosts that are idle now count as idle before": (
        {},
        [(decisions, "longest_s", lambda snapshot: -math.inf)],
    ),
    "a turn counts for one usual turn at most": ({}, [(decisions, "MOST_TURNS", 1.0)]),
    "a turn counts for all of its items": ({}, [(decisions, "MOST_TURNS", math.inf)]),
    "40 % of the items are late while a host is missing": ({}, part_late(0.4)),
    "all items are late while a host is missing": ({}, part_late(1.0)),
    "forecasts up to 16 times all values": ({}, [(forecasts, "HEADROOM", 16.0)]),
    "released as soon as not needed": ({}, [(decisions, "_remembered", no_memory)]),
    "no spare hosts for a backlog": (
        {},
        [(decisions.Tide, "_spare", lambda *given: 0.0)],
    ),
}


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("folder", type=Path)
    reader.add_argument("--only", default="", help="part of the names of traces")
    reader.add_argument("--world", choices=tuple(WORLDS), default="queues")
    given = reader.parse_args()
    found = [(n, w) for n, w in workloads(given.folder, 1.0, given.only) if n in TRACES]
    scenarios = [(name, WORLDS[given.world](workload)) for name, workload in found]
    assert all(name.startswith(CHOSEN_ON) for name, _ in scenarios)
    bounds = {name: bound_of(scenario).cost_usd for name, scenario in scenarios}
    print("| variant | cost over the bound | in time, mean | " + " | ".join(bounds) + " |")
    print("|---|---:|---:|" + "---|" * len(bounds), flush=True)
    for variant, (parameters, usual) in {**VARIANTS, FORESEEN: ({}, [])}.items():
        ratios, shares, cells = [], [], []
        for name, scenario in scenarios:
            changes = foreseen(scenario.workload) if variant == FORESEEN else usual
            _, stack = stack_for(
                "tide", scenario, StackOptions(parameters={**PROMISED, **parameters})
            )
            patches = [patch.object(*change) for change in changes]
            for one in patches:
                one.start()
            report = run_policy(scenario, stack)
            for one in patches:
                one.stop()
            ratios.append(report.total_cost_usd / bounds[name])
            shares.append(report.items_out * (report.slo_compliance or 0.0) / report.items_in)
            cells.append(f"{ratios[-1]:.2f}, {shares[-1]:.1%}")
        whole = math.exp(statistics.fmean(map(math.log, ratios)))
        row = f"| {variant} | {whole:.2f} | {statistics.fmean(shares):.1%} | "
        print(row + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
