"""Three short seeds of the storm on real Spark, and what the storm itself must find.

`make storm` runs the others.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.storm import __main__ as program
from tests.storm import application, fleet, watch
from tests.storm.disk import Disk
from tests.storm.ledger import BEGIN, END, LEDGER, PAGE, ROOT, draw, last_runs, read_ledger, tables
from tests.storm.proxy import Way
from tests.storm.seed import (
    MARK,
    FaultLine,
    Happened,
    SeedLine,
    drawn,
    left_over,
    marked,
    play,
    strangers,
    until,
    write_lines,
)
from tests.storm.watch import Watch
from tidegate.loop.journal import Journal, Turn
from tidegate.model import Plan, Reason
from tidegate.testing import steady_snapshot


@pytest.mark.java
def test_three_seeds_on_real_spark(tmp_path: Path) -> None:
    """The seeds were chosen after a look: ten kinds of faults, none of which starts a JVM."""
    ledger = tmp_path / "storm.jsonl"
    words = ["--world", "application", "--seed", "9140", "--seeds", "3", "--faults", "4"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.storm", *words, "--ledger", str(ledger)],
        cwd=ROOT,
        env=env | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    runs = read_ledger(ledger)
    assert [run.end.seed for run in runs] == [9140, 9141, 9142]
    assert all(run.passed and len(run.faults) == 4 and run.end.rows >= 100 for run in runs)


# --- the storm finds problems ---------------------------------------------------------------------


class Calm:
    """A world whose journal the test writes. says: what the journal shows about a fault."""

    name = policy = "calm"

    def __init__(self, folder: Path, says: str = "seen", ill: str = "") -> None:
        self.watch = Watch(folder / "journal.jsonl")
        self.says, self.ill, self.undone = says, ill, 0

    def kinds(self) -> dict[str, int]:
        return {"any": 1}

    def inject(self, kind: str) -> Happened:
        def undo() -> None:
            self.undone += 1

        return Happened("somebody", lambda turns: self.says, undo)

    def well(self, since_s: float) -> str:
        return self.ill if self.undone else ""

    def finish(self, end: SeedLine) -> None:
        end.rows = 7


def test_a_fault_has_a_line_and_what_is_not_noticed_or_healed_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.storm.seed.LIMIT_S", 0.0)
    monkeypatch.setattr("tests.storm.seed.until.__defaults__", (0.0,))
    lines, end = play(Calm(tmp_path), 1, ["any", "any"])
    assert [(one.number, one.target, one.noticed) for one in lines] == [
        (1, "somebody", "seen"),
        (2, "somebody", "seen"),
    ]
    assert end.faults == 2 and end.rows == 7 and not end.problems
    assert all(one.healed_s is not None for one in lines)

    lines, end = play(Calm(tmp_path, says=""), 1, ["any", "any"])
    assert len(lines) == len(end.problems) == 2
    assert "the journal does not show it" in end.problems[0]

    lines, end = play(Calm(tmp_path, ill="no batch"), 1, ["any", "any"])
    assert len(lines) == 1 and lines[0].healed_s is None, "it cannot go on"
    assert "not healed: no batch" in end.problems[0]


def turn(number: int = 1, time_s: float = 0.0, **more: object) -> Turn:
    return replace(Turn(number, "static", steady_snapshot(time_s=time_s)), **more)  # type: ignore[arg-type]


def test_the_journal_shows_a_fault_only_if_it_does() -> None:
    again, before = watch.begins_again(turn(5)), turn(5, 10.0)
    assert again([turn(1)]) and again([turn(6), turn(1)]) and not again([turn(6), turn(7)])
    assert watch.begins_again(turn(1))([turn(1)]), "the journal was cut after its first turn"
    assert watch.failed([turn(), turn(error="no answer")]) and not watch.failed([turn()])
    torn = watch.noted("torn line")
    assert torn([turn(notes=("7 bytes of a torn line",))]) and not torn([turn(notes=("other",))])
    gap = watch.gap(before, 10.2, 13.2)
    assert gap([turn(6, 13.3)]) and not gap([turn(6, 11.0), turn(7, 14.0)])
    assert not gap([turn(6, 12.0)]), "the pause is not over"
    slow = watch.slow_batch(turn(snapshot=steady_snapshot(batch_durations_s=(9.0,))), 3.0)
    assert slow([turn(snapshot=steady_snapshot(batch_durations_s=(9.0, 3.5)))])
    assert not slow([turn(snapshot=steady_snapshot(batch_durations_s=(9.0, 1.0)))]), "an old one"
    silent, asked = watch.silent_source(3.0), steady_snapshot()
    waits = [replace(one, source_wait_s=3.5) for one in asked.operators]
    assert silent([turn(), turn(snapshot=asked.with_operators(tuple(waits)))])
    assert not silent([turn()]) and not silent([turn(snapshot=None)])
    back = Plan(turn().snapshot.requested, (Reason("clock", "it went back"),))  # type: ignore[union-attr]
    assert watch.jumped(before, -90.0)([turn(plan=back)])
    other = replace(back, reasons=(Reason("other", "for another reason"),))
    assert not watch.jumped(before, -90.0)([turn(plan=other)])
    assert watch.jumped(before, 90.0)([turn(6, 101.0)])
    assert not watch.jumped(before, 90.0)([turn(6, 11.0)])
    assert watch.moved(before, -90.0)([turn(6, -79.0)])
    assert not watch.moved(before, -90.0)([turn(6, 11.0)])
    assert watch.wrong_readings("no lag")([turn(plan=back)])
    assert not watch.wrong_readings("no lag")([turn(plan=back, snapshot=steady_snapshot(1, 5.0))])
    assert fleet.unanswered("host-2")([turn()]) and not fleet.unanswered("host-1")([turn()])


def test_turns_are_read_once_also_when_the_writer_has_mended_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    seen = Watch(path)
    with Journal(path) as journal:
        for number in (1, 2, 3):
            journal.write(turn(number))
    assert [one.number for one in seen.new()] == [1, 2, 3] and not seen.new()
    os.truncate(path, path.stat().st_size - 10)
    seen.begin_again()
    assert not seen.new() and seen.last is not None and seen.last.number == 2
    with Journal(path) as journal:  # it removes the torn line
        assert journal.torn_bytes
        assert not seen.new()
        journal.write(turn(1))
    assert [one.number for one in seen.new()] == [1]
    assert seen.turns == 4


def test_a_turn_that_somebody_else_has_read_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.storm.seed.until.__defaults__", (0.0,))
    path = tmp_path / "journal.jsonl"

    class Reader(Calm):
        def inject(self, kind: str) -> Happened:
            with Journal(path) as journal:
                journal.write(turn(2, error="no answer"))
            return Happened("somebody", watch.failed)

        def well(self, since_s: float) -> str:
            self.watch.new()
            return ""

    lines, end = play(Reader(tmp_path), 1, ["any"])
    assert lines[0].noticed == "failed turn: no answer" and not end.problems


def test_processes_are_found_by_their_mark_and_ended() -> None:
    mark = f"a test {os.getpid()}"
    env = {**os.environ, MARK: mark}
    child = subprocess.Popen(["sleep", "600"], env=env)
    try:
        while child.pid not in marked(mark):  # its environment is there a moment after its start
            assert child.poll() is None
        assert left_over("another test", 0.0) == []
        assert left_over(mark, 0.0) == ["sleep 600"]
        assert child.wait(60) < 0
    finally:
        child.kill()


def test_what_came_during_a_seed_and_stays_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr("tests.storm.seed.time.sleep", sleep)
    monkeypatch.setattr("tests.storm.seed.time.monotonic", lambda: clock[0])
    seen = [{1: "java Worker", 2: "jspawnhelper"}, {1: "java Worker"}]
    monkeypatch.setattr("tests.storm.seed.marked", lambda mark: seen[min(1, int(clock[0] > 0))])
    assert strangers("a test", {}, ["Worker"]) == [], "one that is there for a moment"
    assert strangers("a test", {}, ["Master"]) == ["java Worker"] and clock[0] >= 15.0
    assert strangers("a test", {1: ""}, ["Master"]) == []


def test_time_in_which_the_storm_is_suspended_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, looks = [0.0], [0]

    def sleep(seconds: float) -> None:
        looks[0] += 1
        clock[0] += 1_000.0 if looks[0] == 2 else seconds

    monkeypatch.setattr("tests.storm.seed.time.sleep", sleep)
    monkeypatch.setattr("tests.storm.seed.time.monotonic", lambda: clock[0])
    until(lambda: looks[0] > 5, lambda: "too long", 30.0)
    with pytest.raises(TimeoutError, match="too long"):
        until(lambda: False, lambda: "too long", 30.0)


def test_a_disk_is_full_from_when_its_file_grows_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, clock = Disk(tmp_path / "disk"), [0.0]
    file = disk.folder / "journal"
    file.write_bytes(b"x")

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        if clock[0] < 4.95:  # its last page has room for some lines
            with file.open("ab") as more:
                more.write(b"x")

    monkeypatch.setattr("tests.storm.disk.time.sleep", sleep)
    monkeypatch.setattr("tests.storm.disk.time.monotonic", lambda: clock[0])
    with disk:
        disk.fill(file, [], 1.5)
    assert clock[0] == pytest.approx(6.4, abs=0.15)


def test_a_way_passes_stalls_resets_refuses_and_heals() -> None:
    import socket

    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]

    def reached(way: Way) -> bool:
        with socket.create_connection(("127.0.0.1", way.port), 5.0) as client:
            client.sendall(b"x")
            server.settimeout(0.5)
            try:
                there, _ = server.accept()
            except TimeoutError:
                return False
            with there:
                there.settimeout(0.5)
                try:
                    return there.recv(1) == b"x"
                except TimeoutError:
                    return False

    with server, Way(lambda: port) as way:
        assert reached(way)
        way.stall()
        assert not reached(way)
        way.heal()
        way.reset()
        assert not reached(way)
        way.heal()
        assert reached(way)
        way.refuse()
        with pytest.raises(OSError):
            reached(way)
        way.heal()
        assert reached(way)


def test_faults_follow_from_the_seed_and_each_kind_can_happen() -> None:
    for world in (application.Application, fleet.Fleet):
        kinds = application.KINDS if world is application.Application else fleet.KINDS
        assert all(hasattr(world, "_" + kind.replace(" ", "_")) for kind in kinds)
        chosen = drawn(kinds, random.Random(1), 500)
        assert chosen == drawn(kinds, random.Random(1), 500)
        assert Counter(chosen).keys() == kinds.keys()


# --- the ledger -----------------------------------------------------------------------------------


def a_seed(folder: Path, seed: int, **wrong: object) -> None:
    line = FaultLine("application", seed, 1, "clock back", "-90 s", "the reason clock", 1.0, 2.0)
    end = replace(SeedLine("application", seed, 1, rows=40), **wrong)  # type: ignore[arg-type]
    write_lines(folder, [line, replace(line, number=2, kind="full disk")], end)


def test_what_has_passed_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = tmp_path / "storm.jsonl"
    for seed, wrong in (
        (1, {}),
        (2, {"problems": ["too late"]}),
        (3, {"processes_left": ["java"]}),
    ):
        a_seed(tmp_path, seed, **wrong)
        assert program.enter(tmp_path, "application", seed, "abc", ledger) == (seed == 1)
    asked: list[list[int]] = []

    def run(world: str, seeds: list[int], *_: object) -> bool:
        asked.append(seeds)
        return True

    monkeypatch.setattr(program, "run", run)
    monkeypatch.setattr(
        sys, "argv", ["storm", "--world", "application", "--seeds", "4", "--ledger", str(ledger)]
    )
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 0 and asked == [[2, 3, 4]]
    a_seed(tmp_path, 2)
    assert program.enter(tmp_path, "application", 2, "def", ledger)
    with pytest.raises(SystemExit):
        program.main()
    assert asked[1] == [3, 4]
    runs = read_ledger(ledger)
    assert len(runs) == 4 and [run.end.commit for run in last_runs(runs)] == ["abc", "def", "abc"]
    text = tables(runs)
    assert "**6 faults over 3 seeds**" in text and "1 of the seeds had a problem" in text
    assert "- application 2 at abc, 2 faults: too late; run again since" in text
    assert "- application 3 at abc, 2 faults: left over: java" in text


def test_each_kind_of_damage_fails_a_seed(tmp_path: Path) -> None:
    wrongs = ("missing", "extra", "queries_lost", "queries_left")
    for seed, name in enumerate(wrongs):
        a_seed(tmp_path, seed, **{name: 1})
        program.enter(tmp_path, "application", seed, "abc", tmp_path / "storm.jsonl")
    assert not any(run.passed for run in read_ledger(tmp_path / "storm.jsonl"))


def test_the_page_is_drawn_from_the_ledger(tmp_path: Path) -> None:
    """The committed page has the numbers of the committed ledger."""
    page = tmp_path / "storm.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    draw(page, LEDGER)
    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
    page.write_text(f"before {BEGIN} old {END} after", encoding="utf-8")
    draw(page, tmp_path / "none.jsonl")
    assert page.read_text(encoding="utf-8").startswith(f"before {BEGIN}\n\n**0 faults over 0 seeds")
    assert page.read_text(encoding="utf-8").endswith(f"\n\n{END} after")


def test_a_line_about_a_seed_is_json(tmp_path: Path) -> None:
    a_seed(tmp_path, 4)
    lines = (tmp_path / "application-4.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["noticed_s"] == 1.0 and json.loads(lines[-1])["rows"] == 40
