"""The input of a backtest: a trace file, or the journal of a live or simulated run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tidegate.errors import JournalError
from tidegate.loop.journal import Turn, read_journal
from tidegate.model import Snapshot
from tidegate.workloads import RateTrace, Workload, read_trace
from tidegate.workloads.read import Gaps

__all__ = ["read_workload", "recorded"]


def read_workload(
    path: str | Path, gaps: Gaps | None = None, seed: int = 0, source: str = "input"
) -> Workload:
    """A workload from a trace (CSV, .gz, Parquet) or a journal (.jsonl).

    gaps: for rate traces, as in `read_trace`. seed: random seed of arrivals. source: name of the
    source.
    """
    if Path(path).suffix == ".jsonl":
        return recorded(read_journal(path), Path(path).name, seed, source)
    return read_trace(path, gaps=gaps, seed=seed, source=source)


def recorded(
    turns: Iterable[Turn], name: str = "journal", seed: int = 0, source: str = "input"
) -> RateTrace:
    """The external arrival rate in each turn of a journal, from its first turn on.

    Where arrivals were not measured, processed items replace them. A turn that measured neither
    keeps the previous rate.

    name: for error messages. seed, source: as in `read_workload`.
    """
    import numpy as np

    times: list[float] = []
    rates: list[float] = []
    for turn in turns:
        outside = _outside(turn.snapshot) if turn.snapshot else None
        if turn.snapshot is None or outside is None:
            continue
        if times and turn.snapshot.time_s <= times[-1]:
            allowed = f"later than the turn before ({times[-1]:g} s)"
            key = f"{name} turn {turn.number}: time_s"
            raise JournalError(key, turn.snapshot.time_s, allowed, "is it two runs in one file?")
        times.append(turn.snapshot.time_s)
        rates.append(sum(outside.values()))
    if len(times) < 2:
        remedy = "its snapshots must hold arrival rates of the entry operators"
        raise JournalError("journal", name, "one with at least two measured rates", remedy)
    return RateTrace(np.array(times) - times[0], np.array(rates), seed=seed, source=source)


def _outside(snapshot: Snapshot) -> dict[str, float] | None:
    """Items per second that arrived, or else that the entry operators processed."""
    rates = snapshot.external_rates()
    if rates is not None:
        return rates
    done = {name: snapshot.reading[name].processed_per_s for name in snapshot.topology.entries}
    known = {name: rate for name, rate in done.items() if rate is not None}
    return known if len(known) == len(done) else None
