"""Nothing in and nothing out that surprises: names, outputs and files that nobody intended."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from tests.cli.helpers import COMMAND, Done, tidegate
from tests.fuzz import within_limits
from tidegate.cli.output import console, plain, print_json, progress_bar, shown, table
from tidegate.loop.journal import Journal, Turn
from tidegate.testing import steady_snapshot

ESCAPES = "\x1b[31mred\x07\u202e"
NAMES = ("[/x]", "[red]", "[bold", ESCAPES, "a\nb", "x" * 4000)


def one_sentence(done: Done) -> str:
    """Checks the rule for wrong input and returns the sentence."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("tidegate: ") and done.stderr.count("\n") == 1
    assert len(done.stderr) <= 311
    assert "\x1b" not in done.stderr
    return done.stderr


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_shown_as_it_is_without_control_characters(name: str) -> None:
    done = tidegate("allocate", f"{name}:13:5", "b:13:20", "--processors", "9")
    assert done.returncode == 0, done.stderr
    assert not {"\x1b", "\x07", "\u202e"} & set(done.stdout)
    if name.startswith("["):
        assert name in done.stdout
    rows = [line for line in done.stdout.splitlines() if "13" in line and "%" in line]
    assert len(rows) == 2, "a name makes no lines of its own"


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_an_error_makes_one_short_line(name: str) -> None:
    one_sentence(tidegate("allocate", f"{name}:13", "--processors", "9"))
    one_sentence(tidegate("allocate", f"{name}:-1:5", "--processors", "9"))
    one_sentence(tidegate("policies", name))


@pytest.mark.parametrize("thread", [True, False])
def test_a_progress_bar_is_drawn_with_and_without_a_thread(
    thread: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    before = threading.active_count()
    with progress_bar(False, thread=thread) as bar:
        task = bar.add_task("tide", total=1.0)
        bar.update(task, completed=0.5, refresh=thread)
        for _ in range(1_000):
            bar.update(task, completed=0.75)
        assert threading.active_count() - before == thread
    shown_text = capsys.readouterr().out
    assert "tide" in shown_text and " 50 %" in shown_text
    assert shown_text.count("\n") < 100, "it is not drawn at every update"


def test_markup_that_is_none_is_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table("name")
    rows.add_row("[bold]literal[/bold]")
    console().print(rows)
    console().print("[/nothing] was opened")
    console().print(f"[dim]{shown('[/x]')}[/dim] {plain(ESCAPES)}", soft_wrap=True)
    out = capsys.readouterr().out
    assert "[bold]literal[/bold]" in out
    assert "[/nothing] was opened" in out
    assert "[/x] �[31mred��" in out


def test_json_has_no_words_of_its_own_for_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": float("nan"), "b": [float("inf"), 1.5, {"c": float("-inf")}]})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.5, {"c": None}]}


# --- outputs --------------------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    with Journal(path) as written:
        for number in range(1, 4):
            written.write(Turn(number, "static", steady_snapshot(time_s=10.0 * number)))
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text("t_s,rate\n0,10\n60,30\n120,20\n")
    return path


@pytest.mark.parametrize("where", ["folder", "plain/report.html", "/dev/full"])
def test_an_output_that_cannot_be_written_is_one_sentence(
    where: str, tmp_path: Path, journal: Path, trace: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain").touch()
    for command, option in (
        (("report", journal, "--out"), "--out"),
        (("traces", "describe", trace, "--report"), "--report"),
        (("calibrate", journal, "--out"), "--out"),
    ):
        said = one_sentence(tidegate(*command, tmp_path / where))
        assert option in said or "calibrate" in command


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("reproduce", "all", "--claims"), "--claims"),
        (("reproduce", "drs", "--report"), "--report"),
        (("backtest", "TRACE", "--report"), "--report"),
    ],
)
def test_an_output_is_checked_before_the_work(
    words: tuple[str, ...],
    option: str,
    tmp_path: Path,
    trace: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("it began to work")

    monkeypatch.setattr(import_module("tidegate.cli.reproduce"), "load_paper", work)
    monkeypatch.setattr(import_module("tidegate.cli.backtest"), "bound_of", work)
    given = [trace if word == "TRACE" else word for word in words]
    for target in (tmp_path, "/dev/full"):
        assert f"{option} is" in one_sentence(tidegate(*given, target))


def test_no_command_overwrites_what_it_reads(tmp_path: Path, journal: Path, trace: Path) -> None:
    link, part = tmp_path / "link", tmp_path / "run.jsonl.000001"
    link.symlink_to(journal)
    part.write_bytes(journal.read_bytes())
    day = tmp_path / "day"
    day.mkdir()
    (day / "trace.csv").write_bytes(trace.read_bytes())
    (day / "provenance.json").write_text("{}")
    token, topology = tmp_path / "token", tmp_path / "topology.yaml"
    token.touch(0o600)
    token.write_text("x" * 40)
    topology.write_text(
        "sources: [{name: input}]\n"
        "operators: [{name: a, service_time_s: 0.1, demand: {cpu_cores: 1}}]\n"
        "edges: [{origin: input, target: a}]\n"
    )
    cells = tmp_path / "sweep" / "cells"
    cells.mkdir(parents=True)
    (cells / "a.parquet").write_text("cells")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    for words in (
        ("report", journal, "--out", link),
        ("report", journal, "--out", part),
        ("calibrate", journal, "--out", journal),
        ("backtest", trace, "--report", trace),
        ("backtest", trace, "--topology", topology, "--report", topology),
        ("traces", "describe", trace, "--report", trace),
        ("traces", "describe", day, "--report", day / "provenance.json"),
        ("sweep", "report", tmp_path / "sweep", "--page", cells / "a.parquet"),
        ("reproduce", "fugu", "--days", trace, "--report", trace),
        ("probe", "127.0.0.1", "--token-file", token, "--out", token),
        ("profile", "ticks", "--replay", trace, "--out", trace),
    ):
        assert "a file other than the input" in one_sentence(tidegate(*words))
    assert before == {file: file.read_bytes() for file in before}


def test_a_full_disk_behind_the_output_is_one_sentence() -> None:
    command = [sys.executable, "-c", COMMAND, "policies", "--json"]
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "tidegate: its output cannot be read or written: " \
        "No space left on device\n"  # fmt: skip


# --- files ----------------------------------------------------------------------------------------


def flipped(path: Path) -> None:
    rows = b"".join(b"%d,%d\n" % (n, n % 7) for n in range(500))
    packed = bytearray(gzip.compress(b"t_s,rate\n" + rows))
    packed[len(packed) // 2] ^= 0x10
    path.write_bytes(packed)


def written(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("bit.csv.gz", flipped),
        ("cell.csv", written('t_s,rate\n0,"' + "1" * 140_000 + '"\n60,3\n')),
        ("digits.csv", written("t_s,rate\n0," + "1" * 140_000 + "\n60,3\n")),
        ("huge.csv", written("t_s,rate\n0,1e300\n60,1e308\n120,1e308\n")),
        ("close.csv", written("t_s,count\n0,1\n0.000000001,1\n100000,1\n")),
    ],
)
def test_a_trace_that_cannot_be_used_is_one_sentence(
    name: str, write: Callable[[Path], object], tmp_path: Path
) -> None:
    write(tmp_path / name)
    one_sentence(tidegate("traces", "describe", tmp_path / name, "--json"))


@pytest.mark.parametrize("provenance", ['{"a', "[]", "[" * 100_000, "\xff", "{}"])
def test_a_built_trace_that_is_torn_is_one_sentence(provenance: str, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("t_s,rate\n0,10\n60,30\n")
    keys = "key,events,rate_per_s,share,peak_to_mean,cv,dispersion,hurst\n[/x],3,1,1,1,1,1,\n"
    (tmp_path / "keys.csv").write_text(keys)
    (tmp_path / "provenance.json").write_text(provenance, encoding="latin-1")
    one_sentence(tidegate("traces", "describe", tmp_path, "--json"))
    (tmp_path / "provenance.json").write_text(
        '{"skew": {"keys": 1, "gini": 0.5, "lorenz": [0, 1]}}'
    )
    done = tidegate("traces", "describe", tmp_path, "--report", tmp_path / "out.html")
    assert done.returncode == 0 and "[/x]" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "operators: 5",
        "operators: [[[[",
        "[" * 5000,
        "{a: " * 5000,
        "a: 2026-99-99",
        "operators:\n" + "- " * 2000,
        "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
        "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
        "e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\noperators: *e\n",
        "operators: {1: 2}",
        "operators: [{name: a, service_time_s: 1e-320}]",
        "operators: [{name: a, service_time_s: " + "9" * 5000 + "}]",
    ],
)
def test_a_settings_file_that_cannot_be_used_is_one_sentence(text: str, tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    one_sentence(tidegate("allocate", "--topology", file, "--processors", "3"))
    one_sentence(tidegate("sweep", file, "--out", tmp_path / "out", "--dry-run"))


@pytest.mark.parametrize(
    "words",
    [
        ("a:1e308:1e-300", "--processors", "9"),
        ("a:1e9:1", "--t-max", "2s"),
        ("a:13:5", "--processors", "100000000"),
        ("a:13:5", "--processors", "9" * 400),
    ],
)
def test_numbers_beyond_any_cluster_end_soon_and_in_one_sentence(words: tuple[str, ...]) -> None:
    one_sentence(tidegate("allocate", *words))


def test_a_trace_with_rates_beyond_any_source_takes_no_more_than_another(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("t_s,rate\n0,1e6\n60,1e6\n")
    words = ("backtest", trace, "--slo", "2s", "--policies", "static", "--no-recommend", "--json")
    assert tidegate(*words).returncode == 0  # from now on, everything is compiled
    trace.write_text("t_s,rate\n0,1e12\n60,1e12\n")
    with within_limits():
        assert tidegate(*words).returncode == 0
        said = one_sentence(tidegate(*words, "--mode", "items"))
    assert "it must be at most 1e+10 one by one" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rate-per-instance", "1e-6"), "hosts that the load needs is '3.57e+06'; it must be"),
        (("--rate-per-instance", "1e-300"), "it must be at most 5000: raise the rate of an inst"),
        (("--penalty", "1e308"), "--penalty is 1e+308; it must be a number between 0 and 1e+06"),
        (("--price", "1e300"), "--price is 1e+300; it must be a number between 0 and 1e+06"),
        (("--instances-per-host", "1000000000"), "--instances-per-host is 1000000000; it must be"),
        (("--speed", "1e-12"), "turns of the run is '1.2e+13'; it must be at most 1e+07: take a"),
    ],
)
def test_a_backtest_beyond_any_machine_is_one_sentence(
    words: tuple[str, ...], said: str, trace: Path
) -> None:
    with within_limits():
        assert said in one_sentence(tidegate("backtest", trace, *words))


def test_a_trace_of_ages_is_one_sentence(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("t_s,rate\n0,10\n1e18,30\n2e18,20\n")
    with within_limits():
        said = one_sentence(tidegate("backtest", trace))
    assert "turns of the run is '2e+17'; it must be at most 1e+07: take a shorter trace" in said


def test_a_pipe_that_nobody_reads_any_more_ends_the_command_quietly() -> None:
    command = f"import io, sys; sys.stdout = io.TextIOWrapper(open(1, 'wb', 0)); {COMMAND}"
    process = subprocess.Popen(
        [sys.executable, "-c", command, "policies", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (1, b"")


MANY = "9" * 5000


@pytest.mark.parametrize(
    "words",
    [
        ["submit", "--slo", "5s", "--metrics-address", f"127.0.0.1:{MANY}", "job.py"],
        ["probe", "measure", f"127.0.0.1:{MANY}"],
        ["run", "ticks", "--topics", f"kafka://h:{MANY}"],
        ["run", "ticks", "--topics", "kafka://h:²"],
        ["run", "ticks", "--topics", "kafka://h:1?partitions=²"],
        ["run", "ticks", "--topics", f"kafka://h:1?partitions={MANY}"],
        ["attach", "brackets", "--slo", "5s"],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_what_python_cannot_convert_is_one_sentence(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of digits, digits that are no numbers, and JSON that is nested deeply."""
    monkeypatch.chdir(tmp_path)
    Path("job.py").touch()
    Path("brackets").write_text("[" * 9000)
    one_sentence(tidegate(*words))
    assert tidegate("doctor", "brackets").returncode == 0  # for an application of that name


@pytest.mark.parametrize("name", ["announced.json", "announced"])
def test_a_damaged_announcement_is_no_application(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As an application it would have the options after it as its own arguments, and pass.
    monkeypatch.chdir(tmp_path)
    Path(name).write_text('{"url": "http://127.0.0.1:1", "token": "0123", "`pplication": "a"}')
    done = tidegate("doctor", name, "--slo", "never")
    assert done.returncode == 2 and "--slo" in done.stderr


def test_a_folder_whose_name_is_no_text_is_shown_as_one(tmp_path: Path) -> None:
    done = tidegate("fleet", "moves", "--folder", f"{tmp_path}/\udcff")
    assert done.returncode == 0 and done.stdout.endswith("\ufffd\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_output_does_not_need_utf_8(encoding: str, journals: dict[str, Path]) -> None:
    for words in (["allocate", "a:13:5", "--processors", "9"], ["report", str(journals["drs"])]):
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *words],
            env=os.environ | {"PYTHONIOENCODING": encoding},
            cwd=journals["drs"].parent,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0 and done.stdout and not done.stderr, done.stderr


def test_a_trace_of_damaged_gzip_or_beyond_any_rate_is_one_sentence(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"t_s,rate\n0,10\n60,20\n" * 20, mtime=0))
    packed[10] = 0xFF  # no kind of block
    (tmp_path / "trace.csv.gz").write_bytes(packed)
    (tmp_path / "trace.csv").write_text("t_s,rate\n0,1e13\n60,1e13\n")
    for name in ("trace.csv.gz", "trace.csv"):
        words = ("traces", "describe", tmp_path / name, "--report", tmp_path / "out.html")
        one_sentence(tidegate(*words))


def test_a_device_that_never_ends_is_not_read_to_its_end(tmp_path: Path) -> None:
    """Nor is a pipe waited for in which a file of settings or an address is expected."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with within_limits():
        one_sentence(tidegate("allocate", "--topology", "/dev/zero", "--processors", "3"))
        one_sentence(tidegate("sweep", "/dev/zero", "--out", tmp_path / "out", "--dry-run"))
        one_sentence(tidegate("submit", "--slo", "5s", "--config", "/dev/zero", __file__))
        for file in ("/dev/zero", pipe):
            one_sentence(tidegate("attach", file, "--slo", "5s", "--wait", "1ms"))
            assert tidegate("doctor", file).returncode == 0  # for an application of that name
