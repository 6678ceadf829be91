"""The register of checks, and `diagnose`, which makes all of them.

A check is a generator over `JobFacts` that yields findings. It raises `NotKnown` when a fact that
it needs is missing, and yields nothing when it does not concern the job. A new check is one
function with the decorator `check`; the command, the autoscaler and the guide find it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tidegate.spark.scalability.facts import JobFacts
from tidegate.spark.scalability.findings import SEVERITIES, Diagnosis, Finding, NotChecked
from tidegate.spark.scalability.settings import NotKnown

__all__ = ["CHECKS", "Check", "check", "diagnose"]

Run = Callable[[JobFacts], Iterator[Finding]]
Needs = Literal["settings", "job", "cluster"]


@dataclass(frozen=True, slots=True)
class Check:
    """A check.

    Args:
        name: Its name.
        about: What it looks at, as a clause that begins with "whether" or a noun.
        needs: ``settings`` if it looks at nothing but settings of Spark, so that the autoscaler
            makes it too; ``job`` for its executors and queries; ``cluster`` for the cluster.
        run: The check.
    """

    name: str
    about: str
    needs: Needs
    run: Run


CHECKS: dict[str, Check] = {}
"""All checks by name, in the order in which they are made."""


def check(about: str, needs: Needs) -> Callable[[Run], Run]:
    """Register the decorated generator as a check, under its own name with dashes."""

    def register(run: Run) -> Run:
        name = run.__name__.replace("_", "-")
        CHECKS[name] = Check(name, about, needs, run)
        return run

    return register


def diagnose(
    facts: JobFacts, subject: str = "", checks: Iterable[Check] | None = None
) -> Diagnosis:
    """Make checks and return what they report, the worst finding first.

    facts: what is known of the job. subject: what was looked at. checks: default: all.
    """
    findings: list[Finding] = []
    not_checked: list[NotChecked] = []
    passed: list[str] = []
    for one in CHECKS.values() if checks is None else checks:
        known, missing = _made(one, facts)
        findings += known
        not_checked += missing
        if not known and not missing:
            passed.append(one.name)
    return Diagnosis(subject, tuple(worst_first(findings)), tuple(not_checked), tuple(passed))


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """Findings by severity, otherwise in their order."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def _made(one: Check, facts: JobFacts) -> tuple[list[Finding], list[NotChecked]]:
    """Findings of a check, also of one that finds something before a fact is missing."""
    found: list[Finding] = []
    try:
        for finding in one.run(facts):
            place = facts.set_in_code.get(finding.key)
            remedy = finding.remedy
            if place is not None:
                remedy += f" (change it in {place}: what the code sets takes precedence)"
            found.append(replace(finding, check=one.name, remedy=remedy))
    except NotKnown as missing:
        return found, [NotChecked(one.about, str(missing), one.name)]
    return found, []
