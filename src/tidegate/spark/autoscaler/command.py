"""The words after ``tidegate submit``: which are ours, which spark-submit's, which the app's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.errors import InputError, SettingError
from tidegate.spark.local.processes import spark_home

__all__ = ["Words", "environment", "spark_submit", "split_words"]

# As spark-submit knows them; it prints them itself with --help.
SPARK_OPTIONS = frozenset(
    {
        "--archives",
        "--class",
        "--conf",
        "-c",
        "--deploy-mode",
        "--driver-class-path",
        "--driver-cores",
        "--driver-java-options",
        "--driver-library-path",
        "--driver-memory",
        "--exclude-packages",
        "--executor-cores",
        "--executor-memory",
        "--files",
        "--jars",
        "--keytab",
        "--kill",
        "--master",
        "--name",
        "--num-executors",
        "--packages",
        "--principal",
        "--properties-file",
        "--proxy-user",
        "--py-files",
        "--queue",
        "--remote",
        "--repositories",
        "--status",
        "--total-executor-cores",
    }
)
SPARK_SWITCHES = frozenset({"--supervise", "--verbose", "-v", "--load-spark-defaults"})

DEFAULTS = {"spark.dynamicAllocation.enabled": "false", "spark.decommission.enabled": "true"}


@dataclass(frozen=True, slots=True)
class Words:
    """A command line, sorted. app: the application's file with its arguments."""

    own: tuple[str, ...]
    spark: tuple[str, ...]
    app: tuple[str, ...]


def split_words(
    words: Sequence[str], own_options: Iterable[str], own_switches: Iterable[str]
) -> Words:
    """Sort the words: options up to the first word that is none, which is the application.

    own_options: Tidegate's with a value; own_switches: those without. An option that nobody knows
    is an error, and so is one of spark-submit's for which there is no value.

    >>> split_words(["--master", "yarn", "--slo", "5s", "app.py", "--slo"], ["--slo"], [])
    Words(own=('--slo', '5s'), spark=('--master', 'yarn'), app=('app.py', '--slo'))
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
    return Words(tuple(own), tuple(spark), tuple(words[at:]))


def spark_submit(words: Words, attachment: str) -> list[str]:
    """The command that runs the application with an autoscaler.

    attachment: its settings as JSON. Raises InputError for settings of Spark that an autoscaler
    cannot work with.
    """
    home = Path(os.environ.get("SPARK_HOME") or spark_home())
    program = home / "bin" / "spark-submit"
    if not program.is_file():
        remedy = "point it at a Spark installation, or unset it to use PySpark's"
        raise InputError("SPARK_HOME", str(home), "a folder with bin/spark-submit", remedy)
    if not words.app:
        raise InputError("application", None, "given", "name it last: tidegate submit … app.py")
    app = words.app[0]
    if not app.endswith(".py") or not Path(app).is_file():
        remedy = "for one in Java or Scala, or elsewhere, use tidegate.spark.Autoscaler"
        raise InputError("application", app, "a Python file that is here", remedy)
    given = _given(words.spark, home)
    if given.get("spark.submit.deployMode") == "cluster":
        remedy = "where the driver is elsewhere, write `with Autoscaler(…)` into the application"
        raise SettingError("--deploy-mode", "cluster", "client", remedy)
    if given.get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise SettingError(
            "spark.dynamicAllocation.enabled",
            "true",
            "false",
            "two autoscalers on one application undo each other's work: switch Spark's off",
        )
    added = [f"{key}={value}" for key, value in DEFAULTS.items() if key not in given]
    return [
        str(program),
        *words.spark,
        *(word for pair in added for word in ("--conf", pair)),
        str(Path(__file__).with_name("driver.py")),
        attachment,
        *words.app,
    ]


def environment(spark_words: Sequence[str]) -> dict[str, str]:
    """The environment for it: the driver is run by the Python that has Tidegate.

    The executors' is left to the cluster, unless that is this machine. What is already set stays.
    """
    env = dict(os.environ)
    if "PYSPARK_PYTHON" not in env:
        env.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        master = _given(spark_words, None).get("spark.master", "local")
        if master.startswith(("local", "spark://127.", "spark://localhost")):
            env["PYSPARK_PYTHON"] = sys.executable
    return env


def _given(words: Sequence[str], home: Path | None) -> dict[str, str]:
    """Spark's settings as far as the command line and the file of defaults tell.

    home: of Spark, None: do not look into files.
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
        elif name == "--master":
            found["spark.master"] = value
        elif name == "--deploy-mode":
            found["spark.submit.deployMode"] = value
        elif name == "--properties-file":
            file = value
        at += 1
    return _properties(file, home) | found if home is not None else found


def _properties(file: str | None, home: Path) -> dict[str, str]:
    """Spark's file of defaults: a key, blanks or an equals sign, and a value in each line."""
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
