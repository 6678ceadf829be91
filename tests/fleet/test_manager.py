"""Healing, back-off, parking, draining and release, on fake hosts."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.errors import BackendError, InputError
from tidegate.fleet.hosts import HostView, QueryView
from tidegate.fleet.manager import FleetFolder, FleetManager, fleet_policy
from tidegate.loop.journal import Journal
from tidegate.model import Plan
from tidegate.testing import FakeFleet, FakeHost


class Late:
    """A call that is under way until it has a value."""

    value: HostView | None = None
    error = None

    def done(self, end_s: float) -> bool:
        return self.value is not None


def test_queries_are_placed_by_first_fit(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 1.0, "b": 0.5, "c": 0.5})
    fleet.turns(2)
    # Two cores filled to 0.8: 1.6 a host.
    assert fleet.homes == {"a": "host-1", "b": "host-1", "c": "host-2"}


def test_the_parts_of_a_host_sum_to_it(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 0.7, "b": 0.3})
    fleet.turns(3)
    snapshot = fleet.world.observe()
    host = snapshot.hosts[0]
    parts = sum(i.load.cpu_cores for i in snapshot.instances if i.load is not None)
    assert host.utilisation == pytest.approx(0.5)
    assert parts == pytest.approx((host.utilisation or 0) * 2)


def test_traffic_is_told_by_host_and_query_and_missing_where_it_is_not_measured(
    tmp_path: Path,
) -> None:
    fleet = FakeFleet(tmp_path, {"a": 0.5})
    fleet.turns(3)
    status = fleet.manager.command({"do": "status"})
    for row in (*status["hosts"], *status["queries"]):
        assert (row["read_mbps"], row["written_mbps"]) == (None, None)

    fleet.provider.hosts["host-1"].copies["a"].read_mb = 0.0
    fleet.turns(1)
    fleet.provider.hosts["host-1"].copies["a"].read_mb = 10.0
    fleet.turns(1)
    status = fleet.manager.command({"do": "status"})
    assert status["queries"][0]["read_mbps"] == pytest.approx(16.0)  # ten megabytes in 5 s
    assert status["hosts"][0]["read_mbps"] == pytest.approx(16.0)  # of which nobody else knows
    assert status["hosts"][0]["written_mbps"] is None


def test_a_host_that_dies_is_noticed_at_the_next_look(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 1.0, "b": 0.9})
    fleet.turns(3)
    assert fleet.homes == {"a": "host-1", "b": "host-2"}
    fleet.provider.hosts["host-1"].dead = True
    fleet.turns(1)
    assert "host-1" in fleet.provider.killed
    fleet.turns(1)
    assert fleet.homes["a"] not in ("", "host-1") and fleet.homes["b"] == "host-2"
    assert fleet.world.queries["a"].failures == 0


def test_a_host_that_hangs_is_lost_after_two_periods(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 1.0, "b": 0.9})
    fleet.turns(3)
    fleet.provider.hosts["host-1"].hung = True
    fleet.turns(1)
    assert fleet.provider.killed == []
    fleet.turns(1)
    assert fleet.provider.killed == ["host-1"]
    fleet.turns(1)
    assert fleet.homes["a"] != "host-1" and fleet.provider.copies("a")


def test_a_host_that_works_but_does_not_answer_is_slow_and_given_a_minute(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 1.0, "b": 0.9})
    fleet.turns(3)
    fleet.provider.hosts["host-1"].slow = True
    fleet.turns(10)
    assert fleet.provider.killed == [] and fleet.homes["a"] == "host-1"
    assert fleet.world.hosts["host-1"].utilisation is None
    fleet.provider.hosts["host-1"].slow = False
    fleet.turns(1)
    assert fleet.world.hosts["host-1"].utilisation is not None
    fleet.provider.hosts["host-1"].slow = True
    fleet.turns(14)
    assert fleet.provider.killed == ["host-1"] and fleet.homes["a"] not in ("", "host-1")


def test_a_host_that_just_came_up_is_given_a_minute_where_nobody_knows_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeHost, "cpu_s", lambda self: None)
    fleet = FakeFleet(tmp_path, {"a": 1.0})
    fleet.turns(2)
    fleet.provider.hosts["host-1"].slow = True
    fleet.turns(8)
    assert fleet.provider.killed == []
    fleet.provider.hosts["host-1"].slow = False
    fleet.turns(6)  # now it has been up for more than a minute
    fleet.provider.hosts["host-1"].slow = True
    fleet.turns(2)
    assert fleet.provider.killed == ["host-1"]


def test_an_answer_that_comes_late_counts_and_tells_nothing_of_what_has_moved_since(
    tmp_path: Path,
) -> None:
    fleet = FakeFleet(tmp_path, {"a": 0.5}, min_hosts=2)
    fleet.turns(3)
    late: Any = Late()
    entry = fleet.world.hosts["host-2"]
    entry.pending, entry.asked_s = late, fleet.clock()
    fleet.clock.now_s += 1
    fleet.manager.command({"do": "move", "query": "a", "host": "host-2"})
    fleet.turns(1)
    assert fleet.homes == {"a": "host-2"} and entry.pending is late
    late.value = HostView({}, cpu_s=1.0)
    fleet.turns(1)  # seen before the move, so that the query is not in it
    assert fleet.homes == {"a": "host-2"} and fleet.world.queries["a"].failures == 0
    assert entry.answered_s == fleet.clock() - 5


def test_a_clock_that_is_set_back_blinds_nobody(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 1.0, "b": 0.9})
    fleet.turns(3)
    assert fleet.homes == {"a": "host-1", "b": "host-2"}
    age_s = fleet.world.status()["hosts"][0]["age_s"]
    fleet.world.clock = lambda: fleet.clock() - 3600.0
    assert fleet.world.status()["hosts"][0]["age_s"] == age_s
    fleet.provider.hosts["host-2"].fail("b", "division by zero")
    fleet.manager.turn()
    assert fleet.world.status()["queries"][1]["status"] == "backing off"
    fleet.turns(3)
    assert fleet.homes["b"] == "host-2"
    fleet.provider.hosts["host-1"].hung = True
    fleet.turns(2)
    assert fleet.provider.killed == ["host-1"]


def test_a_clock_of_the_managers_machine_that_was_set_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = FakeFleet(tmp_path, {"a": 1.0})
    fleet.turns(2)
    news = iter(["the clock was set"])
    monkeypatch.setattr(fleet.manager._machine, "news", lambda: next(news, ""))
    noted, after = fleet.manager.turn(), fleet.manager.turn()
    assert noted is not None and noted.notes == ("the clock was set",)
    assert after is not None and after.notes == ()


def test_a_journal_that_opens_late_is_there_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()

    def slow(name: Path) -> Journal:
        go.wait()
        return Journal(name)

    monkeypatch.setattr("tidegate.loop.records.OPEN_S", 0.05)
    monkeypatch.setattr("tidegate.loop.records.Journal", slow)
    fleet = FakeFleet(tmp_path, {"a": 1.0})
    manager = FleetManager(fleet.world, fleet_policy(), None, tmp_path / "late.jsonl")
    assert manager.journal is None
    go.set()
    assert manager.records.opening is not None and manager.records.opening.ended(60.0)
    manager.turn()
    assert manager.journal is not None and manager.journal.path == tmp_path / "late.jsonl"
    manager.records.close()


def test_a_manager_that_was_paused_reads_the_answers_before_it_gives_up_a_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = FakeFleet(tmp_path, {"a": 1.0})
    fleet.turns(3)
    monkeypatch.setattr(
        "tidegate.fleet.world.time", SimpleNamespace(monotonic=fleet.clock, sleep=time.sleep)
    )

    class Paused(Late):
        """The process stops while it waits; the answer is there a moment after it continues."""

        stopped = False

        def done(self, end_s: float) -> bool:
            if not self.stopped:
                self.stopped = True
                fleet.clock.now_s += 600
                return False
            if end_s > fleet.clock():
                self.value = HostView({"a": QueryView("a/1")}, cpu_s=1.0)
            return self.value is not None

    entry = fleet.world.hosts["host-1"]
    entry.pending = Paused()  # type: ignore[assignment]
    entry.asked_s = fleet.clock()
    fleet.world.refresh()
    assert fleet.provider.killed == [] and entry.answered_s == fleet.clock()


def test_a_query_that_dies_in_its_first_batch_after_a_move_goes_back(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 0.5, "b": 0.5}, min_hosts=2)
    fleet.turns(3)
    fleet.manager.command({"do": "move", "query": "b", "host": "host-2"})
    fleet.turns(1)
    fleet.provider.hosts["host-2"].fail("b", "no such library")
    fleet.turns(2)
    entry = fleet.world.queries["b"]
    assert fleet.homes["b"] == "host-1"
    assert (entry.failures, entry.status(fleet.clock())) == (0, "running")

    fleet.manager.command({"do": "move", "query": "b", "host": "host-2"})
    fleet.turns(1)
    fleet.provider.hosts["host-2"].batch("b")
    fleet.turns(1)
    fleet.provider.hosts["host-2"].fail("b", "division by zero")  # this time it is the query itself
    fleet.turns(1)
    assert entry.failures == 1 and fleet.homes["b"] == ""


def test_neighbours_are_placed_together_at_first_and_after_a_death(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 1.0, "b": 0.9, "c": 0.3})
    fleet.world.queries["c"].query = replace(fleet.world.queries["c"].query, near=("b",))
    fleet.turns(3)
    assert fleet.homes == {"a": "host-1", "b": "host-2", "c": "host-2"}
    fleet.provider.hosts["host-2"].dead = True
    fleet.turns(3)
    homes = fleet.homes
    assert homes["b"] == homes["c"] not in ("", "host-2") and homes["a"] == "host-1"


def test_a_query_that_fails_is_started_again_with_back_off_and_then_parked(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"bad": 0.2, "good": 0.2})
    fleet.turns(2)
    waits = []
    for _ in range(2):
        fleet.provider.hosts["host-1"].fail("bad", "division by zero")
        before_s = fleet.clock()
        while not fleet.provider.copies("bad"):
            fleet.turns()
        waits.append(fleet.clock() - before_s)
    assert waits[1] > waits[0]
    fleet.provider.hosts["host-1"].fail("bad", "division by zero")
    fleet.turns(20)
    entry = fleet.world.queries["bad"]
    assert entry.parked and entry.error == "division by zero"
    assert fleet.provider.hosts["host-1"].started == ["bad", "good", "bad", "bad"]
    assert fleet.provider.copies("good") == ["host-1"]

    fleet.manager.command({"do": "unpark", "query": "bad"})
    fleet.turns(2)
    assert fleet.provider.copies("bad")


def test_a_plan_for_a_query_that_does_not_run_any_more_is_refused(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 0.2, "b": 0.2})
    fleet.turns(2)
    plan = Plan(fleet.world.requested)
    fleet.world.queries["a"].parked = True
    assert fleet.world.apply(plan).refused == ("start a-1: the fleet has no such query to run",)


def test_a_query_whose_function_raises_is_parked_and_its_error_shown(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"bad": 0.2, "good": 0.2})
    fleet.provider.lease("host-1")
    fleet.provider.hosts["host-1"].refuse["bad"] = ValueError("no such column")
    fleet.world.register("host-1")
    fleet.turns(20)
    rows = {q["query"]: q for q in fleet.manager.command({"do": "status"})["queries"]}
    assert rows["bad"]["status"] == "parked" and "no such column" in rows["bad"]["error"]
    assert rows["good"]["status"] == "running"


def test_an_overloaded_host_gives_queries_away(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 0.4, "b": 0.4, "c": 0.4, "d": 0.4})
    fleet.turns(2)
    assert set(fleet.homes.values()) == {"host-1"}
    fleet.provider.loads.update(a=0.6, b=0.6, c=0.6)
    fleet.turns(8)
    assert set(fleet.homes.values()) == {"host-1", "host-2"}
    assert all(len(e.pauses_s) == e.moves for e in fleet.world.queries.values())


@pytest.mark.parametrize("policy", ["local-threshold", "global-threshold", "sarsa"])
def test_an_idle_host_is_released_when_all_found_a_place(tmp_path: Path, policy: str) -> None:
    fleet = FakeFleet(tmp_path, {"a": 1.0, "b": 0.9}, policy)
    fleet.turns(3)
    assert len(fleet.world.hosts) == 2
    fleet.provider.loads.update(a=0.3, b=0.2)
    fleet.turns(25)
    assert len(fleet.provider.released) == 1
    assert len(set(fleet.homes.values())) == 1


def test_a_release_is_cancelled_when_one_query_finds_no_place(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 1.5, "b": 0.5})
    fleet.turns(20)  # host-2 is at 0.25, below 0.3, and host-1 has no room
    assert fleet.homes == {"a": "host-1", "b": "host-2"}
    assert fleet.provider.released == []


def test_a_host_is_kept_while_a_move_off_it_fails(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 1.0, "b": 0.9})
    fleet.turns(3)
    assert fleet.homes == {"a": "host-1", "b": "host-2"}
    refused = fleet.provider.hosts["host-1"].refuse
    refused["b"] = BackendError("not here")
    fleet.manager.command({"do": "move", "query": "b", "host": "host-1"})
    fleet.world.hosts["host-2"].leaving = True
    fleet.world.reconcile()
    entry = fleet.world.queries["b"]
    assert fleet.homes["b"] == "host-2" and "not here" in str(entry.error)
    assert (fleet.provider.released, entry.moves) == ([], 0)

    refused.clear()
    fleet.clock.now_s += 10
    entry.target = "host-1"
    fleet.world.reconcile()
    assert fleet.homes["b"] == "host-1" and fleet.provider.released == ["host-2"]


def test_drain_empties_a_host_and_releases_it(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 0.4, "b": 0.4})
    fleet.turns(3)
    answer = fleet.manager.command({"do": "drain", "host": "host-1"})
    assert answer == {"done": "host-1 is drained of 2 queries and then released"}
    fleet.turns(3)
    assert fleet.provider.released == ["host-1"]
    assert set(fleet.homes.values()) == {"host-2"}


def test_a_move_by_hand_stays(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 0.5, "b": 0.5}, min_hosts=2)
    fleet.turns(3)
    fleet.manager.command({"do": "move", "query": "b", "host": "host-2"})
    fleet.turns(6)
    assert fleet.homes == {"a": "host-1", "b": "host-2"}


def test_add_and_remove_while_it_runs(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 0.5})
    fleet.turns(2)
    file = tmp_path / "more.py"
    file.write_text(
        "from tidegate.fleet import continuous_query\n"
        "@continuous_query(cpu_cores=0.5)\n"
        "def late(session, checkpoint): ...\n"
    )
    assert fleet.manager.command({"do": "add", "file": str(file)}) == {"done": "added late"}
    fleet.turns(2)
    assert fleet.homes == {"a": "host-1", "late": "host-1"}
    fleet.manager.command({"do": "remove", "queries": ["a"]})
    fleet.turns(1)
    assert fleet.homes == {"late": "host-1"} and not fleet.provider.copies("a")
    again = FleetFolder(tmp_path)
    assert again.files == [str(file)] and again.removed == ["a"]


def test_a_stale_copy_is_stopped(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 0.5}, min_hosts=2)
    fleet.turns(3)
    stale = fleet.provider.hosts["host-2"]
    stale.start(fleet.world.queries["a"].query, "c", 1)
    fleet.manager.turn()
    assert fleet.homes == {"a": "host-1"}


def test_a_query_with_no_room_anywhere_runs_crowded(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 1.5, "b": 1.5, "c": 1.5}, max_hosts=2)
    fleet.turns(3)
    assert all(fleet.homes.values())


def test_moves_wait_for_a_host_that_is_still_starting(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 0.5})
    fleet.provider.slow = True
    fleet.turns(2)
    assert fleet.homes == {"a": ""}
    assert fleet.world.queries["a"].status(fleet.clock()) == "waiting"
    fleet.provider.starting.clear()
    fleet.turns(1)
    assert fleet.homes == {"a": "host-1"}


@pytest.mark.parametrize(
    "content",
    [
        b"", b'{"id": "\xc3', b"[]", b"{}", b'{"id": 5}', b'{"id": ""}', b"[" * 50_000,
        b'{"id": "x", "files": 5}', b'{"id": "x", "files": [5]}',
        b'{"id": "x", "removed": {"q": 1}}', b'{"id": "x", "removed": null}',
    ],
)  # fmt: skip
def test_a_damaged_folder_is_refused_in_a_sentence_and_left_alone(
    content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "fleet.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"fleet\.json is damaged: restore it"):
        FleetFolder(tmp_path)
    assert file.read_bytes() == content


def test_a_second_manager_of_a_folder_is_refused(tmp_path: Path) -> None:
    first, second = FleetFolder(tmp_path), FleetFolder(tmp_path)
    first.lock()
    with pytest.raises(InputError, match="without a manager"):
        second.lock()
    first.close()
    second.lock()
    second.close()


@pytest.mark.parametrize(
    "request_, part",
    [
        ({"do": "dance"}, "must be one of"),
        ({"do": "move", "query": "x", "host": "host-1"}, "known are a"),
        ({"do": "move", "query": "a", "host": "host-9"}, "known are host-1"),
        ({"do": "drain"}, "lacks 'host'"),
        ({"do": "add", "file": "nowhere.py"}, "a Python file"),
        ({"do": "stop"}, ""),
    ],
)
def test_commands_that_cannot_be_done_say_why(
    tmp_path: Path, request_: dict[str, str], part: str
) -> None:
    fleet = FakeFleet(tmp_path, {"a": 0.5})
    fleet.turns(1)
    answer = fleet.manager.command(request_)
    assert part in answer.get("error", "")
    assert bool(part) == ("error" in answer)


def test_only_the_papers_techniques_place_queries() -> None:
    with pytest.raises(InputError, match="local-threshold"):
        fleet_policy("drs")


def test_it_goes_on_with_what_it_had_learnt(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, {"a": 0.5}, "sarsa")
    journal = tmp_path / "journal.jsonl"
    first = FleetManager(fleet.world, fleet.policy, None, journal)
    for _ in range(4):
        first.turn()
        fleet.clock.now_s += 5
    assert first.journal is not None
    first.journal.close()
    second = FleetManager(fleet.world, fleet.policy, None, journal)
    assert second.controller.memory == first.controller.memory


def limited_fleet(folder: Path, states_mb: dict[str, float | None]) -> FakeFleet:
    """Queries with little CPU on hosts of 1024 MB; a state of None is not reported."""
    fleet = FakeFleet(folder, dict.fromkeys(states_mb, 0.1))
    fleet.provider.limits = frozenset({"memory_mb"})
    return fleet


def turns_with_state(fleet: FakeFleet, states_mb: dict[str, float | None], count: int) -> None:
    for _ in range(count):
        fleet.turns(1)
        for host in fleet.provider.hosts.values():
            for name, copy in host.copies.items():
                if states_mb[name] is not None:
                    host.batch(name, len(copy.progress))
                    last = replace(copy.progress[-1], state_mb=states_mb[name], state_rows=1)
                    copy.progress = (*copy.progress[:-1], last)


def test_a_fleet_whose_memory_binds_scales_out_and_one_without_a_limit_does_not(
    tmp_path: Path,
) -> None:
    states: dict[str, float | None] = {"a": 400.0, "b": 350.0, "c": 200.0}
    fleet = limited_fleet(tmp_path / "limited", states)
    turns_with_state(fleet, states, 20)
    assert len(set(fleet.homes.values())) == 2
    for host in fleet.world.observe().running_hosts:
        assert host.memory_share is not None and host.memory_share < 0.8
    free = FakeFleet(tmp_path / "free", dict.fromkeys(states, 0.1))
    turns_with_state(free, states, 20)
    assert set(free.homes.values()) == {"host-1"}
    assert free.world.observe().hosts[0].memory_share is None


def test_a_fleet_does_not_act_on_memory_that_no_query_reported(tmp_path: Path) -> None:
    states: dict[str, float | None] = {"a": 400.0, "b": None}
    fleet = limited_fleet(tmp_path, states)
    turns_with_state(fleet, states, 20)
    host = fleet.world.observe().hosts[0]
    assert host.utilisation is not None
    assert (host.memory_share, host.pressure) == (None, None)
    assert set(fleet.homes.values()) == {"host-1"}
