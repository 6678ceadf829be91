"""The VISP evaluation repeated: Tables 3 to 6 and Figs. 7 to 11.

Four arrival patterns, a BTU-based policy with billing units of 10, 30 and 60 minutes and a
threshold-based one run for 120 minutes each, with several seeds. The primary reading, which decides
on the verdicts, is the authors' program retold in the world of their code; the algorithms as
published run in the same world, and the readings that were tried first in theirs.

C. Hochreiner et al., *Cost-efficient enactment of stream processing topologies*, PeerJ Computer
Science 3:e141, 2017.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import fmean

from tidegate.lab.papers.claims import Figure, Paper
from tidegate.lab.papers.visp import claims
from tidegate.lab.papers.visp.original import DIFFERENCES
from tidegate.lab.papers.visp.runs import (
    AT_ONCE,
    BTU_COLUMNS,
    COLUMNS,
    FIRST,
    FIRST_CODED,
    ON_THE_MINUTE,
    OTHER_THRESHOLDS,
    PANELS,
    PAPERS_THRESHOLDS,
    PUBLISHED,
    PUBLISHED_WAY,
    RETOLD,
    TABLE_2,
    RunSummary,
    Table,
    TableCell,
    VispResults,
    alone,
    in_time_errors,
    mean_cell,
    resource_errors,
    run_all,
    total_errors,
)
from tidegate.lab.papers.visp.world import (
    CODE_OCR_S,
    CONNECTION_S,
    FAST_OCR_S,
    KEY_VALUE_S,
    PATTERNS,
    RECEIVE_S,
    SERVICE_SCV,
    SPREAD_S,
    TICK_S,
    TURN_DELAY_S,
    Variant,
    busy_instances,
    make_topology,
)
from tidegate.report import Series, bars, lines
from tidegate.workloads import VispPattern

__all__ = ["PAPER"]


def notes(results: VispResults) -> tuple[str, ...]:
    """Assumptions and further findings, in sentences."""
    return (
        *_assumed(),
        _nearer(results),
        _shuffling(results),
        *_others(results),
        "Verdicts: those of the primary reading. Reproduced when all of a claim holds in at "
        "least 95 % of 200 samples of the seeds, not clear when it holds in more than 5 % and "
        "fewer than that; otherwise partly when half of its parts hold, and not.",
    )


def _assumed() -> tuple[str, ...]:
    machines = fmean(VispPattern("stepwise").machines_by_tick.tolist())
    rates = make_topology().arrival_rates()
    ours, first = (busy_instances(make_topology(kind), machines) for kind in ("code", "durations"))
    return (
        "Primary reading: the authors' code, read in their repositories, is consistent with more "
        "of the printed numbers than the published algorithms (see the distances below). It was "
        "chosen after results had been seen. What occupies an instance follows from the code: "
        f"its sleep, {1000 * RECEIVE_S:g} ms to receive, {1000 * KEY_VALUE_S:g} ms for each call "
        "of the key-value store, and a new connection to the broker for each message that is "
        "sent and for one report of a duration in ten items. O7 and O8 read their queues on "
        f"channels separate, so that the largest queue counts. That keeps {ours:.0f} "
        "instances busy (stepwise, mean); the first reading, the published duration less half a "
        f"second, {first:.0f}.",
        f"Fitted, not measured: {1000 * CONNECTION_S:g} ms for a connection, {CODE_OCR_S:g} s for "
        "the OCR of O1, on the stepwise pattern alone, from 10 to 40 ms and 0.4 to 1.6 s by "
        "the mean distance from the 12 compliances (in units of 5 points) and the 6 costs (in "
        "units of 10 %). Two-level and both walks were not used in the fit. The optimum is flat.",
        f"The baseline alone fits Table 3 best where an image takes {FAST_OCR_S:g} s. That was "
        "searched over 0.6, 0.8, 1.0 and 1.2 s and the thresholds that were committed at different "
        "times (200/1000/5 and 250/1250/20), with seeds 1 to 3, after results had been seen; "
        "Tables 4 to 6 were not used, and random walk 1 speaks against it. So it does not decide, "
        "and is shown next to each verdict.",
        "World: the demands of the sample configuration and durations as SLOs on hosts of 4 "
        "cores and 90 % of 7 GB that start in 30–60 s, instances in 5–10 s plus 20 s for an "
        "image that is not cached; monitoring every 15 s, decisions every 60 s; ratios as the "
        f"code has them (O2 0.98, O6 1/102, O7 one of three): {sum(rates.values()) * TICK_S:.1f} "
        f"operator-items a machine and tick, each burst spread over {SPREAD_S:g} s; service times "
        f"have SCV {SERVICE_SCV:g}. The broker counts items in work as waiting.",
        f"Turns come up to {TURN_DELAY_S:.0f} s after the full minute, at random: exactly on the "
        "minute, every turn would meet the same moment between two bursts and every billing unit "
        "would end at a turn. The phase of the two data jobs is random.",
        "The baseline ignores the billing unit: one run prices its three columns, each "
        "host by its length of lease, as the authors presumably did. BTU-based hosts cost what the "
        "records of the code say: a unit that is prolonged within the last window is paid.",
    )


def _distance(table: Table) -> str:
    parts = (
        fmean(map(abs, in_time_errors(table))),
        100 * fmean(map(abs, resource_errors(table))),
        100 * fmean(map(abs, total_errors(table))),
    )
    return f"{parts[0]:.1f} points, {parts[1]:.0f} % and {parts[2]:.0f} %"


def _nearer(results: VispResults) -> str:
    return (
        "Mean distance from the published compliance, hosts' cost and total cost: "
        + "; ".join(
            f"{variant.name} {_distance(results.table(variant))}"
            for variant in (RETOLD, PUBLISHED_WAY, FIRST, FIRST_CODED)
        )
        + "."
    )


def _shuffling(results: VispResults) -> str:
    def share(variant: Variant) -> str:
        def total(what: str) -> float:
            return fmean(
                results.mean(variant, pattern, column, lambda run: float(getattr(run, what)))
                for pattern in PATTERNS
                for column in BTU_COLUMNS
            )

        return (
            f"{total('made_way'):.0f} of {total('stops'):.0f} stops a run make way for another "
            f"operator, {total('mean_hosts'):.1f} hosts on average"
        )

    return (
        "BTU-based: "
        + "; ".join(
            f"{variant.name}: {share(variant)}" for variant in (RETOLD, PUBLISHED_WAY, FIRST)
        )
        + "."
    )


def _others(results: VispResults) -> list[str]:
    def shown(cell: TableCell) -> str:
        return "/".join(f"{x:.0f}" for x in cell.in_time) + f" % at {cell.resource:.0f}"

    def mean(variant: Variant, column: str) -> TableCell:
        seeds = sorted({k[3] for k in results.runs if k[:3] == (variant.name, "stepwise", column)})
        return mean_cell(
            [results.runs[variant.name, "stepwise", column, s].cells[column] for s in seeds]
        )

    baseline = "; ".join(
        f"{name} {shown(mean(variant, 'THR10'))}"
        for name, variant in (
            ("committed 250/1250/20", RETOLD),
            ("the paper's 50/250/1", PAPERS_THRESHOLDS),
            ("200/1000/5", OTHER_THRESHOLDS),
        )
    )
    found = [
        f"Baseline, stepwise ({shown(PUBLISHED['stepwise', 'THR10'])} published), by thresholds: "
        f"{baseline}."
    ]
    for variant in (TABLE_2, AT_ONCE, ON_THE_MINUTE):
        if (variant.name, "stepwise", "BTU10", 1) in results.runs:
            cells = ", ".join(shown(mean(variant, column)) for column in PANELS)
            found.append(f"With {variant.name}, stepwise, BTU10, 30, 60 and threshold: {cells}.")
    return found


FIGURE = {pattern: 8 + n for n, pattern in enumerate(PATTERNS)}
TABLE = {pattern: 3 + n for n, pattern in enumerate(PATTERNS)}


def figures(results: VispResults) -> Iterator[Figure]:
    """All figures, the summary first."""
    tables = {
        "published": PUBLISHED,
        RETOLD.name: results.table(RETOLD),
        PUBLISHED_WAY.name: results.table(PUBLISHED_WAY),
    }
    yield _nearness(tables)
    yield from _tables(tables)
    yield from _differences(results)
    yield _patterns()
    yield from _panels(results, RETOLD)
    yield from _panels(results, PUBLISHED_WAY)


def _nearness(tables: dict[str, Table]) -> Figure:
    groups = ("in time, points", "hosts' cost, %", "total cost, %")
    ours = {name: table for name, table in tables.items() if name != "published"}
    series = []
    for name, table in ours.items():
        errors = (in_time_errors(table), resource_errors(table), total_errors(table))
        scales = (1, 100, 100)
        means = [
            scale * fmean(abs(error) for error in some)
            for some, scale in zip(errors, scales, strict=True)
        ]
        series.append((name, means))
    chart = bars(groups, series, "Mean distance from Tables 3 to 6", "lower is nearer")
    return (
        "Which is nearer to the published tables: the code retold or the algorithms as published?",
        chart,
    )


def _tables(tables: dict[str, Table]) -> Iterator[Figure]:
    levels = ("rt", "near", "rel")
    for pattern, number in TABLE.items():
        name = pattern.replace("_", " ")
        yield (
            f"Table {number}: items in time, {name}; real-time (rt), near and relaxed (rel); "
            "B: BTU-based, T: threshold-based.",
            bars(
                [f"{column[0]}{column[3:]} {level}" for column in PANELS for level in levels],
                [
                    (who, [x for column in PANELS for x in table[pattern, column].in_time])
                    for who, table in tables.items()
                ],
                f"Items in time, {name}",
                "% of items",
            ),
        )
        yield (
            f"Table {number}: cost of hosts, and total cost near real-time, {name}.",
            bars(
                [*COLUMNS, *(f"Σ {column[0]}{column[3:]}" for column in COLUMNS)],
                [
                    (
                        who,
                        [
                            *(table[pattern, column].resource for column in COLUMNS),
                            *(table[pattern, column].total[1] for column in COLUMNS),
                        ],
                    )
                    for who, table in tables.items()
                ],
                f"Cost, {name} (Σ: total, near real-time)",
                "cost",
            ),
        )


def _differences(results: VispResults) -> Iterator[Figure]:
    """The effect of each difference of the code by itself, if that was run."""
    names = [q for q in DIFFERENCES if (alone(q).name, "stepwise", "BTU10", 1) in results.runs]
    if not names:
        return
    cells = [results.runs[alone(q).name, "stepwise", "BTU10", 1].cells["BTU10"] for q in names]
    before = results.runs[PUBLISHED_WAY.name, "stepwise", "BTU10", 1].cells["BTU10"]
    near = [before.in_time[1], *(cell.in_time[1] for cell in cells)]
    cost = [before.resource, *(cell.resource for cell in cells)]
    text = ", ".join(f"{n}: {q}" for n, q in enumerate(names, 1))
    yield (
        f"One difference of the code at a time, on top of the published algorithms (0). {text}.",
        bars(
            [str(n) for n in range(len(near))],
            [("near real-time, %", near), ("cost of hosts", cost)],
            "Stepwise, BTU10: what each difference does alone",
            "% or cost",
        ),
    )


def _patterns() -> Figure:
    series = []
    for pattern in PATTERNS:
        machines = VispPattern(pattern).machines_by_tick[::125]
        series.append(
            Series(pattern.replace("_", " "), list(range(len(machines))), machines.tolist(), True)
        )
    chart = lines(series, "Arrival patterns", "minutes", "machines")
    return "Fig. 7: the four arrival patterns, as the data provider sent them.", chart


def _panels(results: VispResults, variant: Variant) -> Iterator[Figure]:
    for pattern, number in FIGURE.items():
        for letter, column in zip("ABCD", PANELS, strict=True):
            run = results.runs.get((variant.name, pattern, column, 1))
            if run is not None and run.series:
                yield _panel(run, f"Fig. {number}{letter}, {variant.name}", pattern, column)


def _panel(run: RunSummary, caption: str, pattern: str, column: str) -> Figure:
    minutes, volume, instances, hosts = run.series
    who = "threshold" if column == "THR10" else column
    chart = lines(
        [
            Series("volume, items/s ÷ 4", minutes, [v / 4 for v in volume], True),
            Series("instances", minutes, instances, True),
            Series("hosts × 10", minutes, [10 * h for h in hosts], True),
        ],
        f"{pattern.replace('_', ' ')}, {who}",
        "minutes",
        "instances",
    )
    return f"{caption}: volume, instances and hosts, {pattern.replace('_', ' ')}, {who}.", chart


# --- Tables 3 to 6, cell by cell ------------------------------------------------------------------


def tables(results: VispResults) -> str:
    """Tables 3 to 6 as HTML: published and measured, with a colour for the distance."""
    ours = results.table(RETOLD)
    lines = []
    for pattern, number in TABLE.items():
        lines += [
            f"<h3>VISP, Table {number}: {pattern.replace('_', ' ')}</h3>",
            "<table><thead><tr><th>published / measured</th>"
            + "".join(f"<th>{column}</th>" for column in COLUMNS)
            + "</tr></thead><tbody>",
        ]
        for name, figure, limit in _ROWS:
            cells = []
            for column in COLUMNS:
                theirs = figure(PUBLISHED[pattern, column])
                mine = figure(ours[pattern, column])
                far = abs(mine - theirs) / (limit if limit >= 1 else limit * theirs)
                cells.append(f'<td style="background:{_colour(far)}">{theirs:g} / {mine:.0f}</td>')
            lines.append(f"<tr><th>{name}</th>{''.join(cells)}</tr>")
        lines.append("</tbody></table>")
    return "\n".join(lines)


_ROWS: tuple[tuple[str, Callable[[TableCell], float], float], ...] = (
    ("real-time, %", lambda cell: cell.in_time[0], 5.0),
    ("near real-time, %", lambda cell: cell.in_time[1], 5.0),
    ("relaxed, %", lambda cell: cell.in_time[2], 5.0),
    ("cost of hosts", lambda cell: cell.resource, 0.1),
    ("total, real-time", lambda cell: cell.total[0], 0.1),
    ("total, near real-time", lambda cell: cell.total[1], 0.1),
    ("total, relaxed", lambda cell: cell.total[2], 0.1),
)
"""Rows of a table: their name, the figure, and the distance that a criterion allows."""


def _colour(far: float) -> str:
    """Green up to half of the allowed distance, yellow up to all of it, then orange and red."""
    return ("#c8e6c9", "#fff9c4", "#ffe0b2", "#ffcdd2")[min(3, int(2 * far))]


PAPER = Paper("VISP", claims, run_all, figures, notes, seeds=30, tables=tables)
