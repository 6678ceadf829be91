"""The room in a queue of YARN, from the REST interface of its ResourceManager."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tidegate.errors import BackendError
from tidegate.spark.doctor.web import ask
from tidegate.spark.scalability.facts import QueueRoom

__all__ = ["queue_room", "resource_manager"]

CONFIGURATION = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


def resource_manager() -> str:
    """The address of the ResourceManager by ``yarn-site.xml``; BackendError when there is none."""
    folders = [folder for name in CONFIGURATION if (folder := os.environ.get(name))]
    if not folders:
        raise BackendError(
            "neither HADOOP_CONF_DIR nor --resource-manager says where the ResourceManager is"
        )
    for folder in folders:
        found = _properties(Path(folder) / "yarn-site.xml")
        https = found.get("yarn.http.policy") == "HTTPS_ONLY"
        key = "yarn.resourcemanager.webapp." + ("https.address" if https else "address")
        address = found.get(key)
        host = found.get("yarn.resourcemanager.hostname")
        if not address or "${" in address:
            address = f"{host}:{8090 if https else 8088}" if host else None
        if address:
            return f"http{'s' * https}://{address}"
    raise BackendError("yarn-site.xml does not name the ResourceManager: add --resource-manager")


def queue_room(url: str, name: str) -> QueueRoom:
    """The room in a queue, by memory; BackendError with the reason when nobody answers.

    url: address of the ResourceManager. name: name of the queue, with or without its parents.
    """
    base = f"{url.rstrip('/')}/ws/v1/cluster"
    try:
        cluster = ask(f"{base}/metrics")["clusterMetrics"]
        info = ask(f"{base}/scheduler")["scheduler"]["schedulerInfo"]
        if info.get("type") != "capacityScheduler":
            raise BackendError(f"the scheduler of YARN is {info.get('type')}, which is not read")
        queues = list(_queues(info))
        found = [q for q in queues if name in (q.get("queueName"), q.get("queuePath"))]
        if not found:
            known = ", ".join(str(q["queueName"]) for q in queues if "queues" not in q)
            raise BackendError(f"YARN has no queue {name}; there are: {known}")
        # What is free is also bounded by what other queues have taken beyond their share.
        most_mb = float(cluster["totalMB"]) * float(found[0]["absoluteMaxCapacity"]) / 100
        used_mb = float((found[0].get("resourcesUsed") or {}).get("memory", 0))
        free_mb = min(most_mb - used_mb, float(cluster["availableMB"]))
        return QueueRoom(name, most_mb, max(0.0, free_mb), str(found[0].get("state", "RUNNING")))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BackendError(f"{base} answers in another form: {error!r}") from None


def _queues(info: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A queue and all below it."""
    yield info
    below = (info.get("queues") or {}).get("queue") or ()
    for queue in below:
        yield from _queues(queue)


def _properties(path: Path) -> dict[str, str]:
    """Names and values of a file of Hadoop's settings; empty when it cannot be read."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return {}
    return {
        str(each.findtext("name")): str(each.findtext("value")) for each in root.iter("property")
    }
