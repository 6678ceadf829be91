"""From the network's books to a Snapshot: what a monitoring system would show.

Counters are read as differences since the turn before. A measurement that cannot be had (nothing
was processed, a host is still starting) is None, never zero.
"""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegate.model import (
    BatchReading,
    HostOffer,
    Latency,
    OperatorReading,
    Snapshot,
)
from tidegate.model.snapshot import NO_LATENCY
from tidegate.model.topology import Topology
from tidegate.simulation.hosts import Fleet
from tidegate.simulation.kernels.difference import (
    DURATIONS,
    SAMPLED,
    WAITING,
    WORKING,
    difference,
    empty_gauge,
    empty_marks,
)
from tidegate.simulation.kernels.random import stream
from tidegate.simulation.kernels.state import (
    ARRIVED,
    BUSY_S,
    CORES,
    DONE,
    DROPPED,
    FREE_S,
    GAP_S,
    GAP_SQUARE,
    GAPS,
    HOST,
    PROCESSED,
    RECENT,
    ROOT,
    SAMPLES,
    SERVICE_S,
    SERVICE_SQUARE,
)
from tidegate.simulation.network import Engine
from tidegate.simulation.roster import Readings, Roster
from tidegate.simulation.settings import CloudSettings

__all__ = ["Meter"]

Floats = NDArray[np.float64]
NOISE = 21


class Meter:
    """Measures an engine and its fleet; reading it twice at the same moment changes nothing."""

    def __init__(
        self,
        topology: Topology,
        offer: HostOffer,
        settings: CloudSettings,
        engine: Engine,
        fleet: Fleet,
        seed: int,
    ) -> None:
        self._topology, self._offer, self._settings = topology, offer, settings
        self._engine, self._fleet, self._seed = engine, fleet, seed
        self._names = tuple(topology.by_name)
        self._demands = [operator.demand for operator in topology.operators]
        self._roster, self._listed = Roster(fleet, self._demands), fleet.changes
        self._kept: deque[Readings] = deque()
        self._batches: deque[float] = deque(maxlen=RECENT)
        self._marks = empty_marks(engine.net)
        self._gauge = empty_gauge(engine.net)
        self._marked_s = 0.0
        self._left: dict[int, float] = {}

    def forget(self, operator: int, slot: int) -> None:
        """A slot has got a new instance: its counters begin at zero."""
        if slot < self._marks.busy.shape[1]:
            self._marks.busy[operator, slot] = 0.0
            self._marks.done[operator, slot] = 0

    def settle(self, operator: int, slot: int, now_s: float) -> None:
        """An instance is about to move: what it has used since the last turn, its old host pays.

        The engine begins its seconds anew at the new place.
        """
        net = self._engine.net
        busy = float(net.slot_f[operator, BUSY_S, slot])
        if net.slot_i[operator, ROOT, slot] >= 0:
            busy -= max(0.0, float(net.slot_f[operator, FREE_S, slot]) - now_s)
        if slot < self._marks.busy.shape[1]:
            busy -= float(self._marks.busy[operator, slot])
            self._marks.busy[operator, slot] = 0.0
            self._marks.done[operator, slot] = net.slot_i[operator, DONE, slot]
        host = int(net.slot_i[operator, HOST, slot])
        used = busy * float(net.ops_f[operator, CORES])
        self._left[host] = self._left.get(host, 0.0) + used

    # --- measuring ----------------------------------------------------------------------------

    def snapshot(self, now_s: float) -> Snapshot:
        """What can be measured now."""
        if not self._kept or now_s > self._kept[-1].time_s:
            self._kept.append(self._measure(now_s))
            self._marked_s = now_s
        due = now_s - self._settings.measurement_delay_s
        while len(self._kept) > 1 and self._kept[1].time_s <= due:
            self._kept.popleft()
        seen = self._kept[0] if self._kept[0].time_s <= due else None
        return self._assemble(now_s, seen)

    def _measure(self, now_s: float) -> Readings:
        net = self._engine.net
        span = now_s - self._marked_s
        operators, _, slots = net.slot_f.shape
        if self._marks.busy.shape[1] != slots or len(self._gauge.core_s) != len(net.hosts):
            self._marks, self._gauge = empty_marks(net, self._marks), empty_gauge(net)
        difference(
            now_s,
            net.ops_f,
            net.ends,
            net.slot_f,
            net.slot_i,
            net.tally,
            net.whole,
            net.recent,
            net.sketch,
            *self._marks,
            *self._gauge,
        )
        # From here on plain numbers: there are few of them, and NumPy's are slow one by one.
        all_facts, (busy, done), core_s, times = [array.tolist() for array in self._gauge]
        for host, used in self._left.items():
            core_s[host] += used
        self._left.clear()
        noise = [1.0] * (2 * operators + 1)
        if self._settings.measurement_noise > 0 and span > 0:
            lots = stream(self._seed, NOISE, round(now_s * 1000))
            sigma = self._settings.measurement_noise
            noise = np.exp(lots.normal(0, sigma, len(noise))).tolist()
        facts_of = zip(self._names, all_facts, noise[0:-1:2], noise[1::2], strict=True)
        readings = tuple([_reading(span, *facts) for facts in facts_of])
        latency = NO_LATENCY
        if not math.isnan(times[0]):
            latency = Latency(*[seconds * noise[-1] for seconds in times])
        batches = self._batch(readings)
        return Readings(now_s, span, readings, latency, batches, core_s, noise[-1], busy, done)

    def _batch(self, readings: tuple[OperatorReading, ...]) -> BatchReading | None:
        """The batches that micro-batch processing would have had: the busiest operator's work."""
        trigger = self._settings.trigger_interval_s
        if trigger is None:
            return None
        counts = self._fleet.requested.counts
        work = [
            r.arrival_rate_per_s * r.service_time_s / max(1, counts[r.operator])
            for r in readings
            if r.arrival_rate_per_s is not None and r.service_time_s is not None
        ]
        if work:
            self._batches.append(trigger * max(work))
        return BatchReading(trigger, tuple(self._batches)) if self._batches else None

    # --- assembling ---------------------------------------------------------------------------

    def _assemble(self, now_s: float, seen: Readings | None) -> Snapshot:
        fleet = self._fleet
        fleet.forget_gone(now_s)
        if fleet.changes != self._listed:
            self._roster, self._listed = Roster(fleet, self._demands), fleet.changes
        roster = self._roster
        operators = seen.operators if seen else tuple(map(OperatorReading, self._names))
        # Known already: it would be worked out again in each turn.
        known: dict[str, Any] = {
            "requested": fleet.requested,
            "reading": dict(zip(self._names, operators, strict=True)),
            "capacities": roster.capacities,
        }
        if roster.up_s <= now_s:
            known["running"] = fleet.requested
        return Snapshot.unchecked(
            time_s=now_s,
            topology=self._topology,
            offer=self._offer,
            hosts_later=partial(roster.hosts, now_s, seen),
            instances_later=partial(roster.instances, now_s, seen),
            operators=operators,
            latency=seen.latency if seen else NO_LATENCY,
            batches=seen.batches if seen else None,
            interval_s=self._settings.decision_s,
            leased_so_far=fleet.leased_so_far,
            ended=fleet.ended,
            **known,
        )


def _reading(
    span: float,
    name: str,
    delta: list[float],
    rate_noise: float,
    time_noise: float,
) -> OperatorReading:
    """What was measured of one operator. delta: its facts, see `difference`."""
    waiting = delta[WAITING]
    if span <= 0:
        return OperatorReading(name, queue_length=waiting)
    known = int(delta[SAMPLED])
    recent = tuple(delta[DURATIONS : DURATIONS + known]) if known else None
    service = service_scv = arrival_scv = None
    samples, gaps = delta[SAMPLES], delta[GAPS]
    if samples > 0:
        mean = delta[SERVICE_S] / samples
        service = mean * time_noise
        if mean > 0 and samples > 1:
            service_scv = max(0.0, delta[SERVICE_SQUARE] / samples / mean**2 - 1)
    if gaps > 1 and delta[GAP_S] > 0:
        mean = delta[GAP_S] / gaps
        arrival_scv = max(0.0, delta[GAP_SQUARE] / gaps / mean**2 - 1)
    return OperatorReading(
        name,
        delta[ARRIVED] / span * rate_noise,
        delta[PROCESSED] / span * rate_noise,
        delta[DROPPED] / span,
        service,
        arrival_scv,
        service_scv,
        waiting,
        recent,
        int(waiting),
        int(delta[WORKING]),
    )
