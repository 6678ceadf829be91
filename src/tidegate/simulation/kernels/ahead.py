"""Compiles what a backtest needs on two cores at once, if the cache on disk does not have it.

Numba compiles on one core. A copy of this process compiles the longest functions that the kernel
calls, this process the others, and both write them into the cache. Then the kernel is compiled
here, for which it is enough to read what the copy has written, and the copy goes on with the
measurements. Whatever the copy does not manage, this process compiles when it needs it.

``python -m tidegate.simulation.kernels.ahead`` compiles without a simulation. `make setup` runs it,
so that the first backtest does not have to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from numba import float64, int64

from tidegate.lifecycle import can_copy_process, usable_cores
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.simulation.kernels import accounting, services, staged
from tidegate.simulation.kernels.difference import difference, empty_gauge, empty_marks
from tidegate.simulation.kernels.state import build_network
from tidegate.simulation.settings import CloudSettings
from tidegate.theory.arrays import Structure
from tidegate.theory.compiled import cache_folder

__all__ = ["compile_items", "main"]

Jobs = Iterable[tuple[Any, tuple[Any, ...]]]


def compile_items() -> None:
    """Compile the kernels of the item-level world, unless they are compiled or this has no use.

    It has none without a second core or a cache, or if other threads run: a copy of the process
    could inherit a lock that one of them holds.
    """
    folder = _folder()
    if folder is None or any(folder.glob("staged.run_staged-*.nbi")):
        return
    if usable_cores() < 2 or not can_copy_process():
        return
    here, beside, later = _jobs()
    staged.run_staged.targetctx.refresh()  # type: ignore[attr-defined]  # once, not in each process
    reader, writer = os.pipe()
    copy = os.fork()
    if copy == 0:
        try:
            _compile(beside)
            os.write(writer, b".")
            _compile(later)
        finally:
            os._exit(0)
    os.close(writer)
    try:
        _compile(here[:-1])
        os.read(reader, 1)  # returns at once if the copy has died
        _compile(here[-1:])
    finally:
        os.close(reader)
        os.waitpid(copy, 0)


def main() -> None:
    """Compile the kernels into the cache, on one core if there is no other."""
    if _folder() is None:
        return
    compile_items()
    for jobs in _jobs():
        _compile(jobs)  # what is in the cache is only read


def _folder() -> Path | None:
    """The cache; None if it cannot be written, or with NUMBA_DISABLE_JIT."""
    plain = not hasattr(staged.run_staged, "targetctx")
    return None if plain else cache_folder(Path(__file__).parent)


def _compile(jobs: Jobs) -> None:
    for function, types in jobs:
        function.compile(types)


def _jobs() -> tuple[list[Any], list[Any], list[Any]]:
    """Functions and the types of their arguments: for this process, for its copy, and for later.

    The first two take about as long. The kernel itself is the last one for this process.
    """
    topology = Topology(
        (Operator("work", Resources(1), 1.0),), (Source("in"),), (Edge("in", "work"),)
    )
    net = build_network(topology, CloudSettings(), 0)
    made: list[Structure] = [net, empty_marks(net), empty_gauge(net)]
    network, marks, gauge = (each._numba_type_ for each in made)
    times, places, rows = float64[::1], int64[::1], float64[:, ::1]
    coming = times, places, places
    here = [
        (accounting.line_up, (network, int64)),
        (accounting.count_departures, (network, int64, int64, *3 * [_row_of(network)])),
        (accounting.set_slow_down, (network, float64)),
        (accounting.end_interval, (network, float64, times)),
        (staged._cut, (*coming, float64)),
        (staged._needs, (network, *coming, float64)),
        (staged._admit, (network, int64, *coming, float64, float64)),
        (staged._send, (network, int64, int64)),
        (staged._nothing_to_do, (network, int64, float64)),
        (staged._merge, (network, int64)),
        (staged._count_arrivals, (network, int64)),
        (staged.run_staged, (network, *coming, float64, float64, rows)),
    ]
    beside = [
        (services._alike, (network, int64)),
        (services._serve_one, (network, int64, float64)),
        (services._serve_alike, (network, int64, float64)),
        (services._serve_rest, (network, int64, float64, int64)),
    ]
    return here, beside, [(difference, (float64, network, marks, gauge))]


def _row_of(network: Any) -> Any:
    """The type of a row of times."""
    return network.places["out_f"][1].after(1)


if __name__ == "__main__":
    main()
