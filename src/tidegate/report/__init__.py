"""Reports that people look at: one self-contained HTML file, the answer first, then pictures."""

from __future__ import annotations

from tidegate.report.charts import Series, bars, heat, lines, scatter
from tidegate.report.page import Page

__all__ = ["Page", "Series", "bars", "heat", "lines", "scatter"]
