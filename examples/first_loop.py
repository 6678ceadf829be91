"""A first control loop: observe, decide, apply, journal, replay.

Covers: a topology, a world to control, a policy by name inside guards, the controller, the
journal and replaying it with another policy. Everything here is a recording; nothing is started.
Run it with ``make demo-lab``.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tidegate.errors import BackendError
from tidegate.loop.controller import Controller
from tidegate.loop.journal import Journal, read_journal
from tidegate.loop.replay import replay
from tidegate.loop.stack import policy_from
from tidegate.model import Plan, Snapshot
from tidegate.policies import create
from tidegate.testing import station_snapshot
from tidegate.testing.worlds import RecordedWorld

HOURS = 24
PEAK_PER_S = 40.0
SERVICE_PER_S = {"extract": 5.714, "match": 5.333, "aggregate": 400.0}
SETTINGS = {
    "policy": "drs",
    "parameters": {"t_max_s": "500ms"},
    "guards": {"bounds": {"min_hosts": 1, "max_hosts": 6}, "step-limit": {"down": 1}},
}


class TidalWorld(RecordedWorld):
    """A day of video frames whose rate rises and falls like the tide; plans take effect at once."""

    def __init__(self) -> None:
        super().__init__(self._hours())
        self.running = (1, 1, 1)

    def _hours(self) -> Iterator[Snapshot]:
        for hour in range(HOURS):
            rate = PEAK_PER_S * (0.1 + 0.9 * math.sin(math.pi * hour / HOURS) ** 2)
            rates = {name: (rate, mu) for name, mu in SERVICE_PER_S.items()}
            yield station_snapshot(rates, self.running, cores_per_host=5)

    def take_over(self, plan: Plan) -> None:
        """Run what was planned from the next hour on."""
        counts = plan.deployment.counts
        self.running = (counts["extract"], counts["match"], counts["aggregate"])


def main() -> None:
    world = TidalWorld()
    policy = policy_from(SETTINGS)
    path = Path(tempfile.mkdtemp()) / "journal.jsonl"
    print(policy.describe())
    with Journal(path) as journal:
        controller = Controller(world, policy, journal)
        for hour in range(HOURS):
            turn = controller.step()
            if turn.snapshot is None or turn.plan is None:
                raise BackendError(turn.error or "nothing was observed")
            rate = turn.snapshot.operators[0].arrival_rate_per_s or 0.0
            counts = turn.plan.deployment.counts
            shape = ":".join(str(counts[name]) for name in SERVICE_PER_S)
            latency_ms = 1000 * (turn.plan.predicted.sojourn_s or math.nan)
            bound = "".join(f"  [{b.guard}: {b.why}]" for b in turn.plan.bindings)
            sea = "~" * round(rate / 2)
            hosts = turn.plan.bounded_target
            print(
                f"{hour:02d}:00 {rate:5.1f}/s {sea:20} {hosts} hosts {shape:8} "
                f"{latency_ms:4.0f} ms{bound}"
            )
            world.take_over(turn.plan)

    other = list(replay(read_journal(path), create("ds2")))
    different = sum(not row.agrees for row in other)
    print(f"\nds2 would have decided otherwise in {different} of {HOURS} turns:")
    print("tidegate replay JOURNAL --policy ds2")


if __name__ == "__main__":
    main()
