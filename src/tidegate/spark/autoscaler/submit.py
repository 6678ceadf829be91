"""``tidegate submit``: spark-submit with an autoscaler for an unchanged application.

The command sorts its arguments and becomes spark-submit, which runs `driver.py` in place of the
application. There `run` runs the application as if it were started directly, and attaches the
autoscaler to its first session, and again if it stops the session and creates another.

The command checks the autoscaler's settings before Spark starts. In the driver, only settings of
Spark that the command could not see (those of the session itself) end the process, before the
application uses its first session. Any other error is a warning, and the application continues
without an autoscaler: a journal, a port, a disk or another version of Tidegate never ends it.
"""

from __future__ import annotations

import logging
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.codec import Value, from_newer_json
from tidegate.errors import BackendError, InputError, SettingError
from tidegate.logs import LogFormat, handled_by, log_fields, log_format, log_formatter
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.model import SloByQuery
from tidegate.policies.base import Situation
from tidegate.report.metrics import Metrics, ServedMetrics, serve_metrics_on
from tidegate.spark.autoscaler.autoscaler import STOP_S, Autoscaler
from tidegate.spark.autoscaler.scalable import check_scalable
from tidegate.spark.local.processes import spark_home
from tidegate.units import duration_s, finite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Arguments", "Attachment", "environment", "run", "spark_submit", "split_arguments"]

log = logging.getLogger(__name__)

WRONG_SETTINGS = 2

_OPTIONS = """
--archives --class --conf -c --deploy-mode --driver-class-path --driver-cores --driver-java-options
--driver-library-path --driver-memory --exclude-packages --executor-cores --executor-memory --files
--jars --keytab --kill --master --name --num-executors --packages --principal --properties-file
--proxy-user --py-files --queue --remote --repositories --status --total-executor-cores
"""
SPARK_OPTIONS = frozenset(_OPTIONS.split())
"""The options of spark-submit that take a value, as its --help lists them."""
SPARK_SWITCHES = frozenset({"--supervise", "--verbose", "-v", "--load-spark-defaults"})

SETTING_OF = {
    "--deploy-mode": "spark.submit.deployMode",
    "--executor-cores": "spark.executor.cores",
    "--executor-memory": "spark.executor.memory",
    "--master": "spark.master",
    "--num-executors": "spark.executor.instances",
    "--queue": "spark.yarn.queue",
    "--total-executor-cores": "spark.cores.max",
}
"""The settings that options of spark-submit stand for, as far as they matter for scaling."""

_served: dict[ServedMetrics, Metrics] = {}
"""Metrics by address: an application that creates a second session keeps its first one."""

DEFAULTS = {"spark.dynamicAllocation.enabled": "false", "spark.decommission.enabled": "true"}


@dataclass(frozen=True, slots=True)
class Attachment(Value):
    """The settings of an autoscaler as they are sent to the driver; see `Autoscaler` for each."""

    slo: str
    policy: str = "drs"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    guards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    min_executors: int = 1
    max_executors: int | None = None
    interval: str = "10s"
    stabilise: str = "60s"
    when_blind: str = "hold"
    blind_after: str = "60s"
    initial_executors: int | None = None
    scheduled_minimum: str = ""
    time_zone: str = "UTC"
    without_guards: tuple[str, ...] = ()
    journal: str = "tidegate.jsonl"
    dry_run: bool = False
    price_per_hour: float = 0.0
    billing_unit: str = "1h"
    metrics: ServedMetrics = field(default_factory=ServedMetrics)

    def check(self) -> None:
        """Raise InputError for settings that are wrong, before Spark starts."""
        duration_s(self.interval, "--interval")
        duration_s(self.billing_unit, "--billing-unit")
        finite(self.price_per_hour, "--price-per-hour", low=0)
        self.metrics.listening()
        finite(self.min_executors, "--min-executors", low=1)
        if self.max_executors is not None:
            at_least = f"--min-executors is {self.min_executors}"
            finite(self.max_executors, "--max-executors", low=self.min_executors, remedy=at_least)
        options = StackOptions(
            self.parameters,
            self.guards,
            self.without_guards,
            min_hosts=self.min_executors,
            max_hosts=self.max_executors,
            stabilise_s=duration_s(self.stabilise, "--stabilise"),
            when_blind=self.when_blind,
            blind_after_s=duration_s(self.blind_after, "--blind-after"),
            initial_hosts=self.initial_executors,
            scheduled_minimum=self.scheduled_minimum,
            time_zone=self.time_zone,
        )
        slo = SloByQuery.read(self.slo, "--slo")
        build_stack(self.policy, Situation(slo.largest_s), options)

    def autoscaler(self, spark: SparkSession) -> Autoscaler:
        """An autoscaler for a session, not started; its metrics are served from now on."""
        metrics = self._metrics()
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "metrics"}
        return Autoscaler(spark, on_turn=metrics.observe, **own)

    def _metrics(self) -> Metrics:
        """The metrics, served until the process ends, so that the last turn is scraped too."""
        if self.metrics in _served:
            return _served[self.metrics]
        metrics = Metrics(SloByQuery.read(self.slo, "--slo").default_s)
        try:
            at = self.metrics.listening()
            if at is not None:
                log.warning("metrics: %s", serve_metrics_on(metrics, at))
                _served[self.metrics] = metrics
        except Exception as error:
            log.warning("there are no metrics: %s", error)
        return metrics


# --- the command ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arguments:
    """A command line, sorted. app: the application's file with its arguments."""

    own: tuple[str, ...]
    spark: tuple[str, ...]
    app: tuple[str, ...]


def split_arguments(
    words: Sequence[str], own_options: Iterable[str], own_switches: Iterable[str]
) -> Arguments:
    """Sort a command line: the first word that is no option is the application.

    own_options: Tidegate's options with a value; own_switches: those without. An unknown option is
    an error, and so is an option of spark-submit without its value.

    >>> split_arguments(["--master", "yarn", "--slo", "5s", "app.py", "--slo"], ["--slo"], [])
    Arguments(own=('--slo', '5s'), spark=('--master', 'yarn'), app=('app.py', '--slo'))
    """
    valued, switches = frozenset(own_options), frozenset(own_switches)
    own: list[str] = []
    spark: list[str] = []
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, _ = words[at].partition("=")
        if name in valued or name in switches:
            mine = own
        elif name in SPARK_OPTIONS or name in SPARK_SWITCHES:
            mine = spark
        else:
            remedy = "see tidegate submit --help and spark-submit --help"
            raise InputError("option", name, "one of Tidegate or of spark-submit", remedy)
        takes = 2 if name in valued | SPARK_OPTIONS and not equals else 1
        if at + takes > len(words):
            raise InputError(name, None, "followed by a value")
        mine += words[at : at + takes]
        at += takes
    return Arguments(tuple(own), tuple(spark), tuple(words[at:]))


def spark_submit(arguments: Arguments, attachment: str) -> list[str]:
    """The command that runs the application with an autoscaler.

    attachment: the autoscaler's settings as JSON. Raises InputError for settings of Spark that an
    autoscaler cannot work with.
    """
    home = Path(os.environ.get("SPARK_HOME") or spark_home())
    program = home / "bin" / "spark-submit"
    if not program.is_file():
        remedy = "set it to a Spark installation, or unset it to use PySpark's"
        raise InputError("SPARK_HOME", str(home), "a folder with bin/spark-submit", remedy)
    if not arguments.app:
        raise InputError("application", None, "given", "name it last: tidegate submit … app.py")
    app = arguments.app[0]
    if not app.endswith(".py") or not Path(app).is_file():
        remedy = "for Java or Scala, or a file elsewhere, use tidegate.spark.Autoscaler"
        raise InputError("application", app, "an existing Python file", remedy)
    given = _given(arguments.spark, home)
    if given.get("spark.submit.deployMode") == "cluster":
        remedy = "for a driver on the cluster, write `with Autoscaler(…)` into the application"
        raise SettingError("--deploy-mode", "cluster", "client", remedy)
    check_scalable(given.get)
    added = [f"{key}={value}" for key, value in DEFAULTS.items() if key not in given]
    return [
        str(program),
        *arguments.spark,
        *(word for pair in added for word in ("--conf", pair)),
        str(Path(__file__).with_name("driver.py")),
        attachment,
        *arguments.app,
    ]


def environment(spark_words: Sequence[str]) -> dict[str, str]:
    """The environment of spark-submit: the driver runs in the Python that has Tidegate.

    The cluster chooses the Python of the executors, unless the cluster is this machine. Variables
    that are set already stay.
    """
    env = dict(os.environ)
    if "PYSPARK_PYTHON" not in env:
        env.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        master = _given(spark_words, None).get("spark.master", "local")
        if master.startswith(("local", "spark://127.", "spark://localhost")):
            env["PYSPARK_PYTHON"] = sys.executable
    return env


def _given(words: Sequence[str], home: Path | None) -> dict[str, str]:
    """Spark's settings from the command line and the file of defaults.

    home: Spark's folder; None: read no file.
    """
    found: dict[str, str] = {}
    file: str | None = None
    at = 0
    while at < len(words):
        name, equals, value = words[at].partition("=")
        if not equals and name in SPARK_OPTIONS:
            at += 1
            value = words[at]
        if name in ("--conf", "-c"):
            key, pair, text = value.partition("=")
            if not pair:
                raise InputError("--conf", value, "a pair", "write it as key=value")
            found[key.strip()] = text.strip()
        elif name in SETTING_OF:
            found[SETTING_OF[name]] = value
        elif name == "--properties-file":
            file = value
        at += 1
    return _properties(file, home) | found if home is not None else found


def _properties(file: str | None, home: Path) -> dict[str, str]:
    """Spark's file of defaults: in each line a key, blanks or an equals sign, and a value."""
    folder = os.environ.get("SPARK_CONF_DIR") or home / "conf"
    path = Path(file) if file is not None else Path(folder) / "spark-defaults.conf"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        if file is None:
            return {}
        why = error.strerror or "unreadable"
        raise InputError("--properties-file", file, "readable", why) from None
    lines = (line.strip() for line in text.splitlines())
    pairs = (
        line.replace("=", " ", 1).split(None, 1) for line in lines if line[:1] not in ("", "#")
    )
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


# --- in the driver --------------------------------------------------------------------------------


def run(words: Sequence[str]) -> int:
    """Run an application with an autoscaler; return its exit code.

    words: the `Attachment` as JSON, the application's file, and its own arguments.
    """
    settings, app, *arguments = words
    # Only Tidegate's logger: the application decides on its own logging.
    handler = logging.StreamHandler()
    handler.setFormatter(log_formatter(_log_format(), "tidegate: %(message)s"))
    with handled_by(handler, ("tidegate",)):
        return _run(lambda spark: _read(settings).autoscaler(spark), app, arguments)


def _run(make: Callable[[SparkSession], Autoscaler], app: str, arguments: Sequence[str]) -> int:
    attached = _on_first_session(make)
    sys.argv = [app, *arguments]
    sys.path.insert(0, str(Path(app).resolve().parent))  # as Python itself does for a script
    try:
        runpy.run_path(app, run_name="__main__")
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except KeyboardInterrupt:
        return 130
    finally:
        _end(attached)
    return 0


def _log_format() -> LogFormat:
    try:
        return log_format()
    except InputError:  # the command has checked it, but the cluster may set another one
        return "text"


def _read(settings: str) -> Attachment:
    """The attachment; the command may be of a newer version than the driver."""
    try:
        attachment, unknown = from_newer_json(Attachment, settings)
    except InputError as error:
        raise BackendError(f"the settings cannot be read: {error}") from None
    if unknown:
        log.warning("these settings are unknown in the driver and ignored: %s", ", ".join(unknown))
    return attachment


def _end(attached: list[Autoscaler]) -> None:
    """Stop the autoscaler without hiding how the application ended."""
    if not attached:
        log.warning(
            "nothing was scaled: the application created no session with "
            "SparkSession.builder.getOrCreate()"
        )
    end_s = time.monotonic() + STOP_S
    for autoscaler in attached:
        with suppress(Exception):
            autoscaler.stop()
        if autoscaler.dry_run_account is not None:
            with suppress(Exception):
                report = autoscaler.dry_run_report(end_s - time.monotonic())
                if _log_format() == "json":
                    log.warning("%s", report)
                else:
                    print(report, file=sys.stderr)


def _of_spark(error: Exception) -> bool:
    """Whether an error is about a setting of Spark, which the command could not check.

    The command has checked all others. What is wrong with them here is another version of Tidegate.
    """
    return isinstance(error, SettingError) and error.key.partition(".")[0] == "spark"


def _on_first_session(make: Callable[[SparkSession], Autoscaler]) -> list[Autoscaler]:
    """Attach an autoscaler to the first session of each application that this process creates.

    make: creates the autoscaler. Returns a list that holds the present one from then on. Settings
    of Spark under which nothing can be scaled end the process before its first session is used; any
    other error is a warning.
    """
    from pyspark.sql import SparkSession

    maker: Any = SparkSession.Builder
    original = maker.getOrCreate
    attached: list[Autoscaler] = []
    seen: list[object] = []

    def get_or_create(builder: SparkSession.Builder) -> SparkSession:
        spark: SparkSession = original(builder)
        application = getattr(getattr(spark, "sparkContext", None), "applicationId", None)
        if application in seen:  # all its sessions are scaled
            return spark
        seen.append(application)
        if attached:
            log.warning("the session was stopped and another one was created: attaching to it")
            _end(attached)
            attached.clear()
        with log_fields(application=application):
            try:
                attached.append(make(spark).start())
            except Exception as error:
                if _of_spark(error) and len(seen) == 1:
                    log.error("%s", error)
                    sys.exit(WRONG_SETTINGS)
                log.warning("not attached, the application runs without an autoscaler: %s", error)
        return spark

    maker.getOrCreate = get_or_create
    return attached
