"""A controller of the storm's application: that of ``tidegate attach``, whose senses can be wrong.

    python -m tests.storm.controller FOLDER

It waits for a file ``go-PID`` in the folder, so that a controller that is killed can be followed by
one that has started already. The file names the folder of a seed, with the settings in
``controller.json``. ``wrong.json`` there is read at every turn: by how many seconds the clock is
wrong, and which measurements are (`tests/soak/job.py` has the list).
Timeouts are shorter than in production, so that a fault takes seconds.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.soak.job import ABSURD, MISSING
from tidegate.model import Snapshot
from tidegate.report.metrics import ServedMetrics
from tidegate.spark.autoscaler import agent, agent_calls, attach
from tidegate.spark.autoscaler.attachment import Attachment
from tidegate.spark.autoscaler.autoscaler import Autoscaler

LEASE_S, TIMEOUT_S, EVENT_WAIT_S = 2, 4.0, 2.0
WAIT_S = 900.0


@dataclass(frozen=True)
class Wrong:
    """What is wrong now. folder: of the storm."""

    folder: Path

    def read(self) -> dict[str, Any]:
        """The contents of the file, which the storm replaces as a whole."""
        try:
            found: dict[str, Any] = json.loads((self.folder / "wrong.json").read_bytes())
        except FileNotFoundError:
            return {}
        return found

    def clock_s(self) -> float:
        """By how much the clock is ahead."""
        return float(self.read().get("clock_s", 0.0))

    def seen(self, observe: Callable[[], Snapshot]) -> Snapshot:
        """A snapshot with the wrong measurements."""
        snapshot = observe()
        change = (MISSING | ABSURD).get(self.read().get("readings", ""))
        if change is None:
            return snapshot
        return replace(snapshot, operators=tuple(change(one) for one in snapshot.operators))


def awaited(folder: Path) -> Path:
    """Wait for the file with the folder of a seed, and return that. folder: of the run."""
    go = folder / f"go-{os.getpid()}"
    tick = threading.Event()
    while not go.exists():
        tick.wait(0.05)  # faketime breaks time.sleep when it is set
    return Path(go.read_text(encoding="utf-8"))


def main() -> int:
    """Control the application, and each one that follows it, until a signal ends this process."""
    folder = awaited(Path(sys.argv[1]))
    wrong = Wrong(folder)
    given = json.loads((folder / "controller.json").read_bytes())
    agent.LEASE_S, agent.EVENT_WAIT_S = LEASE_S, EVENT_WAIT_S  # type: ignore[attr-defined]
    agent_calls.TIMEOUT_S = TIMEOUT_S

    class WrongClock(agent.AgentGateway):
        def clock(self) -> float:
            return super().clock() + wrong.clock_s()

    class WrongSenses(Attachment):
        __slots__ = ()

        def autoscaler(self, spark: Any) -> Autoscaler:
            made = super().autoscaler(spark)
            observe = made.world.observe
            made.world.observe = lambda: wrong.seen(observe)  # type: ignore[method-assign]
            return made

    attach.AgentGateway = WrongClock  # type: ignore[attr-defined]
    metrics = ServedMetrics(f"127.0.0.1:{given.pop('port')}")
    attachment = WrongSenses(**{**given["settings"], "metrics": metrics})

    def place() -> attach.Place:
        _, token = agent.announced(folder.parent / "agent")
        return attach.Place(given["url"], token, announced=True)

    return attach.run_controller(place, attachment, WAIT_S, follow=True, standby=True)


if __name__ == "__main__":
    sys.exit(main())
