"""Cerviño's experiments: every claim once, each criterion on both sides, one tiny run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.lab.papers.cervino import claims
from tidegate.lab.papers.cervino.experiment import PAPER, CervinoLengths
from tidegate.lab.papers.cervino.world import (
    LARGE,
    SMALL,
    CervinoResults,
    Costs,
    Ramp,
    Steady,
    Stepped,
    follow_steps,
    hold,
    ramp,
)
from tidegate.lab.papers.claims import Experiment
from tidegate.probe import Listening, ProbePlan, ProbeServer
from tidegate.probe import measure as probe

FINE = Stepped(1000, 5, 0, 0.0, 2, ((15.0, 1), (30.0, 2), (15.0, 1)))


def test_sites_cannot_be_simulated() -> None:
    for claim in (claims.jitter, claims.delay, claims.stability):
        assert claim(CervinoResults()).verdict == "untestable"


def test_every_step_must_be_carried_with_fewer_large_vms() -> None:
    small, large = [(100.0, 5, 0.99), (200.0, 9, 0.99)], [(100.0, 2, 0.99), (200.0, 3, 0.99)]

    def verdict(small: Ramp, large: Ramp) -> str:
        return claims.throughput(CervinoResults([small], [large])).verdict

    assert verdict(small, large) == "reproduced"
    assert verdict([(100.0, 5, 0.979), small[1]], large) == "partly"
    assert verdict(small, [large[0], (200.0, 9, 0.99)]) == "partly"
    lossy = [(100.0, 5, 0.9), (200.0, 9, 0.9)]
    assert verdict(lossy, lossy) == "not"


def test_n_must_return_and_nothing_drop_late() -> None:
    def verdict(*runs: Stepped) -> str:
        return claims.small_vms_follow(CervinoResults(with_small={"x": runs})).verdict

    assert verdict(FINE) == "reproduced"
    lossy = replace(FINE, offered=100_000, late_drops=10)
    assert verdict(lossy) == "reproduced" and verdict(replace(lossy, late_drops=11)) == "not"
    first = claims.small_vms_follow(CervinoResults(with_small={"x": [lossy]})).first
    assert first == "not", "a single tuple is too many by the first criterion"
    grown = replace(FINE, last_vms=((15.0, 1), (30.0, 2), (15.0, 2)))
    assert not grown.returns
    assert verdict(grown) == "not"
    assert verdict(FINE, grown) == "not clear"


@pytest.mark.parametrize(("p99_s", "verdict"), [(3.9, "reproduced"), (4.1, "not")])
def test_overload_may_cost_four_times_the_latency(p99_s: float, verdict: str) -> None:
    pair = (Steady(100, 100, 0, 1.0), Steady(100, 80, 20, p99_s))
    assert claims.low_latency(CervinoResults(overload={"x": [pair]})).verdict == verdict


@pytest.mark.parametrize(
    ("vms", "dropped", "verdict"), [(1, 9, "reproduced"), (1, 10, "not"), (2, 0, "not")]
)
def test_one_large_vm_must_do(vms: int, dropped: int, verdict: str) -> None:
    run = replace(FINE, most_vms=vms, dropped=dropped)
    assert claims.one_large_vm(CervinoResults(with_large={"x": [run]})).verdict == verdict


def test_thirty_seconds_must_beat_both_neighbours() -> None:
    def verdict(*dropped: int) -> str:
        by_period = zip((5.0, 30.0, 120.0), dropped, strict=True)
        runs = {p: [Costs.of([replace(FINE, dropped=d), FINE])] for p, d in by_period}
        return claims.period(CervinoResults(periods={"x": runs})).verdict

    assert verdict(3, 2, 3) == "reproduced"
    assert verdict(1, 2, 3) == "not"
    assert verdict(3, 2, 1) == "not"


def test_waste_counts_like_drops() -> None:
    assert replace(FINE, dropped=10, waste=40.0).cost == pytest.approx(0.05)


def test_what_is_offered_is_carried_dropped_or_under_way() -> None:
    run = hold(30_000, SMALL, 1, 1, queue=10, scale=40, duration_s=20)
    assert run.offered == 15_000
    assert 0 <= run.offered - run.carried - run.dropped <= 11
    # One VM can do 80 % of it, and hardly ever waits for work.
    assert run.dropped / run.offered == pytest.approx(0.2, abs=0.01)


def test_scale_changes_no_share() -> None:
    shares = [
        run.dropped / run.offered
        for run in (hold(30_000, SMALL, 1, 1, queue=10, scale=s, duration_s=30) for s in (20, 40))
    ]
    assert shares[0] == pytest.approx(shares[1], abs=0.01)


def test_ramp_uses_as_many_vms_as_rate_and_margin_ask_for() -> None:
    steps = ramp(LARGE, 1, queue=10, scale=200, step_s=10)
    assert steps[0][1] == 2
    assert [rate for rate, _, _ in steps][::10] == [100_000, 200_000]


def test_algorithm_as_printed_runs_away() -> None:
    printed, forgiving = (
        follow_steps(LARGE, 1, queue=10, scale=200, tolerance=tolerance)
        for tolerance in (0.0, 0.01)
    )
    assert forgiving.most_vms == 1
    assert printed.most_vms > 1
    assert len(forgiving.last_vms) == 8
    assert forgiving.offered == pytest.approx(81_000_000 / 200, rel=0.01)


def test_a_turn_within_the_second_of_a_step_misestimates() -> None:
    def cost(later: float) -> float:
        run = follow_steps(SMALL, 2, queue=2, service_scv=0.0, scale=100, period_s=5.0, later=later)
        assert run.late_drops == 0
        return run.cost

    costs = [cost(phase / 5) for phase in range(5)]
    assert max(costs) > 0.1 > sorted(costs)[1]


def test_same_seed_same_run() -> None:
    a, b = (follow_steps(SMALL, 2, queue=10, scale=400) for _ in range(2))
    assert a == b


@pytest.fixture(scope="module")
def tiny() -> Experiment:
    lengths = CervinoLengths(1000.0, 5.0, 20.0)
    return PAPER.run(True, 1, lambda share, what: None, lengths=lengths)


def test_every_claim_is_answered_once(tiny: Experiment) -> None:
    assert [row["id"] for row in tiny.rows()] == [f"C-0{n}" for n in range(1, 9)]
    answers = tiny.answers.values()
    assert all(answer.reason for answer in answers if answer.verdict != "reproduced")
    assert all(answer.elsewhere for claim, answer in tiny.answers.items() if claim.id > "C-04")


def test_figures_and_notes(tiny: Experiment) -> None:
    drawn = " ".join(caption for caption, _ in tiny.figures)
    assert "Fig. 5" in drawn
    assert "Fig. 7a" in drawn
    assert "Fig. 7b" in drawn
    assert all(svg.startswith("<svg") for _, svg in tiny.figures)
    assert "divided by 1000" in tiny.notes[0]


def test_what_the_loopback_does_is_shown_and_decides_nothing() -> None:
    with ProbeServer(Listening(port=0)) as server:
        network = probe(server.address, ProbePlan((100.0, 1000.0), 1.0))
    results = CervinoResults(network=network)
    for claim, what in ((claims.jitter, "mean jitter"), (claims.delay, "median delay")):
        answer = claim(results)
        assert answer.verdict == "untestable"
        assert answer.measured.count(what) == 2 and " at 1000/s" in answer.measured
        assert "unknown" not in answer.measured
    assert claims.stability(results).measured.count("times the median") == 2
