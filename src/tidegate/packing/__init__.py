"""From numbers to a deployment: which instances run, and on which hosts."""

from __future__ import annotations

from tidegate.packing.packing import Measure, Packing, Style, capacity_of, sizes_of

__all__ = ["Measure", "Packing", "Style", "capacity_of", "sizes_of"]
