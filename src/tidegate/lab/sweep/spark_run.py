"""Sweeps on a Spark cluster: each cell is a simulation on an executor, each result a row.

A task runs a chunk of cells in a Python process that is kept for the next chunk, with its kernels
compiled and loaded. Rows return at the end of their task, through an accumulator, and the driver
writes them at once. A crash loses only unfinished chunks, and executors need no file system in
common with the driver or with each other.
"""

from __future__ import annotations

import os
import pickle
import queue
import re
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.codec import to_json
from tidegate.errors import BackendError
from tidegate.lab.sweep.cell import ROW, code_digest, failed_row
from tidegate.lab.sweep.grid import SweepGrid
from tidegate.spark.local.shipping import code_finder, write_zip

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["Sweep", "SweepState", "jvm_settings", "sweep_state", "task_sizes"]

MOST_CELLS = {"fluid": 64, "item": 4}
"""Most cells of a task: about two seconds of work, compared to 26 ms of overhead per task."""
SHARE = 2
"""A task takes at most this part of what is left for a core, so that all cores end together."""
DIED = re.compile(r"Task (\d+) in stage \S+ failed \d+ times[^:]*: *(.*)")
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class SweepState:
    """The state of a sweep.

    code: digest of the code. todo: cells to run, as JSON. finished: number of cells that need not
    run again; failed: how many of those failed. outdated: number of cells to run that have a
    result of other code.
    """

    code: str
    todo: tuple[str, ...]
    finished: int
    failed: int
    outdated: int


def jvm_settings(master: str) -> dict[str, str]:
    """Settings of Spark for a sweep on a master: a local JVM leaves the cores to the simulations.

    It does little but pass tasks on, so that it costs more to optimise its code than that brings.
    The user's ``spark.driver.extraJavaOptions`` come after these and prevail.

    >>> jvm_settings("local[2]"), jvm_settings("yarn")
    ({'spark.driver.defaultJavaOptions': '-XX:TieredStopAtLevel=1'}, {})
    """
    local = master.startswith("local")
    return {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"} if local else {}


def cells_folder(out: Path) -> Path:
    """The folder of a sweep's results."""
    return out / "cells"


def sweep_state(
    grid: SweepGrid, out: Path, any_code: bool = False, again: bool = False
) -> SweepState:
    """Which cells of a grid have results in a folder, and which are left.

    any_code: also count results of other code. again: run failed cells again.
    """
    code = code_digest(policy.name for policy in grid.policies)
    found: dict[str, str] = {}
    outdated: set[str] = set()
    for name, status, by in _results(out):
        if by != code and not any_code:
            outdated.add(name)
        elif not (again and status == "failed") and found.get(name) != "done":
            found[name] = status
    todo, finished, failed, old = [], 0, 0, 0
    for cell in grid.cells():
        name = cell.id
        if name in found:
            finished += 1
            failed += found[name] == "failed"
        else:
            todo.append(to_json(cell))
            old += name in outdated
    return SweepState(code, tuple(todo), finished, failed, old)


def _results(out: Path) -> Iterator[tuple[str, str, str]]:
    """Cell, status and code of every row."""
    import pyarrow.parquet as pq

    for file in sorted(cells_folder(out).glob("*.parquet")):
        columns = pq.read_table(file, columns=["cell", "status", "code"]).to_pydict()
        yield from zip(columns["cell"], columns["status"], columns["code"], strict=True)


def task_sizes(cells: int, cores: int, most: int) -> list[int]:
    """Cells of each task: many at first, for little overhead, and single ones at the end.

    cores: tasks at a time. most: cells of a task at most.

    >>> task_sizes(40, cores=2, most=8)
    [8, 8, 6, 4, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1]
    """
    sizes = []
    while cells > 0:
        sizes.append(max(1, min(most, cells // (SHARE * cores))))
        cells -= sizes[-1]
    return sizes


class Sweep:
    """A sweep on a Spark session.

    out: folder of the results, on the driver. ship: send the code to executors that cannot read
    the driver's files; None: unless the master is local. chunk: cells per task; None: automatic.
    """

    def __init__(
        self,
        spark: SparkSession,
        grid: SweepGrid,
        out: Path,
        ship: bool | None = None,
        chunk: int | None = None,
    ) -> None:
        self._context: SparkContext = spark.sparkContext
        self._grid, self._out, self._chunk = grid, out, chunk
        local = (self._context.master or "").startswith("local")
        self._ship = not local if ship is None else ship
        if local:  # this interpreter has all packages; on other machines its path may not exist
            self._context.pythonExec = sys.executable
        self._rows: queue.SimpleQueue[list[dict[str, Any]] | None] = queue.SimpleQueue()

    def run(self, state: SweepState, progress: OnProgress = lambda done, failed: None) -> None:
        """Run the cells that are left.

        progress: called with the number of cells that this run has done, and of those that failed.
        """
        cells_folder(self._out).mkdir(parents=True, exist_ok=True)
        traces = {name: trace.read() for name, trace in self._grid.trace.items()}
        sent = self._context.broadcast({name: pickle.dumps(t) for name, t in traces.items()})
        accumulator = self._context.accumulator([], _inbox(self._rows))
        writer = _Writer(cells_folder(self._out), self._rows, progress)
        writer.start()
        try:
            with tempfile.TemporaryDirectory() as scratch:
                if self._ship:
                    self._context.addFile(str(write_zip(Path(scratch))))
                work = _work(code_finder(not self._ship), sent, accumulator, state.code)
                self._run_chunks(self._chunks(state.todo), work, state.code, writer)
        finally:
            self._rows.put(None)
            writer.join()
            sent.unpersist()
        if writer.error is not None:
            raise BackendError(f"results could not be written: {writer.error}") from writer.error

    def _chunks(self, cells: Sequence[str]) -> list[list[str]]:
        if self._chunk is not None:
            sizes = [self._chunk] * (len(cells) // self._chunk + 1)
        else:
            sizes = task_sizes(
                len(cells), self._context.defaultParallelism, MOST_CELLS[self._grid.mode]
            )
        ends = list(accumulate(sizes))
        parts = zip([0, *ends], ends, strict=False)
        return [list(cells[start:end]) for start, end in parts if start < len(cells)]

    def _run_chunks(
        self,
        chunks: list[list[str]],
        work: Callable[[Iterable[list[str]]], None],
        code: str,
        writer: _Writer,
    ) -> None:
        """Run all chunks. A chunk whose process dies repeatedly is split into single cells."""
        from py4j.protocol import Py4JJavaError

        while chunks:
            jobs = self._context.parallelize(chunks, len(chunks))
            try:
                jobs.foreachPartition(work)
                return
            except Py4JJavaError as error:
                died = DIED.search(str(error))
                if died is None or writer.error is not None:
                    raise
                bad = chunks[int(died[1])]
                if len(bad) == 1:
                    what = f"its process died: {died[2][:300]}"
                    self._rows.put([failed_row(bad[0], code, what)])
                done = writer.settled()
                left = [c for c in chunks if c is not bad and not set(c) <= done]
                chunks = left + ([[cell] for cell in bad] if len(bad) > 1 else [])


def _work(
    find_code: Callable[[], None], sent: Any, accumulator: Any, code: str
) -> Callable[[Iterable[list[str]]], None]:
    """The function of a task. It imports `tidegate` only after `find_code` has found it."""

    def work(chunks: Iterable[list[str]]) -> None:
        find_code()
        import functools
        import pickle

        from tidegate.lab.sweep.cell import run_cells

        trace = functools.cache(lambda name: pickle.loads(sent.value[name]))
        for cells in chunks:
            accumulator.add(list(run_cells(cells, trace, code)))

    return work


def _inbox(rows: queue.SimpleQueue[Any]) -> Any:
    """An accumulator that puts the rows of finished tasks into a queue on the driver.

    Executors collect rows with a class of PySpark's, as they may not have this one.
    """
    from pyspark.accumulators import AccumulatorParam, AddingAccumulatorParam

    class Inbox(AccumulatorParam[list[Any]]):
        def zero(self, value: list[Any]) -> list[Any]:
            return []

        def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # noqa: N802
            rows.put(value2)
            return value1

        def __reduce__(self) -> tuple[Any, ...]:
            nothing: Any = []
            return AddingAccumulatorParam, (nothing,)

    return Inbox()


class _Writer(threading.Thread):
    """Writes rows as they arrive: all rows in the queue go into one new file."""

    def __init__(self, folder: Path, rows: queue.SimpleQueue[Any], progress: OnProgress) -> None:
        super().__init__(name="sweep writer", daemon=True)
        self._folder, self._rows, self._progress = folder, rows, progress
        self._written: set[str] = set()
        self._failed = 0
        self.error: Exception | None = None

    def settled(self) -> set[str]:
        """Definitions of the cells whose rows have arrived, once those are written."""
        written = threading.Event()
        self._rows.put([written])
        written.wait()
        return set(self._written)

    def run(self) -> None:
        """Write until None arrives."""
        more = True
        while more:
            found = [self._rows.get()]
            while not self._rows.empty():
                found.append(self._rows.get())
            more = None not in found
            rows = [row for some in found if some for row in some]
            marks = [row for row in rows if isinstance(row, threading.Event)]
            rows = [row for row in rows if not isinstance(row, threading.Event)]
            try:
                if rows and self.error is None:
                    write_rows(self._folder, rows)
                    self._written.update(row["definition"] for row in rows)
                    self._failed += sum(row["status"] == "failed" for row in rows)
                    self._progress(len(self._written), self._failed)
            except Exception as error:  # raised by the driver after the job
                self.error = error
            for mark in marks:
                mark.set()


def write_rows(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Write rows as a new Parquet file, atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in ROW.items()])
    columns = {name: [row[name] for row in rows] for name in ROW}
    target = folder / f"part-{uuid.uuid4().hex}.parquet"
    scratch = target.with_suffix(".writing")
    pq.write_table(pa.table(columns, schema=schema), scratch)
    with scratch.open("rb") as file:
        os.fsync(file.fileno())
    scratch.rename(target)
    return target


def failed_cells(out: Path, code: str) -> list[dict[str, Any]]:
    """The rows of cells that failed with that code and have not succeeded since."""
    import pyarrow.parquet as pq

    shown = ["policy", "setting", "trace", "seed", "error"]
    columns = ["cell", "status", "code", "finished_s", *shown]
    rows: list[dict[str, Any]] = []
    for file in cells_folder(out).glob("*.parquet"):
        rows += pq.read_table(file, columns=columns).to_pylist()
    last = {row["cell"]: row for row in sorted(rows, key=lambda row: float(row["finished_s"]))}
    return [row for row in last.values() if row["status"] == "failed" and row["code"] == code]
