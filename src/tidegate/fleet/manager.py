"""The manager: turn after turn it looks, decides, moves and heals, and does as it is told."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import queue
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

from tidegate.errors import BackendError, InputError, TidegateError
from tidegate.fleet.hosts import together
from tidegate.fleet.queries import load_queries
from tidegate.fleet.status import status_of
from tidegate.fleet.world import FleetWorld
from tidegate.loop.controller import Controller
from tidegate.loop.controls import ControlFile
from tidegate.loop.journal import Journal, Turn, read_journal
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.policies.base import Policy, Situation

__all__ = ["FleetFolder", "FleetManager", "fleet_policy"]

log = logging.getLogger(__name__)

TICK_S = 0.5


def fleet_policy(
    name: str = "sarsa",
    *,
    target: float = 0.6,
    lower: float = 0.3,
    upper: float = 0.8,
    min_hosts: int = 1,
    max_hosts: int | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Policy:
    """One of FUGU's techniques with its three utilisations, inside the guards of a fleet.

    target, lower, upper: shares of a host's CPU. min_hosts, max_hosts: bounds that always hold.
    parameters: more settings of the policy by name.

    >>> fleet_policy("sarsa", max_hosts=4).describe()
    'sarsa → missing-metrics() → bounds(max_hosts=4) → every-query-runs()'
    """
    three = {"target": target, "lower": lower, "upper": upper}
    if name not in ("local-threshold", "global-threshold", "sarsa"):
        allowed = "local-threshold, global-threshold or sarsa"
        raise InputError("--policy", name, allowed, "these place queries on hosts")
    options = StackOptions(
        {**three, **(parameters or {})}, min_hosts=min_hosts, max_hosts=max_hosts
    )
    return build_stack(name, Situation(), options, kind="fleet")


class FleetFolder:
    """The fleet's folder: its id, what was added and removed, and a lock against a second manager.

    path: made if it is not there.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock: IO[str] | None = None
        self._file = self.path / "fleet.json"
        known = json.loads(self._file.read_text("utf-8")) if self._file.exists() else {}
        self.id: str = known.get("id") or str(uuid.uuid4())
        self.files: list[str] = known.get("files", [])
        self.removed: list[str] = known.get("removed", [])

    def lock(self) -> None:
        """Be the only manager of this fleet, or raise InputError."""
        self._lock = (self.path / "lock").open("w", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            remedy = "stop the other one (tidegate fleet stop), or choose another folder"
            raise InputError("--folder", str(self.path), "without a manager", remedy) from None
        self.save()

    def save(self) -> None:
        """Write it down, all or nothing."""
        plain = {"id": self.id, "files": self.files, "removed": self.removed}
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(plain, indent=2), encoding="utf-8")
        new.replace(self._file)

    def close(self) -> None:
        """Give up the lock."""
        if self._lock is not None:
            self._lock.close()


class FleetManager:
    """Runs a fleet until it is told to stop.

    world: the fleet. policy: with its guards. folder: of the fleet, for what is added and removed.
    journal: one line a turn, continued if it exists, with what its policy had learnt; None: none.
    seed: for policies that draw lots.
    """

    def __init__(
        self,
        world: FleetWorld,
        policy: Policy,
        folder: FleetFolder | None = None,
        journal: Path | None = None,
        seed: int = 0,
    ) -> None:
        self.world = world
        self.folder = folder
        memory = _remembered(policy, journal)
        self.journal = Journal(journal) if journal is not None else None
        self.controls = ControlFile(journal, policy) if journal is not None else None
        self.controller = Controller(world, policy, self.journal, memory, seed, self.controls)
        self.last: Turn | None = None
        self.stopping = threading.Event()
        self.leave_queries = False
        self._inbox: queue.Queue[tuple[dict[str, Any], queue.Queue[dict[str, Any]]]] = queue.Queue()

    # --- the loop -----------------------------------------------------------------------------

    def turn(self) -> Turn | None:
        """One turn: look and heal, then decide and act; None when no query is to run."""
        self.world.look()
        self.world.reconcile()
        if any(not e.parked and not e.removing for e in self.world.queries.values()):
            self.last = self.controller.step()
            return self.last
        return None

    def run(self, clock: Any = time.monotonic) -> None:
        """Turn after turn until `stop`; in between, commands are answered and moves begun."""
        due_s = clock()
        while not self.stopping.is_set():
            try:
                if clock() >= due_s:
                    due_s = max(due_s + self.world.interval_s, clock())
                    self.turn()
                self._answer(min(TICK_S, max(0.0, due_s - clock())))
                self.world.reconcile()
            except Exception:  # whatever it is, the queries go on, and so do we
                log.exception("a turn failed")
                self.stopping.wait(TICK_S)
        self.shut_down()

    def stop(self) -> None:
        """End after what is under way; safe to call from a signal handler."""
        self.stopping.set()

    def shut_down(self) -> None:
        """Wait for the moves under way, stop the queries between batches, end the hosts."""
        world = self.world
        end_s = time.monotonic() + 2 * world.move_limit_s
        while any(e.busy for e in world.queries.values()) and time.monotonic() < end_s:
            world.settle()
            time.sleep(0.05)
        if not world.provider.outlive or not self.leave_queries:
            stops = []
            for entry in world.queries.values():
                host = world.hosts.get(entry.host)
                if host is not None and host.host is not None:
                    stops.append(partial(host.host.stop, entry.query.name, world.move_limit_s))
            together(stops, world.move_limit_s)
        world.provider.close()
        world.log.close()
        if self.journal is not None:
            self.journal.close()
        if self.controls is not None:
            self.controls.close()
        if self.folder is not None:
            self.folder.close()

    # --- commands -----------------------------------------------------------------------------

    def ask(self, request: dict[str, Any], timeout_s: float = 60.0) -> dict[str, Any]:
        """Have a command done by the manager's own thread, from another one."""
        reply: queue.Queue[dict[str, Any]] = queue.Queue()
        self._inbox.put((request, reply))
        try:
            return reply.get(timeout=timeout_s)
        except queue.Empty:
            return {"error": f"the manager did not answer in {timeout_s:g} s"}

    def _answer(self, wait_s: float) -> None:
        with contextlib.suppress(queue.Empty):
            request, reply = self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait()
            reply.put(self.command(request))

    def command(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do one command; what is wrong with it comes back as an error in a sentence."""
        kind = request.get("do")
        commands = {
            "status": lambda: status_of(self.world, self.last),
            "move": lambda: self._move(str(request["query"]), str(request["host"])),
            "drain": lambda: self._drain(str(request["host"])),
            "add": lambda: self._add(str(request["file"])),
            "remove": lambda: self._remove(request["queries"]),
            "unpark": lambda: self._unpark(str(request["query"])),
            "stop": lambda: self._stop(bool(request.get("leave_queries"))),
        }
        if kind not in commands:
            return {"error": f"command is {kind!r}; it must be one of {', '.join(commands)}"}
        try:
            return commands[str(kind)]()
        except TidegateError as error:
            return {"error": str(error)}
        except (KeyError, TypeError) as error:
            return {"error": f"the command {kind} lacks {error}"}

    def _move(self, query: str, host: str) -> dict[str, Any]:
        entry, target = self.world.entry(query), self._host(host)
        if target.leaving:
            raise InputError("host", host, "one that stays", "it is being drained")
        if entry.parked:
            raise InputError("query", query, "not parked", f"unpark it first; {entry.error}")
        entry.wanted = host
        return {"done": f"{query} goes to {host}"}

    def _drain(self, host: str) -> dict[str, Any]:
        self._host(host).leaving = True
        count = sum(e.host == host for e in self.world.queries.values())
        queries = f"{count} quer{'y' if count == 1 else 'ies'}"
        return {"done": f"{host} is drained of {queries} and then released"}

    def _add(self, file: str) -> dict[str, Any]:
        queries = load_queries(file)
        new = [query for name, query in queries.items() if name not in self.world.queries]
        if not new:
            raise InputError("file", file, "one with new queries", "all of them run already")
        self.world.add(new)
        if self.folder is not None:
            self.folder.files = [*(f for f in self.folder.files if f != file), file]
            names = {query.name for query in new}
            self.folder.removed = [name for name in self.folder.removed if name not in names]
            self.folder.save()
        return {"done": f"added {', '.join(query.name for query in new)}"}

    def _remove(self, names: Iterable[str]) -> dict[str, Any]:
        every = list(names)
        for name in every:
            self.world.entry(name)
        for name in every:
            self.world.remove(name)
        if self.folder is not None:
            self.folder.removed = sorted({*self.folder.removed, *every})
            self.folder.save()
        return {"done": f"removed {', '.join(every)}; checkpoints are kept"}

    def _unpark(self, query: str) -> dict[str, Any]:
        entry = self.world.entry(query)
        entry.parked, entry.failures, entry.retry_s = False, 0, 0.0
        return {"done": f"{query} is placed again"}

    def _stop(self, leave_queries: bool) -> dict[str, Any]:
        if leave_queries and not self.world.provider.outlive:
            allowed = "left out where hosts end with the manager"
            raise InputError("--leave-queries", True, allowed)
        self.leave_queries = leave_queries
        self.stop()
        return {"done": "the fleet stops"}

    def _host(self, name: str) -> Any:
        if name not in self.world.hosts:
            known = ", ".join(self.world.hosts) or "none"
            raise InputError("host", name, "one of the fleet's", f"known are {known}")
        return self.world.hosts[name]


def _remembered(policy: Policy, journal: Path | None) -> Any:
    """What the journal's last turn left in memory, None when there is none to use."""
    if journal is None or not journal.exists():
        return None
    last = None
    for turn in read_journal(journal):
        last = turn
    if last is None or last.memory is None or last.policy != policy.describe():
        return None
    try:
        return policy.load_memory(last.memory)
    except (BackendError, InputError, KeyError, TypeError) as error:
        log.warning("the journal's memory cannot be read (%s): starting without", error)
        return None
