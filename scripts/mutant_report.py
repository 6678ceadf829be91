"""The result of mutation testing: scores by package with their intervals, and all survivors.

A sample has a 95 % interval: Wilson's for a package, and for all packages that of a stratified
sample, in which each package counts by the number of its mutants. Where all mutants of a package
were tried, there is nothing to estimate.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutant_changes import Mutant

__all__ = ["Accepted", "Judged", "Score", "accepted", "replace_between", "scores", "summary"]

Z95 = 1.959964
"""Quantile of the normal distribution for a two-sided interval of 95 %."""
Judged = tuple[str, Mutant, str]
"""A package, a mutant and its verdict: ``killed``, ``endless`` or ``survived``."""


@dataclass(frozen=True)
class Accepted:
    """A survivor with the reason why it lives. file, text, old, new: as in `Mutant`.

    same: whether the program behaves as before, so that no test can kill it; it does not count.
    """

    file: str
    text: str
    old: str
    new: str
    reason: str
    same: bool = True

    def covers(self, mutant: Mutant) -> bool:
        """Whether this is the mutant, wherever in the file its line is by now."""
        names = ("file", "text", "old", "new")
        return all(getattr(self, name) == getattr(mutant, name) for name in names)


def accepted(path: Path) -> list[Accepted]:
    """The survivors that a file gives a reason for: tables ``same`` and ``left``."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        found = tomllib.load(file)
    return [
        Accepted(**one, same=same)
        for name, same in (("same", True), ("left", False))
        for one in found.get(name, ())
    ]


@dataclass(frozen=True)
class Score:
    """The mutants of a package. total: that there are; the others: of those that were tried."""

    package: str
    total: int
    killed: int
    endless: int
    survived: int
    same: int

    @property
    def tried(self) -> int:
        """Mutants with a verdict."""
        return self.killed + self.endless + self.survived + self.same

    @property
    def counted(self) -> int:
        """Mutants that a test could kill."""
        return self.tried - self.same

    @property
    def share(self) -> float:
        """Share of them that a test noticed."""
        return (self.killed + self.endless) / max(1, self.counted)

    def interval(self) -> tuple[float, float]:
        """Wilson's interval of the share, a point if every mutant was tried.

        >>> low, high = Score("loop", 500, killed=45, endless=0, survived=5, same=0).interval()
        >>> round(low, 3), round(high, 3)
        (0.786, 0.957)
        """
        n, share = max(1, self.counted), self.share
        if self.tried == self.total:
            return share, share
        middle = (share + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
        half = Z95 / (1 + Z95**2 / n) * math.sqrt(share * (1 - share) / n + (Z95 / (2 * n)) ** 2)
        return middle - half, middle + half


def scores(judged: Iterable[Judged], totals: dict[str, int], known: list[Accepted]) -> list[Score]:
    """The score of each package. totals: number of its mutants, tried or not."""
    same = [one for one in known if one.same]
    counts = {
        group: dict.fromkeys(("killed", "endless", "survived", "same"), 0) for group in totals
    }
    for group, mutant, verdict in judged:
        alike = verdict == "survived" and any(one.covers(mutant) for one in same)
        counts[group]["same" if alike else verdict] += 1
    return [Score(group, total, **counts[group]) for group, total in totals.items()]


def together(found: Sequence[Score]) -> tuple[float, float, float]:
    """The share killed of all packages, and its interval.

    Each package counts by its size. The variance of a share is that of two more killed and two more
    survivors, since a package without survivors would have none otherwise.
    """
    total = sum(one.total for one in found)
    share = sum(one.total / total * one.share for one in found)
    variance = 0.0
    for one in found:
        near = (one.killed + one.endless + 2) / (one.counted + 4)
        left = 1 - one.tried / one.total
        variance += (one.total / total) ** 2 * left * near * (1 - near) / (one.counted + 4)
    half = Z95 * math.sqrt(variance)
    return share, max(0.0, share - half), min(1.0, share + half)


def summary(
    judged: Sequence[Judged], totals: dict[str, int], known: list[Accepted]
) -> tuple[str, float]:
    """The table and the survivors in Markdown, and the lowest share of a package in percent."""
    rows = [
        "| package | mutants | tried | killed | not ending | survived | the same | score | 95 % |"
    ]
    rows.append("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    found = scores(judged, totals, known)
    for one in found:
        rows.append(
            f"| {one.package} | {one.total} | {one.tried} | {one.killed} | {one.endless} "
            f"| {one.survived} | {one.same} | {_percent(one.share)} | {_range(*one.interval())} |"
        )
    share, low, high = together(found)
    sums = (
        sum(getattr(one, name) for one in found)
        for name in ("total", "tried", "killed", "endless", "survived", "same")
    )
    counts = " | ".join(str(count) for count in sums)
    rows.append(f"| all, by size | {counts} | {_percent(share)} | {_range(low, high)} |")
    lived = [mutant for _, mutant, verdict in judged if verdict == "survived"]
    for same, title in ((False, "Survivors"), (True, "The program behaves the same")):
        rows += _listed(title, lived, known, same)
    return "\n".join(rows) + "\n", 100 * min(one.share for one in found)


def _listed(title: str, lived: list[Mutant], known: list[Accepted], same: bool) -> list[str]:
    lines = []
    for mutant in sorted(lived, key=lambda one: (one.file, one.start)):
        given = next((one for one in known if one.covers(mutant)), None)
        if (given is not None and given.same) == same:
            reason = given.reason if given is not None else "no reason is given yet"
            lines.append(f"- `{mutant.describe()}`: {reason}")
    return ["", f"{title}:", "", *lines] if lines else []


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _range(low: float, high: float) -> str:
    return "all tried" if low == high else f"{100 * low:.1f} to {100 * high:.1f} %"


def replace_between(page: Path, mark: str, text: str) -> None:
    """Replace what is between ``<!-- mark -->`` and the next ``<!-- end -->`` in a page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(f"<!-- {mark} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    if not begin or not end:
        raise SystemExit(f"{page} has no comments <!-- {mark} --> and <!-- end -->")
    page.write_text(before + begin + text + end + after, encoding="utf-8")
