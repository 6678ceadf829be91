"""Run the soak: thirty simulated days, with faults.

    python -m tests.soak                        # about ten minutes; also: make soak
    python -m tests.soak --seed 2 --days 3
    python -m tests.soak --seeds 10 --days 3    # seeds 1 to 10

It prints a line for each fault and for each day. It keeps its state in ``out/soak`` after each day,
so that a run which was interrupted continues with the next one, and writes the tables of all seeds
to ``out/soak/table.md``.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import time
from dataclasses import asdict
from pathlib import Path

from tests.soak.faults import OTHERS, RESTARTS
from tests.soak.soak import Soak, continued


def table(folder: Path) -> str:
    """The results of all seeds in a folder, in Markdown."""
    runs: list[Soak] = []
    for state in sorted(folder.glob("seed-*/state"), key=lambda file: int(file.parent.name[5:])):
        runs.append(pickle.loads(state.read_bytes())[0])
    rows = [
        "| seed | days | turns | faults | restarts | decisions compared | problems "
        "| executors | memory after the first and the last day, MB | journal at most, MB (files) |",
        "|---:|---:|---:|---:|---:|---:|---:|---|---|---|",
    ]
    for run in runs:
        days = run.results
        largest = max(days, key=lambda day: day.journal_mb)
        fewest, most = min(d.hosts[0] for d in days), max(d.hosts[1] for d in days)
        rows.append(
            f"| {run.seed} | {len(days)} | {run.turn:,} | {sum(run.counts.values())} "
            f"| {run.restarts} | {run.compared:,} | {len(run.problems)} | {fewest} to {most} "
            f"| {days[0].rss_mb:.0f}, {days[-1].rss_mb:.0f} "
            f"| {largest.journal_mb:.1f} ({max(day.parts for day in days) + 1}) |"
        )
    rows += ["", "| fault | times | how the journal shows it |", "|---|---:|---|"]
    for kind, how in (RESTARTS | OTHERS).items():
        rows.append(f"| {kind} | {sum(run.counts[kind] for run in runs)} | {how} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Run the days that are missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="random seed, or the first of several")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--days", type=int, default=30, help="simulated days of each seed")
    parser.add_argument("--folder", type=Path, default=Path("out/soak"))
    options = parser.parse_args()
    problems: list[str] = []

    def say(text: str) -> None:
        print(text, flush=True)

    for seed in range(options.seed, options.seed + options.seeds):
        began_s = time.monotonic()
        soak = continued(options.folder / f"seed-{seed}", seed, options.days, say)
        say(f"seed {seed}: from day {len(soak.results) + 1} to {options.days}")
        problems += soak.run()
        say(f"seed {seed}: {time.monotonic() - began_s:.0f} s")
        (options.folder / "table.md").write_text(table(options.folder), encoding="utf-8")
        (soak.folder / "days.json").write_text(
            json.dumps([asdict(day) for day in soak.results], indent=1), encoding="utf-8"
        )
    print((options.folder / "table.md").read_text(encoding="utf-8"))
    if problems:
        sys.exit(f"{len(problems)} problems; the first: {problems[0]}")


if __name__ == "__main__":
    main()
