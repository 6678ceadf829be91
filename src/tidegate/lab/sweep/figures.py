"""The figures of a sweep: means with intervals, Pareto fronts and heat maps, by Spark SQL.

All comparisons use common random seeds. A setting's costs are averaged over the cases of each
seed, and the intervals are Student's over the seeds. A setting's cost behind the best is the mean
of the differences by seed, which is far more precise than the difference of two means.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.codec import Value, to_plain
from tidegate.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

__all__ = [
    "CaseFigures",
    "HeatMap",
    "Mean",
    "Standing",
    "SweepFigures",
    "parse_heat",
    "sweep_figures",
]

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Mean(Value):
    """A mean over seeds; half: half the width of its 95 % interval, None for a single seed."""

    mean: float
    half: float | None = None

    def text(self, digits: int) -> str:
        """Mean and interval as text.

        >>> Mean(12.345, 0.678).text(2), Mean(3.0).text(1)
        ('12.35 ± 0.68', '3.0')
        """
        shown = f"{self.mean:.{digits}f}"
        return shown if self.half is None else f"{shown} ± {self.half:.{digits}f}"


@dataclass(frozen=True, slots=True)
class Standing(Value):
    """One setting of a policy.

    Args:
        policy: Name of the policy.
        setting: Its parameters and guards, as text.
        cost: Cost of hosts and late items, in dollars.
        behind: Cost above that of the best setting on the same seeds; None for the best.
        resource: Cost of hosts alone, in dollars.
        in_time: Share of the items that met the latency target.
        p95_s: 95th percentile of the latency, in seconds.
        seeds: Number of seeds.
        cells: Number of cells.
        complete: Whether it has as many cells as the others.
        on_front: Whether no other setting beats it in both `resource` and `in_time`.
    """

    policy: str
    setting: str
    cost: Mean
    behind: Mean | None
    resource: Mean
    in_time: Mean
    p95_s: float | None
    seeds: int
    cells: int
    complete: bool
    on_front: bool

    @property
    def name(self) -> str:
        """Policy and setting."""
        return f"{self.policy} {self.setting}".strip()


@dataclass(frozen=True, slots=True)
class CaseFigures(Value):
    """The standings of one case, the cheapest first.

    Args:
        trace: Name of the trace.
        billing_unit_s: Billing time unit of a host, in seconds.
        usd_per_h: Price of a host, in dollars per hour.
        slo_s: Latency target, in seconds.
        interval_s: Time between two decisions, in seconds.
        mode: item or fluid.
        standings: Settings of policies, the cheapest first.
    """

    trace: str
    billing_unit_s: float
    usd_per_h: float
    slo_s: float
    interval_s: float
    mode: str
    standings: tuple[Standing, ...]


@dataclass(frozen=True, slots=True)
class HeatMap(Value):
    """Mean cost of a policy by two parameters.

    Args:
        policy: Name of the policy.
        x: Parameter of the columns.
        y: Parameter of the rows.
        columns: Values of `x`.
        rows: Values of `y`.
        costs: Mean costs by row and column; None without a result.
    """

    policy: str
    x: str
    y: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    costs: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class SweepFigures(Value):
    """The results of a whole sweep.

    Args:
        overall: Standings over all cases, the cheapest first.
        cases: Standings by case.
        maps: Costs by two parameters.
        done: Number of cells that succeeded.
        failed: Number of cells that failed.
        failures: The first failed cells: policy, setting, trace, seed and error.
        made_by: Versions and digests of the code.
        simulated_s: Simulated time, in seconds.
        wall_s: Time that the simulations took on one core, in seconds.
    """

    overall: tuple[Standing, ...]
    cases: tuple[CaseFigures, ...]
    maps: tuple[HeatMap, ...]
    done: int
    failed: int
    failures: tuple[tuple[str, str, str, int, str], ...]
    made_by: tuple[str, ...]
    simulated_s: float
    wall_s: float

    def plain(self) -> Any:
        """The figures as plain values, for JSON."""
        return to_plain(self)

    def legend(self) -> str:
        """An explanation of the leaderboard's columns."""
        many = f", mean over {len(self.cases)} cases" if len(self.cases) > 1 else ""
        return (
            f"cost: hosts and late items{many}; ±: {CONFIDENCE:.0%} interval over seeds; behind "
            "the best: on the same seeds; *: no other setting has both cheaper hosts and more "
            "items in time"
        )


def t_quantiles(most: int) -> list[tuple[int, float]]:
    """Quantiles of Student's t for two-sided 95 % intervals, for 1 to `most` degrees of freedom.

    >>> [(n, round(t, 2)) for n, t in t_quantiles(2)]
    [(1, 12.71), (2, 4.3)]
    """
    from scipy.stats import t

    degrees = range(1, most + 1)
    found = [float(t.ppf((1 + CONFIDENCE) / 2, n)) for n in degrees]
    return [(n, value) for n, value in zip(degrees, found, strict=True) if math.isfinite(value)]


# --- queries ---------------------------------------------------------------------------------

MOST_FAILURES = 50

LATEST = """
SELECT * FROM (
  SELECT *, row_number() OVER (PARTITION BY cell ORDER BY finished_s DESC) AS age FROM sweep_rows
) WHERE age = 1
"""

# Scope '' averages each seed's costs over all cases; the other scopes are single cases.
BY_SEED = """
SELECT coalesce(`case`, '') AS scope, policy, setting, seed, avg(cost_usd) AS cost,
  avg(resource_cost_usd) AS resource, avg(slo_compliance) AS in_time,
  avg(latency_p95_s) AS p95_s, count(*) AS cells
FROM sweep_cells WHERE status = 'done'
GROUP BY GROUPING SETS ((policy, setting, seed), (`case`, policy, setting, seed))
"""

MEANS = """
SELECT *, row_number() OVER (
  PARTITION BY scope ORDER BY complete DESC, cost, policy, setting) AS place
FROM (
  SELECT *, cells = max(cells) OVER (PARTITION BY scope) AS complete FROM (
    SELECT scope, policy, setting, count(*) AS seeds, sum(cells) AS cells,
      avg(cost) AS cost, stddev_samp(cost) AS cost_sd,
      avg(resource) AS resource, stddev_samp(resource) AS resource_sd,
      avg(in_time) AS in_time, stddev_samp(in_time) AS in_time_sd, avg(p95_s) AS p95_s
    FROM sweep_by_seed GROUP BY scope, policy, setting
  )
)
"""

STANDINGS = """
WITH best AS (
  SELECT scope, seed, b.cost FROM sweep_by_seed b JOIN sweep_means m USING (scope, policy, setting)
  WHERE m.place = 1
), behind AS (
  SELECT scope, policy, setting, avg(a.cost - best.cost) AS behind,
    stddev_samp(a.cost - best.cost) AS behind_sd, count(*) AS common
  FROM sweep_by_seed a JOIN best USING (scope, seed) GROUP BY scope, policy, setting
)
SELECT m.*, behind.behind,
  cost_sd / sqrt(seeds) * t.factor AS cost_half,
  resource_sd / sqrt(seeds) * t.factor AS resource_half,
  in_time_sd / sqrt(seeds) * t.factor AS in_time_half,
  behind_sd / sqrt(common) * u.factor AS behind_half,
  NOT EXISTS (
    SELECT * FROM sweep_means other
    WHERE other.scope = m.scope AND other.resource <= m.resource AND other.in_time >= m.in_time
      AND (other.resource < m.resource OR other.in_time > m.in_time)
  ) AS on_front
FROM sweep_means m
LEFT JOIN behind ON behind.scope = m.scope AND behind.policy = m.policy
  AND behind.setting = m.setting
LEFT JOIN sweep_t t ON t.freedom = seeds - 1
LEFT JOIN sweep_t u ON u.freedom = common - 1
ORDER BY m.scope, place
"""

VARIED = """
SELECT policy, parameter FROM (
  SELECT policy, explode(from_json(parameters, 'map<string,string>')) AS (parameter, value)
  FROM sweep_cells WHERE status = 'done'
) GROUP BY policy, parameter HAVING count(DISTINCT value) > 1 ORDER BY policy, parameter
"""

COUNTS = """
SELECT count_if(status = 'done') AS done, count_if(status = 'failed') AS failed,
  count(DISTINCT seed) AS seeds, sum(duration_s) AS simulated_s, sum(wall_s) AS wall_s,
  sort_array(collect_set(concat(version, ' ', code))) AS made_by FROM sweep_cells
"""

FAILURES = f"""
SELECT policy, setting, trace, seed, error FROM sweep_cells WHERE status = 'failed'
ORDER BY policy, setting, trace, seed LIMIT {MOST_FAILURES}
"""

CASES = """
SELECT `case`, any_value(trace) AS trace, any_value(billing_unit_s) AS billing_unit_s,
  any_value(usd_per_h) AS usd_per_h, any_value(slo_s) AS slo_s,
  any_value(interval_s) AS interval_s, any_value(mode) AS mode
FROM sweep_cells WHERE status = 'done' GROUP BY `case`
ORDER BY trace, billing_unit_s, usd_per_h, slo_s, interval_s, mode
"""

HEAT = """
SELECT get_json_object(parameters, '$.{x}') AS x, get_json_object(parameters, '$.{y}') AS y,
  avg(cost_usd) AS cost
FROM sweep_cells WHERE status = 'done' AND policy = '{policy}' GROUP BY 1, 2
HAVING x IS NOT NULL AND y IS NOT NULL
"""


def parse_heat(text: str) -> tuple[str, str, str]:
    """A policy and two of its parameters, from the text of ``--heat``.

    >>> parse_heat("lag:threshold,step")
    ('lag', 'threshold', 'step')
    """
    policy, _, rest = text.partition(":")
    x, _, y = rest.partition(",")
    if not (policy and x and y) or not all(
        part.replace("-", "_").isidentifier() for part in (policy, x, y)
    ):
        raise InputError("--heat", text, "POLICY:X,Y", "name a policy and two of its parameters")
    return policy, x, y


def sweep_figures(
    spark: SparkSession, cells: Path, heat: Sequence[tuple[str, str, str]] = ()
) -> SweepFigures:
    """The figures of the rows in a folder. heat: policies with two parameters; default: all."""
    spark.read.parquet(str(cells)).createOrReplaceTempView("sweep_rows")
    with _kept(spark, "sweep_cells", LATEST):
        maps = tuple(_map(spark, *chosen) for chosen in heat or _varied(spark))
        (counts,) = spark.sql(COUNTS).collect()
        factors = t_quantiles(max(1, counts.seeds - 1))
        sent = spark.createDataFrame(factors, "freedom INT, factor DOUBLE")
        sent.createOrReplaceTempView("sweep_t")
        failures = spark.sql(FAILURES).collect()
        with _kept(spark, "sweep_by_seed", BY_SEED), _kept(spark, "sweep_means", MEANS):
            found: dict[str, list[Standing]] = {}
            for row in spark.sql(STANDINGS).collect():
                found.setdefault(row.scope, []).append(_standing(row))
        cases = spark.sql(CASES).collect()
    return SweepFigures(
        overall=tuple(found.get("", ())),
        cases=tuple(
            CaseFigures(
                row.trace,
                row.billing_unit_s,
                row.usd_per_h,
                row.slo_s,
                row.interval_s,
                row.mode,
                tuple(found[row["case"]]),
            )
            for row in cases
        ),
        maps=maps,
        done=counts.done,
        failed=counts.failed,
        failures=tuple(tuple(row) for row in failures),
        made_by=tuple(counts.made_by),
        simulated_s=counts.simulated_s or 0.0,
        wall_s=counts.wall_s or 0.0,
    )


@contextmanager
def _kept(spark: SparkSession, name: str, query: str) -> Iterator[None]:
    """A cached view that exists while the block runs."""
    found = spark.sql(query).cache()
    found.createOrReplaceTempView(name)
    try:
        yield
    finally:
        found.unpersist()


def _standing(row: Row) -> Standing:
    return Standing(
        policy=row.policy,
        setting=row.setting,
        cost=Mean(row.cost, row.cost_half),
        behind=None if row.place == 1 or row.behind is None else Mean(row.behind, row.behind_half),
        resource=Mean(row.resource, row.resource_half),
        in_time=Mean(row.in_time, row.in_time_half),
        p95_s=row.p95_s,
        seeds=row.seeds,
        cells=row.cells,
        complete=row.complete,
        on_front=row.on_front,
    )


def _varied(spark: SparkSession) -> list[tuple[str, str, str]]:
    """Policies with at least two varied parameters, each with the first two of them."""
    names: dict[str, list[str]] = {}
    for row in spark.sql(VARIED).collect():
        names.setdefault(row.policy, []).append(row.parameter)
    return [(policy, some[0], some[1]) for policy, some in names.items() if len(some) > 1]


def _map(spark: SparkSession, policy: str, x: str, y: str) -> HeatMap:
    rows = spark.sql(HEAT.format(policy=policy, x=x, y=y)).collect()
    if not rows:
        remedy = "the sweep must vary both"
        raise InputError("--heat", f"{policy}:{x},{y}", "two parameters of the results", remedy)
    found = {(row.x, row.y): row.cost for row in rows}
    columns, lines = (sorted({key[i] for key in found}, key=_in_order) for i in (0, 1))
    costs = tuple(tuple(found.get((column, line)) for column in columns) for line in lines)
    return HeatMap(policy, x, y, tuple(map(_short, columns)), tuple(map(_short, lines)), costs)


def _short(text: str) -> str:
    """A number without trailing zeros; other text unchanged."""
    try:
        return f"{float(text):g}"
    except ValueError:
        return text


def _in_order(text: str) -> tuple[Any, ...]:
    """A sort key: numbers by value, then text."""
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text
