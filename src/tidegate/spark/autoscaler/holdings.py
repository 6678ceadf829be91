"""What executors hold, and which of them an application misses least."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tidegate.spark.autoscaler.sightings import ExecutorInfo

__all__ = ["StateStore", "least_first", "sampled_stores", "stores_by_executor"]

STATE_SAMPLE = 200
"""About the largest number of state partitions that are looked up, of all queries together, at 2 ms
each; of every stateful operator at least one."""


class StateStore(NamedTuple):
    """A partition of state whose executor is looked up.

    query: id of the query. operator: number of the stateful operator. partition: number of the
    partition. name: name of the store. stands_for: number of partitions of which it is the sample.
    """

    query: str
    operator: int
    partition: int
    name: str
    stands_for: int


def sampled_stores(stateful: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[StateStore]:
    """The partitions of state to look up, all of them or a sample of about `STATE_SAMPLE`.

    Of a join's stores, only the first is looked at.

    stateful: for each query its stateful operators as in its progress events.

    >>> operator = {"operatorName": "stateStoreSave", "numShufflePartitions": 300}
    >>> stores = sampled_stores({"q": [operator]})
    >>> len(stores), stores[-1]
    (150, StateStore(query='q', operator=0, partition=298, name='default', stands_for=2))
    """
    total = sum(o.get("numShufflePartitions", 0) for many in stateful.values() for o in many)
    step = max(1, math.ceil(total / STATE_SAMPLE))
    found = []
    for query, operators in stateful.items():
        for number, operator in enumerate(operators):
            join = "Join" in operator["operatorName"]
            name = "left-keyToNumValues" if join else "default"
            partitions = operator.get("numShufflePartitions", 0)
            for partition in range(0, partitions, step):
                stands_for = min(step, partitions - partition)
                found.append(StateStore(query, number, partition, name, stands_for))
    return found


def stores_by_executor(
    stores: Sequence[StateStore], places: Sequence[str | None]
) -> dict[str, int]:
    """Numbers of loaded state partitions by executor id.

    places: for each store ``executor_<host>_<id>``, None when it is not loaded.
    """
    found: dict[str, int] = {}
    for store, place in zip(stores, places, strict=True):
        if place is not None:
            executor = place.rpartition("_")[2]
            found[executor] = found.get(executor, 0) + store.stands_for
    return found


def least_first(
    executors: Sequence[ExecutorInfo], state_partitions: Mapping[str, int] | None = None
) -> list[ExecutorInfo]:
    """Executors in the order in which they should be released.

    State counts first: each partition of state must be loaded again from the checkpoint by another
    executor. Then shuffle data, which a batch under way would compute again; then cached blocks;
    then running tasks. Among equals the newest goes first. Spark reports the shuffle data that an
    executor has written since it started, not what is left of it, so an old executor ranks higher
    than it should. A figure that is missing counts as more than any that is known.

    executors: the candidates; equal ones keep their order. state_partitions: loaded partitions of
    state by executor id; None: not known, so that they do not count.

    >>> def executor(id, shuffle_mb, added_s):
    ...     return ExecutorInfo(id, 2, 512.0, 0.0, 0, added_s, shuffle_mb, cached_mb=0.0)
    >>> all_three = [executor("1", 9.0, 1.0), executor("2", 2.0, 2.0), executor("3", 5.0, 3.0)]
    >>> [e.id for e in least_first(all_three)]
    ['2', '3', '1']
    >>> [e.id for e in least_first(all_three, {"2": 8, "3": 4})]
    ['1', '3', '2']
    """
    state = state_partitions or {}

    def held(executor: ExecutorInfo) -> tuple[float, ...]:
        unknown = float("inf")
        return (
            state.get(executor.id, 0),
            unknown if executor.shuffle_mb is None else executor.shuffle_mb,
            unknown if executor.cached_mb is None else executor.cached_mb,
            executor.tasks,
            -executor.added_s,
        )

    return sorted(executors, key=held)
