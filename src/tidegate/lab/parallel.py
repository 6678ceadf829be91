"""Runs of policies in several processes.

Each run depends on its scenario, policy and random seed alone, so the results are the same as in
one process. Where this process has a single thread, the others are copies of it (*fork*), which
begin at once. Otherwise they are started afresh (*spawn*), which takes a second or two: a copy
could inherit a lock that another thread holds.

A process gets all jobs once, and not each job when it begins: what jobs have in common, such as a
scenario with the items that were drawn, is then the same object in all of them.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from tidegate.errors import BackendError
from tidegate.lifecycle import can_copy_process

__all__ = ["in_processes"]

LOOK_S = 0.2
"""Time between two looks at the progress, in seconds."""

Job = TypeVar("Job")
Done = TypeVar("Done")

_given: list[Any] = []
"""In a process of the pool: the function, all jobs, and their completed shares, which the main
process sees."""


def in_processes(
    work: Callable[[Job, Callable[[float], None]], Done],
    jobs: Sequence[Job],
    processes: int,
    progress: Callable[[int, float], None],
    order: Sequence[int] | None = None,
) -> Iterator[tuple[int, Done]]:
    """Yield the number and the result of each job, as they end.

    Args:
        work: A function of a module; gets a job and a function to report its completed share to.
        jobs: What to do; jobs and results must be picklable.
        processes: Number of processes.
        progress: Called with the number of a job and its completed share.
        order: Numbers of the jobs in the order in which they begin; None for that of `jobs`.

    Raises what `work` raises, and BackendError if a process dies.
    """
    context: Any = multiprocessing.get_context("fork" if can_copy_process() else "spawn")
    shares = context.Array("d", len(jobs), lock=False)
    pool = ProcessPoolExecutor(
        min(processes, len(jobs)), context, initializer=_begin, initargs=(work, jobs, shares)
    )
    waiting: dict[Any, int] = {}
    try:
        numbers = range(len(jobs)) if order is None else order
        waiting = {pool.submit(_run, n): n for n in numbers}
        while waiting:
            done, _ = wait(waiting, LOOK_S, FIRST_COMPLETED)
            for n in waiting.values():
                progress(n, shares[n])
            for future in done:
                yield waiting.pop(future), future.result()
    except BrokenProcessPool:
        raise BackendError(
            "a process that simulated a policy has died, perhaps for lack of memory: "
            "use fewer processes"
        ) from None
    finally:
        # Processes without a job end at once; with the threads of the pool, none could be copied.
        pool.shutdown(wait=not waiting, cancel_futures=True)


def _begin(*given: Any) -> None:
    _given[:] = given


def _run(number: int) -> Any:
    work, jobs, shares = _given

    def report(share: float) -> None:
        shares[number] = share

    return work(jobs[number], report)
