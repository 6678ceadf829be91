"""What differs between the versions of Spark, in one place.

`Version` calls Spark 4, and a subclass overrides what an older version does differently. Only calls
to Spark's internal classes are here; everything else is the same in all versions.
``make test-versions`` runs the autoscaler on each version in `KNOWN_VERSIONS`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from tidegate.errors import SettingError
from tidegate.spark.autoscaler.jobs import root_execution

__all__ = [
    "KNOWN_VERSIONS",
    "Version",
    "is_known",
    "require_spark_4",
    "version_of",
    "warn_if_untested",
]

log = logging.getLogger(__name__)

KNOWN_VERSIONS = ("3.5", "4.0", "4.1", "4.2", "4.3")
"""The minor versions of Spark on which the autoscaler is tested, see docs/reference/versions.md."""
EXECUTIONS = 20
"""Number of SQL executions, the newest, among which the one of a job is searched."""


class Version:
    """Calls to the driver of Spark 4.0 and later."""

    def batch_began_ms(self, execution: Any) -> int:
        """When the batch of a query's execution began, Unix milliseconds; -1 before the first."""
        return int(execution.getLatestExecutionContext().currentTriggerStartTimestamp())

    def root_execution(self, job: Mapping[str, Any], shared: Any) -> int | None:
        """The SQL execution of the batch within which a job was started, None when unknown.

        job: as JSON; shared: the shared state of the application's sessions.
        """
        return root_execution(job)


class Spark35(Version):
    """Calls to the driver of Spark 3.5, which has Scala 2.12."""

    def batch_began_ms(self, execution: Any) -> int:
        """When the batch of a query's execution began, Unix milliseconds; -1 before the first.

        The query has no execution context here; the time is a private field of a trait, for which
        the Scala compiler writes a public method.
        """
        trait = "org$apache$spark$sql$execution$streaming$ProgressReporter"
        return int(getattr(execution, f"{trait}$$currentTriggerStartTimestamp")())

    def root_execution(self, job: Mapping[str, Any], shared: Any) -> int | None:
        """The SQL execution of the batch within which a job was started, None when unknown.

        Spark 3.5 does not tag a job with it, so the job is searched in the newest executions.
        """
        store = shared.statusStore()
        first = max(0, int(store.executionsCount()) - EXECUTIONS)
        newest = store.executionsList(first, EXECUTIONS)
        for number in reversed(range(newest.size())):
            execution = newest.apply(number)
            if execution.jobs().contains(job["jobId"]):
                return int(execution.rootExecutionId())
        return None


_OLDER = {"3.5": Spark35}


def version_of(text: str) -> Version:
    """The calls for a version of Spark, such as ``4.3.0``; an unknown one is called like Spark 4.

    >>> type(version_of("3.5.9")).__name__, type(version_of("4.1.0-preview2")).__name__
    ('Spark35', 'Version')
    """
    return _OLDER.get(_minor(text), Version)()


def is_known(text: str) -> bool:
    """Whether a version of Spark was tested.

    >>> is_known("4.1.4"), is_known("4.10.0"), is_known("3.4.4")
    (True, False, False)
    """
    return _minor(text) in KNOWN_VERSIONS


def warn_if_untested(text: str) -> None:
    """Log a warning for a version of Spark that was not tested."""
    if not is_known(text):
        log.warning("Spark %s is untested; tested versions: %s", text, ", ".join(KNOWN_VERSIONS))


def require_spark_4(text: str, what: str) -> None:
    """Raise SettingError for a version of Spark before 4.0. what: the part that needs it."""
    if int(_minor(text).partition(".")[0]) < 4:
        remedy = f"{what} needs functions that it does not have: install PySpark 4"
        raise SettingError("version of Spark", text, "4.0 or later", remedy)


def _minor(text: str) -> str:
    found = re.match(r"\d+\.\d+", text)
    return found.group() if found else text
