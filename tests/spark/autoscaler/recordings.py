"""Progress events that a real Spark wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tidegate.spark.autoscaler.progress import (
    Progress,
    read_progress,
)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "progress"


def events(scenario: str) -> list[tuple[str, str]]:
    """Kind and text of each event, as the listener was told them."""
    lines = (FIXTURES / f"{scenario}.jsonl").read_text(encoding="utf-8").splitlines()
    read: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [(e["kind"], json.dumps(e["event"]) if "event" in e else e["text"]) for e in read]


def recorded(scenario: str) -> list[Progress]:
    """The batches of a scenario and the words that nothing came."""
    return [read_progress(t) for kind, t in events(scenario) if kind in ("progress", "idle")]
