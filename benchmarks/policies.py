"""Benchmark of policies: ``make bench-policies TRACES=folder``.

Every policy, with the parameters that it suggests and the default guards, on open traces of event
rates and on generated exchange days, in one of three worlds (queues, micro-batches of a recorded
Spark application, hourly billing). For each run: the share of items in time, the cost (hosts and
late items at the default price) over the hindsight bound, and the number of rescales. `tide` runs
once for each share in --shares; the other policies know none. `trained` is the policy of
`tidegate.lab.future.trained`, from the Gymnasium environment.

FOLDER holds ``<family>/*_rate.csv`` or ``.csv.gz``, with the columns t_s and rate. Without it, only
generated days run. The settings of `tide` were chosen on the traces in `CHOSEN_ON`; the others are
reported apart. With --seeds, each run is repeated with other arrivals, service times and
start-up times. Runs are kept in --out and not repeated: stop it and start it again at any time.
After a change of a policy, use --again with its name. Those of docs/measured/policies.md are in its
folder, so that it goes on where the last one stopped.

    python benchmarks/policies.py [FOLDER] [--world queues] [--only xetra_2018] [--days 1]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from live import interval

from tidegate.lab.backtest import bound_of, run_policy, situation_of, stack_for
from tidegate.lab.future.trained import Trained, read_trained
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.loop.journal import read_journal
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.model import OperatorReading
from tidegate.model.topology import Edge, Source, Topology
from tidegate.policies import available, create
from tidegate.simulation import RunReport
from tidegate.simulation.calibrate import BatchWorld, calibrate
from tidegate.simulation.scenario import Scenario
from tidegate.testing import steady_snapshot
from tidegate.workloads import ExchangeDay, RateTrace, Workload, peak_per_s, read_trace, series

QUEUES = ScenarioOptions(slo_s=2.0)
"""Queues with hosts that start in 45 s and are paid by the minute."""
HOURLY = ScenarioOptions(slo_s=2.0, billing_unit_s=3600.0, startup_s=180.0)
"""The same with hosts that start in 3 min and are paid by the hour."""
RECORDED = Path(__file__).parents[1] / "tests/fixtures/journals-0.1.0/live.jsonl"
"""A live run of the demo on a Spark cluster, for the world of micro-batches."""
HOSTS_AT_PEAK, LOAD_AT_PEAK = 10, 0.7
"""Executors that process the peak of a trace, and their utilisation, as in the queues."""
QUERY = "query"
"""Name of the recorded query here: a source may have the name that it has in the journal."""
BATCH_SLO_S = 30.0
"""Latency target in micro-batches. With an overhead of 3.4 s, a batch takes 11 s at a utilisation
of 70 %, and a row waits for the end of one batch and is processed in the next."""

CHOSEN_ON = (
    "xetra_2017-07", "xetra_2018-02-14", "eurex", "gold_ticks_2014-05-02", "us_ticks_2013-10-07",
    "twitter_stream_2021-08_day01", "twitter_stream_2021-08_day08", "nab_tweets_AAPL",
    "nab_tweets_FB", "worldcup98_1998-05-12", "worldcup98_1998-06-10", "worldcup98_1998-06-15",
    "ms_ingress-02", "ms_ingress-03", "ms_mongo-03", "nab_nyc_taxi", "azure_llm",
)  # fmt: skip
"""Beginnings of the names of the traces on which settings may be chosen."""

DERIVED = ("step15m",)
"""Parts of the names of traces that repeat others."""

DAY_S = 86_400.0
SHORTEST_S = 1800.0
DAY_LIKE_S = 23 * 3600.0
"""What counts as a day: some recordings lack a few minutes."""
MOST_ITEMS = 2e6
"""Items from which the fluid world is used."""
LEARNING_S = 3 * 3600.0
"""Time after which the share is counted once more."""
HALF_A_POINT = 0.005
SURGE = 1.5
"""A turn is a surge if its rate exceeds the largest of the hour that ended when a host for it would
have had to be leased, times this."""
SURGE_MEMORY_S = 3600.0
GENERATED = "generated-"
GENERATED_SEEDS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)


@dataclass(frozen=True)
class Run:
    """The result of one policy on one trace.

    Attributes:
        world: Name of the world.
        trace: Name of the trace.
        days: Days of the trace that were used.
        policy: Name of the policy, with the share for `tide`.
        in_time: Share of the items in time.
        in_time_later: The same after the first three hours; None for shorter traces.
        cost_usd: Hosts and late items.
        hosts_usd: Hosts alone.
        bound_usd: No policy costs less.
        rescales: Number of plans that changed something.
        in_time_apart: The share after three hours without the turns of surges, see `surges`.
        seed: Random seed of the arrivals and of the world.
    """

    world: str
    trace: str
    days: float
    policy: str
    in_time: float
    in_time_later: float | None
    cost_usd: float
    hosts_usd: float
    bound_usd: float
    rescales: int
    in_time_apart: float | None = None
    seed: int = 0

    @property
    def ratio(self) -> float:
        """Cost over the bound."""
        return self.cost_usd / self.bound_usd

    @property
    def chosen_on(self) -> bool:
        """Whether settings were chosen on this trace."""
        return self.trace.startswith(CHOSEN_ON)


# --- worlds ---------------------------------------------------------------------------------------


@cache
def recorded_application() -> BatchWorld:
    """The application of the recorded run: overhead, trigger, slots, start-up time and price."""
    return calibrate(read_journal(RECORDED), RECORDED.name).world


def batches(workload: Workload) -> Scenario:
    """The recorded application on a trace.

    A row takes as long as it must for ten executors to process the peak at 70 % utilisation.
    """
    world, peak = recorded_application(), peak_per_s(workload)
    source = next(iter(workload.arrivals(0.0, min(1.0, workload.duration_s))))
    slots = HOSTS_AT_PEAK * LOAD_AT_PEAK * world.offer.capacity.cpu_cores
    (query,) = world.topology.operators
    query = replace(query, name=QUERY, service_time_s=slots / peak, max_instances=None, slo_s=None)
    world = replace(
        world,
        settings=replace(world.settings, overheads_s={}),  # the one of its query is that of all
        topology=Topology((query,), (Source(source),), (Edge(source, query.name),)),
        offer=replace(world.offer, max_hosts=None),
        interval_s=QUEUES.interval_s,
        initial_hosts=max(1, math.ceil(HOSTS_AT_PEAK * workload.rate(0.0) / peak)),
    )
    return ScenarioOptions(slo_s=BATCH_SLO_S, world=world).build(workload)


WORLDS: dict[str, Callable[[Workload], Scenario]] = {
    "queues": QUEUES.build,
    "batches": batches,
    "hourly": HOURLY.build,
}
"""The worlds in which policies are compared, by name."""


# --- traces ---------------------------------------------------------------------------------------


def workloads(folder: Path | None, days: float, only: str) -> Iterator[tuple[str, Workload]]:
    """The traces by name, each cut to its first days."""
    files = sorted(folder.glob("*/*_rate.csv*")) if folder is not None else []
    for path in files:
        name = path.name.split("_rate.csv")[0]
        if not matches(only, name) or any(part in name for part in DERIVED):
            continue
        trace = cut(read_trace(path), days * DAY_S)
        if trace.duration_s >= SHORTEST_S:
            yield name, trace
    for seed in GENERATED_SEEDS:
        if matches(only, name := f"{GENERATED}{seed}"):
            yield name, ExchangeDay(seed=seed)


def matches(only: str, name: str) -> bool:
    """Whether a name has one of the parts that are separated by commas."""
    return any(part in name for part in only.split(","))


def cut(trace: Workload, most_s: float) -> Workload:
    """The first part of a trace of rates."""
    if not isinstance(trace, RateTrace) or trace.duration_s <= most_s:
        return trace
    kept = trace.t_s < most_s
    return RateTrace(trace.t_s[kept], trace.rate_per_s[kept], end_s=most_s)


def reseeded(workload: Workload, seed: int) -> Workload:
    """The workload with other arrivals at the same rates; a generated day is what its seed says."""
    return replace(workload, seed=seed) if isinstance(workload, RateTrace) else workload


# --- runs -----------------------------------------------------------------------------------------


def surges(rates: np.ndarray, lead_turns: int, turn_s: float) -> np.ndarray:
    """The turns in which more arrived than could be known when hosts for them had to be leased.

    A surge is a rate above 1.5 times the largest of the hour until then, and lasts until hosts that
    are leased when it is seen run and have had as long again for what waits. This depends on the
    trace alone and not on what a policy does. rates: items per second in each turn. lead_turns:
    turns from a decision until its hosts run. turn_s: seconds between decisions.
    """
    found = np.zeros(len(rates), dtype=bool)
    memory = int(SURGE_MEMORY_S / turn_s)
    for turn in range(memory // 2 + lead_turns, len(rates)):
        known = rates[max(0, turn - lead_turns - memory) : turn - lead_turns]
        if rates[turn] > SURGE * known.max():
            found[turn : turn + 2 * lead_turns] = True
    return found


def in_time_after(
    report: RunReport, start_s: float, apart: np.ndarray | None = None, turn_s: float = 1.0
) -> float | None:
    """Share of the items finished after a time that were in time; None without items.

    apart: the turns, of `turn_s` each, that do not count.
    """
    good = total = 0.0
    times = (0.0, *(t or 0.0 for t in report.series.time_s))
    rows = zip(
        times, times[1:], report.series.finished_per_s, report.series.compliance, strict=False
    )
    for begin_s, end_s, per_s, share in rows:
        if apart is not None and _touches(apart, begin_s / turn_s, end_s / turn_s):
            continue
        if end_s > start_s and per_s is not None and share is not None:
            total += per_s * (end_s - begin_s)
            good += per_s * (end_s - begin_s) * share
    return good / total if total else None


def _touches(turns: np.ndarray, begin: float, end: float) -> bool:
    """Whether a time overlaps one of the turns that are set."""
    return bool(turns[math.floor(begin + 1e-9) : math.ceil(end - 1e-9)].any())


def run_one(
    world: str,
    trace: str,
    scenario: Scenario,
    policy: str,
    bound_usd: float,
    fluid: bool,
    seed: int = 0,
) -> Run:
    name, _, share = policy.partition(" ")
    parameters = {"share": float(share.rstrip("%")) / 100} if share else {}
    if name == Trained.name:
        options = StackOptions(max_hosts=scenario.offer.max_hosts)
        stack = build_stack(read_trained(), situation_of(scenario), options)
    else:
        _, stack = stack_for(name, scenario, StackOptions(parameters=parameters))
    report = run_policy(scenario, stack, seed, fluid=fluid)
    in_time = report.items_out * (report.slo_compliance or 0.0) / max(1, report.items_in)
    later = apart = None
    if scenario.duration_s > 2 * LEARNING_S:
        turn_s = scenario.interval_s
        lead = math.ceil(scenario.offer.startup_s / turn_s) + 1
        surging = surges(series(scenario.workload, turn_s), lead, turn_s)
        later = in_time_after(report, LEARNING_S)
        apart = in_time_after(report, LEARNING_S, surging, turn_s)
    return Run(
        world,
        trace,
        round(scenario.duration_s / DAY_S, 4),
        policy,
        in_time,
        later,
        report.total_cost_usd,
        report.resource_cost_usd,
        bound_usd,
        report.rescales,
        apart,
        seed,
    )


def run_all(given: argparse.Namespace) -> list[Run]:
    """All runs, those that are kept and new ones."""
    given.out.parent.mkdir(parents=True, exist_ok=True)
    kept: list[Run] = []
    if given.out.exists():
        kept = [Run(**json.loads(line)) for line in given.out.read_text().splitlines()]
    kept = [run for run in kept if run.policy.split(" ")[0] not in given.again]
    given.out.write_text("".join(json.dumps(asdict(run)) + "\n" for run in kept))
    shares = [f"tide {100 * float(share):g}%" for share in given.shares.split(",")]
    every = (*available(), Trained.name)
    names = [p for name in every for p in (shares if name == "tide" else [name])]
    if given.policies:
        names = [p for p in names if p.split(" ")[0] in given.policies.split(",")]
    seeds = range(given.seeds)
    for trace, workload in workloads(given.folder, given.days, given.only):
        scenario = WORLDS[given.world](workload)
        if scenario.batches is None and scenario.work_s >= scenario.slo_s:
            print(f"{trace}: left out, an item alone takes longer than the target", flush=True)
            continue
        days = round(scenario.duration_s / DAY_S, 4)
        same = [r for r in kept if (r.world, r.trace, r.days) == (given.world, trace, days)]
        done = {(r.policy, r.seed) for r in same}
        todo = [(p, seed) for seed in seeds for p in names if (p, seed) not in done]
        if not todo:
            continue
        rates = series(workload, min(60.0, workload.duration_s))
        fluid = float(np.sum(rates)) * 60.0 > MOST_ITEMS
        bound_usd = same[0].bound_usd if same else bound_of(scenario, 20.0, fluid).cost_usd
        for policy, seed in todo:
            begun = time.perf_counter()
            drawn = replace(scenario, workload=reseeded(workload, seed))
            run = run_one(given.world, trace, drawn, policy, bound_usd, fluid, seed)
            kept.append(run)
            with given.out.open("a") as file:
                file.write(json.dumps(asdict(run)) + "\n")
            took_s = time.perf_counter() - begun
            print(
                f"{trace}: {policy}: {run.ratio:.2f} x, {run.in_time:.2%} ({took_s:.0f} s)",
                flush=True,
            )
    return [
        r
        for r in kept
        if r.world == given.world
        and r.policy in names
        and r.seed in seeds
        and matches(given.only, r.trace)
    ]


# --- tables ---------------------------------------------------------------------------------------


def tables(runs: list[Run], world: str, brief: bool = False) -> str:
    """The tables of a world in Markdown: the traces that were not chosen on, then the others.

    brief: leave out the names of the traces and the table with a line for each.
    """
    parts = []
    for title, chosen in (("reported", False), ("settings were chosen on", True)):
        part = [run for run in runs if run.chosen_on == chosen]
        traces = sorted({run.trace for run in part})
        if not part:
            continue
        parts.append(f"{'####' if brief else '###'} {world}: {len(traces)} traces ({title})\n")
        parts.append(summary(part, traces) + "\n")
        if not brief:
            parts.append("Traces: " + ", ".join(traces) + ".\n")
        parts.extend(recorded(part))
        parts.extend(whole_days(part))
        if not brief:
            parts.append(by_trace(part, traces))
    return "\n".join(parts)


def summary(runs: list[Run], traces: list[str]) -> str:
    """One line a policy, the cheapest first; only policies that ran on all traces.

    *Kept* counts the traces on which the share after three hours is at most half a point below what
    was promised; *surges apart* is the same without the turns of surges.
    """
    lines = [
        "| policy | cost over the bound | in time, mean | after 3 h, least | kept | surges apart "
        "| rescales a day | undominated |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    rows = []
    every, runs = runs, over_seeds(runs)
    for policy in sorted({run.policy for run in runs}):
        mine = {run.trace: run for run in runs if run.policy == policy}
        if len(mine) < len(traces):
            continue
        ratio = math.exp(statistics.fmean(math.log(run.ratio) for run in mine.values()))
        in_time = statistics.fmean(run.in_time for run in mine.values())
        later = min(
            (r.in_time_later for r in mine.values() if r.in_time_later is not None), default=None
        )
        rescales = sum(r.rescales for r in mine.values()) / sum(r.days for r in mine.values())
        best = sum(not dominated(mine[trace], runs) for trace in traces)
        shown = "–" if later is None else f"{later:.1%}"
        kept = _kept(policy, [run.in_time_later for run in mine.values()])
        apart = _kept(policy, [run.in_time_apart for run in mine.values()])
        rows.append(
            (ratio, f"| {policy} | {_cost([r for r in every if r.policy == policy])} "
             f"| {in_time:.1%} | {shown} | {kept} | {apart} | {rescales:.0f} "
             f"| {best} of {len(traces)} |")
        )  # fmt: skip
    return "\n".join([*lines, *(line for _, line in sorted(rows))])


def recorded(runs: list[Run]) -> list[str]:
    """A sentence on the costs without generated days, none without such days."""
    real = [run for run in runs if not run.trace.startswith(GENERATED)]
    if not real or len(real) == len(runs):
        return []
    costs = [
        f"{policy} {_cost([run for run in real if run.policy == policy])}"
        for policy in sorted({run.policy for run in real})
    ]
    number = len({run.trace for run in real})
    return [f"Cost over the bound on the {number} recorded traces alone: {', '.join(costs)}.\n"]


def whole_days(runs: list[Run]) -> list[str]:
    """A sentence on the promises on traces of a day or more, none without such traces."""
    long = [run for run in over_seeds(runs) if run.days * DAY_S >= DAY_LIKE_S]
    said = []
    for policy in sorted({run.policy for run in long if " " in run.policy}):
        mine = [run for run in long if run.policy == policy]
        kept = _kept(policy, [run.in_time_later for run in mine])
        apart = _kept(policy, [run.in_time_apart for run in mine])
        said.append(f"{policy} on {kept}, with surges apart on {apart}")
    if not said:
        return []
    return [f"Promises kept on traces of {DAY_LIKE_S / 3600:.0f} h or more: {'; '.join(said)}.\n"]


def over_seeds(runs: list[Run]) -> list[Run]:
    """One run for each trace and policy: the mean over its seeds."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        found.setdefault((run.policy, run.trace), []).append(run)
    return [_mean(same) for same in found.values()]


def _mean(runs: list[Run]) -> Run:
    def mean(name: str) -> Any:
        values = [getattr(run, name) for run in runs]
        return None if None in values else statistics.fmean(values)

    names = ("in_time", "in_time_later", "in_time_apart", "cost_usd", "hosts_usd", "rescales")
    return replace(runs[0], **{name: mean(name) for name in names})


def _cost(runs: list[Run]) -> str:
    """Cost over the bound, as a geometric mean over traces; with its interval over seeds."""
    means = []
    for seed in sorted({run.seed for run in runs}):
        logs = [math.log(run.ratio) for run in runs if run.seed == seed]
        means.append(math.exp(statistics.fmean(logs)))
    return interval(means, "{:.2f}".format)


def _kept(policy: str, shares: Iterable[float | None]) -> str:
    """On how many traces a promised share was kept, of those that are long enough."""
    long = [share for share in shares if share is not None]
    _, _, promise = policy.partition(" ")
    if not promise or not long:
        return "–"
    promised = float(promise.rstrip("%")) / 100
    return f"{sum(share >= promised - HALF_A_POINT for share in long)} of {len(long)}"


def dominated(mine: Run, runs: list[Run]) -> bool:
    """Whether another policy was cheaper on the trace and at least as often in time."""
    return any(
        other.trace == mine.trace
        and other.policy.split(" ")[0] != mine.policy.split(" ")[0]
        and other.cost_usd < mine.cost_usd
        and other.in_time >= mine.in_time
        for other in runs
    )


def by_trace(runs: list[Run], traces: list[str]) -> str:
    """One line a trace: `drs`, `tide` and the cheapest of the others.

    Each cell has the cost over the bound and the share in time (and after the first 3 h).
    """
    shown = [p for p in sorted({run.policy for run in runs}) if p.split(" ")[0] in ("drs", "tide")]
    lines = [
        "| trace | " + " | ".join(shown) + " | cheapest of the others |",
        "|---|" + "---|" * (len(shown) + 1),
    ]
    runs = over_seeds(runs)
    for trace in traces:
        here = {run.policy: run for run in runs if run.trace == trace}
        cells = [_cell(here.get(policy)) for policy in shown]
        others = [run for name, run in here.items() if name not in shown]
        best = min(others, key=lambda run: run.cost_usd, default=None)
        cells.append("–" if best is None else f"{best.policy} {_cell(best)}")
        lines.append(f"| {trace} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(run: Run | None) -> str:
    if run is None:
        return "–"
    later = "" if run.in_time_later is None else f" ({run.in_time_later:.1%})"
    return f"{run.ratio:.2f}, {run.in_time:.1%}{later}"


def renewed(page: str, mark: str, text: str) -> str:
    """A page with other tables between two comments: a mark, such as the world, and the end."""
    before, begin, rest = page.partition(f"<!-- {mark} -->\n")
    _, end, after = rest.partition("<!-- end -->\n")
    if not begin or not end:
        sys.exit(f"the page has no marks <!-- {mark} --> and <!-- end -->: add both, on own lines")
    return f"{before}{begin}{text}{end}{after}"


# --- time of a turn -------------------------------------------------------------------------------


def turn_ms(turns: int = 2000) -> float:
    """CPU time of a decision of `tide` with a full memory, in ms: the best mean of 5 rounds."""
    policy, rng = create("tide", slo_s=2.0), np.random.default_rng(1)
    memory = policy.initial_memory()
    snapshot = replace(steady_snapshot(hosts=2, queue_length=0), interval_s=15.0)
    took_s = []
    for turn, rate in enumerate(5 * rng.lognormal(0, 0.4, turns)):
        measured = OperatorReading("work", float(rate), float(rate), queue_length=0.0)
        moment = replace(snapshot, time_s=15.0 * turn, operators=(measured,))
        begun_s = time.process_time()
        _, memory = policy.decide(moment, memory)
        took_s.append(time.process_time() - begun_s)
    fifth = turns // 5
    return 1000 * min(statistics.fmean(took_s[n * fifth : (n + 1) * fifth]) for n in range(5))


def main() -> None:
    reader = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    reader.add_argument(
        "folder", type=Path, nargs="?", help="traces; only generated days without it"
    )
    reader.add_argument("--world", choices=tuple(WORLDS), default="queues")
    reader.add_argument(
        "--only", default="", help="parts of the names of traces, separated by commas"
    )
    reader.add_argument("--policies", default="", help="comma-separated names; default: all")
    reader.add_argument("--shares", default="0.95,0.99,0.999", help="promised shares of tide")
    reader.add_argument("--seeds", type=int, default=1, help="runs of each policy on each trace")
    reader.add_argument("--days", type=float, default=1.0, help="first days of each trace")
    reader.add_argument("--out", type=Path, default=Path("docs/measured/policies.jsonl"))
    reader.add_argument("--again", default=(), nargs="*", help="policies to run again")
    reader.add_argument("--page", type=Path, help="renew the tables of this world in a page")
    reader.add_argument("--mark", default="", help="comment before the tables; default: the world")
    reader.add_argument("--brief", action="store_true", help="no table with a line for each trace")
    given = reader.parse_args()
    print(f"a turn of tide: {turn_ms():.3f} ms (goal: 0.5 ms)", flush=True)
    text = tables(run_all(given), given.world, given.brief)
    if given.page is not None:
        given.page.write_text(renewed(given.page.read_text(), given.mark or given.world, text))
    print(text)


if __name__ == "__main__":
    main()
