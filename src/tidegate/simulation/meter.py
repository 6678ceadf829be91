"""From the network's books to a Snapshot: what a monitoring system would show.

Counters are read as differences since the turn before. A measurement that cannot be had (nothing
was processed, a host is still starting) is None, never zero.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate.model import (
    BatchReading,
    Host,
    HostOffer,
    HostStatus,
    InstanceReading,
    Latency,
    Lease,
    OperatorReading,
    Snapshot,
)
from tidegate.simulation.engine import Engine
from tidegate.simulation.fleet import Fleet
from tidegate.simulation.lots import stream
from tidegate.simulation.settings import CloudSettings
from tidegate.simulation.sketch import quantile_of
from tidegate.simulation.state import (
    ARRIVED,
    BUSY_S,
    CORES,
    DONE,
    DROPPED,
    FREE_S,
    GAP_S,
    GAP_SQUARE,
    GAPS,
    HEAD,
    HOST,
    HOST_CORES,
    MBPS,
    OUT,
    PROCESSED,
    RECENT,
    ROOT,
    SAMPLES,
    SERVICE_S,
    SERVICE_SQUARE,
    SOJOURN_S,
    TAIL,
)
from tidegate.topology import Resources, Topology

__all__ = ["Meter"]

Floats = NDArray[np.float64]
NOISE = 21


@dataclass(frozen=True, slots=True)
class _Readings:
    """What was measured at one moment; loads and rates by engine number."""

    time_s: float
    span_s: float
    operators: tuple[OperatorReading, ...]
    latency: Latency
    batches: BatchReading | None
    utilisation: Floats
    busy: list[list[float]]
    done: list[list[float]]


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
        self._memory = [operator.demand.memory_mb for operator in topology.operators]
        self._kept: deque[_Readings] = deque()
        self._batches: deque[float] = deque(maxlen=RECENT)
        self._mark(0.0)

    def _mark(self, now_s: float) -> None:
        """Remember the counters, for the difference to the next turn."""
        net = self._engine.net
        self._marked_s = now_s
        self._tally = net.tally.copy()
        self._whole = net.whole.copy()
        self._sketch = self._whole_sketch()
        self._busy = self._busy_now(now_s)
        self._done = net.slot_i[:, DONE].copy()

    def forget(self, operator: int, slot: int) -> None:
        """A slot has got a new instance: its counters begin at zero."""
        if slot < self._busy.shape[1]:
            self._busy[operator, slot] = 0.0
            self._done[operator, slot] = 0

    def _whole_sketch(self) -> NDArray[np.int64]:
        operators = len(self._names)
        sketch = self._engine.net.sketch
        return np.add(sketch[operators], sketch[operators + 1])

    def _busy_now(self, now_s: float) -> Floats:
        """Seconds that each slot has worked; service is booked when it begins."""
        net = self._engine.net
        ahead = np.where(net.slot_i[:, ROOT] >= 0, net.slot_f[:, FREE_S] - now_s, 0.0)
        return np.asarray(net.slot_f[:, BUSY_S] - np.maximum(ahead, 0.0))

    # --- measuring ----------------------------------------------------------------------------

    def snapshot(self, now_s: float) -> Snapshot:
        """What can be measured now."""
        if not self._kept or now_s > self._kept[-1].time_s:
            self._kept.append(self._measure(now_s))
            self._mark(now_s)
        due = now_s - self._settings.measurement_delay_s
        while len(self._kept) > 1 and self._kept[1].time_s <= due:
            self._kept.popleft()
        seen = self._kept[0] if self._kept[0].time_s <= due else None
        return self._assemble(now_s, seen)

    def _measure(self, now_s: float) -> _Readings:
        net = self._engine.net
        span = now_s - self._marked_s
        busy, done = self._busy_now(now_s), net.slot_i[:, DONE]
        operators, slots = self._busy.shape
        if busy.shape != self._busy.shape:  # slots have been added since
            wide = np.zeros_like(busy)
            wide[:, :slots] = self._busy
            self._busy = wide
            counts = np.zeros_like(done)
            counts[:, :slots] = self._done
            self._done = counts
        used = busy - self._busy
        cores = (used * net.ops_f[:, CORES][:, None]).ravel()
        load = np.bincount(net.slot_i[:, HOST].ravel(), cores, minlength=len(net.hosts))
        utilisation = load / net.hosts[:, HOST_CORES]
        delta = net.tally - self._tally
        factor = np.ones(2 * operators + 1)
        if self._settings.measurement_noise > 0 and span > 0:
            lots = stream(self._seed, NOISE, round(now_s * 1000))
            factor = np.exp(lots.normal(0, self._settings.measurement_noise, len(factor)))
        readings = tuple(
            self._operator(name, o, span, row, factor)
            for o, (name, row) in enumerate(zip(self._names, delta.tolist(), strict=True))
        )
        return _Readings(
            now_s,
            span,
            readings,
            self._latency(factor[-1]),
            self._batch(readings),
            np.maximum(utilisation, 0.0) * factor[-1],
            used.tolist(),
            (done - self._done).tolist(),
        )

    def _operator(
        self, name: str, o: int, span: float, delta: list[float], factor: Floats
    ) -> OperatorReading:
        net = self._engine.net
        waiting = int(net.ends[o, TAIL] - net.ends[o, HEAD])
        samples = int(net.tally[o, SAMPLES])
        first = max(0, samples - RECENT)
        ring = net.recent[o].tolist()
        recent = tuple(ring[i % RECENT] for i in range(first, samples))
        rate_noise, time_noise = float(factor[2 * o]), float(factor[2 * o + 1])
        if span <= 0:
            return OperatorReading(name, queue_length=float(waiting))
        service = service_scv = arrival_scv = None
        if delta[SAMPLES] > 0:
            mean = delta[SERVICE_S] / delta[SAMPLES]
            service = mean * time_noise
            if mean > 0 and delta[SAMPLES] > 1:
                service_scv = max(0.0, delta[SERVICE_SQUARE] / delta[SAMPLES] / mean**2 - 1)
        if delta[GAPS] > 1 and delta[GAP_S] > 0:
            mean = delta[GAP_S] / delta[GAPS]
            arrival_scv = max(0.0, delta[GAP_SQUARE] / delta[GAPS] / mean**2 - 1)
        return OperatorReading(
            name,
            arrival_rate_per_s=delta[ARRIVED] / span * rate_noise,
            processed_per_s=delta[PROCESSED] / span * rate_noise,
            dropped_per_s=delta[DROPPED] / span,
            service_time_s=service,
            arrival_scv=arrival_scv,
            service_scv=service_scv,
            queue_length=float(waiting),
            recent_durations_s=recent if recent else None,
            pending_tasks=waiting,
            running_tasks=int(np.count_nonzero(net.slot_i[o, ROOT] >= 0)),
        )

    def _latency(self, noise: float) -> Latency:
        net = self._engine.net
        out = int(net.whole[OUT] - self._whole[OUT])
        if out == 0:
            return Latency()
        counts = self._whole_sketch() - self._sketch
        mean = (net.whole[SOJOURN_S] - self._whole[SOJOURN_S]) / out
        p50, p95, p99 = (float(quantile_of(counts, out, q)) * noise for q in (0.5, 0.95, 0.99))
        return Latency(float(mean * noise), p50, p95, p99)

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

    def _assemble(self, now_s: float, seen: _Readings | None) -> Snapshot:
        fleet, offer = self._fleet, self._offer
        fleet.forget_gone(now_s)
        return Snapshot(
            now_s,
            self._topology,
            offer,
            tuple(self._hosts(now_s, seen)),
            tuple(self._instances(now_s, seen)),
            seen.operators if seen else tuple(OperatorReading(name) for name in self._names),
            seen.latency if seen else Latency(),
            seen.batches if seen else None,
            self._settings.decision_s,
            fleet.leased_so_far,
        )

    def _hosts(self, now_s: float, seen: _Readings | None) -> list[Host]:
        hosts = []
        offer = self._offer
        for host in self._fleet.hosts.values():
            status: HostStatus = "running"
            if host.draining:
                status = "draining"
            elif host.ready_s > now_s:
                status = "starting"
            used = None
            if seen and host.ready_s < seen.time_s and host.number < len(seen.utilisation):
                there = min(seen.span_s, seen.time_s - host.ready_s)
                if there > 0:
                    used = float(seen.utilisation[host.number]) / there
            images = frozenset(name for name, since in host.images.items() if since <= now_s)
            lease = Lease(offer.billing_unit_s, offer.price_per_unit_usd, host.leased_s)
            hosts.append(Host(host.id, offer.capacity, status, used, lease, images))
        return hosts

    def _instances(self, now_s: float, seen: _Readings | None) -> list[InstanceReading]:
        readings = []
        network = self._engine.net.ops_f[:, [CORES, MBPS]].tolist()
        for instance in self._fleet.instances.values():
            o, slot = instance.number, instance.slot
            if instance.ready_s > now_s:
                readings.append(
                    InstanceReading(instance.id, instance.operator, instance.host, "starting")
                )
                continue
            load = rate = None
            if seen and instance.ready_s < seen.time_s and slot < len(seen.busy[o]):
                there = min(seen.span_s, seen.time_s - instance.ready_s)
                if there > 0:
                    share = max(0.0, seen.busy[o][slot]) / there
                    cores, mbps = network[o]
                    load = Resources(share * cores, self._memory[o], share * mbps)
                    rate = max(0.0, seen.done[o][slot] / there)
            readings.append(
                InstanceReading(
                    instance.id, instance.operator, instance.host, "running", load, rate
                )
            )
        return readings
