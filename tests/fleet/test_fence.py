"""The fence of a checkpoint: every order of two claims, and of an old and a new copy of a query."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fleet.spark_model import Concurrent, Sinks, copy
from tidegate.errors import BackendError
from tidegate.fleet.fence import DRIFT, GRACE_S, Fence, LeaseWatch, epoch_of
from tidegate.testing import FakeClock

ROWS = 4
ONE_BATCH = 15
"""Steps in which a copy starts, runs a batch and begins the next one."""


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of claims would wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def fence_in(folder: Path) -> Fence:
    return Fence(folder / "checkpoints" / "q", lease_s=10.0)


def test_each_claim_ends_the_epochs_before_it(tmp_path: Path) -> None:
    fence = fence_in(tmp_path)
    first = Path(fence.claim())
    assert sorted(file.name for file in fence.folder.iterdir()) == ["epoch-1", "epoch-1.lease"]
    granted = json.loads((fence.folder / "epoch-1.lease").read_text())
    assert granted == {"epoch": 1, "lease_s": 10.0, "state": "granted", "renewals": 0}
    (first / "offsets").mkdir()
    assert (fence.checkpoint / "offsets").is_dir()
    second = Path(fence.claim())
    assert [epoch_of(str(path)) for path in (first, second)] == [1, 2]
    assert (second / "offsets").is_dir() and not (first / "offsets").exists()
    with pytest.raises(OSError):
        (first / "offsets" / "1").write_text("x")
    with pytest.raises(OSError):  # as Hadoop does on the way to a new file
        (first / "offsets").mkdir(parents=True, exist_ok=True)
    assert (fence.holds(1), fence.holds(2)) == (False, True)
    assert fence.revoke() == 2 and not fence.holds(2)
    assert epoch_of(fence.claim()) == 3


def test_an_open_file_of_an_old_epoch_cannot_take_its_place(tmp_path: Path) -> None:
    fence = fence_in(tmp_path)
    old = Path(fence.claim())
    part = old / ".0.tmp"
    with part.open("w") as file:  # open while the epoch ends
        fence.claim()
        file.write("late")
    with pytest.raises(OSError):
        part.rename(old / "0")
    assert not (fence.checkpoint / "0").exists()


@pytest.mark.parametrize(
    "checkpoint", ["hdfs://n/c/q", "s3a://bucket/q", "file://other/c/q", "c/q"]
)
def test_a_checkpoint_elsewhere_has_no_fence(checkpoint: str) -> None:
    assert Fence.of(checkpoint) is None


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "{}/"])
def test_a_checkpoint_on_this_machine_has_one(tmp_path: Path, form: str) -> None:
    fence = Fence.of(form.format(tmp_path / "a b"))
    assert fence is not None and Path(fence.claim()).parent == tmp_path / "a b~fence"


def test_a_lease_lasts_half_a_minute_unless_it_is_set(tmp_path: Path) -> None:
    found = Fence.of(str(tmp_path / "q"))
    assert found is not None and found.lease_s == Fence(tmp_path / "q").lease_s == 30.0
    other = Fence.of(str(tmp_path / "q"), 5.0)
    assert other is not None and other.lease_s == 5.0


def test_the_end_of_an_epoch_is_on_the_disk_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the content of a file, then the folder that has its name."""
    fence = fence_in(tmp_path)
    fence.claim()
    synced: list[str] = []

    def noted(number: int) -> None:
        file = Path(f"/proc/self/fd/{number}")
        synced.append("folder" if file.is_dir() else file.read_text())

    monkeypatch.setattr(os, "fsync", noted)
    fence.revoke()
    assert synced == ["over\n", "folder"]


def test_a_full_disk_leaves_no_parts_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = fence_in(tmp_path)
    fence.claim()
    before = sorted(file.name for file in fence.folder.iterdir())

    def full(descriptor: int) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for change in (fence.revoke, fence.probe, fence.disuse):
        with pytest.raises(BackendError, match="No space left on device"):
            change()
    assert sorted(file.name for file in fence.folder.iterdir()) == before
    assert fence.holds(1) and fence.in_use


def test_a_disk_without_room_for_another_file_is_named_as_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = fence_in(tmp_path)
    fence.claim()

    def full(self: Path, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(BackendError, match="No space left on device"):
        fence.revoke()


def test_a_folder_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    why = r"q failed \(Not a directory\): the manager must be able to write next to the checkpoint"
    with pytest.raises(BackendError, match=why):
        Fence(tmp_path / "file" / "q").claim()


def test_the_epoch_before_ends_even_where_the_folder_is_not_listed_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may list a file some seconds after another machine has made it."""
    fence = fence_in(tmp_path)
    fence.claim()
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter(()))
    assert epoch_of(fence.claim()) == 2
    assert (fence.holds(1), fence.holds(2)) == (False, True)


def test_a_claim_ends_the_time_without_a_fence(tmp_path: Path) -> None:
    fence = fence_in(tmp_path)
    assert not fence.in_use
    fence.claim()
    assert fence.in_use
    fence.disuse()
    assert not fence.in_use and not fence.holds(1)
    fence.claim()
    assert fence.in_use and fence.holds(2)


def test_the_folders_can_be_written_by_those_who_write_next_to_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o2770)
    fence = Fence(tmp_path / "q")
    fence.claim()
    assert {path.stat().st_mode & 0o7777 for path in (fence.checkpoint, fence.folder)} == {0o2770}


def test_in_a_folder_like_tmp_they_belong_to_one_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    fence = Fence(tmp_path / "q")
    fence.claim()
    assert [path.stat().st_mode & 0o002 for path in (fence.checkpoint, fence.folder)] == [0, 0]


# --- two claims -------------------------------------------------------------------------------


class Scheduler:
    """Runs functions in threads, one step at a time, in a given order of turns."""

    def __init__(self, order: list[int]) -> None:
        self.order = order
        self.taken: list[int] = []
        self.ready: dict[int, threading.Semaphore] = {}
        self.back = threading.Semaphore(0)
        self.mine = threading.local()

    def pause(self) -> None:
        """Called in one of the threads before each step."""
        number = getattr(self.mine, "number", None)
        if number is not None:
            self.back.release()
            self.ready[number].acquire()

    def run(self, *works: Callable[[], None]) -> None:
        alive: list[int] = []
        for number, work in enumerate(works):
            self.ready[number] = threading.Semaphore(0)

            def body(number: int = number, work: Callable[[], None] = work) -> None:
                self.mine.number = number
                self.ready[number].acquire()
                try:
                    work()
                finally:
                    alive.remove(number)
                    self.back.release()

            alive.append(number)
            threading.Thread(target=body, daemon=True).start()
        while alive:
            step = len(self.taken)
            turn = self.order[step] if step < len(self.order) else alive[0]
            turn = turn if turn in alive else alive[0]
            self.taken.append(turn)
            self.ready[turn].release()
            self.back.acquire()


def test_of_two_claims_in_any_order_the_larger_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current: list[Scheduler] = []

    def stepwise(name: str, owner: object) -> None:
        real = getattr(owner, name)

        def step(*given: object, **more: object) -> object:
            if current:
                current[-1].pause()
            return real(*given, **more)

        monkeypatch.setattr(owner, name, step)

    stepwise("symlink_to", Path)
    stepwise("_epochs", Fence)
    stepwise("_end", Fence)
    seen = set()
    # Every order of the first four steps of each: list, link, list, end.
    for number, firsts in enumerate(itertools.combinations(range(8), 4)):
        fence = fence_in(tmp_path / str(number))
        current.clear()
        fence.claim()
        paths: list[str] = []
        scheduler = Scheduler([0 if turn in firsts else 1 for turn in range(8)])
        current.append(scheduler)
        scheduler.run(*[lambda fence=fence, paths=paths: paths.append(fence.claim())] * 2)
        current.clear()
        epochs = sorted(epoch_of(path) or 0 for path in paths)
        assert epochs == [2, 3] and fence.holds(3) and not fence.holds(2) and not fence.holds(1)
        seen.add(tuple(scheduler.taken))
    assert len(seen) == 70


# --- an old and a new copy --------------------------------------------------------------------


def advance(steps: Iterator[None], most: int = 10_000) -> int:
    """Take steps until the copy ends or fails; return how many."""
    taken = 0
    try:
        while taken < most:
            next(steps)
            taken += 1
    except (StopIteration, Concurrent, OSError):
        pass
    return taken


class Run:
    """An old copy that is paused, and a new one that replaces it."""

    def __init__(self, folder: Path, fenced: bool) -> None:
        self.fence, self.fenced = fence_in(folder), fenced
        self.sinks = Sinks(folder / "sink")
        advance(copy(self.path(), self.sinks, 1, 1, "first"))
        self.old = copy(self.path(), self.sinks, ROWS, 1, "old")

    def path(self) -> Path:
        return Path(self.fence.claim()) if self.fenced else self.fence.checkpoint

    def replace(self) -> Iterator[None]:
        return copy(self.path(), self.sinks, ROWS, 2, "new")

    def faults(self) -> list[str]:
        """Finish the query and return what is wrong with the rows."""
        advance(copy(self.path(), self.sinks, ROWS, 2, "last"))
        found = []
        if (rows := self.sinks.rows()) != list(range(ROWS)):
            found.append(f"the file sink has {rows}")
        spans: dict[int, set[tuple[int, int]]] = {}
        for batch, span in self.sinks.outside:
            spans.setdefault(batch, set()).add(span)
        found += [f"batch {n} was {sorted(s)}" for n, s in spans.items() if len(s) > 1]
        return found


def orders(folder: Path, fenced: bool) -> Iterator[list[str]]:
    """The faults of every run: the old copy is paused after each of its steps, and continues after
    each step of the new one, for each number of steps before the new one goes on."""
    for before in range(ONE_BATCH):
        for between in range(ONE_BATCH):
            for burst in (1, 2, 3, 5, 8):
                run = Run(folder / "run", fenced)
                advance(run.old, before)
                new = run.replace()
                advance(new, between)
                done = advance(run.old, burst)
                advance(new)
                advance(run.old)
                yield run.faults()
                shutil.rmtree(folder / "run")
                if done < burst:
                    break  # it has ended; a longer burst is the same run


def test_in_every_order_rows_appear_once_and_a_batch_has_one_content(tmp_path: Path) -> None:
    runs = list(orders(tmp_path, fenced=True))
    assert len(runs) > 400 and not any(runs)


def test_without_a_fence_the_same_orders_lose_and_repeat_rows(tmp_path: Path) -> None:
    found = set()
    for faults in orders(tmp_path, fenced=False):
        found |= {fault.split()[0] for fault in faults}
        if found == {"the", "batch"}:  # the file sink, and the content of a batch
            return
    raise AssertionError(found)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 20), st.lists(st.integers(0, 3), min_size=0, max_size=60), st.integers(0, 40))
def test_three_copies_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, before: int, turns: list[int], second: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    run = Run(folder, fenced=True)
    advance(run.old, before)
    copies = [run.old, run.replace()]
    for step, turn in enumerate(turns):
        if step == second:
            copies.append(run.replace())
        advance(copies[min(turn, len(copies) - 1)], 1)
    for one in copies:
        advance(one)
    assert run.faults() == []
    shutil.rmtree(folder)


# --- leases -----------------------------------------------------------------------------------


class LeasedHost:
    """A host with the fence plugin, as `FleetPlugin.java` works, with a clock that may be wrong.

    rate: seconds of its clock in a second. It runs the query until `deadline_s` by its clock.
    """

    def __init__(self, fence: Fence, epoch: int, rate: float) -> None:
        self.fence, self.epoch, self.rate = fence, epoch, rate
        self.renewals, self.running, self.deadline_s = 0, True, fence.lease_s

    def renew(self, now_s: float, written: bool = True) -> None:
        """Renew the lease at a time; written: whether the file system takes it."""
        began_s = now_s * self.rate
        if not self.running or began_s >= self.deadline_s:
            self.stop()
            return
        if not written:
            return
        self.renewals += 1
        state = {"epoch": self.epoch, "state": "held", "renewals": self.renewals}
        (self.fence.folder / f"epoch-{self.epoch}.lease").write_text(json.dumps(state))
        if self.fence.holds(self.epoch):
            self.deadline_s = began_s + self.fence.lease_s
        else:
            self.stop()

    def stop(self) -> None:
        self.running = False

    def runs(self, now_s: float) -> bool:
        return self.running and now_s * self.rate < self.deadline_s


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["renew", "cannot", "look"]), st.floats(0.0, 6.0)), max_size=30
    ),
    st.floats(0.0, 30.0),
    st.floats(1 / (1 + DRIFT), 1.0),
)
def test_a_lease_is_never_over_while_its_host_runs(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[tuple[str, float]],
    revoked_s: float,
    rate: float,
) -> None:
    """Whatever happens in whatever order, with a host whose clock is slow by as much as allowed."""
    folder = tmp_path_factory.mktemp("lease")
    fence = fence_in(folder)
    epoch = epoch_of(fence.claim()) or 0
    host, clock, watch = LeasedHost(fence, epoch, rate), FakeClock(0.0), None
    for kind, passed_s in [*events, *[("look", 3.0)] * 8]:
        clock.now_s += passed_s
        if watch is None and clock() >= revoked_s:
            fence.revoke()
            watch = LeaseWatch(fence, epoch, clock)
        if kind == "look":
            if watch is not None and watch.over():
                assert not host.runs(clock())
        else:
            host.renew(clock(), written=kind == "renew")
    shutil.rmtree(folder)


def test_a_lease_ends_after_its_time_or_when_the_host_has_released_it(tmp_path: Path) -> None:
    fence, clock = fence_in(tmp_path), FakeClock(0.0)
    fence.claim()
    watch = LeaseWatch(fence, fence.revoke(), clock)
    clock.now_s = 10 * (1 + DRIFT) + GRACE_S - 0.01
    assert not watch.over() and watch.left_s == pytest.approx(0.01)
    clock.now_s += 0.02
    assert watch.over()

    epoch = epoch_of(fence.claim()) or 0
    watch = LeaseWatch(fence, fence.revoke(), clock)
    assert not watch.over()
    (fence.folder / f"epoch-{epoch}.lease").write_text('{"state": "released"}')
    assert watch.over()


def test_a_host_that_renews_after_the_end_is_waited_for_again(tmp_path: Path) -> None:
    fence, clock = fence_in(tmp_path), FakeClock(0.0)
    epoch = epoch_of(fence.claim()) or 0
    watch = LeaseWatch(fence, fence.revoke(), clock)
    clock.now_s = 10.0
    (fence.folder / f"epoch-{epoch}.lease").write_text('{"state": "held", "renewals": 9}')
    assert not watch.over()
    clock.now_s = 15.0
    assert not watch.over()
    clock.now_s = 21.2
    assert watch.over()


def test_a_lease_that_an_earlier_manager_granted_keeps_its_length(tmp_path: Path) -> None:
    clock = FakeClock(0.0)
    Fence(tmp_path / "q", lease_s=60.0).claim()
    fence = Fence(tmp_path / "q", lease_s=10.0)
    watch = LeaseWatch(fence, fence.revoke(), clock)
    clock.now_s = 60.0
    assert not watch.over()
    clock.now_s = 62.0
    assert watch.over()


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", '{"state": 3, "lease_s": "x"}', '{"lease_s": Infinity}', "\x00",
        '{"lease_s": NaN}', '{"lease_s": 1e300}', '{"lease_s": ' + "9" * 400 + "}",
    ],
)  # fmt: skip
def test_a_damaged_lease_is_waited_for(tmp_path: Path, text: str) -> None:
    """For as long as a host goes on that could not read it either."""
    fence, clock = fence_in(tmp_path), FakeClock(0.0)
    epoch = epoch_of(fence.claim()) or 0
    (fence.folder / f"epoch-{epoch}.lease").write_text(text)
    watch = LeaseWatch(fence, fence.revoke(), clock)
    clock.now_s = 30.0
    assert not watch.over()
    clock.now_s = 32.0
    assert watch.over()


def test_epochs_leave_no_file_open(tmp_path: Path) -> None:
    fence = Fence(tmp_path / "c")
    fence.claim()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        fence.claim()
        fence.revoke()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
