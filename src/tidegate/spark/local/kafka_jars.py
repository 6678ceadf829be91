"""The jars for Kafka: Spark's connector for a session, and the embedded broker.

They come from Maven Central (`maven`). Run ``make kafka``, or
``python -m tidegate.spark.local.kafka_jars``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tidegate.errors import BackendError
from tidegate.spark.local.maven import cache_folder, fetch_jars
from tidegate.spark.local.processes import spark_home

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
DIGESTS = Path(__file__).with_suffix(".sha256")
"""The SHA-256 of each jar, as ``sha256sum`` prints it: what is downloaded must be exactly these."""
SCALA = "2.13"
"""The version of Scala that the connector is for."""


def jar_folder() -> Path:
    """The folder of the jars: ``TIDEGATE_KAFKA_JARS``, or a folder in the user's cache."""
    return cache_folder("TIDEGATE_KAFKA_JARS", "kafka-4.1.1")


def connector_jars() -> str:
    """Spark's Kafka connector, as the value of the setting ``spark.jars``.

    Raises BackendError when it is not there, or when Spark has another Scala: Spark would then fail
    at every source of data, and not only at Kafka.
    """
    if next((spark_home() / "jars").glob(f"scala-library-{SCALA}.*.jar"), None) is None:
        from pyspark import __version__

        remedy = "name the connector of this version in spark.jars.packages"
        raise BackendError(
            f"Kafka's connector is for Spark 4 (Scala {SCALA}), and PySpark {__version__} is "
            f"installed: {remedy}, or install PySpark 4"
        )
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

    Raises BackendError when Maven Central cannot be reached, or delivers other jars than those in
    `DIGESTS`. The folder is created as a whole or not at all.
    """
    lines = DIGESTS.read_text(encoding="ascii").splitlines()
    digests = {name: digest for digest, name in map(str.split, lines)}
    return fetch_jars("Kafka's jars", jar_folder(), _WANTED, digests)


if __name__ == "__main__":
    try:
        print(f"Kafka's jars are in {fetch()}")
    except BackendError as problem:
        sys.exit(str(problem))
