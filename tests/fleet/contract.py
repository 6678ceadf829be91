"""What every host promises, fake or real."""

from __future__ import annotations

import time

from tidegate.fleet.hosts import FleetHost
from tidegate.fleet.queries import ContinuousQuery


def check_host(
    host: FleetHost, query: ContinuousQuery, bad: ContinuousQuery, checkpoint: str
) -> None:
    """A query starts once, is seen, stops, and goes on; one that cannot start says so.

    bad: a query that fails in its start.
    """
    limit_s = 60.0
    assert host.alive
    assert query.name not in host.look(limit_s).queries
    host.start(query, checkpoint, limit_s)
    first = host.look(limit_s).queries[query.name]
    assert first.active and first.error is None and first.run
    try:
        host.start(query, checkpoint, limit_s)
    except Exception:
        pass
    else:
        raise AssertionError("a second copy was started")
    assert host.look(limit_s).queries[query.name].run == first.run

    host.stop(query.name, limit_s)
    host.stop(query.name, limit_s)
    assert query.name not in host.look(limit_s).queries
    host.start(query, checkpoint, limit_s)
    second = host.look(limit_s).queries[query.name]
    assert second.active and second.run != first.run
    host.stop(query.name, limit_s)

    try:
        host.start(bad, checkpoint + "-bad", limit_s)
    except Exception as error:
        assert "nonsense" in str(error)
    else:
        raise AssertionError("a query that cannot start was started")
    assert bad.name not in host.look(limit_s).queries

    before = host.look(limit_s)
    time.sleep(0.1)
    after = host.look(limit_s)
    if before.cpu_s is not None and after.cpu_s is not None:
        assert after.cpu_s >= before.cpu_s
