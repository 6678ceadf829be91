"""The facts of a running job, from its driver through a gateway."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tidegate.errors import BackendError, InputError
from tidegate.spark.autoscaler.gateway import Gateway, JobWork
from tidegate.spark.autoscaler.progress import read_progress
from tidegate.spark.doctor.kubernetes import SETTINGS
from tidegate.spark.scalability.facts import JobFacts, JobRate, PodRights, QueryFacts
from tidegate.spark.scalability.settings import DEFAULTS

__all__ = ["facts_of_driver", "rate_of"]

WAIT_S = 20.0
"""How long the doctor waits for a batch of each query by default, in seconds."""


def facts_of_driver(gateway: Gateway, asked: JobFacts, wait_s: float = WAIT_S) -> JobFacts:
    """The facts of an application that runs; nothing of it is changed.

    gateway: the application. asked: what was asked of the autoscaler. wait_s: longest time to wait
    for a batch of each query, which shows its state and its watermark, in seconds.
    """
    unknown = {
        "slo": "no latency target is given: add --slo",
        "queries": "no streaming query runs at the moment",
        "rate": "too few jobs have ended",
        "queries.limits": "the driver does not show what the sources admit",
        "queries.tasks": "none of its jobs has ended",
        "queries.watermark": f"no batch ended within {wait_s:g} s",
        "queries.stateful": f"no batch ended within {wait_s:g} s",
        "queries.state_partitions": f"no batch ended within {wait_s:g} s",
        "queries.state_mb": f"no batch ended within {wait_s:g} s",
        "queries.checkpoint": "the driver does not show where it is",
        "queries.trigger": "the driver does not show it",
        "queries.trigger_s": "the driver does not show it",
    }
    facts = replace(
        asked,
        settings={k: value for k in (*DEFAULTS, *SETTINGS) if (value := gateway.setting(k, ""))},
        version=gateway.version,
        agent=True,
        unknown=unknown,
    )
    heard: dict[str, dict[str, Any]] = {}
    changed = threading.Event()

    def hear(kind: str, text: str) -> None:
        if kind == "progress":
            with suppress(ValueError):
                plain = json.loads(text)
                heard[str(plain.get("id"))] = plain
                changed.set()

    end = gateway.listen(hear)
    try:
        names = gateway.active_queries()
        until_s = time.monotonic() + wait_s
        while names.keys() - heard.keys() and (left_s := until_s - time.monotonic()) > 0:
            changed.wait(left_s)
            changed.clear()
    except BackendError as error:
        return replace(facts, unknown=unknown | {"queries": str(error)})
    finally:
        end()
    jobs: Sequence[JobWork] = ()
    try:
        facts = replace(facts, executors=tuple(gateway.executors()))
        jobs = gateway.finished_jobs(-1)[0]
    except BackendError as error:
        facts = replace(facts, unknown=unknown | {"executors": str(error), "rate": str(error)})
    tasks = _tasks(jobs)
    if gateway.may_create_pods() is False:  # the driver itself has asked
        namespace = gateway.setting("spark.kubernetes.namespace", "default")
        denied = PodRights("the driver's account", namespace, {"create pods": ""})
        facts = replace(facts, pod_rights=denied)
    return replace(
        facts,
        queries=tuple(_query(gateway, i, n, heard.get(i), tasks) for i, n in names.items()) or None,
        rate=rate_of(jobs),
    )


def rate_of(jobs: Sequence[JobWork]) -> JobRate | None:
    """Jobs and stages that ended per second, None when too few are known."""
    ends_s = sorted(job.ended_s for job in jobs if job.ended_s is not None)
    if len(ends_s) < 2 or ends_s[-1] <= ends_s[0]:
        return None
    span_s = ends_s[-1] - ends_s[0]
    stages = sum(max(1, len(job.stages)) for job in jobs)
    return JobRate((len(ends_s) - 1) / span_s, stages * (len(ends_s) - 1) / len(jobs) / span_s)


def _tasks(jobs: Sequence[JobWork]) -> dict[str, int]:
    """Tasks of the widest stage by the run of the query."""
    widest: dict[str, int] = defaultdict(int)
    for job in jobs:
        if job.run:
            counts = (stage.tasks for stage in job.stages)
            widest[job.run] = max(widest[job.run], job.tasks, *counts)
    return widest


def _query(
    gateway: Gateway, query: str, name: str, event: dict[str, Any] | None, tasks: dict[str, int]
) -> QueryFacts:
    """A query. event: its last progress as Spark's JSON, None when none was heard."""
    trigger = gateway.trigger_of(query)
    sources = gateway.read_limits(query)
    run = str(event["runId"]) if event is not None else gateway.status_of(query).run
    found = QueryFacts(
        # A query without a name is shown by the beginning of its id.
        name="" if name == query[:8] else name,
        place=f"run {run[:8]}" if name == query[:8] else "",
        trigger=trigger.kind or None,
        trigger_s=trigger.interval_s,
        limits=None if sources is None else tuple(one for each in sources for one in each),
        tasks=tasks.get(run),
        checkpoint=gateway.checkpoint_of(query),
    )
    if event is None:
        return found
    try:
        progress = read_progress(json.dumps(event))
    except InputError:
        return found
    return replace(
        found,
        batch_s=progress.duration_s or None,
        watermark=bool(event.get("eventTime")),
        stateful=bool(event.get("stateOperators")),
        state_partitions=progress.state_partitions,
        state_mb=progress.state_mb,
    )
