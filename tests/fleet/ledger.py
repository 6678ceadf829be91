"""The ledger of runs with cut off and suspended servers, and the page that is drawn from it."""

from __future__ import annotations

import csv
import dataclasses
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

__all__ = ["LEDGER", "PAGE", "Result", "add", "page", "read", "write_page"]

ROOT = Path(__file__).parents[2]
LEDGER = ROOT / "docs" / "measured" / "fence.csv"
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


def commit() -> str:
    words = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def read(ledger: Path = LEDGER) -> list[Result]:
    """The results in a ledger, by seed; empty if there is none."""
    if not ledger.exists():
        return []
    with ledger.open(newline="", encoding="utf-8") as file:
        return sorted(map(Result.of, csv.DictReader(file)), key=lambda result: result.seed)


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


def page(results: list[Result]) -> str:
    """The page of a ledger."""
    raise NotImplementedError


def write_page() -> None:
    """Write the page of the ledger."""
    PAGE.write_text(page(read()), encoding="utf-8")
