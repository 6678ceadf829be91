"""A fleet of real hosts, as a separate program: Spark Connect cannot share a process with a classic
session, and other tests have one.

``python -m tests.fleet.live FOLDER`` runs the scenario and prints its measurements as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fleet.tls import TlsProxy, make_certificate
from tidegate.fleet.connect import connect
from tidegate.fleet.hosts import FleetHost, HostRefused
from tidegate.fleet.manager import FleetManager, fleet_policy
from tidegate.fleet.providers import EmbeddedProvider, StaticProvider
from tidegate.fleet.queries import ContinuousQuery
from tidegate.fleet.registry import SLOW_S
from tidegate.fleet.sample_queries import TICKS, price_queries, price_windows, query_parameters
from tidegate.fleet.world import FleetWorld
from tidegate.model.topology import Resources
from tidegate.testing import check_host

START_S = 1_700_000_000.0
SECTORS = 2


class Ticks:
    """Files of trades; each appears complete."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.rng = random.Random(seed)
        self.count = self.files = 0

    def write(self, rows: int) -> None:
        self._file([self._row(self.rng.randrange(SECTORS)) for _ in range(rows)])

    def finish(self) -> float:
        """Write trades that close every window before them; return their time."""
        self.count += 100_000
        self._file([self._row(sector) for sector in range(SECTORS)])
        return START_S + 100_000 * 0.05

    def _row(self, sector: int) -> dict[str, Any]:
        self.count += 1
        return {
            "id": self.count,
            "ts": round(START_S + self.count * 0.05 - self.rng.uniform(0, 2), 3),
            "comp": f"c{self.rng.randrange(8)}",
            "sector": sector,
            "price": round(self.rng.uniform(10, 99), 2),
        }

    def _file(self, rows: list[dict[str, Any]]) -> None:
        self.files += 1
        hidden = self.folder / f".{self.files}"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        hidden.rename(self.folder / f"{self.files:05}.json")


class Fleet:
    """A manager over embedded hosts that a test drives turn by turn."""

    def __init__(self, folder: Path, queries: tuple[ContinuousQuery, ...], max_hosts: int) -> None:
        self.provider = EmbeddedProvider(
            "live", folder / "hosts", cores=2, memory_mb=512, max_hosts=max_hosts
        )
        self.world = FleetWorld(
            self.provider, folder / "fleet", interval_s=10.0, silence_s=60.0, move_limit_s=90.0
        )
        self.world.add(queries)
        # Only lost queries are placed again; the test requests all moves.
        policy = fleet_policy("local-threshold", parameters={"violations": 10_000})
        self.manager = FleetManager(self.world, policy, None, folder / "fleet" / "journal.jsonl")

    def until(self, seen: Callable[[], bool], what: str, limit_s: float = 150.0) -> float:
        """Run turns until a condition holds; return the seconds that it took."""
        began_s = time.monotonic()
        while not seen():
            if time.monotonic() - began_s > limit_s:
                status = json.dumps(self.manager.command({"do": "status"}), indent=1)
                raise TimeoutError(f"{what}: not in {limit_s:g} s\n{status}")
            self.manager.turn()
            time.sleep(0.3)
        return time.monotonic() - began_s

    def sums(self, ticks: Ticks, rounds: int = 4) -> dict[str, Any]:
        """Compare the load of the queries with the load of their hosts, over some turns."""
        rows, traffic = [], []
        capacity_cores = self.provider.capacity.cpu_cores
        for _ in range(rounds):
            ticks.write(200)
            batches = {name: entry.batch for name, entry in self.world.queries.items()}
            done = lambda b=batches: all(e.batch > b[n] for n, e in self.world.queries.items())  # noqa: E731
            self.until(done, "a batch of every query")
            for host in self.world.hosts.values():
                here = [e for e in self.world.queries.values() if e.host == host.name]
                cores = sum(e.load.cpu_cores for e in here if e.load is not None)
                rows.append((host.utilisation, cores / capacity_cores, host.shared))
                traffic.append([host.read_mbps, host.written_mbps, *(e.read_mbps for e in here)])
        return {"cpu": rows, "traffic": traffic}

    def hang(self, name: str) -> tuple[bool, float]:
        """Suspend the process of a host; return whether it is lost, and after how many seconds.

        A slow host does not answer either, but it uses CPU.
        """
        self.world.interval_s, self.world.silence_s = 2.0, 4.0
        self.world.refresh()
        os.killpg(self.provider.pid(name), signal.SIGSTOP)
        began_s = time.monotonic()
        while name in self.world.hosts and time.monotonic() - began_s < SLOW_S / 2:
            self.world.refresh()
        return name not in self.world.hosts, time.monotonic() - began_s

    def home(self, name: str) -> str:
        return self.world.queries[name].host


def rows_of(frame: Any) -> Counter[tuple[Any, ...]]:
    names = ("start", "comp", "first", "min", "avg", "max", "last")
    return Counter(tuple(str(row[name]) for name in names) for row in frame.collect())


def sink_and_batch(
    session: Any, folder: Path, n: int, window_s: int, sector: int, end_s: float
) -> tuple[Counter[tuple[Any, ...]], Counter[tuple[Any, ...]]]:
    """The rows that a query has written, and the result of one batch over the same input."""
    from pyspark.sql import functions as fn

    schema = "start timestamp, comp string, first double, min double, avg decimal(22,8), "
    written = session.read.schema(schema + "max double, last double").json(
        str(folder / "results" / f"prices-{n}")
    )
    batch = price_windows(session.read.schema(TICKS).json(str(folder / "ticks")), window_s, sector)
    before = fn.unix_timestamp("start") + window_s <= end_s - 60
    return rows_of(written), rows_of(batch.filter(before))


def given(endpoint: str) -> FleetHost:
    """A host for a server that was started elsewhere."""
    provider = StaticProvider("given", [endpoint], Resources(1))
    provider.lease("host-1")
    host = provider.host("host-1")
    assert host is not None
    return host


def refusal(endpoint: str) -> str:
    """The error of a server that refuses the connection."""
    try:
        given(endpoint).look(60.0)
    except HostRefused as error:
        return str(error)
    return "nothing"


def check_endpoints(endpoint: str, folder: Path) -> dict[str, str]:
    """Check the contract of a host over TLS, and the errors without the right token or certificate.

    endpoint: a server with a token and without TLS, as Spark starts it.
    """
    address, _, token = endpoint.partition("/;")
    port = int(address.rpartition(":")[2])
    mine, strange = (make_certificate(folder / name) for name in ("trusted.pem", "strange.pem"))
    os.environ["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = str(mine)
    proxies = [TlsProxy(port, certificate) for certificate in (mine, strange)]
    try:
        # An address, since a name may resolve to ::1 too, where nobody listens.
        known = f"sc://localhost:{proxies[0].port}/;use_ssl=true;"
        unknown = f"sc://127.0.0.1:{proxies[1].port}/;use_ssl=true;"
        check_real_host(given(known + token), folder)
        return {
            "token": token,
            "wrong token": refusal(f"{address}/;token=wrong"),
            "no token": refusal(address),
            "wrong token, TLS": refusal(f"{known}token=wrong"),
            "certificate": refusal(unknown + token),
        }
    finally:
        for proxy in proxies:
            proxy.close()


def check_real_host(host: FleetHost, folder: Path) -> None:
    """Check the contract, which the fake host keeps too."""

    def rate(session: Any, checkpoint: str) -> Any:
        return session.readStream.format("rate").load().writeStream.format("noop")

    def nonsense(session: Any, checkpoint: str) -> Any:
        return session.table("nonsense").writeStream.format("noop")

    good, bad = ContinuousQuery("rate", rate), ContinuousQuery("bad", nonsense)
    check_host(host, good, bad, str(folder / "contract"), "nonsense")


def main(folder: Path) -> dict[str, Any]:
    ticks = Ticks(folder / "ticks", seed=7)
    queries = price_queries(
        str(folder / "ticks"), str(folder / "results"), 2, seed=1, sectors=SECTORS, trigger_s=0.5
    )
    fleet = Fleet(folder, queries, max_hosts=2)
    world, provider = fleet.world, fleet.provider
    facts: dict[str, Any] = {}
    try:
        for name in ("host-1", "host-2"):
            world.lease(name)
        up = lambda: all(h.host is not None for h in world.hosts.values())  # noqa: E731
        facts["up_s"] = fleet.until(up, "two hosts up")
        ticks.write(200)

        server: Any = world.hosts["host-2"].host
        facts["refusals"] = check_endpoints(server.endpoint, folder)

        moved = world.queries["prices-2"]
        read = lambda: all(e.batch >= 0 and e.host for e in world.queries.values())  # noqa: E731
        facts["placed_s"] = fleet.until(read, "both queries read")
        target = "host-2" if moved.host == "host-1" else "host-1"
        fleet.manager.command({"do": "move", "query": "prices-2", "host": target})
        ticks.write(200)
        facts["move_s"] = fleet.until(lambda: moved.moves == 1, "the move")
        facts["pause_s"] = moved.pauses_s[0]
        facts["moved_to"] = [moved.host == target, target]
        ticks.write(200)

        gone = fleet.home("prices-1")
        facts["sums"] = fleet.sums(ticks)
        provider.max_hosts = 1  # the other host has to take over
        os.killpg(provider.pid(gone), signal.SIGKILL)
        fleet.until(lambda: gone not in world.hosts, "the death noticed")
        healed = lambda: fleet.home("prices-1") not in ("", gone)  # noqa: E731
        facts["heal_s"] = fleet.until(healed, "healing")
        ticks.write(200)
        end_s = ticks.finish()

        (host,) = world.hosts.values()
        session = connect(host.host.endpoint, host.host.session_id)  # type: ignore[union-attr]
        parameters = query_parameters(2, seed=1, sectors=SECTORS)
        expected: dict[int, Counter[tuple[Any, ...]]] = {}

        def complete() -> bool:
            for p in parameters:
                got, want = sink_and_batch(session, folder, **p, end_s=end_s)
                expected[p["n"]] = want
                if sum(got.values()) < sum(want.values()):
                    return False
            return True

        facts["drained_s"] = fleet.until(complete, "all windows written")
        results = [sink_and_batch(session, folder, **p, end_s=end_s) for p in parameters]
        facts["rows"] = [sum(want.values()) for _, want in results]
        facts["equal"] = [got == want for got, want in results]

        facts["hang_lost"], facts["hang_s"] = fleet.hang(host.name)
    finally:
        fleet.manager.shut_down()
    facts["ended"] = provider._servers == {}
    return facts


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
