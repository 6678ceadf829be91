"""FUGU's experiments: the world, and that each verdict can come out either way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.cli.helpers import tidegate
from tidegate.lab.papers.claims import Answer
from tidegate.lab.papers.fugu import claims
from tidegate.lab.papers.fugu import experiment as fugu
from tidegate.lab.papers.fugu.causes import what_learning_adds
from tidegate.lab.papers.fugu.experiment import PAPER
from tidegate.lab.papers.fugu.runs import (
    CALM_SECTORS,
    CONFIGURATIONS,
    QUICK_MOVES,
    READINGS,
    VOLUMES,
    Case,
    FuguResults,
    Measures,
    _mean_latency,
    _measures,
    all_cases,
    causes,
    in_reading,
    of_volume,
    run_case,
)
from tidegate.lab.papers.fugu.world import (
    AXIS_PER_S,
    FILTERING,
    MEAN_DEMAND_HOSTS,
    SECTORS,
    TICKS_PER_S,
    Assumptions,
    FuguWorld,
    draw_queries,
)
from tidegate.lab.papers.statistics import half_width
from tidegate.model import Plan
from tidegate.workloads.papers import exchange_minutes

# --- the world ----------------------------------------------------------------------------------


def test_thirty_five_queries_load_the_cluster_as_intended() -> None:
    for seed in (1, 2, 3):
        queries = draw_queries(seed)
        assert len(queries) == len({query.name for query in queries}) == 35
        assert sum(sum(query.loads) for query in queries) == pytest.approx(MEAN_DEMAND_HOSTS)
        filters = sum(query.loads[0] for query in queries)
        assert filters == pytest.approx(FILTERING * MEAN_DEMAND_HOSTS)
        assert max(max(query.loads) for query in queries) < 0.8  # each fits a host by itself


def test_load_and_state_grow_with_sector_and_window() -> None:
    queries = sorted(draw_queries(1), key=lambda query: query.window_s)
    assert queries[0].aggregate_s < queries[-1].aggregate_s
    by_ticks = [q.state_mb / (SECTORS[q.sector] * q.window_s) for q in queries]
    assert np.ptp(by_ticks) < 1e-9
    same = {(q.aggregate_s / (1 + q.window_s / 155)) for q in queries}
    assert max(same) - min(same) < 1e-12


def test_worlds_are_the_same_for_a_seed_and_differ_between_seeds() -> None:
    one, again, other = FuguWorld(1), FuguWorld(1), FuguWorld(2)
    assert one.queries == again.queries != other.queries
    assert np.array_equal(one.day(1).ticks, again.day(1).ticks)
    assert not np.array_equal(one.day(1).minutes, one.day(2).minutes)
    assert not np.array_equal(one.day(1).minutes, other.day(1).minutes)


def test_a_day_has_the_rate_and_the_shares_that_it_should() -> None:
    day = FuguWorld(1).day(1)
    assert day.minutes.mean() == pytest.approx(TICKS_PER_S)
    assert day.shares.sum(axis=0) == pytest.approx(np.ones(day.shares.shape[1]))
    assert day.shares.mean(axis=1) == pytest.approx(np.array(list(SECTORS.values())), abs=0.02)
    assert day.ticks[:, -1].sum() == pytest.approx(TICKS_PER_S * day.duration_s, rel=0.01)
    steps = np.diff(day.ticks.sum(axis=0))  # two that follow each other nearly share their mean
    assert np.diff(steps).var() / 2 / steps.mean() == pytest.approx(9, rel=0.15)


def test_days_stay_within_the_axis_of_the_paper() -> None:
    peaks = [FuguWorld(seed).day(day).minutes.max() for seed in range(1, 6) for day in (1, 2, 3)]
    assert max(peaks) <= AXIS_PER_S
    beyond = [TICKS_PER_S * exchange_minutes(seed).max() for seed in range(101, 116)]
    assert max(beyond) > AXIS_PER_S  # so that the axis does exclude some


def test_the_first_placement_keeps_hosts_at_the_target() -> None:
    world = FuguWorld(1)
    day = world.day(1)
    start = world.initial(day, 0.6)
    factor = day.minutes[:10].mean() / TICKS_PER_S
    loads = dict.fromkeys(start.hosts, 0.0)
    by_name = {f"{query.name}-filter": query.loads[0] * factor for query in world.queries}
    by_name |= {query.name: query.loads[1] * factor for query in world.queries}
    for instance in start.instances:
        loads[instance.host] += by_name[instance.operator]
    assert len(start.instances) == 70
    assert max(loads.values()) <= 0.6 + 1e-9
    assert len(loads) >= sum(by_name.values()) / 0.6


def test_a_monitor_sees_no_more_cpu_than_there_is() -> None:
    cloud = FuguWorld(1).simulation(1, target=1.0)
    everything = replace(
        cloud.observe().requested,
        instances=tuple(replace(i, host="host-1") for i in cloud.observe().requested.instances),
    )
    cloud.apply(Plan(everything))
    for span_s in (30, 10, 10):  # until nothing of the beginning is left in the measurements
        cloud.advance(span_s)
        seen = cloud.observe()
    assert cloud.wanted["host-1"] > 1.5
    assert seen.host["host-1"].utilisation == pytest.approx(1.0)
    used = sum(i.load.cpu_cores for i in seen.instances if i.load and i.host == "host-1")
    assert used == pytest.approx(1.0, abs=0.02)


# --- measures -----------------------------------------------------------------------------------


def test_a_points_latency_is_the_mean_over_the_queries_that_delivered() -> None:
    before = {"a": (10, 1.0), "b": (0, 0.0), "c": (5, 5.0)}
    now = {"a": (20, 2.0), "b": (1, 0.5), "c": (5, 5.0)}
    assert _mean_latency(before, now) == pytest.approx((0.1 + 0.5) / 2)
    assert np.isnan(_mean_latency(now, now))


def test_latency_is_laid_to_overloads_moves_or_neither() -> None:
    latency = [1.0, 1.0, 1.0, 1.0, 1.0, 5.0]
    over = [True, False, False, False, False, False]
    moves = [0, 0, 2, 0, 0, 0]
    loads = [(0.1, 0.5, 0.9)] * 6
    found = _measures(loads, latency, [4] * 6, [1.2, 0.5], over, moves, 1)
    assert (found.from_overload, found.from_moves, found.from_rest) == (0.2, 0.3, 0.5)
    assert (found.load_min, found.load_mean, found.load_max) == pytest.approx((0.1, 0.5, 0.9))
    assert found.overload == 0.5
    assert (found.hosts, found.moves, found.decisions) == (4, 2, 1)
    assert found.latency_p50_s == 1.0


# --- verdicts -----------------------------------------------------------------------------------

PLAIN = Measures(0.4, 0.52, 0.65, 0.1, 0.2, 1.0, 0.4, 5.0, 50, 100, 0.02, 0.5, 0.3, 0.2)


def _as_published() -> dict[Case, Measures]:
    """A made-up world in which the paper is right in every respect."""
    runs = dict.fromkeys(all_cases(), PLAIN)
    for name in CONFIGURATIONS:
        worse = {"load_mean": 0.49, "load_max": 0.75, "latency_p90_s": 9.0, "decisions": 20.0}
        runs[Case("global", name)] = replace(PLAIN, **worse)
        runs[Case("sarsa", name)] = replace(PLAIN, load_mean=0.60, latency_p90_s=0.9, hosts=4.5)
    low, high = (
        {"load_mean": 0.45, "latency_p90_s": 0.95},
        {"load_mean": 0.54, "latency_p90_s": 1.2},
    )
    runs[Case("local", "lower 0.2")] = replace(PLAIN, **low)
    runs[Case("local", "lower 0.4")] = replace(PLAIN, **high)
    runs[Case("local", "upper 0.7")] = replace(PLAIN, latency_p90_s=1.5, moves=200)
    runs[Case("local", "upper 0.9")] = replace(PLAIN, latency_p90_s=1.5, overload=0.05)
    runs[Case("local", day=2)] = replace(PLAIN, latency_p90_s=1.9)
    runs[Case("sarsa", day=2)] = replace(PLAIN, latency_p90_s=1.0)
    runs[Case("sarsa", day=3)] = replace(PLAIN, latency_p90_s=1.0)
    for name, load, p90 in (("none", 0.55, 1.1), ("dur 160", 0.58, 0.92), ("imp 0.5", 0.57, 0.95)):
        case = Case("sarsa", learning=name)
        runs[case] = replace(PLAIN, load_mean=load, latency_p90_s=p90)
    return runs


def _results(changes: dict[Case, dict[str, float]]) -> FuguResults:
    runs = _as_published()
    for case, change in changes.items():
        runs[case] = replace(runs[case], **change)
    return FuguResults({case: (run, run) for case, run in runs.items()})


def _answers(results: FuguResults) -> dict[str, Answer]:
    return {claim.id: claim(results) for claim in PAPER.claims}


ALL = [f"F-{n:02}" for n in range(1, 19)]


def test_every_claim_is_answered_once_and_can_be_reproduced() -> None:
    verdicts = {claim: answer.verdict for claim, answer in _answers(_results({})).items()}
    assert verdicts == dict.fromkeys(ALL, "reproduced")
    assert list(verdicts) == ALL


LOCAL, GLOBAL, SARSA = Case("local"), Case("global"), Case("sarsa")


@pytest.mark.parametrize(
    ("claim", "changes", "verdict"),
    [
        ("F-02", {LOCAL: {"load_mean": 0.571}}, "not"),
        ("F-02", {LOCAL: {"load_mean": 0.469}}, "not"),
        ("F-03", {Case("local", "lower 0.2"): {"latency_p90_s": 1.01}}, "partly"),
        ("F-03", {Case("local", "lower 0.2"): {"latency_p90_s": 1.01, "load_mean": 0.53}}, "not"),
        ("F-04", {Case("local", "lower 0.4"): {"load_mean": 0.51}}, "partly"),
        ("F-04", {Case("local", "lower 0.4"): {"load_mean": 0.51, "latency_p90_s": 0.9}}, "not"),
        ("F-05", {Case("local", "upper 0.7"): {"moves": 99.0}}, "partly"),
        ("F-05", {Case("local", "upper 0.7"): {"moves": 99.0, "latency_p90_s": 0.99}}, "not"),
        ("F-06", {Case("local", "upper 0.9"): {"overload": 0.01}}, "partly"),
        ("F-06", {Case("local", "upper 0.9"): {"overload": 0.01, "latency_p90_s": 0.5}}, "not"),
        ("F-07", {GLOBAL: {"load_mean": 0.55}}, "partly"),
        ("F-07", {GLOBAL: {"load_mean": 0.43, "latency_p90_s": 0.99}}, "not"),
        ("F-07", {GLOBAL: {"load_mean": 0.43, "latency_p90_s": 400}}, "not"),
        ("F-08", {Case("global", "upper 0.7"): {"latency_p90_s": 1.4}}, "partly"),
        ("F-08", {Case("global", c): {"latency_p90_s": 0.1} for c in CONFIGURATIONS}, "not"),
        ("F-09", {Case("local", "upper 0.9"): {"load_max": 0.71}}, "partly"),
        ("F-09", {Case("global", "upper 0.7"): {"load_max": 0.69}}, "partly"),
        ("F-10", {Case("sarsa", "upper 0.7"): {"load_mean": 0.53}}, "partly"),
        ("F-10", {Case("sarsa", "upper 0.7"): {"load_mean": 0.50}}, "not"),
        ("F-11", {Case("sarsa", "upper 0.7"): {"load_mean": 0.56}}, "partly"),
        ("F-11", {Case("sarsa", "lower 0.2"): {"latency_p90_s": 0.96}}, "partly"),
        ("F-11", {Case("sarsa", c): {"load_mean": 0.5} for c in CONFIGURATIONS}, "not"),
        ("F-12", {SARSA: {"hosts": 4.81}}, "not"),
        ("F-12", {SARSA: {"hosts": 3.99}}, "not"),
        ("F-13", {Case("local", day=2): {"latency_p90_s": 1.39}}, "not"),
        ("F-14", {Case("sarsa", day=2): {"latency_p90_s": 3.0}}, "not"),
        ("F-15", {Case("sarsa", learning="none"): {"load_mean": 0.61}}, "partly"),
        (
            "F-15",
            {Case("sarsa", learning="none"): {"load_mean": 0.61, "latency_p90_s": 0.8}},
            "not",
        ),
        ("F-16", {Case("sarsa", learning="dur 160"): {"load_mean": 0.56}}, "partly"),
        (
            "F-16",
            {Case("sarsa", learning="dur 160"): {"load_mean": 0.61, "latency_p90_s": 0.8}},
            "not",
        ),
        ("F-17", {Case("sarsa", learning="imp 0.5"): {"latency_p90_s": 1.01}}, "partly"),
        ("F-18", {GLOBAL: {"decisions": 50.0}}, "not"),
    ],
)
def test_a_verdict_follows_its_criterion(
    claim: str, changes: dict[Case, dict[str, float]], verdict: str
) -> None:
    answer = _answers(_results(changes))[claim]
    assert answer.verdict == verdict
    assert answer.reason


def test_table_one_is_checked_to_four_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert claims.sarsa_update(_results({})).verdict == "reproduced"
    monkeypatch.setattr(claims, "table_one", lambda: 0.8220)
    assert claims.sarsa_update(_results({})).verdict == "not"


def test_the_interval_is_students() -> None:
    assert half_width([1.0]) is None
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.3027 / 3**0.5, rel=1e-4)


def test_a_difference_within_its_interval_is_called_so() -> None:
    runs = _as_published()
    noisy = {case: (run, run) for case, run in runs.items()}
    case = Case("local", "lower 0.2")
    noisy[case] = (
        replace(runs[case], latency_p90_s=0.5),
        replace(runs[case], latency_p90_s=1.3),
    )
    answer = claims.lower_threshold_down(FuguResults(noisy))
    assert answer.verdict == "not clear"
    assert "1 of 2 differences" in answer.reason


def test_reasons_name_what_was_unlearnt_only_if_it_was() -> None:
    assert "unlearnt" not in what_learning_adds(_results({}))
    assert "40 %" in what_learning_adds(_results({Case("sarsa", day=3): {"unlearnt": 0.4}}))


def test_reasons_use_the_runs_that_look_for_causes() -> None:
    runs = {case: (run, run) for case, run in _as_published().items()}
    runs |= {case: (replace(PLAIN, load_mean=0.77),) * 2 for case in causes()}
    runs[LOCAL] = (replace(PLAIN, load_mean=0.6, load_max=0.9),) * 2
    found = _answers(FuguResults(runs))
    assert "the default would have a mean load of 0.77" in found["F-02"].reason
    assert "never changed" in found["F-09"].reason
    assert "n = 1: +0.170" in found["F-12"].reason or found["F-12"].verdict == "reproduced"


def test_hosts_saved_by_not_scaling_out_are_called_so() -> None:
    answer = claims.hosts_saved(_results({SARSA: {"unlearnt": 0.3}}))
    assert answer.verdict == "reproduced"
    assert "For the wrong cause: 30 %" in answer.reason
    assert "wrong cause" not in claims.hosts_saved(_results({})).reason


def test_claims_are_judged_in_other_readings_by_the_same_rules() -> None:
    name, changes = next(iter(READINGS.items()))
    runs = {case: (run, run) for case, run in _as_published().items()}
    usual = [case for case in runs if case.day == 1 and case.learning in ("default", "none")]
    for case in usual:
        runs[in_reading(case, changes)] = (replace(PLAIN, load_max=0.65),) * 2
    results = FuguResults(runs)
    found = _answers(results)
    assert found["F-09"].verdict == "reproduced"
    assert f"{name} (2 seeds): 0 of 5; 5 of 5" in found["F-09"].elsewhere
    assert found["F-13"].elsewhere == ""  # other days are no part of that reading
    assert found["F-09"].elsewhere.endswith("(partly)")
    assert results.elsewhere(changes).runs[Case("local")] == runs[in_reading(LOCAL, changes)]
    table = fugu.tables(results)
    assert f"<th>{name}, 2 seeds</th>" in table and "n = 1," not in table.split("</thead>")[0]
    assert fugu.tables(_results({})).count("<h3>") == 1


def test_learning_does_not_wait_for_violations_in_a_row() -> None:
    changes = READINGS["n = 1"]
    assert in_reading(SARSA, changes) == SARSA
    assert in_reading(LOCAL, changes).violations == 1


def test_the_worst_day_is_shown_by_its_volume() -> None:
    runs = {case: (run, run) for case, run in _as_published().items()}
    for volume in VOLUMES:
        runs[of_volume(volume)] = (replace(PLAIN, latency_p90_s=volume),) * 2
    reason = claims.worst_day(FuguResults(runs)).reason
    assert "1.50 with 1.5 times Day 1's ticks on Day 2" in reason
    usual, louder = FuguWorld(1), FuguWorld(1, assumed=Assumptions(volume=1.5))
    assert louder.day(2).minutes.mean() == pytest.approx(1.5 * usual.day(1).minutes.mean())
    assert np.array_equal(louder.day(1).ticks, usual.day(1).ticks)


def test_one_assumption_changes_at_a_time() -> None:
    usual, calm = FuguWorld(1), FuguWorld(1, assumed=CALM_SECTORS)
    quick = FuguWorld(1, assumed=QUICK_MOVES).simulation(1, 0.6).settings
    half = FuguWorld(1, assumed=Assumptions(filtering=0.5)).queries
    assert usual.queries == calm.queries
    assert np.array_equal(usual.day(1).minutes, calm.day(1).minutes)
    assert np.ptp(calm.day(1).shares, axis=1).max() < 1e-12 < np.ptp(usual.day(1).shares)
    before = usual.simulation(1, 0.6).settings
    assert replace(before, migration_pause_s=0.5) == quick != before
    assert sum(q.loads[0] for q in half) == pytest.approx(MEAN_DEMAND_HOSTS / 2)


def test_loads_can_be_means_of_several_turns() -> None:
    clouds = [
        FuguWorld(1, assumed=Assumptions(measured_turns=turns)).simulation(1, target=0.6)
        for turns in (1, 3)
    ]
    short: list[float] = []
    for _ in range(4):
        for cloud in clouds:
            cloud.advance(5.0)
        shown = [cloud.observe() for cloud in clouds]
        short.append(shown[0].hosts[0].utilisation or 0.0)
    assert shown[1].hosts[0].utilisation == pytest.approx(sum(short[-3:]) / 3)
    moved = shown[1].requested.instances[0]
    for cloud in clouds:
        now = cloud.observe().requested
        others = (replace(i, host=now.hosts[1]) if i.id == moved.id else i for i in now.instances)
        cloud.apply(Plan(replace(now, instances=tuple(others))))
        cloud.advance(10.0)
    loads = [{i.id: i.load for i in cloud.observe().instances}[moved.id] for cloud in clouds]
    assert loads[0] == loads[1]  # what moved is measured from its move on


# --- from end to end ----------------------------------------------------------------------------


def test_a_tiny_experiment_answers_everything() -> None:
    shares: list[float] = []
    done = PAPER.run(True, 1, lambda share, _: shares.append(share), points=8)
    assert [row["id"] for row in done.rows()] == ALL
    captions = " ".join(caption for caption, _ in done.figures)
    assert all(f"Fig. {number}" in captions for number in range(3, 10))
    assert all(svg.startswith("<svg") for _, svg in done.figures)
    assert done.notes
    assert shares[-1] == 1.0
    assert shares == sorted(shares)


UNCLEAR: list[tuple[str, dict[Case, str]]] = [
    ("F-07", {GLOBAL: "latency_p90_s"}),
    ("F-08", {Case("global", "lower 0.4"): "latency_p90_s"}),
    ("F-09", {Case("local", "upper 0.9"): "load_max"}),
    ("F-10", {Case("sarsa", "upper 0.7"): "load_mean"}),
    ("F-18", {GLOBAL: "decisions"}),
]


@pytest.mark.parametrize(("claim", "wide"), UNCLEAR)
def test_a_mean_that_holds_by_chance_is_not_clear(claim: str, wide: dict[Case, str]) -> None:
    """One seed meets the criterion by far, the other does not: no interval is clear."""
    runs = dict(_results({}).runs)
    for case, what in wide.items():
        middle = getattr(runs[case][0], what)
        runs[case] = tuple(replace(runs[case][0], **{what: middle * by}) for by in (0.2, 1.8))
    assert _answers(FuguResults(runs))[claim].verdict == "not clear"


def test_the_cause_of_f13_is_what_an_experiment_shows() -> None:
    """Loads over six turns, with which the days differ, and volumes, with which they do not."""
    changes = READINGS["loads of six turns"]
    runs = dict(_results({Case("local", day=2): {"latency_p90_s": 1.1}}).runs)
    runs |= {of_volume(volume): runs[Case("local", day=2)] for volume in VOLUMES}
    assert "does not decide: the ratio is 1.10" in _answers(FuguResults(runs))["F-13"].reason
    for day, p90 in ((1, 1.0), (2, 1.8), (3, 1.1)):
        case = in_reading(Case("local", day=day), changes)
        runs[case] = (replace(PLAIN, latency_p90_s=p90),) * 2
    reason = _answers(FuguResults(runs))["F-13"].reason
    assert reason.startswith("Over what time the CPU is measured decides")
    assert "the ratio is 1.80 ± 0.00" in reason


def test_a_cause_whose_figures_are_not_clear_is_called_a_guess() -> None:
    runs = dict(_results({Case("local", "upper 0.9"): {"latency_p90_s": 0.9}}).runs)
    fuller, moves = Case("local", "upper 0.9"), Case("local")
    assert "guess" not in _answers(FuguResults(runs))["F-06"].reason
    runs[fuller] = tuple(replace(runs[fuller][0], moves=m) for m in (1.0, 1e4))
    assert runs[moves][0].moves > 0
    assert _answers(FuguResults(runs))["F-06"].reason.startswith("A guess: what more overloads")


def test_a_run_is_the_same_twice() -> None:
    case = Case("sarsa")
    assert run_case(2, case, 12) == run_case(2, case, 12)


def test_seeds_count_in_a_quick_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def only_note(quick: bool, seeds: int, progress: object) -> FuguResults:
        asked.append(seeds)
        return _results({})

    monkeypatch.setattr(fugu, "PAPER", replace(PAPER, measure=only_note))
    for words in (("--quick", "--seeds", "2"), ("--quick",), ()):
        assert tidegate("reproduce", "fugu", "--json", *words).returncode == 0
    assert asked == [2, 1, PAPER.seeds]


def test_a_cause_that_its_figures_contradict_is_not_given() -> None:
    calm = {Case("local", "upper 0.9"): {"latency_p90_s": 0.9, "overload": 0.001, "moves": 300.0}}
    assert "moves save" not in _answers(_results(calm))["F-06"].reason
    fuller = {Case("local", "upper 0.7"): {"latency_p90_s": 0.9, "overload": 0.4}}
    assert "has no more of them" not in _answers(_results(fuller))["F-05"].reason
    still = {Case("global", "lower 0.4"): {"latency_p90_s": 0.1, "moves": 900.0}}
    assert "so is a local decision" not in _answers(_results(still))["F-08"].reason


def test_a_first_day_that_no_other_fits_is_passed_over() -> None:
    """Seed 53's first day within the axis has so few trades that the others are beyond it."""
    assert FuguWorld(53)._day_seeds == (5304, 5305, 5306)
    assert FuguWorld(21)._day_seeds[0] > 2100
