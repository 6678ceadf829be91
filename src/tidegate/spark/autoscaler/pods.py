"""Executor pods as the API server of Kubernetes describes them, and why they do not start. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["DENIED", "pending_reasons", "without_pods"]

DENIED = (
    "the driver's account may not create pods in namespace {namespace}: give its role the verb "
    "create on pods, as deploy/kubernetes/rbac.yaml does"
)


def pending_reasons(pods: Sequence[Mapping[str, Any]]) -> list[str]:
    """One sentence for each pod that waits: for a node, for its image, or for a volume.

    pods: as the API server lists them.

    >>> message = "0/3 nodes are available: 3 Insufficient cpu."
    >>> condition = {"type": "PodScheduled", "status": "False", "message": message}
    >>> status = {"phase": "Pending", "conditions": [condition]}
    >>> pending_reasons([{"metadata": {"name": "app-exec-2"}, "status": status}])
    ['pod app-exec-2 is pending: 0/3 nodes are available: 3 Insufficient cpu']
    """
    found = []
    for pod in pods:
        status = pod.get("status") or {}
        if status.get("phase") == "Pending":
            name = (pod.get("metadata") or {}).get("name", "?")
            found.append(f"pod {name} is pending: {_why(status)}")
    return found


def _why(status: Mapping[str, Any]) -> str:
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            return _sentence(f"{waiting['reason']} {waiting.get('message') or ''}")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            text = condition.get("message") or condition.get("reason") or "it is not scheduled"
            return _sentence(text)
    return "it has no node yet" if not status.get("startTime") else "its containers are created"


def _sentence(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


def without_pods(wanted: int, pods: Sequence[Mapping[str, Any]]) -> str:
    """A sentence if there are fewer pods than executors were requested, else empty.

    >>> without_pods(3, [{"status": {"phase": "Running"}}])
    'Spark has created 1 of 3 executor pods; if that lasts, the log of the driver says why \
(a quota or an admission rule)'
    """
    alive = sum((p.get("status") or {}).get("phase") in ("Pending", "Running") for p in pods)
    if alive >= wanted:
        return ""
    return (
        f"Spark has created {alive} of {wanted} executor pods; if that lasts, the log of the "
        "driver says why (a quota or an admission rule)"
    )
