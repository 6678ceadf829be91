"""The ledger of the storm, one line of JSON for each fault and for each seed's end, and its page.

Every run appends to the ledger, and nothing is removed from it: a seed that was run again counts by
its last run, and the page says what the earlier ones had found.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tests.storm.seed import FaultLine, SeedLine

ROOT = Path(__file__).parents[2]
LEDGER = ROOT / "docs" / "measured" / "storm.jsonl"
PAGE = ROOT / "docs" / "measured" / "storm.md"
BEGIN, END = "<!-- begin: drawn from storm.jsonl -->", "<!-- end -->"
GOAL = 1_000


@dataclass
class Run:
    """One run of a seed, with its faults in order."""

    end: SeedLine
    faults: list[FaultLine] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, int]:
        """World and seed."""
        return self.end.world, self.end.seed

    @property
    def unnoticed(self) -> int:
        """Faults that the journal does not show."""
        return sum(not fault.noticed for fault in self.faults)

    @property
    def passed(self) -> bool:
        """Whether nothing was wrong."""
        end = self.end
        wrong = end.missing + end.extra + end.queries_lost + end.queries_left + self.unnoticed
        return not (wrong or end.processes_left or end.problems)


def read_ledger(path: Path = LEDGER) -> list[Run]:
    """The runs in a ledger, oldest first. Lines of a seed whose end is missing are left out."""
    runs: list[Run] = []
    waiting: list[FaultLine] = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        plain: dict[str, Any] = json.loads(text)
        if "kind" in plain:
            waiting.append(FaultLine(**plain))
            continue
        known = {one.name for one in fields(SeedLine)}
        end = SeedLine(**{key: value for key, value in plain.items() if key in known})
        own = [line for line in waiting if (line.world, line.seed) == (end.world, end.seed)]
        runs.append(Run(end, own))
        waiting = [line for line in waiting if line not in own]  # two storms may run at a time
    return runs


def last_runs(runs: Iterable[Run]) -> list[Run]:
    """The last run of each seed, by world and seed."""
    last = {run.key: run for run in runs}
    return [last[key] for key in sorted(last)]


def tables(runs: Sequence[Run]) -> str:
    """All results in Markdown."""
    last = last_runs(runs)
    faults = [fault for run in last for fault in run.faults]
    ends = [run.end for run in last]
    failed = [run for run in last if not run.passed]
    parts = [
        f"**{len(faults):,} faults over {len(last)} seeds** (the goal is {GOAL:,} over 50); "
        f"{len(failed)} of the seeds had a problem. The sinks have {sum(e.rows for e in ends):,} "
        f"rows; {sum(e.missing for e in ends)} are missing and {sum(e.extra for e in ends)} too "
        f"many. {sum(e.queries_lost + e.queries_left for e in ends)} queries and "
        f"{sum(len(e.processes_left) for e in ends)} processes were left behind. The journals show "
        f"{sum(bool(f.noticed) for f in faults):,} of the faults.",
        "",
        "| world | fault | times | noticed | noticed after, s | healed after, s |",
        "|---|---|---:|---:|---:|---:|",
    ]
    count = Counter((fault.world, fault.kind) for fault in faults)
    for world, kind in sorted(count):
        own = [f for f in faults if (f.world, f.kind) == (world, kind)]
        seen = [f.noticed_s for f in own if f.noticed_s is not None]
        well = [f.healed_s for f in own if f.healed_s is not None]
        noticed = sum(bool(f.noticed) for f in own)
        parts.append(
            f"| {world} | {kind} | {len(own)} | {noticed} | {_spread(seen)} | {_spread(well)} |"
        )
    parts += [
        "",
        "| world | seeds | faults | rows | missing | too many | queries left | processes left "
        "| problems | commits |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for group in _groups(last):
        own_ends = [run.end for run in group]
        commits = sorted({end.commit for end in own_ends})
        parts.append(
            f"| {own_ends[0].world} | {own_ends[0].seed} to {own_ends[-1].seed} "
            f"| {sum(len(run.faults) for run in group)} | {sum(e.rows for e in own_ends):,} "
            f"| {sum(e.missing for e in own_ends)} | {sum(e.extra for e in own_ends)} "
            f"| {sum(e.queries_lost + e.queries_left for e in own_ends)} "
            f"| {sum(len(e.processes_left) for e in own_ends)} "
            f"| {sum(not run.passed for run in group)} | {', '.join(commits)} |"
        )
    current = {id(run) for run in last}
    wrong = [run for run in runs if not run.passed]
    parts += ["", "Runs with a problem:" if wrong else "No run had a problem.", ""]
    for run in wrong:
        again = "" if id(run) in current else "; run again since, see above"
        parts.append(f"- {_problem(run)}{again}")
    return "\n".join(parts).rstrip() + "\n"


def _problem(run: Run) -> str:
    end = run.end
    said = [*end.problems, *(f"left over: {command}" for command in end.processes_left)]
    text = (said[0] if said else f"{run.unnoticed} faults unnoticed").replace("|", "/")
    return f"{end.world} {end.seed} at {end.commit}, {len(run.faults)} faults: {text[:200]}"


def _groups(runs: Sequence[Run], most: int = 10) -> list[list[Run]]:
    """Runs of one world in groups."""
    worlds = sorted({run.end.world for run in runs})
    found = []
    for world in worlds:
        own = [run for run in runs if run.end.world == world]
        found += [own[at : at + most] for at in range(0, len(own), most)]
    return found


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "–"
    return f"{statistics.median(values):.1f} (at most {max(values):.1f})"


def draw(page: Path = PAGE, ledger: Path = LEDGER) -> None:
    """Write the tables into the page, between its two marks."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    drawn = f"{before}{BEGIN}\n\n{tables(read_ledger(ledger))}\n{END}{after}"
    page.write_text(drawn, encoding="utf-8")
