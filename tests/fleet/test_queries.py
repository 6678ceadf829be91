"""Definitions of queries: the decorator, templates, files, and their topology."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate.errors import InputError
from tidegate.fleet import ContinuousQuery, continuous_query, load_queries, template
from tidegate.fleet.providers import EmbeddedProvider, StaticProvider
from tidegate.fleet.queries import topology_of
from tidegate.fleet.registry import shares
from tidegate.fleet.sample_queries import price_queries, query_parameters
from tidegate.model.topology import Resources


class Started:
    runId = "1"  # noqa: N815 - Spark's name

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


class Writer:
    """A stream writer, as far as starting goes."""

    def __init__(self) -> None:
        self.name = self.checkpoint = ""

    def queryName(self, name: str) -> Writer:
        self.name = name
        return self

    def option(self, key: str, value: str) -> Writer:
        assert key == "checkpointLocation"
        self.checkpoint = value
        return self

    def start(self) -> Started:
        return Started(self.name)


def test_a_writer_is_named_and_started() -> None:
    writer = Writer()
    query = ContinuousQuery("q", lambda session, checkpoint: writer)
    assert query.start(None, "folder").name == "q"
    assert writer.checkpoint == "folder"


def test_a_function_may_leave_the_checkpoint_to_the_fleet() -> None:
    seen: list[tuple[Any, ...]] = []

    @continuous_query
    def alone(session: Any) -> Writer:
        seen.append((session,))
        return Writer()

    @continuous_query("other")
    def both(session: Any, checkpoint: str) -> Writer:
        seen.append((session, checkpoint))
        return Writer()

    for query in (alone, both):
        query.start("s", "c")
    assert (alone.name, both.name) == ("alone", "other")
    assert seen == [("s",), ("s", "c")]


def test_a_query_that_was_started_must_bear_its_name() -> None:
    started = Started("other")
    with pytest.raises(InputError, match="the name of the query"):
        ContinuousQuery("q", lambda session, checkpoint: started).start(None, "c")
    assert started.stopped


def test_a_function_that_returns_something_else_is_told_so() -> None:
    with pytest.raises(InputError, match="writeStream"):
        ContinuousQuery("q", lambda session, checkpoint: 3).start(None, "c")


def test_a_template_passes_its_parameters() -> None:
    seen = []

    @template("t-{x}", [{"x": 1}, {"x": 2}], near=["s-{x}"], checkpoint="c/{x}")
    def made(session: Any, checkpoint: str, x: int) -> Any:
        seen.append(x)
        return Writer()

    for query in made:
        query.start(None, "c")
    assert seen == [1, 2]
    assert [(q.near, q.checkpoint) for q in made] == [(("s-1",), "c/1"), (("s-2",), "c/2")]


def test_the_papers_queries_are_drawn_from_a_seed() -> None:
    assert query_parameters(35, seed=3) == query_parameters(35, seed=3)
    assert query_parameters(35, seed=3) != query_parameters(35, seed=4)
    assert len({q.name for q in price_queries("in", "out")}) == 35


def test_neighbours_become_edges_and_measured_loads_demands() -> None:
    one = continuous_query("one", cpu_cores=0.5)(lambda s, c: None)
    two = continuous_query("two", near=["one", "elsewhere"])(lambda s, c: None)
    topology = topology_of([one, two], {"two": Resources(0.9)})
    assert topology.neighbours["two"] == {"one"}
    assert [o.demand.cpu_cores for o in topology.operators] == [0.5, 0.9]
    assert all(o.max_instances == 1 for o in topology.operators)


@pytest.mark.parametrize(
    "text, part",
    [
        ("x = 1", "queries in it"),
        ("1 / 0", "ZeroDivisionError"),
        ("import sys\nsys.exit(5)", "SystemExit: 5"),
        ("def f(:", "SyntaxError"),
        (
            "from tidegate.fleet import continuous_query as q\n"
            "a = q('same')(print)\nb = q('same')(print)",
            "unique",
        ),
        ("from tidegate.fleet import continuous_query as q\na = q('a b')(print)", "a word"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, part: str) -> None:
    file = tmp_path / "queries.py"
    file.write_text(text)
    with pytest.raises(InputError, match=part):
        load_queries(file)


def test_the_example_can_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = Path(__file__).parents[2] / "examples" / "fleet" / "queries.py"
    monkeypatch.chdir(tmp_path)
    queries = load_queries(example)
    assert len(queries) == 14 and queries["large_of_sector_0"].near == ("large",)


def test_endpoints_are_checked_and_given_out_in_order() -> None:
    with pytest.raises(InputError, match="sc://host:port"):
        StaticProvider("f", ["http://x"], Resources(2))
    provider = StaticProvider("f", ["sc://a:1/;token=t;ui=http://a", "sc://b:1"], Resources(2))
    provider.lease("host-1")
    host = provider.host("host-1")
    assert host is not None and host.endpoint == "sc://a:1/;token=t"  # type: ignore[attr-defined]
    assert provider.kill("host-1") is False
    provider.lease("host-2")  # the one that failed comes last
    assert provider.host("host-2").endpoint.startswith("sc://b:1")  # type: ignore[union-attr]


def test_a_host_with_too_little_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 450"):
        EmbeddedProvider("f", tmp_path, memory_mb=100)


def test_shares_sum_to_the_host_whatever_was_counted() -> None:
    assert shares(1.0, {"a": 3.0, "b": 1.0}, {"a": 0.0, "b": 0.0}) == {"a": 0.75, "b": 0.25}
    assert shares(None, {"a": 3.0}, {"a": 1.0}) == {"a": 3.0}
    assert shares(2.0, {"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.0}) == {"a": 1.0, "b": 1.0}
    assert shares(2.0, {"a": 0.6, "b": 0.2}, {"a": 0.0, "b": 0.0}) == pytest.approx(
        {"a": 1.5, "b": 0.5}
    )
    assert shares(2.0, {}, {}) == {}
