"""The VISP evaluation again: Tables 3 to 6 and Figs. 7 to 11, and what holds of them.

Four arrival patterns, a BTU-based policy with billing units of 10, 30 and 60 minutes and a
threshold-based one, 120 minutes each, several seeds. Everything is run in two readings: the
algorithms as published, which verdicts go by, and as coded, with what the authors' program does
differently. See `visp_world` for the world and `visp_runs` for the readings.

C. Hochreiner et al., *Cost-efficient enactment of stream processing topologies*, PeerJ Computer
Science 3:e141, 2017.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean, pstdev

from tidegate.lab.papers.claims import Answer, Experiment
from tidegate.lab.papers.visp import tables
from tidegate.lab.papers.visp.figures import draw
from tidegate.lab.papers.visp.notes import WHY, clock, notes
from tidegate.lab.papers.visp.runs import (
    CODED,
    EXACT,
    PUBLISHED_WAY,
    Results,
    Summary,
    jobs,
    mixed_table,
    run_all,
)
from tidegate.lab.papers.visp.tables import Finding, Table
from tidegate.lab.papers.visp.world import MINUTES, Variant

__all__ = ["CLAIMS", "answers", "run"]

Judge = Callable[[Results, Variant, int | None], Finding]
"""What a variant's runs say about a claim, for one seed or for the mean over all."""


TABLE_CLAIMS: dict[str, Callable[[Table], Finding]] = {
    "V-01": tables.compliances,
    "V-02": tables.resource_costs,
    "V-03": tables.total_costs,
    "V-04": tables.always_better,
    "V-05": tables.growing_gain,
    "V-06": tables.cheaper_in_all,
    "V-07": tables.largest_reduction,
    "V-08": tables.hourly_saving,
    "V-09": tables.dearer_when_short,
    "V-11": tables.alike_across_patterns,
    "V-12": tables.half_in_real_time,
}


def _of_table(judge: Callable[[Table], Finding]) -> Judge:
    return lambda results, variant, seed: judge(results.table(variant, seed))


def _of_btu_runs(
    judge: Callable[[list[float]], Finding], pattern: str, what: Callable[[Summary], float]
) -> Judge:
    def judged(results: Results, variant: Variant, seed: int | None) -> Finding:
        columns = ("BTU10", "BTU30", "BTU60")
        return judge([results.mean(variant, pattern, column, what, seed) for column in columns])

    return judged


CLAIMS: dict[str, Judge] = {
    **{claim: _of_table(judge) for claim, judge in TABLE_CLAIMS.items()},
    "V-10": _of_btu_runs(tables.falling_activity, "stepwise", lambda run: run.operations),
    "V-13": _of_btu_runs(tables.instances_stay, "random_walk_1", lambda run: run.correlation),
}


def run(
    quick: bool, seeds: int, progress: Callable[[float, str], None], minutes: float = MINUTES
) -> Experiment:
    """Run the evaluation.

    quick: about a minute, one seed where only one thing is changed. seeds: runs of each.
    progress: called with the share done and what is being done. minutes: length of a run.
    """
    return experiment(run_all(jobs(quick, seeds), progress, minutes))


def experiment(results: Results) -> Experiment:
    """What the runs come to."""
    said = (*notes(results), _mixed(results))
    return Experiment("visp", answers(results), draw(results), said)


def _mixed(results: Results) -> str:
    """Which claims on the tables hold when the two readings are mixed."""
    found = {claim: judge(mixed_table(results)) for claim, judge in TABLE_CLAIMS.items()}
    held = ", ".join(claim for claim, finding in found.items() if finding.holds) or "none"
    some = "; ".join(f"{claim} {found[claim].measured}" for claim in ("V-07", "V-08", "V-09"))
    return (
        "Which thresholds the authors' baseline ran with is unknown. BTU-based as coded beside the "
        f"baseline as published, the claims on the tables that hold are: {held} ({some})."
    )


def answers(results: Results) -> tuple[Answer, ...]:
    """An answer to each claim, by the criterion of the ledger."""
    found = []
    for claim, judge in sorted(CLAIMS.items()):
        published, coded = judge(results, PUBLISHED_WAY, None), judge(results, CODED, None)
        measured = f"{published.measured}{_spread(results, judge, PUBLISHED_WAY)}"
        if claim == "V-12":
            measured += f"; with an exact clock {judge(results, EXACT, None).measured}"
        held = "all of it holds" if coded.holds else f"{coded.held} of {coded.of} parts hold"
        reasons = [f"As coded: {coded.measured}{_spread(results, judge, CODED)}; {held}."]
        verdict = tables.verdict(published, coded)
        if verdict != "reproduced":
            reasons.append(WHY[claim])
        if claim == "V-12":
            reasons.append(clock(results))
        found.append(Answer(claim, measured, verdict, " ".join(reasons), tables.PARTLY))
    return tuple(found)


def _spread(results: Results, judge: Judge, variant: Variant) -> str:
    """How much the figures differ between seeds, in words; empty for one seed."""
    seeds = results.seeds(variant)
    if len(seeds) < 2:
        return ""
    found = [judge(results, variant, seed) for seed in seeds]
    columns = list(zip(*(finding.values for finding in found), strict=True))
    digits = 2 if max(abs(fmean(values)) for values in columns) < 2 else 1
    shown = ", ".join(f"{pstdev(values):.{digits}f}" for values in columns)
    held = sum(finding.holds for finding in found)
    return f" (spread ± {shown}; holds in {held} of {len(seeds)} seeds)"
