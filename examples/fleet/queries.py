"""Queries for a fleet: two written out and joined by a folder, and a dozen of one template.

    tidegate fleet run examples/fleet/queries.py --max-hosts 2

Reads trades as JSON files from ``out/ticks`` and writes below ``out/results``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidegate.fleet import continuous_query
from tidegate.fleet.sample_queries import TICKS, price_queries

TICKS_FOLDER, RESULTS = Path("out/ticks").resolve(), Path("out/results").resolve()
for folder in (TICKS_FOLDER, RESULTS / "large"):
    folder.mkdir(parents=True, exist_ok=True)


@continuous_query()
def large(session: Any, checkpoint: str) -> Any:
    ticks = session.readStream.schema(TICKS).json(str(TICKS_FOLDER))
    rows = ticks.filter("price > 90").writeStream.format("json")
    return rows.option("path", str(RESULTS / "large"))


@continuous_query(near=["large"])  # reads what `large` writes, so one host is preferred for both
def large_of_sector_0(session: Any, checkpoint: str) -> Any:
    rows = session.readStream.schema(TICKS).json(str(RESULTS / "large")).filter("sector = 0")
    return rows.writeStream.format("json").option("path", str(RESULTS / "large-0"))


prices = price_queries(str(TICKS_FOLDER), str(RESULTS), count=12, seed=1)
