"""Write deploy/grafana/tidegate.json: ``python scripts/grafana.py``.

A short list of panels is easier to maintain than eight hundred lines of JSON. A test compares the
file with the output of this script, and its expressions with the exported metrics.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "deploy" / "grafana" / "tidegate.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
JOB = '{job=~"$job"}'
QUANTILE = "histogram_quantile({}, sum by (le) (rate(tidegate_latency_seconds_bucket{}[5m])))"
BY_QUERY = "sum by (query) (rate({}[5m]))"
ROWS, LATE = f"tidegate_query_rows_total{JOB}", f"tidegate_query_late_rows_total{JOB}"

PANELS: list[tuple[str, str, str, int, list[tuple[str, str]]]] = [
    # title, kind, unit, width, (expression, legend)
    (
        "Executors",
        "timeseries",
        "none",
        12,
        [
            (f"tidegate_executors_running{JOB}", "running"),
            (f"tidegate_executors_target{JOB}", "target"),
            (f"tidegate_executors_raw_target{JOB}", "target of the policy"),
        ],
    ),
    (
        "Input and capacity",
        "timeseries",
        "cps",
        12,
        [
            (f"tidegate_input_items_per_second{JOB}", "input"),
            (f"tidegate_capacity_items_per_second{JOB}", "capacity"),
        ],
    ),
    (
        "Latency",
        "timeseries",
        "s",
        12,
        [
            (QUANTILE.format(0.5, JOB), "median"),
            (QUANTILE.format(0.95, JOB), "95 %"),
            (f"tidegate_slo_seconds{JOB}", "SLO"),
            (f"tidegate_predicted_latency_seconds{JOB}", "predicted mean"),
        ],
    ),
    ("Backlog", "timeseries", "none", 12, [(f"tidegate_lag_items{JOB}", "{{operator}}")]),
    (
        "Rows within the query's own SLO",
        "timeseries",
        "percentunit",
        12,
        [(f"1 - {BY_QUERY.format(LATE)} / {BY_QUERY.format(ROWS)}", "{{query}}")],
    ),
    (
        "Processing delay by query, 95 %",
        "timeseries",
        "s",
        12,
        [
            (
                "histogram_quantile(0.95, sum by (query, le) "
                f"(rate(tidegate_query_delay_seconds_bucket{JOB}[5m])))",
                "{{query}}",
            ),
            (f"tidegate_query_slo_seconds{JOB}", "SLO of {{query}}"),
        ],
    ),
    (
        "Event age by query, 95 %",
        "timeseries",
        "s",
        12,
        [(f"tidegate_query_event_age_p95_seconds{JOB}", "{{query}}")],
    ),
    (
        "Backlog by query",
        "timeseries",
        "s",
        12,
        [(f"tidegate_query_backlog_seconds{JOB}", "{{query}}")],
    ),
    (
        "Cost of a batch",
        "timeseries",
        "s",
        12,
        [
            (f"tidegate_query_batch_overhead_seconds{JOB}", "overhead of {{query}}"),
            (
                f"tidegate_query_batch_fixed_work_seconds{JOB} / tidegate_query_batch_slots{JOB}",
                "fixed work of {{query}}",
            ),
            (f"tidegate_query_batch_seconds{JOB}", "last batch of {{query}}"),
        ],
    ),
    (
        "State",
        "timeseries",
        "decbytes",
        12,
        [(f"tidegate_query_state_bytes{JOB}", "{{query}}")],
    ),
    (
        "Decisions in the last hour",
        "bargauge",
        "none",
        12,
        [
            (
                f"sum by (direction, reason) (increase(tidegate_decisions_total{JOB}[1h]))",
                "{{direction}}: {{reason}}",
            )
        ],
    ),
    (
        "Guards that changed plans in the last hour",
        "bargauge",
        "none",
        12,
        [(f"sum by (guard) (increase(tidegate_guard_bindings_total{JOB}[1h]))", "{{guard}}")],
    ),
    (
        "Cost per hour",
        "stat",
        "currencyUSD",
        6,
        [(f"sum(tidegate_cost_usd_per_hour{JOB})", "now")],
    ),
    ("Cost so far", "stat", "currencyUSD", 6, [(f"sum(tidegate_cost_usd_total{JOB})", "so far")]),
    ("Age of the last turn", "stat", "s", 6, [(f"max(tidegate_staleness_seconds{JOB})", "age")]),
    (
        "Failed turns in the last hour",
        "stat",
        "none",
        6,
        [(f"sum(increase(tidegate_errors_total{JOB}[1h]))", "failed")],
    ),
]


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    panels, x, y = [], 0, 0
    for number, (title, kind, unit, width, targets) in enumerate(PANELS, start=1):
        if x + width > 24:
            x, y = 0, y + 8
        panels.append(
            {
                "id": number,
                "title": title,
                "type": kind,
                "datasource": SOURCE,
                "gridPos": {"x": x, "y": y, "w": width, "h": 8},
                "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
                "targets": [
                    {"refId": chr(65 + n), "datasource": SOURCE, "expr": expr, "legendFormat": name}
                    for n, (expr, name) in enumerate(targets)
                ],
            }
        )
        x += width
    query = "label_values(tidegate_build_info, job)"
    return {
        "title": "Tidegate",
        "uid": "tidegate",
        "tags": ["spark", "autoscaling"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                {
                    "name": "job",
                    "type": "query",
                    "datasource": SOURCE,
                    "query": query,
                    "includeAll": True,
                    "multi": True,
                },
            ]
        },
        "panels": panels,
    }


def text() -> str:
    """Return the content of the file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
