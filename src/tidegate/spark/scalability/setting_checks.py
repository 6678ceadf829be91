"""Checks of Spark's settings alone. The autoscaler refuses a job for what blocks here."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.spark.scalability.facts import JobFacts
from tidegate.spark.scalability.findings import Finding
from tidegate.spark.scalability.register import check
from tidegate.spark.scalability.settings import NotKnown
from tidegate.units import show_duration

__all__ = ["REFUSED_ALLOCATORS"]

REFUSED_ALLOCATORS = ("statefulset", "deployment")
RECOMMENDED_FAILURES = 8
LONG_FETCH_S = 60.0
"""A batch that waits longer than this for blocks of a lost executor is late in any case."""
FEW_RETAINED = 100
"""A turn reads up to 50 jobs; with fewer than twice that number retained, some are dropped."""


@check("whether Spark's dynamic allocation is off", "settings")
def dynamic_allocation(facts: JobFacts) -> Iterator[Finding]:
    """Spark's own dynamic allocation is on."""
    key = "spark.dynamicAllocation.enabled"
    if facts.flag(key):
        yield Finding(
            "note" if facts.dry_run else "blocks",
            key,
            "true",
            "two autoscalers on one application undo each other's changes",
            "switch Spark's off (--conf spark.dynamicAllocation.enabled=false), or watch it with a "
            "dry run",
            allowed="false",
        )


@check("whether Kubernetes removes the pods that are released", "settings")
def pod_allocator(facts: JobFacts) -> Iterator[Finding]:
    """An allocator that chooses itself which pods to remove."""
    key = "spark.kubernetes.allocation.pods.allocator"
    allocator = facts.setting(key) or "direct"
    if allocator.lower() in REFUSED_ALLOCATORS:
        yield Finding(
            "note" if facts.dry_run else "blocks",
            key,
            allocator,
            "it chooses itself which pods to remove, with the tasks and the state on them, and the "
            "executors that were released would stay",
            "use Spark's default: --conf spark.kubernetes.allocation.pods.allocator=direct",
            allowed="direct",
        )
    elif allocator.lower() != "direct":
        yield Finding(
            "note",
            key,
            allocator,
            "Tidegate was tested with Spark's own allocator only",
            "check with a dry run and a single release that it removes the pods that were chosen",
        )


@check("whether a task fits into an executor", "settings")
def task_cpus(facts: JobFacts) -> Iterator[Finding]:
    """Tasks that need more cores than an executor has, or leave some idle."""
    cores, each = facts.number("spark.executor.cores"), facts.number("spark.task.cpus")
    if cores is None or each is None or each <= 0:
        return
    if each > cores:
        yield Finding(
            "blocks",
            "spark.task.cpus",
            f"{each:g}",
            f"an executor has {cores:g} cores (spark.executor.cores), so that no task fits into it",
            f"give executors more cores (--conf spark.executor.cores={each:g}), or tasks fewer",
            allowed=f"{cores:g} at most",
        )
    elif cores % each:
        yield Finding(
            "limits",
            "spark.task.cpus",
            f"{each:g}",
            f"of the {cores:g} cores of an executor (spark.executor.cores), {cores % each:g} never "
            "have a task",
            f"use a multiple: --conf spark.executor.cores={cores - cores % each:g}",
        )


@check("whether spark.cores.max has room for the largest number of executors", "settings")
def cores_max(facts: JobFacts) -> Iterator[Finding]:
    """A limit of cores below the largest number of executors, on a standalone cluster."""
    key = "spark.cores.max"
    if facts.cluster != "spark":
        return
    cores, most = facts.number("spark.executor.cores"), facts.number(key)
    if most is None or cores is None or cores <= 0:
        return
    room = int(most // cores)
    asked = facts.max_executors
    if room < 1:
        yield Finding(
            "blocks",
            key,
            f"{most:g}",
            f"an executor of {cores:g} cores (spark.executor.cores) does not fit into it, so that "
            "the application gets none",
            f"raise it: --conf spark.cores.max={cores * (asked or 1):g}",
            allowed=f"at least {cores:g}",
        )
    elif asked is not None and room < asked:
        yield Finding(
            "limits",
            key,
            f"{most:g}",
            f"it has room for {room} executors of {cores:g} cores, and --max-executors is {asked}",
            f"raise it: --conf spark.cores.max={cores * asked:g}",
        )
    elif asked is None:
        yield Finding(
            "note",
            key,
            f"{most:g}",
            f"it has room for {room} executors of {cores:g} cores; a policy that asks for more "
            "waits for them",
            f"give the same limit to Tidegate: --max-executors {room}",
        )


@check("whether the size of an executor is set", "settings")
def executor_cores(facts: JobFacts) -> Iterator[Finding]:
    """No size of an executor on a standalone cluster, so that each takes a whole worker."""
    key = "spark.executor.cores"
    if facts.cluster == "spark" and facts.setting(key) is None:
        yield Finding(
            "limits",
            key,
            None,
            "on a standalone cluster an executor then takes all free cores of its worker, so that "
            "there are never more executors than workers and their sizes differ",
            "set the size of an executor: --conf spark.executor.cores=2",
        )


@check("whether the number of executors at the start fits the limits", "settings")
def executor_instances(facts: JobFacts) -> Iterator[Finding]:
    """A number of executors at the start that is outside of the limits."""
    key = "spark.executor.instances"
    if facts.cluster not in ("yarn", "k8s"):
        return
    start = facts.number(key)
    most, least = facts.max_executors, facts.min_executors
    if start is not None and most is not None and start > most:
        yield Finding(
            "note",
            key,
            f"{start:g}",
            f"the application starts with more executors than --max-executors {most}, and the "
            "first turns release the others",
            f"start with fewer: --conf {key}={most}",
        )
    elif start is None and least > 2:
        yield Finding(
            "note",
            key,
            None,
            f"the application starts with 2 executors, and asks for --min-executors {least} at "
            "its first turn",
            f"start with as many: --conf {key}={least}",
        )


@check("whether a released executor may finish its tasks", "settings")
def decommissioning(facts: JobFacts) -> Iterator[Finding]:
    """Decommissioning is off, so that a release kills tasks."""
    key = "spark.decommission.enabled"
    if not facts.flag(key):
        yield Finding(
            "limits",
            key,
            facts.given(key),
            "a release kills the executor with its tasks, which run again elsewhere",
            f"switch it on when the application starts: --conf {key}=true",
        )


@check("whether a released executor moves its blocks first", "settings")
def storage_decommissioning(facts: JobFacts) -> Iterator[Finding]:
    """Blocks are moved before an executor leaves, which is slow."""
    key = "spark.storage.decommission.enabled"
    if facts.flag(key):
        yield Finding(
            "limits",
            key,
            "true",
            "a released executor moves its cached and shuffle blocks to others before it stops, "
            "which takes 30 seconds or more and a micro-batch does not need",
            f"switch it off unless your queries cache what is expensive to compute: --conf "
            f"{key}=false",
        )


@check("whether lost blocks of decommissioned executors may fail a stage", "settings")
def decommissioned_fetches(facts: JobFacts) -> Iterator[Finding]:
    """Fetch failures of decommissioned executors count as failures of the stage."""
    key = "spark.stage.ignoreDecommissionFetchFailure"
    if not facts.flag("spark.decommission.enabled"):
        return
    given, version = facts.given(key), facts.version
    if given is None and version is None:
        raise NotKnown(f"{key} is not set, and its default depends on the version of Spark")
    off_by_default = given is None and str(version).startswith("3.")
    if off_by_default or (given is not None and not facts.flag(key)):
        yield Finding(
            "limits",
            key,
            given,
            "a stage that misses blocks of a released executor counts this as a failure, and the "
            "fourth one in a row fails the query",
            f"switch it on: --conf {key}=true",
        )


@check("whether lost tasks may fail a job", "settings")
def task_failures(facts: JobFacts) -> Iterator[Finding]:
    """Few attempts for each task."""
    key = "spark.task.maxFailures"
    failures = facts.number(key)
    if failures is not None and failures < RECOMMENDED_FAILURES:
        yield Finding(
            "note" if failures >= 4 else "limits",
            key,
            facts.given(key),
            f"a task that fails {failures:g} times ends its query, and executors that come and go "
            "add failures",
            f"allow more: --conf {key}={RECOMMENDED_FAILURES}",
        )


@check("whether lost executors may end the application", "settings")
def executor_failures(facts: JobFacts) -> Iterator[Finding]:
    """YARN and Kubernetes end an application after some failed executors since its start."""
    before_4 = (facts.version or "").startswith("3.")
    if facts.cluster not in ("yarn", "k8s") or (facts.cluster == "k8s" and before_4):
        return
    new, old = "spark.executor.maxNumFailures", "spark.yarn.max.executor.failures"
    window, old_window = (
        "spark.executor.failuresValidityInterval",
        "spark.yarn.executor.failuresValidityInterval",
    )
    # From Spark 4.2 on, pods that Kubernetes denies count, one a second: no window is long enough.
    windows = facts.given(window) is not None or facts.given(old_window) is not None
    if facts.cluster == "yarn" and windows:
        return
    given = facts.given(new) or facts.given(old)
    most = facts.number(new) if facts.given(new) else facts.number(old)
    if most is None:
        most = max(3.0, 2 * (facts.number("spark.executor.instances") or 0))
    asked = facts.max_executors
    if given is None or (asked is not None and most < 2 * asked):
        yield Finding(
            "limits",
            new,
            given,
            f"{'YARN' if facts.cluster == 'yarn' else 'Spark'} ends the application after "
            f"{most:g} failed executors, counted since its start and not by how many there are",
            f"count those of the last hour only: --conf {window}=1h"
            if facts.cluster == "yarn"
            else f"pods that are evicted or denied count as failed, so allow any number: --conf "
            f"{new}=2147483647",
        )


@check("whether speculative tasks run", "settings")
def speculation(facts: JobFacts) -> Iterator[Finding]:
    """Speculative copies of tasks count as work."""
    if facts.flag("spark.speculation"):
        yield Finding(
            "note",
            "spark.speculation",
            "true",
            "copies of slow tasks take slots and count as work, so that batches look more "
            "expensive than they are",
            "switch it off: --conf spark.speculation=false",
        )


@check("whether Spark excludes executors", "settings")
def excluded_executors(facts: JobFacts) -> Iterator[Finding]:
    """Executors on which tasks failed get no tasks for a while."""
    key = "spark.excludeOnFailure.enabled"
    if facts.flag(key):
        yield Finding(
            "note",
            key,
            "true",
            "an executor on which tasks failed gets no tasks for an hour; Tidegate does not count "
            "it as capacity and asks for another one, and it is paid for all the same",
            "shorten the time: --conf spark.excludeOnFailure.timeout=5m",
        )


@check("whether an external shuffle service is expected", "settings")
def shuffle_service(facts: JobFacts) -> Iterator[Finding]:
    """An external shuffle service that must run on every node."""
    key = "spark.shuffle.service.enabled"
    if not facts.flag(key):
        return
    if facts.cluster == "k8s":
        yield Finding(
            "limits",
            key,
            "true",
            "Spark brings no shuffle service for Kubernetes, and without one on each node no "
            "executor can register",
            f"switch it off: --conf {key}=false",
        )
    else:
        yield Finding(
            "note",
            key,
            "true",
            "an executor on a node without the service cannot register, so that it is requested "
            "and never works",
            f"make sure that every node runs it, or switch it off: --conf {key}=false",
        )


@check("how long a batch waits for blocks of a lost executor", "settings")
def fetch_retries(facts: JobFacts) -> Iterator[Finding]:
    """Long retries of fetches from executors that are gone."""
    retries = facts.number("spark.shuffle.io.maxRetries") or 0
    wait_s = facts.seconds("spark.shuffle.io.retryWait", unit="s") or 0
    if retries * wait_s > LONG_FETCH_S:
        yield Finding(
            "limits",
            "spark.shuffle.io.maxRetries",
            f"{retries:g} (with spark.shuffle.io.retryWait={wait_s:g}s)",
            f"a batch waits {show_duration(retries * wait_s)} for the blocks of an executor that "
            "is lost before they are computed again",
            "use Spark's defaults: --conf spark.shuffle.io.maxRetries=3 --conf "
            "spark.shuffle.io.retryWait=5s",
        )


@check("whether the application may create more pods after a while", "settings")
def pods_in_all(facts: JobFacts) -> Iterator[Finding]:
    """A limit of pods over the whole life of an application."""
    key = "spark.kubernetes.allocation.maximum"
    given = facts.number(key)
    if facts.cluster == "k8s" and given is not None:
        yield Finding(
            "limits",
            key,
            f"{given:g}",
            f"Spark counts every pod that it ever created, so that after {given:g} changes the "
            "application cannot grow or replace a lost executor any more",
            "leave it out: use --max-executors for the number of executors at a time",
        )


@check("whether pods of released executors are deleted", "settings")
def finished_pods(facts: JobFacts) -> Iterator[Finding]:
    """Pods that stay after their executor has ended."""
    key = "spark.kubernetes.executor.deleteOnTermination"
    if facts.cluster == "k8s" and not facts.flag(key):
        yield Finding(
            "note",
            key,
            "false",
            "the pod of every released executor stays in the namespace and counts towards its "
            "quota of pods",
            f"switch it on once nothing is being debugged: --conf {key}=true",
        )


@check("whether an executor has a slot for each core", "settings")
def other_resources(facts: JobFacts) -> Iterator[Finding]:
    """Slots that GPUs limit."""
    gpus = facts.number("spark.executor.resource.gpu.amount")
    each = facts.number("spark.task.resource.gpu.amount")
    if gpus is None or not each:
        return
    tasks, slots = int(gpus / each), facts.slots
    if tasks < slots:
        yield Finding(
            "limits",
            "spark.task.resource.gpu.amount",
            f"{each:g}",
            f"an executor has GPUs for {tasks} tasks and cores for {slots}, and Tidegate counts "
            "cores only, so that it expects more of an executor than it can do",
            f"let both fit: --conf spark.task.cpus={max(1, slots // max(1, tasks))}",
        )


@check("whether Spark keeps enough jobs and stages for a turn to read", "settings")
def retained_jobs(facts: JobFacts) -> Iterator[Finding]:
    """A small number of jobs or stages that Spark keeps."""
    for key, what in (("spark.ui.retainedJobs", "jobs"), ("spark.ui.retainedStages", "stages")):
        retained = facts.number(key)
        if retained is not None and retained < FEW_RETAINED:
            yield Finding(
                "limits",
                key,
                f"{retained:g}",
                f"Spark forgets older {what} before a turn has read them, so that the cost of "
                "batches is unknown",
                f"keep as many as Spark does by default: --conf {key}=1000",
            )
