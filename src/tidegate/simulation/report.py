"""The results of a run: items, service levels, latencies, costs and scaling operations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidegate.codec import Value
from tidegate.model.topology import Operator, Topology
from tidegate.simulation.hosts import SimulatedHosts
from tidegate.simulation.kernels import state as at
from tidegate.simulation.kernels.sketch import quantile_of
from tidegate.simulation.kernels.state import Network
from tidegate.simulation.settings import CloudSettings

__all__ = [
    "BoundedSeries",
    "Compliance",
    "OperatorReport",
    "RunReport",
    "RunSeries",
    "make_report",
]

Floats = NDArray[np.float64]
Column = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Compliance(Value):
    """Shares of items within the SLO (real-time), twice (near-real-time) and five times the SLO."""

    real_time: float
    near_real_time: float
    relaxed: float


@dataclass(frozen=True, slots=True)
class OperatorReport(Value):
    """The results of one operator. Always arrived = processed + queued + dropped.

    Attributes:
        operator: Its name.
        arrived: Items that arrived.
        processed: Items that were processed.
        queued: Items that wait or are in work at the end.
        dropped: Items that found the queue full.
        compliance: Compliance with its own SLO, None without an SLO or items.
        mean_duration_s: Mean time in the operator with waiting, in seconds.
        p95_duration_s: 95th percentile of that time, in seconds.
        time_to_adapt_s: Mean time from the last item that took more than five times the SLO to the
            next one within it, in seconds.
        late_episode_s: The same from the first such item, in seconds.
        slo_s: Its own SLO, in seconds, None without one.
        p50_duration_s: Median of the time in the operator, in seconds.
        p99_duration_s: 99th percentile of that time, in seconds.
    """

    operator: str
    arrived: int
    processed: int
    queued: int
    dropped: int
    compliance: Compliance | None
    mean_duration_s: float | None
    p95_duration_s: float | None
    time_to_adapt_s: float | None
    late_episode_s: float | None
    slo_s: float | None = None
    p50_duration_s: float | None = None
    p99_duration_s: float | None = None

    @property
    def in_time(self) -> float | None:
        """Share of its processed items within its own SLO, None without an SLO or items."""
        return None if self.compliance is None else self.compliance.real_time


@dataclass(frozen=True, slots=True)
class RunSeries(Value):
    """The time series of a run, with an entry for each monitoring interval (or several of them).

    time_s: end of the interval. Rates are per second; latencies are those of the items finished in
    the interval. compliance: share of finished items within the end-to-end SLO. real_time: share of
    processed items within their operator's SLO. hosts: leased hosts. host_load_…: CPU utilisation
    of running hosts. operators: by name, queue, arrival_rate_per_s, processed_per_s, instances and
    late; in micro-batches also latency_mean_s and latency_p95_s.
    """

    time_s: Column
    arrival_rate_per_s: Column
    finished_per_s: Column
    dropped_per_s: Column
    latency_mean_s: Column
    latency_p95_s: Column
    compliance: Column
    real_time: Column
    hosts: Column
    hosts_running: Column
    host_load_min: Column
    host_load_mean: Column
    host_load_max: Column
    operators: Mapping[str, Mapping[str, Column]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunReport(Value):
    """The results of a run. Always items_in = items_out + items_queued + items_dropped.

    Items are those of the sources. An item is out when all items derived from it are processed, and
    dropped when it was shed or a derived item found a queue full. compliance: over the items of all
    operators with an SLO. slo_compliance: share of items out within the end-to-end SLO. rescales:
    plans with at least one step; steps: number of steps by kind. host_load_…: CPU utilisation over
    hosts and monitoring intervals.
    """

    duration_s: float
    items_in: int
    items_out: int
    items_queued: int
    items_dropped: int
    items_shed: int
    operators: tuple[OperatorReport, ...]
    compliance: Compliance | None
    slo_compliance: float | None
    latency_mean_s: float | None
    latency_p50_s: float | None
    latency_p90_s: float | None
    latency_p95_s: float | None
    latency_p99_s: float | None
    latency_max_s: float | None
    paid_units: int
    resource_cost_usd: float
    late_items: int
    penalty_cost_usd: float
    rescales: int
    steps: Mapping[str, int]
    migrations: int
    failures: int
    refused: int
    time_to_adapt_s: float | None
    late_episode_s: float | None
    host_load_min: float | None
    host_load_mean: float | None
    host_load_max: float | None
    host_seconds: float
    peak_hosts: int
    series: RunSeries

    @property
    def by_operator(self) -> dict[str, OperatorReport]:
        """The results of each operator or query by its name."""
        return {operator.operator: operator for operator in self.operators}

    @property
    def total_cost_usd(self) -> float:
        """Cost of hosts and penalties."""
        return self.resource_cost_usd + self.penalty_cost_usd


ROWS_AT_ONCE = 512
"""Rows that the time series merges in one go: NumPy is slow on few rows."""


class BoundedSeries:
    """Rows of the time series as the kernels write them, in bounded memory.

    Once `limit` rows are full, pairs of rows are merged: counts are added; numbers of hosts,
    instances and waiting items are averaged; the minimum and maximum load remain; the 95th
    percentile becomes the greater of the two.

    operators: number of operators. limit: most rows; with 0, none is kept.
    """

    def __init__(self, operators: int, limit: int) -> None:
        width = at.ROW_OPERATORS + at.ROW_PER_OPERATOR * operators
        self._rows = np.empty((limit, width))
        self._used = 0
        self._step = 1
        self._held: list[Floats] = []
        self._held_rows = 0
        per_operator = range(at.ROW_OPERATORS, width, at.ROW_PER_OPERATOR)
        self._averaged = [at.ROW_HOSTS, at.ROW_RUNNING, at.ROW_LOAD_MEAN]
        self._averaged += [column + at.OP_QUEUE for column in per_operator]
        self._averaged += [column + at.OP_INSTANCES for column in per_operator]

    def append(self, rows: Floats) -> None:
        """Add rows of single monitoring intervals, which the series keeps."""
        if not len(self._rows):
            return
        self._held.append(rows)
        self._held_rows += len(rows)
        if self._held_rows >= ROWS_AT_ONCE:
            self._fold()

    def _fold(self) -> None:
        """Merge the held rows in groups of `_step`; what is no whole group remains held."""
        held = np.concatenate(self._held)
        while len(held) >= self._step:
            free = len(self._rows) - self._used
            if not free:
                held = np.concatenate([self._halve(), held])
                continue
            groups = min(free, len(held) // self._step)
            first = groups * self._step
            self._rows[self._used : self._used + groups] = self._merge(held[:first], self._step)
            self._used += groups
            held = held[first:]
        self._held, self._held_rows = [held.copy()], len(held)

    def _halve(self) -> Floats:
        """Merge pairs of rows; returns an odd row, which waits for its partner."""
        even = self._used // 2 * 2
        odd = self._rows[even : self._used].copy()
        self._used = even // 2
        self._rows[: self._used] = self._merge(self._rows[:even], 2)
        self._step *= 2
        return odd

    def _merge(self, rows: Floats, size: int) -> Floats:
        """Rows of which each sums up `size` rows."""
        if size == 1:
            return rows
        groups = rows.reshape(-1, size, rows.shape[1])
        merged: Floats = groups.sum(axis=1)
        merged[:, self._averaged] /= size
        merged[:, at.ROW_TIME] = groups[:, -1, at.ROW_TIME]
        for column, pick in (
            (at.ROW_P95_S, np.fmax),
            (at.ROW_LOAD_MIN, np.fmin),
            (at.ROW_LOAD_MAX, np.fmax),
        ):
            merged[:, column] = pick.reduce(groups[:, :, column], axis=1)
        return merged

    @property
    def rows(self) -> Floats:
        """All rows, oldest first."""
        if self._held:
            self._fold()
        rest = [self._merge(held, len(held)) for held in self._held if len(held)]
        return np.vstack([self._rows[: self._used], *rest])


def make_report(
    now_s: float,
    topology: Topology,
    settings: CloudSettings,
    net: Network,
    hosts: SimulatedHosts,
    rows: Floats,
) -> RunReport:
    """The results as of now; the run can continue.

    Args:
        now_s: Simulated time, in seconds.
        topology: The operators.
        settings: Behaviour of the simulated cloud.
        net: The state of all queues.
        hosts: The leased hosts.
        rows: The time series so far.
    """
    operators = tuple(_operator(net, o, whole) for o, whole in enumerate(topology.operators))
    bound = np.array([operator.slo_s is not None for operator in topology.operators])
    tally, whole = net.tally[bound], net.whole
    processed = float(tally[:, at.PROCESSED].sum())
    late = [float(tally[:, column].sum()) for column in (at.LATE_1, at.LATE_2, at.LATE_5)]
    adapted = float(tally[:, at.ADAPTED].sum())
    finished = float(whole[at.OUT])  # in a flow, a real number, and so are the late ones
    out = int(finished)
    dropped = int(whole[at.SHED] + whole[at.SPOILT])
    counts = net.sketch[len(operators)] + net.sketch[len(operators) + 1]
    quantiles = [_quantile(counts, out, q) for q in (0.5, 0.9, 0.95, 0.99)]
    load_count = float(whole[at.LOAD_COUNT])
    judged = settings.end_to_end_slo_s is not None and out > 0
    return RunReport(
        duration_s=now_s,
        items_in=int(whole[at.IN]),
        items_out=out,
        items_queued=int(whole[at.IN]) - out - dropped,
        items_dropped=dropped,
        items_shed=int(whole[at.SHED]),
        operators=operators,
        compliance=_compliance(processed, late),
        slo_compliance=_in_time(float(whole[at.LATE]), finished) if judged else None,
        latency_mean_s=float(whole[at.SOJOURN_S]) / finished if out else None,
        latency_p50_s=quantiles[0],
        latency_p90_s=quantiles[1],
        latency_p95_s=quantiles[2],
        latency_p99_s=quantiles[3],
        latency_max_s=float(whole[at.SOJOURN_MAX_S]) if out else None,
        late_items=int(late[0]),
        penalty_cost_usd=late[0] * settings.penalty_usd,
        time_to_adapt_s=float(tally[:, at.ADAPT_S].sum()) / adapted if adapted else None,
        late_episode_s=float(tally[:, at.EPISODE_S].sum()) / adapted if adapted else None,
        host_load_min=float(whole[at.LOAD_MIN]) if load_count else None,
        host_load_mean=float(whole[at.LOAD_SUM]) / load_count if load_count else None,
        host_load_max=float(whole[at.LOAD_MAX]) if load_count else None,
        series=_series(rows, tuple(topology.by_name), settings),
        **hosts.report(now_s),
    )


def _quantile(counts: NDArray[np.int64], total: int, share: float) -> float | None:
    return float(quantile_of(counts, total, share)) if total else None


def _compliance(processed: float, late: list[float]) -> Compliance | None:
    if processed == 0:
        return None
    return Compliance(*(_in_time(count, processed) for count in late))


def _in_time(late: float, of: float) -> float:
    return max(0.0, 1 - late / of)  # in a flow, sums differ by rounding


def _operator(net: Network, o: int, operator: Operator) -> OperatorReport:
    row = net.tally[o]
    exact, adapted = float(row[at.PROCESSED]), float(row[at.ADAPTED])
    processed = int(exact)
    working = int(
        np.count_nonzero((net.slot_i[o, at.ALIVE] != at.NO_SERVER) & (net.slot_i[o, at.ROOT] >= 0))
    )
    late = [float(row[column]) for column in (at.LATE_1, at.LATE_2, at.LATE_5)]
    has_slo = bool(np.isfinite(net.ops_f[o, at.SLO_S]))
    p50_s, p95_s, p99_s = (_quantile(net.sketch[o], processed, q) for q in (0.5, 0.95, 0.99))
    return OperatorReport(
        operator.name,
        arrived=int(row[at.ARRIVED]),
        processed=processed,
        queued=int(net.ends[o, at.TAIL] - net.ends[o, at.HEAD]) + working,
        dropped=int(row[at.DROPPED]),
        compliance=_compliance(exact, late) if has_slo and processed else None,
        mean_duration_s=float(row[at.DURATION_S]) / exact if processed else None,
        p95_duration_s=p95_s,
        time_to_adapt_s=float(row[at.ADAPT_S]) / adapted if adapted else None,
        late_episode_s=float(row[at.EPISODE_S]) / adapted if adapted else None,
        slo_s=operator.slo_s,
        p50_duration_s=p50_s,
        p99_duration_s=p99_s,
    )


def _column(values: Floats) -> Column:
    if not np.isnan(values).any():
        return tuple(values.tolist())
    return tuple(None if math.isnan(value) else value for value in values.tolist())


def _series(rows: Floats, names: tuple[str, ...], settings: CloudSettings) -> RunSeries:
    times = rows[:, at.ROW_TIME]
    span = np.diff(times, prepend=0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        per_s = rows / span[:, None]
        latency = rows[:, at.ROW_SOJOURN_S] / rows[:, at.ROW_OUT]
        within = 1 - rows[:, at.ROW_LATE] / rows[:, at.ROW_OUT]
        in_time = 1 - rows[:, at.ROW_LATE_ITEMS] / rows[:, at.ROW_PROCESSED]
        if settings.end_to_end_slo_s is None:
            within = np.full(len(rows), np.nan)
        operators = {}
        for o, name in enumerate(names):
            first = at.ROW_OPERATORS + at.ROW_PER_OPERATOR * o
            operators[name] = {
                "queue": _column(rows[:, first + at.OP_QUEUE]),
                "arrival_rate_per_s": _column(per_s[:, first + at.OP_ARRIVED]),
                "processed_per_s": _column(per_s[:, first + at.OP_PROCESSED]),
                "instances": _column(rows[:, first + at.OP_INSTANCES]),
                "late": _column(rows[:, first + at.OP_LATE] / rows[:, first + at.OP_PROCESSED]),
            }
    return RunSeries(
        time_s=_column(times),
        arrival_rate_per_s=_column(per_s[:, at.ROW_IN]),
        finished_per_s=_column(per_s[:, at.ROW_OUT]),
        dropped_per_s=_column(per_s[:, at.ROW_DROPPED]),
        latency_mean_s=_column(latency),
        latency_p95_s=_column(rows[:, at.ROW_P95_S]),
        compliance=_column(within),
        real_time=_column(in_time),
        hosts=_column(rows[:, at.ROW_HOSTS]),
        hosts_running=_column(rows[:, at.ROW_RUNNING]),
        host_load_min=_column(rows[:, at.ROW_LOAD_MIN]),
        host_load_mean=_column(rows[:, at.ROW_LOAD_MEAN]),
        host_load_max=_column(rows[:, at.ROW_LOAD_MAX]),
        operators=operators,
    )
