"""Running the cells of a sweep: each becomes one flat row, also when it fails."""

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
from tidegate.lab.backtest import Result, run_policy, suited_settings
from tidegate.lab.sweep.definition import Cell
from tidegate.lab.sweep.traces import Recorded
from tidegate.loop.stack import wrapped
from tidegate.policies import create, policy_class
from tidegate.simulation.scenario import Scenario, scenario_for, scenario_on
from tidegate.workloads import Workload

__all__ = ["ROW", "code_digest", "run_cell", "run_cells", "scenario_of"]

ROW: dict[str, type] = {
    # What was run, and by what.
    "cell": str, "case": str, "policy": str, "setting": str, "parameters": str, "settings": str,
    "trace": str, "trace_digest": str, "seed": int, "billing_unit_s": float, "usd_per_h": float,
    "mode": str, "slo_s": float, "interval_s": float, "definition": str, "version": str,
    "code": str, "host": str, "finished_s": float, "wall_s": float, "status": str, "error": str,
    # What came of it.
    "cost_usd": float, "resource_cost_usd": float, "penalty_cost_usd": float,
    "slo_compliance": float, "latency_mean_s": float, "latency_p50_s": float,
    "latency_p95_s": float, "latency_p99_s": float, "latency_max_s": float, "mean_hosts": float,
    "peak_hosts": int, "paid_units": int, "rescales": int, "migrations": int, "items_in": int,
    "items_out": int, "items_dropped": int, "duration_s": float,
}  # fmt: skip
"""The columns of a row with their types, which are those of the Parquet files too.

case: a digest of all but policy and seed; parameters: those of the grid, settings: all that were
set, both as JSON; definition: the whole cell as JSON, which is
enough to run it again; code: a digest of the code that ran it; host, finished_s
(seconds since 1970), wall_s: where, when and how long; status: done or failed, then with its error.
"""

_ELSEWHERE = ("cli", "report", "spark", "apps", "fleet", "dashboard")
"""Parts of the package that no simulation depends on."""


def code_digest(policies: Iterable[str] = ()) -> str:
    """A digest of the code that results depend on: the simulator's, and of foreign policies.

    policies: names; those of other packages are read in too.
    """
    home = Path(tidegate.__file__).parent
    every = sorted(home.rglob("*.py"))
    files = [file for file in every if file.relative_to(home).parts[0] not in _ELSEWHERE]
    for name in sorted(set(policies)):
        source = getsourcefile(policy_class(name))
        if source is not None and home not in Path(source).parents:
            files.append(Path(source))
    found = sha256()
    for file in files:
        found.update(file.name.encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:16]


def scenario_of(cell: Cell, workload: Workload) -> Scenario:
    """The scenario that a cell's policy is tried on."""
    options: dict[str, Any] = {
        "billing_unit_s": cell.billing_unit_s,
        "usd_per_h": cell.usd_per_h,
        "startup_s": cell.startup_s,
        "interval_s": cell.interval_s,
        "max_hosts": cell.max_hosts,
        "penalty_usd": cell.penalty_usd,
    }
    if cell.instances_per_host is not None:
        options["instances_per_host"] = cell.instances_per_host
    if cell.topology is None:
        options["rate_per_instance"] = cell.rate_per_instance
        options["service_scv"] = cell.service_scv
        scenario = scenario_for(workload, cell.slo_s, **options)
    else:
        scenario = scenario_on(cell.topology, workload, cell.slo_s, **options)
    return replace(scenario, settings=replace(scenario.settings, fluid_step_s=cell.fluid_step_s))


def run_cell(cell: Cell, workload: Workload) -> tuple[dict[str, Any], Result]:
    """Run one cell; returns all settings of its policy, and the result."""
    scenario = scenario_of(cell, workload)
    settings = suited_settings(cell.policy, scenario) | cell.parameters
    policy = wrapped(create(cell.policy, **settings), cell.guards)
    report = run_policy(scenario, policy, cell.seed, fluid=cell.mode == "fluid")
    return settings, Result(cell.policy, settings, report, None)


def run_cells(
    cells: Iterable[str], trace: Callable[[str], Recorded], code: str
) -> Iterator[dict[str, Any]]:
    """Run cells that are given as JSON; a row for each, also for those that fail.

    trace: the one of a name. code: the digest to write down.
    """
    _settle()
    workload = lru_cache(maxsize=2)(lambda name, seed: trace(name).workload(seed))
    for definition in cells:
        row: dict[str, Any] = dict.fromkeys(ROW)
        began_s = time.perf_counter()
        try:
            cell = from_json(Cell, definition)
            row |= _identity(cell, definition, code)
            settings, result = run_cell(cell, workload(cell.trace, cell.seed))
            row |= {"settings": json.dumps(settings), "status": "done"} | _figures(result)
        except Exception as error:  # one cell's trouble is that cell's: the others go on
            row |= {"status": "failed", "error": f"{type(error).__name__}: {error}"}
        row |= {"wall_s": time.perf_counter() - began_s, "finished_s": time.time()}
        yield row


def failed_row(definition: str, code: str, error: str) -> dict[str, Any]:
    """The row of a cell that took its process with it."""
    row = dict.fromkeys(ROW) | _identity(from_json(Cell, definition), definition, code)
    return row | {"status": "failed", "error": error, "finished_s": time.time(), "wall_s": 0.0}


def _identity(cell: Cell, definition: str, code: str) -> dict[str, Any]:
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
def _settle() -> None:
    """Once in a process: what the imports have left is no garbage, and need not be looked at.

    What a turn leaves goes at once, without a collector, which may come by less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)
