"""A submitted Python application in its driver, with an autoscaler for its session.

`run` runs the application as if it were started directly, and attaches the autoscaler to its first
session, and again if it stops the session and creates another.

Only settings of Spark that the command could not see (those of the session itself) end the process,
before the application uses its first session. Any other error is a warning, and the application
continues without an autoscaler: a journal, a port, a disk or another version of Tidegate never ends
it.
"""

from __future__ import annotations

import logging
import runpy
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.errors import SettingError
from tidegate.logs import handled_by, log_fields, log_formatter
from tidegate.spark.autoscaler.attachment import driver_log_format, read_attachment
from tidegate.spark.autoscaler.autoscaler import STOP_S, Autoscaler

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run"]

log = logging.getLogger(__name__)

WRONG_SETTINGS = 2


def run(words: Sequence[str]) -> int:
    """Run an application with an autoscaler; return its exit code.

    words: the `Attachment` as JSON, the application's file, and its own arguments.
    """
    settings, app, *arguments = words
    # Only Tidegate's logger: the application decides on its own logging.
    handler = logging.StreamHandler()
    handler.setFormatter(log_formatter(driver_log_format(), "tidegate: %(message)s"))
    with handled_by(handler, ("tidegate",)):
        return _run(lambda spark: read_attachment(settings).autoscaler(spark), app, arguments)


def _run(make: Callable[[SparkSession], Autoscaler], app: str, arguments: Sequence[str]) -> int:
    attached = _on_first_session(make)
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
    return 0


def _end(attached: list[Autoscaler]) -> None:
    """Stop the autoscaler without hiding how the application ended."""
    if not attached:
        log.warning(
            "nothing was scaled: the application created no session with "
            "SparkSession.builder.getOrCreate()"
        )
    end_s = time.monotonic() + STOP_S
    for autoscaler in attached:
        with suppress(Exception):
            autoscaler.stop()
        if autoscaler.dry_run_account is not None:
            with suppress(Exception):
                report = autoscaler.dry_run_report(end_s - time.monotonic())
                if driver_log_format() == "json":
                    log.warning("%s", report)
                else:
                    print(report, file=sys.stderr)


def _of_spark(error: Exception) -> bool:
    """Whether an error is about a setting of Spark, which the command could not check.

    The command has checked all others. What is wrong with them here is another version of Tidegate.
    """
    return isinstance(error, SettingError) and error.key.partition(".")[0] == "spark"


def _on_first_session(make: Callable[[SparkSession], Autoscaler]) -> list[Autoscaler]:
    """Attach an autoscaler to the first session of each application that this process creates.

    make: creates the autoscaler. Returns a list that holds the present one from then on. Settings
    of Spark under which nothing can be scaled end the process before its first session is used; any
    other error is a warning.
    """
    from pyspark.sql import SparkSession

    maker: Any = SparkSession.Builder
    original = maker.getOrCreate
    attached: list[Autoscaler] = []
    seen: list[object] = []

    def get_or_create(builder: SparkSession.Builder) -> SparkSession:
        spark: SparkSession = original(builder)
        application = getattr(getattr(spark, "sparkContext", None), "applicationId", None)
        if application in seen:  # all its sessions are scaled
            return spark
        seen.append(application)
        if attached:
            log.warning("the session was stopped and another one was created: attaching to it")
            _end(attached)
            attached.clear()
        with log_fields(application=application):
            try:
                attached.append(make(spark).start())
            except Exception as error:
                if _of_spark(error) and len(seen) == 1:
                    log.error("%s", error)
                    sys.exit(WRONG_SETTINGS)
                log.warning("not attached, the application runs without an autoscaler: %s", error)
        return spark

    maker.getOrCreate = get_or_create
    return attached
