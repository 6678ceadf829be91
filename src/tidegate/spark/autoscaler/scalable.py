"""Settings of Spark under which executors cannot be scaled from outside. Pure.

They are the findings that block among the checks that ``tidegate doctor`` makes of settings.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.spark.scalability import CHECKS, JobFacts, diagnose
from tidegate.spark.scalability.settings import DEFAULTS

__all__ = ["check_scalable"]


def check_scalable(setting: Callable[[str, str], str]) -> None:
    """Raise SettingError for settings of Spark under which executors cannot be scaled from outside.

    setting: returns a setting, or the given default.
    """
    given = {key: value for key in DEFAULTS if (value := setting(key, ""))}
    checks = (check for check in CHECKS.values() if check.needs == "settings")
    for finding in diagnose(JobFacts(given), checks=checks).findings:
        if finding.severity == "blocks":
            raise finding.error()
