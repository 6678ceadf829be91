"""The VISP paper's figures and tables redrawn, published beside measured."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from tidegate.lab.papers.visp.original import DIFFERENCES
from tidegate.lab.papers.visp.runs import CODED, PUBLISHED_WAY, Results, Summary, alone
from tidegate.lab.papers.visp.tables import (
    COLUMNS,
    PUBLISHED,
    Table,
    in_time_errors,
    resource_errors,
    total_errors,
)
from tidegate.lab.papers.visp.world import PATTERNS, Variant
from tidegate.report import Series, bars, lines
from tidegate.workloads import VispPattern

__all__ = ["draw"]

Figure = tuple[str, str]
FIGURE = {pattern: 8 + n for n, pattern in enumerate(PATTERNS)}
TABLE = {pattern: 3 + n for n, pattern in enumerate(PATTERNS)}
PANELS = ("BTU10", "BTU30", "BTU60", "THR10")


def draw(results: Results) -> tuple[Figure, ...]:
    """All figures, the summary first."""
    tables = {
        "published": PUBLISHED,
        f"ours {PUBLISHED_WAY.name}": results.table(PUBLISHED_WAY),
        f"ours {CODED.name}": results.table(CODED),
    }
    return (
        _nearness(tables),
        *_tables(tables),
        *_differences(results),
        _patterns(),
        *_panels(results, PUBLISHED_WAY),
        *_panels(results, CODED),
    )


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
        "Which is nearer to the published tables: the algorithms as published or as coded?",
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


def _differences(results: Results) -> Iterator[Figure]:
    """What each thing that the code does differently changes by itself, where that was run."""
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


def _panels(results: Results, variant: Variant) -> Iterator[Figure]:
    for pattern, number in FIGURE.items():
        for letter, column in zip("ABCD", PANELS, strict=True):
            run = results.runs.get((variant.name, pattern, column, 1))
            if run is not None and run.series:
                yield _panel(run, f"Fig. {number}{letter}, {variant.name}", pattern, column)


def _panel(run: Summary, caption: str, pattern: str, column: str) -> Figure:
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
