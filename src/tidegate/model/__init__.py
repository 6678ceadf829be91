"""The vocabulary of a decision: what is measured, what is planned and what is leased."""

from __future__ import annotations

from tidegate.model.snapshot import (
    BatchReading,
    Binding,
    Deployment,
    Host,
    HostOffer,
    HostStatus,
    Instance,
    InstanceReading,
    InstanceStatus,
    Latency,
    Lease,
    LeaseEnd,
    OperatorReading,
    Plan,
    Prediction,
    Reason,
    Snapshot,
    Unmet,
)

__all__ = [
    "BatchReading",
    "Binding",
    "Deployment",
    "Host",
    "HostOffer",
    "HostStatus",
    "Instance",
    "InstanceReading",
    "InstanceStatus",
    "Latency",
    "Lease",
    "LeaseEnd",
    "OperatorReading",
    "Plan",
    "Prediction",
    "Reason",
    "Snapshot",
    "Unmet",
]
