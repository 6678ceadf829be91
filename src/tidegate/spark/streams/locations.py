"""Locations of topics: a folder by default, or Kafka.

::

    out/run                                              a folder of topics
    kafka://127.0.0.1:9092                               a broker, or several with commas
    kafka://127.0.0.1:9092/shop?partitions=4             topics are named shop.parse, shop.enrich, …
    kafka://127.0.0.1:9092?retention=7d&max_rows_per_batch=50000
    kafka://a:9093?security=SASL_SSL&mechanism=PLAIN&user=shop&password_file=/run/secrets/kafka

The settings for SASL and TLS are those of `kafka_security`. A location has no passwords.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from tidegate.errors import InputError
from tidegate.spark.streams.kafka_security import SECURITY_SETTINGS, read_security
from tidegate.spark.streams.topic import Topic
from tidegate.units import duration_s, natural

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["check_location", "open_topic", "within"]

_FORM = "a folder, or kafka://host:port[,host:port][/prefix][?setting=value&…]"
_SETTINGS = ("key", "max_rows_per_batch", "partitions", "retention")


def open_topic(
    location: str | Path,
    name: str,
    schema: StructType | None = None,
    metadata: Path | str | None = None,
) -> Topic:
    """The topic of that name; a topic that Tidegate writes is created when absent.

    location: a folder of topics, or ``kafka://host:port`` with settings as shown above.
    schema: of its rows; optional when Tidegate has created the topic.
    metadata: for Kafka, a folder for the metadata of topics that Tidegate writes; None for a topic
        that others fill, which is only read.
    """
    if not str(location).startswith("kafka:"):
        from tidegate.spark.streams.file_topics import FileTopic

        if "://" in str(location):
            raise InputError("location", str(location), _FORM)
        return FileTopic(Path(location) / name, schema)
    from tidegate.spark.streams.kafka import KafkaSource, KafkaTopic

    servers, prefix, settings = _parsed(str(location))
    full = f"{prefix}.{name}" if prefix else name
    if metadata is not None:
        return KafkaTopic(servers, full, Path(metadata) / name, schema, **settings)
    unusable = sorted(set(settings) - {"max_rows_per_batch", "security"})
    if unusable:
        remedy = "its owner decides the rest; to write a topic yourself, pass a metadata folder"
        allowed = "max_rows_per_batch alone for a topic that others fill"
        raise InputError("settings", ", ".join(unusable), allowed, remedy)
    return KafkaSource(servers, full, schema, **settings)


def check_location(location: str) -> None:
    """Raise BackendError when no broker answers at a Kafka location or the jars are missing."""
    from tidegate.spark.local.kafka_jars import connector_jars
    from tidegate.spark.streams.kafka_client import check_servers

    check_servers(_parsed(location)[0])
    connector_jars()


def within(location: str, prefix: str) -> str:
    """The location with another prefix after its present one, for the topics of one run.

    >>> within("kafka://127.0.0.1:9092/shop?partitions=4", "run7")
    'kafka://127.0.0.1:9092/shop.run7?partitions=4'
    """
    _, before, _ = _parsed(location)
    path = f"/{before}.{prefix}" if before else f"/{prefix}"
    return urlsplit(location)._replace(path=path).geturl()


def _parsed(location: str) -> tuple[str, str, dict[str, Any]]:
    """Servers, prefix and settings of a Kafka location.

    >>> _parsed("kafka://a:9092,b:9092/shop?partitions=4&retention=7d")
    ('a:9092,b:9092', 'shop', {'partitions': 4, 'retention_s': 604800.0})
    """
    parts = urlsplit(location)
    if "@" in parts.netloc:  # the location must not be shown
        remedy = "set user and password_file: kafka://host:port?user=…&password_file=…"
        raise InputError("location", "kafka://…@…", "without user and password", remedy)
    servers = parts.netloc.split(",")
    hosts = [server.rpartition(":") for server in servers]
    if not all(host and 0 < (natural(port) or 0) < 65_536 for host, _, port in hosts):
        remedy = "name host and port of each broker, for example kafka://127.0.0.1:9092"
        raise InputError("location", location, _FORM, remedy)
    settings: dict[str, Any] = {}
    secure: dict[str, str] = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if "password" in key and not key.endswith("_file"):
            remedy = f"write it into a file and set {key}_file, or set the environment variable"
            raise InputError(f"setting {key} in location", "…", "left out", remedy)
        if key not in _SETTINGS and key not in SECURITY_SETTINGS:
            every = ", ".join((*_SETTINGS, *SECURITY_SETTINGS))
            raise InputError(f"setting {key} in location", value, f"one of {every}")
        if key in SECURITY_SETTINGS:
            secure[key] = value
        elif key == "retention":
            settings["retention_s"] = duration_s(value, "retention")
        elif key == "key":
            settings["key"] = value
        elif not (number := natural(value)):
            raise InputError(f"{key} in location", value, "a whole number of at least 1")
        else:
            settings[key] = number
    if secure:
        settings["security"] = read_security(secure)
    return parts.netloc, parts.path.strip("/"), settings
