"""The input of a backtest: a trace file, or the journal of a live or simulated run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tidegate.errors import JournalError
from tidegate.loop.journal import Turn, read_journal
from tidegate.model import Snapshot
from tidegate.workloads import RateTrace, Sum, Workload, read_trace
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
) -> RateTrace | Sum:
    """The external arrival rate in each turn of a journal, from its first turn on.

    Where arrivals were not measured, processed items replace them. A turn that measured neither
    keeps the previous rate. If the journal's topology has several sources, each has its own rates
    and the name that it has there.

    name: for error messages. seed, source: as in `read_workload`.
    """
    import numpy as np

    times: list[float] = []
    rates: list[float] = []
    snapshots: list[Snapshot] = []
    for turn in turns:
        outside = _outside(turn.snapshot) if turn.snapshot else None
        several = turn.snapshot is not None and len(turn.snapshot.topology.sources) > 1
        if turn.snapshot is None or (outside is None and not several):
            continue
        if times and turn.snapshot.time_s <= times[-1]:
            allowed = f"later than the turn before ({times[-1]:g} s)"
            key = f"{name} turn {turn.number}: time_s"
            raise JournalError(key, turn.snapshot.time_s, allowed, "is it two runs in one file?")
        times.append(turn.snapshot.time_s)
        rates.append(sum((outside or {}).values()))
        snapshots.append(turn.snapshot)
    if snapshots and len(snapshots[-1].topology.sources) > 1:
        found = _by_source(snapshots, seed)
        if found is not None:
            return found
        times = []
    if len(times) < 2:
        remedy = "its snapshots must hold arrival rates of the entry operators"
        raise JournalError("journal", name, "one with at least two measured rates", remedy)
    return RateTrace(np.array(times) - times[0], np.array(rates), seed=seed, source=source)


def _by_source(snapshots: Sequence[Snapshot], seed: int) -> Sum | None:
    """The rates of each source, from the queries that it feeds; None if nothing was measured.

    A query that reported nothing in a turn keeps its previous rate; before its first report, and
    without any, it had no input. Items are spread evenly over a turn: the rates are counts, so that
    random arrivals would add their variation a second time, which fills a query near its ceiling.
    """
    import numpy as np

    topology = snapshots[-1].topology
    times = np.array([snapshot.time_s for snapshot in snapshots])
    parts, measured = [], 0
    for source in topology.sources:
        fed = {edge.target: edge.ratio for edge in topology.edges if edge.origin == source.name}
        rates, last = [], 0.0
        for snapshot in snapshots:
            seen = [_arrived(snapshot, name) for name in fed]
            if seen and None not in seen and sum(fed.values()) > 0:
                last = sum(rate or 0.0 for rate in seen) / sum(fed.values())
                measured += 1
            rates.append(last)
        parts.append(
            RateTrace(
                times - times[0], np.array(rates), seed=seed, source=source.name, spacing="even"
            )
        )
    return Sum(tuple(parts)) if measured and len(times) > 1 else None


def _arrived(snapshot: Snapshot, operator: str) -> float | None:
    """Items per second that came to an operator from outside, or else that it processed."""
    reading = snapshot.reading.get(operator)
    if reading is None or reading.arrival_rate_per_s is None:
        return None if reading is None else reading.processed_per_s
    inside = 0.0
    for edge in snapshot.topology.edges:
        if edge.target == operator and edge.origin in snapshot.topology.by_name:
            inside += (snapshot.reading[edge.origin].arrival_rate_per_s or 0.0) * edge.ratio
    return max(0.0, reading.arrival_rate_per_s - inside)


def _outside(snapshot: Snapshot) -> dict[str, float] | None:
    """Items per second that arrived, or else that the entry operators processed."""
    rates = snapshot.external_rates()
    if rates is not None:
        return rates
    done = {name: snapshot.reading[name].processed_per_s for name in snapshot.topology.entries}
    known = {name: rate for name, rate in done.items() if rate is not None}
    return known if len(known) == len(done) else None
