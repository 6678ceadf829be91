"""The figures of a sweep, computed with Spark SQL where its rows are.

All comparisons are on common seeds: a setting's costs are averaged over the cases of each seed, and
the intervals are Student's over the seeds. What a setting is behind the best is the mean of the
differences seed by seed, which is far sharper than the difference of two means.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.errors import InputError
from tidegate.lab.sweep_figures import (
    CaseFigures,
    HeatMap,
    Mean,
    Standing,
    SweepFigures,
    t_quantiles,
)

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

__all__ = ["parse_heat", "sweep_figures"]

MOST_FAILURES = 50

LATEST = """
SELECT * FROM (
  SELECT *, row_number() OVER (PARTITION BY cell ORDER BY finished_s DESC) AS age FROM sweep_rows
) WHERE age = 1
"""

# {scope}: the columns within which settings are compared, each followed by a comma, or nothing.
STANDINGS = """
WITH by_seed AS (
  SELECT {scope} policy, setting, seed, avg(cost_usd) AS cost, avg(resource_cost_usd) AS resource,
    avg(slo_compliance) AS in_time, avg(latency_p95_s) AS p95_s, count(*) AS cells
  FROM sweep_cells WHERE status = 'done' GROUP BY {scope} policy, setting, seed
), means AS (
  SELECT {scope} policy, setting, count(*) AS seeds, sum(cells) AS cells,
    avg(cost) AS cost, stddev_samp(cost) AS cost_sd,
    avg(resource) AS resource, stddev_samp(resource) AS resource_sd,
    avg(in_time) AS in_time, stddev_samp(in_time) AS in_time_sd, avg(p95_s) AS p95_s
  FROM by_seed GROUP BY {scope} policy, setting
), ranked AS (
  SELECT *, cells = max(cells) OVER (PARTITION BY {scope} 1) AS complete FROM means
), placed AS (
  SELECT *, row_number() OVER (
    PARTITION BY {scope} 1 ORDER BY complete DESC, cost, policy, setting) AS place FROM ranked
), best AS (
  SELECT b.* FROM by_seed b JOIN placed p USING ({scope} policy, setting) WHERE p.place = 1
), behind AS (
  SELECT {mine} a.policy, a.setting, avg(a.cost - best.cost) AS behind,
    stddev_samp(a.cost - best.cost) AS behind_sd, count(*) AS common
  FROM by_seed a JOIN best USING ({scope} seed) GROUP BY {mine} a.policy, a.setting
), beaten AS (
  SELECT DISTINCT {mine} a.policy, a.setting FROM placed a JOIN placed other
  ON {equal} other.resource <= a.resource AND other.in_time >= a.in_time
    AND (other.resource < a.resource OR other.in_time > a.in_time)
)
SELECT placed.*, behind.behind, beaten.policy IS NULL AS on_front,
  cost_sd / sqrt(seeds) * t.factor AS cost_half,
  resource_sd / sqrt(seeds) * t.factor AS resource_half,
  in_time_sd / sqrt(seeds) * t.factor AS in_time_half,
  behind_sd / sqrt(common) * u.factor AS behind_half
FROM placed
LEFT JOIN behind USING ({scope} policy, setting)
LEFT JOIN beaten USING ({scope} policy, setting)
LEFT JOIN sweep_t t ON t.freedom = seeds - 1
LEFT JOIN sweep_t u ON u.freedom = common - 1
ORDER BY {scope} place
"""

VARIED = """
SELECT policy, parameter FROM (
  SELECT policy, explode(from_json(parameters, 'map<string,string>')) AS (parameter, value)
  FROM sweep_cells WHERE status = 'done'
) GROUP BY policy, parameter HAVING count(DISTINCT value) > 1 ORDER BY policy, parameter
"""

HEAT = """
SELECT get_json_object(parameters, '$.{x}') AS x, get_json_object(parameters, '$.{y}') AS y,
  avg(cost_usd) AS cost
FROM sweep_cells WHERE status = 'done' AND policy = '{policy}' GROUP BY 1, 2
HAVING x IS NOT NULL AND y IS NOT NULL
"""


def parse_heat(text: str) -> tuple[str, str, str]:
    """Policy and two parameters.

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
    """The figures of the rows in a folder. heat: policies with two parameters to map; none: all."""
    spark.read.parquet(str(cells)).createOrReplaceTempView("sweep_rows")
    latest = spark.sql(LATEST).cache()
    latest.createOrReplaceTempView("sweep_cells")
    (counts,) = spark.sql(
        """
        SELECT count_if(status = 'done') AS done, count_if(status = 'failed') AS failed,
          count(DISTINCT seed) AS seeds, sum(duration_s) AS simulated_s, sum(wall_s) AS wall_s,
          sort_array(collect_set(concat(version, ' ', code))) AS made_by FROM sweep_cells
        """
    ).collect()
    factors = t_quantiles(max(1, counts.seeds - 1))
    spark.createDataFrame(factors, "freedom INT, factor DOUBLE").createOrReplaceTempView("sweep_t")
    failures = spark.sql(
        "SELECT policy, setting, trace, seed, error FROM sweep_cells WHERE status = 'failed' "
        f"ORDER BY policy, setting, trace, seed LIMIT {MOST_FAILURES}"
    ).collect()
    try:
        return SweepFigures(
            overall=tuple(_standing(row) for row in _standings(spark)),
            cases=_cases(spark),
            maps=tuple(_map(spark, *chosen) for chosen in heat or _varied(spark)),
            done=counts.done,
            failed=counts.failed,
            failures=tuple(tuple(row) for row in failures),
            made_by=tuple(counts.made_by),
            simulated_s=counts.simulated_s or 0.0,
            wall_s=counts.wall_s or 0.0,
        )
    finally:
        latest.unpersist()


def _standings(spark: SparkSession, scope: str = "") -> list[Row]:
    names = scope.split()
    words = {
        "scope": "".join(f"`{name}`, " for name in names),
        "mine": "".join(f"`{name}`, " for name in names),
        "equal": "".join(f"a.`{name}` = other.`{name}` AND " for name in names),
    }
    # Columns of a join with USING have one name; in the others they are those of `a`.
    query = STANDINGS
    if names:
        query = query.replace("SELECT DISTINCT {mine}", "SELECT DISTINCT {ours}")
        words["ours"] = "".join(f"a.`{name}`, " for name in names)
    return spark.sql(query.format(**words)).collect()


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


def _cases(spark: SparkSession) -> tuple[CaseFigures, ...]:
    """The standings of each case, in the order of traces and prices."""
    about = spark.sql(
        """
        SELECT `case`, any_value(trace) AS trace, any_value(billing_unit_s) AS billing_unit_s,
          any_value(usd_per_h) AS usd_per_h, any_value(slo_s) AS slo_s,
          any_value(interval_s) AS interval_s, any_value(mode) AS mode
        FROM sweep_cells WHERE status = 'done' GROUP BY `case`
        ORDER BY trace, billing_unit_s, usd_per_h, slo_s, interval_s, mode
        """
    ).collect()
    found: dict[str, list[Standing]] = {}
    for row in _standings(spark, "case"):
        found.setdefault(row["case"], []).append(_standing(row))
    return tuple(
        CaseFigures(
            row.trace,
            row.billing_unit_s,
            row.usd_per_h,
            row.slo_s,
            row.interval_s,
            row.mode,
            tuple(found[row["case"]]),
        )
        for row in about
    )


def _varied(spark: SparkSession) -> list[tuple[str, str, str]]:
    """Policies with two parameters or more that have several values, and the first two of them."""
    names: dict[str, list[str]] = {}
    for row in spark.sql(VARIED).collect():
        names.setdefault(row.policy, []).append(row.parameter)
    return [(policy, some[0], some[1]) for policy, some in names.items() if len(some) > 1]


def _map(spark: SparkSession, policy: str, x: str, y: str) -> HeatMap:
    rows = spark.sql(HEAT.format(policy=policy, x=x, y=y)).collect()
    if not rows:
        remedy = "the sweep must have varied both"
        raise InputError("--heat", f"{policy}:{x},{y}", "two parameters of the results", remedy)
    found = {(row.x, row.y): row.cost for row in rows}
    columns, lines = (sorted({key[i] for key in found}, key=_in_order) for i in (0, 1))
    costs = tuple(tuple(found.get((column, line)) for column in columns) for line in lines)
    return HeatMap(policy, x, y, tuple(map(_short, columns)), tuple(map(_short, lines)), costs)


def _short(text: str) -> str:
    """A number without a needless end; a word as it is."""
    try:
        return f"{float(text):g}"
    except ValueError:
        return text


def _in_order(text: str) -> tuple[Any, ...]:
    """Numbers by their value, then words."""
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text
