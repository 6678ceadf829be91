"""FUGU's experiment with 35 queries for an hour, beside a simulator calibrated on another run.

Two runs on real hosts follow each other, each an exchange day of its own seed: a short one for the
calibration, then the long one. The network of a host in the long run is chosen such that CPU and
network are equally scarce at the mean load of the short one, and its memory is somewhat more
plentiful, so that each can bind. The simulator
never sees the long run, except for its trades and the deployment at its beginning.

    python benchmarks/fleet_day.py [--minutes 60] [--calibration 10] [--queries 35] [--hosts 6]

Results are kept in `--out`; a second call runs only what is missing there. It compares every result
of every query with a computation over the trades, and writes ``table.md``. With `--report PAGE`, it
also writes the tables into a page, between the lines ``<!-- figures -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

import fleet
from tidegate.errors import TidegateError
from tidegate.fleet.providers import NETWORK_MBPS
from tidegate.fleet.sample_queries import query_parameters
from tidegate.lab.fleet_calibration import (
    FleetModel,
    calibrate_fleet,
    latencies,
    match_lengths,
    simulate_fleet,
)
from tidegate.loop.journal import Turn, read_journal
from tidegate.model import Snapshot

ROOMY = 1.4
"""How much more plentiful the memory of a host is than its CPU, at the mean load."""
LATE_S = 10
"""Seconds that the queries wait for late trades."""
Row = tuple[str, str, Decimal, Decimal, Decimal, Decimal, Decimal]


# --- figures ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figures:
    """A day in figures.

    hosts: mean number of leased hosts. utilisation, memory, network: mean shares of the running
    hosts. median_s, p95_s: of the latencies of all batches. within: share of batches whose latency
    is within the target. moves: number of moves. tightest: share of the measurements of hosts in
    which the network, not the CPU, was the most used resource. parts: mean number of hosts in each
    part of the day.
    """

    hosts: float
    utilisation: float
    memory: float | None
    network: float | None
    median_s: float
    p95_s: float
    within: float
    moves: int
    tightest: dict[str, float]
    parts: list[float]
    batches: int


def figures(turns: list[Turn], from_s: float, until_s: float, target_s: float) -> Figures:
    """The figures of the turns between two times, in seconds. target_s: target latency."""
    seen = [t.snapshot for t in turns if t.snapshot and from_s <= t.snapshot.time_s <= until_s]
    hosts = [h for s in seen for h in s.running_hosts if h.utilisation is not None]
    delays = latencies(turns, from_s, until_s)
    names = ("cpu_cores", "memory_mb", "network_mbps")
    return Figures(
        float(np.mean([len(s.hosts) for s in seen])),
        float(np.mean([h.utilisation for h in hosts])),
        mean([h.memory_share for h in hosts]),
        mean([h.network_share for h in hosts]),
        float(np.median(delays)),
        float(np.quantile(delays, 0.95)),
        float(np.mean([delay <= target_s for delay in delays])),
        sum(moved(a, b) for a, b in pairwise(seen)),
        {name: float(np.mean([h.tightest == name for h in hosts])) for name in names},
        fleet.hosts_of(turns, from_s, until_s),
        len(delays),
    )


def mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def moved(before: Snapshot, after: Snapshot) -> int:
    homes = {instance.operator: instance.host for instance in before.instances}
    return sum(homes.get(i.operator, i.host) != i.host for i in after.instances)


def balanced(turns: list[Turn], host_cores: float) -> tuple[float, float]:
    """The network (Mbit/s) and the memory (MB) of a host that can bind like its CPU.

    At the mean load, network is as scarce as CPU, and memory is `ROOMY` times as plentiful.
    """
    loads = [i.load for t in turns if t.snapshot for i in t.snapshot.instances if i.load]
    cores = sum(load.cpu_cores for load in loads)
    mbps, mb = sum(load.network_mbps for load in loads), sum(load.memory_mb for load in loads)
    if not (cores and mbps and mb):
        raise TidegateError("the short run measured no CPU, network or memory of its queries")
    return round(host_cores * mbps / cores, 3), round(ROOMY * host_cores * mb / cores, 1)


class Machine(threading.Thread):
    """Writes what the whole machine does into a file, every ten seconds, until `ended` is set.

    Each line has the time, the load average of a minute, the cores in use by all processes, and
    the available memory in megabytes.
    """

    def __init__(self, file: Path) -> None:
        super().__init__(daemon=True)
        self.file, self.ended = file, threading.Event()

    def run(self) -> None:
        """Write until the end."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        before = busy_s()
        while not self.ended.wait(10.0):
            now = busy_s()
            used = (now[0] - before[0]) / (now[1] - before[1])
            before = now
            available = Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]
            line = {
                "time_s": round(time.time(), 1),
                "load": os.getloadavg()[0],
                "cores": round(used, 3),
                "available_mb": int(available) // 1024,
            }
            with self.file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")


def busy_s() -> tuple[float, float]:
    """CPU seconds that the machine used since its start, and a clock."""
    parts = [int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(parts) - parts[3] - parts[4]) / os.sysconf("SC_CLK_TCK"), time.monotonic()


# --- exactness ----------------------------------------------------------------------------------


def committed(results: Path) -> list[Row]:
    """The rows of a sink, from the files in its log."""
    files: dict[str, None] = {}
    for entry in (results / "_spark_metadata").iterdir():
        if entry.name.startswith("."):
            continue
        for line in entry.read_text(encoding="utf-8").splitlines()[1:]:
            files[unquote(urlsplit(json.loads(line)["path"]).path)] = None
    names = ("start", "comp", "first", "min", "avg", "max", "last")
    rows = []
    for file in files:
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            row = json.loads(line, parse_float=Decimal, parse_int=Decimal)
            rows.append(tuple(row[name] for name in names))
    return rows


def expected(
    trades: list[tuple[int, float, str, int, Decimal]], window_s: int, sector: int
) -> set[Row]:
    """The rows of a query over all trades, by a computation without Spark."""
    groups: dict[tuple[int, str], list[tuple[float, int, Decimal]]] = defaultdict(list)
    for number, at_s, company, of, price in trades:
        if of == sector:
            groups[int(at_s // window_s) * window_s, company].append((at_s, number, price))
    rows = set()
    for (start_s, company), of_group in groups.items():
        prices = [price for _, _, price in of_group]
        average = (sum(prices, Decimal(0)) / len(prices)).quantize(Decimal("1e-8"), ROUND_HALF_UP)
        first, last = min(of_group)[2], max(of_group)[2]
        start = datetime.fromtimestamp(start_s).astimezone().astimezone(tz=None)
        rows.add(
            (f"{start.timestamp():.0f}", company, first, min(prices), average, max(prices), last)
        )
    return rows


def exactness(folder: Path, queries: int) -> dict[str, int]:
    """Compare the sinks of all queries with a computation over the trades.

    A window is due when a trade of the query's input came more than `LATE_S` after its end; the
    streams may have written fewer, since the last batches were cut off by the end of the day.
    """
    trades = []
    files = [file for part in ("ticks-read", "ticks") for file in (folder / part).glob("*.json")]
    for file in sorted(files, key=lambda file: file.name):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line, parse_float=Decimal)
            price = Decimal(row["price"])
            trades.append((row["id"], float(row["ts"]), row["comp"], row["sector"], price))
    total = {"rows": 0, "wrong": 0, "twice": 0, "missing": 0, "queries": 0}
    for chosen in query_parameters(queries, seed=1, sectors=fleet.SECTORS):
        rows = committed(folder / "results" / f"prices-{chosen['n']}")
        got = [(_unix(row[0]), *row[1:]) for row in rows]
        want = expected(trades, chosen["window_s"], chosen["sector"])
        newest = max((int(row[0]) for row in got), default=0)
        due = {row for row in want if int(row[0]) <= newest}
        total["rows"] += len(got)
        total["wrong"] += len(set(got) - want)
        total["twice"] += len(got) - len(set(got))
        total["missing"] += len(due - set(got))
        total["queries"] += 1
    return total


def _unix(text: str) -> str:
    return f"{datetime.fromisoformat(text.replace('Z', '+00:00')).timestamp():.0f}"


# --- the runs -----------------------------------------------------------------------------------


def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    result = fleet.kept(folder, given)
    print(f"{folder.parent.name}: {'kept from an earlier run' if result else 'runs'}", flush=True)
    if result:
        return result
    beside = Machine(folder.parent / "machine.jsonl")
    beside.file.unlink(missing_ok=True)
    beside.start()
    try:
        return fleet.Live(given.policy, given, folder).run()
    finally:
        beside.ended.set()


def day_of(folder: Path, result: dict[str, Any]) -> list[Turn]:
    turns = read_journal(folder / "journal.jsonl")
    return [
        t
        for t in turns
        if t.snapshot and result["from_s"] <= t.snapshot.time_s <= result["until_s"]
    ]


def calibrated(given: argparse.Namespace, folder: Path, result: dict[str, Any]) -> FleetModel:
    """The model of the short run."""
    day, rows = day_of(folder, result), np.array(result["rows"], np.float64)
    model = calibrate_fleet(
        day,
        float(rows.mean()),
        pauses_s=result["pauses_s"],
        machine_cores=result["machine_cores"],
    )
    return match_lengths(model, day, fleet.policy_of(given.policy, given), rows)


def simulated(
    given: argparse.Namespace, model: FleetModel, live: list[Turn], rows: list[int], seed: int
) -> list[Turn]:
    """The long day in the model of the short one, from the deployment at its beginning."""
    first = live[0].snapshot
    assert first is not None
    model = replace(model, offer=first.offer, initial=first.requested)
    chosen = fleet.policy_of(given.policy, given)
    return simulate_fleet(model, chosen, np.array(rows, np.float64), seed=seed)


def table(live: Figures, models: list[Figures], target_s: float) -> str:
    """The Markdown table: live, the mean over simulations, and the gap."""
    rows: list[tuple[str, float | None, list[float | None], str]] = [
        ("hosts, mean", live.hosts, [m.hosts for m in models], "{:.2f}"),
        ("p95 latency, s", live.p95_s, [m.p95_s for m in models], "{:.1f}"),
        ("median latency, s", live.median_s, [m.median_s for m in models], "{:.1f}"),
        (
            f"share of batches within {target_s:g} s",
            live.within,
            [m.within for m in models],
            "{:.3f}",
        ),
        ("CPU utilisation, mean", live.utilisation, [m.utilisation for m in models], "{:.3f}"),
        ("network utilisation, mean", live.network, [m.network for m in models], "{:.3f}"),
        ("memory utilisation, mean", live.memory, [m.memory for m in models], "{:.3f}"),
        (
            "share of hosts whose network binds",
            live.tightest["network_mbps"],
            [m.tightest["network_mbps"] for m in models],
            "{:.3f}",
        ),
        ("moves", live.moves, [m.moves for m in models], "{:.0f}"),
        ("batches", live.batches, [m.batches for m in models], "{:.0f}"),
    ]
    lines = ["| | live | simulated (least to most) | gap |", "|---|---:|---:|---:|"]
    for name, of, many, form in rows:
        known = [value for value in many if value is not None]
        if of is None or not known:
            lines.append(f"| {name} | – | – | – |")
            continue
        middle = float(np.mean(known))
        spread = f"{form.format(min(known))} to {form.format(max(known))}"
        gap = f"{middle / of - 1:+.0%}" if of else "–"
        lines.append(f"| {name} | {form.format(of)} | {form.format(middle)} ({spread}) | {gap} |")
    parts = range(1, fleet.PARTS + 1)
    lines += ["", "Mean number of running hosts in each part of the day:", ""]
    lines += ["| | " + " | ".join(f"{n}/{fleet.PARTS}" for n in parts) + " |"]
    lines += ["|---|" + "---:|" * fleet.PARTS]
    means = [float(np.mean(column)) for column in zip(*(m.parts for m in models), strict=True)]
    for name, hosts in (("live", live.parts), ("simulated", means)):
        lines.append(f"| {name} | " + " | ".join(f"{count:.1f}" for count in hosts) + " |")
    return "\n".join(lines) + "\n"


def machine(folder: Path, turns: list[Turn], from_s: float, until_s: float) -> str:
    """What the whole machine did during a run, and what of it was the hosts' own."""
    file = folder.parent / "machine.jsonl"
    if not file.exists():
        return "not recorded"
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    seen = [line for line in lines if from_s <= line["time_s"] <= until_s]
    own = [
        sum((h.utilisation or 0.0) * h.capacity.cpu_cores for h in t.snapshot.hosts)
        for t in turns
        if t.snapshot
    ]
    loads = [line["load"] for line in seen]
    return (
        f"load average {np.mean(loads):.0f} ({min(loads):.0f} to {max(loads):.0f}); "
        f"{np.mean([line['cores'] for line in seen]):.2f} of {os.cpu_count()} cores in use, "
        f"{np.mean(own):.2f} of them by the hosts"
    )


def beside(
    given: argparse.Namespace, model: FleetModel, turns: list[Turn], rows: list[int], live: Figures
) -> str:
    """The table of a live day beside simulations of a calibrated model, and the calibration."""
    models = []
    for seed in range(1, given.seeds + 1):
        day = simulated(given, model, turns, rows, seed)
        models.append(figures(day, 0.0, float(len(rows)), given.target_latency))
    text = table(live, models, given.target_latency)
    fits = [
        f"- {f.name}: {f.value:.3g} {f.unit}".rstrip() for f in model.fits if f.value is not None
    ]
    return text + "\nCalibration:\n\n" + "\n".join(fits) + "\n"


def report(given: argparse.Namespace, short: argparse.Namespace, runs: dict[str, Any]) -> str:
    """The tables of two finished runs. runs: folder and result of the short and the long one."""
    (before, first), (folder, result) = runs["short"], runs["long"]
    turns, earlier = day_of(folder, result), day_of(before, first)
    live = figures(turns, result["from_s"], result["until_s"], given.target_latency)
    seen = {"short run": (before, first, earlier), "long run": (folder, result, turns)}
    text = beside(given, calibrated(short, before, first), turns, result["rows"], live)
    for number, other in enumerate(given.calibrate_on, 2):
        of = json.loads((other / "result.json").read_text(encoding="utf-8"))
        text += f"\n### Calibrated on run {number}\n\n"
        text += beside(given, calibrated(given, other, of), turns, result["rows"], live)
        seen[f"run {number}"] = other, of, day_of(other, of)
    text += (
        f"\nA host: {given.host_cores:g} cores, {given.network_mbps:g} Mbit/s, "
        f"{given.memory_mb:g} MB for its queries.\n"
    )
    for name, (where, of, day) in seen.items():
        text += f"\nThe machine, {name}: {machine(where, day, of['from_s'], of['until_s'])}.\n"
    found = exactness_kept(folder, given.queries)
    if found:
        text += "\nSinks: " + ", ".join(f"{key} {count}" for key, count in found.items()) + "\n"
    return text


def exactness_kept(folder: Path, queries: int) -> dict[str, int]:
    """The comparison of the sinks, which is kept, since it needs the trades and results."""
    file = folder.parent / "exactness.json"
    if (folder / "ticks").exists():
        file.write_text(json.dumps(exactness(folder, queries)), encoding="utf-8")
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def into_page(page: Path, text: str) -> None:
    """Replace the figures of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition("<!-- figures -->\n")
    _, _, after = rest.partition("<!-- end -->\n")
    whole = f"{before}<!-- figures -->\n\n{text}\n<!-- end -->\n{after}"
    page.write_text(whole, encoding="utf-8")


def main() -> int:
    reader = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    reader.add_argument("--minutes", type=float, default=60.0, help="length of the day as played")
    reader.add_argument("--calibration", type=float, default=10.0, help="minutes of the other day")
    reader.add_argument("--warm-up", type=int, default=120, help="uncounted seconds before each")
    reader.add_argument("--queries", type=int, default=35)
    reader.add_argument("--hosts", type=int, default=6, help="largest number of hosts")
    reader.add_argument("--rate", type=float, default=80.0, help="trades per second on average")
    reader.add_argument("--trigger", type=float, default=30.0, help="seconds between batches")
    reader.add_argument("--interval", type=float, default=10.0, help="seconds between decisions")
    reader.add_argument("--host-cores", type=float, default=0.25, help="CPU cores of a host")
    reader.add_argument(
        "--network-mbps", type=float, help="network of a host; else as scarce as CPU"
    )
    reader.add_argument(
        "--memory-mb", type=float, help="memory of a host for its queries; else see balanced()"
    )
    reader.add_argument("--policy", default="local-threshold", choices=fleet.EVERY)
    reader.add_argument("--target", type=float, default=0.6, help="utilisation of a host")
    reader.add_argument("--lower", type=float, default=0.4, help="below it, hosts are released")
    reader.add_argument("--upper", type=float, default=0.8, help="above it, hosts are relieved")
    reader.add_argument("--target-latency", type=float, default=30.0, help="seconds")
    reader.add_argument("--seeds", type=int, default=5, help="simulations of the day")
    reader.add_argument("--out", type=Path, default=Path("out/bench-fleet-day"))
    reader.add_argument(
        "--calibrate-on",
        type=Path,
        action="append",
        default=[],
        help="folder of a run of benchmarks/fleet.py, for a further calibration",
    )
    reader.add_argument("--report", type=Path, help="page to write the tables into")
    given = reader.parse_args()
    logging.basicConfig(level=logging.ERROR, format="  %(message)s")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, fleet.interrupted)
    given.keep_data = True
    short = argparse.Namespace(**vars(given))
    short.minutes, short.seed, short.network_mbps = given.calibration, 2, NETWORK_MBPS
    short.memory_mb = None
    before = (given.out / "calibration" / given.policy).resolve()
    folder = (given.out / "day" / given.policy).resolve()
    try:
        first = run(short, before)
        given.seed = 1
        network_mbps, memory_mb = balanced(day_of(before, first), given.host_cores)
        given.network_mbps = given.network_mbps or network_mbps
        given.memory_mb = given.memory_mb or memory_mb
        result = run(given, folder)
    except KeyboardInterrupt:
        print("interrupted; call again to continue", flush=True)
        return 130
    except TidegateError as error:
        print(error, flush=True)
        return 1
    print("simulates", flush=True)
    text = report(given, short, {"short": (before, first), "long": (folder, result)})
    (given.out / "table.md").write_text(text, encoding="utf-8")
    print(f"\n{text}\nwritten to {given.out / 'table.md'}")
    if given.report is not None:
        into_page(given.report, text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
