"""``tidegate submit``: spark-submit with an autoscaler for an unchanged application.

The command checks the autoscaler's settings, sorts its arguments and becomes spark-submit. A Python
application in client mode runs inside `driver.py`, which attaches the autoscaler to its first
session. Any other application (a jar, or a driver on the cluster) gets the agent, which starts a
controller next to the driver.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.codec import to_json
from tidegate.errors import InputError
from tidegate.logs import LogFormat
from tidegate.spark.agent import PLUGIN, agent_jar
from tidegate.spark.autoscaler.attachment import Attachment
from tidegate.spark.autoscaler.scalable import check_scalable
from tidegate.spark.local.processes import spark_home

__all__ = [
    "CONTROLLER",
    "DEFAULTS",
    "Arguments",
    "added_settings",
    "environment",
    "given_settings",
    "spark_submit",
    "split_arguments",
]

CONTROLLER = "--attachment"
"""The option of ``tidegate attach`` with all settings, for a controller that the agent starts."""

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
    "--jars": "spark.jars",
    "--master": "spark.master",
    "--num-executors": "spark.executor.instances",
    "--queue": "spark.yarn.queue",
    "--remote": "spark.remote",
    "--total-executor-cores": "spark.cores.max",
}
"""The settings that options of spark-submit stand for, as far as they matter for scaling."""

DEFAULTS = {
    "spark.dynamicAllocation.enabled": "false",
    "spark.decommission.enabled": "true",
    # Kubernetes and YARN end an application after a number of failed executors that follows from
    # the number at the start. A pod that is evicted (Spark 4.0) or denied (4.2) counts as one.
    "spark.executor.maxNumFailures": "2147483647",
}
_PAIR = re.compile(r"([^\s=:]+)(?:\s*[=:]\s*|\s+)(.+)")
OLD_NAMES = {"spark.executor.maxNumFailures": "spark.yarn.max.executor.failures"}
"""Names that settings had before Spark 3.5; a new name takes precedence, so it is not added."""


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


def spark_submit(
    arguments: Arguments,
    attachment: Attachment,
    python: str | None = None,
    jar: str | None = None,
    form: LogFormat = "text",
) -> list[str]:
    """The command that runs the application with an autoscaler.

    attachment: the autoscaler's settings. python: the Python with Tidegate where the driver runs,
    None: this one, or ``python3`` for a driver on the cluster. jar: the agent's jar, None: the one
    of this installation. form: the format of the controller's log. Raises InputError for settings
    of Spark that an autoscaler cannot work with.
    """
    home = Path(os.environ.get("SPARK_HOME") or spark_home())
    program = home / "bin" / "spark-submit"
    if not program.is_file():
        remedy = "set it to a Spark installation, or unset it to use PySpark's"
        raise InputError("SPARK_HOME", str(home), "a folder with bin/spark-submit", remedy)
    if not arguments.app:
        remedy = "name it last: tidegate submit … app.py"
        raise InputError("application", None, "given", remedy)
    given = given_settings(arguments.spark, home)
    if not attachment.dry_run:  # which may watch any job
        check_scalable(given.get)
    on_cluster = given.get("spark.submit.deployMode") == "cluster"
    app = arguments.app[0]
    if not on_cluster and not re.match(r"\w+:/", app) and not Path(app).is_file():
        raise InputError("application", app, "an existing file")
    if not on_cluster:  # there, the files are those of the driver's machine
        attachment.metrics.listening()
    settings = to_json(attachment)
    added = added_settings(given)
    if app.endswith(".py") and not on_cluster:
        script = str(Path(__file__).with_name("driver.py"))
        return [str(program), *arguments.spark, *_conf(added), script, settings, *arguments.app]
    if on_cluster and given.get("spark.master", "").startswith("spark:") and jar is None:
        remedy = "name a path or an address of the jar that every machine of the cluster can read"
        raise InputError("--agent-jar", None, "given for a driver on a standalone cluster", remedy)
    controller = [python or ("python3" if on_cluster else sys.executable)]
    controller += ["-P", "-m", "tidegate"]  # without the folder of the driver, which has any files
    controller += ["attach", CONTROLLER, settings]
    if form == "json":  # the environment of the driver may be another one
        controller += ["--log-format", form]
    added["spark.tidegate.controller"] = json.dumps(controller)
    added["spark.plugins"] = joined(given.get("spark.plugins"), PLUGIN)
    # Executors load plugins too, so they get the jar with those of the application.
    added["spark.jars"] = joined(given.get("spark.jars"), jar or str(agent_jar()))
    return [str(program), *without(arguments.spark, "--jars"), *_conf(added), *arguments.app]


def added_settings(given: Mapping[str, str]) -> dict[str, str]:
    """The settings that the command adds. given: those that it was given, which stay.

    >>> sorted(added_settings({"spark.decommission.enabled": "false"}))
    ['spark.dynamicAllocation.enabled', 'spark.executor.maxNumFailures']
    """
    return {
        key: value
        for key, value in DEFAULTS.items()
        if key not in given and OLD_NAMES.get(key) not in given
    }


def joined(words: str | None, word: str) -> str:
    """A list with commas, with one more word unless it has it already.

    >>> joined("a.jar", "b.jar"), joined(None, "b.jar"), joined("a,b", "b")
    ('a.jar,b.jar', 'b.jar', 'a,b')
    """
    found = [one.strip() for one in (words or "").split(",") if one.strip()]
    return ",".join(found if word in found else [*found, word])


def without(words: Sequence[str], option: str) -> list[str]:
    """The words of a command without an option and its value.

    >>> without(["--jars", "a.jar", "--name", "x", "--jars=b.jar"], "--jars")
    ['--name', 'x']
    """
    found, at = [], 0
    while at < len(words):
        if words[at] == option:
            at += 1
        elif not words[at].startswith(f"{option}="):
            found.append(words[at])
        at += 1
    return found


def _conf(settings: Mapping[str, str]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]


def environment(spark_words: Sequence[str]) -> dict[str, str]:
    """The environment of spark-submit: the driver runs in the Python that has Tidegate.

    The cluster chooses the Python of the executors, unless the cluster is this machine. Variables
    that are set already stay.
    """
    env = dict(os.environ)
    if "PYSPARK_PYTHON" not in env:
        env.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        master = given_settings(spark_words, None).get("spark.master", "local")
        if master.startswith(("local", "spark://127.", "spark://localhost")):
            env["PYSPARK_PYTHON"] = sys.executable
    return env


def given_settings(words: Sequence[str], home: Path | None) -> dict[str, str]:
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
    """Spark's file of defaults: in each line a key, then blanks, ``=`` or ``:``, and a value."""
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
    found = (_PAIR.fullmatch(line) for line in lines if line[:1] not in ("", "#", "!"))
    return {pair[1]: pair[2] for pair in found if pair is not None}
