"""The application with four queries, live: executors rise, fall to the minimum and rise again.

``python -m tests.apps.four_queries_live FOLDER`` runs it and fails if one of these does not happen,
or if a row was lost or repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tidegate.apps.application import application
from tidegate.apps.four_queries import QUERIES
from tidegate.apps.live import LiveRun, check_results, start_feed, start_on_cluster
from tidegate.lifecycle import Stop, wait_until
from tidegate.loop.journal import Turn
from tidegate.spark.autoscaler.autoscaler import Autoscaler
from tidegate.workloads import ConstantRate, Sum

LIMIT_S = 300.0
"""Nothing takes so long on an idle machine; it is there for one that is very busy."""


def scenario(folder: Path) -> None:
    """Run the application and check what happens."""
    # A call of 40 ms for 200 rows a second needs eight slots: two executors, and one is there.
    app = application("four-queries", enrich_ms=40, enrich_per_s=200.0, totals_per_s=200.0)
    run = LiveRun(app, folder, seconds=200.0, slots=4, memory_mb=768, max_hosts=3, hosts=1)
    turns: list[Turn] = []

    def running() -> int:
        """Executors that run, by the last turn."""
        seen = turns[-1].snapshot if turns else None
        return len(seen.running_hosts) if seen is not None else 0

    with ExitStack() as stack:
        cluster, spark, topology = start_on_cluster(run, stack, lambda _: None, Stop())
        feed = start_feed(run, topology, stack)

        def until(what: str, true: Callable[[], bool]) -> None:
            assert wait_until(true, LIMIT_S, None, topology.check), what
            print(what, flush=True)

        def at(share: float) -> Sum:
            """Every source at a constant rate."""
            return Sum(tuple(
                ConstantRate(share * rate, 1e9, source=source)
                for source, rate in app.rates_per_s.items()
            ))  # fmt: skip

        counts = topology.live_settings.counts
        working = [name for name in QUERIES if name != "alarms"]
        until("first batches", lambda: all(counts(name).seen for name in working))
        scaler = Autoscaler(
            spark, slo=app.slo, min_executors=1, max_executors=3, interval="3s", stabilise="5s",
            journal=run.journal, cluster=cluster, on_turn=turns.append, **topology.for_autoscaler(),
        )  # fmt: skip
        with scaler:
            feed.play(at(1.0))
            until("executors rise", lambda: running() > 1)
            feed.play(at(0.0))
            until("executors fall to the minimum without input", lambda: running() == 1)
            feed.play(at(1.0))
            until("executors rise again", lambda: running() > 1)
            feed.stop()
            until("the rest", lambda: not sum(topology.lag_items().values()))
        check = check_results(run, spark, topology, lambda _: None)
    assert check.exact and app.lost_and_repeated(check) == (0, 0), check
    assert check.inputs["faults"].num_rows == 0


if __name__ == "__main__":
    scenario(Path(sys.argv[1]))
