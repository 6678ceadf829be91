"""Cerviño's experiments: every claim once, each criterion on both sides, one tiny run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.lab.papers.cervino import answers
from tidegate.lab.papers.cervino import experiment as cervino
from tidegate.lab.papers.cervino.world import (
    LARGE,
    SMALL,
    Steady,
    Stepped,
    follow_steps,
    hold,
    ramp,
)
from tidegate.lab.papers.claims import Experiment, claims

FINE = Stepped(1000, 5, 0, 0.0, 2, ((15.0, 1), (30.0, 2), (15.0, 1)))


def test_sites_cannot_be_simulated() -> None:
    assert answers.untestable("C-01").verdict == "untestable"


def test_every_step_must_be_carried_with_fewer_large_vms() -> None:
    small, large = [(100.0, 5, 0.99), (200.0, 9, 0.99)], [(100.0, 2, 0.99), (200.0, 3, 0.99)]
    assert answers.scales([small], [large]).verdict == "reproduced"
    assert answers.scales([[(100.0, 5, 0.979), small[1]]], [large]).verdict == "partly"
    assert answers.scales([small], [[large[0], (200.0, 9, 0.99)]]).verdict == "partly"
    lossy = [(100.0, 5, 0.9), (200.0, 9, 0.9)]
    assert answers.scales([lossy], [lossy]).verdict == "not"


def test_n_must_return_and_nothing_drop_late() -> None:
    assert answers.follows({"x": [FINE]}).verdict == "reproduced"
    assert answers.follows({"x": [replace(FINE, late_drops=1)]}).verdict == "not"
    grown = replace(FINE, last_vms=((15.0, 1), (30.0, 2), (15.0, 2)))
    assert not grown.returns
    assert answers.follows({"x": [grown]}).verdict == "not"
    assert answers.follows({"x": [FINE, grown]}).verdict == "partly"


@pytest.mark.parametrize(("p99_s", "verdict"), [(3.9, "reproduced"), (4.1, "not")])
def test_overload_may_cost_four_times_the_latency(p99_s: float, verdict: str) -> None:
    pair = (Steady(100, 100, 0, 1.0), Steady(100, 80, 20, p99_s))
    assert answers.latency({"x": [pair]}).verdict == verdict


@pytest.mark.parametrize(
    ("vms", "dropped", "verdict"), [(1, 9, "reproduced"), (1, 10, "not"), (2, 0, "not")]
)
def test_one_large_vm_must_do(vms: int, dropped: int, verdict: str) -> None:
    run = replace(FINE, most_vms=vms, dropped=dropped)
    assert answers.one_suffices({"x": [run]}).verdict == verdict


def test_thirty_seconds_must_beat_both_neighbours() -> None:
    def costs(short: int, middle: int, long: int) -> dict[str, dict[float, list[Stepped]]]:
        by_period = zip((5.0, 30.0, 120.0), (short, middle, long), strict=True)
        return {"x": {p: [replace(FINE, dropped=d)] for p, d in by_period}}

    assert answers.period(costs(3, 2, 3)).verdict == "reproduced"
    assert answers.period(costs(1, 2, 3)).verdict == "not"
    assert answers.period(costs(3, 2, 1)).verdict == "not"


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


def test_same_seed_same_run() -> None:
    a, b = (follow_steps(SMALL, 2, queue=10, scale=400) for _ in range(2))
    assert a == b


@pytest.fixture(scope="module")
def tiny() -> Experiment:
    return cervino.run(True, 1, lambda share, what: None, cervino.Lengths(1000.0, 5.0, 20.0))


def test_every_claim_is_answered_once(tiny: Experiment) -> None:
    asked = [claim for claim in claims() if claim.startswith("C-")]
    assert [answer.claim for answer in tiny.answers] == asked
    assert all(answer.reason for answer in tiny.answers if answer.verdict != "reproduced")


def test_figures_and_notes(tiny: Experiment) -> None:
    drawn = " ".join(caption for caption, _ in tiny.figures)
    assert "Fig. 5" in drawn
    assert "Fig. 7a" in drawn
    assert "Fig. 7b" in drawn
    assert all(svg.startswith("<svg") for _, svg in tiny.figures)
    assert "divided by 1000" in tiny.notes[0]
