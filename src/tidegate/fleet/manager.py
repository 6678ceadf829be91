"""The manager of a fleet: it runs turn after turn, heals the fleet and answers commands."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tidegate.codec import Value, from_newer_json
from tidegate.errors import InputError, TidegateError
from tidegate.fleet.queries import load_queries
from tidegate.fleet.world import FleetWorld
from tidegate.loop.clock import ClockWatch
from tidegate.loop.controller import DECISION_S, Controller
from tidegate.loop.journal import Journal, Turn
from tidegate.loop.records import open_records
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.outputs import write_output
from tidegate.policies import available, policy_class
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
    """Create a placement policy inside the guards of a fleet.

    Args:
        name: A policy of style ``placement``, such as ``sarsa``.
        target: Utilisation that a host is brought to, as a share of its CPU.
        lower: A host below this utilisation is underloaded.
        upper: A host above this utilisation is overloaded.
        min_hosts: Smallest number of hosts.
        max_hosts: Largest number of hosts; None means no limit.
        parameters: More settings of the policy by name.

    >>> fleet_policy("sarsa", max_hosts=4).describe()
    'sarsa → missing-metrics() → bounds(max_hosts=4) → every-query-runs()'
    """
    kind = policy_class(name)
    if kind.style != "placement":
        places = [other for other in available() if policy_class(other).style == "placement"]
        remedy = f"{', '.join(places)} place queries on hosts"
        raise InputError("--policy", name, "a policy of style placement", remedy)
    three = {"target": target, "lower": lower, "upper": upper}
    known = {parameter.name for parameter in kind.parameters()}
    chosen = {key: value for key, value in three.items() if key in known} | dict(parameters or {})
    options = StackOptions(chosen, min_hosts=min_hosts, max_hosts=max_hosts)
    return build_stack(name, Situation(), options, kind="fleet")


@dataclass(frozen=True, slots=True)
class _Known(Value):
    """What ``fleet.json`` has."""

    id: str
    files: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class FleetFolder:
    """The folder of a fleet: its id, the added and removed queries, and a lock for one manager.

    path: the folder, created if it does not exist.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock: IO[str] | None = None
        self._file = self.path / "fleet.json"
        known = self._read()
        self.id = known.id
        self.files = list(known.files)
        self.removed = list(known.removed)

    def _read(self) -> _Known:
        if not self._file.exists():
            return _Known(str(uuid.uuid4()))
        try:
            known, _ = from_newer_json(_Known, self._file.read_bytes())
            if known.id:
                return known
        except InputError:
            pass
        except OSError as error:
            why = error.strerror or "it cannot be read"
            raise InputError("--folder", str(self.path), "a fleet's folder", why) from None
        # Without its id, the manager would not know its own queries on existing servers.
        remedy = f"{self._file} is damaged: restore it, or remove it when no query runs any more"
        raise InputError("--folder", str(self.path), "a fleet's folder", remedy)

    def lock(self) -> None:
        """Lock the folder for this manager; InputError if another manager has it."""
        self._lock = (self.path / "lock").open("w", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            remedy = "stop the other one (tidegate fleet stop), or choose another folder"
            raise InputError("--folder", str(self.path), "without a manager", remedy) from None
        self.save()

    def save(self) -> None:
        """Write the file atomically."""
        plain = {"id": self.id, "files": self.files, "removed": self.removed}
        write_output(self._file, json.dumps(plain, indent=2), "--folder")

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()


class FleetManager:
    """Runs a fleet until it is stopped.

    world: the fleet. policy: a policy with its guards. folder: remembers which queries were added
    and removed. journal: a file with one line per turn; if it exists, it is continued, and so is
    the memory of its policy; if it cannot be used, another one next to it, or none. seed: random
    seed of the policy.
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
        self.records = open_records(journal, policy)
        self.controller = Controller(
            world,
            policy,
            self.records.journal,
            self.records.memory,
            seed,
            self.records.controls,
            decision_limit_s=DECISION_S,
        )
        self.controller.await_files(self.records)
        self.last: Turn | None = None
        self.stopping = threading.Event()
        self.leave_queries = False
        self._machine = ClockWatch()
        self._inbox: queue.Queue[tuple[dict[str, Any], queue.Queue[dict[str, Any]]]] = queue.Queue()

    @property
    def journal(self) -> Journal | None:
        """The journal, None without one and while a slow disk has not opened it."""
        return self.records.journal

    # --- the loop -----------------------------------------------------------------------------

    def turn(self) -> Turn | None:
        """Run one turn: observe, decide, apply. Returns None if no query is to run."""
        if self.world.idle:
            self.world.refresh()
            self.world.reconcile()
            return None
        if news := self._machine.news():
            self.controller.note(news)
        self.last = self.controller.step()
        return self.last

    def run(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Run turns until `stop`; between turns, answer commands and begin moves."""
        due_s = clock()
        while not self.stopping.is_set():
            try:
                if clock() >= due_s:
                    due_s = max(due_s + self.world.interval_s, clock())
                    self.turn()
                self._answer(min(TICK_S, max(0.0, due_s - clock())))
                self.world.reconcile()
            except Exception:  # the queries must keep running, whatever has failed
                log.exception("a turn failed")
                self.stopping.wait(TICK_S)
        self.shut_down()

    def stop(self) -> None:
        """End the loop after the current turn."""
        self.stopping.set()

    def shut_down(self) -> None:
        """Close the fleet and all files."""
        self.world.close(self.leave_queries)
        for file in (self.records, self.folder):
            if file is not None:
                file.close()

    # --- commands -----------------------------------------------------------------------------

    def ask(self, request: dict[str, Any], timeout_s: float = 60.0) -> dict[str, Any]:
        """Run a command in the manager's thread, from another thread."""
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
        """Run one command; a mistake in it is returned as an error message."""
        kind = str(request.get("do"))
        commands: dict[str, Callable[[], dict[str, Any]]] = {
            "status": self.status,
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
            return commands[kind]()
        except TidegateError as error:
            return {"error": str(error)}
        except (KeyError, TypeError) as error:
            return {"error": f"the command {kind} lacks {error}"}

    def status(self) -> dict[str, Any]:
        """Hosts and queries as plain values, and the reasons of the last turn."""
        last = self.last
        plan = last.plan if last is not None else None
        return {
            **self.world.status(),
            "policy": last.policy if last is not None else None,
            "turn": last.number if last is not None else 0,
            "reasons": [reason.text for reason in plan.reasons] if plan is not None else [],
            "error": last.error if last is not None else None,
        }

    def _move(self, query: str, host: str) -> dict[str, Any]:
        self.world.move(query, host)
        return {"done": f"{query} goes to {host}"}

    def _drain(self, host: str) -> dict[str, Any]:
        count = self.world.drain(host)
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
        self.world.remove(every)
        if self.folder is not None:
            self.folder.removed = sorted({*self.folder.removed, *every})
            self.folder.save()
        return {"done": f"removed {', '.join(every)}; checkpoints are kept"}

    def _unpark(self, query: str) -> dict[str, Any]:
        self.world.unpark(query)
        return {"done": f"{query} is placed again"}

    def _stop(self, leave_queries: bool) -> dict[str, Any]:
        if leave_queries and not self.world.provider.outlive:
            allowed = "left out where hosts end with the manager"
            raise InputError("--leave-queries", True, allowed)
        self.leave_queries = leave_queries
        self.stop()
        return {"done": "the fleet stops"}
