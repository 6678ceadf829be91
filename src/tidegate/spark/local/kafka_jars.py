"""The jars for Kafka: Spark's connector for a session, and the embedded broker.

They are downloaded from Maven Central by Ivy, which is part of the `pyspark` package, so nothing
else has to be installed. Mirrors and proxies are configured for Java (``-Dhttps.proxyHost`` in
``JAVA_TOOL_OPTIONS``). Run ``make kafka``, or ``python -m tidegate.spark.local.kafka_jars``.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tidegate.errors import BackendError
from tidegate.spark.local.processes import java_program, run_to_end, spark_home

__all__ = ["broker_jars", "connector_jars", "fetch", "jar_folder"]

# Versions tested with PySpark 4.3, for which no connector has been published yet. The connector's
# dependencies are listed one by one, because its token provider 4.2 is not published either and
# Spark contains all others.
_WANTED = {
    "connector->master": (
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.kafka", "kafka-clients", "3.9.2"),
        ("org.apache.commons", "commons-pool2", "2.13.1"),
    ),
    "broker->default": (("org.apache.kafka", "kafka_2.13", "4.1.1"),),
}
FETCH_S = 600.0


def jar_folder() -> Path:
    """The folder of the jars: ``TIDEGATE_KAFKA_JARS``, or a folder in the user's cache."""
    given = os.environ.get("TIDEGATE_KAFKA_JARS")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else cache / "tidegate" / "kafka-4.1.1"


def connector_jars() -> str:
    """Spark's Kafka connector, as the value of the setting ``spark.jars``."""
    return ",".join(map(str, _jars("connector")))


def broker_jars() -> list[Path]:
    """The jars of a Kafka broker."""
    return _jars("broker")


def _jars(part: str) -> list[Path]:
    jars = sorted((jar_folder() / part).glob("*.jar"))
    if not jars:
        raise BackendError(
            f"Kafka's jars are not in {jar_folder()}: run make kafka, or "
            "python -m tidegate.spark.local.kafka_jars, where Maven Central can be reached; or set "
            "TIDEGATE_KAFKA_JARS to a folder that has them"
        )
    return jars


def fetch() -> Path:
    """Download the jars from Maven Central if the folder does not exist; return the folder.

    Raises BackendError when Maven Central cannot be reached. The folder is created as a whole or
    not at all.
    """
    folder = jar_folder()
    if folder.exists():
        return folder
    ivy = next(iter((spark_home() / "jars").glob("ivy-*.jar")), None)
    if ivy is None:
        raise BackendError(
            "PySpark contains no Ivy: download the jars by hand (docs/guides/topics.md)"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        wanted = Path(scratch, "ivy.xml")
        wanted.write_text(_module(), encoding="utf-8")
        pattern = f"{scratch}/jars/[conf]/[artifact]-[revision].[ext]"
        cache = f"{scratch}/cache"
        command = [java_program(), "-jar", ivy, "-cache", cache, "-ivy", wanted]
        succeeded, output = run_to_end([*map(str, command), "-retrieve", pattern], FETCH_S)
        if not succeeded:
            why = [line.strip() for line in output if "not found" in line] or output[-1:]
            raise BackendError(
                f"Kafka's jars could not be downloaded from Maven Central ({why[0]}): check the "
                "network; a proxy is set with JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=…"
            )
        if not folder.exists():  # another process may have been faster
            shutil.move(Path(scratch, "jars"), folder)
    return folder


def _module() -> str:
    """The wanted jars as an Ivy file."""
    wanted = "".join(
        f'<dependency org="{org}" name="{name}" rev="{version}" conf="{conf}"/>'
        for conf, artifacts in _WANTED.items()
        for org, name, version in artifacts
    )
    return (
        '<ivy-module version="2.0"><info organisation="tidegate" module="kafka"/>'
        '<configurations><conf name="connector"/><conf name="broker"/></configurations>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )


if __name__ == "__main__":
    try:
        print(f"Kafka's jars are in {fetch()}")
    except BackendError as problem:
        sys.exit(str(problem))
