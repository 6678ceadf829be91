"""The figures of a sweep, computed with Spark SQL where its rows are.

All comparisons are on common seeds: a setting's costs are averaged over the cases of each seed, and
the intervals are Student's over the seeds. What a setting is behind the best is the mean of the
differences seed by seed, which is far sharper than the difference of two means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.errors import InputError
from tidegate.lab.sweep.figures import (
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

# Scope '' is all cases together, each seed's costs averaged over them; the others are single cases.
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
    """A view that is computed once, for as long as the block lasts."""
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
