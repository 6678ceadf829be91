"""The exact latency of each input row, read from the checkpoints of a running topology.

A row is processed when every operator that it reaches has committed the micro-batch that contains
it. Checkpoints record which files each batch has read, and a topic names its batches after the
producer's, so a published batch is followed from its source to the last operator. Spark itself is
not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tidegate.apps.feed import PublishedBatch
from tidegate.report.summary import Measured
from tidegate.spark.streams.checkpoints import Checkpoint
from tidegate.spark.streams.file_topics import FileTopic
from tidegate.spark.streams.topic import Manifest

if TYPE_CHECKING:
    from tidegate.spark.streams.topology import RunningTopology

__all__ = ["Taken", "figures", "latencies", "latencies_in", "processed_s", "together"]

Taken = tuple[NDArray[np.float64], int, int]
"""Latencies in seconds, rows that still wait, and rows that are late."""


def latencies(
    running: RunningTopology,
    published: Iterable[PublishedBatch],
    from_s: float = 0.0,
    until_s: float = float("inf"),
) -> tuple[NDArray[np.float64], int] | None:
    """Seconds from event to commit of each row, and the number of rows still to be processed.

    Returns None where topics are not files: their checkpoints do not name batches.

    published: by the feed. from_s, until_s: count rows with event times in between, Unix seconds.
    """
    done = processed_s(running)
    return None if done is None else latencies_in(done, published, from_s, until_s)


def latencies_in(
    done: Mapping[str, Mapping[str, float]],
    published: Iterable[PublishedBatch],
    from_s: float = 0.0,
    until_s: float = float("inf"),
) -> tuple[NDArray[np.float64], int]:
    """The same as `latencies`, from what `processed_s` has returned."""
    found: list[NDArray[np.float64]] = [np.empty(0)]
    waiting = 0
    for batch in published:
        inside = batch.event_s[(batch.event_s >= from_s) & (batch.event_s < until_s)]
        at_s = done[batch.source].get(batch.name)
        if at_s is None:
            waiting += len(inside)
        else:
            found.append(at_s - inside)
    return np.concatenate(found), waiting


def processed_s(running: RunningTopology) -> dict[str, dict[str, float]] | None:
    """When each batch of each topic was processed by all operators after it, in Unix seconds.

    By topic and name of the batch; batches that are not yet processed are left out. An operator
    that reads its own topic, or that of a later operator, is not followed round the loop.
    """
    order = list(running.queries)
    place = {name: n for n, name in enumerate(order)}
    done: dict[str, dict[str, float]] = {}
    read: dict[str, dict[Path, float]] = {}
    sources = [name for name in running.topics if name not in place]
    for name in (*reversed(order), *sources):
        topic = running.topics[name]
        if not isinstance(topic, FileTopic):
            return None
        later = {n: c for n, c in topic.consumers().items() if place[n] > place.get(name, -1)}
        for consumer, checkpoint in later.items():
            if consumer not in read:
                read[consumer] = _read_s(consumer, checkpoint, done[consumer])
        done[name] = {}
        for manifest in topic.batches():
            ends = [
                read[consumer].get(topic.folder / manifest.name / file)
                for consumer in later
                for file in manifest.files
            ]
            known = [end for end in ends if end is not None]
            if len(known) == len(ends):
                done[name][manifest.name] = max(known, default=0.0)
    return done


def _read_s(consumer: str, checkpoint: Checkpoint, after: dict[str, float]) -> dict[Path, float]:
    """When each file that an operator has read was processed by it and by all operators after it.

    after: when its own batches were processed by the operators after it, by name.
    """
    found = {}
    for commit in (checkpoint.folder / "commits").glob("[0-9]*"):
        batch = Manifest(consumer, int(commit.name))
        end_s = after.get(batch.name)
        if end_s is not None:
            for file in checkpoint.batch_files(batch.batch_id):
                found[file] = max(commit.stat().st_mtime, end_s)
    return found


def together(known: Mapping[str, Taken]) -> Taken:
    """What the rows of all sources took. known: by source."""
    taken_s = np.concatenate([np.empty(0), *(each[0] for each in known.values())])
    waiting, late = (sum(each) for each in zip(*(each[1:] for each in known.values()), strict=True))
    return taken_s, waiting, late


def figures(taken_s: NDArray[np.float64], waiting: int, late: int) -> Measured:
    """Counts and percentiles of what rows took.

    taken_s: latencies in seconds. waiting: rows that still wait. late: rows that are late, those
    that wait included.
    """
    p50_s, p95_s, p99_s = (
        map(float, np.percentile(taken_s, [50, 95, 99])) if len(taken_s) else (None, None, None)
    )
    return Measured(len(taken_s) + waiting, late, p50_s, p95_s, p99_s)
