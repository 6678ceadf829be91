"""Usage of hosts and queries, averaged over the time from batch to batch."""

from __future__ import annotations

import pytest

from tidegate.fleet.hosts import HostView
from tidegate.fleet.queries import ContinuousQuery
from tidegate.fleet.registry import HostEntry, QueryEntry, Usage, measure
from tidegate.model.topology import Resources

PERIOD_S, LOOK_S = 20.0, 5.0


def queries(*names: str) -> dict[str, QueryEntry]:
    made = {n: QueryEntry(ContinuousQuery(n, lambda s, c: None), "c", host="host-1") for n in names}
    for entry in made.values():
        entry.period_s = PERIOD_S
    return made


def look(host: HostEntry, here: dict[str, QueryEntry], cpu_s: float, batch_s: float = 0.0) -> None:
    """Five seconds with the CPU time of a host and the time of each query in batches."""
    before = host.view or HostView(cpu_s=0.0)
    host.view = HostView(cpu_s=(before.cpu_s or 0.0) + cpu_s)
    used = {name: Usage(0.0, None, None, batch_s) for name in here}
    measure(host, before, LOOK_S, here, used, 1.0)


def test_a_host_with_a_batch_in_twenty_seconds_is_neither_full_in_it_nor_idle_after_it() -> None:
    host, here = HostEntry("host-1", 0.0), queries("a", "b")
    seen = []
    for cpu_s in (4.0, 0.0, 0.0, 0.0) * 3:
        look(host, here, cpu_s, batch_s=cpu_s)
        seen.append(host.utilisation)
    assert seen[:4] == pytest.approx([0.8, 0.4, 4 / 15, 0.2])
    assert seen[4:] == pytest.approx([0.2] * 8)
    assert [entry.load for entry in here.values()] == [Resources(0.1, 0.0, 0.0)] * 2


def test_a_query_takes_its_past_along() -> None:
    host, here = HostEntry("host-1", 0.0), queries("a", "b")
    for cpu_s in (4.0, 0.0, 0.0, 0.0):
        look(host, here, cpu_s, batch_s=cpu_s)
    came = queries("c")
    came["c"].load = Resources(0.3, 0.0, 0.0)
    every = here | came
    look(host, every, 2.5)
    assert host.utilisation == pytest.approx((0.5 * 15 + 2.5) / 20)
    assert sum(e.load.cpu_cores for e in every.values() if e.load) == pytest.approx(0.5)
    look(host, here, 0.0)  # it goes again, and its load with it
    left = sum(e.load.cpu_cores for e in here.values() if e.load)
    assert host.utilisation == pytest.approx(left) and left == pytest.approx(0.2 * 15 / 20)


def test_without_a_past_a_host_is_what_was_seen_of_it() -> None:
    host, here = HostEntry("host-1", 0.0), queries("a")
    look(host, here, 1.0)
    new = here | queries("b")
    look(host, new, 4.0)
    assert host.utilisation == pytest.approx(0.8)
