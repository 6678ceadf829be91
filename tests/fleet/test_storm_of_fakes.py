"""The storm in small: hundreds of faults on fake hosts in a second. `make storm` has real ones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fleet.test_manager import Fleet
from tidegate.fleet.manager import FleetManager
from tidegate.fleet.recovery import recover
from tidegate.fleet.world import FleetWorld


def restart(fleet: Fleet) -> None:
    """The manager dies; another takes over the hosts, which live on."""
    queries = [entry.query for entry in fleet.world.queries.values()]
    fleet.world.log.close()
    fleet.world = FleetWorld(
        fleet.provider, fleet.folder, clock=fleet.clock, spawn=lambda work: work(), moves_at_once=9
    )
    fleet.world.add(queries)
    recover(fleet.world)
    fleet.manager = FleetManager(fleet.world, fleet.policy)


@pytest.mark.parametrize("policy", ["local-threshold", "global-threshold", "sarsa"])
@pytest.mark.parametrize("seed", range(3))
def test_after_any_faults_each_query_runs_once(tmp_path: Path, seed: int, policy: str) -> None:
    lots = random.Random(seed)
    loads = {f"q{n}": lots.uniform(0.1, 0.6) for n in range(8)}
    fleet = Fleet(tmp_path, loads, policy, max_hosts=5)
    fleet.turns(3)
    for _ in range(25):
        hosts = fleet.provider.hosts
        fault = lots.choice(["load", "kill", "hang", "move", "drain", "manager", "fail", "none"])
        host = lots.choice(list(hosts)) if hosts else None
        query = lots.choice(list(loads))
        if fault == "load":
            fleet.provider.loads[query] = lots.uniform(0.05, 1.2)
        elif fault == "kill" and host:
            hosts[host].dead = True
        elif fault == "hang" and host:
            hosts[host].hung = True
        elif fault == "move" and host:
            fleet.manager.command({"do": "move", "query": query, "host": host})
        elif fault == "drain" and host:
            fleet.manager.command({"do": "drain", "host": host})
        elif fault == "manager":
            restart(fleet)
        elif fault == "fail" and (where := fleet.provider.copies(query)):
            hosts[where[0]].fail(query, "by lot")
        fleet.turns(lots.randint(1, 4))
    for name in loads:
        fleet.manager.command({"do": "unpark", "query": name})
    fleet.turns(12)
    assert all(fleet.homes.values()), fleet.manager.command({"do": "status"})
