"""Where the time of a journalled turn of a large fleet goes, in milliseconds of processor time.

    python benchmarks/live_turn_parts.py                 # 1,000 hosts of ten instances each
    python benchmarks/live_turn_parts.py --hosts 10000 --rounds 4
    python benchmarks/live_turn_parts.py --moving        # other loads in every turn

The turn is that of the row `turn` of `speed.py`, or of the case `moving` of `side_by_side.py`. A
part does not contain the parts that it calls, and the garbage collector is off. Least of several
turns; the first one is left out, as it writes a full line and compiles.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from side_by_side import snapshots_of

from tidegate.loop import changes, journal, lines
from tidegate.loop.controller import Controller
from tidegate.loop.journal import Journal
from tidegate.model import Deployment, Snapshot
from tidegate.packing import packing
from tidegate.packing.packing import Packing
from tidegate.policies import create, local_threshold
from tidegate.testing.worlds import RecordedWorld

DERIVED: dict[str, tuple[type, tuple[str, ...]]] = {
    "requested deployment": (Snapshot, ("requested",)),
    "indexes of the deployment": (Deployment, ("home", "by_host", "counts", "host_names")),
    "loads of instances": (Snapshot, ("loads",)),
    "room on hosts": (Packing, ("hosts", "_first_hosts", "home")),
}
CALLS: dict[str, list[tuple[Any, str]]] = {
    "sizes of instances": [(packing, "_sizes")],
    "room on hosts": [(Packing, "_find_rooms")],
    "policy, the rest": [(local_threshold.LocalThreshold, "decide")],
    "what leaves a host": [(local_threshold, "relieve"), (local_threshold, "select_to_move")],
    "placement": [(Packing, "_fit"), (packing, "first_fit_decreasing")],
    "plan": [(Packing, "plan"), (Deployment, "__post_init__")],
    "memory": [(Controller, "_saved_memory")],
    "journal: names": [(changes, "_compare_lists")],
    "journal: fields": [(changes, "_compare_rows"), (changes, "_same_columns")],
    "journal: the rest": [(changes, "_compare"), (lines, "changes"), (journal.Journal, "write")],
    "loop": [(Controller, "step")],
}
took_s: defaultdict[str, float] = defaultdict(float)
_inside: list[float] = []


def timed(part: str, do: Callable[..., Any]) -> Callable[..., Any]:
    """A function that adds its time, without that of other parts inside it."""

    def call(*given: Any, **options: Any) -> Any:
        _inside.append(0.0)
        start = time.process_time()
        try:
            return do(*given, **options)
        finally:
            whole = time.process_time() - start
            took_s[part] += whole - _inside.pop()
            if _inside:
                _inside[-1] += whole

    return call


def watch() -> None:
    """Time all parts from now on."""
    for part, (owner, names) in DERIVED.items():
        for name in names:
            value: Any = vars(owner)[name]
            value._make = timed(part, value._make)
    for part, places in CALLS.items():
        for place, name in places:
            setattr(place, name, timed(part, getattr(place, name)))


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    reader.add_argument("--hosts", type=int, default=1_000)
    reader.add_argument("--rounds", type=int, default=8)
    reader.add_argument("--moving", action="store_true")
    given = reader.parse_args()
    watch()
    seen = snapshots_of(given.hosts, given.moving)
    policy = create("local-threshold", violations=1)
    turns: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder, Journal(f"{folder}/j.jsonl", None) as written:
        for _ in range(1 + given.rounds):
            world = RecordedWorld([seen()])
            controller: Any = Controller(world, policy, written)
            controller._recorder._disk.call = lambda do: do()  # in this thread
            took_s.clear()
            gc.disable()
            assert controller.step().plan is not None
            gc.enable()
            turns.append(dict(took_s))
    print("| part | ms |\n|---|---:|")
    for part in dict.fromkeys((*DERIVED, *CALLS)):
        print(f"| {part} | {min(turn.get(part, 0.0) for turn in turns[1:]) * 1e3:.1f} |")
    print(f"| the whole turn | {min(sum(turn.values()) for turn in turns[1:]) * 1e3:.1f} |")


if __name__ == "__main__":
    main()
