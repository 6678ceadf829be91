"""Tidegate on Apache Spark: an autoscaler for a running Structured Streaming application.

::

    from tidegate.spark import Autoscaler

    with Autoscaler(spark, slo="5s", share="99%", min_executors=1, max_executors=8):
        query.awaitTermination()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.spark.autoscaler.autoscaler import Autoscaler
    from tidegate.spark.autoscaler.progress import register_lag
    from tidegate.spark.local.cluster import LocalCluster

__all__ = ["Autoscaler", "LocalCluster", "register_lag"]

_HOME = {
    "Autoscaler": "autoscaler.autoscaler",
    "LocalCluster": "local.cluster",
    "register_lag": "autoscaler.progress",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that the pure parts of this package work without PySpark.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
