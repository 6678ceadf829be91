"""Many independent runs: by several processes, and each only once.

Ten seeds of an experiment take long. Its runs do not depend on each other, so processes share them;
and a run that was finished is read from a folder if the command is given again. What is kept
belongs to the code that made it: a change of any source file of the package makes it void.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import tidegate

__all__ = ["run_jobs", "running_with"]

J = TypeVar("J")
R = TypeVar("R")

_HOW: ContextVar[tuple[int, Path | None]] = ContextVar("how", default=(1, None))


@contextmanager
def running_with(processes: int = 1, keep: Path | None = None) -> Iterator[None]:
    """Runs within this context use `processes` processes; finished ones are kept in `keep`."""
    token = _HOW.set((processes, keep))
    try:
        yield
    finally:
        _HOW.reset(token)


def run_jobs(
    run: Callable[[J], R], jobs: Sequence[J], done: Callable[[int, J], None] = lambda n, job: None
) -> list[R]:
    """The results of all jobs, in their order.

    run: a function of a module, so that processes find it; jobs: whose text says all about them;
    done: called after each job with the number of finished ones and the job.

    >>> run_jobs(len, ["a", "bb"])
    [1, 2]
    """
    processes, keep = _HOW.get()
    files = [keep and keep / f"{_digest(run, job)}.pickle" for job in jobs]
    found: list[Any] = [None if file is None else _read(file) for file in files]
    todo = [n for n, result in enumerate(found) if result is None]
    finished = len(jobs) - len(todo)

    def note(n: int, result: R) -> None:
        nonlocal finished
        found[n] = result
        file = files[n]
        if file is not None:
            _write(file, result)
        finished += 1
        done(finished, jobs[n])

    if processes > 1 and len(todo) > 1:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            results = pool.map(run, [jobs[n] for n in todo])
            for n, result in zip(todo, results, strict=True):
                note(n, result)
    else:
        for n in todo:
            note(n, run(jobs[n]))
    return found


def _digest(run: Callable[..., Any], job: object) -> str:
    text = f"{_code()} {run.__module__}.{run.__qualname__} {job!r}"
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _code() -> str:
    """A digest of the package's source files."""
    digest = hashlib.sha256()
    for file in sorted(Path(next(iter(tidegate.__path__))).rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _read(file: Path) -> Any:
    """What is kept in a file; None if there is nothing, or only a part of it."""
    try:
        return pickle.loads(file.read_bytes())
    except (OSError, EOFError, pickle.UnpicklingError):
        return None


def _write(file: Path, result: object) -> None:
    """Write a file as a whole: an interrupted run leaves none that looks finished."""
    handle, name = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(handle, "wb") as stream:
        pickle.dump(result, stream)
    Path(name).replace(file)
