"""Random faults in a fleet of real hosts; in the end the sinks must equal a batch exactly.

Moves, kill -9, hosts that hang, drains and restarts of the manager happen at random while trades
arrive. The seed determines the order of faults; their effects also depend on the machine.

    python -m tests.fleet.storm [--seed 1] [--faults 10] [--queries 3] [--hosts 2]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.fleet.live import SECTORS, Fleet, Ticks, sink_and_batch
from tidegate.fleet.connect import connect
from tidegate.fleet.sample_queries import price_queries, query_parameters

FAULTS = ("move", "move", "move", "kill", "hang", "drain", "manager")


class Storm:
    """A fleet with faults."""

    def __init__(self, folder: Path, seed: int, queries: int, hosts: int) -> None:
        self.folder, self.count, self.hosts = folder, queries, hosts
        self.rng = random.Random(seed)
        self.parameters = query_parameters(queries, seed, SECTORS)
        self.queries = price_queries(
            str(folder / "ticks"), str(folder / "results"), queries, seed, sectors=SECTORS
        )
        self.ticks = Ticks(folder / "ticks", seed)
        self.fleet = self.manager()

    def manager(self) -> Fleet:
        fleet = Fleet(self.folder, self.queries, self.hosts)
        fleet.world.silence_s = 30.0
        fleet.world.recover()
        return fleet

    def calm(self) -> None:
        """Wait until all hosts have answered and every query runs on its target."""
        began_s = time.monotonic()

        def seen() -> bool:
            world = self.fleet.world
            queries = world.queries.values()
            return (
                bool(world.hosts)
                and all(h.host is not None and h.answered_s > began_s for h in world.hosts.values())
                and all(e.host and e.host == e.target and not e.busy for e in queries)
            )

        self.fleet.until(seen, "calm", 400)

    def inject(self, fault: str) -> None:
        world, provider = self.fleet.world, self.fleet.provider
        host = self.rng.choice(list(world.hosts))
        query = self.rng.choice(list(world.queries))
        if len(world.hosts) < self.hosts and fault in ("move", "drain"):
            world.lease(f"host-{world.leased_so_far + 1}")
            self.calm()
            host = list(world.hosts)[-1]
        if fault == "move":
            self.fleet.manager.command({"do": "move", "query": query, "host": host})
            self.fleet.manager.turn()
            if self.rng.random() < 0.3:  # its host dies during the move
                os.killpg(provider.pid(host), signal.SIGKILL)
        elif fault in ("kill", "hang"):
            number = signal.SIGKILL if fault == "kill" else signal.SIGSTOP
            os.killpg(provider.pid(host), number)
        elif fault == "drain":
            self.fleet.manager.command({"do": "drain", "host": host})
        else:
            provider.close()  # as the watchdog does if a manager is killed
            self.fleet = self.manager()

    def equal(self) -> bool:
        """Close all windows, wait for the results, and compare them."""
        end_s = self.ticks.finish()
        host = next(iter(self.fleet.world.hosts.values())).host
        session = connect(host.endpoint, host.session_id)  # type: ignore[union-attr]

        def complete() -> bool:
            return all(
                got.total() >= want.total()
                for p in self.parameters
                for got, want in [sink_and_batch(session, self.folder, **p, end_s=end_s)]
            )

        self.fleet.until(complete, "all windows written", 400)
        results = [sink_and_batch(session, self.folder, **p, end_s=end_s) for p in self.parameters]
        for p, (got, want) in zip(self.parameters, results, strict=True):
            said = "equal" if got == want else f"MISSING {want - got} EXTRA {got - want}"
            print(f"prices-{p['n']}: {want.total()} rows, {said}")
        return all(got == want for got, want in results)


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--seed", type=int, default=1)
    reader.add_argument("--faults", type=int, default=10)
    reader.add_argument("--queries", type=int, default=3)
    reader.add_argument("--hosts", type=int, default=2)
    given = reader.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidegate-storm-") as folder:
        storm = Storm(Path(folder), given.seed, given.queries, given.hosts)
        began_s = time.monotonic()
        try:
            storm.calm()
            for number in range(1, given.faults + 1):
                fault = storm.rng.choice(FAULTS)
                print(f"{time.monotonic() - began_s:6.0f} s  fault {number}: {fault}", flush=True)
                storm.ticks.write(200)
                storm.inject(fault)
                storm.ticks.write(200)
                storm.calm()
            same = storm.equal()
        finally:
            storm.fleet.manager.shut_down()
        print(f"{given.faults} faults in {time.monotonic() - began_s:.0f} s")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
