"""The contract of a gateway, for the driver of this process and through the agent."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.autoscaler.live import Live, Stream, live, stream, until
from tidegate.errors import BackendError, InputError, SettingError
from tidegate.model import HostOffer
from tidegate.model.topology import Resources
from tidegate.spark.agent import JAR
from tidegate.spark.autoscaler import agent as module
from tidegate.spark.autoscaler.agent import (
    AgentGateway,
    NotInControl,
    NotThere,
    agent_token,
    announced,
)
from tidegate.spark.autoscaler.executors import executor_manager
from tidegate.spark.autoscaler.gateway import Gateway
from tidegate.spark.autoscaler.in_process import InProcessGateway
from tidegate.spark.autoscaler.world import SparkWorld

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(not JAR.exists(), reason="the agent is not compiled: run make agent"),
]

__all__ = ["live", "stream"]


@pytest.fixture(params=["in process", "agent"])
def gateway(request: pytest.FixtureRequest, live: Live) -> Iterator[Gateway]:
    if request.param == "agent":
        agent = live.agent()
        yield agent
        agent.leave()
    else:
        yield InProcessGateway(live.spark)


def works_off(stream: Stream, gateway: Gateway, files: int = 3) -> str:
    """Id of the query after it has worked off some files."""
    heard: list[str] = []
    end = gateway.listen(lambda kind, text: heard.append(text) if kind == "progress" else None)
    stream.feed(files)
    until("batches are heard", lambda: sum(json.loads(t)["numInputRows"] > 0 for t in heard) >= 2)
    end()
    return str(stream.query.id)


def test_what_it_knows_of_the_application(live: Live, gateway: Gateway) -> None:
    context = live.spark.sparkContext
    assert (gateway.version, gateway.name) == (context.version, context.appName)
    assert gateway.application == context.applicationId
    assert gateway.scheme == "spark" and gateway.setting("spark.master") == context.master
    assert gateway.setting("spark.none", "x") == "x" and gateway.setting("spark.none") == ""
    assert gateway.decommissions and not gateway.stopped and not gateway.succeeded_by_another


def test_its_executors_with_and_without_the_driver(live: Live, gateway: Gateway) -> None:
    until("the executor runs", lambda: [e for e in gateway.executors() if e.memory_mb])
    (executor,) = gateway.executors()
    assert executor.cores == 2 and executor.memory_mb > 0 and not executor.leaving
    assert {e.id for e in gateway.executors(include_driver=True)} == {"driver", executor.id}


def test_its_queries_from_start_to_end(live: Live, stream: Stream, gateway: Gateway) -> None:
    query = works_off(stream, gateway)
    assert gateway.active_queries() == {query: "ticks"}
    assert gateway.trigger_of(query).kind == "ProcessingTimeTrigger"
    assert gateway.trigger_of(query).interval_s == 0
    until(
        "it has nothing to do", lambda: gateway.active_queries() and gateway.status_of(query).idle
    )
    assert gateway.status_of(query).run == stream.query.runId
    limits = gateway.read_limits(query)
    assert limits is not None and [limit.kind for limit in limits[0]] == ["files"]
    assert gateway.files_read(query) is not None and gateway.in_batch() == {}
    assert gateway.tasks_of(str(stream.query.runId)) == (0, 0)
    stream.query.stop()
    assert gateway.active_queries() == {}
    assert not gateway.status_of(query).run and gateway.trigger_of(query).kind == ""
    assert gateway.read_limits("none") is None and gateway.files_read("none") is None


def test_a_query_of_another_session_is_known_and_heard(
    live: Live, gateway: Gateway, tmp_path: Path
) -> None:
    heard: list[tuple[str, str]] = []
    end = gateway.listen(lambda kind, text: heard.append((kind, text)))
    other = live.spark.newSession()
    rows = other.readStream.format("rate").load().writeStream.format("noop").queryName("other")
    query = rows.option("checkpointLocation", str(tmp_path / "other")).start()
    until("it is listed", lambda: "other" in gateway.active_queries().values())
    until("it is heard", lambda: any(k == "progress" and str(query.id) in t for k, t in heard))
    query.stop()
    until("its end is heard", lambda: any(k == "ended" for k, _ in heard))
    end()
    (ended,) = [text for kind, text in heard if kind == "ended"]
    assert ended == f"{query.runId}\n"


def test_the_jobs_that_have_ended_and_then_only_the_new_ones(
    live: Live, stream: Stream, gateway: Gateway
) -> None:
    works_off(stream, gateway)
    jobs, last, left = gateway.finished_jobs(-1)
    mine = [job for job in jobs if job.run == str(stream.query.runId)]
    assert mine and all(job.batch is not None and job.complete and job.stages for job in mine)
    assert all(job.run_s > 0 and job.tasks > 0 for job in mine)
    assert last >= max(job.job for job in jobs)
    until("all have ended", lambda: not gateway.finished_jobs(last, left)[2])
    last = gateway.finished_jobs(last, left)[1]
    assert gateway.finished_jobs(last)[0] == []


def test_state_is_where_the_tasks_ran(live: Live, stream: Stream, gateway: Gateway) -> None:
    works_off(stream, gateway)
    ids = {executor.id for executor in gateway.executors()}
    until("its state is loaded", gateway.state_partitions)
    partitions = gateway.state_partitions()
    assert partitions is not None and partitions.keys() <= ids
    assert sum(partitions.values()) == 2, "spark.sql.shuffle.partitions"


def test_both_say_the_same_at_the_same_time(live: Live, stream: Stream) -> None:
    gateways = InProcessGateway(live.spark, watch_only=True), live.agent(watch_only=True)
    heard: tuple[list[Any], list[Any]] = ([], [])
    ends = [
        g.listen(lambda kind, text, to=to: to.append((kind, text)))  # type: ignore[misc]
        for g, to in zip(gateways, heard, strict=True)
    ]
    stream.feed(6)
    until("batches are heard", lambda: len(heard[0]) > 3)
    until("it is idle", lambda: all(idle(gateway, stream) for gateway in gateways))
    until("both have heard it", lambda: len(heard[0]) == len(heard[1]))
    for end in ends:
        end()
    query = str(stream.query.id)
    # The agent tells of a query what it saw when it last listed all of them, and an idle query
    # looks for data a hundred times a second: each look lists them again.
    looks: list[Callable[[Gateway], object]] = [
        lambda g: g.executors(),
        lambda g: (g.active_queries(), g.trigger_of(query), g.status_of(query)),
        lambda g: (g.active_queries(), g.read_limits(query), g.files_read(query)),
        lambda g: (g.in_batch(), g.tasks_of(str(stream.query.runId))),
        lambda g: g.finished_jobs(-1),
        lambda g: g.state_partitions(),
    ]
    for look in looks:
        said: list[object] = []

        def agree(look: Callable[[Gateway], object] = look, said: list[object] = said) -> bool:
            said[:] = [look(gateway) for gateway in gateways]
            return said[0] == said[1]

        try:
            until("they agree", agree)
        except AssertionError as error:
            raise AssertionError(f"{said[0]} is not {said[1]}") from error
    same = [text for kind, text in heard[0] if kind == "progress"]
    assert same and same == [text for kind, text in heard[1] if kind == "progress"]


def idle(gateway: Gateway, stream: Stream) -> bool:
    gateway.active_queries()
    return gateway.status_of(str(stream.query.id)).idle


# --- the agent alone --------------------------------------------------------------------------


def test_an_executor_more_and_one_fewer(live: Live, stream: Stream, gateway: Gateway) -> None:
    live.cluster.lease("second")
    live.cluster.wait_for_host("second")
    assert gateway.request_total(2)
    until("there are two", lambda: len(gateway.executors()) == 2)
    assert gateway.request_total(1)
    newest = gateway.executors()[-1].id
    assert gateway.decommission([newest], "a test") == [newest]
    until("it leaves", lambda: newest not in [e.id for e in gateway.executors() if not e.leaving])
    until("it has left", lambda: newest not in [e.id for e in gateway.executors()])
    assert gateway.request_total(2)
    until("there are two again", lambda: len(gateway.executors()) == 2)
    newest = gateway.executors()[-1].id
    assert gateway.request_total(1)
    assert gateway.kill([newest]) == [newest]
    until("it is gone", lambda: newest not in [e.id for e in gateway.executors()])
    assert gateway.decommission([], "") == gateway.kill([]) == []
    live.cluster.give_back("second")
    stream.feed(1)
    stream.check()


def test_a_world_is_observed_through_the_agent(live: Live, stream: Stream) -> None:
    agent = live.agent(watch_only=True)
    hosts = executor_manager(agent, lambda: 0.0)
    world = SparkWorld(agent, hosts, HostOffer(Resources(2.0)), interval_s=1.0, warm_up_s=0)
    world.start()
    stream.feed(4)

    def known() -> bool:
        reading = world.observe().reading["ticks"]
        return reading.batches is not None and reading.batches.cost is not None

    until("the cost of a batch is known", known)
    world.close()


def test_a_second_controller_is_refused_until_the_first_leaves_or_falls_silent(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = live.agent(name="first")
    with pytest.raises(NotInControl, match="already controlled by first"):
        live.agent(name="second")
    watcher = live.agent(watch_only=True)
    with pytest.raises(BackendError):
        watcher.request_total(5)
    assert len(watcher.executors()) == 1, "everybody may read"
    first.leave()
    monkeypatch.setattr(module, "LEASE_S", 1)
    second = live.agent(name="second")
    until("it is silent", lambda: live.agent(watch_only=True)._about["controller"] is None)
    monkeypatch.setattr(module, "LEASE_S", 30)
    third = live.agent(name="third")
    with pytest.raises(NotInControl, match="third"):
        second.request_total(1)
    third.leave()
    with pytest.raises(NotInControl, match="in control again"):
        second.request_total(1)  # decided long ago, so it is not repeated
    assert second.request_total(1)
    second.leave()


def test_the_last_total_stays_when_the_controller_is_gone(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEASE_S", 1)
    assert live.agent(name="gone").request_total(1)

    def about() -> dict[str, Any]:
        return live.agent(watch_only=True)._about

    until("it is noticed", lambda: about()["controller"] is None)
    assert about()["total"] == 1
    context: Any = live.spark.sparkContext
    backend = context._jsc.sc().schedulerBackend()
    context._jsc.sc().requestTotalExecutors(3, 0, context._jvm.PythonUtils.toScalaMap({}))
    until(
        "the agent requests the last total again",
        lambda: int(backend.getRequestedTotalExecutors().values().head()) == 1,
    )


def test_without_the_token_nothing_is_said(live: Live) -> None:
    url, token = announced(live.announced)
    assert live.announced.stat().st_mode & 0o077 == 0
    for wrong in ("", "x", token[:-1], token + "x"):
        with pytest.raises(SettingError, match="token"):
            AgentGateway(url, wrong, watch_only=True)
    settings = live.agent(watch_only=True)._settings
    assert not [key for key in settings if "password" in key.lower()]
    assert not [value for value in settings.values() if "hidden" in value]


def test_the_time_is_that_of_the_driver(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    monkeypatch.setattr("time.time", lambda: real() - 1000)  # this machine's clock is late
    agent = live.agent(watch_only=True)
    agent.executors()
    assert agent.clock() == pytest.approx(real(), abs=5)


def test_another_driver_at_the_same_address_is_not_taken_for_the_first(live: Live) -> None:
    agent = live.agent(watch_only=True)
    agent._calls._instance = "of a driver that has ended"
    with pytest.raises(NotThere, match="another application answers"):
        agent.executors()
    assert agent.stopped


def test_a_total_that_is_no_number_is_refused(live: Live) -> None:
    agent = live.agent()
    wrongs: tuple[Any, ...] = (None, "x", {}, -1, 1.5)
    for wrong in wrongs:
        with pytest.raises(BackendError, match="it must be a number from 0"):
            agent._calls.post("/v1/total", {"executors": wrong})
    agent.leave()


def test_wrong_requests_are_answered_with_a_sentence(live: Live) -> None:
    calls = live.agent(watch_only=True)._calls
    for path in ("/v1/jobs?after=x", "/v2/executors", "/../etc/passwd"):
        with pytest.raises(BackendError):
            calls._send("GET", path, None)
    for body in ("{", "[]", '{"stages": "x"}', "null", "x" * 2_000_000):
        with pytest.raises(BackendError):
            calls._send("POST", "/v1/task-lists", body)
    assert calls.get("/v1/application")["spark"] == live.spark.version


def test_an_address_or_a_token_that_cannot_be_is_refused(tmp_path: Path) -> None:
    for url in ("127.0.0.1:80", "http://", "http://host", "ftp://host:1", "http://host:x",
                "http://driver.example:8271"):  # fmt: skip
        with pytest.raises(InputError, match="address of the agent"):
            AgentGateway(url, "token")
    with pytest.raises(InputError, match="readable"):
        agent_token(tmp_path / "none")
    (tmp_path / "empty").touch()
    for text in ("", "short", "line\nline", "€" * 20):
        (tmp_path / "token").write_text(text)
        (tmp_path / "token").chmod(0o600)
        with pytest.raises(InputError):
            agent_token(tmp_path / "token")
    with pytest.raises(InputError, match="a file that an agent wrote"):
        announced(tmp_path / "empty")


def test_after_the_application_the_gateway_says_that_it_has_ended(live: Live) -> None:
    agent = live.agent()
    other: SparkSession = live.spark
    other.stop()
    with pytest.raises(BackendError):
        agent.executors()
    assert agent.stopped
