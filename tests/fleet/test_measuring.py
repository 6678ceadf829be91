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
    measure(host, before, LOOK_S, here, used, Resources(1.0))


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


def limited(
    state_mb: tuple[float | None, ...], mbit: tuple[float | None, ...], *limits: str
) -> HostEntry:
    """A host of 100 MB and 10 Mbit/s whose queries have this state and read this much in 5 s."""
    here = queries(*(f"q{n}" for n in range(len(state_mb))))
    for entry, state in zip(here.values(), state_mb, strict=True):
        entry.state_mb = state
    read_mb = [None if read is None else read / 8 for read in mbit]
    used = {
        name: Usage(0.1, read, None if read is None else 0.0)
        for name, read in zip(here, read_mb, strict=True)
    }
    host = HostEntry("host-1", 0.0)
    host.view = HostView(cpu_s=0.5)
    measure(host, HostView(cpu_s=0.0), LOOK_S, here, used, Resources(1, 100, 10), 5.0, limits)
    return host


def test_shares_of_memory_and_network_are_sums_over_the_queries() -> None:
    host = limited((20.0, 30.0), (10.0, 15.0), "memory_mb", "network_mbps")
    assert host.utilisation == pytest.approx(0.1)
    assert host.memory_share == pytest.approx((20 + 5 + 30 + 5) / 100)
    assert host.network_share == pytest.approx(25 / LOOK_S / 10)


def test_what_nobody_limited_has_no_share_and_a_query_needs_its_state_alone() -> None:
    host = limited((20.0, 30.0), (10.0, 15.0))
    assert (host.memory_share, host.network_share) == (None, None)


def test_one_query_without_a_measurement_makes_a_share_missing_not_smaller() -> None:
    both = "memory_mb", "network_mbps"
    host = limited((90.0, None), (10.0, 15.0), *both)
    assert host.memory_share is None and host.network_share is not None
    host = limited((20.0, 30.0), (45.0, None), *both)
    assert host.memory_share is not None and host.network_share is None


def test_an_empty_host_is_known_to_use_nothing() -> None:
    host = limited((), (), "memory_mb", "network_mbps")
    assert (host.memory_share, host.network_share) == (0.0, 0.0)


def test_a_query_without_state_is_measured_by_its_first_batch() -> None:
    here = queries("a")
    here["a"].batch = 0
    host = HostEntry("host-1", 0.0)
    host.view = HostView(cpu_s=0.5)
    used = {"a": Usage(0.1, None, None)}
    capacity = Resources(1, 100, 10)
    measure(host, HostView(cpu_s=0.0), LOOK_S, here, used, capacity, 5.0, ["memory_mb"])
    assert host.memory_share == pytest.approx(0.05)
