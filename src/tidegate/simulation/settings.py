"""Settings of the simulated cloud and of the simulated Spark application."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import NormalDist
from typing import Literal

import numpy as np

from tidegate.codec import Value
from tidegate.errors import SettingError
from tidegate.model.topology import Operator
from tidegate.units import finite

__all__ = ["BatchSettings", "CloudSettings", "FluidInflow", "ServiceKind", "ServiceTime"]

FluidInflow = Literal["drawn", "expected"]
ServiceKind = Literal["exponential", "deterministic", "lognormal", "empirical"]


@dataclass(frozen=True, slots=True)
class ServiceTime(Value):
    """The distribution of the time that an instance works on one item.

    kind: the distribution. mean_s: its mean in seconds (for ``empirical``, of the samples).
    scv: squared coefficient of variation; given by the kind except for ``lognormal``.
    samples_s: the values that ``empirical`` draws from, with replacement.
    """

    kind: ServiceKind
    mean_s: float
    scv: float = 1.0
    samples_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        finite(self.mean_s, "service: mean_s", above=0, error=SettingError)
        finite(self.scv, "service: scv", low=0, error=SettingError)
        if (self.kind == "empirical") != bool(self.samples_s):
            allowed = "given for empirical service times, and only for them"
            raise SettingError("service: samples_s", self.samples_s, allowed)
        for sample in self.samples_s:
            finite(sample, "service: samples_s", low=0, error=SettingError)

    @staticmethod
    def of_samples(samples_s: tuple[float, ...]) -> ServiceTime:
        """The empirical distribution of measured service times.

        >>> ServiceTime.of_samples((0.1, 0.3)).scv
        0.25
        """
        values = np.array(samples_s, np.float64)
        mean = float(values.mean()) if len(values) else 0.0
        scv = round(float(values.var()) / mean**2, 12) if mean else 0.0
        return ServiceTime("empirical", mean, scv, tuple(samples_s))

    @property
    def variation(self) -> float:
        """The squared coefficient of variation, by the kind or as given."""
        return {"deterministic": 0.0, "exponential": 1.0}.get(self.kind, self.scv)

    def parts_s(self, count: int) -> list[float]:
        """Mean times of `count` equal parts of the items, the quickest first.

        >>> ServiceTime("deterministic", 2.0).parts_s(2)
        [2.0, 2.0]
        >>> [round(part, 2) for part in ServiceTime("exponential", 1.0).parts_s(4)]
        [0.14, 0.48, 1.0, 2.39]
        """
        if self.kind == "empirical":
            samples = np.sort(np.repeat(self.samples_s, count)).reshape(count, -1)
            return [float(part) for part in samples.mean(axis=1)]
        # The share of all time that the quickest items take, up to each border between two parts.
        if self.kind == "exponential":
            slower = [1 - part / count for part in range(count + 1)]
            taken = [1 - x * (1 - math.log(x)) if x > 0 else 1.0 for x in slower]
        else:
            sigma = math.sqrt(math.log1p(self.variation))
            normal = NormalDist()
            inner = [normal.cdf(normal.inv_cdf(k / count) - sigma) for k in range(1, count)]
            taken = [0.0, *inner, 1.0]
        return [self.mean_s * count * (after - before) for before, after in pairwise(taken)]


@dataclass(frozen=True)
class CloudSettings(Value):
    """How a simulated cloud behaves. Every range is uniform, (low, high).

    Args:
        host_startup_s: Time from the lease of a host until it runs; None for that of the offer.
        instance_startup_s: Time that an instance takes to start on a running host.
        image_download_s: Time before that, if the host has not cached the image.
        service: Service times by operator; they replace the operator's mean and variation (0:
            deterministic, 1: exponential, else lognormal).
        queue_limit: Most items that may wait at each operator, None for no limit.
        queue_limits: The same by operator.
        contention_s: Interval at which the slow-down of overloaded hosts is computed.
        bandwidth_mbps: Bandwidth for the state of a moving instance.
        migration_pause_s: Pause of a moving instance in addition to that.
        host_failures_s: Times at which a running host fails, chosen at random.
        host_failures_per_h: Failures of each host per hour, on average.
        monitoring_s: Interval of the time series.
        decision_s: Time until the next decision that snapshots state.
        sample_every: Durations are measured of every n-th item.
        measurement_delay_s: Age of measurements.
        measurement_noise: Standard deviation of a random factor on rates, times and loads.
        quantise_timestamps: Whether the clocks of senders show whole seconds, as in VISP.
        trigger_interval_s: Trigger interval of the micro-batches that snapshots report, None for
            none.
        penalty_usd: Penalty for each item that misses the SLO of an operator.
        end_to_end_slo_s: End-to-end latency target, None for none.
        arrival_chunk_s: Length of the chunks in which arrivals are drawn.
        series_rows: Most rows of the time series; once it is full, pairs of rows are merged. 0 for
            a report without a time series.
        fluid_step_s: Step of `FluidCloud`.
        fluid_inflow: What flows into `FluidCloud`: as many items in each step as the workload draws
            at random (``drawn``), or as many as it expects (``expected``), which takes less time
            and lets policies see a load without noise.
    """

    host_startup_s: tuple[float, float] | None = (30.0, 60.0)
    instance_startup_s: tuple[float, float] = (5.0, 10.0)
    image_download_s: float = 20.0
    service: Mapping[str, ServiceTime] = field(default_factory=dict)
    queue_limit: int | None = None
    queue_limits: Mapping[str, int] = field(default_factory=dict)
    contention_s: float = 1.0
    bandwidth_mbps: float = 1000.0
    migration_pause_s: float = 0.5
    host_failures_s: tuple[float, ...] = ()
    host_failures_per_h: float = 0.0
    monitoring_s: float = 15.0
    decision_s: float | None = 60.0
    sample_every: int = 10
    measurement_delay_s: float = 0.0
    measurement_noise: float = 0.0
    quantise_timestamps: bool = False
    trigger_interval_s: float | None = None
    penalty_usd: float = 0.0001
    end_to_end_slo_s: float | None = None
    arrival_chunk_s: float = 60.0
    series_rows: int = 4096
    fluid_step_s: float = 1.0
    fluid_inflow: FluidInflow = "drawn"

    def __post_init__(self) -> None:
        for name in (
            "contention_s",
            "bandwidth_mbps",
            "monitoring_s",
            "arrival_chunk_s",
            "fluid_step_s",
        ):
            finite(getattr(self, name), name, above=0, error=SettingError)
        for name in ("decision_s", "trigger_interval_s", "end_to_end_slo_s"):
            if (value := getattr(self, name)) is not None:
                finite(value, name, above=0, error=SettingError)
        for name in (
            "image_download_s",
            "migration_pause_s",
            "host_failures_per_h",
            "measurement_delay_s",
            "measurement_noise",
            "penalty_usd",
        ):
            finite(getattr(self, name), name, low=0, error=SettingError)
        for name in ("host_startup_s", "instance_startup_s"):
            if (bounds := getattr(self, name)) is not None and not 0 <= bounds[0] <= bounds[1]:
                raise SettingError(name, bounds, "two rising numbers of at least 0, in seconds")
        finite(self.sample_every, "sample_every", low=1, error=SettingError)
        if self.series_rows != 0:
            finite(self.series_rows, "series_rows", low=2, error=SettingError)
        for key, limit in (("queue_limit", self.queue_limit), *self.queue_limits.items()):
            if limit is not None:
                finite(limit, f"queue limit of {key}", low=1, error=SettingError)

    def service_of(self, operator: Operator) -> ServiceTime:
        """The service time of an operator: from these settings, else from the operator."""
        given = self.service.get(operator.name)
        if given is not None:
            return given
        if operator.service_time_s is None:
            key = f"operator {operator.name}: service_time_s"
            raise SettingError(key, None, "given", "declare it or set CloudSettings.service")
        kinds: dict[float, ServiceKind] = {0.0: "deterministic", 1.0: "exponential"}
        kind = kinds.get(operator.service_scv, "lognormal")
        return ServiceTime(kind, operator.service_time_s, operator.service_scv)

    def queue_limit_of(self, operator: str) -> int | None:
        """Most items that may wait at an operator, None for no limit."""
        return self.queue_limits.get(operator, self.queue_limit)


@dataclass(frozen=True)
class BatchSettings(Value):
    """How a simulated Spark application behaves.

    A batch of n items on k slots takes o + (W + n·s)/k; s is the operator's service time. Mappings
    hold values by query, which replace the common one.

    Args:
        overhead_s: o, the part of each batch that more slots do not shorten, in seconds.
        overheads_s: The same by query.
        overhead_scv: Squared coefficient of variation of the overhead.
        fixed_work_s: W, slot-seconds of work in each batch, however many items it has.
        fixed_works_s: The same by query.
        trigger_interval_s: Trigger interval in seconds, 0 if the next batch starts at once.
        trigger_intervals_s: The same by query.
        max_rows: Most items that a batch admits, by query; the others wait.
        buffer_rows: Most items that wait for a batch, by query. Items that come when the buffer is
            full are dropped, as by an engine that sheds, so the backlog stays bounded.
        change_s: Time by which the first batch of a query takes longer after executors came or
            left, by query, in seconds: its state moves.
        shared: Whether the queries share all slots of all executors, as in an application without
            live settings; otherwise each query has the slots of its instances. It makes no
            difference to a single query.
        host_startup_s: Time from the request of an executor until it runs, uniform (low, high);
            None for that of the offer.
        warm_up_s: Time until the slots of a new executor take tasks, in seconds.
        lag_visible: Whether the source reports its backlog.
        tasks: Tasks of a batch of a pooled query, None for no limit.
        decision_s: Time until the next decision that snapshots state, in seconds.
        monitoring_s: Interval of the time series, in seconds.
        end_to_end_slo_s: End-to-end latency target, in seconds. Items of independent queries are
            judged by the SLO of the query that processes them, where it has one.
        penalty_usd: Penalty for each item that misses the end-to-end target; without one, for each
            item that misses the SLO of a query.
    """

    overhead_s: float = 0.5
    overheads_s: Mapping[str, float] = field(default_factory=dict)
    overhead_scv: float = 0.0
    fixed_work_s: float = 0.0
    fixed_works_s: Mapping[str, float] = field(default_factory=dict)
    trigger_interval_s: float = 0.0
    trigger_intervals_s: Mapping[str, float] = field(default_factory=dict)
    max_rows: Mapping[str, int] = field(default_factory=dict)
    buffer_rows: Mapping[str, int] = field(default_factory=dict)
    change_s: Mapping[str, float] = field(default_factory=dict)
    shared: bool = False
    host_startup_s: tuple[float, float] | None = None
    warm_up_s: float = 0.0
    lag_visible: bool = True
    tasks: int | None = None
    decision_s: float | None = None
    monitoring_s: float = 15.0
    end_to_end_slo_s: float | None = None
    penalty_usd: float = 0.0

    def __post_init__(self) -> None:
        for name in (
            "overhead_s",
            "overhead_scv",
            "fixed_work_s",
            "trigger_interval_s",
            "warm_up_s",
        ):
            finite(getattr(self, name), name, low=0, error=SettingError)
        for what, by_query in (
            ("overhead", self.overheads_s),
            ("fixed work", self.fixed_works_s),
            ("trigger interval", self.trigger_intervals_s),
            ("change_s", self.change_s),
        ):
            for name, value in by_query.items():
                finite(value, f"{what} of {name}", low=0, error=SettingError)
        for name, rows in self.max_rows.items():
            finite(rows, f"max_rows of {name}", low=1, error=SettingError)
        for name, rows in self.buffer_rows.items():
            finite(rows, f"buffer_rows of {name}", low=1, error=SettingError)
        finite(self.monitoring_s, "monitoring_s", above=0, error=SettingError)
        finite(self.penalty_usd, "penalty_usd", low=0, error=SettingError)

    def for_hosts(self) -> CloudSettings:
        """The settings that concern executors."""
        return CloudSettings(
            host_startup_s=self.host_startup_s,
            instance_startup_s=(self.warm_up_s, self.warm_up_s),
            image_download_s=0.0,
            migration_pause_s=0.0,
        )
