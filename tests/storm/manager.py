"""A manager of the storm's fleet: that of ``tidegate fleet run``, whose senses can be wrong.

    python -m tests.storm.manager FOLDER

It waits for the folder of a seed as `tests.storm.controller` does. Its settings are in
``manager.json``; ``hosts.json`` tells the storm which host is at which address. Times are shorter
than in production, so that a fault takes seconds.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.storm.controller import Wrong, awaited
from tests.storm.seed import put
from tidegate.fleet.manager import FleetManager, fleet_policy
from tidegate.fleet.moves import MoveLog
from tidegate.fleet.providers import StaticProvider
from tidegate.fleet.queries import ContinuousQuery
from tidegate.fleet.world import FleetWorld
from tidegate.lifecycle import from_handler, on_signals
from tidegate.model import Snapshot
from tidegate.model.topology import Resources

INTERVAL_S, SILENCE_S, LEASE_S, MOVE_S = 1.0, 6.0, 5.0, 40.0


def query(folder: Path, name: str) -> ContinuousQuery:
    """Every value of a folder of files once, as `tests.spark.autoscaler.ticks` has it."""

    def values(session: Any, checkpoint: str) -> Any:
        rows = session.readStream.schema("v long").option("maxFilesPerTrigger", 1)
        slow = "reflect('java.lang.Thread', 'sleep', 20L) as w"
        found = rows.json(str(folder / "in")).repartition(2).selectExpr("v", slow)
        writer = found.dropDuplicates(["v"]).writeStream.format("json")
        return writer.option("path", str(folder / "out" / name))

    return ContinuousQuery(name, values, checkpoint=str(folder / "checkpoints" / name))


def main() -> None:
    """Run the fleet until a signal ends it."""
    folder = awaited(Path(sys.argv[1]))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("pyspark.sql.connect.logging").setLevel(logging.ERROR)
    given = json.loads((folder / "manager.json").read_bytes())
    wrong, disk = Wrong(folder), Path(given["disk"])

    def clock() -> float:
        return time.time() + wrong.clock_s()

    provider = StaticProvider(given["fleet"], given["endpoints"], Resources(2, 512, 10_000))
    world = FleetWorld(
        provider,
        folder / "fleet",
        interval_s=INTERVAL_S,
        silence_s=SILENCE_S,
        move_limit_s=MOVE_S,
        lease_s=LEASE_S,
        max_failures=20,
        clock=clock,
        move_log=MoveLog(disk / "moves.jsonl", clock),
    )
    world.add(query(folder, name) for name in given["queries"])
    observe = world.observe

    def seen() -> Snapshot:
        snapshot = wrong.seen(observe)
        places = {h.name: h.host.place for h in world.hosts.values() if h.host is not None}
        put(folder / "hosts.json", json.dumps(places))
        return snapshot

    world.observe = seen  # type: ignore[method-assign]
    policy = fleet_policy(given["policy"], min_hosts=given["hosts"], max_hosts=given["hosts"])
    manager = FleetManager(world, policy, None, disk / "journal.jsonl")

    def obey() -> None:
        file = folder / "command.json"
        done = file.stat().st_mtime if file.exists() else 0.0  # that one was for another manager
        while not manager.stopping.wait(0.1):
            if file.exists() and (asked_s := file.stat().st_mtime) != done:
                done = asked_s
                print(manager.ask(json.loads(file.read_bytes())), flush=True)

    threading.Thread(target=obey, daemon=True).start()
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # for a manager that hangs
    with on_signals(lambda: from_handler(manager.stop)):
        world.recover()
        manager.run()


if __name__ == "__main__":
    main()
