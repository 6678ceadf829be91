"""The ledger of runs with cut off and suspended servers, and the page that is drawn from it."""

from __future__ import annotations

import csv
import dataclasses
import functools
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self

__all__ = [
    "LEDGER",
    "PAGE",
    "UNFENCED",
    "Result",
    "add",
    "commit",
    "last_runs",
    "page",
    "read",
    "write_page",
]

ROOT = Path(__file__).parents[2]
LEDGER = ROOT / "docs" / "measured" / "fence.csv"
UNFENCED = ROOT / "docs" / "measured" / "fence-unfenced.csv"
"""Runs without the fence, which show what it is for."""
PAGE = ROOT / "docs" / "measured" / "fence.md"


@dataclass(frozen=True)
class Result:
    """What a run found. Times are in seconds; None means that it did not happen.

    rows: of the batch computation. equal: whether the sink has these and no others.
    repeated: rows that the sink has once more. repeated_batches: the batches that these are of.
    starts: of the query. noticed_s, moved_s: from the fault until the server counted as lost, and
    until the query ran elsewhere. freed_s: from the end of the fault until the server had answered
    and ran nothing any more. in_flight: whether a
    batch was in flight when the fault began; None in the first runs, which did not note it.
    problem: what must not be; empty if the run is good.
    """

    seed: int
    sink: str
    fault: str
    lasts_s: float
    lease_s: float
    restart: bool
    rows: int = 0
    equal: bool = False
    repeated: int = 0
    repeated_batches: int = 0
    starts: int = 0
    noticed_s: float | None = None
    moved_s: float | None = None
    freed_s: float | None = None
    took_s: float | None = None
    in_flight: bool | None = None
    commit: str = ""
    problem: str = ""

    @classmethod
    def failed(cls, scenario: Any, why: str) -> Self:
        """The result of a run that did not come to its end."""
        keys = ("seed", "sink", "fault", "lasts_s", "lease_s", "restart")
        return cls(**{key: getattr(scenario, key) for key in keys}, problem=why)

    @classmethod
    def of(cls, plain: dict[str, str]) -> Self:
        """Read a line of the ledger."""
        kinds: dict[str, Any] = {"int": int, "float": float, "str": str}
        kinds |= {"bool": lambda text: text == "yes"}
        kinds |= {"bool | None": lambda text: text == "yes" if text else None}
        kinds |= {"float | None": lambda text: float(text) if text else None}
        return cls(**{f.name: kinds[str(f.type)](plain[f.name]) for f in dataclasses.fields(cls)})

    def plain(self) -> dict[str, str]:
        """The result as a line of the ledger."""
        return {key: _text(value) for key, value in dataclasses.asdict(self).items()}

    def line(self) -> str:
        """The result for people, in one line."""
        said = "equal" if self.equal else "DIFFERENT"
        noticed = "unnoticed" if self.noticed_s is None else f"noticed after {self.noticed_s:.1f} s"
        return (
            f"run {self.seed}: {self.sink}, {self.fault} for {self.lasts_s:g} s, {noticed}, "
            f"{self.rows} rows, {said}, {self.repeated} repeated, {self.took_s or 0:.0f} s"
            f"{', ' + self.problem if self.problem else ''}"
        )


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


@functools.cache
def commit() -> str:
    """The commit of the code, when this was first called."""
    words = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def read(ledger: Path = LEDGER) -> list[Result]:
    """The results in a ledger, by seed, those of a seed in order; empty if there is none."""
    if not ledger.exists():
        return []
    with ledger.open(newline="", encoding="utf-8") as file:
        return sorted(map(Result.of, csv.DictReader(file)), key=lambda result: result.seed)


def last_runs(results: Sequence[Result]) -> list[Result]:
    """The last run of each seed."""
    return list({result.seed: result for result in results}.values())


def add(ledger: Path, result: Result) -> None:
    """Add a line to a ledger. Several processes may do so at the same time."""
    ledger.parent.mkdir(parents=True, exist_ok=True)
    new = not ledger.exists()
    plain = dataclasses.replace(result, commit=commit()).plain()
    with ledger.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(plain), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(plain)


PLANNED = 200
"""Seeds that `make fence` runs."""
LENGTHS = (("less than 2 s", 0.0, 2.0), ("3 to 10 s", 2.0, 30.0), ("1 to 2 min", 30.0, 1e9))
SINK_NAMES = {
    "files": "files, read by the log of the sink",
    "batches": "`foreachBatch`, written under the batch number",
    "kafka": "Kafka",
}
HEAD = """\
# Servers that are cut off and continue

`make fence` runs queries of a fleet on real Spark Connect servers with Tidegate's plugin, each in
a separate network namespace. In every run, the server that runs the query is cut off or suspended
in the middle of a batch, and continues later. Its link is set down, or all packets in one
direction are dropped, or its process is suspended, with or without its Python workers. Rows
arrive before, during and after the fault. In some runs, another manager takes over while the
fault lasts. The folder of the checkpoints is on a disk that all of them share, so a server that
is cut off can still write there.

Afterwards a run compares the sink with a batch computation over the same input, row by row. It
also checks that exactly one copy of the query runs, and that no copy and no process of it is left
after its removal. The function of `foreachBatch` keeps what it was given, to check that a batch
number never has two contents. Rows may occur in Kafka more than once, but only those of one batch
for each start of the query after the first.

A server that does not answer for 2 s counts as lost, also if it has just come up. The lease is 2
s, and 30 s in the runs that last for minutes. The seed determines the query, the fault and its
length. [A table](fence.csv) has one line for each run, and a second call of `make fence` runs
the seeds that are missing there or had a problem. The command draws this page from it.

"""


_AHEAD = (
    ". The harness was wrong: a copy had ended after it listed files and before their batch, so\n"
    "  that the source's numbers ran ahead of the batches; all files were read and committed"
)
_SUSPENDED = (
    ". The whole run was suspended for more than ten minutes, for a measurement of something else\n"
    "  on this machine, and then ended; it says nothing about the fence"
)
_ELSEWHERE = (
    ". The harness was wrong: it asked the servers on which the query had been, while the query\n"
    "  was on its way to another one, because a server was cut off for the fault of another run"
)
EXPLAINED = (
    {(seed, "95c3b18"): _AHEAD for seed in (91, 93)}
    | {(seed, "95c3b18"): _SUSPENDED for seed in (174, 177, 178)}
    | {(seed, "4c202ad"): _ELSEWHERE for seed in (5, 11, 12)}
)
"""Causes of problems that were found later, by seed and commit."""


def page(results: list[Result], unfenced: Sequence[Result] = ()) -> str:
    """The page of a ledger. unfenced: runs without the fence."""
    every, results = results, last_runs(results)
    good = sum(not result.problem for result in results)
    counted = Counter(result.commit for result in results)
    commits = ", ".join(f"{name} ({count})" for name, count in counted.most_common())
    restarts = sum(result.restart for result in results)
    planned = sum(result.seed <= PLANNED for result in results)
    known = [result.in_flight for result in results if result.in_flight is not None]
    parts = [
        HEAD,
        "## Results\n\n",
        f"The goal is {PLANNED} runs, of the first {PLANNED} seeds; {planned} have been made.\n"
        f"Of all {len(results)} runs, {good} had no problem. Another manager took over in\n"
        f"{restarts}. A batch was in flight when the fault began in {sum(known)} of\n"
        f"{len(known)} runs that noted it. Commits, with their runs: {commits or 'none'}.\n\n",
        "| sink | runs | rows | equal to the batch | rows that occur again | in batches |\n"
        "|---|---:|---:|---:|---:|---:|\n",
    ]
    for sink, name in SINK_NAMES.items():
        mine = [result for result in results if result.sink == sink]
        sums = [
            sum(r.rows for r in mine),
            sum(r.equal for r in mine),
            sum(r.repeated for r in mine),
            sum(r.repeated_batches for r in mine),
        ]
        parts.append(f"| {name} | {len(mine)} | {' | '.join(map(str, sums))} |\n")
    parts.append(
        "\nTimes are medians with the longest in parentheses, in seconds, on a machine with much\n"
        "other work. A fault that ended before it was noticed has none.\n\n"
        "| fault | length | runs | noticed | lost to the fleet after | runs elsewhere after "
        "| usable again after its end |\n|---|---|---:|---:|---:|---:|---:|\n"
    )
    for fault in sorted({result.fault for result in results}):
        for length, low_s, high_s in LENGTHS:
            mine = [r for r in results if r.fault == fault and low_s <= r.lasts_s < high_s]
            if mine:
                noticed = [r for r in mine if r.noticed_s is not None]
                times = [[getattr(r, key) for r in noticed] for key in TIMES]
                cells = [fault, length, len(mine), len(noticed), *map(_spread, times)]
                parts.append(f"| {' | '.join(map(str, cells))} |\n")
    wrong = [result for result in every if result.problem]
    if wrong:
        parts.append("\n## Problems\n\n")
        for result in wrong:
            again = "" if result in results else "; run again since, see above"
            why = EXPLAINED.get((result.seed, result.commit), "")
            parts.append(f"- {result.line()} (commit {result.commit}){again}{why}\n")
    return "".join([*parts, *_without(unfenced)])


def _without(results: Sequence[Result]) -> list[str]:
    """What the same runs find without the fence."""
    said = (
        "\n## Without the fence\n\n"
        "`python -m tests.fleet.partitions --unfenced` takes the fence away, to see whether\n"
        "these checks notice it: a query has the bare checkpoint, and no lease is waited\n"
    )
    if not results:
        return [f"{said}for. It has not been run yet, so that this is not shown.\n"]
    wrong = [result for result in results if result.problem]
    two = sum("two copies" in result.problem for result in wrong)
    seeds = f"{min(r.seed for r in results)} to {max(r.seed for r in results)}"
    return [
        f"{said}for. Of {len(results)} runs, of seeds {seeds}, **{two} had two copies at the same\n"
        "time** ([table](fence-unfenced.csv)). A fault that is over before it is noticed needs no\n"
        "fence, and Spark itself ends a copy that finds its batch in the log already: so rows are\n"
        "equal without the fence too. From seed 17 on, the runs have `--sinks batches\n"
        "--until-noticed` and look for two copies that call the function of a query in turn. Runs\n"
        "that found no copy running (`running: []`) show nothing: they asked once, and runs with\n"
        "the fence found the same (see above); the harness waits for a copy now.\n\n",
        *(f"- {result.line()}\n" for result in wrong),
    ]


TIMES = ("noticed_s", "moved_s", "freed_s")


def _spread(times: list[float | None]) -> str:
    known = [time_s for time_s in times if time_s is not None]
    return f"{median(known):.1f} ({max(known):.1f})" if known else "–"


def write_page() -> None:
    """Write the page of the ledger."""
    PAGE.write_text(page(read(), read(UNFENCED)), encoding="utf-8")
