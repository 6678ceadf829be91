"""Random words for the commands: each ends with a result, or with one sentence and code 2.

Every command line that is tried is built from the options that a command really has. Commands that
serve, wait or start Spark get a value that is wrong, so that they end before they begin.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.helpers import COMMAND, tidegate
from tests.fuzz import MOST_KB, MOST_S, cases, within_limits
from tests.fuzz.test_files import COUNTS, GRID, TOPOLOGY, TRACE, journal_lines, moves
from tidegate.cli import app

QUICK = (
    ("allocate",),
    ("policies",),
    ("report",),
    ("replay",),
    ("calibrate",),
    ("traces", "describe"),
    ("fleet", "status"),
    ("fleet", "moves"),
    ("fleet", "move"),
    ("fleet", "drain"),
    ("fleet", "add"),
    ("fleet", "remove"),
    ("fleet", "unpark"),
    ("fleet", "stop"),
)
"""Commands that end by themselves, and soon."""
ENDED: dict[tuple[str, ...], tuple[str, ...]] = {
    ("backtest",): ("--slo", "never"),
    ("dashboard",): ("--slo", "never"),
    ("metrics",): ("--slo", "never"),
    ("demo",): ("--max-executors", "-1"),
    ("run",): ("--max-executors", "-1"),
    ("profile",): ("--workers", "-1"),
    ("reproduce",): ("--seeds", "-1"),
    ("submit",): ("--slo", "never"),
    ("attach",): ("--slo", "never"),
    ("doctor",): ("--slo", "never"),
    ("fleet", "run"): ("--set", "nothing"),
    ("traces", "build"): ("--step", "never"),
    ("sweep",): ("--chunk", "-1"),
    ("probe", "measure"): ("127.0.0.1:1", "--rates", "-1"),
    ("probe", "serve"): ("--port", "-1"),
}
"""Commands that serve, wait or work, with a wrong value with which each of them ends at once."""
WORDS = (
    "", " ", "-", "--", "0", "1", "-1", "3", "1e308", "1e999", "nan", "inf", "9" * 400, "5s", "-5s",
    "never", "a=1", "=", "a:13:5", "b:1:2:3", "a:nan:1", "drs", "static", "ds2", "all", "nobody",
    "x" * 3000, "\x1b[31m", "[/x]", "[red]", "a\nb", "ü\u202e", "trace.csv", "counts.csv",
    "run.jsonl", "topology.yaml", "grid.yaml", "folder", "missing", "moves.jsonl", "binary", ".",
    "/dev/null", "/dev/full", "folder/new.html", "binary/new.html", "out.html", "out.svg",
    "127.0.0.1:0", "http://h:1", "spark://h:1", "UTC", "\udcff", "9" * 5000, "h:" + "9" * 5000,
    "²", "h:²", "kafka://h:1?partitions=²", "sc://h:1/x", "http://u:p@h:1",
)  # fmt: skip


GIVEN = {
    "trace.csv": TRACE,
    "counts.csv": COUNTS,
    "run.jsonl": journal_lines(),
    "topology.yaml": TOPOLOGY,
    "grid.yaml": GRID,
    "moves.jsonl": moves(),
    "binary": bytes(range(256)),
}
"""Files to which the words refer."""
ALARM_S = 60
"""A command that has not ended after so many seconds, on a busy machine too, has begun to work."""


@cache
def commands() -> dict[tuple[str, ...], Any]:
    """Every command of the command line, by its words."""
    found: dict[tuple[str, ...], Any] = {}

    def walk(words: tuple[str, ...], command: Any) -> None:
        for name, inner in (getattr(command, "commands", None) or {}).items():
            walk((*words, name), inner)
        if not getattr(command, "commands", None) or words == ("sweep",):
            found[words] = command

    walk((), typer.main.get_command(app))
    return found


def test_every_command_is_tried() -> None:
    assert set(commands()) - {("sweep", "report"), ("sweep", "run")} == {*QUICK, *ENDED}


@st.composite
def given_words(draw: st.DrawFn, command: tuple[str, ...]) -> list[str]:
    """Options that the command has, with any values, and arguments."""
    words: list[str] = []
    options = [p for p in commands()[command].params if p.param_type_name == "option"]
    for option in draw(st.lists(st.sampled_from(options), max_size=3)) if options else ():
        words.append(option.opts[0])
        if not option.is_flag:
            words.append(draw(st.sampled_from(WORDS)))
    for _ in range(draw(st.integers(0, 3))):
        words.insert(draw(st.integers(0, len(words))), draw(st.sampled_from(WORDS)))
    return [word for word in words if word != "--help"]


@pytest.fixture(scope="module", autouse=True)
def _built_once() -> Iterator[None]:
    """Typer builds the commands anew for each call, which would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files of each kind, to which the words refer."""
    folder = tmp_path_factory.mktemp("words")
    for name, content in GIVEN.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    return folder


def keeps_the_rule(words: list[str]) -> None:
    with within_limits():
        done = tidegate(*words)
    assert done.returncode in (0, 1, 2)
    assert not {"\x1b", "\x07"} & set(done.stdout + done.stderr)
    (done.stdout + done.stderr).encode()  # a terminal cannot show what is no text
    if done.returncode == 2:
        assert done.stderr.startswith("tidegate: "), done.stderr
        assert done.stderr.count("\n") == 1 and len(done.stderr) <= 311
    else:
        assert "Traceback" not in done.stderr


def contents(folder: Path) -> dict[Path, bytes]:
    """The files that were there before any command."""
    return {file: file.read_bytes() for file in folder.iterdir() if file.name in GIVEN}


@pytest.mark.parametrize("command", QUICK, ids=" ".join)
def test_a_command_ends_with_a_result_or_a_sentence(command: tuple[str, ...], place: Path) -> None:
    @cases(0.5 / len(QUICK))
    @given(words=given_words(command))
    def check(words: list[str]) -> None:
        before = contents(place)
        keeps_the_rule([*command, *words])
        assert contents(place).items() >= before.items(), "nothing is lost"

    before = Path.cwd()
    os.chdir(place)
    try:
        check()
    finally:
        os.chdir(before)


PEAK = """
import atexit, re, sys
def peak():
    sys.stderr.write(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1))
atexit.register(peak)
"""
"""Writes the largest memory of a process at its end. That of `wait4` includes what the process that
started it had, which is the whole suite."""


@pytest.mark.parametrize("command", [("allocate",), ("report",), ("fleet", "status"), ("submit",)])
def test_a_process_with_wrong_words_takes_two_seconds_and_500_mb_at_most(
    command: tuple[str, ...],
) -> None:
    """With the start of Python, which the other tests share."""
    words = [sys.executable, "-c", PEAK + COMMAND, *command, *ENDED.get(command, ("--nothing",))]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    sentence, _, peak_kb = said.strip().rpartition(b"\n")
    assert process.returncode == 2 and sentence and b"\n" not in sentence
    assert used.ru_utime + used.ru_stime < MOST_S
    assert int(peak_kb) < MOST_KB


@pytest.mark.parametrize("command", ENDED, ids=" ".join)
def test_a_long_command_with_a_wrong_value_ends_before_it_begins(
    command: tuple[str, ...], place: Path
) -> None:
    keeps_the_rule([*command, *ENDED[command]])


@pytest.mark.parametrize("command", ENDED, ids=" ".join)
def test_a_long_command_with_any_words_ends_before_it_begins(
    command: tuple[str, ...], place: Path
) -> None:
    def late(*_: object) -> None:
        raise AssertionError("it serves, waits or works")

    @cases(0.4 / len(ENDED))
    @given(words=given_words(command))
    def check(words: list[str]) -> None:
        if "--" in words:  # what follows would be no option
            return
        before = contents(place)
        signal.alarm(ALARM_S)
        try:
            keeps_the_rule([*command, *words, *ENDED[command]])
        finally:
            signal.alarm(0)
        assert contents(place).items() >= before.items(), "nothing is lost"

    before, usual = Path.cwd(), signal.signal(signal.SIGALRM, late)
    os.chdir(place)
    try:
        check()
    finally:
        os.chdir(before)
        signal.signal(signal.SIGALRM, usual)
