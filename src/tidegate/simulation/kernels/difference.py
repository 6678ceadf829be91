"""The change of all counts since the previous turn, in one compiled pass."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tidegate.simulation.kernels import state as at
from tidegate.simulation.kernels.sketch import TOGETHER, bucket_middle
from tidegate.simulation.kernels.state import Floats, Ints, Network
from tidegate.theory.arrays import Structure
from tidegate.theory.compiled import compiled

__all__ = [
    "DURATIONS",
    "SAMPLED",
    "WAITING",
    "WORKING",
    "Gauge",
    "Marks",
    "difference",
    "empty_gauge",
    "empty_marks",
]

WAITING, WORKING, SAMPLED, DURATIONS = 19, 20, 21, 22
"""Columns of the facts about an operator that follow those of `tally`."""
FACTS = DURATIONS + at.RECENT


@dataclass(frozen=True, eq=False)
class Marks(Structure):
    """The counts at the previous turn."""

    tally: Floats
    busy: Floats
    done: Ints
    sketch: Ints
    whole: Floats


@dataclass(frozen=True, eq=False)
class Gauge(Structure):
    """The arrays that a measurement fills.

    facts: by operator, the difference in `tally`, then items waiting and items in work, the number
    of sampled durations and these durations, oldest first. slots: busy seconds and items done, by
    operator and slot. core_s: core-seconds by host. latency: mean, 50th, 95th and 99th percentile
    of finished items, NaN without any.
    """

    facts: Floats
    slots: Floats
    core_s: Floats
    latency: Floats


def empty_gauge(net: Network) -> Gauge:
    """A gauge that fits a network."""
    operators, _, slots = net.slot_f.shape
    by_slot, core_s = np.empty((2, operators, slots)), np.empty(len(net.hosts))
    return Gauge(np.empty((operators, FACTS)), by_slot, core_s, np.empty(4))


def empty_marks(net: Network, before: Marks | None = None) -> Marks:
    """Marks that fit a network, with the contents of `before`, which may have fewer slots."""
    operators, _, slots = net.slot_f.shape
    busy, done = np.zeros((operators, slots)), np.zeros((operators, slots), np.int64)
    if before is not None:
        busy[:, : before.busy.shape[1]] = before.busy
        done[:, : before.done.shape[1]] = before.done
        return replace(before, busy=busy, done=done)
    buckets = net.sketch.shape[1]
    return Marks(
        np.zeros_like(net.tally), busy, done, np.zeros(buckets, np.int64), np.zeros_like(net.whole)
    )


@compiled
def difference(now: float, net: Network, marks: Marks, gauge: Gauge) -> None:
    """Fill the gauge and update the marks."""
    slot_f, slot_i, tally, whole, sketch = (
        net.slot_f, net.slot_i, net.tally, net.whole, net.sketch,
    )  # fmt: skip
    facts, slots, cores, latency = gauge.facts, gauge.slots, gauge.core_s, gauge.latency
    operators = len(tally)
    for host in range(len(cores)):
        cores[host] = 0.0
    for o in range(operators):
        for column in range(tally.shape[1]):
            facts[o, column] = tally[o, column] - marks.tally[o, column]
            marks.tally[o, column] = tally[o, column]
        working = 0
        for s in range(slot_f.shape[2]):
            if slot_i[o, at.ALIVE, s] == at.NO_SERVER:
                slots[0, o, s] = slots[1, o, s] = 0.0
                marks.busy[o, s] = 0.0
                marks.done[o, s] = 0
                continue
            busy = slot_f[o, at.BUSY_S, s]
            if slot_i[o, at.ROOT, s] >= 0:
                working += 1
                # Service is counted when it starts: subtract what is still to come.
                busy -= max(0.0, slot_f[o, at.FREE_S, s] - now)
            slots[0, o, s] = busy - marks.busy[o, s]
            slots[1, o, s] = slot_i[o, at.DONE, s] - marks.done[o, s]
            marks.busy[o, s] = busy
            marks.done[o, s] = slot_i[o, at.DONE, s]
            cores[slot_i[o, at.HOST, s]] += slots[0, o, s] * net.ops_f[o, at.CORES]
        facts[o, WAITING] = net.ends[o, at.TAIL] - net.ends[o, at.HEAD]
        facts[o, WORKING] = working
        sampled = int(tally[o, at.SAMPLES])
        facts[o, SAMPLED] = known = min(sampled, at.RECENT)
        for i in range(known):
            facts[o, DURATIONS + i] = net.recent[o, (sampled - known + i) % at.RECENT]
    out = math.floor(whole[at.OUT]) - math.floor(marks.whole[at.OUT])
    for place in range(4):
        latency[place] = np.nan
    if out > 0:
        latency[0] = (whole[at.SOJOURN_S] - marks.whole[at.SOJOURN_S]) / out
        seen = 0
        for first in range(0, sketch.shape[1], TOGETHER):
            if seen >= out:  # the following buckets are unchanged
                break
            changed = 0
            for bucket in range(first, first + TOGETHER):
                count = sketch[operators, bucket] + sketch[operators + 1, bucket]
                changed |= count - marks.sketch[bucket]
            if changed == 0:
                continue
            for bucket in range(first, first + TOGETHER):
                count = sketch[operators, bucket] + sketch[operators + 1, bucket]
                seen += count - marks.sketch[bucket]
                marks.sketch[bucket] = count
                if seen > 0:
                    for place in range(1, 4):
                        share = 0.5 if place == 1 else 0.95 if place == 2 else 0.99
                        if math.isnan(latency[place]) and seen >= max(1.0, share * out):
                            latency[place] = bucket_middle(bucket)
                    if seen >= out:
                        break
    for entry in range(len(whole)):
        marks.whole[entry] = whole[entry]
