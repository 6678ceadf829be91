"""The facts of running jobs: from a Spark UI as it was recorded, and from a driver."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.spark.doctor.servers import answering
from tidegate.errors import BackendError, InputError
from tidegate.model import SloByQuery
from tidegate.spark.autoscaler.admission import SourceLimit
from tidegate.spark.autoscaler.gateway import JobWork, Trigger
from tidegate.spark.autoscaler.jobs import StageWork
from tidegate.spark.doctor.driver import facts_of_driver, rate_of
from tidegate.spark.doctor.kubernetes import KubernetesAccess
from tidegate.spark.doctor.spark_ui import facts_of_ui, is_spark_ui
from tidegate.spark.doctor.surroundings import with_cluster
from tidegate.spark.doctor.web import Unreachable
from tidegate.spark.scalability import JobFacts, diagnose
from tidegate.testing.spark import FakeGateway, progress_json

RECORDED: Mapping[str, Any] = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "spark-ui" / "wrong_job.json").read_text()
)
ASKED = JobFacts(slo=SloByQuery.read("1s"), max_executors=4)


def ui(recorded: Mapping[str, Any], under: str = "") -> dict[str, Any]:
    """The answers of a Spark UI."""
    id = recorded["applications"][0]["id"]
    answers = {f"{under}/api/v1/applications": recorded["applications"]}
    for name, value in recorded.items():
        answers[f"{under}/api/v1/applications/{id}/{name}"] = value
    return answers


def test_what_a_spark_ui_shows_is_found() -> None:
    with answering(ui(RECORDED)) as url:
        assert is_spark_ui(url)
        facts, subject = facts_of_ui(url, ASKED)
    assert subject.startswith("wrong (app-")
    (query,) = facts.queries or ()
    assert (query.name, query.tasks, query.stateful, query.watermark) == ("words", 2, True, False)
    assert query.batch_s is not None and query.batch_s < 3
    assert (facts.version, facts.agent, facts.slots) == ("4.3.0", True, 2)
    assert [e.id for e in facts.executors or ()] == ["0"], "the driver runs no tasks"
    assert facts.rate is not None and 0.3 < facts.rate.jobs < 1 < 2.1 * facts.rate.jobs
    found = diagnose(facts)
    assert {f.key: f.severity for f in found.findings} == {
        "spark.dynamicAllocation.enabled": "blocks",
        "spark.sql.shuffle.partitions": "limits",
        "tasks of query words": "limits",
        "spark.locality.wait": "limits",
    }
    missing = {n.check: n.because for n in found.not_checked}
    assert missing.keys() == {
        "triggers", "slo-and-trigger", "rate-limits", "state-partitions", "state-memory",
    }  # fmt: skip
    assert all("the Spark UI does not show it" in why for why in missing.values())


def test_a_batch_lasts_from_its_first_job_to_its_last() -> None:
    first = RECORDED["jobs"][0]
    second = {**first, "jobId": 99, "submissionTime": "2026-11-16T07:18:50.000GMT",
              "completionTime": "2026-11-16T07:18:54.241GMT"}  # fmt: skip
    with answering(ui({**RECORDED, "jobs": [first, second]})) as url:
        facts, _ = facts_of_ui(url, ASKED)
    (query,) = facts.queries or ()
    assert query.batch_s == pytest.approx(10.0)


def test_secrets_that_a_spark_ui_hides_are_no_values() -> None:
    with answering(ui(RECORDED)) as url:
        facts, _ = facts_of_ui(url, ASKED)
    assert "spark.kubernetes.authenticate.oauthToken" not in (facts.settings or {})


@pytest.mark.parametrize("page", ["", "/", "/jobs/", "/StreamingQuery/", "/api/v1/applications"])
def test_any_page_of_a_ui_behind_a_proxy_will_do(page: str) -> None:
    with answering(ui(RECORDED, "/proxy/application_1_2")) as url:
        facts, _ = facts_of_ui(f"{url}/proxy/application_1_2{page}", ASKED)
    assert facts.version == "4.3.0"


def test_a_ui_without_plans_and_jobs_says_what_it_could_not_see() -> None:
    bare = {key: value for key, value in RECORDED.items() if not key.startswith("sql")}
    with answering(ui(bare)) as url:
        facts, _ = facts_of_ui(url, ASKED)
    (query,) = facts.queries or ()
    assert (query.stateful, query.watermark) == (None, None)
    with answering(ui({**bare, "jobs": [], "stages": []})) as url:
        facts, _ = facts_of_ui(url, ASKED)
    assert facts.queries is None and facts.rate is None
    because = {n.check: n.because for n in diagnose(facts).not_checked}
    assert because["triggers"].startswith("no job of a streaming query")
    assert because["jobs-in-a-turn"] == "too few jobs have ended"


def test_a_driver_without_the_agent_is_named_unless_submit_started_it() -> None:
    environment = dict(RECORDED["environment"])
    environment["sparkProperties"] = [
        pair for pair in environment["sparkProperties"] if pair[0] != "spark.plugins"
    ]
    with answering(ui({**RECORDED, "environment": environment})) as url:
        facts, _ = facts_of_ui(url, ASKED)
    finding = next(f for f in diagnose(facts).findings if f.key == "spark.plugins")
    assert finding.severity == "limits" and "unless the application creates" in finding.why
    command = "SparkSubmit …/tidegate/spark/autoscaler/driver.py {} app.py"
    environment["systemProperties"] = [["sun.java.command", command]]
    with answering(ui({**RECORDED, "environment": environment})) as url:
        facts, _ = facts_of_ui(url, ASKED)
    assert "spark.plugins" not in {f.key for f in diagnose(facts).findings}


def test_a_history_server_needs_the_name_of_the_application() -> None:
    first = RECORDED["applications"][0]
    two = {**RECORDED, "applications": [first, {**first, "id": "app-2"}]}
    with answering(ui(two)) as url:
        with pytest.raises(InputError, match=r"--application is ''; it must be one of app-.*app-2"):
            facts_of_ui(url, ASKED)
        assert facts_of_ui(url, ASKED, first["id"])[0].version == "4.3.0"
    with answering(ui({**RECORDED, "applications": [first]})) as url, pytest.raises(InputError):
        facts_of_ui(url, ASKED, "app-3")


def test_an_address_that_is_no_spark_ui() -> None:
    with answering({"/api/v1/applications": {"error": "no"}}) as url:
        assert not is_spark_ui(url)
        with pytest.raises(BackendError, match="shows no application"):
            facts_of_ui(url, ASKED)
    with answering({}) as url:
        assert not is_spark_ui(url)
    with pytest.raises(Unreachable, match="cannot be reached"):
        is_spark_ui(url)


# --- a driver -----------------------------------------------------------------------------------


class Talking(FakeGateway):
    """A driver whose queries report a batch as soon as somebody listens."""

    events: tuple[str, ...] = ()

    def talk(self) -> None:
        for event in self.events:
            self.publish("progress", event)

    def listen(self, hear: Any) -> Any:
        end = super().listen(hear)
        thread = threading.Thread(target=self.talk)
        thread.start()
        thread.join()
        return end


STATE = {"stateOperators": [
    {"operatorName": "stateStoreSave", "numRowsTotal": 9, "memoryUsedBytes": 900 * 2**20,
     "numShufflePartitions": 2}
]}  # fmt: skip


def driver(**state: Any) -> Talking:
    gateway = Talking(executors=2)
    gateway.query("ticks", trigger_s=10.0)
    gateway.settings |= {"spark.executor.memory": "1g", "spark.cores.max": "8"}
    gateway.limits["id-of-ticks"] = ((SourceLimit("rows", 500, "KafkaV2[x]"),), ())
    gateway.events = (progress_json("ticks", 3, duration_s=1.5, rows=10, **state),)
    stage = StageWork(0, 1, 1, 3, 1)
    gateway.works = [
        JobWork(n, n, 1.0, 1.0, 2, run="run-of-ticks", ended_s=100.0 + n, stages=(stage, stage))
        for n in range(5)
    ]
    return gateway


def test_what_a_driver_shows_is_found_and_nothing_of_it_is_changed() -> None:
    gateway = driver(**STATE)
    facts = facts_of_driver(gateway, ASKED, wait_s=60)
    (query,) = facts.queries or ()
    assert (query.name, query.trigger, query.trigger_s) == ("ticks", "ProcessingTimeTrigger", 10.0)
    assert (query.tasks, query.batch_s, query.watermark) == (3, 1.5, False)
    assert (query.stateful, query.state_partitions, query.state_mb) == (True, 2, 900)
    assert query.limits is not None and len(query.limits) == 1
    assert facts.rate is not None and (facts.rate.jobs, facts.rate.stages) == (1.0, 2.0)
    assert {f.key: f.severity for f in diagnose(facts).findings} == {
        "--slo of query ticks": "limits",
        "maxOffsetsPerTrigger of query ticks": "limits",
        "tasks of query ticks": "limits",
        "state of query ticks": "limits",
        "spark.locality.wait": "limits",
        "spark.sql.streaming.stateStore.providerClass": "limits",
        "spark.executor.cores": "limits",
        "spark.task.maxFailures": "note",
    }
    assert diagnose(facts).not_checked == (), "on one machine, checkpoints may be local"
    assert gateway.calls == []


def test_a_query_without_a_batch_is_waited_for_no_longer_than_asked() -> None:
    gateway = driver()
    gateway.query("late")
    facts = facts_of_driver(gateway, ASKED, wait_s=0.05)
    late = next(q for q in facts.queries or () if q.name == "late")
    assert (late.stateful, late.watermark, late.tasks) == (None, None, None)
    because = {n.check: n.because for n in diagnose(facts).not_checked}
    assert because["state-memory"] == "no batch ended within 0.05 s (query late)"


def test_a_driver_without_queries_and_one_that_fails() -> None:
    gateway = Talking()
    facts = facts_of_driver(gateway, ASKED, wait_s=60)
    assert facts.queries is None
    because = {n.check: n.because for n in diagnose(facts).not_checked}
    assert because["triggers"] == "no streaming query runs at the moment"
    gateway.broken = "the driver is gone"
    because = {
        n.check: n.because for n in diagnose(facts_of_driver(gateway, ASKED, 60)).not_checked
    }
    assert because["idle-executors"] == "the driver is gone"


def test_a_continuous_query_blocks() -> None:
    gateway = driver()
    gateway.triggers["id-of-ticks"] = Trigger("ContinuousTrigger")
    found = diagnose(facts_of_driver(gateway, ASKED, 60))
    assert found.blocked and found.findings[0].key == "trigger of query ticks"


def test_a_checkpoint_on_the_drivers_disk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = driver()
    gateway.settings |= {"spark.master": "spark://master:7077"}
    monkeypatch.setattr(gateway, "checkpoint_of", lambda query: "file:/data/ticks")
    finding = next(
        f
        for f in diagnose(facts_of_driver(gateway, ASKED, 60)).findings
        if f.check == "checkpoints"
    )
    assert (finding.key, finding.value) == ("checkpoint of query ticks", "file:/data/ticks")
    monkeypatch.undo()
    because = {
        n.check: n.because for n in diagnose(facts_of_driver(gateway, ASKED, 60)).not_checked
    }
    assert "the driver does not show where it is" in because["checkpoints"]


def test_a_driver_that_may_not_create_pods_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = driver()
    gateway.settings |= {"spark.master": "k8s://https://127.0.0.1:9"}
    monkeypatch.setattr(gateway, "may_create_pods", lambda: False)
    facts = with_cluster(facts_of_driver(gateway, ASKED, 60), KubernetesAccess())
    finding = next(f for f in diagnose(facts).findings if f.check == "kubernetes-rights")
    assert (finding.severity, finding.key) == ("blocks", "right to create pods")
    assert "the driver's account" in str(finding.value)


def test_a_query_without_a_name_is_shown_by_its_run() -> None:
    gateway = Talking()
    gateway.queries["12345678-abcd"] = "12345678"  # as Spark's queries without a name are listed
    facts = facts_of_driver(gateway, ASKED, wait_s=0.01)
    (query,) = facts.queries or ()
    assert query.name == "" and query.shown.startswith("the query in run")


def test_a_rate_needs_two_jobs_at_different_times() -> None:
    job = JobWork(0, 0, 1.0, 1.0, 1, ended_s=5.0)
    assert rate_of([]) is None and rate_of([job]) is None and rate_of([job, job]) is None
