"""Settings of Spark as text, with Spark's defaults and units. Pure."""

from __future__ import annotations

import re

__all__ = ["DEFAULTS", "NotKnown", "flag", "megabytes", "number", "seconds"]

DEFAULTS: dict[str, str | None] = {
    "spark.cores.max": None,
    "spark.decommission.enabled": "false",
    "spark.dynamicAllocation.enabled": "false",
    "spark.excludeOnFailure.enabled": "false",
    "spark.executor.cores": None,
    "spark.executor.failuresValidityInterval": None,
    "spark.executor.instances": None,
    "spark.executor.maxNumFailures": None,
    "spark.executor.memory": "1g",
    "spark.executor.memoryOverhead": None,
    "spark.executor.memoryOverheadFactor": "0.1",
    "spark.executor.resource.gpu.amount": None,
    "spark.kubernetes.allocation.maximum": None,
    "spark.kubernetes.allocation.pods.allocator": "direct",
    "spark.kubernetes.executor.deleteOnTermination": "true",
    "spark.kubernetes.executor.disableConfigMap": "false",
    "spark.kubernetes.namespace": "default",
    "spark.locality.wait": "3s",
    "spark.locality.wait.process": None,
    "spark.master": None,
    "spark.plugins": None,
    "spark.remote": None,
    "spark.shuffle.io.maxRetries": "3",
    "spark.shuffle.io.retryWait": "5s",
    "spark.shuffle.service.enabled": "false",
    "spark.speculation": "false",
    "spark.sql.shuffle.partitions": "200",
    "spark.sql.streaming.checkpointLocation": None,
    "spark.sql.streaming.stateStore.providerClass": None,
    "spark.stage.ignoreDecommissionFetchFailure": None,
    "spark.storage.decommission.enabled": "false",
    "spark.submit.deployMode": "client",
    "spark.task.cpus": "1",
    "spark.task.maxFailures": "4",
    "spark.task.resource.gpu.amount": None,
    "spark.ui.retainedJobs": "1000",
    "spark.ui.retainedStages": "1000",
    "spark.yarn.executor.failuresValidityInterval": None,
    "spark.yarn.max.executor.failures": None,
    "spark.yarn.queue": "default",
}
"""Every setting that a check reads, with Spark's default; None where Spark has none."""

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MB = {"": 1.0, "b": 2**-20, "k": 2**-10, "m": 1.0, "g": 2.0**10, "t": 2.0**20, "p": 2.0**30}


class NotKnown(Exception):  # noqa: N818 - it is no failure
    """A fact that a check needs is not known; the text says why, as a clause."""


def flag(key: str, text: str) -> bool:
    """A setting that is true or false, in any case as Spark reads it."""
    if text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    raise NotKnown(f"{key} is {text!r}, which is neither true nor false")


def number(key: str, text: str) -> float:
    """A setting that is a number."""
    try:
        return float(text)
    except ValueError:
        raise NotKnown(f"{key} is {text!r}, which is not a number") from None


def seconds(key: str, text: str, unit: str = "ms") -> float:
    """A duration in seconds, zero included. unit: that of a number without one.

    >>> seconds("spark.locality.wait", "3s"), seconds("spark.locality.wait", "500")
    (3.0, 0.5)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if found is None or found[2] not in (*_SECONDS, ""):
        raise NotKnown(f"{key} is {text!r}, which is not a duration")
    return float(found[1]) * _SECONDS[found[2] or unit]


def megabytes(key: str, text: str) -> float:
    """A size in MB; a number without a unit is in MB.

    >>> megabytes("spark.executor.memory", "2g"), megabytes("spark.executor.memory", "512")
    (2048.0, 512.0)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    unit = found[2].removesuffix("b") or found[2] if found is not None else ""
    if found is None or unit not in _MB:
        raise NotKnown(f"{key} is {text!r}, which is not a size")
    return float(found[1]) * _MB[unit]
