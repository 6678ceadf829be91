"""FUGU's experiment, live and small: a dozen queries, up to four hosts, a compressed exchange day.

Each of the three techniques gets the same day: trades by `ExchangeDay`, played so many times
faster, into the same queries (`price_queries`), on hosts that come and go. Printed for each:
utilisation of the hosts (least, mean, most), latency from a trade's file to the commit of the batch
that read it (p10, median, p90), hosts, moves and their pauses.

    python benchmarks/fleet.py [--policies sarsa …] [--minutes 5] [--queries 12] [--hosts 4]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.fleet.manager import FleetManager, fleet_policy
from tidegate.fleet.prices import price_queries
from tidegate.fleet.providers import EmbeddedProvider
from tidegate.fleet.world import FleetWorld
from tidegate.journal import read_journal
from tidegate.workloads.exchange import ExchangeDay

SECTORS = 5
COMPANIES = 30


def feed(folder: Path, minutes: float, mean_per_s: float, ended: threading.Event) -> None:
    """Write a day's trades, a file a second; event time is the time of writing."""
    day = ExchangeDay(seed=1)
    lots = np.random.default_rng(1)
    seconds, number = round(minutes * 60), 0
    for second in range(seconds):
        due_s = time.time()
        rate = day.rate(day.duration_s * second / seconds) / day.level_per_s
        rows = []
        for _ in range(int(lots.poisson(mean_per_s * rate))):
            number += 1
            company = int(lots.integers(COMPANIES))
            rows.append(
                {
                    "id": number,
                    "ts": due_s,
                    "comp": f"c{company}",
                    "sector": company % SECTORS,
                    "price": round(float(lots.uniform(10, 99)), 2),
                }
            )
        hidden = folder / f".{second}"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        hidden.rename(folder / f"{second:06}.json")
        if ended.wait(max(0.0, due_s + 1 - time.time())):
            return


def run(policy: str, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    ticks, results = folder / "ticks", folder / "results"
    ticks.mkdir(parents=True)
    queries = price_queries(str(ticks), str(results), given.queries, seed=1, sectors=SECTORS)
    provider = EmbeddedProvider("bench", folder / "hosts", cores=1, max_hosts=given.hosts, spares=1)
    world = FleetWorld(provider, folder / "fleet", silence_s=60.0)
    world.add(queries)
    journal = folder / "fleet" / "journal.jsonl"
    manager = FleetManager(world, fleet_policy(policy, max_hosts=given.hosts), None, journal)
    ended = threading.Event()
    feeder = threading.Thread(target=feed, args=(ticks, given.minutes, given.rate, ended))

    def play() -> None:
        while not all(entry.host for entry in world.queries.values()) and not ended.is_set():
            time.sleep(1)
        feeder.start()
        feeder.join()
        manager.stop()

    player = threading.Thread(target=play)
    player.start()
    try:
        manager.run()
    finally:
        ended.set()
        player.join()
    pauses = [pause for entry in world.queries.values() for pause in entry.pauses_s]
    return summary(journal, pauses)


def summary(journal: Path, pauses: list[float]) -> dict[str, Any]:
    busy: list[tuple[float, float, float]] = []
    delays: list[float] = []
    hosts: list[int] = []
    for turn in read_journal(journal):
        if turn.snapshot is None or turn.snapshot.latency.mean_s is None:
            continue
        used = [h.utilisation for h in turn.snapshot.running_hosts if h.utilisation is not None]
        if used:
            busy.append((min(used), statistics.fmean(used), max(used)))
        hosts.append(len(turn.snapshot.hosts))
        for reading in turn.snapshot.operators:
            delays += reading.recent_durations_s[-1:] if reading.recent_durations_s else ()
    if not busy or len(delays) < 2:
        raise SystemExit("nothing was measured: give it more --minutes")
    tenths = statistics.quantiles(delays, n=10)
    return {
        "utilisation": [statistics.fmean(column) for column in zip(*busy, strict=True)],
        "latency_s": [tenths[0], tenths[4], tenths[8]],
        "hosts": statistics.fmean(hosts),
        "moves": len(pauses),
        "pause_s": statistics.fmean(pauses) if pauses else None,
    }


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    every = ["local-threshold", "global-threshold", "sarsa"]
    reader.add_argument("--policies", nargs="+", default=every, choices=every)
    reader.add_argument("--minutes", type=float, default=5.0, help="length of the day as played")
    reader.add_argument("--queries", type=int, default=12)
    reader.add_argument("--hosts", type=int, default=4, help="at most")
    reader.add_argument("--rate", type=float, default=500.0, help="trades per second on average")
    given = reader.parse_args()
    print("technique         utilisation          latency s            hosts  moves  pause s")
    for policy in given.policies:
        with tempfile.TemporaryDirectory(prefix="tidegate-fleet-") as folder:
            row = run(policy, given, Path(folder))
        low, mean, high = row["utilisation"]
        p10, p50, p90 = row["latency_s"]
        pause = "–" if row["pause_s"] is None else f"{row['pause_s']:.1f}"
        print(
            f"{policy:16}  {low:.2f} / {mean:.2f} / {high:.2f}   {p10:5.1f} {p50:5.1f} {p90:5.1f}"
            f"  {row['hosts']:7.2f}  {row['moves']:5}  {pause:>7}",
            flush=True,
        )


if __name__ == "__main__":
    main()
