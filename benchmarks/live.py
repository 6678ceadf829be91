"""Tidegate compared with the usual alternatives, live on a Spark cluster, with the same traffic.

    python benchmarks/live.py                              # both jobs, three runs of each method
    python benchmarks/live.py --job four-queries           # one job
    python benchmarks/live.py --job four-queries --method drs --runs 1
    python benchmarks/live.py --report                     # only the tables, from what has run

*four-queries* has four independent queries, each with its own latency target, and a load that rises
tenfold, falls to zero for two minutes and rises again. *morning* has one query and a load that
rises tenfold in five minutes. *static* always has the most executors. *spark* is Spark's own
dynamic allocation with its defaults, between one executor and as many. *drs* and *tide* are
Tidegate with these policies.

Latency is exact, from the creation of a row to the commit of its batch, as the checkpoints show it.
The results of each run must be those of a batch computation over the same input.

The figures of a run are written to OUT/results.json when it ends. A benchmark that was interrupted
continues where it stopped; --again forgets the runs of the chosen jobs and methods first. When all
runs of a job are there, its tables are written to docs/measured/live.md.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from live_jobs import DEFAULT_METHODS, JOBS, METHODS, Job, live, simulated
from scipy import stats

from tidegate.errors import TidegateError

PAGE = Path("docs/measured/live.md")

Record = Mapping[str, Any]


class Results:
    """The figures of all runs so far, in a file.

    path: the file; it is replaced as a whole whenever a run ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[dict[str, Any]] = (
            json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        )

    def of(self, job: Job, method: str) -> list[Record]:
        """The runs of a job by a method, by seed."""
        found = [
            r for r in self.records
            if (r["job"], r["method"], r["seconds"]) == (job.name, method, job.seconds)
        ]  # fmt: skip
        return sorted(found, key=lambda r: r["seed"])

    def forget(self, job: Job, method: str) -> None:
        """Drop the runs of a job by a method."""
        gone = [(r["job"], r["method"], r["seed"]) for r in self.of(job, method)]
        self._keep([r for r in self.records if (r["job"], r["method"], r["seed"]) not in gone])

    def add(self, record: dict[str, Any]) -> None:
        """Add a run."""
        self._keep([*self.records, record])

    def _keep(self, records: list[dict[str, Any]]) -> None:
        self.records = records
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(records, indent=1), encoding="utf-8")
        new.replace(self.path)


def half_width(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of a mean, by Student's distribution."""
    if len(values) < 2:
        return math.inf
    point = float(stats.t.ppf(0.975, len(values) - 1))
    return point * statistics.stdev(values) / math.sqrt(len(values))


def interval(values: Sequence[float], show: Callable[[float], str]) -> str:
    """The mean, with half the width of its 95 % interval if there are several values."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return show(mean)
    return f"{show(mean)} ± {show(half_width(values))}"


def comparison(job: Job, rows: Mapping[str, Sequence[Record]]) -> str:
    """All methods of a job, and each of its queries, as Markdown."""
    base = rows.get("static")
    static_s = statistics.fmean(r["executor_s"] for r in base) if base else math.nan
    lines = [
        "| scaling | runs | executor-seconds | of static | in time | p95 | rescales | lost "
        "| repeated |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for method, runs in rows.items():
        shares = [r["executor_s"] / static_s for r in runs]
        of_static = interval(shares, _percent(0)) if base else "–"
        lines.append(
            f"| {method} | {len(runs)} | {_over(runs, 'executor_s', '{:.0f}')} "
            f"| {of_static} | {interval(_all(runs, 'in_time'), _percent(2))} "
            f"| {_over(runs, 'p95_s', '{:.1f}')} s | {_over(runs, 'rescales', '{:.1f}')} "
            f"| {sum(r['lost'] for r in runs)} | {sum(r['repeated'] for r in runs)} |"
        )
    if len(job.slo_s) > 1:
        lines += ["", "| query | SLO | scaling | in time | p50 | p95 | p99 |",
                  "|---|---:|---|---:|---:|---:|---:|"]  # fmt: skip
        for query, slo_s in job.slo_s.items():
            for method, runs in rows.items():
                seen = [r["queries"][query] for r in runs if query in r["queries"]]
                if seen:
                    times = " | ".join(
                        f"{_over(seen, f'p{n}_s', '{:.1f}')} s" for n in (50, 95, 99)
                    )
                    share = interval(_all(seen, "in_time"), _percent(2))
                    lines.append(f"| {query} | {slo_s:.0f} s | {method} | {share} | {times} |")
    return "\n".join(lines)


def left_out(rows: Mapping[str, Sequence[Record]]) -> str:
    """What no figure contains: the rows before the input that counts."""
    early = [r["left_out"] for runs in rows.values() for r in runs if r.get("left_out")]
    if not early:
        return ""
    seconds, items = _all(early, "seconds"), _all(early, "items")
    shares = [e["in_time"] for e in early if e["in_time"] is not None]
    p95_s = [e["p95_s"] for e in early if e["p95_s"] is not None]
    figures = (
        f" {100 * min(shares):.0f} to {100 * max(shares):.0f} % of them were in time, with a "
        f"p95 of {min(p95_s):.0f} to {max(p95_s):.0f} s."
        if shares and p95_s
        else ""
    )
    return (
        f"Left out are the {min(seconds):.0f} to {max(seconds):.0f} s before the input of a run, "
        f"in which Spark compiles the queries, with {min(items):.0f} to {max(items):.0f} rows."
        f"{figures}"
    )


def verdict(rows: Mapping[str, Sequence[Record]]) -> str:
    """Whether the goals are met, by the means of the runs, in sentences."""
    if not all(rows.get(method) for method in ("static", "spark", "drs")):
        return ""

    def mean(method: str, figure: str) -> float:
        return statistics.fmean(_all(rows[method], figure))

    def of_query(method: str, query: str) -> float:
        return statistics.fmean(r["queries"][query]["in_time"] for r in rows[method])

    share = mean("drs", "executor_s") / mean("static", "executor_s")
    behind = {
        query: 100 * (of_query("static", query) - of_query("drs", query))
        for query in rows["drs"][0]["queries"]
    }
    worst = max(behind, key=lambda query: behind[query])
    cheaper = mean("drs", "executor_s") < mean("spark", "executor_s")
    sooner = mean("drs", "in_time") > mean("spark", "in_time")
    return (
        f"Goals, by the means of the runs: at most 60 % of the static executor-seconds: "
        f"{100 * share:.0f} %, {_met(share <= 0.6)}. A share in time of at most one percentage "
        f"point below static, for every query: {behind[worst]:+.2f} points below for {worst}, "
        f"{_met(behind[worst] <= 1)}. Better than dynamic allocation in executor-seconds: "
        f"{_met(cheaper)}; in the share in time: {_met(sooner)}."
    )


def gaps(job: Job, runs: Sequence[Record]) -> str:
    """How far the simulator, calibrated on the first run, is from the others, as Markdown."""
    first, *others = runs
    lines = ["| scaling | run | figure | live | simulated | gap |", "|---|---:|---|---:|---:|---:|"]
    for other in others:
        report = simulated(job, first, other)
        pairs = [
            ("mean executors", other["mean_executors"], report.host_seconds / report.duration_s),
            ("p95 latency, s", other["p95_s"], report.latency_p95_s or math.nan),
            ("in time", other["in_time"], _share_in_time(report)),
        ]
        for name, real, model in pairs:
            gap = (model - real) / real if real else math.nan
            lines.append(
                f"| {other['method']} | {other['seed']} | {name} | {real:.3g} | {model:.3g} "
                f"| {gap:+.0%} |"
            )
    return "\n".join(lines)


def _share_in_time(report: Any) -> float:
    """Over the items of all queries, each by its own SLO, where the report has that."""
    if len(report.operators) > 1 and report.compliance is not None:
        return float(report.compliance.real_time)
    return float(report.slo_compliance or 0.0)


def _all(runs: Sequence[Record], figure: str) -> list[float]:
    return [float(run[figure]) for run in runs]


def _over(runs: Sequence[Record], figure: str, shape: str) -> str:
    return interval(_all(runs, figure), shape.format)


def _percent(digits: int) -> Callable[[float], str]:
    return lambda value: f"{100 * value:.{digits}f} %"


def _met(goal: bool) -> str:
    return "met" if goal else "not met"


def write(page: Path, name: str, text: str) -> None:
    """Replace what a page has between the comments ``name`` and ``end``."""
    before, mark, rest = page.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n")
    if not mark:
        sys.exit(f"{page} has no comment <!-- {name} -->")
    _, end, after = rest.partition("<!-- end -->")
    page.write_text(f"{before}{mark}{text}\n{end}{after}", encoding="utf-8")


def report(job: Job, results: Results, methods: Sequence[str], runs: int, page: Path) -> None:
    """Print the tables of a job, and write them to the page if all its runs are there."""
    rows = {m: results.of(job, m)[:runs] for m in methods}
    rows = {method: found for method, found in rows.items() if found}
    if not rows:
        return
    parts = (comparison(job, rows), left_out(rows), verdict(rows))
    text = "\n\n".join(part for part in parts if part)
    print(f"\n{job.name}\n\n{text}\n", flush=True)
    simulations = []
    for method in ("static", "drs"):
        if len(rows.get(method, ())) > 1:
            try:
                simulations.append(gaps(job, rows[method]))
            except TidegateError as error:
                simulations.append(f"{method} cannot be simulated: {error}")
    simulation = "\n\n".join(simulations)
    print(f"{simulation}\n", flush=True)
    complete = all(len(rows.get(method, ())) == runs for method in DEFAULT_METHODS)
    if complete and runs > 1 and set(DEFAULT_METHODS) <= set(methods):
        write(page, job.name, text)
        write(page, f"{job.name} simulated", simulation)
        print(f"written to {page}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--job", action="append", choices=JOBS, help="default: all")
    parser.add_argument(
        "--method", action="append", choices=METHODS, help="default: static, spark, drs, tide"
    )
    parser.add_argument("--runs", type=int, default=3, help="of each method")
    parser.add_argument("--seconds", type=float, help="of input; default: the job's own")
    parser.add_argument("--silence", type=float, default=120.0, help="seconds without input")
    parser.add_argument("--again", action="store_true", help="forget earlier runs of these")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--out", type=Path, default=Path("out/live"))
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    methods = options.method or list(DEFAULT_METHODS)
    results = Results(options.out / "results.json")
    jobs = [JOBS[name](options.seconds, options.silence) for name in options.job or JOBS]
    if options.again:
        for job in jobs:
            for method in methods:
                results.forget(job, method)
    # Methods take turns, so that a machine that slows down is slow for all of them.
    wanted = [
        (job, method, seed) for job in jobs for seed in range(1, options.runs + 1)
        for method in methods
        if seed not in {r["seed"] for r in results.of(job, method)}
    ]  # fmt: skip
    failed = 0
    for number, (job, method, seed) in enumerate([] if options.report else wanted, 1):
        began_s = time.monotonic()

        def say(
            text: str, head: str = f"{number}/{len(wanted)} {job.name} {method} {seed}"
        ) -> None:
            print(f"{head}, {time.monotonic() - began_s:.0f} s: {text}", flush=True)  # noqa: B023

        try:
            record = live(job, method, options.out / job.name / f"{method}-{seed}", seed, say)
        except TidegateError as error:
            failed += 1
            say(f"failed, to be run again by the same command: {error}")
        else:
            results.add(record)
            say(f"{record['executor_s']:.0f} executor-seconds, {record['in_time']:.2%} in time")
    everything = list(METHODS) if options.method is None else methods
    for job in jobs:
        report(job, results, everything, options.runs, options.page)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
