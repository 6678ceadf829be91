"""Settings of Spark under which executors cannot be scaled from outside. Pure."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.errors import SettingError

__all__ = ["check_scalable"]


def check_scalable(setting: Callable[[str, str], str]) -> None:
    """Raise SettingError for settings of Spark under which executors cannot be scaled from outside.

    setting: returns a setting, or the given default.
    """
    if setting("spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise SettingError(
            "spark.dynamicAllocation.enabled",
            "true",
            "false",
            "two autoscalers on one application undo each other's changes: switch Spark's "
            "off, or watch it with dry_run=True",
        )
    key = "spark.kubernetes.allocation.pods.allocator"
    allocator = setting(key, "direct")
    if allocator.lower() in ("statefulset", "deployment"):
        raise SettingError(
            key,
            allocator,
            "direct",
            "it chooses itself which pods to remove, with the tasks and the state on them; the "
            "executors that were released would stay",
        )
