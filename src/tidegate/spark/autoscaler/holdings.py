"""What executors hold, and which of them an application misses least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.spark.autoscaler.gateway import ExecutorInfo

__all__ = ["least_first"]


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
