"""``tidegate submit`` up to the moment where Spark would start, and the wrapper without Spark."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.certificates import self_signed
from tests.cli.helpers import Done, tidegate
from tidegate.codec import from_json, to_json
from tidegate.errors import BackendError, SettingError
from tidegate.loop.backend import Outcome
from tidegate.loop.journal import Turn
from tidegate.model import Binding, Plan
from tidegate.policies import create
from tidegate.spark.autoscaler.attachment import Attachment
from tidegate.spark.autoscaler.autoscaler import DryRunAccount
from tidegate.spark.autoscaler.submit import environment, given_settings, split_arguments
from tidegate.spark.autoscaler.submitted import run
from tidegate.testing import steady_snapshot

TOKEN = "tide-and-gate-and-tide"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An application that tells how it was run."""
    monkeypatch.chdir(tmp_path)
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "app.py"
    path.write_text(
        "import sys\n"
        "from pyspark.sql import SparkSession\n"
        "assert __name__ == '__main__'\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "again = SparkSession.builder.getOrCreate()\n"
        "print('app', *sys.argv[1:])\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    return path


def submitted(*words: str | Path) -> tuple[Done, list[str], dict[str, str]]:
    """What the command would become."""
    with mock.patch.object(os, "execve") as become:
        done = tidegate("submit", *words)
    if not become.called:
        return done, [], {}
    program, command, env = become.call_args.args
    assert program == command[0]
    return done, command, env


# --- the command ------------------------------------------------------------------------------


def test_metrics_beyond_loopback_need_a_token_that_is_not_on_the_command_line(
    app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEGATE_METRICS_TOKEN", raising=False)
    given = ("--slo", "5s", "--metrics-address", "0.0.0.0:9464")
    done, command, _ = submitted(*given, app, "0")
    assert (done.returncode, command) == (2, [])
    assert "give a --metrics-token-file" in done.stderr
    token, pair = tmp_path / "token", self_signed(tmp_path)
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    files = ("--metrics-token-file", token, "--metrics-certificate", pair.certificate)
    done, command, env = submitted(*given, *files, "--metrics-key", pair.key, app, "0")
    assert done.returncode == 0, done.stderr
    assert not any(TOKEN in word for word in (*command, *env.values()))
    attachment = from_json(Attachment, command[command.index(str(app)) - 1])
    at = attachment.metrics.listening()
    assert at is not None
    assert (at.host, at.port, at.token, at.scheme) == ("0.0.0.0", 9464, TOKEN, "https")
    monkeypatch.setenv("TIDEGATE_METRICS_TOKEN", TOKEN)
    done, command, env = submitted(*given, app, "0")
    assert done.returncode == 0, done.stderr
    assert not any(TOKEN in word for word in command)
    assert env["TIDEGATE_METRICS_TOKEN"] == TOKEN, "the driver inherits it"


def test_wrong_settings_of_the_metrics_end_the_command_before_spark_starts(
    app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEGATE_METRICS_TOKEN", raising=False)
    text = tmp_path / "text"
    text.write_text("short")
    text.chmod(0o600)
    for words, said in (
        (("--metrics-address", "9464"), "HOST:PORT"),
        (("--metrics-port", "65536"), "65535"),
        (("--metrics-port", "1", "--metrics-address", "127.0.0.1:1"), "--metrics-port is 1"),
        (("--metrics-port", "1", "--metrics-token-file", text), "--metrics-token is '…'"),
        (("--metrics-port", "1", "--metrics-certificate", text), "--metrics-certificate is"),
        (("--metrics-port", "1", "--metrics-key", text), "--metrics-key is"),
        (("--metrics-certificate", text), "give a --metrics-address too"),
    ):
        done, command, _ = submitted("--slo", "5s", *words, app, "0")
        assert (done.returncode, command) == (2, []), words
        assert said in done.stderr


def test_the_format_of_logs_reaches_the_driver(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_LOG_FORMAT", raising=False)
    for words, chosen in (((), "text"), (("--log-format", "json"), "json")):
        _, _, env = submitted("--slo", "5s", *words, app, "0")
        assert env["TIDEGATE_LOG_FORMAT"] == chosen
    done, command, _ = submitted("--slo", "5s", "--log-format", "xml", app, "0")
    assert (done.returncode, command) == (2, [])
    assert "--log-format is 'xml'; it must be text or json" in done.stderr
    monkeypatch.setenv("TIDEGATE_LOG_FORMAT", "json")
    _, _, env = submitted("--slo", "5s", app, "0")
    assert env["TIDEGATE_LOG_FORMAT"] == "json"
    _, _, env = submitted("--slo", "5s", "--log-format", "text", app, "0")
    assert env["TIDEGATE_LOG_FORMAT"] == "text", "the option comes first"


def test_what_ends_the_application_is_json_too(
    app: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_LOG_FORMAT", "json")
    error = SettingError("spark.master", "local", "a cluster", "use --dry-run to watch")
    assert wrapped(app, Attached(error), "7") == 2
    ended, *_ = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert ended["level"] == "ERROR" and ended["message"].startswith("spark.master is 'local'")
    assert wrapped(app, Attached(), "0") == 0
    (report,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert "nothing to compare" in report["message"], "the account of a dry run is one record"


def test_without_metrics_nothing_is_served(app: Path) -> None:
    _, command, _ = submitted("--slo", "5s", app, "0")
    attachment = from_json(Attachment, command[command.index(str(app)) - 1])
    assert attachment.metrics.listening() is None


def test_options_are_sorted_and_defaults_added(app: Path) -> None:
    done, command, env = submitted(
        *("--master", "yarn", "--slo", "5s", "--packages=a:b:c", "--max-executors", "8"),
        *("--conf", "spark.decommission.enabled=false", "--verbose", "--dry-run"),
        *(app, "--slo", "other", "--dry-run"),
    )
    assert done.returncode == 0, done.stderr
    at = command.index("--verbose")
    assert command[0].endswith("bin/spark-submit")
    assert command[1 : at + 1] == [
        *("--master", "yarn", "--packages=a:b:c"),
        *("--conf", "spark.decommission.enabled=false", "--verbose"),
    ]
    assert command[at + 1 : at + 5] == [
        *("--conf", "spark.dynamicAllocation.enabled=false"),
        *("--conf", "spark.executor.maxNumFailures=2147483647"),
    ]
    assert Path(command[at + 5]).name == "driver.py" and Path(command[at + 5]).is_file()
    settings = from_json(Attachment, command[at + 6])
    assert (settings.slo, settings.max_executors, settings.dry_run) == ("5s", 8, True)
    assert command[at + 7 :] == [str(app), "--slo", "other", "--dry-run"]
    assert env["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert "PYSPARK_PYTHON" not in env, "what the cluster's machines have is theirs to say"


def test_a_limit_of_failed_executors_under_its_old_name_stays(app: Path) -> None:
    limit = "spark.executor.maxNumFailures=2147483647"
    _, command, _ = submitted("--slo", "5s", app)
    assert limit in command
    old = "spark.yarn.max.executor.failures=9"
    _, command, _ = submitted("--slo", "5s", "--conf", old, app)
    assert old in command and limit not in command, "the new name would take precedence"


@pytest.mark.parametrize("between", ["  ", "=", " = ", ":"])
def test_a_value_in_a_file_of_settings_may_have_equals_signs(
    between: str, app: Path, tmp_path: Path
) -> None:
    file = tmp_path / "spark.conf"
    file.write_text(f"# mine\n! mine\nspark.jars{between}hdfs:///day=1/a.jar\nspark.empty\n")
    given = given_settings(["--properties-file", str(file)], tmp_path)
    assert given == {"spark.jars": "hdfs:///day=1/a.jar"}


def test_a_policy_with_parameters_by_name_or_from_a_file(app: Path, tmp_path: Path) -> None:
    _, command, _ = submitted(
        "--slo", "5s", "--policy", "lag", "--set", "threshold=50", "--interval", "3s", app
    )
    assert from_json(Attachment, command[-2]).parameters == {"threshold": "50"}
    file = tmp_path / "run.yaml"
    file.write_text(
        "policy: btu\n"
        "guards: {cool-down: {up_s: 30s}, excluded-periods: {periods: '22:00-23:00'}}\n"
    )
    _, command, _ = submitted("--slo", "5s", "--config", file, app)
    read = from_json(Attachment, command[-2])
    assert read.policy == "btu" and set(read.guards) == {"cool-down", "excluded-periods"}
    read.check()


def test_a_promised_share_reaches_the_policy_in_the_driver(app: Path, tmp_path: Path) -> None:
    words = ("--slo", "5s", "--share", "99.9%", "--policy", "tide", "--set", "late_price=20")
    _, command, _ = submitted(*words, app)
    read = from_json(Attachment, command[-2])
    assert read.parameters == {"late_price": "20", "share": 0.999}
    read.check()
    file = tmp_path / "run.yaml"
    file.write_text("policy: tide\nparameters: {most: 9}\n")
    _, command, _ = submitted("--slo", "5s", "--share", "95%", "--config", file, app)
    assert from_json(Attachment, command[-2]).parameters == {"most": 9, "share": 0.95}
    file.write_text("policy: tide\nparameters: {share: 0.9}\n")
    done, command, _ = submitted("--slo", "5s", "--share", "95%", "--config", file, app)
    assert (done.returncode, command) == (2, [])
    assert "--share is '95%'; it must be given once" in done.stderr


def test_settings_for_when_nothing_is_known_reach_the_driver(app: Path) -> None:
    _, command, _ = submitted(
        *("--slo", "alerts=2s,30s", "--max-executors", "8", "--when-blind", "maximum"),
        *(
            "--slo-by",
            "event-age",
            "--blind-after",
            "2m",
            "--initial-executors",
            "4",
            "--time-zone",
            "Europe/Berlin",
        ),
        *("--scheduled-minimum", "weekdays 08:00-18:00: 4", "--without-guard", "effect", app),
    )
    read = from_json(Attachment, command[-2])
    assert (read.slo, read.slo_by) == ("alerts=2s,30s", "event-age")
    assert (read.when_blind, read.blind_after) == ("maximum", "2m")
    assert (read.initial_executors, read.without_guards) == (4, ("effect",))
    assert (read.scheduled_minimum, read.time_zone) == ("weekdays 08:00-18:00: 4", "Europe/Berlin")


def test_on_this_machine_executors_run_the_same_python(app: Path) -> None:
    for master in ("local[2]", "spark://127.0.0.1:7077"):
        assert environment(["--master", master])["PYSPARK_PYTHON"] == sys.executable
    with mock.patch.dict(os.environ, PYSPARK_PYTHON="mine"):
        assert environment([])["PYSPARK_PYTHON"] == "mine"
        assert "PYSPARK_DRIVER_PYTHON" not in environment([])


def test_spark_home_and_its_defaults_are_respected(
    app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-submit").touch()
    (tmp_path / "conf").mkdir()
    defaults = tmp_path / "conf" / "spark-defaults.conf"
    defaults.write_text("# mine\n\nspark.decommission.enabled   false\nspark.x=1=2\n")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    _, command, _ = submitted("--slo", "5s", app)
    assert command[0] == str(tmp_path / "bin" / "spark-submit")
    assert "spark.decommission.enabled=true" not in command, "it is set in the file"
    defaults.write_text("spark.dynamicAllocation.enabled true\n")
    done, command, _ = submitted("--slo", "5s", app)
    assert command == [] and "two autoscalers" in done.stderr
    done, command, _ = submitted(
        "--slo", "5s", "--conf", "spark.dynamicAllocation.enabled=false", app
    )
    assert command, "the command line has the last word"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "Missing option '--slo'"),
        (("--slo",), "--slo is None; it must be followed by a value"),
        (("--slo", "5s"), "name it last"),
        (("--slo", "soon", "app.py"), "--slo is 'soon'"),
        (("--slo", "alerts=2s", "app.py"), "--slo is 'alerts=2s'; it must be a target for all"),
        (("--slo", "alerts=x,30s", "app.py"), "--slo of alerts is 'x'"),
        (("--slo", "5s", "--when-blind", "panic", "app.py"), "it must be hold, maximum, or a num"),
        (("--slo", "5s", "--when-blind", "maximum", "app.py"), "set the largest number of execu"),
        (("--slo", "5s", "--blind-after", "x", "app.py"), "--blind-after is 'x'"),
        (("--slo", "5s", "--initial-executors", "0", "app.py"), "hosts is 0"),
        (("--slo", "5s", "--scheduled-minimum", "noon: 4", "app.py"), "write it as [mon-fri]"),
        (
            ("--slo", "5s", "--scheduled-minimum", "1:00-2:00: 4", "--time-zone", "X", "app.py"),
            "time_zone is 'X'",
        ),
        (("--slo", "5s", "--time-zone", "Asia/Tokyo", "app.py"), "left out without a schedule"),
        (("--slo", "5s", "--without-guard", "x", "app.py"), "--without-guard is 'x'"),
        (("--slo", "5s", "gone.py"), "application is 'gone.py'"),
        (("--slo", "5s", "job.jar"), "application is 'job.jar'; it must be an existing file"),
        (("--slo", "5s", "--polcy", "drs", "app.py"), "option is '--polcy'"),
        (("--slo", "5s", "--policy", "dsr", "app.py"), "did you mean"),
        (("--slo", "5s", "--set", "t_max_s", "app.py"), "parameter=value"),
        (("--slo", "5s", "--policy", "drs", "--set", "t=1", "app.py"), "it takes t_max_s"),
        (
            ("--slo", "5s", "--policy", "drs", "--share", "99%", "app.py"),
            "must be left out with drs",
        ),
        (("--slo", "5s", "--policy", "tide", "--share", "99", "app.py"), "write it as 99% or 0.99"),
        (("--slo", "5s", "--policy", "tide", "--share", "9%", "app.py"), "between 0.5 and 0.9999"),
        (("--slo", "5s", "--policy", "tid", "--share", "99%", "app.py"), "did you mean tide"),
        (
            ("--slo", "5s", "--policy", "tide", "--set", "share=0.9", "--share", "99%", "app.py"),
            "--share is '99%'; it must be given once",
        ),
        (("--slo", "5s", "--min-executors", "0", "app.py"), "--min-executors is 0"),
        (
            ("--slo", "5s", "--min-executors", "3", "--max-executors", "2", "app.py"),
            "--min-executors is 3",
        ),
        (("--slo", "5s", "--max-executors", "many", "app.py"), "valid integer"),
        (("--slo", "5s", "--interval", "0s", "app.py"), "--interval is '0s'"),
        (("--slo", "5s", "--stabilise", "x", "app.py"), "--stabilise is 'x'"),
        (("--slo", "5s", "--billing-unit", "x", "app.py"), "--billing-unit is 'x'"),
        (("--slo", "5s", "--price-per-hour", "-1", "app.py"), "--price-per-hour is -1"),
        (("--slo", "5s", "--config", "none.yaml", "app.py"), "No such file"),
        (("--slo", "5s", "--config", "c", "--policy", "drs", "app.py"), "left out with --config"),
        (("--slo", "5s", "--conf", "spark.x", "app.py"), "key=value"),
        (("--slo", "5s", "--properties-file", "none", "app.py"), "--properties-file is 'none'"),
        (("--slo", "5s", "-c", "spark.dynamicAllocation.enabled=TRUE", "app.py"), "two autosc"),
    ],
)
def test_a_mistake_is_one_sentence_before_spark_starts(
    app: Path, words: tuple[str, ...], sentence: str
) -> None:
    done, command, _ = submitted(*words)
    assert command == [] and done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.startswith("tidegate: ") and done.stderr.count("\n") == 1


def controller_in(command: list[str]) -> list[str]:
    """The command that the agent is to run."""
    pairs = dict(w.split("=", 1) for w in command if w.startswith("spark.") and "=" in w)
    found: list[str] = json.loads(pairs["spark.tidegate.controller"])
    return found


def test_a_jar_gets_the_agent_and_a_controller_of_this_python(app: Path, tmp_path: Path) -> None:
    jar = tmp_path / "job.jar"
    jar.touch()
    words = ("--slo", "5s", "--jars", "own.jar", "--class", "Job", "--agent-jar", "agent.jar")
    done, command, _ = submitted(*words, "--conf", "spark.plugins=Mine", jar, "x")
    assert done.returncode == 0 and command[-2:] == [str(jar), "x"]
    assert "spark.plugins=Mine,io.tidegate.spark.TidegatePlugin" in command
    assert "spark.jars=own.jar,agent.jar" in command and "--jars" not in command
    assert "spark.decommission.enabled=true" in command
    python, *rest, settings = controller_in(command)
    assert (python, rest) == (sys.executable, ["-P", "-m", "tidegate", "attach", "--attachment"])
    assert json.loads(settings)["slo"] == "5s"


def test_files_and_logs_of_a_driver_on_the_cluster_are_those_of_its_machine(
    app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TIDEGATE_METRICS_TOKEN", "TIDEGATE_LOG_FORMAT"):
        monkeypatch.delenv(name, raising=False)
    jar = ("--agent-jar", "local:///opt/agent.jar")
    words = ("--slo", "5s", "--deploy-mode", "cluster", *jar, "--metrics-address", "0.0.0.0:9464")
    files = ("--metrics-token-file", "/pod/token", "--metrics-certificate", "/pod/tls.crt")
    done, command, _ = submitted(*words, *files, "--log-format", "json", app)
    assert done.returncode == 0, done.stderr
    (conf,) = [word for word in command if word.startswith("spark.tidegate.controller=")]
    controller = json.loads(conf.partition("=")[2])
    assert controller[-2:] == ["--log-format", "json"]
    attachment = from_json(Attachment, controller[controller.index("--attachment") + 1])
    assert attachment.metrics.token_file == "/pod/token"
    done, _, _ = submitted(*words[:-1], "9464", app)
    assert done.returncode == 2 and "HOST:PORT" in done.stderr


def test_a_driver_on_the_cluster_gets_the_agent_and_a_controller_there(app: Path) -> None:
    words = ("--slo", "5s", "--deploy-mode", "cluster", "--agent-jar", "local:///opt/agent.jar")
    done, command, _ = submitted(*words, "hdfs://there/app.py")
    assert done.returncode == 0 and command[-1] == "hdfs://there/app.py"
    assert "spark.jars=local:///opt/agent.jar" in command
    assert controller_in(command)[0] == "python3"
    done, command, _ = submitted(*words, "--controller-python", "./env/bin/python", "app.py")
    assert controller_in(command)[0] == "./env/bin/python"


def test_a_wrong_spark_home_is_named(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "nowhere")
    done, _, _ = submitted("--slo", "5s", app)
    assert "SPARK_HOME is 'nowhere'" in done.stderr


def test_help_tells_of_spark_submit() -> None:
    done, _, _ = submitted("--help")
    assert done.returncode == 0 and "--stabilise" in done.stdout and "spark-submit" in done.stdout


def test_words_of_the_application_are_its_own() -> None:
    words = split_arguments(["--set", "a=-1", "app.py", "-v", "--", "x"], ["--set"], ["--dry-run"])
    assert words.own == ("--set", "a=-1") and words.app == ("app.py", "-v", "--", "x")


# --- the wrapper ------------------------------------------------------------------------------


class Attached:
    """Stands for an autoscaler."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.dry_run_account: DryRunAccount | None = DryRunAccount()
        self.made = self.started = self.stopped = 0

    def make(self, settings: Attachment, spark: object) -> Attached:
        self.made += 1
        if self.error is not None:
            raise self.error
        return self

    def start(self) -> Attached:
        self.started += 1
        return self

    def stop(self) -> None:
        self.stopped += 1

    def dry_run_report(self, at_most_s: float) -> str:
        assert at_most_s > 0
        assert self.dry_run_account is not None
        return self.dry_run_account.report()


def wrapped(app: Path, autoscaler: Attached, *arguments: str) -> int:
    """Run the application in the wrapper, with sessions that are no sessions."""
    from pyspark.sql import SparkSession

    def make(settings: Attachment, spark: object) -> Any:
        return autoscaler.make(settings, spark)

    settings = to_json(Attachment("5s", journal="j.jsonl"))
    with (
        mock.patch.object(SparkSession.Builder, "getOrCreate", lambda builder: session),
        mock.patch.object(Attachment, "autoscaler", make),
        mock.patch.object(sys, "argv", []),
        mock.patch.object(sys, "path", list(sys.path)),
    ):
        return run([settings, str(app), *arguments])


@pytest.mark.parametrize("code", [0, 1, 7])
def test_the_app_runs_as_itself_with_its_own_exit_code(
    app: Path, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    autoscaler = Attached()
    assert wrapped(app, autoscaler, str(code), "--slo", "x") == code
    assert (autoscaler.made, autoscaler.started, autoscaler.stopped) == (1, 1, 1), "once"
    out = capsys.readouterr()
    assert out.out == f"app {code} --slo x\n"
    assert "nothing to compare" in out.err, "the dry run's account"


def test_a_session_that_is_built_anew_is_attached_again(app: Path) -> None:
    app.write_text(BUILT_ANEW)
    autoscaler = Attached()
    assert wrapped(app, autoscaler) == 0
    assert (autoscaler.made, autoscaler.started, autoscaler.stopped) == (2, 2, 2)


def test_a_second_session_with_wrong_settings_does_not_end_the_app(app: Path) -> None:
    app.write_text(BUILT_ANEW)
    autoscaler = Attached()

    def make(settings: Attachment, spark: Any) -> Attached:
        if spark.sparkContext.applicationId == "two":
            raise SettingError("spark.dynamicAllocation.enabled", "true", "false")
        return autoscaler

    autoscaler.make = make  # type: ignore[method-assign]
    assert wrapped(app, autoscaler) == 0
    assert (autoscaler.started, autoscaler.stopped) == (1, 1)


BUILT_ANEW = """
from types import SimpleNamespace
from unittest import mock

from pyspark.sql import SparkSession

for session in ("one", "one", "two", "two"):
    context = SimpleNamespace(applicationId=session)
    with mock.patch("tests.cli.test_submit.session", SimpleNamespace(sparkContext=context)):
        SparkSession.builder.getOrCreate()
"""
session: object = object()


def test_an_app_that_fails_keeps_its_error(app: Path) -> None:
    autoscaler = Attached()
    with pytest.raises(ValueError, match="invalid literal"):
        wrapped(app, autoscaler, "many")
    assert autoscaler.stopped == 1


def test_words_instead_of_a_code_are_printed(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app.write_text("import sys\nsys.exit('enough')\n")
    assert wrapped(app, Attached()) == 1
    assert "enough" in capsys.readouterr().err


def test_ctrl_c_ends_the_autoscaler_too(app: Path) -> None:
    app.write_text(app.read_text().replace("sys.exit(", "raise KeyboardInterrupt("))
    autoscaler = Attached()
    assert wrapped(app, autoscaler, "0") == 130
    assert autoscaler.stopped == 1


def test_spark_errors_leave_the_app_alone(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert wrapped(app, Attached(BackendError("Spark does not answer")), "7") == 7
    assert "runs without an autoscaler: Spark does not answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    "settings",
    [
        '{"slo":"5s","policy":"drs-2"}',
        '{"slo":"5s","guards":{"new-guard":{}}}',
        '{"slo":"5s","parameters":{"new_parameter":1}}',
        '{"slo":"5s","when_blind":"ask"}',
    ],
)
def test_settings_that_this_version_does_not_know_leave_the_app_alone(
    settings: str, app: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyspark.sql import SparkSession

    with (
        mock.patch.object(SparkSession.Builder, "getOrCreate", lambda builder: session),
        mock.patch.object(sys, "argv", []),
        mock.patch.object(sys, "path", list(sys.path)),
    ):
        assert run([settings, str(app), "7"]) == 7
    assert "the application runs without an autoscaler" in capsys.readouterr().err


def test_wrong_settings_of_spark_end_it_at_once(
    app: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = SettingError("spark.master", "local", "a cluster", "use --dry-run to watch")
    assert wrapped(app, Attached(error), "7") == 2
    out = capsys.readouterr()
    assert out.out == "" and out.err.startswith("tidegate: spark.master is 'local'")


def test_how_the_app_logs_is_its_own_to_say(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app.write_text("import logging\nprint(logging.getLogger('tidegate').propagate)\n")
    handlers = list(logging.getLogger().handlers)
    assert wrapped(app, Attached()) == 0
    assert capsys.readouterr().out == "False\n"
    assert logging.getLogger().handlers == handlers and logging.getLogger("tidegate").propagate


def test_an_app_without_a_session_is_told_so(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app.write_text("print('no Spark here')\n")
    assert wrapped(app, Attached()) == 0
    assert "tidegate: nothing was scaled" in capsys.readouterr().err


# --- the dry run's account --------------------------------------------------------------------


def dry_turn(number: int, time_s: float, hosts: int, wanted: int, planned: int) -> Turn:
    """A turn with hosts that were there, that the policy wanted, and that guards let pass."""
    snapshot = steady_snapshot(hosts, time_s=time_s)
    static = create("static", hosts=wanted)
    raw = static.decide(snapshot, static.initial_memory())[0].deployment
    bindings = (Binding("dry-run", planned, hosts, "this is a dry run"),)
    plan = Plan(snapshot.requested, raw=raw, bindings=bindings if planned != hosts else ())
    return Turn(number, "static", snapshot, plan, Outcome())


def test_a_dry_run_adds_up_what_was_and_what_would_have_been() -> None:
    account = DryRunAccount()
    assert "nothing to compare" in account.report()
    account.add(dry_turn(1, 0, hosts=4, wanted=1, planned=2))
    account.add(Turn(2, "static", error="a turn that failed"))
    account.add(dry_turn(3, 10, hosts=4, wanted=6, planned=4))
    account.add(dry_turn(4, 40, hosts=4, wanted=6, planned=4))
    assert (account.actual_s, account.wanted_s, account.planned_s) == (160, 190, 140)
    assert account.watched_s == 40 and account.changes == 1
    assert account.report().splitlines()[1:] == [
        "  actual                      160 executor-seconds, 4.00 executors on average, 4.0000 $",
        "  wanted by the policy        190 executor-seconds, 4.75 executors on average, 6.0000 $",
        "  after its guards            140 executor-seconds, 3.50 executors on average, 4.0000 $"
        ", in 1 change",
    ]


def test_the_settings_travel_unchanged() -> None:
    sent = Attachment("5s", "lag", {"threshold": 50}, {"bounds": {"max_hosts": 3}}, dry_run=True)
    assert from_json(Attachment, to_json(sent)) == sent
    assert json.loads(to_json(sent))["max_executors"] is None
