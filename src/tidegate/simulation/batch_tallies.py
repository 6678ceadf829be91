"""Counts of items in a run of micro-batches: by query, and from the sources to the end."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidegate.model.topology import Operator
from tidegate.simulation.batch_queries import Batch
from tidegate.simulation.kernels.sketch import LatencySketch
from tidegate.simulation.report import Compliance, OperatorReport

__all__ = ["QueryTally", "SourceTally"]

Floats = NDArray[np.float64]


@dataclass
class QueryTally:
    """Counts of one query.

    arrived: items that were offered, shed and dropped ones included. shed: those that were shed on
    request. dropped: those that found a full buffer. late: items beyond one, two and five times its
    SLO. fresh: times of the items that were done since the last row of the time series.
    """

    operator: Operator
    arrived: int = 0
    processed: int = 0
    shed: int = 0
    dropped: int = 0
    late: list[int] = field(default_factory=lambda: [0, 0, 0])
    durations: LatencySketch = field(default_factory=LatencySketch)
    fresh: list[Floats] = field(default_factory=list)

    def count(self, batch: Batch) -> None:
        """Count a finished batch."""
        taken = batch.end_s - batch.items.arrived_s
        self.processed += len(taken)
        self.durations.add(taken)
        self.fresh.append(taken)
        if self.operator.slo_s is not None:
            for n, times in enumerate((1, 2, 5)):
                self.late[n] += int(np.count_nonzero(taken > times * self.operator.slo_s))

    def take_fresh(self) -> Floats:
        """Times of items since the last row."""
        taken = np.concatenate(self.fresh) if self.fresh else np.empty(0)
        self.fresh = []
        return taken

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
            queued=self.arrived - self.processed - self.shed - self.dropped,
            dropped=self.shed + self.dropped,
            compliance=self.compliance,
            mean_duration_s=self.durations.mean_s,
            p95_duration_s=self.durations.quantile(0.95),
            time_to_adapt_s=None,
            late_episode_s=None,
            slo_s=self.operator.slo_s,
            p50_duration_s=self.durations.quantile(0.5),
            p99_duration_s=self.durations.quantile(0.99),
        )


@dataclass
class SourceTally:
    """Counts of source items, which are done when all items derived from them are processed.

    slo_s: end-to-end latency target, None if there is none. shed: items that were shed on request;
    dropped: items that found a full buffer. fresh_late: late items since the last
    row of the time series; fresh: latencies since then; window: since the last measurement.
    """

    slo_s: float | None
    arrived: int = 0
    finished: int = 0
    shed: int = 0
    dropped: int = 0
    late: int = 0
    fresh_late: int = 0
    longest_s: float = 0.0
    latencies: LatencySketch = field(default_factory=LatencySketch)
    fresh: list[Floats] = field(default_factory=list)
    window: list[Floats] = field(default_factory=list)

    def count(self, latencies: Floats, slo_s: float | None = None) -> None:
        """Count finished items. latencies: end to end. slo_s: their own target, if any."""
        if not len(latencies):
            return
        self.finished += len(latencies)
        self.longest_s = max(self.longest_s, float(latencies.max()))
        self.latencies.add(latencies)
        self.fresh.append(latencies)
        self.window.append(latencies)
        target_s = self.slo_s if slo_s is None else slo_s
        if target_s is not None:
            late = int(np.count_nonzero(latencies > target_s))
            self.late += late
            self.fresh_late += late

    def take_window(self) -> Floats:
        """Latencies since the last call."""
        taken = np.concatenate(self.window) if self.window else np.empty(0)
        self.window = []
        return taken

    def take_fresh(self) -> Floats:
        """Latencies since the last row; the count of late items starts again."""
        self.fresh_late = 0
        taken = np.concatenate(self.fresh) if self.fresh else np.empty(0)
        self.fresh = []
        return taken
