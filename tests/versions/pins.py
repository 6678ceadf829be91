"""The versions of PySpark that `make test-versions` installs, by the minor version of Spark."""

from __future__ import annotations

PINS = {
    "3.5": "3.5.9",
    "4.0": "4.0.5",
    "4.1": "4.1.4",
    "4.2": "4.2.1",
    "4.3": "4.3.0",
}

GATEWAYS = ("in-process", "agent")
"""How the autoscaler is attached: in the driver's Python, or over HTTP to the agent."""
