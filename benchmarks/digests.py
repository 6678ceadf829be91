"""Digests of many runs, to show that a change for speed changes no result.

    python benchmarks/digests.py > before       # two minutes
    python benchmarks/digests.py | diff before -

Each policy with the default guards runs on two traces and in a chain of three operators, item by
item and as a fluid. A line has a digest of the report, and one of the journal of a shorter run,
which has every snapshot, plan and memory. Without one, a snapshot is computed only as far as a
policy asks.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path

from speed import many_days

from tidegate.codec import to_json
from tidegate.lab.backtest import run_policy, stack_for
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.policies import available
from tidegate.simulation.scenario import Scenario
from tidegate.workloads import ExchangeDay

HOURS, JOURNAL_HOURS = 3.0, 0.5


def scenarios(hours: float) -> dict[str, tuple[Scenario, bool]]:
    """Scenarios by name, and whether they run as a fluid."""
    rates = many_days(hours / 24)
    day = ScenarioOptions(slo_s=2.0).build(ExchangeDay(seed=1, mean_per_s=10))
    chain = Topology(
        (
            Operator("read", Resources(0.5, 256), 0.02, 0.5),
            Operator("match", Resources(1.0, 512), 0.06, 1.0),
            Operator("write", Resources(0.25, 128), 0.01),
        ),
        (Source("input"),),
        (Edge("input", "read"), Edge("read", "match", 1.5), Edge("match", "write", 0.5)),
    )
    options = ScenarioOptions(slo_s=2.0, topology=chain, billing_unit_s=3600.0, startup_s=120.0)
    three = options.build(many_days(hours / 24).workload)
    worlds = {"rates": rates, "day": _cut(day, hours), "chain": three}
    return {
        f"{name} {'fluid' if fluid else 'items'}": (scenario, fluid)
        for name, scenario in worlds.items()
        for fluid in (True, False)
    }


def _cut(scenario: Scenario, hours: float) -> Scenario:
    return replace(scenario, duration_s=min(scenario.duration_s, hours * 3600))


def digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    reader.add_argument("--policies", default=",".join(available()), help="separated by commas")
    given = reader.parse_args()
    long, short = scenarios(HOURS), scenarios(JOURNAL_HOURS)
    for name in given.policies.split(","):
        for world, (scenario, fluid) in long.items():
            report = run_policy(scenario, stack_for(name, scenario)[1], fluid=fluid)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "journal.jsonl"
                brief = short[world][0]
                run_policy(brief, stack_for(name, brief)[1], fluid=fluid, journal=path)
                turns = path.read_bytes()
            found = f"{digest(to_json(report).encode())} {digest(turns)}"
            print(f"{name:<26}{world:<14}{found}", flush=True)


if __name__ == "__main__":
    main()
