"""The vocabulary of a decision: what is measured, what is planned and what is leased."""

from __future__ import annotations

from tidegate.model.leases import HostOffer, Lease, LeaseEnd
from tidegate.model.plan import Binding, Deployment, Instance, Plan, Prediction, Reason, Unmet
from tidegate.model.slo import SloByQuery
from tidegate.model.snapshot import (
    NO_LATENCY,
    BatchCost,
    BatchReading,
    Estimate,
    FirstBatch,
    Host,
    HostStatus,
    InstanceReading,
    InstanceStatus,
    Latency,
    OperatorReading,
    Snapshot,
)

__all__ = [
    "NO_LATENCY",
    "BatchCost",
    "BatchReading",
    "Binding",
    "Deployment",
    "Estimate",
    "FirstBatch",
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
    "SloByQuery",
    "Snapshot",
    "Unmet",
]
