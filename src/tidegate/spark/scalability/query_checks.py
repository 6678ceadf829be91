"""Checks of a job's streaming queries and executors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tidegate.spark.scalability.facts import JobFacts, QueryFacts
from tidegate.spark.scalability.findings import Finding
from tidegate.spark.scalability.register import check
from tidegate.spark.scalability.settings import NotKnown
from tidegate.units import show_duration

__all__ = ["LOCALITY_WAITS", "UNSCALABLE"]

UNSCALABLE = {
    "ContinuousTrigger": "a continuous trigger",
    "RealTimeTrigger": "a real-time trigger",
}
"""Triggers without micro-batches: their tasks run for ever, so neither load nor cost is known."""
FINITE = {"AvailableNowTrigger": "availableNow", "OneTimeTrigger": "once"}
LOCALITY_WAITS = 3
"""State tasks of batches shorter than this many locality waits seldom reach a new executor."""
ROCKSDB = "RocksDB"
MOST_OF_HEAP = 0.5
"""Share of an executor's memory that state on the heap may take."""


def known(facts: JobFacts, fact: str) -> Iterator[tuple[QueryFacts, Any]]:
    """Each query with a fact of it; NotKnown at the end if it is missing for some."""
    missing = []
    for query in facts.need("queries"):
        if fact == "trigger_s" and query.trigger in UNSCALABLE:
            continue  # it has no batches
        if fact.startswith("state_") and query.stateful is False:
            continue  # it has no state
        value = getattr(query, fact)
        if value is None:
            missing.append(query.shown)
        else:
            yield query, value
    if missing:
        about = "stateful" if fact.startswith("state_") and not any_state(facts) else fact
        why = facts.unknown.get(f"queries.{about}", "it could not be read")
        raise NotKnown(f"{why} ({', '.join(dict.fromkeys(missing))})")


def any_state(facts: JobFacts) -> bool:
    """Whether a query is known to keep state."""
    return any(query.stateful for query in facts.queries or ())


# --- triggers and targets -----------------------------------------------------------------------


@check("whether the triggers have micro-batches", "job")
def triggers(facts: JobFacts) -> Iterator[Finding]:
    """Triggers whose tasks never end, and triggers that end."""
    for query, trigger in known(facts, "trigger"):
        if trigger in UNSCALABLE:
            yield Finding(
                "blocks",
                f"trigger of {query.shown}",
                trigger,
                f"the tasks of {UNSCALABLE[trigger]} never end, so that executors stay as they are "
                "while it runs",
                "use a trigger with micro-batches (processingTime), or run the query in another "
                "application",
            )
        elif trigger in FINITE:
            yield Finding(
                "note",
                f"trigger of {query.shown}",
                trigger,
                f"with {FINITE[trigger]} the query works off what is there and ends, and is scaled "
                "like one without a pause between batches",
                "use processingTime for a query that runs on",
            )


@check("whether the latency targets can be reached with the triggers", "job")
def slo_and_trigger(facts: JobFacts) -> Iterator[Finding]:
    """Targets below the time between two batches."""
    slo = facts.need("slo")
    for query, interval_s in known(facts, "trigger_s"):
        target_s = slo.of(query.name or "")
        if target_s <= interval_s:
            shown = show_duration(interval_s)
            yield Finding(
                "limits",
                f"--slo of {query.shown}",
                show_duration(target_s),
                f"a row waits up to {shown} for the next batch, so that no number of executors "
                "reaches the target",
                f"shorten the trigger, or raise the target above {shown} and the time of a batch",
            )


@check("whether sources limit the rows of a batch", "job")
def rate_limits(facts: JobFacts) -> Iterator[Finding]:
    """Limits of sources, which executors cannot raise."""
    for query, limits in known(facts, "limits"):
        for limit in limits:
            option, _, amount = str(limit).partition("=")
            pace = "in a batch"
            if query.trigger_s:
                pace = f"a second ({amount} in a batch every {show_duration(query.trigger_s)})"
                amount = f"{limit.amount / query.trigger_s:.4g}"
            yield Finding(
                "limits",
                f"{option} of {query.shown}",
                f"{limit.amount:.0f}",
                f"the query reads at most {amount} {limit.kind} {pace}, however many executors "
                "there are",
                "raise the limit, or leave it out once the backlog of the first start is gone",
            )


@check("whether queries have a watermark, by which --slo-by event-age measures", "job")
def watermarks(facts: JobFacts) -> Iterator[Finding]:
    """Queries without a watermark when the target is about the age of events."""
    if facts.slo_by != "event-age":
        return
    for query, watermark in known(facts, "watermark"):
        if not watermark:
            yield Finding(
                "limits",
                f"watermark of {query.shown}",
                None,
                "the age of its events is not measured without a watermark, so that its target "
                "cannot be judged",
                "add withWatermark to the query, or judge it by its delay: --slo-by delay",
            )


@check("whether each latency target has its query", "job")
def query_names(facts: JobFacts) -> Iterator[Finding]:
    """Targets by name without a query, and queries that share a name or have none."""
    slo = facts.need("slo")
    if not slo.by_name:
        return
    names = [name for _, name in known(facts, "name")]
    others = show_duration(slo.default_s)
    for name in slo.unknown(names):
        there = ", ".join(sorted({n for n in names if n})) or "none with a name"
        yield Finding(
            "limits",
            "--slo",
            f"{name}={show_duration(slo.by_name[name])}",
            f"no query has the name {name} (there are: {there}), so that the target is not used",
            "give the query that name with queryName, or correct the target",
        )
    for name, count in Counter(names).items():
        if name in slo.by_name and count > 1:
            yield Finding(
                "limits",
                "queryName",
                name,
                f"{count} queries have this name, and the target applies to one of them only",
                "give each query its own name",
            )
        elif not name:
            yield Finding(
                "limits",
                "queryName",
                None,
                f"{count} {'query has' if count == 1 else 'queries have'} no name and the target "
                f"of all others, {others}",
                "name each query with queryName",
            )


# --- partitions, state --------------------------------------------------------------------------


def _most_slots(facts: JobFacts) -> int:
    """Task slots at the largest number of executors."""
    if facts.max_executors is None:
        raise NotKnown("--max-executors is not given, so that the largest number of slots is open")
    return facts.max_executors * facts.slots


def _busy(partitions: int, facts: JobFacts) -> str:
    count = -(-partitions // facts.slots)
    return f"{count} executor{'s' * (count != 1)} of {facts.slots} slots"


@check("whether a shuffle has a partition for each slot", "job")
def shuffle_partitions(facts: JobFacts) -> Iterator[Finding]:
    """Fewer shuffle partitions than slots."""
    key = "spark.sql.shuffle.partitions"
    partitions, most = int(facts.number(key) or 0), _most_slots(facts)
    # What has state already keeps its partitions: see state_partitions.
    fixed = facts.queries is not None and all(q.state_partitions for q in facts.queries)
    if partitions < most and not fixed:
        yield Finding(
            "limits",
            key,
            f"{partitions}",
            f"a stage after a shuffle has {partitions} tasks and keeps {_busy(partitions, facts)} "
            f"busy, and there may be {facts.max_executors}",
            f"use at least one partition a slot: --conf {key}={most}; a query with state needs a "
            "new checkpoint for it",
        )


@check("whether the sources have a partition for each slot", "job")
def source_partitions(facts: JobFacts) -> Iterator[Finding]:
    """Queries whose widest stage has fewer tasks than there may be slots."""
    most = _most_slots(facts)
    for query, tasks in known(facts, "tasks"):
        if 0 < tasks < most:
            yield Finding(
                "limits",
                f"tasks of {query.shown}",
                f"{tasks}",
                f"its widest stage has {tasks} tasks and keeps {_busy(tasks, facts)} busy, and "
                f"there may be {facts.max_executors}",
                "give the topic more partitions, split them (minPartitions of the Kafka source), "
                "or use repartition before the expensive part",
            )


@check("whether every executor more saves time", "job")
def rounds(facts: JobFacts) -> Iterator[Finding]:
    """Hardly more tasks than slots: with most numbers of executors they take as many rounds."""
    most = _most_slots(facts)
    if facts.queries is None or len(facts.queries) != 1:
        return  # the tasks of other queries fill what one leaves
    for query, tasks in known(facts, "tasks"):
        fewer = [n for n in range(2, (facts.max_executors or 0) + 1) if not _saves(n, tasks, facts)]
        if most <= tasks < 2 * most and fewer:
            yield Finding(
                "limits",
                f"tasks of {query.shown}",
                f"{tasks}",
                f"its widest stage takes as many rounds of tasks on {_words(fewer)} executors as "
                "on one less, so these are never requested",
                f"use at least {2 * most} partitions, two for each slot",
            )


def _saves(executors: int, tasks: int, facts: JobFacts) -> bool:
    """Whether the tasks take fewer rounds than with one executor less."""
    return -(-tasks // (executors * facts.slots)) < -(-tasks // ((executors - 1) * facts.slots))


def _words(numbers: list[int]) -> str:
    first = ", ".join(map(str, numbers[:-1]))
    return f"{first} or {numbers[-1]}" if first else str(numbers[-1])


@check("whether the state has a partition for each slot", "job")
def state_partitions(facts: JobFacts) -> Iterator[Finding]:
    """State in fewer partitions than slots, which its checkpoint fixes."""
    most = _most_slots(facts)
    for query, partitions in known(facts, "state_partitions"):
        if partitions < most:
            yield Finding(
                "limits",
                f"state of {query.shown}",
                f"{partitions} partitions",
                f"a batch has one task for each partition and keeps {_busy(partitions, facts)} "
                f"busy, and there may be {facts.max_executors}; the checkpoint fixes the number",
                f"start the query from a new checkpoint with --conf "
                f"spark.sql.shuffle.partitions={most}",
            )


@check("whether tasks with state reach new executors", "job")
def locality_wait(facts: JobFacts) -> Iterator[Finding]:
    """Spark holds back tasks for the executor that has their state."""
    key = "spark.locality.wait"
    wait_s = facts.seconds("spark.locality.wait.process")
    if wait_s is None:
        wait_s = facts.seconds(key) or 0.0
    if wait_s <= 0:
        return
    given = facts.given("spark.locality.wait.process") or facts.given(key)
    shown = given or f"{show_duration(wait_s)} by default"
    remedy = f"do not wait: --conf {key}=0s"
    if facts.queries is None or any(query.stateful is None for query in facts.queries):
        yield Finding(
            "note",
            key,
            shown,
            "if a query has state, Spark holds back its tasks for this time for the executor that "
            "has it, and with short batches new executors get little to do",
            remedy,
        )
    for query in facts.queries or ():
        short = query.batch_s is None or query.batch_s < LOCALITY_WAITS * wait_s
        if query.stateful and short:
            took = f" and batches that take {show_duration(query.batch_s)}" if query.batch_s else ""
            yield Finding(
                "limits",
                key,
                shown,
                f"{query.shown} has state{took}, and Spark holds back each task for "
                "this time for the executor that has its state, so that new executors get little "
                "to do",
                remedy,
            )


@check("whether the state fits into the smallest number of executors", "job")
def state_memory(facts: JobFacts) -> Iterator[Finding]:
    """State on the heap that is too large for few executors."""
    provider = facts.setting("spark.sql.streaming.stateStore.providerClass") or ""
    if ROCKSDB in provider:
        return
    facts.need("queries")
    heap_mb = facts.megabytes("spark.executor.memory") or 0.0
    total_mb = sum(mb for _, mb in known(facts, "state_mb"))
    each_mb = total_mb / facts.min_executors
    if each_mb > MOST_OF_HEAP * heap_mb:
        yield Finding(
            "limits",
            "spark.sql.streaming.stateStore.providerClass",
            facts.given("spark.sql.streaming.stateStore.providerClass"),
            f"the default provider keeps state on the heap: {total_mb:.0f} MB on "
            f"{facts.min_executors} executors (--min-executors) is more than half of their "
            f"{heap_mb:.0f} MB",
            "raise --min-executors, or keep state on disk: --conf "
            "spark.sql.streaming.stateStore.providerClass="
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )


@check("whether every executor reaches the checkpoints", "job")
def checkpoints(facts: JobFacts) -> Iterator[Finding]:
    """Checkpoints in a local folder of a cluster."""
    key = "spark.sql.streaming.checkpointLocation"
    common = facts.given(key)
    places = [] if common is None else [(key, common)]
    missing: NotKnown | None = None
    try:
        for query, path in known(facts, "checkpoint"):
            places.append((f"checkpoint of {query.shown}", path))
    except NotKnown as error:
        missing = error
    if facts.cluster == "local" or facts.on_one_machine:
        return
    for name, path in places:
        if path.startswith("file:") or "://" not in path:
            bare = "" if path.startswith("file:") else ", unless fs.defaultFS is a shared storage"
            yield Finding(
                "limits",
                name,
                path,
                f"an executor on another machine cannot load state from there{bare}",
                "use a storage that every node reaches, such as hdfs:// or s3a://, or a folder "
                "that is mounted on all of them",
            )
    if missing is not None and common is None:
        raise missing


# --- what runs now ------------------------------------------------------------------------------


@check("whether Spark keeps all jobs that end in a turn", "job")
def jobs_in_a_turn(facts: JobFacts) -> Iterator[Finding]:
    """More jobs or stages end between two turns than Spark keeps."""
    rate = facts.need("rate")
    for key, what, per_s in (
        ("spark.ui.retainedJobs", "jobs", rate.jobs),
        ("spark.ui.retainedStages", "stages", rate.stages),
    ):
        retained = facts.number(key) or 0.0
        in_turn = per_s * facts.interval_s
        if retained < 2 * in_turn:  # twice, so that a late turn finds them too
            yield Finding(
                "limits",
                key,
                f"{retained:g}",
                f"about {in_turn:.0f} {what} end between two turns, and Spark forgets the oldest "
                "before they are read, so that the cost of batches is unknown",
                f"keep more: --conf {key}={4 * in_turn:.0f}",
            )


@check("whether all executors get tasks", "job")
def idle_executors(facts: JobFacts) -> Iterator[Finding]:
    """Executors that are excluded or leave."""
    executors = facts.need("executors")
    for names, what, remedy in (
        (
            [e.id for e in executors if e.excluded],
            "Spark gives them no tasks, because tasks failed there",
            "look at their logs for the failures",
        ),
        (
            [e.id for e in executors if e.leaving and not e.excluded],
            "they are being decommissioned and get no more tasks",
            "wait until they are gone",
        ),
    ):
        if names:
            yield Finding("note", "executors", ", ".join(names), what, remedy)
