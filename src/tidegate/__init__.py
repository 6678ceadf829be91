"""Tidegate: capacity that follows the tide.

Elastic stream processing on Apache Spark. The names below are what most users need; they load
when first used, so `import tidegate` is instant and needs neither Java nor Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tidegate.errors import TidegateError as TidegateError
    from tidegate.model import Deployment as Deployment
    from tidegate.model import HostOffer as HostOffer
    from tidegate.model import Plan as Plan
    from tidegate.model import Snapshot as Snapshot
    from tidegate.steps import diff as diff
    from tidegate.topology import Edge as Edge
    from tidegate.topology import Operator as Operator
    from tidegate.topology import Resources as Resources
    from tidegate.topology import Source as Source
    from tidegate.topology import Topology as Topology

_HOME = {
    "Deployment": "model",
    "Edge": "topology",
    "HostOffer": "model",
    "Operator": "topology",
    "Plan": "model",
    "Resources": "topology",
    "Snapshot": "model",
    "Source": "topology",
    "TidegateError": "errors",
    "Topology": "topology",
    "diff": "steps",
}

__all__ = [*sorted(_HOME), "__version__"]  # noqa: PLE0604 - all of them are strings


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"tidegate.{_HOME[name]}"), name)
    raise AttributeError(f"module 'tidegate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
