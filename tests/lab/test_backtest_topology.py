"""Backtests with a topology that the trace drives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.cli.helpers import tidegate
from tidegate.errors import TopologyError
from tidegate.lab.backtest import backtest, bound_caveat, bound_of, suited_settings
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology, sharded_topology
from tidegate.policies import available
from tidegate.simulation.scenario import Scenario
from tidegate.workloads import RateTrace

PARSE = Operator("parse", Resources(0.5, 128), 0.02, 0.0)
ENRICH = Operator("enrich", Resources(1, 256), 0.05, 0.0)
STORE = Operator("store", Resources(1, 256), 0.01, 0.0, slo_s=0.5)
SHOP = Topology(
    (PARSE, ENRICH, STORE),
    (Source("clicks"),),
    (Edge("clicks", "parse"), Edge("parse", "enrich", 2), Edge("enrich", "store")),
)
FILE = """
operators:
  - {name: parse, service_rate_per_s: 50, service_scv: 0, demand: {cpu_cores: 0.5, memory_mb: 128}}
  - {name: enrich, service_time_s: 0.05, service_scv: 0}
  - {name: store, service_time_s: 0.01, service_scv: 0}
sources: [{name: clicks}]
edges:
  - {origin: clicks, target: parse}
  - {origin: parse, target: enrich, ratio: 2}
  - {origin: enrich, target: store}
"""


def tide(seed: int = 3) -> RateTrace:
    rates = np.array([20.0, 30, 50, 60, 60, 50, 40, 20, 10, 10])
    return RateTrace(np.arange(0.0, 600.0, 60.0), rates, seed=seed, source="clicks")


@pytest.fixture(scope="module")
def shop() -> Scenario:
    return ScenarioOptions(2.0, topology=SHOP).build(tide())


def test_a_host_has_room_for_each_operator_and_carries_what_its_busiest_can(shop: Scenario) -> None:
    assert shop.offer.capacity == Resources(2.5, 5120, 1000)
    assert shop.rounds == 1
    assert shop.visits == {"parse": 1.0, "enrich": 2.0, "store": 2.0}
    assert shop.bottleneck_s == pytest.approx(0.1)
    assert shop.initial_hosts == 3  # 20 a second, 7 for each host
    assert suited_settings("static", shop) == {"hosts": 9}
    assert suited_settings("lag", shop)["threshold"] == pytest.approx(10.0)
    wide = ScenarioOptions(2.0, topology=SHOP, instances_per_host=3).build(tide())
    assert wide.rounds == 3 and wide.initial_hosts == 1


def test_operators_share_the_slo_unless_they_have_their_own(shop: Scenario) -> None:
    slos = {o.name: o.slo_s for o in shop.topology.operators}
    assert slos == pytest.approx(
        {"parse": 2 * 0.02 / 0.14, "enrich": 2 * 0.05 / 0.14, "store": 0.5}
    )


def test_shards_are_whole_copies_that_carry_the_same_rates() -> None:
    shards = sharded_topology(SHOP, 4)
    rates = shards.arrival_rates({source.name: 5.0 for source in shards.sources})
    for name, visits in (("parse", 1.0), ("enrich", 2.0), ("store", 2.0)):
        assert [rates[f"{name}.{n}"] for n in (1, 2, 3, 4)] == [5.0 * visits] * 4
    assert all(operator.max_instances == 1 for operator in shards.operators)


def test_no_more_shards_than_an_operator_may_have_instances() -> None:
    one = replace(SHOP, operators=(PARSE, ENRICH, replace(STORE, max_instances=2)))
    assert ScenarioOptions(2.0, topology=one).build(tide()).shards == 2


def test_every_policy_runs_and_none_undercuts_the_bound(shop: Scenario) -> None:
    assert bound_caveat(shop) == ""
    bound = bound_of(shop, time_limit_s=2)
    assert bound.cost_usd > 0
    results = backtest(shop, available(), bound=bound)
    assert len({r.report.items_in for r in results}) == 1
    for result in results:
        assert result.regret is not None and result.regret >= 0, result.policy
        assert result.report.items_out > 0


def test_the_bound_counts_the_items_that_came_and_not_those_expected(shop: Scenario) -> None:
    free = replace(shop.offer, price_per_unit_usd=0.0, max_hosts=1, startup_s=0.0)
    crowded = replace(shop, offer=free, initial_hosts=1)
    counts = []
    for seed in (3, 4):
        one = replace(crowded, workload=tide(seed))
        counts.append((bound_of(one).cost_usd, len(one.workload.arrivals(0.0, 600.0)["clicks"])))
    assert counts[0][1] != counts[1][1]
    assert (counts[0][0] > counts[1][0]) == (counts[0][1] > counts[1][1])
    # The flow gets the same items, or their expected number, which is the same with any seed.
    assert bound_of(crowded, fluid=True) == bound_of(crowded)
    settings = replace(crowded.settings, fluid_inflow="expected")
    evenly = [replace(crowded, workload=tide(seed), settings=settings) for seed in (3, 4)]
    assert bound_of(evenly[0], fluid=True) == bound_of(evenly[1], fluid=True)


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        (replace(SHOP, operators=(PARSE, replace(ENRICH, service_scv=1.0), STORE)), "(enrich)"),
        (replace(SHOP, edges=(*SHOP.edges[:2], Edge("enrich", "store", 0.3))), "enrich → store"),
    ],
)
def test_lots_make_the_bound_an_estimate_and_it_says_so(topology: Topology, words: str) -> None:
    caveat = bound_caveat(ScenarioOptions(2.0, topology=topology).build(tide()))
    assert caveat.startswith("An estimate, not a strict bound") and words in caveat


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        (replace(SHOP, sources=(Source("clicks"), Source("more"))), "sources is 'clicks, more'"),
        (replace(SHOP, sources=(Source("other"),), edges=()), "it must be one, clicks"),
        (replace(SHOP, edges=SHOP.edges[1:]), "source clicks: edges is 0"),
        (
            replace(SHOP, operators=(PARSE, replace(ENRICH, service_time_s=None), STORE)),
            "operator enrich: service_time_s is None; it must be given: write the seconds",
        ),
        (
            replace(SHOP, operators=(replace(PARSE, demand=Resources(0)), ENRICH, STORE)),
            "operator parse: cpu_cores is 0",
        ),
        (replace(SHOP, edges=(*SHOP.edges, Edge("store", "parse", 0.5))), "gain of the loop"),
    ],
)
def test_what_a_trace_cannot_drive_is_refused(topology: Topology, words: str) -> None:
    with pytest.raises(TopologyError) as caught:
        ScenarioOptions(2.0, topology=topology).build(tide())
    assert words in str(caught.value)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    trace, topology = tmp_path / "tide.csv", tmp_path / "shop.yaml"
    trace.write_text("t_s,rate\n0,20\n60,50\n120,60\n180,10\n")
    topology.write_text(FILE)
    return trace, topology


def test_the_command_runs_a_topology_of_ones_own(files: tuple[Path, Path], tmp_path: Path) -> None:
    trace, topology = files
    words = ("--policies", "ds2,sarsa", "--bound-time", "2s", "--topology", topology)
    answer = json.loads(tidegate("backtest", trace, *words, "--json").stdout)
    assert answer["bound"]["strict"] is True and answer["bound"]["note"] == ""
    assert {result["policy"] for result in answer["results"]} == {"ds2", "sarsa"}
    topology.write_text(FILE.replace("target: store", "target: store, ratio: 0.5"))
    done = tidegate("backtest", trace, *words, "--report", tmp_path / "page.html")
    shown = " ".join(done.stdout.split())
    assert "3 operators; a host of 2.5 cores runs 1 instance of each, which process 10/s" in shown
    assert "An estimate, not a strict bound" in shown
    assert "An estimate, not a strict bound" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("old", "new", "options", "words"),
    [
        ("", "", ("--rate-per-instance", "5"), "it must be left out with --topology"),
        ("", "", ("--service-scv", "1"), "it must be left out with --topology"),
        ("", "", ("--instances-per-host", "0"), "--instances-per-host is 0"),
        ("[{name: clicks}]", "[{name: clicks}, {name: b}]", (), "sources is 'clicks, b'"),
        ("[{name: clicks}]", "[]", (), "edge origin is 'clicks'"),
        ("service_time_s: 0.05", "slo_s: 1", (), "operator enrich: service_time_s is None"),
        ("service_time_s: 0.05", "service_time_s: -1", (), "it must be a number above 0"),
        ("operators:", "operator:", (), "operators is None"),
    ],
)
def test_a_bad_topology_or_option_is_one_sentence(
    files: tuple[Path, Path], old: str, new: str, options: tuple[str, ...], words: str
) -> None:
    trace, topology = files
    topology.write_text(FILE.replace(old, new))
    done = tidegate("backtest", trace, "--topology", topology, *options)
    assert done.returncode == 2
    assert words in done.stderr and done.stderr.count("\n") == 1
