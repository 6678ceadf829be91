"""An autoscaler for an application that knows nothing of it (``tidegate submit``).

The application runs in this process as if by itself; the first session that it makes gets the
autoscaler. What goes wrong on our side is a warning and the application runs on, except for wrong
settings: these are told at once, before anybody relies on them.
"""

from __future__ import annotations

import logging
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.codec import Value, from_json
from tidegate.errors import InputError
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.policies.base import Situation
from tidegate.report.metrics import Metrics, serve_metrics
from tidegate.spark.autoscaler.autoscaler import Autoscaler
from tidegate.units import duration_s, finite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Attachment", "run"]

log = logging.getLogger(__name__)

WRONG_SETTINGS = 2


@dataclass(frozen=True, slots=True)
class Attachment(Value):
    """The settings of an autoscaler, as they travel to the driver; see `Autoscaler` for each."""

    slo: str
    policy: str = "drs"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    guards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    min_executors: int = 1
    max_executors: int | None = None
    interval: str = "10s"
    stabilise: str = "60s"
    journal: str = "tidegate.jsonl"
    dry_run: bool = False
    price_per_hour: float = 0.0
    billing_unit: str = "1h"
    metrics_port: int | None = None

    def check(self) -> None:
        """Raise InputError for whatever can be known to be wrong before Spark starts."""
        duration_s(self.interval, "--interval")
        duration_s(self.billing_unit, "--billing-unit")
        finite(self.price_per_hour, "--price-per-hour", low=0)
        if self.metrics_port is not None:
            finite(self.metrics_port, "--metrics-port", low=0, high=65_535)
        finite(self.min_executors, "--min-executors", low=1)
        if self.max_executors is not None:
            at_least = f"no less than --min-executors, {self.min_executors}"
            finite(self.max_executors, "--max-executors", low=self.min_executors, remedy=at_least)
        options = StackOptions(
            self.parameters,
            self.guards,
            min_hosts=self.min_executors,
            max_hosts=self.max_executors,
            stabilise_s=duration_s(self.stabilise, "--stabilise"),
        )
        build_stack(self.policy, Situation(duration_s(self.slo, "--slo")), options)
        try:
            Path(self.journal).parent.mkdir(parents=True, exist_ok=True)
            Path(self.journal).open("ab").close()
        except OSError as error:
            why = error.strerror or "it cannot be opened"
            raise InputError("--journal", self.journal, "a file to write to", why) from None

    def autoscaler(self, spark: SparkSession) -> Autoscaler:
        """The autoscaler of a session, not started; its metrics are served from now on."""
        metrics = Metrics(duration_s(self.slo, "--slo"))
        if self.metrics_port is not None:
            # Until the process ends: a scraper wants to see the last turn, too.
            serving = serve_metrics(metrics, self.metrics_port)
            log.warning("metrics: %s", serving.__enter__())
        return Autoscaler(
            spark,
            on_turn=metrics.observe,
            slo=self.slo,
            policy=self.policy,
            parameters=self.parameters,
            guards=self.guards,
            min_executors=self.min_executors,
            max_executors=self.max_executors,
            interval=self.interval,
            stabilise=self.stabilise,
            journal=self.journal,
            dry_run=self.dry_run,
            price_per_hour=self.price_per_hour,
            billing_unit=self.billing_unit,
        )


def run(words: Sequence[str]) -> int:
    """Run an application with an autoscaler; return its exit code.

    words: the `Attachment` as JSON, the application's file, and its own arguments.
    """
    settings, app, *arguments = words
    # Ours alone: how the application logs, and where, is its own to say.
    ours, handler = logging.getLogger("tidegate"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("tidegate: %(message)s"))
    ours.addHandler(handler)
    ours.propagate = False
    attached = _on_first_session(from_json(Attachment, settings).autoscaler)
    sys.argv = [app, *arguments]
    sys.path.insert(0, str(Path(app).resolve().parent))  # as Python itself does for a script
    try:
        runpy.run_path(app, run_name="__main__")
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except KeyboardInterrupt:
        return 130
    finally:
        _end(attached)
        ours.removeHandler(handler)
        ours.propagate = True
    return 0


def _end(attached: list[Autoscaler]) -> None:
    """Stop the autoscaler, which must not hide how the application ended."""
    if not attached:
        log.warning(
            "nothing was scaled: no session of SparkSession.builder.getOrCreate() was attached to"
        )
    for autoscaler in attached:
        with suppress(Exception):
            autoscaler.stop()
        if autoscaler.books is not None:
            print(autoscaler.account(), file=sys.stderr)


def _on_first_session(make: Callable[[SparkSession], Autoscaler]) -> list[Autoscaler]:
    """Have the first session that this process makes get an autoscaler.

    make: makes it. Returns a list that holds it from then on. Wrong settings end the process; any
    other error is a warning.
    """
    from pyspark.sql import SparkSession

    maker: Any = SparkSession.Builder
    original = maker.getOrCreate
    attached: list[Autoscaler] = []

    def get_or_create(builder: SparkSession.Builder) -> SparkSession:
        spark: SparkSession = original(builder)
        maker.getOrCreate = original
        try:
            attached.append(make(spark).start())
        except InputError as error:
            print(f"tidegate: {error}", file=sys.stderr, flush=True)
            sys.exit(WRONG_SETTINGS)
        except Exception as error:
            log.warning("not attached, the application runs without: %s", error)
        return spark

    maker.getOrCreate = get_or_create
    return attached
