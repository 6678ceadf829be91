"""The facts of a running job without the agent, from the REST interface of its Spark UI.

The interface shows settings, executors, jobs and stages. Queries are found by the descriptions that
Spark gives to their jobs, and state and watermarks by the names of the nodes in the plans of their
batches. It shows neither triggers nor what sources admit.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tidegate.errors import BackendError, InputError
from tidegate.spark.agent import PLUGIN
from tidegate.spark.autoscaler.jobs import described, moment_s
from tidegate.spark.autoscaler.sightings import ExecutorInfo
from tidegate.spark.doctor.web import Unreachable, ask
from tidegate.spark.scalability.facts import JobFacts, JobRate, QueryFacts

__all__ = ["facts_of_ui", "is_spark_ui"]

WRAPPER = "autoscaler/driver.py"
"""What the command line of a driver contains that ``tidegate submit`` has started."""
NOT_SHOWN = "the Spark UI does not show it; start the job with Tidegate's agent to see it"


def is_spark_ui(url: str) -> bool:
    """Whether an address answers as Spark's REST interface does; Unreachable if nobody does."""
    try:
        return isinstance(ask(f"{_base(url)}/applications"), list)
    except Unreachable:
        raise
    except BackendError:
        return False


def facts_of_ui(url: str, asked: JobFacts, application: str = "") -> tuple[JobFacts, str]:
    """The facts of an application by its Spark UI, and its name.

    url: address of the UI, or of a history server. asked: what was asked of the autoscaler.
    application: id of the application, where the address has several.
    """
    listed = ask(f"{_base(url)}/applications")
    chosen = _chosen(listed, application, url)
    attempts = chosen.get("attempts") or [{}]
    attempt = f"/{attempts[0]['attemptId']}" if attempts[0].get("attemptId") else ""
    root = f"{_base(url)}/applications/{chosen['id']}{attempt}"
    environment = ask(f"{root}/environment")
    jobs = ask(f"{root}/jobs")
    stages = ask(f"{root}/stages")
    # The Spark UI hides secrets.
    settings = {k: v for k, v in environment["sparkProperties"] if "(redacted)" not in v}
    command = dict(environment.get("systemProperties") or []).get("sun.java.command", "")
    attached = WRAPPER in command
    facts = replace(
        asked,
        settings=settings,
        version=attempts[0].get("appSparkVersion"),
        executors=_executors(ask(f"{root}/executors")),
        agent=PLUGIN in settings.get("spark.plugins", ""),
        needs_agent=""
        if attached
        else "unless the application creates an Autoscaler itself, nothing scales it",
        queries=_queries(root, jobs, stages) or None,
        rate=_rate(jobs, stages),
        unknown={
            "slo": "no latency target is given: add --slo",
            "version": "the Spark UI does not show it",
            "queries": "no job of a streaming query is among those that the Spark UI keeps",
            "rate": "too few jobs have ended",
            "queries.trigger": NOT_SHOWN,
            "queries.trigger_s": NOT_SHOWN,
            "queries.limits": NOT_SHOWN,
            "queries.tasks": "none of its stages has ended",
            "queries.stateful": "the plans of its batches are not kept",
            "queries.state_partitions": NOT_SHOWN,
            "queries.state_mb": NOT_SHOWN,
            "queries.watermark": "the plans of its batches are not kept",
            "queries.checkpoint": NOT_SHOWN,
        },
    )
    return facts, f"{chosen.get('name', '')} ({chosen['id']}) at {url}"


def _base(url: str) -> str:
    """The address of the REST interface for that of a page of the UI."""
    plain = re.sub(r"/(jobs|stages|executors|environment|SQL|StreamingQuery|storage)\b.*$", "", url)
    plain = re.sub(r"/api/v1.*$", "", plain).rstrip("/")
    return f"{plain}/api/v1"


def _chosen(listed: Any, application: str, url: str) -> Mapping[str, Any]:
    if not isinstance(listed, list) or not listed:
        raise BackendError(f"{url} shows no application")
    found: list[Mapping[str, Any]] = [a for a in listed if application in ("", a.get("id"))]
    if len(found) == 1:
        return found[0]
    ids = ", ".join(str(a.get("id")) for a in listed[:5]) + (", …" if len(listed) > 5 else "")
    raise InputError("--application", application, f"one of {ids}", "name the application")


def _executors(listed: Sequence[Mapping[str, Any]]) -> tuple[ExecutorInfo, ...]:
    return tuple(
        ExecutorInfo(
            id=e["id"],
            cores=e.get("maxTasks") or e.get("totalCores") or 0,
            memory_mb=e.get("maxMemory", 0) / 2**20,
            busy_s=e.get("totalDuration", 0) / 1000,
            tasks=e.get("activeTasks", 0),
            added_s=moment_s(e["addTime"]),
            excluded=bool(e.get("isExcluded")),
        )
        for e in listed
        if e["id"] != "driver" and e.get("isActive", True)
    )


def _queries(
    root: str, jobs: Sequence[Mapping[str, Any]], stages: Sequence[Mapping[str, Any]]
) -> tuple[QueryFacts, ...]:
    """Queries by the descriptions of their jobs, those of the newest runs."""
    tasks = {s["stageId"]: int(s["numTasks"]) for s in stages if s.get("status") == "COMPLETE"}
    of_run: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    ids: dict[str, str] = {}
    for job in sorted(jobs, key=lambda job: int(job["jobId"])):
        text = str(job.get("description") or "")
        run, _ = described(text)
        if run:
            of_run[run].append(job)
            found = re.search(r"\bid = (\S+)", text)
            ids[found.group(1) if found else run] = run  # the newest run of a query stays
    plans = _plans(root)
    return tuple(_query(run, of_run[run], tasks, plans.get(run)) for run in ids.values())


def _query(
    run: str, jobs: Sequence[Mapping[str, Any]], tasks: Mapping[int, int], plan: str | None
) -> QueryFacts:
    first = str(jobs[-1]["description"]).splitlines()[0]
    name = "" if first.startswith(("id = ", "runId = ")) else first
    widest = max((tasks.get(s, 0) for job in jobs for s in job["stageIds"]), default=0)
    took = sorted(_batches_s(jobs))
    continuous = plan is not None and "WriteToContinuousDataSource" in plan
    return QueryFacts(
        name=name,
        place="" if name else f"run {run[:8]}",
        trigger="ContinuousTrigger" if continuous else None,
        tasks=widest or None,
        batch_s=took[len(took) // 2] if took else None,
        watermark=None if plan is None else "EventTimeWatermark" in plan,
        stateful=None if plan is None else "StateStore" in plan or "WithState" in plan,
    )


def _batches_s(jobs: Sequence[Mapping[str, Any]]) -> list[float]:
    """Durations of batches in seconds, each from its first job to the end of its last."""
    spans: dict[int | None, list[tuple[float, float]]] = defaultdict(list)
    for job in jobs:
        if job.get("completionTime") and job.get("submissionTime"):
            span = (moment_s(job["submissionTime"]), moment_s(job["completionTime"]))
            spans[described(str(job.get("description") or ""))[1]].append(span)
    return [max(e for _, e in many) - min(b for b, _ in many) for many in spans.values()]


def _plans(root: str) -> dict[str, str]:
    """Names of the nodes in the plan of the newest batch, by the run of the query."""
    newest: dict[str, int] = {}
    plans: dict[str, str] = {}
    with suppress(BackendError):  # the plans are a small part of what is to be seen
        # Plans are large, so they are left out of the list.
        for execution in ask(f"{root}/sql?details=false&planDescription=false&length=1000000"):
            run, _ = described(str(execution.get("description") or ""))
            if run:
                newest[run] = max(newest.get(run, -1), int(execution["id"]))
        for run, number in newest.items():
            seen = ask(f"{root}/sql/{number}?details=true&planDescription=false")
            plans[run] = " ".join(str(node.get("nodeName")) for node in seen.get("nodes") or ())
    return plans


def _rate(jobs: Sequence[Mapping[str, Any]], stages: Sequence[Mapping[str, Any]]) -> JobRate | None:
    """Jobs and stages that ended per second, None when too few are known."""
    rates = []
    for listed in (jobs, stages):
        ends_s = sorted(moment_s(e["completionTime"]) for e in listed if e.get("completionTime"))
        if len(ends_s) < 2 or ends_s[-1] <= ends_s[0]:
            return None
        rates.append((len(ends_s) - 1) / (ends_s[-1] - ends_s[0]))
    return JobRate(*rates)
