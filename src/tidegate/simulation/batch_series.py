"""The time series of a run in micro-batches."""

from __future__ import annotations

import numpy as np

from tidegate.simulation.batch_tallies import QueryTally, SourceTally
from tidegate.simulation.report import RunSeries

__all__ = ["SeriesRows"]


class SeriesRows:
    """The time series of a run: a row for each monitoring interval (`every_s` seconds)."""

    def __init__(self, every_s: float, names: tuple[str, ...]) -> None:
        self.next_s = self.every_s = every_s
        self._names = names
        self._rows: list[dict[str, float | None]] = []
        self._by_query: dict[str, list[dict[str, float | None]]] = {name: [] for name in names}
        self._before = (0.0, 0, 0, 0)
        self._seen = dict.fromkeys(names, (0, 0, 0))

    def end_row(
        self,
        now_s: float,
        total: SourceTally,
        queries: list[QueryTally],
        instances: list[int],
        hosts: tuple[int, int],
        loads: list[float],
    ) -> None:
        """Add the row of the interval that ends now.

        Args:
            now_s: End of the interval, in seconds.
            total: Counts of source items.
            queries: Counts by query.
            instances: Slots by query.
            hosts: Hosts leased and hosts running.
            loads: Busy share of the slots of each running host.
        """
        then_s, came, out, lost = self._before
        span, beyond_target = now_s - then_s, total.fresh_late
        fresh = total.take_fresh()
        within = None
        if len(fresh) and total.slo_s is not None:
            within = (len(fresh) - beyond_target) / len(fresh)
        done = late = 0
        for tally, running in zip(queries, instances, strict=True):
            name = tally.operator.name
            arrived, processed, behind = self._seen[name]
            finished, beyond = tally.processed - processed, tally.late[0] - behind
            done, late = done + finished, late + beyond
            taken = tally.take_fresh()
            self._by_query[name].append(
                {
                    "queue": float(tally.arrived - tally.processed),
                    "arrival_rate_per_s": (tally.arrived - arrived) / span,
                    "processed_per_s": finished / span,
                    "instances": float(running),
                    "late": beyond / finished if finished else None,
                    "latency_mean_s": float(taken.mean()) if len(taken) else None,
                    "latency_p95_s": float(np.percentile(taken, 95)) if len(taken) else None,
                }
            )
            self._seen[name] = (tally.arrived, tally.processed, tally.late[0])
        self._rows.append(
            {
                "time_s": now_s,
                "arrival_rate_per_s": (total.arrived - came) / span,
                "finished_per_s": (total.finished - out) / span,
                "dropped_per_s": (total.shed + total.dropped - lost) / span,
                "latency_mean_s": float(fresh.mean()) if len(fresh) else None,
                "latency_p95_s": float(np.percentile(fresh, 95)) if len(fresh) else None,
                "compliance": within,
                "real_time": 1 - late / done if done else None,
                "hosts": float(hosts[0]),
                "hosts_running": float(hosts[1]),
                "host_load_min": min(loads, default=None),
                "host_load_mean": sum(loads) / len(loads) if loads else None,
                "host_load_max": max(loads, default=None),
            }
        )
        self._before = (now_s, total.arrived, total.finished, total.shed + total.dropped)
        self.next_s = now_s + self.every_s

    def loads(self) -> list[float]:
        """The mean loads of the rows, where known."""
        return [row["host_load_mean"] for row in self._rows if row["host_load_mean"] is not None]

    def series(self) -> RunSeries:
        """All rows, as a report shows them."""
        names = [n for n in RunSeries.__dataclass_fields__ if n != "operators"]
        columns = {name: tuple(row[name] for row in self._rows) for name in names}
        by_query = {
            name: {key: tuple(row[key] for row in rows) for key in rows[0]}
            for name, rows in self._by_query.items()
            if rows
        }
        return RunSeries(**columns, operators=by_query)
