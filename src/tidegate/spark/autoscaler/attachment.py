"""The settings of an autoscaler as a value that is sent to where the driver runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, get_args

from tidegate.codec import Value, from_newer_json
from tidegate.errors import BackendError, InputError
from tidegate.logs import LogFormat, log_format
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.model import SloByQuery
from tidegate.policies import DEFAULT_POLICY
from tidegate.policies.base import Situation
from tidegate.report.metrics import Metrics, ServedMetrics, serve_metrics_on
from tidegate.spark.autoscaler.autoscaler import Autoscaler
from tidegate.spark.autoscaler.gateway import Gateway
from tidegate.spark.autoscaler.world import SloBy
from tidegate.units import duration_s, finite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Attachment", "driver_log_format", "read_attachment"]

log = logging.getLogger(__name__)

_served: dict[ServedMetrics, Metrics] = {}
"""Metrics by address: an application that creates a second session keeps its first one."""


@dataclass(frozen=True, slots=True)
class Attachment(Value):
    """The settings of an autoscaler as they are sent to the driver; see `Autoscaler` for each."""

    slo: str
    policy: str = DEFAULT_POLICY
    parameters: Mapping[str, Any] = field(default_factory=dict)
    guards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    min_executors: int = 1
    max_executors: int | None = None
    interval: str = "10s"
    stabilise: str = "60s"
    when_blind: str = "hold"
    blind_after: str = "60s"
    initial_executors: int | None = None
    scheduled_minimum: str = ""
    time_zone: str = "UTC"
    without_guards: tuple[str, ...] = ()
    journal: str = "tidegate.jsonl"
    dry_run: bool = False
    price_per_hour: float = 0.0
    billing_unit: str = "1h"
    metrics: ServedMetrics = field(default_factory=ServedMetrics)
    slo_by: SloBy = "delay"

    def check(self) -> None:
        """Raise InputError for settings that are wrong, before Spark starts."""
        if self.slo_by not in get_args(SloBy):
            raise InputError("--slo-by", self.slo_by, "delay or event-age")
        duration_s(self.interval, "--interval")
        duration_s(self.billing_unit, "--billing-unit")
        finite(self.price_per_hour, "--price-per-hour", low=0)
        self.metrics.check()
        finite(self.min_executors, "--min-executors", low=1)
        if self.max_executors is not None:
            at_least = f"--min-executors is {self.min_executors}"
            finite(self.max_executors, "--max-executors", low=self.min_executors, remedy=at_least)
        options = StackOptions(
            self.parameters,
            self.guards,
            self.without_guards,
            min_hosts=self.min_executors,
            max_hosts=self.max_executors,
            stabilise_s=duration_s(self.stabilise, "--stabilise"),
            when_blind=self.when_blind,
            blind_after_s=duration_s(self.blind_after, "--blind-after"),
            initial_hosts=self.initial_executors,
            scheduled_minimum=self.scheduled_minimum,
            time_zone=self.time_zone,
        )
        slo = SloByQuery.read(self.slo, "--slo")
        build_stack(self.policy, Situation(slo.largest_s), options)

    def autoscaler(self, spark: SparkSession | Gateway) -> Autoscaler:
        """An autoscaler for an application, not started; its metrics are served from now on."""
        metrics, problem = self._metrics()
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "metrics"}
        made = Autoscaler(spark, on_turn=metrics.observe, **own)
        if problem:  # in the journal too: nobody may read the log, and scrapers find nothing
            made.controller.note(problem)
        return made

    def _metrics(self) -> tuple[Metrics, str]:
        """The metrics, and why they are not served, if they should be.

        They are served until the process ends, so that the last turn is scraped too.
        """
        if self.metrics in _served:
            return _served[self.metrics], ""
        metrics = Metrics(SloByQuery.read(self.slo, "--slo").default_s)
        try:
            at = self.metrics.listening()
            if at is not None:
                log.warning("metrics: %s", serve_metrics_on(metrics, at))
                _served[self.metrics] = metrics
        except Exception as error:
            log.warning("there are no metrics: %s", error)
            return metrics, f"there are no metrics: {error}"
        return metrics, ""


def driver_log_format() -> LogFormat:
    """The format of the logs where the driver runs; text if the variable has another value."""
    try:
        return log_format()
    except InputError:  # the command has checked it, but the cluster may set another one
        return "text"


def read_attachment(settings: str) -> Attachment:
    """The attachment; the command may be of a newer version than the driver."""
    try:
        attachment, unknown = from_newer_json(Attachment, settings)
    except InputError as error:
        raise BackendError(f"the settings cannot be read: {error}") from None
    if unknown:
        log.warning("these settings are unknown in the driver and ignored: %s", ", ".join(unknown))
    return attachment
