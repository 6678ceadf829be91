"""What both storms share: lines about faults, and a seed from its first fault to its last check."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.soak.job import IMPOSSIBLE, Reading
from tests.storm.watch import Shows, Watch
from tidegate.loop.journal import Turn
from tidegate.model import OperatorReading

LIMIT_S = 240.0
"""A fault that is not noticed or healed after this time is a problem, in seconds."""
LOOK_S = 0.15
LONGEST_LOOK_S = 5.0
"""A look that takes longer was interrupted, in seconds."""
MARK = "TIDEGATE_STORM"
"""Environment variable by which the processes of a seed are known, whatever they have become."""


@dataclass
class FaultLine:
    """A fault.

    Args:
        world: ``application`` or ``fleet``.
        seed: Seed of the storm.
        number: Number in its seed, from 1.
        kind: What happened.
        target: To whom, and details.
        noticed: What in the journal shows it, empty for nothing.
        noticed_s: Seconds from the fault to that turn's line.
        healed_s: Seconds from the fault until all was well again; None if it never was.
    """

    world: str
    seed: int
    number: int
    kind: str
    target: str = ""
    noticed: str = ""
    noticed_s: float | None = None
    healed_s: float | None = None


@dataclass
class SeedLine:
    """The end of a seed.

    Args:
        world: ``application`` or ``fleet``.
        seed: Seed of the storm.
        faults: Number of faults.
        policy: Name of the policy.
        rows: Rows of a batch computation over the same input.
        missing: Of these, rows that the sinks lack.
        extra: Rows of the sinks that no batch computes, or computes less often.
        queries_lost: Queries that did not run at the end, though they should.
        queries_left: Queries that ran after their stop.
        processes_left: Commands of processes that were left over.
        turns: Turns in the journal.
        problems: All that was not as it should be, in sentences.
        took_s: Seconds of the seed, with start and end.
        commit: Of the working copy.
    """

    world: str
    seed: int
    faults: int = 0
    policy: str = ""
    rows: int = 0
    missing: int = 0
    extra: int = 0
    queries_lost: int = 0
    queries_left: int = 0
    processes_left: list[str] = field(default_factory=list)
    turns: int = 0
    problems: list[str] = field(default_factory=list)
    took_s: float = 0.0
    commit: str = ""


@dataclass(frozen=True)
class Happened:
    """A fault that was injected.

    target: to whom, and details. shows: what in the journal shows it. undo: ends it, once it was
    noticed.
    """

    target: str
    shows: Shows
    undo: Callable[[], None] = lambda: None


class World(Protocol):
    """Something that a storm can happen to."""

    name: str
    policy: str
    watch: Watch

    def kinds(self) -> dict[str, int]:
        """Kinds of faults with their weights."""

    def inject(self, kind: str) -> Happened:
        """Let a fault happen."""

    def well(self, since_s: float) -> str:
        """Why all is not well since a monotonic time; empty if it is. Also does what time needs."""

    def finish(self, end: SeedLine) -> None:
        """Let everything end in order; compare, and fill in the line."""


class Broken(Exception):  # noqa: N818 - it says what is wrong
    """A process has ended that must not end, so that the storm cannot go on."""


def drawn(kinds: dict[str, int], rng: random.Random, faults: int) -> list[str]:
    """Kinds of faults at random, by their weights."""
    return rng.choices(list(kinds), list(kinds.values()), k=faults)


def play(world: World, seed: int, kinds: Sequence[str]) -> tuple[list[FaultLine], SeedLine]:
    """Let faults happen one after the other, each after the one before is healed."""
    lines: list[FaultLine] = []
    end = SeedLine(world.name, seed, policy=world.policy)
    began_s = time.monotonic()
    line: FaultLine | None = None
    try:
        until(lambda: not world.well(began_s), lambda: f"not well at first: {world.well(began_s)}")
        for number, kind in enumerate(kinds, start=1):
            line = FaultLine(world.name, seed, number, kind)
            lines.append(line)
            problem = one_fault(world, line)
            print(shown(line), flush=True)
            if problem:
                end.problems.append(f"fault {number}, {kind} ({line.target}): {problem}")
    except (TimeoutError, Broken) as error:
        print(f"{error}; {shown(line) if line is not None else 'before the first fault'}")
        end.problems.append(f"after fault {len(lines)}: {error}")
    end.faults = len(lines)
    world.finish(end)
    end.turns = world.watch.turns
    end.took_s = round(time.monotonic() - began_s, 1)
    return lines, end


def one_fault(world: World, line: FaultLine) -> str:
    """One fault; return whether it was not noticed in time. TimeoutError if it is not healed."""
    world.watch.mark()
    began_s = time.monotonic()
    happened = world.inject(line.kind)
    line.target = happened.target
    problem = ""

    def noticed() -> bool:
        world.well(began_s)
        world.watch.new()
        line.noticed = happened.shows(world.watch.since)
        return bool(line.noticed)

    try:
        until(noticed, lambda: "the journal does not show it")
        line.noticed_s = round(time.monotonic() - began_s, 2)
    except TimeoutError as error:
        problem = str(error)
    happened.undo()
    undone_s = time.monotonic()
    until(lambda: not world.well(undone_s), lambda: f"not healed: {world.well(undone_s)}")
    line.healed_s = round(time.monotonic() - began_s, 2)
    return problem


def until(true: Callable[[], bool], why: Callable[[], str], limit_s: float = LIMIT_S) -> None:
    """Wait until something is true. why: the error when it does not become true in time.

    While this process itself does not run, because the machine is suspended, no time passes.
    """
    waited_s, last_s = 0.0, time.monotonic()
    while not true():
        if waited_s > limit_s:
            raise TimeoutError(f"{why()} (after {limit_s:g} s)")
        time.sleep(LOOK_S)
        now_s = time.monotonic()
        waited_s, last_s = waited_s + min(now_s - last_s, LONGEST_LOOK_S), now_s


def shown(line: FaultLine) -> str:
    """A line for people."""
    noticed = f"{line.noticed} after {line.noticed_s} s" if line.noticed else "NOT NOTICED"
    healed = "NOT HEALED" if line.healed_s is None else f"healed after {line.healed_s} s"
    where = f"{line.world} {line.seed}/{line.number}"
    return f"{where} {line.kind} ({line.target}): {noticed}; {healed}"


# --- processes ------------------------------------------------------------------------------------


def marked(mark: str) -> dict[int, str]:
    """Processes whose environment has a mark, except for this one: command lines by process id."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            if f"{MARK}={mark}\0".encode() not in (entry / "environ").read_bytes() + b"\0":
                continue
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has just ended
            continue
        if any(words):  # one that has ended, and that nobody has waited for, has none
            found[int(entry.name)] = command_of(words)
    return found


def command_of(words: Sequence[str]) -> str:
    """A command in short: without the folders of this machine, and without class paths.

    >>> command_of(["/usr/bin/java", "-cp", "/a/b.jar:/c.jar", "kafka.Kafka", "/tmp/x/server", ""])
    'java -cp … kafka.Kafka server'
    """
    short = ["…" if ":" in word and "/" in word else word.rpartition("/")[2] for word in words]
    return " ".join(short).strip()


def strangers(mark: str, before: Container[int], belongs: Sequence[str]) -> list[str]:
    """Commands of processes with a mark that came since, and do not go within a moment.

    before: processes that were there. belongs: parts of the commands of those that may stay.
    """
    found: list[str] = []

    def none() -> bool:
        new = {pid: command for pid, command in marked(mark).items() if pid not in before}
        found[:] = [c[:300] for c in new.values() if not any(part in c for part in belongs)]
        return not found

    with contextlib.suppress(TimeoutError):
        until(none, lambda: "processes are left", 15.0)
    return found


def left_over(mark: str, grace_s: float = 15.0) -> list[str]:
    """Commands of the processes with a mark that have not ended by themselves; they are killed."""
    end_s = time.monotonic() + grace_s
    while (found := marked(mark)) and time.monotonic() < end_s:
        time.sleep(LOOK_S)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [command[:300] for command in found.values()]


@contextlib.contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    """Processes that are paused while the block runs."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def group(leader: int) -> list[int]:
    """The processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if os.getpgid(int(entry.name)) == leader:
                    found.append(int(entry.name))
    return found


def put(file: Path, text: str) -> None:
    """Write a file that others read meanwhile."""
    new = file.with_name(f".{file.name}")
    new.write_text(text, encoding="utf-8")
    new.rename(file)


def effective(kinds: Mapping[str, Reading], last: Turn | None) -> list[str]:
    """Of some changes of readings, those that change any of the last turn; else all."""
    seen = last.snapshot.operators if last is not None and last.snapshot is not None else ()
    able = [k for k, change in kinds.items() if k not in IMPOSSIBLE and _changes(change, seen)]
    return [*able, *(k for k in kinds if k in IMPOSSIBLE)] or list(kinds)


def _changes(change: Reading, readings: Sequence[OperatorReading]) -> bool:
    return any(change(one) != one for one in readings)


def write_lines(folder: Path, lines: Sequence[FaultLine], end: SeedLine) -> None:
    """Write the lines of a seed as JSON to a new file of a folder, the last one about its end."""
    rows: list[dict[str, Any]] = [*(asdict(line) for line in lines), asdict(end)]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    new = folder / f".{end.world}-{end.seed}"
    new.write_text(text, encoding="utf-8")
    new.rename(folder / f"{end.world}-{end.seed}.jsonl")
