"""The facts of a job that has not started: its command line, files of defaults, and its code."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tidegate.errors import BackendError
from tidegate.spark.agent import JAR, PLUGIN
from tidegate.spark.autoscaler.submit import Arguments, added_settings, given_settings
from tidegate.spark.doctor.code import CodeFacts, read_code
from tidegate.spark.local.processes import spark_home
from tidegate.spark.scalability.facts import JobFacts

__all__ = ["facts_of_configuration", "version_of"]

NOT_RUNNING = "the job does not run yet"
ASK_THE_JOB = "only the running job shows that (tidegate doctor http://driver:4040)"


def facts_of_configuration(
    arguments: Arguments,
    asked: JobFacts,
    python: str | None = None,
    jar: str | None = None,
) -> JobFacts:
    """The facts of a command line of ``tidegate submit``.

    arguments: the sorted command line; the application may be missing. asked: what was asked of the
    autoscaler. python: the program that runs the controller, None for the default. jar: the agent's
    jar, None for the one of this installation.
    """
    home = _home()
    given = given_settings(arguments.spark, home)
    given = added_settings(given) | given
    app = arguments.app[0] if arguments.app else ""
    code = read_code(Path(app)) if app.endswith(".py") and Path(app).is_file() else None
    settings = given if code is None else given | dict(code.settings)
    on_cluster = given.get("spark.submit.deployMode") == "cluster"
    needs = ""
    if on_cluster:
        needs = "a driver on the cluster is scaled through it"
    elif app and not app.endswith(".py"):
        needs = "an application that is not in Python is scaled through it"
    return replace(
        asked,
        settings=settings,
        set_in_code={} if code is None else code.places,
        in_advance=True,
        version=None if home is None else version_of(home),
        agent=jar is not None or JAR.is_file() or PLUGIN in given.get("spark.plugins", ""),
        needs_agent=needs,
        controller=python or ("python3" if on_cluster else sys.executable),
        queries=code.queries or None if code is not None else None,
        unknown=_unknown(app, code, home),
    )


def _home() -> Path | None:
    """The folder of Spark that tidegate submit would use, None when there is none."""
    try:
        return Path(os.environ.get("SPARK_HOME") or spark_home())
    except BackendError:
        return None


def version_of(home: Path) -> str | None:
    """The version of an installation of Spark, by the name of its jar; None when it has none.

    home: its folder.
    """
    for jar in sorted((home / "jars").glob("spark-core_*.jar")):
        if found := re.search(r"spark-core_[\d.]+-(\d.*)\.jar$", jar.name):
            return found.group(1)
    return None


def _unknown(app: str, code: CodeFacts | None, home: Path | None) -> Mapping[str, str]:
    """Why facts of a configuration are not known."""
    here = "no Spark is installed here, so that its file of defaults was not read either"
    queries = ASK_THE_JOB
    if code is not None and not code.queries:
        queries = f"{app} starts no query that can be seen in it; {ASK_THE_JOB}"
    in_code = ASK_THE_JOB
    if code is not None:
        literal = f"only literal values in {Path(app).name} were read, and none in conditions"
        in_code = f"{literal}; {ASK_THE_JOB}"
    return {
        "version": here if home is None else f"no spark-core jar is in {home / 'jars'}",
        "slo": "no latency target is given: add --slo",
        "queries": queries,
        "executors": NOT_RUNNING,
        "rate": NOT_RUNNING,
        "settings_in_code": in_code,
        "queries.name": f"the code does not show its name; {ASK_THE_JOB}",
        "queries.trigger": f"the code does not show the trigger; {ASK_THE_JOB}",
        "queries.trigger_s": f"the code does not show the trigger; {ASK_THE_JOB}",
        "queries.limits": f"the code does not show which source it reads; {ASK_THE_JOB}",
        "queries.tasks": NOT_RUNNING,
        "queries.watermark": f"the code does not show it; {ASK_THE_JOB}",
        "queries.stateful": f"the code does not show whether it has state; {ASK_THE_JOB}",
        "queries.state_partitions": NOT_RUNNING,
        "queries.state_mb": NOT_RUNNING,
        "queries.checkpoint": f"the code does not show its checkpoint; {ASK_THE_JOB}",
    }
