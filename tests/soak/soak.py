"""Thirty simulated days of the real control loop, with faults.

The controller, the stack of policy and guards, the journal with its rotation and its memory, and
the controls are the real ones, opened as an application opens them. The job is simulated
(`job.py`), and its clock is handed to the loop. Faults come at random times (`faults.py`).

What is checked:

- at every turn: a plan within the bounds; an error or a note if a fault is the reason, else none;
  no release while a measurement that the policy needs is missing; the turn is in the journal unless
  the disk is full;
- at every restart: the memory is that of the last turn that is whole in the journal, and the next
  decisions are those that a controller which was never restarted makes with that memory;
- after every fault: the journal shows it;
- after every day: executors rose and fell, the journal was rotated, and no more parts are kept than
  it should keep; threads, open files, objects and memory of the process do not grow.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import pickle
import random
import resource
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tests.soak.faults import LASTING, RESTARTS, Fault, faults_of_day, not_shown
from tests.soak.job import DAY_S, IMPOSSIBLE, MISSING, MOST, SLO_S, Job
from tidegate.loop import records as records_module
from tidegate.loop.controller import Controller
from tidegate.loop.journal import DAILY, Turn, last_turns
from tidegate.loop.records import LOST, Records, open_records
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.loop.tail import parts_of
from tidegate.policies.base import Policy, Situation

POLICIES = (
    "tide",
    "drs",
    "lag",
    "btu",
    "ds2",
    "queue-threshold",
    "dstreams-ratio",
    "adaptive-provisioning",
    "spark-dynamic-allocation",
)
INTERVAL_S = 60.0
TURNS_A_DAY = round(DAY_S / INTERVAL_S)
COMPARED = 30
"""Decisions that are compared after each restart."""
SLOW_S = 600.0
"""In place of the loop's limits in real time, since the machine may be busy."""
LOOKS_PER_DAY = 12
MOST_OBJECTS = 5_000
"""By how many objects the process may grow from the first half of a run to the second."""
MOST_MB = 2.0
"""By how much memory in use it may grow from the second third of the days to the last, in MB."""
MOST_BLOCKS = 20_000
"""The same for small blocks of Python, which are some 60 bytes on average."""
GARBAGE = b'\xff{"do": "explode", "value": ' + b"9" * 400 + b"\n"


@dataclass
class Entry:
    """A turn in the journal: its file, where its line is, and the memory that it holds."""

    inode: int
    start: int
    end: int
    policy: str
    memory: Any


@dataclass
class DayResult:
    """What is known after a day. Sizes in MB; `hosts`: fewest and most executors planned.

    rss_mb: memory of the process. used_mb, blocks: what is in use of it: bytes by the C library,
    None where it does not tell, and small blocks by Python. Both keep the rest for later.
    """

    day: int
    turns: int = 0
    faults: int = 0
    hosts: tuple[int, int] = (MOST, 0)
    rss_mb: float = 0.0
    used_mb: float | None = None
    blocks: int = 0
    objects: int = 0
    threads: int = 0
    files: int = 0
    parts: int = 0
    journal_mb: float = 0.0
    line_bytes: int = 0
    process: int = 0


class Soak:
    """A run of one seed.

    seed: random seed. days: simulated days. folder: where the journal and the state are. say: takes
    a line for each fault and for each day.
    """

    def __init__(
        self,
        seed: int,
        days: int,
        folder: Path,
        say: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.seed, self.days, self.folder, self.say = seed, days, folder, say
        self.path = folder / "tidegate.jsonl"
        self.turns_a_day = TURNS_A_DAY
        self.job = Job(seed, INTERVAL_S)
        self.choice = random.Random(seed)
        self.policy_name = POLICIES[seed % len(POLICIES)]
        self.turn = self.written = self.lost = 0
        self.restarts = self.compared = 0
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.results: list[DayResult] = []
        self.entries: deque[Entry] = deque(maxlen=12)
        self.faults = deque(faults_of_day(seed, 0, self.turns_a_day))
        self.active: Fault | None = None
        self._began()

    def _began(self) -> None:
        """What belongs to this process and not to the state."""
        self.today = DayResult(len(self.results) + 1)
        self.messages: list[str] = []
        self.objects: list[int] = []
        self.torn = 0
        self.ending = ""
        self.twin: Any = None
        self.twins = 0
        self.first_of_life = True
        self.records = Records()
        self.policy: Policy = self._stack()
        self.seen = (0, 0)
        self.limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    def _stack(self) -> Policy:
        return build_stack(self.policy_name, Situation(slo_s=SLO_S), StackOptions(max_hosts=MOST))

    def run(self) -> list[str]:
        """Run to the end; return the problems."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with _patient(), self._listening():
            try:
                while self.turn < self.days * self.turns_a_day:
                    self._live()
            finally:
                self._room(True)
                self.records.close()
        self._judge()
        self._save()
        return self.problems

    # --- a life of the controller -----------------------------------------------------------------

    def _live(self) -> None:
        """Open the files and run the loop until something ends it."""
        self.policy = self._stack()
        self.records = open_records(self.path, self.policy)
        self._compare_memory()
        controller = Controller(
            self.job,
            self.policy,
            self.records.journal,
            self.records.memory,
            self.seed,
            self.records.controls,
            SLO_S,
            decision_limit_s=SLOW_S,
        )
        self.twin, self.twins = self._expected_memory(), COMPARED * (self.turn > 0)
        self.first_of_life, self.lost, self.ending = True, 0, ""
        self.controller = controller
        controller.run(INTERVAL_S, self._after, self.job.wait, self.job.clock)
        if not self.ending:
            return
        self.restarts += 1
        if self.ending in ("restart", "other policy"):
            self.records.close()
        else:
            _kill(self.records)
        self._damage()
        self.job.wait(INTERVAL_S * self.choice.choice([1, 1, 5]))

    def _expected_memory(self) -> Any:
        """The memory of a controller that was never restarted, as far as the journal knows it."""
        if self.entries and self.entries[-1].policy == self.policy.describe():
            return self.entries[-1].memory
        return self.policy.initial_memory(self.seed)

    def _compare_memory(self) -> None:
        found = self.records.memory
        if self.records.journal is None or self.records.journal.path != self.path:
            self._problem("the journal could not be opened")
        if found is None:
            found = self.policy.initial_memory(self.seed)
        if self._text(found) != self._text(self._expected_memory()):
            self._problem("the memory is not that of the last whole turn")
        if self.ending == "other policy" and not self._said("was written by"):
            self._problem("nothing is said about the memory of another policy")

    def _text(self, memory: Any) -> str:
        return json.dumps(self.policy.save_memory(memory), sort_keys=True, default=str)

    def _damage(self) -> None:
        """Damage the end of the journal, if the controller ended so; say what must be left."""
        status, self.seen = self.path.stat(), (0, 0)
        size = status.st_size
        here = [entry for entry in self.entries if entry.inode == status.st_ino][-3:]
        self.torn = size - (here[-1].end if here else 0)  # a full disk had no room for the rest
        if self.ending not in ("torn journal", "zeros in journal"):
            return
        cut = self.choice.randrange(here[0].start, size) if here else size
        if self.ending == "torn journal":
            os.truncate(self.path, cut)
        else:
            with self.path.open("rb+") as file:
                file.seek(cut)
                file.write(bytes(size - cut))
        end = cut if self.ending == "torn journal" else size
        # A line that lacks only its end is whole; one that ends with zeros is not.
        whole = cut + 1 if self.ending == "torn journal" else cut
        lost = [entry for entry in here if entry.end > whole]
        for _ in lost:
            self.entries.pop()
        if lost:
            self.torn = end - lost[0].start
        assert self.active is not None
        self.active.detail = f"{size - cut} bytes, {len(lost)} turns"

    # --- a turn -----------------------------------------------------------------------------------

    def _after(self, turn: Turn) -> bool:
        """Check a turn and prepare the next one; False ends this life of the controller."""
        self._room(True)
        self.turn += 1
        self.today.turns += 1
        lost_before = self.lost
        in_journal = self._look(turn)
        self._check(turn, in_journal, lost_before)
        self._check_decision(turn)
        self.first_of_life = False
        self.messages.clear()
        fault = self.active
        if fault is not None and self.turn > fault.last:
            self._conclude(fault)
        if self.turn % (self.turns_a_day // LOOKS_PER_DAY) == 0:
            gc.collect()
            self.objects.append(len(gc.get_objects()))
        if self.turn % self.turns_a_day == 0:
            self._end_day()
        self._prepare()
        return not self.ending and self.turn < self.days * self.turns_a_day

    def _look(self, turn: Turn) -> bool:
        """Whether the turn is in the journal, from the file itself."""
        with self.path.open("rb") as file:
            status = os.fstat(file.fileno())
            now = (status.st_ino, status.st_size)
            if status.st_size:
                file.seek(-1, os.SEEK_END)
            whole = file.read(1) == b"\n" and now != self.seen
        self.seen = now
        if not whole:
            self.lost += 1
            return False
        last = self.entries[-1] if self.entries else None
        start = last.end if last is not None and last.inode == status.st_ino else 0
        self.entries.append(
            Entry(status.st_ino, start, status.st_size, turn.policy, self.controller.memory)
        )
        self.today.line_bytes = max(self.today.line_bytes, status.st_size - start)
        self.written, self.lost = self.written + 1, 0
        return True

    def _check(self, turn: Turn, in_journal: bool, lost_before: int) -> None:
        job = self.job
        failing = job.silent or bool(job.refusing) or job.wrong in IMPOSSIBLE
        if failing != (turn.error is not None):
            self._problem(f"the error of the turn is {turn.error!r}")
        fault = self.active
        full = fault is not None and fault.kind == "full disk" and self.turn <= fault.last
        if not in_journal and not full:
            self._problem("the turn is not in the journal")
        expected = []
        if self.first_of_life and self.torn:
            expected.append(f"the journal ended with {self.torn} bytes of a torn line: removed")
        if lost_before:
            turns = "1 turn" if lost_before == 1 else f"{lost_before} turns"
            expected.append(f"{turns} {LOST}: File too large")
        if in_journal and list(turn.notes) != expected:
            self._problem(f"the notes are {turn.notes}, not {expected}")
        if self.first_of_life != (turn.number == 1):
            self._problem(f"the turn has the number {turn.number}")
        if turn.plan is not None:
            hosts = turn.plan.bounded_target
            self.today.hosts = (min(self.today.hosts[0], hosts), max(self.today.hosts[1], hosts))
            if not 1 <= hosts <= MOST:
                self._problem(f"{hosts} executors are planned")
        if turn.outcome is not None and turn.snapshot is not None and job.wrong in MISSING:
            released = [step.host for step in turn.outcome.steps if step.kind == "release"]
            if released and turn.snapshot.missing(self.policy.needs):
                self._problem(f"{released} were released without measurements")

    def _check_decision(self, turn: Turn) -> None:
        """Compare the decision with that of a controller that was not restarted."""
        if self.twins <= 0 or turn.snapshot is None or turn.plan is None:
            return
        self.twins -= 1
        self.compared += 1
        plan, memory = self.policy.decide(turn.snapshot, self.twin)
        if plan != turn.plan:
            self._problem("the decision differs from that without a restart")
        if turn.error is None:
            self.twin = memory

    # --- faults -----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Begin or end what the next turn meets."""
        coming, job = self.turn + 1, self.job
        if self.active is None and self.faults and self.faults[0].turn == coming:
            self.active = self.faults.popleft()
            self.active.mark, self.active.before_s = self.written, self.job.wall_s
            self.active.problems = len(self.problems)
            self._begin(self.active)
        fault = self.active
        if fault is None:
            return
        if fault.killed_at == coming:
            self.ending = "killed"
        if fault.kind in LASTING and coming > fault.last:
            job.wrong, job.silent, job.refusing = "", False, ""
        elif fault.kind == "full disk" and not self.ending:
            self._room(False)

    def _begin(self, fault: Fault) -> None:
        job = self.job
        if fault.kind in RESTARTS:
            self.ending = fault.kind
            if fault.kind == "other policy":
                others = [name for name in POLICIES if name != self.policy_name]
                self.policy_name = fault.detail = self.choice.choice(others)
        elif fault.kind.startswith("clock"):
            job.ahead_s += fault.seconds
        elif fault.kind in ("missing metrics", "absurd metrics"):
            job.wrong = fault.detail
        elif fault.kind == "silent driver":
            job.silent = True
        elif fault.kind == "refused requests":
            job.refusing = fault.detail
        elif fault.kind == "executor lost":
            fault.detail = job.lose_an_executor(self.choice)
        elif fault.kind == "garbage control":
            with Path(f"{self.path}.controls").open("ab") as file:
                file.write(GARBAGE)

    def _room(self, there_is: bool) -> None:
        """Let the kernel write files of any size, or nothing beyond the first bytes of a line."""
        size = self.limit[0] if there_is else self.path.stat().st_size + self.choice.randrange(60)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, self.limit[1]))

    def _conclude(self, fault: Fault) -> None:
        """After the first turn without the fault: look for it in the journal."""
        self.active = None
        count = self.written - fault.mark
        turns = list(islice(last_turns(self.path), count))[::-1]
        if len(turns) < max(1, count):
            lacking = f"{count} turns were written, {len(turns)} can be read"
        else:
            lacking = not_shown(fault, turns)
        if lacking:
            self._problem(f"{fault.kind} ({fault.detail}): {lacking}")
        self.counts[fault.kind] += 1
        self.today.faults += 1
        parts = [fault.kind, fault.detail]
        parts += [f"{fault.turns} turns"] * (fault.kind in LASTING)
        parts += ["killed meanwhile"] * bool(fault.killed_at)
        verdict = "PROBLEM" if len(self.problems) > fault.problems else "noticed"
        self.say(f"{self._now()}  {', '.join(part for part in parts if part)}: {verdict}")

    # --- days -------------------------------------------------------------------------------------

    def _end_day(self) -> None:
        today, parts = self.today, parts_of(self.path)
        gc.collect()
        today.rss_mb, today.used_mb, today.blocks = _rss_mb(), _used_mb(), sys.getallocatedblocks()
        today.objects = self.objects[-1]
        today.threads, today.files = threading.active_count(), _open_files()
        today.parts, today.process = len(parts), os.getpid()
        sizes = [file.stat().st_size for file in [*parts, self.path]]
        today.journal_mb = sum(sizes) / 1e6
        if len(parts) > DAILY.keep or max(sizes) > DAILY.max_mb * 1e6:
            self._problem(f"the journal has {len(parts)} parts of up to {max(sizes)} bytes")
        if not parts or int(parts[-1].suffix[1:]) < today.day:
            self._problem("the journal was not rotated every day")
        if today.hosts[0] >= today.hosts[1]:
            self._problem(f"the number of executors did not change: {today.hosts[0]}")
        self.results.append(today)
        self.say(
            f"day {today.day} of {self.days}: {today.turns} turns, {today.faults} faults, "
            f"{today.hosts[0]} to {today.hosts[1]} executors, {self.compared} decisions compared, "
            f"{today.rss_mb:.0f} MB, {today.used_mb or 0:.1f} MB and {today.blocks} blocks in use, "
            f"{today.objects} objects, {today.threads} threads, "
            f"journal of {today.journal_mb:.1f} MB in {today.parts + 1} files, "
            f"{len(self.problems)} problems"
        )
        self.faults.extend(faults_of_day(self.seed, today.day, self.turns_a_day))
        self.today = DayResult(today.day + 1)
        self._save()

    def _judge(self) -> None:
        """What can be said only at the end: nothing grows."""
        mine = [day for day in self.results if day.process == os.getpid()]
        if mine and len({(day.threads, day.files) for day in mine}) > 1:
            self._problem(f"threads and files: {[(day.threads, day.files) for day in mine]}")
        looks = self.objects[len(self.objects) // 8 :]  # without the time of lazy imports
        half = len(looks) // 2
        if half and max(looks[half:]) - max(looks[:half]) > MOST_OBJECTS:
            self._problem(f"objects grow: {looks}")
        used = [round(day.used_mb or 0.0, 1) for day in mine]
        blocks = [day.blocks for day in mine]
        third = len(mine) // 3
        for name, each, most in (("MB", used, MOST_MB), ("blocks", blocks, MOST_BLOCKS)):
            # What is never given back raises the least of all days; what waits, only the most.
            if third > 1 and min(each[-third:]) - min(each[third:-third]) > most:
                self._problem(f"memory in use grows: {each} {name}")

    def _problem(self, text: str) -> None:
        self.problems.append(f"{self._now()}: {text} ({self.policy_name}, turn {self.turn})")
        self.say(f"PROBLEM {self.problems[-1]}")

    def _now(self) -> str:
        day, minute = divmod(int(self.job.clock() // 60), 24 * 60)
        return f"day {day + 1:2} {minute // 60:02}:{minute % 60:02}"

    def _said(self, text: str) -> bool:
        return any(text in message for message in self.messages)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Take the warnings of the loop, which would otherwise fill the screen."""
        log, messages = logging.getLogger("tidegate"), self.messages

        class Listener(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                messages.append(record.getMessage())

        listener, before = Listener(), log.propagate
        log.addHandler(listener)
        log.propagate = False
        try:
            yield
        finally:
            log.removeHandler(listener)
            log.propagate = before

    # --- state ------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("controller", "records", "policy", "messages", "twin", "say", "limit")
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def _save(self) -> None:
        """Keep the state, so that an interrupted run continues with the next day."""
        newest = [int(part.suffix[1:]) for part in parts_of(self.path)][-1:]
        state = (self, newest, self.path.stat().st_size)
        hidden = self.folder / ".state"
        hidden.write_bytes(pickle.dumps(state))
        hidden.replace(self.folder / "state")


def continued(folder: Path, seed: int, days: int, say: Callable[[str], object]) -> Soak:
    """A run that continues after its last whole day, or a new one."""
    soak: Soak
    try:
        soak, newest, size = pickle.loads((folder / "state").read_bytes())
    except FileNotFoundError:
        return Soak(seed, days, folder, say)
    soak.say, soak.days, soak.folder, soak.path = say, days, folder, folder / "tidegate.jsonl"
    soak._began()
    soak.job.wait(INTERVAL_S)
    _restore(soak.path, newest[0] if newest else 0, size)
    return soak


def _restore(path: Path, newest: int, size: int) -> None:
    """Bring the journal back to what it was: its newest part had a number, and its file a size."""
    later = [part for part in parts_of(path) if int(part.suffix[1:]) > newest]
    for part in reversed(later):
        part.replace(path)  # the oldest of them last: it is the file of that moment
    os.truncate(path, size)


def _kill(records: Records) -> None:
    """Give up the files as a process does that is killed: locks end, nothing is removed."""
    assert records.journal is not None and records.controls is not None
    for file in (records.controls._file, records.journal._file, records.journal._lock._file):
        file.close()


@contextmanager
def _patient() -> Iterator[None]:
    names = ("OPEN_S", "WRITE_S")
    before = {name: getattr(records_module, name) for name in names}
    for name in names:
        setattr(records_module, name, SLOW_S)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(records_module, name, value)


def _rss_mb() -> float:
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * resource.getpagesize() / 1e6
    return 0.0


class _Heap(ctypes.Structure):
    """The answer of glibc's ``mallinfo2``; see malloc.h."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def _used_mb() -> float | None:
    """Memory that the C library has given to the program, NumPy's arrays included, in MB."""
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except AttributeError:  # another C library, or an old one
        return None
    ask.restype = _Heap
    found = ask()
    return float(found.uordblks + found.hblkhd) / 1e6


def _open_files() -> int:
    with suppress(OSError):
        return len(list(Path("/proc/self/fd").iterdir()))
    return 0
