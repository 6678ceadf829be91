"""What a check reports: a finding with a remedy, or why it could not be made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tidegate.codec import Value
from tidegate.errors import SettingError

__all__ = ["SEVERITIES", "Diagnosis", "Finding", "NotChecked", "Severity", "sentence"]

Severity = Literal["blocks", "limits", "note"]
"""``blocks``: Tidegate refuses the job, or no executor can be added or removed. ``limits``: scaling
works, but not as far, as fast or as safely as asked. ``note``: good to know."""
SEVERITIES: tuple[Severity, ...] = ("blocks", "limits", "note")


@dataclass(frozen=True, slots=True)
class Finding(Value):
    """Something that keeps a job from scaling.

    Args:
        severity: How much it does so.
        key: The setting, option or query that it is about.
        value: What was found there; None for a setting that is not set.
        why: What follows from it, a clause without a full stop.
        remedy: What to do, a clause without a full stop.
        allowed: The allowed values, for an error message.
        check: Name of the check.
    """

    severity: Severity
    key: str
    value: str | None
    why: str
    remedy: str
    allowed: str = ""
    check: str = ""

    def error(self) -> SettingError:
        """The same as an error of one sentence."""
        allowed = self.allowed or "another value"
        return SettingError(self.key, self.value or "", allowed, f"{self.why}: {self.remedy}")

    def __str__(self) -> str:
        found = "is not set" if self.value is None else f"is {self.value}"
        return f"{self.key} {found}. {sentence(self.why)} {sentence(self.remedy)}"


@dataclass(frozen=True, slots=True)
class NotChecked(Value):
    """A check that could not be made.

    what: what would have been checked, as a clause. because: the reason, as a clause. check: name
    of the check.
    """

    what: str
    because: str
    check: str = ""

    def __str__(self) -> str:
        return f"Not checked: {self.what}, because {self.because}."


@dataclass(frozen=True, slots=True)
class Diagnosis(Value):
    """All that the checks report of one job.

    Args:
        subject: What was looked at.
        findings: What keeps it from scaling, the worst first.
        not_checked: The checks that could not be made.
        passed: Names of the checks that found nothing.
    """

    subject: str
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    passed: tuple[str, ...] = field(default=())

    @property
    def blocked(self) -> bool:
        """Whether something keeps the job from being scaled at all."""
        return any(finding.severity == "blocks" for finding in self.findings)


def sentence(clause: str) -> str:
    """A clause as a sentence. Names of settings and options keep their first letter.

    >>> sentence("more executors would stay idle"), sentence("spark.x is needed")
    ('More executors would stay idle.', 'spark.x is needed.')
    """
    first = clause.partition(" ")[0]
    plain = first.isalpha() or first.endswith((",", ":")) or "'" in first
    start = clause[:1].upper() + clause[1:] if plain else clause
    return start if start.endswith((".", "…")) else f"{start}."
