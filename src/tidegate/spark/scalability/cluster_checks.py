"""Checks of the cluster that a job runs on, and of what Tidegate itself needs there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tidegate.spark.scalability.facts import JobFacts, PodRights, QueueRoom
from tidegate.spark.scalability.findings import Finding
from tidegate.spark.scalability.register import check
from tidegate.spark.scalability.settings import NotKnown

__all__ = ["NEEDED_RIGHTS", "USEFUL_RIGHTS", "local_master"]

NEEDED_RIGHTS = (
    "create pods", "get pods", "list pods", "watch pods", "delete pods", "create configmaps",
)  # fmt: skip
"""What Spark's driver must be allowed on Kubernetes to add and remove executors."""
USEFUL_RIGHTS = ("deletecollection pods", "deletecollection configmaps")
"""What it needs to clean up when the application ends."""
KNOWN_CLUSTERS = ("local", "spark", "yarn", "k8s")


def local_master(master: str) -> Finding:
    """The finding for a master without executors."""
    return Finding(
        "blocks",
        "spark.master",
        master,
        "a local master has no executors to add",
        "use a cluster, or a dry run to watch",
        allowed="a cluster",
    )


@check("whether the master is a cluster", "cluster")
def master(facts: JobFacts) -> Iterator[Finding]:
    """A local master, or a cluster manager that nobody tried."""
    given = facts.given("spark.master") or ""
    if facts.cluster == "local":
        finding = local_master(given)
        if not facts.dry_run:
            yield finding
    elif facts.cluster not in KNOWN_CLUSTERS:
        yield Finding(
            "note",
            "spark.master",
            given,
            "Tidegate was not tested with this cluster manager",
            "begin with --dry-run, and look at the first release",
        )


@check("whether the driver is the application's own", "cluster")
def connect(facts: JobFacts) -> Iterator[Finding]:
    """A client of Spark Connect, whose driver is a server elsewhere."""
    remote = facts.given("spark.remote")
    if facts.in_advance and remote is not None:
        yield Finding(
            "blocks",
            "spark.remote",
            remote,
            "a client of Spark Connect has no driver and no executors; its server has them",
            "start the server with Tidegate's agent, and scale it for all clients with tidegate "
            "attach",
        )


@check("whether the version of Spark was tested", "cluster")
def spark_version(facts: JobFacts) -> Iterator[Finding]:
    """A version of Spark that Tidegate was not tested with."""
    version = facts.need("version")
    tested = facts.tested_versions
    minor = re.match(r"\d+\.\d+", version)
    if tested and (minor is None or minor.group() not in tested):
        yield Finding(
            "note",
            "version of Spark",
            version,
            f"Tidegate was tested with {', '.join(tested)}",
            "begin with --dry-run, and compare a few decisions with the Spark UI",
        )


@check("whether Tidegate can be attached to the driver", "cluster")
def agent(facts: JobFacts) -> Iterator[Finding]:
    """A driver without Tidegate's agent."""
    if facts.needs_agent and not facts.need("agent"):
        yield Finding(
            "limits",
            "spark.plugins",
            facts.given("spark.plugins"),
            f"the driver has no agent of Tidegate, and {facts.needs_agent}",
            "start the job with tidegate submit from an installation that has the agent's jar, or "
            "add the jar (--jars) and --conf spark.plugins=io.tidegate.spark.TidegatePlugin",
        )


@check("whether the driver's machine has a Python with Tidegate", "cluster")
def controller(facts: JobFacts) -> Iterator[Finding]:
    """A controller next to a driver on the cluster, whose machine is not this one."""
    if facts.in_advance and facts.setting("spark.submit.deployMode") == "cluster":
        yield Finding(
            "note",
            "--controller-python",
            facts.controller,
            "the agent starts the controller with it on the driver's machine, and nothing is "
            "scaled if it has no Tidegate there",
            "install tidegate there or use an image that has it, and name its Python: "
            "--controller-python PROGRAM",
        )


@check("whether a largest number of executors is given", "cluster")
def upper_limit(facts: JobFacts) -> Iterator[Finding]:
    """No upper limit of executors."""
    if facts.in_advance and facts.max_executors is None:
        yield Finding(
            "note",
            "--max-executors",
            None,
            "nothing but the cluster limits the number of executors and their cost",
            "give a limit: --max-executors 8",
        )


@check("whether the application sets other values in its code", "cluster")
def settings_in_code(facts: JobFacts) -> Iterator[Finding]:
    """Settings that only the running job shows."""
    if facts.in_advance:
        raise NotKnown(
            facts.unknown.get(
                "settings_in_code",
                "only the running job shows that: tidegate doctor http://driver:4040",
            )
        )
    return
    yield  # a generator without findings


@check("whether Kubernetes lets the driver create and delete executors", "cluster")
def kubernetes_rights(facts: JobFacts) -> Iterator[Finding]:
    """Missing roles."""
    if facts.cluster != "k8s":
        return
    rights: PodRights = facts.need("pod_rights")
    no_config_map = facts.flag("spark.kubernetes.executor.disableConfigMap")
    for right, reason in rights.denied.items():
        verb, resource = right.split()
        if resource == "configmaps" and no_config_map:
            continue
        needed = right in NEEDED_RIGHTS
        yield Finding(
            "blocks" if needed else "note",
            f"right to {right}",
            f"denied to {rights.subject} in namespace {rights.namespace}"
            + (f" ({reason})" if reason else ""),
            "Spark adds and removes executors with it"
            if needed
            else "Spark cleans up with it when the application ends",
            f"add {verb} on {resource} to the role of the driver's service account",
        )


@check("whether the queue of YARN has room for the largest number of executors", "cluster")
def yarn_queue(facts: JobFacts) -> Iterator[Finding]:
    """A queue that is too small, full or stopped."""
    if facts.cluster != "yarn":
        return
    queue: QueueRoom = facts.need("queue")
    key, each_mb = "spark.yarn.queue", facts.executor_mb
    if queue.state != "RUNNING":
        yield Finding(
            "blocks",
            key,
            f"{queue.name} ({queue.state})",
            "a queue that does not run takes no applications",
            "start the queue, or use another one: --queue NAME",
        )
        return
    room, free = int(queue.most_mb // each_mb), int(queue.free_mb // each_mb)
    asked, running = facts.max_executors, len(facts.executors or ())
    size = f"executors of {each_mb:.0f} MB"
    if asked is not None and room < asked:
        yield Finding(
            "limits",
            key,
            queue.name,
            f"it has room for {room} {size} at most, with nothing else in it, and --max-executors "
            f"is {asked}",
            "raise the queue's maximum capacity, or use smaller executors: --executor-memory",
        )
    elif asked is not None and running + free < asked:
        yield Finding(
            "limits",
            key,
            queue.name,
            f"it has room for {free} more {size} now, and --max-executors is {asked}; what is "
            "requested beyond that waits until others leave, without an error",
            "give the queue more capacity, or use another one: --queue NAME",
        )
