"""Every check finds what it is for, and is silent where there is nothing to find."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidegate.errors import SettingError
from tidegate.model import SloByQuery
from tidegate.spark.autoscaler.admission import SourceLimit
from tidegate.spark.autoscaler.scalable import check_scalable
from tidegate.spark.autoscaler.sightings import ExecutorInfo
from tidegate.spark.scalability import CHECKS, JobFacts, diagnose
from tidegate.spark.scalability.facts import JobRate, PodRights, QueryFacts, QueueRoom
from tidegate.spark.scalability.findings import Finding, sentence
from tidegate.spark.scalability.settings import DEFAULTS, NotKnown, flag, megabytes, seconds

STANDALONE = {
    "spark.master": "spark://master:7077",
    "spark.executor.cores": "2",
    "spark.cores.max": "16",
    "spark.decommission.enabled": "true",
    "spark.task.maxFailures": "8",
    "spark.locality.wait": "0s",
    "spark.sql.streaming.checkpointLocation": "hdfs://data/checkpoints",
}
YARN = STANDALONE | {
    "spark.master": "yarn",
    "spark.executor.failuresValidityInterval": "1h",
    "spark.executor.instances": "2",
}
K8S = STANDALONE | {
    "spark.master": "k8s://https://api:6443",
    "spark.executor.maxNumFailures": "2147483647",
}
QUERY = QueryFacts(
    name="ticks",
    trigger="ProcessingTimeTrigger",
    trigger_s=2.0,
    limits=(),
    tasks=32,
    batch_s=1.5,
    watermark=True,
    stateful=True,
    state_partitions=32,
    state_mb=100.0,
    checkpoint="hdfs://data/ticks",
)
EXECUTOR = ExecutorInfo("1", 2, 512.0, 0.0, 0, 0.0)
GOOD = JobFacts(
    settings=STANDALONE,
    version="4.3.0",
    tested_versions=("4.2", "4.3"),
    slo=SloByQuery.read("5s"),
    max_executors=8,
    executors=(EXECUTOR,),
    queries=(QUERY,),
    agent=True,
    needs_agent="it is a jar",
    rate=JobRate(1.0, 2.0),
)
ON_YARN = replace(GOOD, settings=YARN, queue=QueueRoom("default", 65536, 65536))
ON_K8S = replace(GOOD, settings=K8S, pod_rights=PodRights("this account", "default"))
HEALTHY = {"standalone": GOOD, "yarn": ON_YARN, "kubernetes": ON_K8S}


def given(facts: JobFacts = GOOD, /, **settings: str | None) -> JobFacts:
    """The facts with other settings of Spark, ``__`` for a dot; None for one that is not set."""
    changed = {**(facts.settings or {})}
    for name, value in settings.items():
        key = "spark." + name.replace("__", ".")
        changed.pop(key, None)
        if value is not None:
            changed[key] = value
    return replace(facts, settings=changed)


def asked(facts: JobFacts = GOOD, /, **changes: Any) -> JobFacts:
    return replace(facts, **changes)


def query(**changes: Any) -> JobFacts:
    """The facts with another query."""
    return replace(GOOD, queries=(replace(QUERY, **changes),))


LIMIT = SourceLimit("rows", 5000, "KafkaV2[Subscribe[ticks]]")
FINDS: list[tuple[str, JobFacts, str, str, str]] = [
    # check, facts, severity, key, words
    ("dynamic-allocation", given(dynamicAllocation__enabled="True"), "blocks",
     "spark.dynamicAllocation.enabled", "two autoscalers"),
    ("dynamic-allocation", asked(given(dynamicAllocation__enabled="true"), dry_run=True), "note",
     "spark.dynamicAllocation.enabled", "two autoscalers"),
    ("pod-allocator", given(ON_K8S, kubernetes__allocation__pods__allocator="statefulset"),
     "blocks", "spark.kubernetes.allocation.pods.allocator", "chooses itself"),
    ("pod-allocator", given(ON_K8S, kubernetes__allocation__pods__allocator="org.x.Mine"),
     "note", "spark.kubernetes.allocation.pods.allocator", "own allocator only"),
    ("task-cpus", given(task__cpus="4"), "blocks", "spark.task.cpus", "no task fits"),
    ("task-cpus", given(task__cpus="2", executor__cores="3"), "limits", "spark.task.cpus",
     "1 never have a task"),
    ("cores-max", given(cores__max="8"), "limits", "spark.cores.max", "room for 4 executors"),
    ("cores-max", given(cores__max="1"), "blocks", "spark.cores.max", "gets none"),
    ("cores-max", asked(max_executors=None), "note", "spark.cores.max", "room for 8 executors"),
    ("executor-cores", given(executor__cores=None), "limits", "spark.executor.cores",
     "all free cores"),
    ("executor-instances", given(ON_YARN, executor__instances="20"), "note",
     "spark.executor.instances", "more executors than --max-executors 8"),
    ("executor-instances", asked(given(ON_K8S, executor__instances=None), min_executors=4), "note",
     "spark.executor.instances", "starts with 2"),
    ("decommissioning", given(decommission__enabled="false"), "limits",
     "spark.decommission.enabled", "kills the executor"),
    ("decommissioning", given(decommission__enabled=None), "limits", "spark.decommission.enabled",
     "kills the executor"),
    ("storage-decommissioning", given(storage__decommission__enabled="true"), "limits",
     "spark.storage.decommission.enabled", "30 seconds"),
    ("decommissioned-fetches", given(stage__ignoreDecommissionFetchFailure="false"), "limits",
     "spark.stage.ignoreDecommissionFetchFailure", "counts this as a failure"),
    ("decommissioned-fetches", asked(version="3.5.3"), "limits",
     "spark.stage.ignoreDecommissionFetchFailure", "counts this as a failure"),
    ("task-failures", given(task__maxFailures=None), "note", "spark.task.maxFailures", "4 times"),
    ("task-failures", given(task__maxFailures="1"), "limits", "spark.task.maxFailures", "1 times"),
    ("executor-failures", given(ON_YARN, executor__failuresValidityInterval=None), "limits",
     "spark.executor.maxNumFailures", "after 4 failed executors"),
    ("executor-failures",
     given(ON_YARN, executor__failuresValidityInterval=None, yarn__max__executor__failures="6"),
     "limits", "spark.executor.maxNumFailures", "after 6 failed executors"),
    ("executor-failures",
     given(ON_K8S, executor__maxNumFailures=None, executor__failuresValidityInterval="1h"),
     "limits", "spark.executor.maxNumFailures", "after 3 failed executors"),
    ("speculation", given(speculation="true"), "note", "spark.speculation", "copies of slow tasks"),
    ("excluded-executors", given(excludeOnFailure__enabled="true"), "note",
     "spark.excludeOnFailure.enabled", "no tasks for an hour"),
    ("shuffle-service", given(ON_YARN, shuffle__service__enabled="true"), "note",
     "spark.shuffle.service.enabled", "cannot register"),
    ("shuffle-service", given(ON_K8S, shuffle__service__enabled="true"), "limits",
     "spark.shuffle.service.enabled", "no shuffle service for Kubernetes"),
    ("fetch-retries", given(shuffle__io__maxRetries="30"), "limits", "spark.shuffle.io.maxRetries",
     "2.5 min"),
    ("pods-in-all", given(ON_K8S, kubernetes__allocation__maximum="50"), "limits",
     "spark.kubernetes.allocation.maximum", "every pod that it ever created"),
    ("finished-pods", given(ON_K8S, kubernetes__executor__deleteOnTermination="false"), "note",
     "spark.kubernetes.executor.deleteOnTermination", "quota of pods"),
    ("other-resources",
     given(executor__resource__gpu__amount="1", task__resource__gpu__amount="1"), "limits",
     "spark.task.resource.gpu.amount", "GPUs for 1 tasks and cores for 2"),
    ("retained-jobs", given(ui__retainedStages="20"), "limits", "spark.ui.retainedStages",
     "older stages"),
    ("triggers", query(trigger="ContinuousTrigger", trigger_s=None), "blocks",
     "trigger of query ticks", "never end"),
    ("triggers", query(trigger="RealTimeTrigger", trigger_s=None), "blocks",
     "trigger of query ticks", "never end"),
    ("triggers", query(trigger="AvailableNowTrigger", trigger_s=0.0), "note",
     "trigger of query ticks", "works off what is there"),
    ("slo-and-trigger", query(trigger_s=10.0), "limits", "--slo of query ticks", "up to 10 s"),
    ("rate-limits", query(limits=(LIMIT,)), "limits", "maxOffsetsPerTrigger of query ticks",
     "at most 2500 rows a second"),
    ("rate-limits", query(limits=(LIMIT,), trigger_s=0.0), "limits",
     "maxOffsetsPerTrigger of query ticks", "at most 5000 rows in a batch"),
    ("watermarks", asked(query(watermark=False), slo_by="event-age"), "limits",
     "watermark of query ticks", "not measured without a watermark"),
    ("query-names", asked(slo=SloByQuery.read("tick=2s,30s")), "limits", "--slo",
     "no query has the name tick (there are: ticks)"),
    ("query-names", asked(slo=SloByQuery.read("ticks=2s,30s"), queries=(QUERY, QUERY)), "limits",
     "queryName", "2 queries have this name"),
    ("query-names",
     asked(slo=SloByQuery.read("ticks=2s,30s"), queries=(QUERY, replace(QUERY, name=""))),
     "limits", "queryName", "1 query has no name"),
    ("shuffle-partitions", asked(given(sql__shuffle__partitions="4"), queries=None), "limits",
     "spark.sql.shuffle.partitions", "keeps 2 executors of 2 slots busy"),
    ("source-partitions", query(tasks=3), "limits", "tasks of query ticks",
     "keeps 2 executors of 2 slots busy"),
    ("rounds", query(tasks=16), "limits", "tasks of query ticks",
     "on 5, 6 or 7 executors as on one less"),
    ("state-partitions", query(state_partitions=2), "limits", "state of query ticks",
     "the checkpoint fixes the number"),
    ("locality-wait", given(locality__wait=None), "limits", "spark.locality.wait",
     "query ticks has state and batches that take 1.5 s"),
    ("locality-wait", given(locality__wait="0s", locality__wait__process="5s"), "limits",
     "spark.locality.wait", "query ticks has state"),
    ("locality-wait", asked(given(locality__wait=None), queries=None), "note",
     "spark.locality.wait", "if a query has state"),
    ("state-memory", query(state_mb=800.0), "limits",
     "spark.sql.streaming.stateStore.providerClass", "800 MB on 1 executors"),
    ("checkpoints", query(checkpoint="/tmp/ticks"), "limits", "checkpoint of query ticks",
     "unless fs.defaultFS"),
    ("checkpoints", given(sql__streaming__checkpointLocation="file:/tmp/c"), "limits",
     "spark.sql.streaming.checkpointLocation", "on another machine"),
    ("jobs-in-a-turn", asked(rate=JobRate(80.0, 10.0)), "limits", "spark.ui.retainedJobs",
     "about 800 jobs end"),
    ("idle-executors", asked(executors=(EXECUTOR, replace(EXECUTOR, id="7", excluded=True))),
     "note", "executors", "tasks failed there"),
    ("idle-executors", asked(executors=(replace(EXECUTOR, leaving=True),)), "note", "executors",
     "being decommissioned"),
    ("master", given(master="local[4]"), "blocks", "spark.master", "no executors to add"),
    ("master", given(master="mesos://m:5050"), "note", "spark.master", "not tested"),
    ("spark-version", asked(version="3.3.2"), "note", "version of Spark", "4.2, 4.3"),
    ("spark-version", asked(version="4.20.0"), "note", "version of Spark", "4.2, 4.3"),
    ("agent", asked(agent=False), "limits", "spark.plugins", "it is a jar"),
    ("connect", asked(given(remote="sc://server:15002"), in_advance=True), "blocks",
     "spark.remote", "its server has them"),
    ("controller", asked(given(submit__deployMode="cluster"), in_advance=True), "note",
     "--controller-python", "nothing is scaled"),
    ("upper-limit", asked(max_executors=None, in_advance=True), "note", "--max-executors",
     "nothing but the cluster"),
    ("kubernetes-rights",
     asked(ON_K8S, pod_rights=PodRights("this account", "jobs", {"create pods": "no role"})),
     "blocks", "right to create pods", "adds and removes executors"),
    ("kubernetes-rights",
     asked(ON_K8S, pod_rights=PodRights("this account", "jobs", {"deletecollection pods": ""})),
     "note", "right to deletecollection pods", "cleans up"),
    ("yarn-queue", asked(ON_YARN, queue=QueueRoom("small", 4096, 4096)), "limits",
     "spark.yarn.queue", "room for 2 executors of 1408 MB at most"),
    ("yarn-queue", asked(ON_YARN, queue=QueueRoom("full", 65536, 3000)), "limits",
     "spark.yarn.queue", "room for 2 more executors"),
    ("yarn-queue", asked(ON_YARN, queue=QueueRoom("old", 65536, 65536, "STOPPED")), "blocks",
     "spark.yarn.queue", "takes no applications"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("check", "facts", "severity", "key", "words"),
    FINDS,
    ids=[f"{n}-{case[0]}" for n, case in enumerate(FINDS)],
)
def test_a_check_finds_what_it_is_for(
    check: str, facts: JobFacts, severity: str, key: str, words: str
) -> None:
    found = diagnose(facts, checks=[CHECKS[check]])
    assert [(f.severity, f.key, f.check) for f in found.findings] == [(severity, key, check)]
    assert words in found.findings[0].why
    assert found.findings[0].remedy and found.not_checked == ()


def test_every_check_has_a_job_in_which_it_finds_something() -> None:
    only_missing = {"settings-in-code"}  # it says what cannot be seen, and finds nothing
    assert {case[0] for case in FINDS} == CHECKS.keys() - only_missing


@pytest.mark.parametrize("cluster", HEALTHY)
def test_a_healthy_job_has_no_findings_and_nothing_unchecked(cluster: str) -> None:
    found = diagnose(HEALTHY[cluster])
    assert (found.findings, found.not_checked) == ((), ())
    assert set(found.passed) == CHECKS.keys(), "every check was made"


def test_nothing_known_is_nothing_passed_over_in_silence() -> None:
    found = diagnose(JobFacts(in_advance=True, slo_by="event-age"))
    said = {f.check for f in found.findings} | {n.check for n in found.not_checked}
    unconcerned = {"agent"}  # nothing says that the job would need it
    assert said == CHECKS.keys() - unconcerned
    assert all(one.because for one in found.not_checked)


def test_what_is_known_of_some_queries_is_found_and_the_others_are_named() -> None:
    facts = replace(
        GOOD,
        queries=(replace(QUERY, tasks=3), replace(QUERY, name="late", tasks=None)),
        unknown={"queries.tasks": "none of its jobs has ended"},
    )
    found = diagnose(facts, checks=[CHECKS["source-partitions"]])
    assert [f.key for f in found.findings] == ["tasks of query ticks"]
    assert found.not_checked[0].because == "none of its jobs has ended (query late)"


@pytest.mark.parametrize(
    ("facts", "check", "because"),
    [
        (given(task__cpus="many"), "task-cpus", "spark.task.cpus is 'many', which is not a number"),
        (given(locality__wait="soon"), "locality-wait", "is 'soon', which is not a duration"),
        (given(speculation="perhaps"), "speculation", "neither true nor false"),
        (given(executor__memory="x"), "state-memory", "is 'x', which is not a size"),
        (given(master=None), "cores-max", "spark.master is given neither"),
        (asked(given(executor__cores=None), executors=None), "shuffle-partitions", "the workers"),
        (asked(max_executors=None), "source-partitions", "--max-executors is not given"),
        (asked(version=None), "decommissioned-fetches", "depends on the version"),
        (asked(slo=None, unknown={"slo": "add --slo"}), "slo-and-trigger", "add --slo"),
    ],
)
def test_a_check_that_cannot_be_made_says_why(facts: JobFacts, check: str, because: str) -> None:
    found = diagnose(facts, checks=[CHECKS[check]])
    assert found.findings == () and because in found.not_checked[0].because
    assert found.not_checked[0].what == CHECKS[check].about


def test_the_worst_comes_first() -> None:
    found = diagnose(given(speculation="true", dynamicAllocation__enabled="true", cores__max="8"))
    assert [f.severity for f in found.findings] == ["blocks", "limits", "note"]
    assert found.blocked
    assert not diagnose(given(speculation="true")).blocked


def test_a_dry_run_may_watch_what_cannot_be_scaled() -> None:
    facts = asked(given(dynamicAllocation__enabled="true", master="local[2]"), dry_run=True)
    assert not diagnose(facts).blocked


def test_a_remedy_names_the_place_in_the_code_that_takes_precedence() -> None:
    facts = replace(given(speculation="true"), set_in_code={"spark.speculation": "app.py, line 3"})
    (finding,) = diagnose(facts).findings
    assert "change it in app.py, line 3" in finding.remedy


def test_slots_come_from_running_executors_when_no_setting_says() -> None:
    facts = given(executor__cores=None)
    assert facts.slots == 2
    assert given(executor__cores="8", task__cpus="3").slots == 2
    assert given(ON_YARN, executor__cores=None).slots == 2
    assert replace(given(ON_YARN, executor__cores=None), executors=None).slots == 1


# --- one source of truth ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", [c for c in FINDS if c[2] == "blocks"], ids=lambda case: f"{case[0]}-{case[3]}"
)
def test_the_autoscaler_refuses_exactly_the_settings_that_block(
    case: tuple[str, JobFacts, str, str, str],
) -> None:
    check, facts, _, key, words = case
    settings = facts.settings or {}

    def setting(name: str, default: str) -> str:
        return settings.get(name, default)

    if CHECKS[check].needs == "settings":
        with pytest.raises(SettingError, match="it must be") as error:
            check_scalable(setting)
        assert error.value.key == key and words in str(error.value)
    else:
        check_scalable(setting)  # queries and clusters are looked at later


@pytest.mark.parametrize(
    "case",
    [c for c in FINDS if c[2] != "blocks" and not c[1].dry_run],
    ids=lambda case: f"{case[0]}-{case[3]}",
)
def test_the_autoscaler_accepts_what_only_limits(
    case: tuple[str, JobFacts, str, str, str],
) -> None:
    settings = case[1].settings or {}
    check_scalable(settings.get)


def test_every_default_is_readable() -> None:
    facts = JobFacts({})
    for key in DEFAULTS:
        facts.setting(key)
    with pytest.raises(AssertionError):
        facts.setting("spark.unheard.of")


# --- values -------------------------------------------------------------------------------------


def test_values_are_read_as_spark_reads_them() -> None:
    assert seconds("k", "100ms") == 0.1 and seconds("k", "2", "s") == 2.0 and seconds("k", "0") == 0
    assert megabytes("k", "2g") == 2048 and megabytes("k", "512") == 512
    assert megabytes("k", "1048576b") == 1 and megabytes("k", "1GB") == 1024
    assert flag("k", " TRUE ")
    with pytest.raises(NotKnown):
        megabytes("k", "2 elephants")


def test_sentences() -> None:
    finding = Finding("limits", "spark.x", None, "it is slow", "--conf spark.x=1 makes it fast")
    assert str(finding) == "spark.x is not set. It is slow. --conf spark.x=1 makes it fast."
    assert sentence("a b…") == "A b…"
