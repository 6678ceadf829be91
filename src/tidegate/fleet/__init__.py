"""An elastic fleet: many continuous queries on many Spark Connect hosts.

::

    from tidegate.fleet import continuous_query

    @continuous_query()
    def errors(session, checkpoint):
        lines = session.readStream.schema("level string, text string").json("logs")
        return lines.filter("level = 'ERROR'").writeStream.format("json").option("path", "errors")

``tidegate fleet run queries.py`` places the queries on hosts, leases and releases hosts, and moves
queries with their state.
"""

from __future__ import annotations

from tidegate.fleet.queries import ContinuousQuery, continuous_query, load_queries, template

__all__ = ["ContinuousQuery", "continuous_query", "load_queries", "template"]
