"""Tidegate: capacity that follows the tide.

Elastic stream processing on Apache Spark. The names below are what most users need; they load
when first used, so `import tidegate` is instant and needs neither Java nor Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from tidegate.errors import TidegateError as TidegateError
    from tidegate.model import Deployment as Deployment
    from tidegate.model import HostOffer as HostOffer
    from tidegate.model import Plan as Plan
    from tidegate.model import Snapshot as Snapshot
    from tidegate.model.steps import diff as diff
    from tidegate.model.topology import Edge as Edge
    from tidegate.model.topology import Operator as Operator
    from tidegate.model.topology import Resources as Resources
    from tidegate.model.topology import Source as Source
    from tidegate.model.topology import Topology as Topology

_HOME = {
    "Deployment": "model",
    "Edge": "model.topology",
    "HostOffer": "model",
    "Operator": "model.topology",
    "Plan": "model",
    "Resources": "model.topology",
    "Snapshot": "model",
    "Source": "model.topology",
    "TidegateError": "errors",
    "Topology": "model.topology",
    "diff": "model.steps",
}

__all__ = [*sorted(_HOME), "__version__"]  # noqa: PLE0604 - all of them are strings


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"tidegate.{_HOME[name]}"), name)
    raise AttributeError(f"module 'tidegate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
