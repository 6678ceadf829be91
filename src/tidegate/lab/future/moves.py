"""A forecast of the latency peak that a move costs, and moves that are selected by it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scipy import stats

from tidegate.lab.future.questions import Finding, Question, Size, Table, change_text
from tidegate.lab.papers.claims import Figure, Progress
from tidegate.lab.papers.fugu.runs import FORMER, QUICK_MOVES, TARGET, Case, Measures, run_case
from tidegate.lab.papers.fugu.world import POINTS, TURN_S, Assumptions, FuguWorld
from tidegate.lab.papers.statistics import interval
from tidegate.loop.controller import Controller
from tidegate.model import Snapshot
from tidegate.packing import Packing
from tidegate.packing.relief import Selection
from tidegate.policies.base import setting
from tidegate.policies.local_threshold import LocalThreshold
from tidegate.report.charts import scatter
from tidegate.simulation import CloudSettings
from tidegate.simulation.run import simulate

__all__ = ["QUESTION", "ForecastMoves", "cheapest_to_move", "peak_s"]

AFTER_TURNS = 3
"""Turns in which the peak of a move is looked for, in addition to twice its pause."""
STEP = 0.01
"""Resolution of loads when the cheapest operators are selected, in cores."""
BUSIEST = 0.95
"""Largest utilisation that a forecast assumes, so that it stays finite."""
WORLDS: Mapping[str, Assumptions] = {
    "as-assumed": FORMER["assumed"],
    "quick-moves": replace(QUICK_MOVES, measured_turns=1),
}
"""FUGU's world when these runs were made: loads of one turn."""


def peak_s(pause_s: float, rate_per_s: float, service_s: float, turn_s: float = TURN_S) -> float:
    """The largest mean latency of a query in one turn after a move, in seconds.

    While it moves, a query processes nothing for `pause_s`, and items wait. Then it works them off
    at full speed. With the utilisation ρ, an item that arrives at time a after the begin waits
    pause − a (1 − ρ), until nothing waits any more. The forecast is the mean over the items that
    leave in the turn that begins with the end of the pause.

    rate_per_s: items that arrive; service_s: time for one item; turn_s: length of a turn.

    >>> round(peak_s(1.0, rate_per_s=50, service_s=0.01), 3), round(peak_s(10, 50, 0.01), 3)
    (0.167, 7.5)
    """
    busy = min(BUSIEST, rate_per_s * service_s)
    worked_off = pause_s / (1 - busy)
    last = min(worked_off, turn_s / busy if busy > 0 else math.inf)
    waited = pause_s * last - last**2 * (1 - busy) / 2
    left = last if last < worked_off else max(worked_off, pause_s + turn_s)
    return waited / left


def pause_s(state_mb: float, settings: CloudSettings) -> float:
    """Time for which a moving query processes nothing, in seconds."""
    return settings.migration_pause_s + state_mb * 8 / settings.bandwidth_mbps


def forecasts(snapshot: Snapshot, settings: CloudSettings) -> dict[str, float]:
    """The peak of a move of each operator, in seconds."""
    found = {}
    for reading in snapshot.operators:
        operator = snapshot.operator(reading.operator)
        pause = pause_s(operator.state_mb, settings)
        service_s = reading.service_time_s or operator.service_time_s or 0.0
        found[reading.operator] = peak_s(pause, reading.arrival_rate_per_s or 0.0, service_s)
    return found


def cheapest_to_move(
    loads: Mapping[str, float], needed: float, costs: Mapping[str, float]
) -> tuple[str, ...]:
    """The operators with the least total cost whose load is at least `needed`.

    An exact dynamic program over loads in steps of `STEP`, rounded down; all operators where even
    these are too few.

    loads, needed: in cores; costs: of moving each operator.

    >>> cheapest_to_move({"a": 0.3, "b": 0.2, "c": 0.2}, 0.3, {"a": 5.0, "b": 1.0, "c": 1.0})
    ('b', 'c')
    """
    if needed <= 0:
        return ()
    goal = math.ceil(needed / STEP - 1e-6)
    steps = {name: math.floor(load / STEP + 1e-6) for name, load in loads.items()}
    if sum(steps.values()) <= goal:
        return tuple(name for name in loads if loads[name] > 0)
    nothing: tuple[str, ...] = ()
    best = [(0.0, nothing)] + [(math.inf, nothing)] * goal
    for name, size in steps.items():
        if size == 0:
            continue
        for reached in range(goal, 0, -1):
            cost, chosen = best[max(0, reached - size)]
            if cost + costs[name] < best[reached][0]:
                best[reached] = (cost + costs[name], (*chosen, name))
    return best[goal][1]


@dataclass(frozen=True)
class ForecastMoves(LocalThreshold):
    """Local thresholds that move the operators with the least forecast latency.

    >>> ForecastMoves(quick=True).quick
    True
    """

    quick: bool = setting(False, "pauses are those of the world with quick moves")

    def selection(self, packing: Packing) -> Selection:
        """The operators with the least sum of forecast peaks that bring the host to its target."""
        world = WORLDS["quick-moves" if self.quick else "as-assumed"]
        peaks = forecasts(packing.snapshot, world.settings)

        def select(loads: Mapping[str, float], needed: float) -> tuple[str, ...]:
            operators = {name: packing.hosts[packing.home[name]][name].operator for name in loads}
            return cheapest_to_move(loads, needed, {n: peaks[operators[n]] for n in loads})

        return select


# --- calibration ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peak:
    """A move: its forecast and its measured peak, in seconds, and what is known of the operator.

    calm: no host wanted more CPU than it has in these turns.
    """

    forecast_s: float
    measured_s: float
    state_mb: float
    rate_per_s: float
    calm: bool


def observed_peaks(seed: int, assumed: Assumptions, points: int) -> list[Peak]:
    """The moves of local thresholds on Day 1, with forecasts and measured peaks."""
    world = FuguWorld(seed, points, assumed)
    cloud = world.simulation(1, TARGET)
    controller = Controller(cloud, Case("local", **FORMER).build(), seed=seed)
    means: list[dict[str, float]] = []
    full: list[bool] = []
    moved: list[tuple[range, str, float, float, float]] = []
    before = cloud.durations()
    for number, turn in enumerate(
        simulate(cloud, controller, end_s=points * TURN_S, interval_s=TURN_S)
    ):
        seen = turn.snapshot
        assert seen is not None
        peaks = forecasts(seen, assumed.settings)
        home = {instance.id: instance.operator for instance in seen.requested.instances}
        for step in turn.outcome.steps if turn.outcome else ():
            if step.kind == "move":
                name = home[step.instance]
                rate = seen.reading[name].arrival_rate_per_s or 0.0
                state = seen.operator(name).state_mb
                turns = AFTER_TURNS + math.ceil(2 * pause_s(state, assumed.settings) / TURN_S)
                moved.append((range(number, number + turns), name, peaks[name], state, rate))
        now = cloud.durations()
        means.append(
            {
                query: (seconds - before[query][1]) / (count - before[query][0])
                for query, (count, seconds) in now.items()
                if count > before[query][0]
            }
        )
        before = now
        cloud.observe()
        full.append(any(value > 1 for value in cloud.wanted.values()))
    found = []
    for turns_after, name, forecast, state, rate in moved:
        after = [n for n in turns_after if n < len(means)]
        query = name.removesuffix("-filter")
        seen_s = [means[n][query] for n in after if query in means[n]]
        if seen_s:
            found.append(Peak(forecast, max(seen_s), state, rate, not any(full[n] for n in after)))
    return found


def run(size: Size, progress: Progress) -> Finding:
    """Forecasts against measured peaks, then local thresholds with both ways to select moves."""
    points = max(40, round(POINTS * size.length))
    peaks: dict[str, list[list[Peak]]] = {variant: [] for variant in WORLDS}
    runs: dict[tuple[str, bool], list[Measures]] = {}
    for n, seed in enumerate(size.numbers):
        for m, variant in enumerate(WORLDS):
            progress((n + m / len(WORLDS)) / size.seeds, f"seed {seed}, {variant}")
            peaks[variant].append(observed_peaks(seed, WORLDS[variant], points))
            case = Case("local", **{**FORMER, "assumed": WORLDS[variant]})
            quick = variant == "quick-moves"
            weighed = ForecastMoves(**case.settings(), quick=quick)
            for chosen, policy in ((False, None), (True, weighed)):
                measures = run_case(seed, case, points, policy=policy)
                runs.setdefault((variant, chosen), []).append(measures)
    return _finding(peaks, runs)


def _correlation(peaks: Sequence[Peak], what: str) -> float:
    """Spearman's rank correlation of a figure with the measured peak; NaN with few moves."""
    if len({getattr(peak, what) for peak in peaks}) < 3:
        return math.nan
    found = stats.spearmanr([getattr(p, what) for p in peaks], [p.measured_s for p in peaks])
    return float(found.statistic)


def _known(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def _shown(values: Sequence[float], digits: int) -> str:
    known = _known(values)
    return interval(known, digits) if known else "–"


def _ratio(peaks: Sequence[Peak]) -> float:
    """The median of measured over forecast."""
    ratios = sorted(peak.measured_s / peak.forecast_s for peak in peaks if peak.forecast_s > 0)
    return ratios[len(ratios) // 2] if ratios else math.nan


def _finding(
    peaks: Mapping[str, Sequence[Sequence[Peak]]],
    runs: Mapping[tuple[str, bool], Sequence[Measures]],
) -> Finding:
    rows, calibrated = [], []
    for variant, by_seed in peaks.items():
        for name, chosen in (
            ("all moves", [list(some) for some in by_seed]),
            ("moves without an overfull host", [[p for p in some if p.calm] for some in by_seed]),
        ):
            ratio = [_ratio(some) for some in chosen]
            rank = [_correlation(some, "forecast_s") for some in chosen]
            rows.append(
                (
                    f"{variant}, {name}",
                    interval([float(len(some)) for some in chosen], 0),
                    _shown(ratio, 2),
                    _shown(rank, 2),
                    _shown([_correlation(some, "state_mb") for some in chosen], 2),
                    _shown([_correlation(some, "rate_per_s") for some in chosen], 2),
                )
            )
            if name == "all moves":
                calibrated.append(
                    f"in the world {variant}, the measured peak is {_shown(ratio, 2)} times the "
                    f"forecast in the median, with a rank correlation of {_shown(rank, 2)}"
                )
    chosen_rows, gains = [], []
    for variant in peaks:
        plain, weighed = runs[variant, False], runs[variant, True]
        for name, some in (("by load, as published", plain), ("by forecast", weighed)):
            chosen_rows.append(
                (
                    f"{variant}, {name}",
                    interval([1000 * m.latency_mean_s for m in some], 0),
                    interval([1000 * m.latency_p90_s for m in some], 0),
                    interval([m.moves for m in some], 0),
                    interval([m.hosts for m in some], 2),
                )
            )
        change = change_text([m.latency_mean_s for m in weighed], [m.latency_mean_s for m in plain])
        moves = change_text([m.moves for m in weighed], [m.moves for m in plain])
        gains.append(f"{variant}: {change} in mean latency, {moves} in moves")
    first = [p for some in peaks["as-assumed"][:1] for p in some]
    figures: tuple[Figure, ...] = ()
    if first:
        chart = scatter(
            [(f"move {n}", p.forecast_s, p.measured_s) for n, p in enumerate(first)],
            "Latency peak of a move, first seed",
            "forecast, s",
            "measured, s",
            labelled=(),
        )
        figures = (("Forecast and measured latency peaks of the moves of one day.", chart),)
    return Finding(
        f"{'; '.join(calibrated).capitalize()}. Selecting the operators with the "
        f"least forecast peaks gives, compared with the least load: {'; '.join(gains)}.",
        (
            Table(
                "Measured peak compared with its forecast:",
                (
                    "world",
                    "moves",
                    "measured over forecast, median",
                    "rank correlation of the forecast",
                    "of the state's size alone",
                    "of the rate alone",
                ),
                tuple(rows),
            ),
            Table(
                "Local thresholds by how they select what moves:",
                ("world", "mean latency, ms", "p90, ms", "moves", "hosts"),
                tuple(chosen_rows),
            ),
        ),
        (
            f"A peak is the largest mean latency of the moved query in a turn of {TURN_S:g} s, "
            f"from the move on for {AFTER_TURNS} turns and twice the pause. The forecast knows the "
            "pause of a move (coordination, and the state over the network), the rate and the "
            "service time. It does not know what else happens on the host.",
            "Quick moves pause for half a second before the state is sent, in place of three. A "
            "filter that moves stops the source of all queries; its forecast is that of its query "
            "alone.",
        ),
        figures,
    )


QUESTION = Question(
    "moves",
    "Can the latency peak of a move be forecast, and does it pay to weigh it?",
    "FUGU (Heinze et al. 2014), section VI",
    "A fluid model forecasts the mean latency of a query in the worst turn after its move, from "
    "the size of its state, its rate and its service time. The forecast is compared with the moves "
    "of local thresholds on Day 1 of FUGU's world. Then local thresholds select the operators with "
    "the least sum of forecast peaks in place of those with the least load.",
    run,
)
