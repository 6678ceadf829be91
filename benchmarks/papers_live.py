"""The papers' experiments live on Spark, where they were only simulated.

    python benchmarks/papers_live.py                       # all experiments, what is missing
    python benchmarks/papers_live.py --only fig6 --runs 2  # one of them
    python benchmarks/papers_live.py --report              # only the page, from the log

Logo detection (DRS, Figs. 6, 9 and 10) waits for the paper's service times instead of computing, so
that slots are scarce and a small machine has room for 22 of them (`tidegate run logos --imitate`).
Machines are executors with five slots; three of all slots are left free, as in the paper.

Each run adds its rows to docs/measured/papers-live.jsonl, with the load of the machine during it. A
run that is there is not repeated. `others_cores` says how many cores other processes kept busy when
it began. The page docs/measured/papers-live.md is written from the log
alone: it holds the costs that were fitted to a run, from which other runs are simulated.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from papers_live_page import chain, write_page

from tidegate.apps.application import Application, application
from tidegate.apps.feed import TopicFeed
from tidegate.apps.latency import latencies_in, processed_s
from tidegate.apps.live import (
    LiveRun,
    check_parts,
    close_windows,
    run_live,
    start_feed,
    start_on_cluster,
)
from tidegate.codec import to_plain
from tidegate.errors import BackendError, TidegateError
from tidegate.lab.papers.drs.world import VLD_26
from tidegate.lifecycle import Stop, wait_until
from tidegate.loop.journal import Turn, read_journal
from tidegate.report.summary import summarise
from tidegate.simulation.calibrate import calibrate
from tidegate.spark.autoscaler.autoscaler import Autoscaler
from tidegate.spark.local.cluster import LocalCluster
from tidegate.spark.streams.file_topics import FileTopic
from tidegate.spark.streams.topology import RunningTopology

LEDGER = Path("docs/measured/papers-live.jsonl")
OUT = Path("out/bench-papers-live")
NAMES = ("extract", "match", "aggregate")
PERIOD_S = 12.0
"""Seconds between two batches of the first operator."""
TURN_S = 3 * PERIOD_S
"""Seconds between two decisions: frames reach the later operators in blocks, one a period."""
SEGMENT = 7
"""Periods for which the same frames are played, from their beginning, for each allocation."""
STATE_PARTITIONS = 4
PER_MACHINE, RESERVED = 5, 3
AS_PUBLISHED = {"min_gain": 0.0, "reserved": RESERVED, "headroom": 0.0, "catch_up_s": 0.0}
"""Parameters of DRS that are not in the paper, without effect."""
Row = dict[str, Any]
Say = Callable[[str], None]


@dataclass
class Live:
    """Logo detection as it runs."""

    run: LiveRun
    cluster: LocalCluster
    spark: Any
    running: RunningTopology
    feed: TopicFeed
    loads: list[float] = field(default_factory=list)

    def allocate(self, allocation: tuple[int, ...]) -> None:
        """Let the next batches have these tasks."""
        self.running.live_settings.set_parallelism(dict(zip(NAMES, allocation, strict=True)))

    def wait(self, seconds: float, say: Say) -> tuple[float, float]:
        """Wait, watch for failures and the machine's load; returns begin and end."""
        began_s = time.time()
        for _ in range(max(1, round(seconds / 4))):
            wait_until(lambda: False, seconds / max(1, round(seconds / 4)), None, self.check)
            self.loads.append(os.getloadavg()[0])
        say(f"{self.running.lag_items()} wait, load {self.loads[-1]:.1f}")
        return began_s, time.time()

    def play_again(self, say: Say) -> float:
        """Play the same frames from their beginning for a segment; returns when they began.

        Frames come in bursts of random size, which changes a mean by more than an allocation does.
        """
        began_s = self.feed.play(self.run.workload())
        self.wait(SEGMENT * PERIOD_S, say)
        return began_s

    def of_segment(self, began_s: float) -> Row:
        """Latencies of the frames of a segment.

        The first batch may still have tasks of the allocation before, the last of the next.
        """
        return self.figures(began_s + PERIOD_S, began_s + (SEGMENT - 2) * PERIOD_S)

    def check(self) -> None:
        """Raise BackendError if a part has failed."""
        check_parts(self.running, self.feed)

    def rest(self) -> None:
        """End the input and wait until all of it is processed."""
        self.feed.play(self.run.steady("none"))
        done = wait_until(
            lambda: not any(self.running.lag_items().values()), 180.0, None, self.check
        )
        if not done:
            raise BackendError("the input was not processed within three minutes")

    def scaler(self, name: str, dry_run: bool, **settings: Any) -> Autoscaler:
        """An autoscaler by DRS on these machines, with a journal of that name."""
        return Autoscaler(
            self.spark, slo="60s", policy="drs", journal=self.run.out / f"{name}.jsonl",
            interval=4.0 if dry_run else TURN_S, stabilise="10s", price_per_hour=0.0,
            dry_run=dry_run, without_guards=("all",),
            cluster=None if dry_run else self.cluster, seed=self.run.seed,
            **settings, **self.running.for_autoscaler(),
        )  # fmt: skip

    def figures(self, from_s: float, until_s: float) -> Row:
        """Latencies of the frames that arrived in between."""
        done = processed_s(self.running)
        assert done is not None
        taken_s, waiting = latencies_in(done, self.feed.published, from_s, until_s)
        if waiting or not len(taken_s):
            raise BackendError(f"{waiting} frames were not processed, {len(taken_s)} were")
        return {
            "frames": len(taken_s),
            "mean_s": float(taken_s.mean()),
            "sd_s": float(taken_s.std()),
            "p95_s": float(np.percentile(taken_s, 95)),
        }


@contextmanager
def logos(
    name: str, seed: int, machines: int, most: int, say: Say, slots: int = PER_MACHINE
) -> Iterator[Live]:
    """Logo detection on machines of five slots, after its first batches."""
    app = application("logos", imitate=True, trigger_s=PERIOD_S, state_partitions=STATE_PARTITIONS)
    out = OUT / f"{name}-{seed}"
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.jsonl"):
        old.unlink()
    run = LiveRun(
        app, out, seconds=3600.0, hosts=machines, max_hosts=most, slots=slots, seed=seed,
        trigger_s=0.1,
    )  # fmt: skip
    with ExitStack() as stack:
        cluster, spark, running = start_on_cluster(run, stack, say, Stop())
        feed = start_feed(run, running, stack)
        live = Live(run, cluster, spark, running, feed)
        for _ in range(2):  # batches that compile, and those after them
            before = {n: running.live_settings.counts(n).seen for n in NAMES}
            wait_until(
                lambda: all(running.live_settings.counts(n).seen > before[n] for n in NAMES),  # noqa: B023
                300.0, None, live.check,
            )  # fmt: skip
        yield live
        close_windows(app, running)
        running.stop()
        checked = app.compare(spark, running)
        if not checked.exact:
            raise BackendError(f"the results are not those of the reference: {checked.wrong}")


def fitted(journal: Path) -> Row:
    """The costs of a batch that a journal shows, by operator."""
    world = calibrate(read_journal(journal), journal.name).world
    settings = world.settings
    return {
        "overhead_s": {n: settings.overheads_s.get(n, settings.overhead_s) for n in NAMES},
        "overhead_scv": settings.overhead_scv,
        "fixed_s": {n: settings.fixed_works_s.get(n, settings.fixed_work_s) for n in NAMES},
        "trigger_s": {
            n: settings.trigger_intervals_s.get(n, settings.trigger_interval_s) for n in NAMES
        },
        "service_s": {o.name: o.service_time_s for o in world.topology.operators},
        "service_scv": {o.name: o.service_scv for o in world.topology.operators},
        "startup_s": world.offer.startup_s,
    }


def fig6(seed: int, say: Say) -> Iterator[Row]:
    """Six allocations of 22 slots one after the other, in an order that is drawn."""
    order = np.random.default_rng(seed).permutation(len(VLD_26.allocations))
    with logos("fig6", seed, 5, 5, say) as live:
        parts = []
        live.allocate(VLD_26.allocations[order[0]])
        limits = {"min_executors": 5, "max_executors": 5}
        with live.scaler("journal", dry_run=True, **limits):
            live.feed.play(live.run.workload())
            live.wait(PERIOD_S, say)
            for n in order:
                live.allocate(VLD_26.allocations[n])
                seen = len(live.loads)
                began_s = live.play_again(say)
                parts.append((VLD_26.allocations[n], began_s, live.loads[seen:]))
            live.rest()
        for allocation, began_s, loads in parts:
            found = live.of_segment(began_s)
            yield {"allocation": list(allocation), "load": float(np.mean(loads)), **found}
        yield {"fitted": fitted(live.run.out / "journal.jsonl")}


def fig9(seed: int, say: Say) -> Iterator[Row]:
    """A bad allocation, then the scheduler on the same machines."""
    start = ((8, 12, 2), (11, 9, 2))[seed % 2]
    parameters = {**AS_PUBLISHED, "t_max_s": 60.0}
    # One machine with all slots: as in the simulation, the number of machines is not at stake.
    with logos("fig9", seed, 1, 1, say, slots=5 * PER_MACHINE) as live:
        yield from _scheduled(live, start, parameters, 1, say)


def fig10(seed: int, say: Say) -> Iterator[Row]:
    """Four machines that miss the bound, then the scheduler, which may lease a fifth."""
    parameters = AS_PUBLISHED
    with logos("fig10", seed, 4, 5, say) as live:
        yield from _scheduled(live, (8, 8, 1), parameters, 5, say)


def _scheduled(
    live: Live, start: tuple[int, ...], parameters: Mapping[str, Any], most: int, say: Say
) -> Iterator[Row]:
    """Some periods with an allocation, then some with the scheduler."""
    live.allocate(start)
    machines = len(live.cluster.workers)
    changes: list[tuple[float, list[int], int]] = []

    def seen(turn: Turn) -> None:
        if turn.snapshot is None:
            return
        counts = turn.snapshot.requested.counts
        now = [counts[name] for name in NAMES]
        if not changes or changes[-1][1:] != (now, len(turn.snapshot.hosts)):
            changes.append((turn.snapshot.time_s, now, len(turn.snapshot.hosts)))
            say(f"{now} on {len(turn.snapshot.hosts)}: {turn.plan.reasons if turn.plan else ''}")

    with live.scaler("before", dry_run=True, min_executors=machines, max_executors=most):
        live.feed.play(live.run.workload())
        live.wait(PERIOD_S, say)
        before_s = live.play_again(say)
    costs = fitted(live.run.out / "before.jsonl")
    parameters = dict(parameters)
    # Unless it is given, the bound is between what the machines can reach and what one more can.
    few, many = (chain(costs).oldest_s(a) for a in (start, VLD_26.best))
    parameters.setdefault("t_max_s", (few + many) / 2)
    limits = {"min_executors": machines, "max_executors": most}
    with live.scaler("after", dry_run=False, parameters=parameters, on_turn=seen, **limits):
        decides_s = live.play_again(say)
        after_s = live.play_again(say)
        ended_s = time.time()
        live.rest()
    changes = [change for change in changes if change[0] <= ended_s]  # then there is no input
    yield {
        "start": list(start),
        "bound_s": parameters["t_max_s"],
        "changes": [[at - decides_s, now, hosts] for at, now, hosts in changes],
        "before": live.of_segment(before_s),
        # A late change is part of what the scheduler does, so it does not shorten the measurement.
        "after": live.of_segment(after_s),
        "load": float(np.mean(live.loads)),
        "fitted": costs,
    }


def state(seed: int, say: Say) -> Iterator[Row]:
    """Frequent patterns: the tasks of its stateful operator are changed while it runs."""
    app = application(
        "patterns", window=400, slide=100, instances=16, state_partitions=16, rebalances=True,
        wait_s=0.004,
    )  # fmt: skip
    out = OUT / f"state-{seed}"
    out.mkdir(parents=True, exist_ok=True)
    run = LiveRun(
        app, out, rate=1 / 8, seconds=3600.0, hosts=5, max_hosts=5, slots=PER_MACHINE, seed=seed,
        trigger_s=10.0,
    )  # fmt: skip
    order = np.random.default_rng(seed).permutation([4, 8, 16])
    with ExitStack() as stack:
        cluster, spark, running = start_on_cluster(run, stack, say, Stop())
        live = Live(run, cluster, spark, running, start_feed(run, running, stack))
        settings = running.live_settings
        settings.set_parallelism({"generate": 2, "detect": 16, "report": 1})
        seen = settings.counts("detect")
        wait_until(lambda: settings.counts("detect").seen > seen.seen, 300.0, None, live.check)
        live.feed.play(run.workload())
        live.wait(30.0, say)
        parts = []
        for tasks in order.tolist():
            settings.set_parallelism({"detect": tasks})
            first = _last_batch(running)
            live.wait(64.0, say)
            parts.append((tasks, first, _last_batch(running)))
        live.rest()
        topic = FileTopic(out / "data" / "topics" / "detect")
        used = {b.batch_id: b.parallelism for b in topic.batches()}
        progress = {p["batchId"]: p for p in running.queries["detect"].recentProgress}
        close_windows(app, running)
        running.stop()
        checked = app.compare(spark, running)
        if not checked.exact:
            raise BackendError(f"the results are not those of the reference: {checked.wrong}")
    for tasks, first, last in parts:
        # The first batch with other tasks loads the state of partitions that changed executors.
        mine = [progress[n] for n in range(first + 1, last + 1) if used.get(n) == tasks]
        batches = [[p["numInputRows"], p["durationMs"]["triggerExecution"] / 1000] for p in mine]
        yield {"tasks": tasks, "batches": batches, "load": float(np.mean(live.loads))}


def factory(seed: int, say: Say) -> Iterator[Row]:
    """One of VISP's patterns, with the operators' times and shares of the reproduction."""
    pattern = FACTORY_PATTERNS[(seed - 1) % len(FACTORY_PATTERNS)]
    app = application("factory", imitate=True, trigger_s=10.0)
    yield _by_policy(f"factory-{seed}", app, f"visp:{pattern}", 0.5, 240.0, seed, say)


def day(seed: int, say: Say) -> Iterator[Row]:
    """The exchange day with price bars, whose ticks wait for a call of 16 ms."""
    app = application("exchange-day", rate_per_s=300.0, enrich_ms=16, partitions=20)
    yield _by_policy(f"day-{seed}", app, "exchange-day", 1.0, 240.0, seed, say, trigger_s=3.0)


def bursts(seed: int, say: Say) -> Iterator[Row]:
    """Logo detection under bursts of 1 to 25 frames, with the paper's service times."""
    app = application("logos", imitate=True, trigger_s=5.0, state_partitions=STATE_PARTITIONS)
    yield _by_policy(f"bursts-{seed}", app, "video", 1.0, 240.0, seed, say)


FACTORY_PATTERNS = ("random_walk_2", "random_walk_1", "two_level", "stepwise")


def _by_policy(
    name: str,
    app: Application,
    load: str,
    rate: float,
    seconds: float,
    seed: int,
    say: Say,
    trigger_s: float = 0.1,
) -> Row:
    """A run under the default policy, on up to five machines of five slots."""
    out = OUT / name
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.jsonl"):
        old.unlink()
    run = LiveRun(
        app, out, rate=rate, seconds=seconds, warm_up_s=30.0, load=load, hosts=2, max_hosts=5,
        slots=PER_MACHINE, seed=seed, trigger_s=trigger_s, interval="10s", price_per_hour=0.0,
    )  # fmt: skip
    loads: list[float] = []

    def seen(turn: Turn) -> None:
        loads.append(os.getloadavg()[0])
        hosts = 0 if turn.snapshot is None else len(turn.snapshot.hosts)
        say(f"{hosts} machines, load {loads[-1]:.1f}")

    result = run_live(run, say, seen, Stop())
    if result.check is None or not result.check.exact or result.measured is None:
        # On a busy machine, some of the input may not be processed within two minutes of its end.
        raise BackendError(f"the results are not those of the reference: {result.check}")
    turns = list(read_journal(run.journal))
    summary = summarise(turns, run.slo_s, result.from_s, result.ended_s, result.measured)
    first = next(t.snapshot for t in turns if t.snapshot is not None)
    known = result.measured
    return {
        "load_shape": load,
        "slo_s": run.slo_s,
        "rate": rate,
        "input_s": seconds,
        "took_s": result.seconds,
        "first": len(first.hosts),
        "first_counts": dict(first.requested.counts),
        "mean_executors": summary.mean_executors,
        "p95_s": known.p95_s,
        "in_time": 1 - known.late / known.items,
        "items": known.items,
        "forwarded": {name: [count.seen, count.written] for name, count in result.counts.items()},
        "load": float(np.mean(loads)),
        "world": to_plain(calibrate(turns, name).world),
    }


def _last_batch(running: RunningTopology) -> int:
    progress = running.queries["detect"].lastProgress
    return -1 if progress is None else int(progress["batchId"])


EXPERIMENTS: dict[str, Callable[[int, Say], Iterator[Row]]] = {
    "fig6": fig6,
    "fig9": fig9,
    "fig10": fig10,
    "state": state,
    "factory": factory,
    "day": day,
    "bursts": bursts,
}


def cores_in_use(seconds: float = 5.0) -> float:
    """Cores that all processes of the machine keep busy, over some seconds."""

    def busy_ticks() -> int:
        user, nice, system, _idle, _waiting, *rest = map(
            int, Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:9]
        )
        return user + nice + system + sum(rest)

    before, began_s = busy_ticks(), time.monotonic()
    time.sleep(seconds)
    spent = (busy_ticks() - before) / os.sysconf("SC_CLK_TCK")
    return spent / (time.monotonic() - began_s)


def ledger() -> list[Row]:
    """All rows so far."""
    if not LEDGER.exists():
        return []
    return [json.loads(line) for line in LEDGER.read_text(encoding="utf-8").splitlines()]


JOURNALS = {
    "fig6": "journal.jsonl", "fig9": "before.jsonl", "fig10": "before.jsonl",
    "factory": "journal.jsonl", "day": "journal.jsonl", "bursts": "journal.jsonl",
}  # fmt: skip


def refit() -> None:
    """Fit the costs again, from the journals of runs that are still there."""
    rows = ledger()
    for row in rows:
        name, seed = row["experiment"], row["seed"]
        journal = OUT / f"{name}-{seed}" / JOURNALS.get(name, "")
        if "fitted" in row and journal.is_file():
            row["fitted"] = fitted(journal)
        if "world" in row and journal.is_file():
            row["world"] = to_plain(calibrate(read_journal(journal), f"{name}-{seed}").world)
    LEDGER.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", action="append", choices=EXPERIMENTS, help="default: all")
    parser.add_argument("--runs", type=int, default=3, help="of each experiment")
    parser.add_argument("--first-seed", type=int, default=1, help="seed of the first run")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--refit", action="store_true", help="fit costs again, from the journals")
    options = parser.parse_args()
    if options.refit:
        refit()
    have = {(row["experiment"], row["seed"]) for row in ledger()}
    wanted = [
        (name, seed)
        for seed in range(options.first_seed, options.first_seed + options.runs)
        for name in options.only or EXPERIMENTS
        if (name, seed) not in have
    ]
    failed = 0
    for name, seed in [] if options.report or options.refit else wanted:
        began_s = time.monotonic()

        def say(text: str, head: str = f"{name} {seed}", began_s: float = began_s) -> None:
            print(f"{head}, {time.monotonic() - began_s:.0f} s: {text}", flush=True)

        others = round(cores_in_use(), 2)
        say(f"other processes keep {others} cores busy")
        try:
            rows = list(EXPERIMENTS[name](seed, say))  # a run that fails leaves no row
        except TidegateError as error:
            failed += 1
            say(f"failed, to be run again by the same command: {error}")
            continue
        head_of = {"experiment": name, "seed": seed, "day": time.strftime("%Y-%m-%d")}
        head_of |= {"period_s": PERIOD_S, "others_cores": others}
        with LEDGER.open("a", encoding="utf-8") as file:
            for row in rows:
                whole = {**head_of, **row}
                file.write(json.dumps(whole) + "\n")
        say("written")
    write_page(ledger())
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
