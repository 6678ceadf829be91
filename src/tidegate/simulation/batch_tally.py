"""The books of simulated micro-batches: items by query and as a whole, and rows over time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidegate.model.topology import Operator
from tidegate.simulation.batch_queries import Batch
from tidegate.simulation.kernels.sketch import LatencySketch
from tidegate.simulation.report import Compliance, OperatorReport, Series

__all__ = ["QueryBooks", "Rows", "WholeBooks"]

Floats = NDArray[np.float64]


@dataclass
class QueryBooks:
    """What one query has done. late: items beyond one, two and five times its SLO."""

    operator: Operator
    arrived: int = 0
    processed: int = 0
    late: list[int] = field(default_factory=lambda: [0, 0, 0])
    durations: LatencySketch = field(default_factory=LatencySketch)
    busy_s: float = 0.0

    def book(self, batch: Batch) -> None:
        """A batch has ended."""
        taken = batch.end_s - batch.items.came_s
        self.processed += len(taken)
        self.durations.add(taken)
        if self.operator.slo_s is not None:
            for n, times in enumerate((1, 2, 5)):
                self.late[n] += int(np.count_nonzero(taken > times * self.operator.slo_s))

    @property
    def compliance(self) -> Compliance | None:
        """Shares of items within the SLO, None without one."""
        if self.operator.slo_s is None or not self.processed:
            return None
        return Compliance(*(1 - late / self.processed for late in self.late))

    def report(self) -> OperatorReport:
        """The query's part of a run's report."""
        return OperatorReport(
            self.operator.name,
            arrived=self.arrived,
            processed=self.processed,
            queued=self.arrived - self.processed,
            dropped=0,
            compliance=self.compliance,
            mean_duration_s=self.durations.mean_s,
            p95_duration_s=self.durations.quantile(0.95),
            time_to_adapt_s=None,
            late_episode_s=None,
        )


@dataclass
class WholeBooks:
    """Source items, from coming in until all that came of them is done.

    slo_s: bound on that time, None when there is none. fresh: latencies since the last row.
    """

    slo_s: float | None
    came: int = 0
    out: int = 0
    shed: int = 0
    late: int = 0
    longest_s: float = 0.0
    latencies: LatencySketch = field(default_factory=LatencySketch)
    fresh: list[Floats] = field(default_factory=list)
    window: list[Floats] = field(default_factory=list)

    def book(self, latencies: Floats) -> None:
        """Items that are done, with their end-to-end times."""
        if not len(latencies):
            return
        self.out += len(latencies)
        self.longest_s = max(self.longest_s, float(latencies.max()))
        self.latencies.add(latencies)
        self.fresh.append(latencies)
        self.window.append(latencies)
        if self.slo_s is not None:
            self.late += int(np.count_nonzero(latencies > self.slo_s))

    def take_window(self) -> Floats:
        """Latencies since this was last asked."""
        taken = np.concatenate(self.window) if self.window else np.empty(0)
        self.window = []
        return taken

    def take_fresh(self) -> Floats:
        """Latencies since the last row."""
        taken = np.concatenate(self.fresh) if self.fresh else np.empty(0)
        self.fresh = []
        return taken


class Rows:
    """The time series: a row each so many seconds, of what happened in it."""

    def __init__(self, every_s: float, names: tuple[str, ...]) -> None:
        self.next_s = self.every_s = every_s
        self._names = names
        self._rows: list[dict[str, float | None]] = []
        self._by_query: dict[str, list[dict[str, float | None]]] = {name: [] for name in names}
        self._before = (0.0, 0, 0, 0)
        self._seen = dict.fromkeys(names, (0, 0, 0))

    def close(
        self,
        now_s: float,
        whole: WholeBooks,
        queries: list[QueryBooks],
        instances: list[int],
        hosts: tuple[int, int],
        loads: list[float],
    ) -> None:
        """End a row. hosts: leased and running; loads: busy share of each running host."""
        then_s, came, out, shed = self._before
        span, fresh = now_s - then_s, whole.take_fresh()
        within = None
        if len(fresh) and whole.slo_s is not None:
            within = float(np.mean(fresh <= whole.slo_s))
        done = late = 0
        for books, running in zip(queries, instances, strict=True):
            name = books.operator.name
            arrived, processed, behind = self._seen[name]
            finished, beyond = books.processed - processed, books.late[0] - behind
            done, late = done + finished, late + beyond
            self._by_query[name].append(
                {
                    "queue": float(books.arrived - books.processed),
                    "arrival_rate_per_s": (books.arrived - arrived) / span,
                    "processed_per_s": finished / span,
                    "instances": float(running),
                    "late": beyond / finished if finished else None,
                }
            )
            self._seen[name] = (books.arrived, books.processed, books.late[0])
        self._rows.append(
            {
                "time_s": now_s,
                "arrival_rate_per_s": (whole.came - came) / span,
                "finished_per_s": (whole.out - out) / span,
                "dropped_per_s": (whole.shed - shed) / span,
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
        self._before = (now_s, whole.came, whole.out, whole.shed)
        self.next_s = now_s + self.every_s

    def loads(self) -> list[float]:
        """Mean loads of all rows that have one."""
        return [row["host_load_mean"] for row in self._rows if row["host_load_mean"] is not None]

    def series(self) -> Series:
        """All rows, as a report shows them."""
        names = [n for n in Series.__dataclass_fields__ if n != "operators"]
        columns = {name: tuple(row[name] for row in self._rows) for name in names}
        by_query = {
            name: {key: tuple(row[key] for row in rows) for key in rows[0]}
            for name, rows in self._by_query.items()
            if rows
        }
        return Series(**columns, operators=by_query)
