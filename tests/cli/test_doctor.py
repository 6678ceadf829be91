"""``tidegate doctor`` as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.helpers import tidegate
from tests.cli.test_submit import submitted
from tests.spark.doctor.servers import answering
from tests.spark.doctor.test_running import RECORDED, ui

FIXTURES = Path(__file__).parents[1] / "fixtures" / "journals-0.1.0"
GOOD = (
    *("--slo", "5s", "--max-executors", "8", "--master", "spark://master:7077"),
    *("--executor-cores", "2", "--total-executor-cores", "16"),
    *("--agent-jar", "local:///opt/agent.jar"),
)


def test_a_command_line_that_can_be_scaled() -> None:
    done = tidegate("doctor", *GOOD, "job.jar", "--its", "own")
    assert done.returncode == 0 and done.stderr == ""
    assert "blocks: 0, limits: 0, notes: 2;" in done.stdout
    assert "Remedy: do not wait: --conf spark.locality.wait=0s." in done.stdout
    assert "- whether the triggers have micro-batches" in done.stdout


def test_what_blocks_is_exit_code_1_and_what_submit_refuses() -> None:
    words = (*GOOD, "--conf", "spark.dynamicAllocation.enabled=true")
    done = tidegate("doctor", *words, "job.jar")
    assert done.returncode == 1
    assert "blocks  spark.dynamicAllocation.enabled = true" in done.stdout
    assert "blocks: 1, limits: 0, notes: 2;" in done.stdout
    assert tidegate("doctor", "--dry-run", *words, "job.jar").returncode == 0


@pytest.mark.parametrize(
    ("setting", "blocks"),
    [
        ("spark.dynamicAllocation.enabled=true", True),
        ("spark.kubernetes.allocation.pods.allocator=deployment", True),
        ("spark.task.cpus=3", True),
        ("spark.cores.max=1", True),
        ("spark.cores.max=2", False),
        ("spark.decommission.enabled=false", False),
        ("spark.speculation=true", False),
    ],
)
def test_doctor_and_submit_never_disagree(setting: str, blocks: bool, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("print('it runs')\n")
    words = (
        *("--slo", "5s", "--max-executors", "8", "--master", "spark://master:7077"),
        *("--executor-cores", "2", "--conf", setting),
    )
    for dry_run in ((), ("--dry-run",)):
        refused = tidegate("doctor", *words, *dry_run, app).returncode == 1
        done, command, _ = submitted(*words, *dry_run, app)
        if dry_run and "task" not in setting and "cores" not in setting:
            assert not refused and command, "a dry run may watch it"
        elif not dry_run:
            assert refused == blocks == (command == []), done.stderr
            assert blocks == (setting.partition("=")[0] in done.stderr)


def test_the_same_as_json() -> None:
    done = tidegate("doctor", "--json", *GOOD, "--master", "local[2]")
    assert done.returncode == 1
    read = json.loads(done.stdout)
    assert read["blocked"] and read["findings"][0]["key"] == "spark.master"
    assert read["findings"][0]["severity"] == "blocks"
    assert {n["check"] for n in read["not_checked"]} >= {"triggers", "settings-in-code"}


def test_every_option_of_submit_is_accepted() -> None:
    done = tidegate(
        *("doctor", *GOOD, "--policy", "lag", "--set", "threshold=50", "--stabilise", "30s"),
        *("--without-guard", "effect", "--when-blind", "hold", "--journal", "j.jsonl"),
        *("--metrics-port", "0", "--controller-python", "python3", "--log-format", "json"),
        *("--supervise", "app.jar"),
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_journal_with_options_before_or_after() -> None:
    path = FIXTURES / "live.jsonl"
    done = tidegate("doctor", path)
    assert done.returncode == 0 and "18 of 29 turns" in done.stdout
    assert json.loads(tidegate("doctor", path, "--json").stdout)["blocked"] is False
    assert json.loads(tidegate("doctor", "--json", path).stdout)["blocked"] is False


def test_a_spark_ui() -> None:
    with answering(ui(RECORDED)) as url:
        done = tidegate("doctor", url, "--slo", "1s", "--max-executors", "4")
        assert done.returncode == 1 and "wrong (app-" in done.stdout
        assert "tasks of query words: 2" in done.stdout
        assert "the Spark UI does not show it" in done.stdout


def test_an_agent_needs_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_AGENT_TOKEN", raising=False)
    with answering({}) as url:
        done = tidegate("doctor", url)
    assert done.returncode == 2 and "TIDEGATE_AGENT_TOKEN is ''" in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "job is None; it must be given: name a command line"),
        (("gone.py",), "application is 'gone.py'; it must be an existing Python file"),
        (("gone.jsonl",), "gone.jsonl"),
        (("http://127.0.0.1:9",), "cannot be reached"),
        (("http://127.0.0.1:9", "--master", "yarn"), "argument is '--master'; it must be left out"),
        (("http://127.0.0.1:9", "x"), "it must be left out"),
        (("--slo", "soon", "job.jar"), "--slo is 'soon'"),
        (("--slo-by", "age", "job.jar"), "--slo-by is 'age'; it must be delay or event-age"),
        (("--max-executors", "many", "job.jar"), "valid integer"),
        (("--min-executors", "0", "job.jar"), "--min-executors is 0"),
        (("--min-executors", "3", "--max-executors", "2", "job.jar"), "--min-executors is 3"),
        (("--interval", "0s", "job.jar"), "--interval is '0s'"),
        (("--policy", "dsr", "job.jar"), "did you mean"),
        (("--slo", "5s", "--when-blind", "panic", "job.jar"), "it must be hold, maximum, or a num"),
        (("--metrics-port", "x", "job.jar"), "valid integer"),
        (("--wait", "x", "http://127.0.0.1:9"), "--wait is 'x'"),
        (("--polcy", "drs", "job.jar"), "option is '--polcy'"),
        (("--conf", "spark.x", "job.jar"), "key=value"),
        (("--properties-file", "none", "job.jar"), "--properties-file is 'none'"),
    ],
)
def test_a_mistake_is_one_sentence(words: tuple[str, ...], sentence: str) -> None:
    done = tidegate("doctor", *words)
    assert done.returncode == 2 and done.stdout == ""
    assert sentence in done.stderr
    assert done.stderr.startswith("tidegate: ") and done.stderr.count("\n") == 1


def test_help_names_the_three_inputs() -> None:
    done = tidegate("doctor", "--help")
    assert done.returncode == 0
    for word in ("app.py", "http://driver:4040", "tidegate.jsonl", "--kubernetes-token-file"):
        assert word in done.stdout
