"""One bill: everything that states the cost of a run agrees to the cent, the simulator included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tidegate.dashboard.view import RowBuilder
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.loop.backend import Outcome
from tidegate.loop.billing import Bill
from tidegate.loop.controller import Controller
from tidegate.loop.journal import Journal, Turn, read_journal
from tidegate.loop.stack import wrapped
from tidegate.model import Deployment, HostOffer, Instance, LeaseEnd, Plan, Snapshot
from tidegate.model.steps import Step
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.policies import create
from tidegate.policies.base import Policy
from tidegate.report.metrics import Metrics
from tidegate.report.summary import summarise
from tidegate.simulation import BatchSettings, QueryCloud, QueryCost, QuerySettings
from tidegate.simulation.calibrate import BatchWorld, batch_scenario
from tidegate.spark.autoscaler.autoscaler import DryRunAccount
from tidegate.testing import steady_snapshot
from tidegate.workloads import RateTrace

OLD = Path(__file__).parents[1] / "fixtures" / "journals-0.1.0"
CENT = 0.005

# --- what is billed -------------------------------------------------------------------------------


def seen(hosts: int, time_s: float, **changes: Any) -> Snapshot:
    """Hosts leased at 0 for $1 per 600 s, seen at a moment; a turn lasts 60 s."""
    snapshot = steady_snapshot(hosts, time_s=time_s)
    leased = (replace(host, lease=snapshot.offer.lease(0.0)) for host in snapshot.hosts)
    return replace(snapshot, hosts=tuple(leased), interval_s=60.0, **changes)


def turn(snapshot: Snapshot | None, *steps: Step, refused: tuple[str, ...] = ()) -> Turn:
    return Turn(1, "static", snapshot, Plan(Deployment(())), Outcome(steps, refused))


def billed(*turns: Turn) -> Bill:
    bill = Bill()
    for each in turns:
        bill.add(each)
    return bill


def test_a_started_unit_is_billed_in_full_and_the_interval_counts() -> None:
    assert billed(turn(seen(2, 0))).cost_usd() == 2
    assert billed(turn(seen(2, 0)), turn(seen(2, 540))).cost_usd() == 2, "ends with the unit"
    assert billed(turn(seen(2, 0)), turn(seen(2, 541))).cost_usd() == 4
    assert billed(turn(seen(2, 0)), turn(seen(2, 541))).cost_usd(until_s=599) == 2
    assert billed(turn(seen(2, 0)), turn(seen(2, 541))).host_seconds() == 2 * 601


def test_a_host_that_starts_or_drains_is_billed() -> None:
    now = seen(2, 0)
    starting, draining = now.hosts
    hosts = (replace(starting, status="starting"), replace(draining, status="draining"))
    assert billed(turn(replace(now, hosts=hosts))).cost_usd() == 2


def test_a_lease_is_billed_from_its_turn_unless_nobody_ever_sees_the_host() -> None:
    leasing = turn(seen(1, 540), Step("lease", "host-2"))
    assert billed(turn(seen(1, 0)), leasing).cost_usd() == 1 + 1
    assert billed(turn(seen(1, 0)), leasing, turn(seen(1, 590))).cost_usd() == 2, "host-1 alone"


def test_a_release_ends_the_lease_and_a_refused_one_does_not() -> None:
    begun, release = turn(seen(2, 0)), Step("release", "host-2")
    assert billed(begun, turn(seen(2, 590), release)).cost_usd() == 2 + 1
    assert billed(begun, turn(seen(2, 590), release), turn(seen(1, 650))).cost_usd() == 2 + 1
    still = turn(seen(2, 650))
    assert billed(begun, turn(seen(2, 590), release), still).cost_usd() == 2 + 2, "it drains"
    refused = turn(seen(2, 590), refused=("release host-2: something still runs there",))
    assert billed(begun, refused).cost_usd() == 2 + 2


def test_the_end_that_a_world_reports_counts() -> None:
    begun, release = turn(seen(2, 0)), Step("release", "host-2")
    later = turn(seen(1, 650, ended=(LeaseEnd("host-2", 601.0),)))
    assert billed(begun, turn(seen(2, 590), release), later).cost_usd() == 2 + 2
    lost = turn(seen(1, 650))
    assert billed(begun, turn(seen(2, 590)), lost).cost_usd() == 2 + 2, "gone when it is not seen"


def test_a_lease_counts_from_when_it_began_once_the_host_is_seen() -> None:
    """A lease is requested at 540 and begins at 560, when the host is ready."""
    leasing = turn(seen(1, 540), Step("lease", "host-2"))
    now = seen(2, 600)
    late = replace(now.hosts[1], lease=now.offer.lease(560.0))
    bill = billed(leasing, turn(replace(now, hosts=(now.hosts[0], late))))
    assert bill.host_seconds() == (660 - 540) + (660 - 560)
    unknown = replace(now.hosts[1], lease=None)
    bill = billed(leasing, turn(replace(now, hosts=(now.hosts[0], unknown))))
    assert bill.host_seconds() == 2 * (660 - 540), "from the request, where no lease is known"


def test_time_before_the_first_turn_is_not_billed() -> None:
    """Hosts leased at 0 and seen at 100; the one that ended before costs the unit it began."""
    gone = turn(seen(1, 700, ended=(LeaseEnd("host-2", 40.0),)))
    bill = billed(turn(seen(2, 100)), gone)
    assert bill.host_seconds() == 760 - 100
    assert bill.cost_usd() == 2 + 1
    ended = turn(seen(1, 700, ended=(LeaseEnd("host-2", 400.0),)))
    assert billed(turn(seen(2, 100)), ended).host_seconds() == (760 - 100) + (400 - 100)


def test_no_time_passes_without_an_interval() -> None:
    bill = billed(turn(replace(seen(2, 30), interval_s=None)))
    assert bill.host_seconds() == 0
    assert bill.host_seconds(until_s=0.0) == 0, "never less than none"


def test_hosts_that_nobody_leased_are_billed_by_their_number() -> None:
    bill = Bill()
    bill.resize(seen(0, 0), 2)
    bill.resize(seen(0, 300), 2)
    assert (bill.cost_usd(), bill.host_seconds()) == (2, 2 * 360)
    bill.resize(seen(0, 400), 3)
    bill.resize(seen(0, 500), 1)
    assert bill.host_seconds() == (500 + 100) + 560, "the newest end first"
    assert bill.cost_usd() == 3
    bill.resize(seen(0, 590), 1)
    assert bill.cost_usd() == 4, "the last one begins another unit"


def test_a_turn_that_failed_changes_nothing() -> None:
    assert billed(turn(seen(2, 0)), turn(None)).cost_usd() == 2


# --- agreement ------------------------------------------------------------------------------------

FROM_S, RATES = np.array([0.0, 200.0, 400.0]), np.array([20.0, 90.0, 20.0])
TIDE = RateTrace(FROM_S, RATES, seed=1)
GUARDS = {"stabilisation": {"down_s": 60}, "bounds": {"max_hosts": 8}}
QUERIES = tuple(f"q{n}" for n in range(4))


def by_item(policy: Policy, failures_s: tuple[float, ...] = ()) -> Any:
    scenario = ScenarioOptions(
        slo_s=2.0,
        rate_per_instance=10,
        instances_per_host=2,
        startup_s=20,
        interval_s=10,
        max_hosts=8,
        service_scv=1.0,
    ).build(TIDE)
    settings = replace(scenario.settings, host_failures_s=failures_s)
    return replace(scenario, settings=settings).world(policy.style)


def by_batch(policy: Policy) -> Any:
    query = Operator("q", Resources(1), service_time_s=0.02, service_scv=0.5, max_instances=24)
    world = BatchWorld(
        Topology((query,), (Source("input"),), (Edge("input", "q"),)),
        HostOffer(Resources(2), 60, 0.01, startup_s=25, max_hosts=12),
        BatchSettings(overhead_s=0.6, overhead_scv=0.04),
        interval_s=10.0,
    )
    tide = RateTrace(FROM_S, 4 * RATES, seed=1)
    return batch_scenario(world, tide, 4.0).world(policy.style)


def fleet(policy: Policy) -> Any:
    rows = np.concatenate([np.full(60, 100.0), np.full(60, 700.0), np.full(480, 60.0)])
    came_s = np.arange(600, dtype=float)
    return QueryCloud(
        Topology(tuple(Operator(name, Resources(0.25, 64), max_instances=1) for name in QUERIES)),
        HostOffer(Resources(1.0, 512), 60, 0.02, max_hosts=3),
        dict.fromkeys(QUERIES, (came_s, rows)),
        {name: QueryCost(0.05, 0.0005) for name in QUERIES},
        initial=Deployment(("host-1",), tuple(Instance(f"{n}-1", n, "host-1") for n in QUERIES)),
        settings=QuerySettings(interval_s=10),
        seed=3,
    )


def simulators_usd(world: Any) -> float:
    """What the simulator itself bills until now."""
    hosts = world._hosts
    units = hosts.paid_units + sum(hosts.units(h, world.time_s) for h in hosts.hosts.values())
    usd = units * hosts.offer.price_per_unit_usd
    if hasattr(world, "report"):
        assert world.report().resource_cost_usd == usd
    return float(usd)


def metrics_usd(turns: list[Turn]) -> float:
    metrics = Metrics()
    for each in turns:
        metrics.observe(each)
    families = text_string_to_metric_families(metrics.text().decode())
    return next(s.value for f in families for s in f.samples if s.name == "tidegate_cost_usd_total")


def every_cost_usd(turns: list[Turn]) -> dict[str, float]:
    """The cost of a journal by everything that states it."""
    builder, dry = RowBuilder(), DryRunAccount()
    rows = [builder.add(each) for each in turns]
    for each in turns:
        dry.add(each)
    as_it_was = dry.report().splitlines()[1]
    found = {
        "summary": summarise(turns).cost_usd,
        "dashboard": rows[-1].cost_usd or 0.0,
        "metrics": metrics_usd(turns),
    }
    if as_it_was.endswith(" $"):
        found["dry run"] = float(as_it_was.split()[-2])
    return found


WORLDS: dict[str, tuple[Policy, Callable[[Policy], Any]]] = {
    "items-drs": (wrapped(create("drs", t_max_s=1.0), GUARDS), by_item),
    "items-btu": (create("btu"), by_item),
    "items-sarsa": (create("sarsa"), by_item),
    "items-failures": (create("drs", t_max_s=1.0), lambda p: by_item(p, (101.0, 303.3, 444.4))),
    "batches": (wrapped(create("drs", t_max_s=3.6), GUARDS), by_batch),
    "fleet": (create("local-threshold"), fleet),
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_simulated_journal_costs_what_the_simulator_says(name: str, tmp_path: Path) -> None:
    policy, made = WORLDS[name]
    world, path, bill = made(policy), tmp_path / "journal.jsonl", Bill()
    with Journal(path) as journal:
        loop = Controller(world, policy, journal)
        for number in range(60):
            before = simulators_usd(world)
            done = loop.step()
            assert done.error is None and done.snapshot is not None
            bill.add(replace(done, outcome=None))
            at_s = done.snapshot.time_s
            assert bill.cost_usd(at_s) == pytest.approx(before), f"turn {number}"
            bill.add(done)
            world.advance(10)
    turns = list(read_journal(path))
    assert sum(s.kind == "release" for t in turns if t.outcome for s in t.outcome.steps) > 0
    for what, usd in every_cost_usd(turns).items():
        assert usd == pytest.approx(simulators_usd(world), abs=CENT), what


@pytest.mark.parametrize("path", sorted(OLD.glob("*.jsonl")), ids=lambda path: path.stem)
def test_all_agree_on_journals_of_version_0_1_0(path: Path) -> None:
    found = every_cost_usd(list(read_journal(path)))
    assert len(found) >= 3
    assert max(found.values()) - min(found.values()) < 1e-4, found
