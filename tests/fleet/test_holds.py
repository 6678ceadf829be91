"""Hosts that can be neither reached nor ended: their queries wait, their copies are fenced off."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tidegate.errors import BackendError, InputError
from tidegate.fleet.connect import ConnectHost
from tidegate.fleet.fence import Fence
from tidegate.fleet.holds import Hold, ShunnedHosts, shared_fence, stop_copies, stop_or_fence_off
from tidegate.fleet.hosts import HostSilent
from tidegate.fleet.moves import Move, MoveLog, carry_out
from tidegate.fleet.queries import ContinuousQuery
from tidegate.fleet.world import FleetWorld
from tidegate.testing import FakeClock, FakeFleet, FakeHost, FakeProvider


class Now:
    """A call that is made at once."""

    def __init__(self, call: Any) -> None:
        self.value, self.error = None, None
        try:
            self.value = call()
        except Exception as error:
            self.error = error

    def done(self, deadline_s: float) -> bool:
        return True


def fleet_of_endpoints(folder: Path, **more: Any) -> FakeFleet:
    """A fleet whose hosts cannot be killed. Each turn takes five seconds; the lease is 30 s."""
    fleet = FakeFleet(folder, {"a": 1.0, "b": 0.9}, **more)
    fleet.provider.killable = False
    fleet.world.shunned = ShunnedHosts(Now)  # type: ignore[arg-type]
    fleet.turns(3)
    assert fleet.homes == {"a": "host-1", "b": "host-2"}
    return fleet


def status(fleet: FakeFleet, query: str = "a") -> dict[str, Any]:
    rows = fleet.manager.command({"do": "status"})["queries"]
    return next(row for row in rows if row["query"] == query)


def test_a_host_that_is_silent_is_not_replaced_before_its_lease_is_over(tmp_path: Path) -> None:
    fleet = fleet_of_endpoints(tmp_path)
    old = fleet.provider.hosts["host-1"]
    old.hung = True
    fleet.turns(2)
    assert fleet.provider.killed == ["host-1"]
    # Its copy has lost the checkpoint already, and still runs.
    assert old.copies["a"].active and old.copies["a"].fenced_off
    row = status(fleet)
    assert row["status"] == "held" and row["held_by"] == ["host-1"] and "lease" in row["error"]
    fleet.turns(6)
    assert fleet.homes["a"] == "" and fleet.homes["b"] == "host-2"
    fleet.turns(2)
    assert fleet.homes["a"] not in ("", "host-1")
    assert status(fleet)["status"] == "running" and status(fleet)["error"] is None

    assert "host-1" in fleet.world.shunned
    old.hung = False  # it continues, and its copy is stopped
    fleet.turns(2)
    assert not old.copies and "host-1" not in fleet.world.shunned


def test_a_host_that_answers_again_frees_its_queries_at_once(tmp_path: Path) -> None:
    fleet = fleet_of_endpoints(tmp_path)
    old = fleet.provider.hosts["host-1"]
    old.hung = True
    fleet.turns(2)
    old.hung = False
    fleet.turns(3)
    assert not old.copies and fleet.homes["a"] not in ("", "host-1")


def test_a_lease_that_is_released_frees_a_query_at_once(tmp_path: Path) -> None:
    fleet = fleet_of_endpoints(tmp_path)
    fleet.provider.hosts["host-1"].hung = True
    fleet.turns(2)
    fence = fleet.world.queries["a"].fence
    assert fence is not None
    (fence.folder / f"epoch-{fence.latest()}.lease").write_text('{"state": "released"}')
    fleet.turns(1)
    assert fleet.homes["a"] not in ("", "host-1")


def test_a_host_that_is_killed_is_replaced_at_once(tmp_path: Path) -> None:
    fleet = fleet_of_endpoints(tmp_path)
    fleet.provider.killable = True
    fleet.provider.hosts["host-1"].hung = True
    fleet.turns(3)
    assert fleet.homes["a"] not in ("", "host-1") and not fleet.world.shunned


def test_without_a_fence_a_query_waits_until_its_host_has_answered(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 1.0})
    fleet.provider.killable = False
    fleet.world.shunned = ShunnedHosts(Now)  # type: ignore[arg-type]
    fleet.provider.lease("host-1")
    old = fleet.provider.hosts["host-1"]
    old.elsewhere = True
    fleet.world.register("host-1")
    fleet.turns(2)
    assert old.copies["a"].checkpoint == fleet.world.queries["a"].checkpoint
    assert status(fleet)["fenced"] is False
    old.hung = True
    fleet.turns(40)
    assert fleet.world.queries["a"].host == "" and "it has no fence" in status(fleet)["error"]
    old.hung = False
    fleet.turns(3)
    assert not old.copies and fleet.homes["a"] not in ("", "host-1")


def test_a_host_without_the_checkpoint_is_refused_if_others_have_it(tmp_path: Path) -> None:
    fleet = fleet_of_endpoints(tmp_path)
    fleet.provider.hosts["host-2"].elsewhere = True
    fleet.manager.command({"do": "move", "query": "a", "host": "host-2"})
    fleet.turns(1)
    assert fleet.homes["a"] == "host-1" and "mount the folder" in str(status(fleet)["error"])


@pytest.mark.parametrize("fenced", [True, False])
def test_a_new_manager_holds_what_a_silent_host_may_run(tmp_path: Path, fenced: bool) -> None:
    fleet = fleet_of_endpoints(tmp_path)
    entry = fleet.world.queries["a"]
    assert entry.fence is not None
    if not fenced:
        entry.fence.disuse()
    fleet.provider.hosts["host-1"].hung = True
    fleet.restart()
    held = {name: e.held for name, e in fleet.world.queries.items()}
    assert held["b"] is None and held["a"] is not None
    assert held["a"].places == {"host-1"} and (held["a"].watch is not None) == fenced
    fleet.turns(5)
    assert fleet.world.queries["a"].host == ""
    fleet.turns(4)
    assert bool(fleet.world.queries["a"].host) == fenced


def test_a_target_that_goes_silent_in_a_move_holds_the_query(tmp_path: Path) -> None:
    fleet = fleet_of_endpoints(tmp_path)
    target = fleet.provider.hosts["host-2"]
    real = target.start

    def start(query: ContinuousQuery, checkpoint: str, timeout_s: float) -> None:
        real(query, checkpoint, timeout_s)
        target.hung = True  # it has started, and nobody hears of it
        raise HostSilent("no answer")

    target.start = start  # type: ignore[method-assign]
    fleet.manager.command({"do": "move", "query": "a", "host": "host-2"})
    fleet.turns(1)
    assert target.copies["a"].fenced_off and status(fleet)["status"] == "held"
    fleet.turns(5)
    assert fleet.homes["a"] == "" and fleet.homes["b"] == ""
    fleet.turns(4)
    assert "host-2" not in fleet.homes.values() and all(fleet.homes.values())


def test_a_removed_query_loses_its_checkpoint(tmp_path: Path) -> None:
    fleet = fleet_of_endpoints(tmp_path)
    old = fleet.provider.hosts["host-1"]
    old.hung = True
    fleet.turns(2)
    fleet.manager.command({"do": "remove", "queries": ["a"]})
    fleet.turns(1)
    assert old.copies["a"].fenced_off
    old.hung = False
    fleet.turns(2)
    assert not old.copies


def test_a_full_disk_at_the_begin_of_a_move_delays_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = FakeFleet(tmp_path, {"a": 0.5, "b": 0.5}, min_hosts=2)
    fleet.turns(3)

    def full(self: MoveLog, move: Move, step: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(MoveLog, "step", full)
        for query in ("a", "b"):
            fleet.manager.command({"do": "move", "query": query, "host": "host-2"})
        fleet.turns(3)
        assert fleet.homes == {"a": "host-1", "b": "host-1"}
        assert "No space left" in str(status(fleet)["error"])
    fleet.turns(3)
    assert fleet.homes == {"a": "host-2", "b": "host-2"}


def test_an_epoch_that_cannot_be_ended_on_a_full_disk_is_ended_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = fleet_of_endpoints(tmp_path)
    old = fleet.provider.hosts["host-1"]
    old.hung = True

    def full(self: Fence, text: str, name: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(Fence, "_replace", full)
        fleet.turns(5)
        assert not old.copies["a"].fenced_off and fleet.world.queries["a"].host == ""
        assert status(fleet)["status"] == "held" and "No space left" in status(fleet)["error"]
        assert len([text for text in caplog.messages if "a is held" in text]) == 1
    fleet.turns(1)
    assert old.copies["a"].fenced_off and "lease is over" in status(fleet)["error"]
    fleet.turns(5)
    assert fleet.homes["a"] == ""
    fleet.turns(3)
    assert old.hung and fleet.homes["a"] not in ("", "host-1")


@pytest.mark.parametrize("answers", [True, False])
def test_a_query_that_is_not_stopped_at_the_end_is_named_and_loses_its_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, answers: bool
) -> None:
    fleet = fleet_of_endpoints(tmp_path)
    one, two = fleet.provider.hosts["host-1"], fleet.provider.hosts["host-2"]
    ended = threading.Event()

    def stop(name: str, timeout_s: float) -> None:
        if answers:
            raise BackendError("the stream does not stop")
        ended.wait(30)

    one.stop = stop  # type: ignore[method-assign]
    fleet.world.move_limit_s = 30.0 if answers else 0.2
    try:
        fleet.manager.shut_down()
    finally:
        ended.set()
    (said,) = [text for text in caplog.messages if "may still run" in text]
    why = "the stream does not stop" if answers else "no answer in 0.2 s"
    assert said == f"a may still run: host-1 did not stop it: {why}"
    assert one.copies["a"].fenced_off and not two.copies


def test_a_start_that_happens_late_finds_its_epoch_over(tmp_path: Path) -> None:
    clock = FakeClock()
    query = ContinuousQuery("q", lambda session, checkpoint: None)
    old, new = FakeHost(clock, {}), FakeHost(clock, {})
    fence = Fence(tmp_path / "q")
    old.start(query, fence.claim(), 1)
    asked: list[str] = []

    def late(query: ContinuousQuery, checkpoint: str, timeout_s: float) -> None:
        asked.append(checkpoint)
        raise HostSilent("no answer")

    new.start = late  # type: ignore[method-assign]
    log = MoveLog(tmp_path / "moves.jsonl")
    moved = carry_out(log.begin("q", "a", "b"), query, "c", old, new, log, 1, fence=fence)
    assert moved.where == "a" and Path(asked[0]).is_file()  # Spark cannot use it
    assert Path(old.copies["q"].checkpoint).is_dir()


def test_a_lease_has_a_second_to_a_day(tmp_path: Path) -> None:
    for wrong_s in (0.5, 1e300):
        with pytest.raises(InputError, match=r"--lease is .*; it must be a number between 1 and "):
            FleetWorld(FakeProvider(FakeClock()), tmp_path, lease_s=wrong_s)


class Session:
    """A session whose stream starts only when the test allows it."""

    def __init__(self) -> None:
        self.go, self.active = threading.Event(), []  # type: ignore[var-annotated]
        self.streams = self

    def begin(self) -> Any:
        self.go.wait(30)
        session = self

        class Stream:
            name, runId, status, lastProgress = "q", "1", {"isTriggerActive": False}, None  # noqa: N815

            def stop(self) -> None:
                session.active.remove(self)

        stream = Stream()
        self.active.append(stream)
        return stream


def test_a_stop_waits_for_a_start_that_is_still_under_way() -> None:
    session = Session()
    host = ConnectHost("sc://x:1", "s")
    host._session = session
    query = ContinuousQuery("q", lambda session, checkpoint: session.begin())
    with pytest.raises(HostSilent):
        host.start(query, "c", 0.05)
    with pytest.raises(HostSilent, match="earlier start"):
        host.stop("q", 0.05)
    session.go.set()
    host.stop("q", 30)
    assert session.active == []


def test_a_shunned_host_is_asked_less_and_less_often_and_forgotten_when_it_ends() -> None:
    limits: list[float] = []
    host = FakeHost(FakeClock(), {}, place="sc://x:1")

    def look(timeout_s: float) -> Any:
        limits.append(timeout_s)
        raise BackendError("unreachable")

    host.look = look  # type: ignore[method-assign]
    shunned = ShunnedHosts(Now)  # type: ignore[arg-type]
    shunned.add(host)
    for _ in range(20):
        shunned.look(5.0)
    assert limits[:3] == [5.0, 10.0, 20.0] and limits[-1] == 600.0
    host.dead = True
    shunned.look(5.0)
    assert not shunned


def test_a_host_that_is_shunned_again_is_asked_as_a_new_one() -> None:
    """The call to the one before it, at the same address, has no answer yet."""
    asked: list[str] = []

    class Never:
        def __init__(self, call: Any) -> None:
            host, limit_s = call.args
            asked.append(f"{host.name} {limit_s:g}")

        def done(self, deadline_s: float) -> bool:
            return False

    shunned = ShunnedHosts(Never)  # type: ignore[arg-type]
    for name in ("old", "new"):
        host = FakeHost(FakeClock(), {}, place="sc://x:1")
        host.name = name  # type: ignore[attr-defined]
        shunned.add(host)
        assert shunned["sc://x:1"] is host and list(shunned) == ["sc://x:1"] and len(shunned) == 1
        shunned.look(5.0)
        shunned.look(5.0)
    assert asked == ["old 5", "new 5"]


def test_a_fence_that_cannot_be_probed_is_left_out_only_if_nobody_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unwritable(self: Fence) -> tuple[Path, str]:
        raise BackendError("the disk is full")

    monkeypatch.setattr(Fence, "probe", unwritable)
    host = FakeHost(FakeClock(), {})
    unused, used = Fence(tmp_path / "unused"), Fence(tmp_path / "used")
    used.claim()
    assert shared_fence(unused, host, 1.0) is None
    assert caplog.messages == [f"{unused.checkpoint} is used without a fence: the disk is full"]
    with pytest.raises(BackendError, match="the disk is full"):
        shared_fence(used, host, 1.0)


def test_a_host_that_does_not_see_the_folder_gets_no_fence_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = FakeHost(FakeClock(), {}, place="sc://x:1")
    monkeypatch.setattr(host, "sees", lambda *_: False)
    fence = Fence(tmp_path / "q")
    assert shared_fence(fence, host, 1.0) is None
    said = f"{fence.checkpoint} is used without a fence: sc://x:1 does not see its folder"
    assert caplog.messages == [said]
    fence.claim()
    with pytest.raises(BackendError, match="mount the folder of the checkpoints there"):
        shared_fence(fence, host, 1.0)
    other = Fence(tmp_path / "other")
    other.claim()
    other.disuse()
    assert shared_fence(other, host, 1.0) is None and not other.in_use


def test_a_copy_on_a_host_that_answers_again_is_stopped_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = FakeHost(FakeClock(), {}, place="sc://x:1")
    host.start(ContinuousQuery("q", lambda *_: None), "c", 1)
    assert stop_copies(host, 1.0)
    assert caplog.messages == ["sc://x:1 answers again; its copy of q is stopped"]
    assert not host.copies


def test_a_hold_is_said_again_when_its_places_or_its_problem_differ() -> None:
    first = Hold(frozenset({"a"}))
    assert first.reason == Hold(frozenset({"a"})).reason
    assert first.reason != Hold(frozenset({"b"})).reason
    assert first.reason != Hold(frozenset({"a"}), error="no room").reason


def test_at_the_end_a_query_that_was_stopped_does_not_spare_the_next_one(tmp_path: Path) -> None:
    clock = FakeClock()
    well, hung = FakeHost(clock, {}), FakeHost(clock, {})
    hung.hung = True
    fences = {name: Fence(tmp_path / name) for name in ("a", "b")}
    before = {name: fence.claim() for name, fence in fences.items()}
    stop_or_fence_off([("a", fences["a"], well), ("b", fences["b"], hung)], 5.0)
    assert Path(before["a"]).exists(), "it was stopped, and keeps its checkpoint"
    assert not Path(before["b"]).is_dir(), "it may run on, and has lost it"


def test_at_the_end_a_fence_that_cannot_be_closed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unwritable(self: Fence) -> int:
        raise BackendError("the disk is full")

    monkeypatch.setattr(Fence, "revoke", unwritable)
    hung = FakeHost(FakeClock(), {}, place="sc://x:1")
    hung.hung = True
    stop_or_fence_off([("q", Fence(tmp_path / "q"), hung)], 5.0)
    may_run, keeps = caplog.messages
    assert may_run.startswith("q may still run: sc://x:1 did not stop it")
    assert keeps == "q keeps its checkpoint: the disk is full"


def test_a_query_waits_while_any_of_its_places_is_silent() -> None:
    hold = Hold(frozenset({"a", "b"}))
    assert not hold.over({"b": 1}) and not hold.over({"a": 1, "b": 1})
    assert hold.over({}) and hold.over({"c": 1})
