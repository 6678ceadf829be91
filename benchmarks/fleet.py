"""FUGU's experiment, live and small: a dozen queries, up to four hosts, a compressed exchange day.

Each of the three techniques runs the same queries (`price_queries`) on the same trades
(`ExchangeDay`, accelerated), with an elastic set of hosts. For each, the table shows the
utilisation of the hosts (least, mean, most), the latency from the file of a trade to the commit of
its batch (p10, median, p90), the hosts, and the moves with their pauses. It also shows the same day
in a simulated fleet, which is calibrated from the live journal, and the difference.

    python benchmarks/fleet.py [--policies sarsa …] [--minutes 4] [--queries 12] [--hosts 4]

Results are kept in `--out`. A second call runs only what is missing there, or everything with
`--again`. It then repeats the simulations and writes ``table.md``.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import shutil
import signal
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.errors import JournalError, TidegateError
from tidegate.fleet.manager import FleetManager, fleet_policy
from tidegate.fleet.providers import NETWORK_MBPS, EmbeddedProvider
from tidegate.fleet.sample_queries import price_queries
from tidegate.fleet.world import FleetWorld
from tidegate.lab.fleet_calibration import (
    FleetSummary,
    calibrate_fleet,
    match_lengths,
    simulate_fleet,
    summarise,
)
from tidegate.loop.journal import Turn, read_journal
from tidegate.policies.base import Policy
from tidegate.simulation.calibrate import Fit
from tidegate.workloads.papers import ExchangeDay

EVERY = ("local-threshold", "global-threshold", "sarsa")
SECTORS, COMPANIES = 5, 30
EXPECTED_CORES = 0.02
"""Cores of a query before it was measured; with this value twelve queries start on two hosts."""
PLACED_S = 600.0
SAID_S = 15.0
PARTS = 6
DATA = ("ticks", "ticks-read", "results", "hosts", "fleet")
READABLE_S = 600
"""Seconds after which a file of trades leaves the folder that every batch of every query lists."""


def rates(given: argparse.Namespace) -> list[int]:
    """Trades in each second: the warm-up at the first rate of the day, then the day."""
    day, rng = ExchangeDay(seed=given.seed), np.random.default_rng(given.seed)
    seconds = round(given.minutes * 60)
    moments = [0.0] * given.warm_up + [day.duration_s * n / seconds for n in range(seconds)]
    return [int(rng.poisson(given.rate * day.rate(t) / day.level_per_s)) for t in moments]


def feed(folder: Path, rows: list[int], ended: threading.Event) -> None:
    """Write the trades of a day, one file per second; the event time is the time of writing."""
    rng = np.random.default_rng(2)
    number, began_s = 0, time.time()
    for second, count in enumerate(rows):
        due_s = began_s + second
        if ended.wait(max(0.0, due_s - time.time())):
            return
        companies = rng.integers(COMPANIES, size=count).tolist()
        prices = rng.integers(1000, 9999, size=count).tolist()
        lines = [
            f'{{"id": {number + n}, "ts": {due_s:.3f}, "comp": "c{company}", '
            f'"sector": {company % SECTORS}, "price": {price / 100}}}\n'
            for n, (company, price) in enumerate(zip(companies, prices, strict=True))
        ]
        number += count
        hidden = folder / f".{second}"
        hidden.write_text("".join(lines), encoding="utf-8")
        hidden.rename(folder / f"{second:06}.json")
        if second >= READABLE_S:
            name = f"{second - READABLE_S:06}.json"
            (folder / name).rename(folder.with_name("ticks-read") / name)


class Live:
    """One technique on real hosts; `run` leaves its result in a folder."""

    def __init__(self, policy: str, given: argparse.Namespace, folder: Path) -> None:
        self.name, self.given, self.folder = policy, given, folder
        shutil.rmtree(folder, ignore_errors=True)
        ticks = folder / "ticks"
        ticks.mkdir(parents=True)
        ticks.with_name("ticks-read").mkdir()
        self.rows = rates(given)
        self.ended = threading.Event()
        self.feeder = threading.Thread(target=feed, args=(ticks, self.rows, self.ended))
        provider = EmbeddedProvider(
            f"bench-{policy}",
            folder / "hosts",
            cores=1,
            network_mbps=given.network_mbps,
            queries_mb=given.memory_mb,
            max_hosts=given.hosts,
            spares=1,
        )
        provider.capacity = replace(provider.capacity, cpu_cores=given.host_cores)
        self.world = FleetWorld(
            provider, folder / "fleet", interval_s=given.interval, silence_s=60.0
        )
        self.world.add(
            price_queries(
                str(ticks),
                str(folder / "results"),
                given.queries,
                seed=1,
                sectors=SECTORS,
                trigger_s=given.trigger,
                cpu_cores=EXPECTED_CORES,
            )
        )
        chosen = policy_of(policy, given)
        self.manager = FleetManager(self.world, chosen, None, folder / "journal.jsonl")
        self.why = ""

    def run(self) -> dict[str, Any]:
        """Run the day and return the result; TidegateError if there is none."""
        began = time.monotonic(), time.process_time()
        player = threading.Thread(target=self._play)
        player.start()
        try:
            self.manager.run()
        finally:
            self.ended.set()
            player.join()
            self.world.provider.close()  # also if the loop was interrupted
        if self.why:
            raise TidegateError(self.why)
        wall_s, own_s = time.monotonic() - began[0], time.process_time() - began[1]
        pauses = [pause for entry in self.world.queries.values() for pause in entry.pauses_s]
        result = {
            "settings": settings_of(self.given),
            "from_s": self.from_s + self.given.warm_up,
            "until_s": self.from_s + len(self.rows),
            "rows": self.rows[self.given.warm_up :],
            "pauses_s": pauses,
            "machine_cores": (os.cpu_count() or 1) - own_s / wall_s,
        }
        (self.folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
        for done in () if self.given.keep_data else DATA:
            shutil.rmtree(self.folder / done, ignore_errors=True)
        return result

    def _play(self) -> None:
        """Start the day when the first query runs; stop the fleet at its end."""
        end_s, said_s = time.monotonic() + PLACED_S, 0.0
        while not self.ended.wait(0.5):
            if self.feeder.ident is None:
                if any(entry.host for entry in list(self.world.queries.values())):
                    self.from_s = time.time()
                    self.feeder.start()
                elif time.monotonic() > end_s:
                    self.why = f"no query ran within {PLACED_S:g} s: see {self.folder}/hosts/logs"
                    break
            elif not self.feeder.is_alive():
                break
            if time.monotonic() > said_s + SAID_S:
                said_s = time.monotonic()
                print(f"  {self.name}: {self._line()}", flush=True)
        if self.feeder.is_alive():
            self.why = "it was interrupted"
            self.feeder.join()
        self.manager.stop()

    def _line(self) -> str:
        status = self.manager.status()
        if self.feeder.ident is None:
            starting = ", ".join(f"{h['host']} {h['status']}" for h in status["hosts"])
            return f"waiting for hosts ({starting or 'none yet'})"
        played_s = time.time() - self.from_s - self.given.warm_up
        day = f"{played_s:4.0f} of {self.given.minutes * 60:.0f} s" if played_s > 0 else "warm-up"
        busy = [f"{h['utilisation']:.2f}" for h in status["hosts"] if h["utilisation"] is not None]
        placed = sum(q["status"] == "running" for q in status["queries"])
        seen = self.manager.last.snapshot if self.manager.last else None
        late_s = seen.latency.p50_s if seen is not None else None
        late = "" if late_s is None else f", latency {late_s:.1f} s"
        return (
            f"{day}, {len(status['hosts'])} hosts busy {' '.join(busy) or '–'}, "
            f"{placed}/{len(status['queries'])} queries run, {status['moves']} moves{late}"
        )


def policy_of(name: str, given: argparse.Namespace) -> Policy:
    return fleet_policy(
        name, target=given.target, lower=given.lower, upper=given.upper, max_hosts=given.hosts
    )


def settings_of(given: argparse.Namespace) -> dict[str, Any]:
    names = ["minutes", "queries", "hosts", "rate", "trigger", "warm_up"]
    names += ["host_cores", "target", "lower", "upper", "network_mbps", "memory_mb"]
    names += ["interval", "seed"]
    return {name: getattr(given, name) for name in names}


def kept(folder: Path, given: argparse.Namespace) -> dict[str, Any] | None:
    """The result of an earlier run with the same settings."""
    file = folder / "result.json"
    if not file.exists():
        return None
    result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return result if result["settings"] == settings_of(given) else None


@dataclass(frozen=True)
class Judged:
    """The day of a technique, live and simulated.

    hosts: mean number in each part of the day. warm_up: the time before the day, which does not
    count; None if it had too few batches.
    """

    live: FleetSummary
    simulated: FleetSummary
    hosts: tuple[list[float], list[float]]
    rows: list[float]
    fits: tuple[Fit, ...]
    pauses_s: list[float]
    warm_up: FleetSummary | None = None


def hosts_of(turns: list[Turn], from_s: float, until_s: float) -> list[float]:
    """Mean number of running hosts in each part of a day."""
    seen: list[list[int]] = [[] for _ in range(PARTS)]
    for turn in turns:
        if turn.snapshot and from_s <= turn.snapshot.time_s < until_s:
            part = int(PARTS * (turn.snapshot.time_s - from_s) / (until_s - from_s))
            seen[part].append(len(turn.snapshot.running_hosts))
    return [float(np.mean(part)) if part else math.nan for part in seen]


def judge(policy: str, given: argparse.Namespace, folder: Path, result: dict[str, Any]) -> Judged:
    """Summarise a result, live and simulated."""
    from_s, until_s = result["from_s"], result["until_s"]
    turns = list(read_journal(folder / "journal.jsonl"))
    live = summarise(turns, from_s, until_s)
    day = [t for t in turns if t.snapshot and from_s <= t.snapshot.time_s <= until_s]
    rows = np.array(result["rows"], np.float64)
    model = calibrate_fleet(
        day,
        float(rows.mean()),
        pauses_s=result["pauses_s"],
        machine_cores=result["machine_cores"],
    )
    chosen = policy_of(policy, given)
    model = match_lengths(model, day, chosen, rows)
    simulated = simulate_fleet(model, chosen, rows, seed=1)
    return Judged(
        live,
        summarise(simulated, 0.0, float(len(rows)) + 1),
        (hosts_of(turns, from_s, until_s), hosts_of(simulated, 0.0, float(len(rows)))),
        [float(part.mean()) for part in np.array_split(rows, PARTS)],
        model.fits,
        result["pauses_s"],
        warm_up_of(turns, from_s),
    )


def warm_up_of(turns: list[Turn], from_s: float) -> FleetSummary | None:
    """The time before the day; None if it had too few batches."""
    try:
        return summarise(turns, -math.inf, from_s)
    except JournalError:
        return None


def table(found: dict[str, Judged]) -> str:
    """The Markdown tables."""
    lines = [
        "| technique | | utilisation (least, mean, most) | latency s (p10, median, p90) | hosts "
        "| moves | pause s (mean, most) |",
        "|---|---|---|---|---:|---:|---:|",
    ]
    for policy, of in found.items():
        took = of.pauses_s
        pause = f"{np.mean(took):.1f}, {max(took):.1f}" if took else "–"
        lines += [
            f"| {policy} | live | {row_of(of.live)} | {pause} |",
            f"| | simulated | {row_of(of.simulated)} | |",
            f"| | gap | {gap_of(of.live, of.simulated)} | |",
        ]
        before = "too few batches | | |" if of.warm_up is None else row_of(of.warm_up)
        lines.append(f"| | warm-up, not counted | {before} | |")
    first = next(iter(found.values()))
    lines += ["", "Mean number of running hosts in each part of the day:", ""]
    lines.append("| | | " + " | ".join(f"{n + 1}/{PARTS}" for n in range(PARTS)) + " |")
    lines.append("|---|---|" + "---:|" * PARTS)
    lines.append("| trades a second | | " + " | ".join(f"{rate:.0f}" for rate in first.rows) + " |")
    for policy, of in found.items():
        for name, kind, hosts in zip((policy, ""), ("live", "simulated"), of.hosts, strict=True):
            lines.append(f"| {name} | {kind} | " + " | ".join(f"{n:.1f}" for n in hosts) + " |")
    lines += ["", "Calibration of the simulated fleets:", ""]
    names = [fit.name for fit in first.fits]
    lines.append("| technique | " + " | ".join(names) + " |")
    lines.append("|---|" + "---:|" * len(names))
    for policy, of in found.items():
        shown = [
            "–" if fit.value is None else f"{fit.value:.3g} {fit.unit}".strip() for fit in of.fits
        ]
        lines.append(f"| {policy} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def row_of(of: FleetSummary) -> str:
    busy = ", ".join(f"{share:.2f}" for share in of.utilisation)
    late = ", ".join(f"{s:.1f}" for s in of.latency_s)
    return f"{busy} | {late} | {of.hosts:.2f} | {of.moves}"


def gap_of(live: FleetSummary, simulated: FleetSummary) -> str:
    busy = ", ".join(
        f"{b - a:+.2f}" for a, b in zip(live.utilisation, simulated.utilisation, strict=True)
    )
    late = ", ".join(
        f"{b / a - 1:+.0%}" for a, b in zip(live.latency_s, simulated.latency_s, strict=True)
    )
    return (
        f"{busy} | {late} | {simulated.hosts - live.hosts:+.2f} | {simulated.moves - live.moves:+}"
    )


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def main() -> int:
    reader = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    reader.add_argument("--policies", nargs="+", default=EVERY, choices=EVERY)
    reader.add_argument("--minutes", type=float, default=4.0, help="length of the day as played")
    reader.add_argument("--warm-up", type=int, default=60, help="uncounted seconds before it")
    reader.add_argument("--queries", type=int, default=12)
    reader.add_argument("--hosts", type=int, default=4, help="largest number of hosts")
    reader.add_argument("--rate", type=float, default=1500.0, help="trades per second on average")
    reader.add_argument("--trigger", type=float, default=30.0, help="seconds between batches")
    reader.add_argument("--host-cores", type=float, default=0.25, help="CPU cores of a host")
    reader.add_argument(
        "--network-mbps", type=float, default=NETWORK_MBPS, help="network of a host, Mbit/s"
    )
    reader.add_argument("--memory-mb", type=float, help="memory of a host for its queries, MB")
    reader.add_argument("--interval", type=float, default=5.0, help="seconds between decisions")
    reader.add_argument("--seed", type=int, default=1, help="random seed of the day")
    reader.add_argument("--keep-data", action="store_true", help="keep trades and results")
    reader.add_argument("--target", type=float, default=0.6, help="utilisation of a host")
    reader.add_argument("--lower", type=float, default=0.4, help="below it, hosts are released")
    reader.add_argument("--upper", type=float, default=0.8, help="above it, hosts are relieved")
    reader.add_argument("--out", type=Path, default=Path("out/bench-fleet"))
    reader.add_argument("--again", action="store_true", help="repeat runs that have a result")
    given = reader.parse_args()
    logging.basicConfig(level=logging.ERROR, format="  %(message)s")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    found: dict[str, Judged] = {}
    failed = []
    for policy in given.policies:
        folder = (given.out / policy).resolve()
        try:
            result = None if given.again else kept(folder, given)
            print(f"{policy}: {'kept from an earlier run' if result else 'runs'}", flush=True)
            result = result or Live(policy, given, folder).run()
            found[policy] = judge(policy, given, folder, result)
            live = asdict(found[policy].live)
            (folder / "summary.json").write_text(json.dumps(live, indent=1), encoding="utf-8")
        except TidegateError as error:
            failed.append(policy)
            print(f"{policy}: {error}", flush=True)
        except KeyboardInterrupt:
            print(f"{policy}: interrupted; call again to continue", flush=True)
            return 130
    if found:
        text = table(found)
        (given.out / "table.md").write_text(text, encoding="utf-8")
        print(f"\n{text}\nwritten to {given.out / 'table.md'}")
        print("Full scale (35 queries, 10 hosts, 700 points), simulated: tidegate reproduce fugu")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
