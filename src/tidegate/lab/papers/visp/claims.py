"""The claims of the VISP paper (Hochreiner et al. 2017).

The primary reading decides on the verdicts: the authors' reasoners in the world of their code. A
verdict is clear if it is the same in 19 of 20 samples of the seeds. The published algorithms in the
same world, and the readings that were tried first, are shown next to it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, pstdev

from tidegate.lab.papers.claims import Answer, Claim, Verdict
from tidegate.lab.papers.visp.runs import (
    BTU_COLUMNS,
    COLUMNS,
    EXACT,
    FAST_BASELINE,
    FAST_IMAGES,
    FEWER_IMAGES,
    FEWER_ITEMS,
    FIRST,
    FIRST_CODED,
    NEWEST,
    OTHER_THRESHOLDS,
    PANELS,
    PUBLISHED,
    PUBLISHED_WAY,
    RETOLD,
    Reading,
    RunSummary,
    Table,
    TableCell,
    VispResults,
    baseline_share,
    in_time_errors,
    resource_errors,
    total_errors,
)
from tidegate.lab.papers.visp.world import FAST_OCR_S, PATTERNS, Variant

__all__ = ["Finding", "VispClaim", "verdict", "visp_claim"]

SAMPLES, CLEAR = 200, 0.95

LEVELS = ("real-time", "near real-time", "relaxed")
BTU_MINUTES = (10, 30, 60)

SHARES = tuple(baseline_share(pattern) for pattern in PATTERNS)
FITTED_PATTERN, FITTED_SEEDS = "stepwise", (1, 2, 3)
"""Table 3, the only one that the world was fitted on, and the seeds that it was fitted with."""
HOSTS = (
    "The baseline's hosts are too dear relative to BTU-based ones, and that is so in each of 135 "
    "worlds of a search of eight settings together (`benchmarks/visp_joint.py`, Table 3): the cost "
    "of THR10 over that of BTU30 is at least 1.2 times the published ratio. The space has "
    "15,552 worlds, so the others are not excluded. The one nearest to Table 3 has a smaller "
    "distance from Tables 4 to 6 too, but meets 11 of their 18 "
    "costs of hosts, and this one 13 (seeds 11 to 20). One world had all six costs of Table 3 "
    "within 10 % with the seeds of the search; with seeds 11 to 20, it has four. "
    "The baseline keeps its hosts longer than the published one at the same compliance; of 14 "
    "explanations that were tried, the nearest is that the newest instance stops, as the code "
    "seems to do against its intention, and that the items which the published baseline did not "
    "process were images. `benchmarks/visp_baseline.py` runs all of them: ways of billing, turns "
    "that wait for their hosts, failed looks at queues, which instance stops and when it leaves, "
    "thresholds, fewer items, fewer images, faster images. None makes all 12 costs of the baseline "
    "fit, and why images should be missing is not known. "
    f"By its penalties, the published baseline processed {100 * min(SHARES):.0f} to "
    f"{100 * max(SHARES):.0f} % of what the BTU-based runs processed, which the paper does not "
    "mention. With as many items, its hosts cost less. Where only the newest instance stops, "
    "leases are shorter and more, but not cheaper. "
    f"Where an image takes {FAST_OCR_S:g} s with the baseline, its hosts fit the pattern on which "
    "that time was found (stepwise), but not the walk; and BTU-based hosts need the longer time. "
    "So no time for an image explains both policies and all patterns."
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What the runs of one variant say about a claim: `held` of `of` parts hold.

    measured: the figures as text; values: those whose spread over seeds is shown; enough: number of
    parts that must hold by an amended criterion, None for all.
    """

    measured: str
    held: int
    of: int
    values: tuple[float, ...] = ()
    enough: int | None = None

    @property
    def holds(self) -> bool:
        """Whether as much of it holds as must."""
        return self.held >= (self.of if self.enough is None else self.enough)


PARTLY = "half of its parts"
"""When `verdict` returns partly, in words."""


def verdict(whole: Finding, samples: Sequence[Finding] = ()) -> Verdict:
    """The verdict on a claim from all seeds, and from samples of them with repetitions.

    Not clear: it holds in some samples and does not in others.

    >>> whole, most, few = Finding("", 3, 3), Finding("", 2, 3), Finding("", 1, 3)
    >>> verdict(whole), verdict(most), verdict(few), verdict(whole, [whole, most])
    ('reproduced', 'partly', 'not', 'not clear')
    """
    share = fmean(sample.holds for sample in samples) if samples else float(whole.holds)
    if whole.holds and share >= CLEAR:
        return "reproduced"
    if whole.holds or share > 1 - CLEAR:
        return "not clear"
    return "partly" if 2 * whole.held >= whole.of else "not"


Find = Callable[[Reading], Finding]


@dataclass(frozen=True)
class VispClaim(Claim[VispResults]):
    """A claim that is judged in each reading of the paper by itself. find: says what holds."""

    find: Find = field(kw_only=True)


def visp_claim(
    id: str,
    where: str,
    statement: str,
    *,
    published: str,
    criterion: str,
    why: str = "",
    more: Callable[[VispResults, Find], tuple[str, str]] | None = None,
    amended: str = "",
    first: Find | None = None,
) -> Callable[[Find], VispClaim]:
    """Declare a claim above the function that finds which of its parts hold.

    Args:
        id: Identifier.
        where: Place in the paper.
        statement: The claim.
        published: Published value.
        criterion: When the claim counts as reproduced.
        why: Why the claim is not reproduced: the mechanism that we found.
        more: Returns text to append to the measurement and to the reason.
        amended: The criterion that decides instead, and why.
        first: What holds by the first criterion, where the amended one asks for something else.
    """

    def declare(find: Find) -> VispClaim:
        def judge(results: VispResults) -> Answer:
            whole, samples = find(results.reading(RETOLD)), _samples(results, find)
            measured = f"{whole.measured}{_spread(results, find, RETOLD)}"
            found = verdict(whole, samples)
            reason = "" if found == "reproduced" else why
            if more is not None:
                further, explained = more(results, find)
                measured, reason = f"{measured}{further}", f"{reason} {explained}".strip()
            return Answer(
                measured,
                found,
                reason,
                _elsewhere(results, find),
                _by_first_criterion(results, first or find) if amended else None,
            )

        return VispClaim(
            id, where, statement, published, criterion, PARTLY, judge, amended, find=find
        )

    return declare


def _by_first_criterion(results: VispResults, find: Find) -> Verdict:
    """The verdict when all parts must hold."""
    whole, samples = find(results.reading(RETOLD)), _samples(results, find)
    strict = [replace(sample, enough=None) for sample in samples]
    return verdict(replace(whole, enough=None), strict)


def _samples(results: VispResults, find: Find) -> list[Finding]:
    """What samples of the seeds say; none for fewer than three seeds."""
    seeds = results.seeds(RETOLD)
    if len(seeds) < 3:
        return []
    draw = random.Random(1)
    return [
        find(results.reading(RETOLD, draw.choices(seeds, k=len(seeds)))) for _ in range(SAMPLES)
    ]


def _elsewhere(results: VispResults, find: Find) -> str:
    """What the other readings with full tables give."""
    parts = []
    for variant in (
        NEWEST,
        FEWER_ITEMS,
        FEWER_IMAGES,
        FAST_BASELINE,
        OTHER_THRESHOLDS,
        PUBLISHED_WAY,
        FIRST,
        FIRST_CODED,
    ):
        finding = find(results.reading(variant))
        parts.append(f"{variant.name}: {finding.measured} ({finding.held} of {finding.of} hold)")
    return "; ".join(parts)


def _spread(results: VispResults, find: Find, variant: Variant) -> str:
    """How much the figures differ between seeds, in words; empty for one seed."""
    seeds = results.seeds(variant)
    if len(seeds) < 2:
        return ""
    found = [find(results.reading(variant, [seed])) for seed in seeds]
    columns = list(zip(*(finding.values for finding in found), strict=True))
    digits = 2 if max(abs(fmean(values)) for values in columns) < 2 else 1
    shown = ", ".join(f"{pstdev(values):.{digits}f}" for values in columns)
    held = sum(finding.holds for finding in found)
    return f" (spread ± {shown}; holds in {held} of {len(seeds)} seeds by itself)"


def _pairs(table: Table) -> Iterator[tuple[str, int, TableCell, TableCell]]:
    """Pattern, billing unit, BTU-based and threshold-based cell."""
    for pattern in PATTERNS:
        for minutes in BTU_MINUTES:
            based, baseline = table[pattern, f"BTU{minutes}"], table[pattern, f"THR{minutes}"]
            yield pattern, minutes, based, baseline


def _cost_change(table: Table, minutes: int) -> float:
    """How much more the hosts cost than with the baseline (stepwise), as a share."""
    based, baseline = table["stepwise", f"BTU{minutes}"], table["stepwise", f"THR{minutes}"]
    return based.resource / baseline.resource - 1


def within(errors: Sequence[float], limit: float, unit: str, scale: float = 1.0) -> Finding:
    """How many errors are no larger than a limit."""
    held = sum(abs(error) <= limit + 1e-9 for error in errors)
    mean = scale * fmean(abs(error) for error in errors)
    bias = scale * fmean(errors)
    text = f"{held} of {len(errors)} (mean error {mean:.0f} {unit}, bias {bias:+.0f})"
    return Finding(text, held, len(errors), (held,))


def held_out(results: VispResults, find: Find) -> tuple[str, str]:
    """What holds on the tables and seeds that the world was not fitted on."""
    seeds = [seed for seed in results.seeds(RETOLD) if seed not in FITTED_SEEDS]
    if not seeds:
        return "", ""
    table = results.table(RETOLD, seeds)
    kept = {key: cell for key, cell in table.items() if key[0] != FITTED_PATTERN}
    found = find(Reading(kept))
    return f"; not fitted (Tables 4 to 6, seeds from {seeds[0]}): {found.measured}", ""


def costs(results: VispResults, find: Find) -> tuple[str, str]:
    """For V-02: what was not fitted, which costs miss in which direction, and faster images."""
    explained = f"{HOSTS} {misses(results)} {fast_images(results, find)[1]}"
    return held_out(results, find)[0], explained


def totals(results: VispResults, find: Find) -> tuple[str, str]:
    """For V-03: what was not fitted, and which costs miss in which direction."""
    table = results.table(RETOLD)
    hosts = {key: table[key].resource / cell.resource - 1 for key, cell in PUBLISHED.items()}
    wrong = [
        (key, error)
        for key, cell in PUBLISHED.items()
        for level in range(3)
        if abs(error := table[key].total[level] / cell.total[level] - 1) > 0.10
    ]
    if not wrong:
        return held_out(results, find)[0], ""
    alike = sum(abs(hosts[key]) > 0.10 and hosts[key] * error > 0 for key, error in wrong)
    text = (
        f"Of the {len(wrong)} total costs that miss, {alike} are in a column whose hosts miss in "
        f"the same direction (V-02): {_directions(wrong)}."
    )
    return held_out(results, find)[0], text


def misses(results: VispResults) -> str:
    """Which costs of hosts miss, in which direction; empty if none does."""
    table = results.table(RETOLD)
    off = {key: table[key].resource / cell.resource - 1 for key, cell in PUBLISHED.items()}
    wrong = {key: error for key, error in off.items() if abs(error) > 0.10}
    if not wrong:
        return ""
    shown = ", ".join(
        f"{column} {100 * error:+.0f} % ({pattern.replace('_', ' ')})"
        for (pattern, column), error in sorted(wrong.items(), key=lambda each: each[1])
    )
    return f"Of the {len(wrong)} costs that miss, {_directions(wrong.items())}: {shown}."


def _directions(wrong: Iterable[tuple[tuple[str, str], float]]) -> str:
    """How many costs are too low and too high, BTU-based and of the baseline."""
    found = Counter(
        ("BTU-based" if column.startswith("BTU") else "baseline's", "high" if error > 0 else "low")
        for (_, column), error in wrong
    )
    return ", ".join(f"{n} {kind} too {sign}" for (kind, sign), n in sorted(found.items()))


def fewer_items(results: VispResults, find: Find) -> tuple[str, str]:
    """For V-07 and V-09: what holds where the baseline has as many items as its penalties say."""
    other = find(results.reading(FEWER_ITEMS))
    return "", (
        "With as many items as its published penalties imply, the baseline gives "
        f"{other.measured}, where {other.held} of {other.of} parts hold; the paper does not say "
        f"that it processed {100 * min(SHARES):.0f} to {100 * max(SHARES):.0f} % of the others' "
        "items."
    )


def clock(results: VispResults, find: Find) -> tuple[str, str]:
    """What the senders' clock of whole seconds does to V-12."""

    def shown(variant: Variant) -> str:
        cells = [
            results.runs[variant.name, "stepwise", column, 1].cells[column].in_time
            for column in PANELS
        ]
        return ", ".join(f"{cell[0]:.0f}/{cell[1]:.0f}" for cell in cells)

    ratios = [real_time_ratio(cell) for cell in PUBLISHED.values()]
    ours = [real_time_ratio(cell) for cell in results.table(RETOLD).values()]
    return "", (
        "What the clock of whole seconds does, stepwise, one seed, real-time/near real-time in % "
        f"(BTU10, 30, 60, threshold): {shown(RETOLD)}, and {shown(EXACT)} with an exact clock. "
        f"Real-time over near real-time is {min(ratios):.2f}–{max(ratios):.2f} in the published "
        f"tables and {min(ours):.2f}–{max(ours):.2f} here."
    )


def fast_images(results: VispResults, find: Find) -> tuple[str, str]:
    """What hosts cost where images take less time, and how many units the baseline pays for."""
    btu = ", ".join(
        f"{column} {100 * (_fast_cost(results, column) - 1):+.0f} %" for column in BTU_COLUMNS
    )
    return "", (
        f"Hosts against the published cost: {_against(results.table(RETOLD), COLUMNS)}; with "
        f"{FEWER_ITEMS.name}, {_against(results.table(FEWER_ITEMS), COLUMNS[3:])}; where "
        f"{FEWER_IMAGES.name}, {_against(results.table(FEWER_IMAGES), COLUMNS[3:])}; with "
        f"{FAST_BASELINE.name} {_against(results.table(FAST_BASELINE), COLUMNS[3:])}; with "
        f"{FAST_IMAGES.name} BTU-based, stepwise alone, {btu}. The published baseline pays for "
        f"{_units(PUBLISHED)} units of 10, 30 and 60 minutes a run, so it has at most "
        f"{units(PUBLISHED)[-1]:.0f} leases; this one pays for {_units(results.table(RETOLD))}, "
        f"with faster images for {_units(results.table(FAST_BASELINE))}, where the newest instance "
        f"stops for {_units(results.table(NEWEST))}."
    )


def _fast_cost(results: VispResults, column: str) -> float:
    """The BTU-based hosts, stepwise, over their published cost, where images take less time."""

    def resource(run: RunSummary) -> float:
        return run.cells[column].resource

    cost = results.mean(FAST_IMAGES, "stepwise", column, resource)
    return cost / PUBLISHED["stepwise", column].resource


def _against(table: Table, columns: Sequence[str]) -> str:
    """How the cost of hosts differs from the published one, by column and in the tables' order."""

    def off(pattern: str, column: str) -> str:
        ratio = table[pattern, column].resource / PUBLISHED[pattern, column].resource
        return f"{100 * (ratio - 1):+.0f}"

    return ", ".join(
        f"{column} {'/'.join(off(pattern, column) for pattern in PATTERNS)} %" for column in columns
    )


def units(table: Table) -> tuple[float, ...]:
    """Units of 10, 30 and 60 minutes that the baseline pays for in a run, mean over the patterns.

    Each lease pays for one unit at least, so there are no more leases than units of 60 minutes.

    >>> [round(value, 1) for value in units(PUBLISHED)]
    [61.2, 27.8, 20.3]
    """
    return tuple(
        fmean(table[pattern, f"THR{minutes}"].resource for pattern in PATTERNS) / (minutes / 10)
        for minutes in BTU_MINUTES
    )


def _units(table: Table) -> str:
    return "/".join(f"{value:.1f}" for value in units(table))


def real_time_ratio(cell: TableCell) -> float:
    """Items in real-time over items in near real-time."""
    return cell.in_time[0] / cell.in_time[1]


# --- the claims -----------------------------------------------------------------------------------


@visp_claim(
    "V-01", "Tables 3-6",
    "SLA compliance in three levels for four patterns and four configurations",
    published="48 values",
    criterion="each within 5 points (with the 1-s timestamp switch on) ; share of the 48 is the "
    "figure",
    amended="at least 44 of the 48 within 5 points: the tables are means of three runs in a cloud, "
    "and a single cell at the limit would decide by chance",
    more=held_out,
)  # fmt: skip
def compliances(reading: Reading) -> Finding:
    found = within(in_time_errors(reading.table), 5.0, "points")
    return replace(found, enough=44 * found.of // 48)


@visp_claim(
    "V-02", "Tables 3-6", "resource cost for four patterns and six configurations",
    published="24 values", criterion="each within 10 %; share of the 24 is the figure",
    more=costs,
)  # fmt: skip
def resource_costs(reading: Reading) -> Finding:
    return within(resource_errors(reading.table), 0.10, "%", 100)


@visp_claim(
    "V-03", "Tables 3-6", "total cost in three levels for four patterns and six configurations",
    published="72 values",
    criterion="each within 10 % (Table 4's 155.43 is a slip for about 115.43); share of the 72 is "
    "the figure",
    more=totals,
)  # fmt: skip
def total_costs(reading: Reading) -> Finding:
    return within(total_errors(reading.table), 0.10, "%", 100)


@visp_claim(
    "V-04", "Conclusion of evaluation",
    "BTU-based compliance beats threshold-based in every configuration and level",
    published="36 of 36", criterion="all",
)  # fmt: skip
def always_better(reading: Reading) -> Finding:
    gains = [b.in_time[n] - t.in_time[n] for _, _, b, t in _pairs(reading.table) for n in range(3)]
    held = sum(gain > 0 for gain in gains)
    text = f"{held} of {len(gains)} (gains {min(gains):+.0f} to {max(gains):+.0f} points)"
    return Finding(text, held, len(gains), (held,))


@visp_claim(
    "V-05", "Stepwise", "compliance gain from BTU10 real-time to BTU60 relaxed (stepwise)",
    published="9 to 24 points", criterion="between 5 and 28 points and growing",
)  # fmt: skip
def growing_gain(reading: Reading) -> Finding:
    cell = {column: reading.table["stepwise", column] for column in COLUMNS}
    first = cell["BTU10"].in_time[0] - cell["THR10"].in_time[0]
    last = cell["BTU60"].in_time[2] - cell["THR60"].in_time[2]
    parts = (5 <= first <= 28, 5 <= last <= 28, last > first)
    return Finding(f"{first:+.0f} to {last:+.0f} points", sum(parts), 3, (first, last))


@visp_claim(
    "V-06", "Conclusion of evaluation", "total cost is lower with BTU-based except real-time BTU10",
    published="all but one kind", criterion="all others lower (ties within 1 %)",
)  # fmt: skip
def cheaper_in_all(reading: Reading) -> Finding:
    ratios = [
        based.total[level] / baseline.total[level]
        for _, minutes, based, baseline in _pairs(reading.table)
        for level in range(3)
        if (minutes, level) != (10, 0)
    ]
    held = sum(ratio <= 1.01 for ratio in ratios)
    span = f"{100 * (min(ratios) - 1):+.0f} to {100 * (max(ratios) - 1):+.0f} %"
    return Finding(f"{held} of {len(ratios)} ({span})", held, len(ratios), (held,))


@visp_claim(
    "V-07", "Abstract", "largest cost reduction", published="36 %",
    criterion="between 28 % and 44 % and found at near real-time BTU60",
    why="It is decided by the hosts of both, which differ from the published ones (V-02).",
    more=fewer_items,
)  # fmt: skip
def largest_reduction(reading: Reading) -> Finding:
    reduction, level, minutes, pattern = max(
        (1 - based.total[level] / baseline.total[level], level, minutes, pattern)
        for pattern, minutes, based, baseline in _pairs(reading.table)
        for level in range(3)
    )
    parts = (0.28 <= reduction <= 0.44, (level, minutes) == (1, 60))
    text = f"{100 * reduction:.0f} % at {LEVELS[level]} BTU{minutes} ({pattern.replace('_', ' ')})"
    return Finding(text, sum(parts), 2, (100 * reduction,))


@visp_claim(
    "V-08", "Stepwise", "resource cost of BTU60 against threshold", published="-19 %",
    criterion="between -10 % and -28 %", why="See V-02.",
)  # fmt: skip
def hourly_saving(reading: Reading) -> Finding:
    change = _cost_change(reading.table, 60)
    return Finding(f"{100 * change:+.0f} %", int(-0.28 <= change <= -0.10), 1, (100 * change,))


@visp_claim(
    "V-09", "Stepwise", "resource cost of BTU10 and BTU30 is above threshold's", published="above",
    criterion="both",
    why="It is decided by the hosts of both, which differ from the published ones (V-02).",
    more=fewer_items,
)  # fmt: skip
def dearer_when_short(reading: Reading) -> Finding:
    changes = {minutes: 100 * _cost_change(reading.table, minutes) for minutes in (10, 30)}
    text = ", ".join(f"BTU{minutes} {change:+.0f} %" for minutes, change in changes.items())
    return Finding(text, sum(c > 0 for c in changes.values()), 2, tuple(changes.values()))


@visp_claim(
    "V-10", "Stepwise", "scaling activity falls as the BTU grows", published="inverse",
    criterion="operations BTU10 > BTU30 > BTU60",
)  # fmt: skip
def falling_activity(reading: Reading) -> Finding:
    ten, thirty, sixty = reading.operations
    text = f"{ten:.0f}, {thirty:.0f}, {sixty:.0f} operations"
    return Finding(text, (ten > thirty) + (thirty > sixty), 2, (ten, thirty, sixty))


@visp_claim(
    "V-11", "Conclusion of evaluation", "compliance differs by at most 3 points across patterns",
    published="3 points", criterion="at most 4 points",
)  # fmt: skip
def alike_across_patterns(reading: Reading) -> Finding:
    spreads = []
    for column in PANELS:
        for level in range(3):
            values = [reading.table[pattern, column].in_time[level] for pattern in PATTERNS]
            spreads.append(max(values) - min(values))
    held = sum(spread <= 4.0 + 1e-9 for spread in spreads)
    text = f"up to {max(spreads):.0f} points; {held} of 12 within 4"
    return Finding(text, held, 12, (max(spreads),))


@visp_claim(
    "V-12", "Conclusion of evaluation",
    "real-time compliance about 40 % for the baseline and 50-55 % for BTU-based",
    published="40; 50-55",
    criterion="with the 1-s timestamp switch within 5 points; without it reported in addition",
    more=clock,
)  # fmt: skip
def half_in_real_time(reading: Reading) -> Finding:
    baseline = fmean(reading.table[pattern, "THR10"].in_time[0] for pattern in PATTERNS)
    based = [
        fmean(reading.table[pattern, f"BTU{n}"].in_time[0] for pattern in PATTERNS)
        for n in BTU_MINUTES
    ]
    held = (35 <= baseline <= 45) + sum(45 <= share <= 60 for share in based)
    text = f"{baseline:.0f} % baseline, {min(based):.0f}–{max(based):.0f} % BTU-based"
    return Finding(text, held, 4, (baseline, *based))


def instances_follow(reading: Reading) -> Finding:
    """V-13 by its first criterion."""
    ten, thirty, sixty = reading.correlations
    text = f"correlation {ten:.2f} (BTU10), {thirty:.2f} (BTU30), {sixty:.2f} (BTU60)"
    return Finding(text, (thirty < ten) + (sixty < ten), 2, (ten, thirty, sixty))


@visp_claim(
    "V-13", "Random walk 1", "with BTU30 and BTU60 instances stay high when volume falls",
    published="gap", criterion="correlation of instances with volume lower than BTU10's",
    amended="more of the mean number of instances than with BTU10 in the quarter of the time with "
    "the least volume: the claim is about falls, while a correlation also falls when instances "
    "follow a rise late or go up and down often, as with BTU10. Chosen after the first criterion "
    "had failed, before this one was measured",
    why="Instances follow the volume in all three; the difference is within the spread.",
    first=instances_follow,
)  # fmt: skip
def instances_stay(reading: Reading) -> Finding:
    ten, thirty, sixty = reading.kept
    text = (
        f"{100 * ten:.0f} % (BTU10), {100 * thirty:.0f} % (BTU30), {100 * sixty:.0f} % (BTU60) of "
        "the mean number of instances when the volume is least; "
        + instances_follow(reading).measured
    )
    held = (thirty > ten) + (sixty > ten)
    return Finding(text, held, 2, (100 * ten, 100 * thirty, 100 * sixty))
