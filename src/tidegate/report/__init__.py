"""Reports: the building blocks of all HTML pages, and summaries and metrics of journals."""

from __future__ import annotations

from tidegate.report.charts import Series, bars, heat, lines, scatter
from tidegate.report.page import Page

__all__ = ["Page", "Series", "bars", "heat", "lines", "scatter"]
