"""What keeps a Spark job from being scaled: facts about a job, and pure checks over them."""

from __future__ import annotations

from tidegate.spark.scalability import cluster_checks, query_checks, setting_checks
from tidegate.spark.scalability.facts import JobFacts
from tidegate.spark.scalability.findings import Diagnosis, Finding, NotChecked
from tidegate.spark.scalability.register import CHECKS, diagnose

__all__ = [
    "CHECKS",
    "Diagnosis",
    "Finding",
    "JobFacts",
    "NotChecked",
    "cluster_checks",
    "diagnose",
    "query_checks",
    "setting_checks",
]
