"""`tidegate run` and `tidegate profile` for real, as small as they can be, and what they refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from tests.cli.helpers import COMMAND, still_running
from tests.cli.secret_words import SECRET, nobody_tells
from tidegate.cli import main
from tidegate.config import load_topology

pytestmark = pytest.mark.java

needs_java = pytest.mark.skipif(which("java") is None, reason="Spark needs Java")


def tidegate(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    with nobody_tells(cwd):
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
            cwd=cwd,
        )
    assert SECRET not in done.stdout + done.stderr
    return done


@needs_java
def test_a_run_is_exact_sets_bad_rows_aside_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"  # every process of the run inherits this
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    words = ["--minutes", "0.2", "--rate", "0.02", "--executors", "2", "--slo", "30s"]
    done = tidegate("run", "max-price", *words, "--bad", "0.02", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "exactly those of the reference" in done.stdout
    assert "malformed JSON" in done.stdout and "items/s" in done.stdout
    out = tmp_path / "out" / "max-price"
    assert "<svg" in (out / "report.html").read_text()
    assert (out / "journal.jsonl").stat().st_size > 0
    assert (out / "results" / "merge.parquet").stat().st_size > 0
    assert still_running(str(scratch)) == []
    assert list(scratch.iterdir()) == []


@needs_java
def test_a_profile_is_a_topology_that_the_other_commands_read(tmp_path: Path) -> None:
    words = ["--rate", "0.02", "--seconds", "15", "--json"]
    done = tidegate("profile", "max-price", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    measured = {each["name"]: each for each in json.loads(done.stdout)["operators"]}
    assert measured["maxima"]["arrives_per_s"] == pytest.approx(600, rel=0.2)
    assert 0 < measured["maxima"]["ratio"] < 1 and measured["maxima"]["service_time_s"] > 0
    file = tmp_path / "out" / "max-price-profile" / "topology.yaml"
    topology = load_topology(file)
    assert [operator.name for operator in topology.operators] == ["maxima", "merge"]
    assert topology.by_name["merge"].max_instances == 2
    assert (
        tidegate("allocate", "--topology", str(file), "--t-max", "60s", cwd=tmp_path).stderr == ""
    )
    trace = tmp_path / "trace.csv"
    trace.write_text("t_s,rate\n" + "".join(f"{60 * n},{1 + n}\n" for n in range(5)))
    words = ["--topology", str(file), "--slo", "60s", "--policies", "static"]
    assert "static" in tidegate("backtest", str(trace), *words, cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "tick"], "application is 'tick'; it must be one of ticks, max-price"),
        (["run", "ticks", "--rate", "0"], "--rate is 0"),
        (["run", "ticks", "--minutes", "-1"], "--minutes is -1"),
        (["run", "ticks", "--policy", "best"], "'best'"),
        (["run", "ticks", "--bad", "2"], "--bad is 2"),
        (["run", "ticks", "--slo", "soon"], "'soon'"),
        (["run", "ticks", "--policy", "drs", "--set", "t_max_s=soon"], "t_max_s is 'soon'"),
        (["run", "ticks", "--topics", "kafka://127.0.0.1:1"], "no broker answers at 127.0.0.1:1"),
        (["run", "ticks", "--topics", "kafka://127.0.0.1"], "name host and port"),
        (["run", "max-price", "--replay", "day.csv"], "max-price replays no recordings"),
        (["run", "ticks", "--replay", "day.csv"], "a CSV file that can be read"),
        (["run", "ticks", "--topology", "none.yaml"], "none.yaml"),
        (["profile", "ticks", "--seconds", "0"], "--seconds is 0"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tidegate", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2 and sentence in said, said
    assert said.count("\n") == 1 and not (tmp_path / "out").exists()
