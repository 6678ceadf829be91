"""Journals to look at, made by the simulator: the same in every run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.report.queries import write_many
from tidegate.codec import to_json
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.loop.journal import Journal, Turn
from tidegate.loop.stack import wrapped
from tidegate.model.topology import Edge, Operator, Source, Topology
from tidegate.policies import create
from tidegate.policies.base import Policy
from tidegate.simulation.run import run
from tidegate.simulation.scenario import Scenario
from tidegate.testing import steady_snapshot
from tidegate.workloads import ExchangeDay, Scaled, Workload

SPEED = 12.0
TOPOLOGY = Topology(
    (
        Operator("parse", service_time_s=0.02),
        Operator("enrich", service_time_s=0.05),
        Operator("score", service_time_s=0.08),
    ),
    (Source("clicks"),),
    (Edge("clicks", "parse"), Edge("parse", "enrich"), Edge("enrich", "score", ratio=0.4)),
)


def _day(source: str) -> Workload:
    day = ExchangeDay(seed=1, mean_per_s=40, source=source)
    return Scaled(day, rate_factor=1 / SPEED, speed=SPEED)


def _write(path: Path, scenario: Scenario, policy: Policy) -> Path:
    with Journal(path) as journal:
        run(
            scenario.world(policy.style),
            policy,
            duration_s=scenario.duration_s,
            interval_s=scenario.interval_s,
            journal=journal,
        )
    return path


def make_journals(folder: Path) -> dict[str, Path]:
    """`drs` and `btu` on three operators, `sarsa`, which learns, and four queries in overload.

    The simulated ones have some 170 turns each.
    """
    chain = ScenarioOptions(1.0, topology=TOPOLOGY, interval_s=15, instances_per_host=2).build(
        _day("clicks")
    )
    single = ScenarioOptions(2.0, interval_s=15).build(_day("input"))
    guards = {"stabilisation": {"down_s": 60}, "bounds": {"max_hosts": 8}}
    return {
        "drs": _write(folder / "drs.jsonl", chain, wrapped(create("drs", t_max_s=0.4), guards)),
        "btu": _write(folder / "btu.jsonl", chain, create("btu")),
        "sarsa": _write(folder / "sarsa.jsonl", single, create("sarsa")),
        "queries": write_many(folder / "queries.jsonl", until=28),
    }


def repeated(turns: list[Turn], count: int, interval_s: float = 1.0) -> Iterator[Turn]:
    """So many turns, going through those given again and again while time goes on."""
    for n in range(count):
        turn = turns[n % len(turns)]
        if turn.snapshot is not None:
            later = replace(turn.snapshot, time_s=1_000_000 + n * interval_s)
            yield replace(turn, number=n + 1, snapshot=later)


def line(number: int, hosts: int = 1) -> bytes:
    turn = Turn(number, "static", steady_snapshot(hosts, time_s=float(number)))
    return to_json(turn).encode() + b"\n"


TOKEN = "a-token-of-some-length"
