"""Summary figures of short fluid runs, compared with tests/golden/fluid.json.

A faster simulation must not change its results. Counts must be equal, and other figures to nine
digits, because C libraries do not agree on the last bit of a logarithm.

To accept new results: ``python -m tests.simulation.test_golden_fluid``; give the reason in the
commit.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.lab.backtest import backtest
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.workloads import ExchangeDay

GOLDEN = Path(__file__).parents[1] / "golden" / "fluid.json"
POLICIES = ("static", "drs", "ds2", "btu", "lag", "local-threshold", "sarsa")
FIGURES = (
    "items_in", "items_out", "latency_mean_s", "latency_p95_s", "slo_compliance", "paid_units",
    "penalty_cost_usd", "rescales", "migrations", "refused", "host_seconds", "peak_hosts",
    "host_load_mean",
)  # fmt: skip
CHAIN = Topology(
    operators=(
        Operator("parse", Resources(1, 256, 10), service_time_s=0.02, service_scv=0.5, slo_s=2.0),
        Operator("match", Resources(1, 128), service_time_s=0.04, service_scv=0.0),
        Operator("report", Resources(0.5), service_time_s=0.01, slo_s=1.0),
    ),
    sources=(Source("ticks"),),
    edges=(
        Edge("ticks", "parse"),
        Edge("parse", "match", 0.5),
        Edge("match", "report", 1.5),
        Edge("parse", "report", 0.3),
    ),
)


def fluid_rows() -> dict[str, dict[str, float | None]]:
    """Figures by policy and topology."""
    day = ExchangeDay(mean_per_s=100.0, seed=3)
    worlds = {
        "one operator": ScenarioOptions(10.0, interval_s=300.0, instances_per_host=2).build(day),
        "three operators": ScenarioOptions(
            10.0, topology=CHAIN, interval_s=300.0, instances_per_host=4
        ).build(day),
    }
    rows = {}
    for world, scenario in worlds.items():
        for result in backtest(scenario, POLICIES, fluid=True):
            rows[f"{result.policy}, {world}"] = {
                figure: getattr(result.report, figure) for figure in FIGURES
            }
    return dict(sorted(rows.items()))


def test_fluid_runs_come_out_as_before() -> None:
    expected = json.loads(GOLDEN.read_text())
    found = fluid_rows()
    assert found.keys() == expected.keys()
    for name, figures in found.items():
        assert figures == pytest.approx(expected[name], rel=1e-9), name


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(fluid_rows(), indent=1) + "\n")
