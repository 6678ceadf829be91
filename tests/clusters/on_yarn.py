"""The job of the tests on YARN: with one executor at first and four at most."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.clusters.submitted import Submitted
from tests.clusters.yarn import LocalYarn, submit_words

BUSY_PER_S = 200.0
"""Rows a second that keep more than two slots busy; `BY_LOAD` wants four executors for them."""
_QUICK = ("--slo", "5s", "--interval", "1s", "--stabilise", "2s")
_AT_ONCE = ("--without-guard", "effect", "--without-guard", "change-cost")
BY_LOAD = ("--policy", "ds2", "--set", "utilisation=0.25", "--set", "boundary=0.05", *_AT_ONCE)
"""A policy whose decision is known: the largest number of executors when busy, one when idle."""


def on_yarn(yarn: LocalYarn, folder: Path, mode: str = "client", *more: str) -> Submitted:
    """Submit the job. folder: for its files. more: further options."""
    words = [*_QUICK, "--max-executors", "4", "--num-executors", "1", *submit_words(yarn, mode)]
    words += ["--controller-python", sys.executable] if mode == "cluster" else []
    return Submitted(folder, [*words, *more], yarn.environment())


def shrinks_and_ends(job: Submitted, yarn: LocalYarn) -> None:
    """Without load, one executor must be left; then the job must end well."""
    name = job.application
    job.feed.per_s = 0.0
    job.until("without load one is left", lambda: len(yarn.executors(name)) == 1)
    job.until("the journal has it", lambda: (job.hosts(), job.hosts("draining")) == (1, 0))
    assert job.end() == 0
    assert job.errors() == []
    assert yarn.application(name)["finalStatus"] == "SUCCEEDED"
