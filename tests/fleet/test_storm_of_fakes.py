"""Hundreds of random faults on fake hosts in a second. `make storm` uses real hosts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tidegate.testing import FakeFleet


@pytest.mark.parametrize(
    "policy, killable",
    [
        ("local-threshold", True),
        ("global-threshold", True),
        ("sarsa", True),
        ("local-threshold", False),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_after_any_faults_each_query_runs_once(
    tmp_path: Path, seed: int, policy: str, killable: bool
) -> None:
    rng = random.Random(seed)
    loads = {f"q{n}": rng.uniform(0.1, 0.6) for n in range(8)}
    fleet = FakeFleet(tmp_path, loads, policy, max_hosts=5)
    fleet.provider.killable = killable
    fleet.turns(3)
    for _ in range(25):
        hosts = fleet.provider.hosts
        for lost in fleet.provider.abandoned.values():
            if rng.random() < 0.3:  # it continues, with the copies that it had
                lost.hung = False
        fault = rng.choice(["load", "kill", "hang", "move", "drain", "manager", "fail", "none"])
        host = rng.choice(list(hosts)) if hosts else None
        query = rng.choice(list(loads))
        if fault == "load":
            fleet.provider.loads[query] = rng.uniform(0.05, 1.2)
        elif fault == "kill" and host:
            hosts[host].dead = True
        elif fault == "hang" and host:
            hosts[host].hung = True
        elif fault == "move" and host:
            fleet.manager.command({"do": "move", "query": query, "host": host})
        elif fault == "drain" and host:
            fleet.manager.command({"do": "drain", "host": host})
        elif fault == "manager":
            fleet.restart()
        elif fault == "fail" and (where := fleet.provider.copies(query)):
            hosts[where[0]].fail(query, "at random")
        fleet.turns(rng.randint(1, 4))
    for name in loads:
        fleet.manager.command({"do": "unpark", "query": name})
    fleet.turns(12)
    assert all(fleet.homes.values()), fleet.manager.command({"do": "status"})
