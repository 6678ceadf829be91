"""Running the cells of a sweep: each returns one flat row, even if it fails."""

from __future__ import annotations

import gc
import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from inspect import getsourcefile
from pathlib import Path
from typing import Any

import tidegate
from tidegate.codec import from_json
from tidegate.lab.backtest import Result, run_policy, stack_for
from tidegate.lab.sweep.grid import RecordedTrace, SweepCell
from tidegate.policies import policy_class
from tidegate.workloads import Workload

__all__ = ["ROW", "code_digest", "run_cell", "run_cells"]

ROW: dict[str, type] = {
    # What ran, and with which code.
    "cell": str, "case": str, "policy": str, "setting": str, "parameters": str, "settings": str,
    "trace": str, "trace_digest": str, "seed": int, "billing_unit_s": float, "usd_per_h": float,
    "mode": str, "slo_s": float, "interval_s": float, "definition": str, "version": str,
    "code": str, "host": str, "finished_s": float, "wall_s": float, "status": str, "error": str,
    # Results.
    "cost_usd": float, "resource_cost_usd": float, "penalty_cost_usd": float,
    "slo_compliance": float, "latency_mean_s": float, "latency_p50_s": float,
    "latency_p95_s": float, "latency_p99_s": float, "latency_max_s": float, "mean_hosts": float,
    "peak_hosts": int, "paid_units": int, "rescales": int, "migrations": int, "items_in": int,
    "items_out": int, "items_dropped": int, "duration_s": float,
}  # fmt: skip
"""The columns of a row with their types, as in the Parquet files.

case: digest of everything but policy and seed. parameters: those of the grid, as JSON; settings:
all that were set, as JSON. definition: the whole cell as JSON, enough to run it again. code: digest
of the code. host, finished_s (seconds since 1970), wall_s: where and when it ran, and for how long.
status: done or failed; error: why it failed.
"""

_UNUSED = ("cli", "report", "spark", "apps", "fleet", "dashboard", "testing")
"""Packages that no simulation depends on."""


def code_digest(policies: Iterable[str] = ()) -> str:
    """A digest of the code that results depend on.

    policies: names of policies; the files of those from other packages are included.
    """
    home = Path(tidegate.__file__).parent
    every = sorted(home.rglob("*.py"))
    files = [file for file in every if file.relative_to(home).parts[0] not in _UNUSED]
    for name in sorted(set(policies)):
        source = getsourcefile(policy_class(name))
        if source is not None and home not in Path(source).parents:
            files.append(Path(source))
    found = sha256()
    for file in files:
        found.update(file.name.encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:16]


def run_cell(cell: SweepCell, workload: Workload) -> tuple[dict[str, Any], Result]:
    """Run one cell; returns all settings of its policy, and the result."""
    scenario = cell.options.build(workload)
    # No column needs the time series, which takes as long as twenty turns to write down.
    scenario = replace(scenario, settings=replace(scenario.settings, series_rows=0))
    settings, policy = stack_for(cell.policy, scenario, cell.stack)
    report = run_policy(scenario, policy, cell.seed, fluid=cell.mode == "fluid")
    return settings, Result(cell.policy, settings, report, None)


def run_cells(
    cells: Iterable[str], trace: Callable[[str], RecordedTrace], code: str
) -> Iterator[dict[str, Any]]:
    """Run cells given as JSON; yields a row for each, even if it fails.

    trace: returns the trace of a name. code: digest of the code, for the rows.
    """
    _collect_rarely()
    workload = lru_cache(maxsize=2)(lambda name, seed: trace(name).workload(seed))
    for definition in cells:
        row: dict[str, Any] = dict.fromkeys(ROW)
        began_s = time.perf_counter()
        try:
            cell = from_json(SweepCell, definition)
            row |= _identity(cell, definition, code)
            settings, result = run_cell(cell, workload(cell.trace, cell.seed))
            row |= {"settings": json.dumps(settings), "status": "done"} | _figures(result)
        except Exception as error:  # the other cells go on
            row |= {"status": "failed", "error": f"{type(error).__name__}: {error}"}
        row |= {"wall_s": time.perf_counter() - began_s, "finished_s": time.time()}
        yield row


def failed_row(definition: str, code: str, error: str) -> dict[str, Any]:
    """The row of a cell whose process died."""
    row = dict.fromkeys(ROW) | _identity(from_json(SweepCell, definition), definition, code)
    return row | {"status": "failed", "error": error, "finished_s": time.time(), "wall_s": 0.0}


def _identity(cell: SweepCell, definition: str, code: str) -> dict[str, Any]:
    same = ("policy", "trace", "trace_digest", "seed", "billing_unit_s", "usd_per_h", "mode",
            "slo_s", "interval_s")  # fmt: skip
    return {name: getattr(cell, name) for name in same} | {
        "cell": cell.id,
        "case": cell.case,
        "setting": cell.setting,
        "parameters": json.dumps(cell.parameters),
        "definition": definition,
        "version": tidegate.__version__,
        "code": code,
        "host": socket.gethostname(),
    }


def _figures(result: Result) -> dict[str, Any]:
    report = result.report
    return {name: getattr(report, name) for name in ROW if hasattr(report, name)} | {
        "cost_usd": result.cost_usd,
        "slo_compliance": result.slo_compliance,
        "mean_hosts": result.mean_hosts,
    }


@lru_cache(maxsize=1)
def _collect_rarely() -> None:
    """Make garbage collection rare, once per process.

    Modules are exempt from it, and the objects of a turn are freed by reference counting.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)
