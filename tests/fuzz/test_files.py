"""Damaged files: each reader returns something or raises an error of Tidegate, in a sentence."""

from __future__ import annotations

import gzip
import io
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.helpers import tidegate
from tests.fuzz import cases, within_limits
from tests.fuzz.damage import ODD, damaged
from tests.simulation.worlds import FIXED_WORK
from tidegate.codec import to_plain
from tidegate.config import load_topology
from tidegate.dashboard.journals import JournalList
from tidegate.errors import TidegateError
from tidegate.fleet.fence import MOST_LEASE_S, Fence, LeaseWatch, epoch_of
from tidegate.fleet.manager import FleetFolder
from tidegate.fleet.moves import MoveLog
from tidegate.fleet.queries import load_queries
from tidegate.lab.sweep.grid import load_grid
from tidegate.loop.controls import Control, ControlFile, ControlState, apply_controls
from tidegate.loop.journal import Journal, Turn, last_turns, read_journal
from tidegate.loop.records import remembered
from tidegate.loop.stack import load_policy
from tidegate.policies import create
from tidegate.report.live import live_page
from tidegate.report.metrics import Metrics
from tidegate.report.summary import summarise
from tidegate.simulation.calibrate import load_world
from tidegate.spark.autoscaler.agent import announced
from tidegate.testing import steady_snapshot
from tidegate.workloads import describe
from tidegate.workloads.built import read_built

TRACE = b"t_s,rate\n0,10\n60,30\n120,20\n180,25.5\n"
COUNTS = b"time,symbol,trades\n2026-01-01T09:00:00,A,3\n2026-01-01T09:01:00,B,5\n"
EVENTS = b'timestamp,key\n1000,"a"\n1001,"b, c"\n1001.5,"d"\n'
TOPOLOGY = (
    b"operators:\n- {name: parse, service_time_s: 0.2}\n- {name: match, service_rate_per_s: 4}\n"
    b"sources:\n- {name: input, rate_per_s: 13}\n"
    b"edges:\n- {origin: input, target: parse}\n- {origin: parse, target: match, ratio: 0.5}\n"
)
GRID = (
    b"traces: [exchange-day]\nslo: 2s\nseeds: 3\n"
    b"policies:\n- ds2\n- {name: static, parameters: {hosts: [2, 3]}}\n"
    b"- {name: lag, parameters: {threshold: {from: 1, to: 9, steps: 3}}}\n"
)
KEYS = (
    b"key,events,rate_per_s,share,peak_to_mean,cv,dispersion,hurst\n"
    b"a,20,0.1,0.7,2.0,0.5,1.0,0.6\nb,10,0.05,0.3,2.0,,,\n"
)
PROVENANCE = (
    b'{"rows": 30, "seconds": 180, "unit": "s", "rejected": {"no time": 0}, '
    b'"skew": {"keys": 2, "gini": 0.2, "lorenz": [0.3, 1.0], "top": [["a", 0.7]]}}'
)
SETTINGS = (
    b"policy: drs\nparameters: {t_max_s: 2s}\n"
    b"guards:\n  bounds: {min_hosts: 1, max_hosts: 4}\n  cool-down: {scale_in_s: 60}\n"
)
ANNOUNCED = b'{"url": "http://127.0.0.1:1", "token": "0123456789abcdef", "application": "app-1"}'
LEASE = b'{"epoch": 1, "lease_s": 30.0, "state": "held", "renewals": 4}'


def parquet() -> bytes:
    file = io.BytesIO()
    table = pa.table({"t_s": [0.0, 60.0, 120.0], "rate": [10.0, 30.0, 20.0]})
    pq.write_table(table, file, compression="none")
    return file.getvalue()


@cache
def journal_lines() -> bytes:
    policy = create("sarsa")
    turns = []
    for number in range(1, 5):
        snapshot = steady_snapshot(hosts=2, queue_length=3.0, time_s=10.0 * number)
        plan, memory = policy.decide(snapshot, policy.initial_memory())
        control = Control("pause", "in", asked_s=1.0)
        saved = policy.save_memory(memory)
        turns.append(Turn(number, "sarsa", snapshot, plan, None, saved, controls=(control,)))
    return b"".join(json.dumps(to_plain(turn)).encode() + b"\n" for turn in turns)


def moves() -> bytes:
    move = {"number": 1, "query": "q", "origin": "a", "host": "b", "step": "begin", "time_s": 1.0}
    lines = [move | {"step": step, "pause_s": 0.5} for step in ("begin", "started")]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def world() -> bytes:
    return yaml.safe_dump(to_plain(FIXED_WORK)).encode()


def reads(read: Callable[[Path], Any], path: Path, data: bytes) -> None:
    """The rule: a result, or an error of Tidegate whose message is short."""
    path.write_bytes(data)
    with within_limits():
        try:
            read(path)
        except TidegateError as error:
            assert len(str(error)) < 2000


def read_whole_journal(path: Path) -> None:
    turns = list(read_journal(path, []))
    list(last_turns(path))
    remembered(path, create("sarsa"))
    metrics = Metrics()
    for turn in turns:
        metrics.observe(turn)
    metrics.text()
    live_page("run", turns, summarise(turns)).html()
    shown = JournalList([path])
    shown.refresh()
    journal = shown.journal(0)
    journal.series(100)
    for index in range(len(turns)):
        journal.turn(index)


def continue_journal(path: Path) -> None:
    before = path.read_bytes()
    with Journal(path) as journal:
        journal.write(Turn(99, "static"))
    assert [turn.number for turn in read_journal(path, [])][-1] == 99
    whole = before[: before.rfind(b"\n") + 1]
    assert path.read_bytes().startswith(whole), "no line is lost"


def read_moves_and_continue(path: Path) -> None:
    folder = path.parent / "shown"
    folder.mkdir(exist_ok=True)
    shutil.copy(path, folder / "moves.jsonl")
    assert tidegate("fleet", "moves", "--folder", folder).returncode == 0
    assert tidegate("fleet", "moves", "--folder", folder, "--json").returncode == 0
    log = MoveLog(path)
    log.begin("new", "a", "b")
    log.close()
    assert "new" in MoveLog(path).moves


def read_grid(path: Path) -> None:
    for cell in islice(load_grid(path).cells(), 20):
        assert cell.stack is not None


def read_folder(path: Path) -> None:
    folder = FleetFolder(path.parent)
    folder.save()
    for file in folder.files:
        with suppress(TidegateError):
            load_queries(file)
    assert all(isinstance(name, str) for name in folder.removed)


def attach_to(path: Path) -> None:
    announced(path)
    for words in (("attach", path, "--slo", "never"), ("doctor", path, "--slo", "never")):
        assert tidegate(*words).returncode == 2


def watch_lease(path: Path) -> None:
    fence = Fence(path.parent / "checkpoint", lease_s=2.0)
    epoch = epoch_of(fence.claim()) or 0
    shutil.copy(path, fence.folder / f"epoch-{epoch}.lease")
    now_s = [0.0]
    watch = LeaseWatch(fence, fence.revoke(), lambda: now_s[0])
    watch.over()
    now_s[0] = 2 * MOST_LEASE_S
    assert watch.over(), "it is not waited for without end"


def read_provenance(path: Path) -> None:
    folder = path.parent / "built"
    folder.mkdir(exist_ok=True)
    (folder / "trace.csv").write_bytes(TRACE)
    (folder / "keys.csv").write_bytes(KEYS)
    shutil.copy(path, folder / "provenance.json")
    for more in (("--report", path.parent / "described.html"), ("--json",)):
        assert tidegate("traces", "describe", folder, *more).returncode in (0, 2)


def csv_file(name: str) -> Callable[[Path], Any]:
    return lambda path: describe(read_built(path.rename(path.with_name(name))).trace)


FORMATS: dict[str, tuple[Callable[[], bytes], Callable[[Path], Any], float]] = {
    "trace.csv": (lambda: TRACE, csv_file("t.csv"), 0.06),
    "counts.csv": (lambda: COUNTS, csv_file("t.csv"), 0.04),
    "events.csv": (lambda: EVENTS, csv_file("t.csv"), 0.04),
    "trace.csv.gz": (lambda: gzip.compress(TRACE, mtime=0), csv_file("t.csv.gz"), 0.04),
    "trace.parquet": (parquet, csv_file("t.parquet"), 0.04),
    "topology.yaml": (lambda: TOPOLOGY, load_topology, 0.06),
    "grid.yaml": (lambda: GRID, read_grid, 0.06),
    "world.yaml": (world, load_world, 0.04),
    "journal": (journal_lines, read_whole_journal, 0.08),
    "journal-continued": (journal_lines, continue_journal, 0.04),
    "moves.jsonl": (moves, read_moves_and_continue, 0.06),
    "announced.json": (lambda: ANNOUNCED, attach_to, 0.04),
    "epoch.lease": (lambda: LEASE, watch_lease, 0.04),
    "provenance.json": (lambda: PROVENANCE, read_provenance, 0.04),
    "settings.yaml": (lambda: SETTINGS, load_policy, 0.06),
    "fleet.json": (lambda: b'{"id": "x", "files": ["a.py"], "removed": []}', read_folder, 0.04),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_file_is_read_or_refused_in_a_sentence(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    make, read, share = FORMATS[name]
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "trace.csv").write_bytes(TRACE)
    valid = make()
    place = folder / (name if name == "fleet.json" else f"file-{name}")

    @cases(share)
    @given(data=damaged(valid))
    def check(data: bytes) -> None:
        reads(read, place, data)

    reads(read, place, valid)
    check()


@cases(0.06)
@given(line=damaged(b'{"do":"policy","value":"drs","parameters":{"t_max_s":"2s"},"asked_s":1.0}'))
def test_a_control_that_nobody_intended_is_applied_or_refused(
    line: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    journal = tmp_path_factory.mktemp("controls") / "run.jsonl"
    policy = create("drs")
    file = ControlFile(journal, policy)
    try:
        with file.path.open("ab") as other:
            other.write(line.replace(b"\n", b" ") + b"\n")
        taken = file.take()
        state, memory = ControlState(), policy.initial_memory()
        applied, state, policy_after, memory = apply_controls(taken, state, policy, memory, 5.0)
        assert len(applied) == len(taken) <= 1
        for control in applied:
            assert len(control.describe()) < 20_000
        policy_after.decide(steady_snapshot(queue_length=1.0), memory)
    finally:
        file.close()


texts = st.sampled_from([part.decode(errors="replace") for part in ODD] + ["t_max_s", "hosts"])
parameters = st.dictionaries(
    texts, texts | st.integers() | st.floats() | st.none() | st.lists(texts, max_size=2), max_size=3
)


@cases(0.08)
@given(name=st.sampled_from(["drs", "lag", "btu", "static", "sarsa"]), data=st.data())
def test_parameters_of_a_policy_are_used_or_refused(name: str, data: st.DataObject) -> None:
    known = [parameter.name for parameter in type(create(name)).parameters()]
    odd = st.sampled_from(
        ["", "nan", "inf", "1e999", "-1", "9" * 400, "true", 10**400, 0.0, [], {}]
    )
    chosen = data.draw(st.dictionaries(st.sampled_from(known), odd, max_size=3) | parameters)
    try:
        policy = create(name, **chosen)
    except TidegateError as error:
        assert len(str(error)) < 2000
        return
    policy.describe()
