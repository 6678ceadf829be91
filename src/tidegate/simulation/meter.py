"""Snapshots of the item-level and fluid worlds: what a monitoring system would show.

Counters are read as differences since the previous turn. A missing measurement (nothing was
processed, a host is still starting) is None, never zero.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import islice, repeat
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidegate.model import (
    BatchReading,
    Host,
    HostStatus,
    InstanceReading,
    InstanceStatus,
    Latency,
    OperatorReading,
    Snapshot,
)
from tidegate.model.snapshot import NO_LATENCY, Once, Rates
from tidegate.model.topology import Resources, Topology
from tidegate.simulation.hosts import SimulatedHosts
from tidegate.simulation.kernels import state as at
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
from tidegate.simulation.network import ItemEngine
from tidegate.simulation.settings import CloudSettings
from tidegate.theory.compiled import entry_of
from tidegate.values import derived

__all__ = ["LATEST_S", "Meter", "Readings", "Roster"]

LATEST_S = 1.0
"""Rates of the last second are known where the time series has a row for each second, or more."""

Floats = NDArray[np.float64]
T = TypeVar("T")
NOISE = 21
_NO_READING = dict(vars(OperatorReading("")))


class Readings(NamedTuple):
    """Measurements of one moment; what only some policies ask for is computed once they do.

    rates, queues: of the operators, None where these are to be asked. core_s: core-seconds by host.
    slots: busy seconds and items done, by operator and slot. latest: when the last second began,
    and what an instance processed in it, by operator. All by the engine's numbers.
    """

    time_s: float
    span_s: float
    operators: Once[tuple[OperatorReading, ...]]
    rates: Once[Rates] | None
    latency: Latency
    batches: BatchReading | None
    core_s: Callable[[], list[float]]
    noise: float
    slots: Callable[[], list[list[list[float]]]]
    latest: tuple[float, list[float]] | None = None
    queues: Once[dict[str, float]] | None = None


class Roster:
    """The hosts and instances as they are now, for snapshots that list them later.

    Most policies ask for the hosts and instances of a snapshot only now and then. A roster never
    changes once it is made, so a snapshot can keep it.

    world: the hosts and instances. demands: of the operators, by number. capacities: by host, in
    the order of the leases. up_s: from when all of it runs, never while a host is being released.
    """

    def __init__(self, world: SimulatedHosts, demands: Sequence[Resources]) -> None:
        hosts, instances = world.hosts.values(), world.instances.values()
        self._demands, self._capacity = demands, world.offer.capacity
        # A host keeps its images and only gets more.
        self._hosts = [(host, host.draining, len(host.images)) for host in hosts]
        self._instances = list(instances)
        self.capacities = dict.fromkeys(world.hosts, self._capacity)
        ready = [h.ready_s for h in hosts] + [i.ready_s for i in instances]
        draining = any(h.draining for h in hosts)
        self.up_s = math.inf if draining else max(ready, default=0.0)

    @derived
    def _images(self) -> list[dict[str, float]]:
        """The images of each host, with the moment from which it has them."""
        return [dict(islice(host.images.items(), known)) for host, _, known in self._hosts]

    @derived
    def _loaded(self) -> list[tuple[float, frozenset[str]]]:
        """The moment from which all images of a host are loaded, and these images."""
        return [(max(known.values(), default=0.0), frozenset(known)) for known in self._images]

    def hosts_running(self, now_s: float) -> int:
        """How many of `hosts` run."""
        return len(
            [1 for host, draining, _ in self._hosts if not draining and host.ready_s <= now_s]
        )

    def _used(self, seen: Readings | None) -> list[float | None]:
        """The latest utilisation of each host, None where it was not measured."""
        if not seen:
            return [None] * len(self._hosts)
        found: list[float | None] = []
        cores, noise, core_s = self._capacity.cpu_cores, seen.noise, seen.core_s()
        measured_s, span_s = seen.time_s, seen.span_s
        for host, _, _ in self._hosts:
            ready_s, number = host.ready_s, host.number
            used = None
            if ready_s < measured_s and number < len(core_s):
                up_s = min(span_s, measured_s - ready_s)
                if up_s > 0:
                    used = max(core_s[number] / cores, 0.0) * noise / up_s
            found.append(used)
        return found

    def utilisations(self, now_s: float, seen: Readings | None) -> dict[str, float | None]:
        """The utilisation that `hosts` has, of those that run, without the rest."""
        each = zip(self._hosts, self._used(seen), strict=True)
        return {
            host.id: used
            for (host, draining, _), used in each
            if not draining and host.ready_s <= now_s
        }

    def hosts(self, now_s: float, seen: Readings | None) -> tuple[Host, ...]:
        """The hosts at that moment, with the latest measurements."""
        hosts, capacity, all_used = [], self._capacity, self._used(seen)
        for place, (host, draining, _) in enumerate(self._hosts):
            ready_s, used = host.ready_s, all_used[place]
            loaded_s, images = self._loaded[place]
            if loaded_s > now_s:
                since = self._images[place].items()
                images = frozenset([image for image, since_s in since if since_s <= now_s])
            status: HostStatus = "starting" if ready_s > now_s else "running"
            if draining:
                status = "draining"
            hosts.append(Host(host.id, capacity, status, used, host.lease, images))
        return tuple(hosts)

    def loads(self, now_s: float, seen: Readings | None) -> dict[str, Resources]:
        """The loads that `instances` has, by instance, without the rest."""
        if not seen:
            return {}
        loads: dict[str, Resources] = {}
        (busy, _), demands = seen.slots(), self._demands
        measured_s, span_s, slots = seen.time_s, seen.span_s, len(busy[0])
        for instance in self._instances:
            slot, ready_s = instance.slot, instance.ready_s
            if ready_s < measured_s and ready_s <= now_s and slot < slots:
                there = min(span_s, measured_s - ready_s)
                if there > 0:
                    o = instance.number
                    loads[instance.id] = _load(busy[o][slot] / there, demands[o])
        return loads

    def instances(self, now_s: float, seen: Readings | None) -> tuple[InstanceReading, ...]:
        """The instances at that moment, with the latest measurements."""
        readings = []
        measured_s, span_s, slots = -math.inf, 0.0, 0
        if seen:
            all_busy, all_done = seen.slots()
            measured_s, span_s, slots = seen.time_s, seen.span_s, len(all_busy[0])
        latest = seen.latest if seen else None
        # Instances of an operator often did the same work, in a flow always.
        known: tuple[float, ...] = ()
        same: tuple[Resources | None, float | None] = (None, None)
        for instance in self._instances:
            o, slot, ready_s = instance.number, instance.slot, instance.ready_s
            status: InstanceStatus = "running" if ready_s <= now_s else "starting"
            load = rate = None
            if seen and ready_s < measured_s and ready_s <= now_s and slot < slots:
                there = min(span_s, measured_s - ready_s)
                if there > 0:
                    busy, done = all_busy[o][slot], all_done[o][slot]
                    if (o, busy, done, there) != known:
                        known = (o, busy, done, there)
                        same = _load(busy / there, self._demands[o]), max(0.0, done / there)
                    load, rate = same
            newest = latest[1][o] if latest and rate is not None and ready_s <= latest[0] else None
            readings.append(
                InstanceReading(
                    instance.id, instance.operator, instance.host, status, load, rate, newest
                )
            )
        return tuple(readings)


def _load(share: float, demand: Resources) -> Resources:
    """What an instance used. share: of the time in which it was busy."""
    share = share if share > 0.0 else 0.0
    return Resources.unchecked(
        share * demand.cpu_cores, demand.memory_mb, share * demand.network_mbps
    )


class Meter:
    """Measures an engine and its hosts; reading it twice at the same moment changes nothing.

    settings: delay and noise of measurements. engine: what processes the items. hosts: where they
    run. seed: random seed of the noise.
    """

    def __init__(
        self,
        settings: CloudSettings,
        engine: ItemEngine,
        hosts: SimulatedHosts,
        seed: int,
    ) -> None:
        self._settings, self._engine, self._hosts, self._seed = settings, engine, hosts, seed
        self._names = tuple(hosts.topology.by_name)
        self._nothing = Once(lambda: tuple(map(OperatorReading, self._names)))
        self._demands = [operator.demand for operator in hosts.topology.operators]
        self._list_hosts()
        self._kept: deque[Readings] = deque()
        self._batches: deque[float] = deque(maxlen=at.RECENT)
        self._marks = empty_marks(engine.net)
        self._gauge = empty_gauge(engine.net)
        self._difference: Any = None
        self._net = engine.net
        self._marked_s = 0.0
        self._left: dict[int, float] = {}
        self._row: tuple[Floats, float] | None = None
        self._offered = self._shed = 0.0

    def note_row(self, row: Floats, shed_fraction: float) -> None:
        """Keep the last row of the time series. shed_fraction: share that was shed in its time."""
        self._row = row, shed_fraction

    @cached_property
    def _shares(self) -> list[tuple[float, float]]:
        return _source_shares(self._hosts.topology)

    def forget(self, operator: int, slot: int) -> None:
        """Reset the counters of a slot that has a new instance."""
        if slot < self._marks.busy.shape[1]:
            self._marks.busy[operator, slot] = 0.0
            self._marks.done[operator, slot] = 0

    def settle(self, operator: int, slot: int, now_s: float) -> None:
        """Charge what an instance used since the last turn to the host that it is leaving.

        The engine restarts the instance's busy time on the new host.
        """
        net = self._engine.net
        busy = float(net.slot_f[operator, at.BUSY_S, slot])
        if net.slot_i[operator, at.ROOT, slot] >= 0:
            busy -= max(0.0, float(net.slot_f[operator, at.FREE_S, slot]) - now_s)
        if slot < self._marks.busy.shape[1]:
            busy -= float(self._marks.busy[operator, slot])
            self._marks.busy[operator, slot] = 0.0
            self._marks.done[operator, slot] = net.slot_i[operator, at.DONE, slot]
        host = int(net.slot_i[operator, at.HOST, slot])
        used = busy * float(net.ops_f[operator, at.CORES])
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

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_difference": None}  # compiled code is found again, and not pickled

    def _measure(self, now_s: float) -> Readings:
        net = self._engine.net
        span = now_s - self._marked_s
        if net is not self._net:  # it may have more slots, or more hosts
            self._net = net
            self._marks, self._gauge = empty_marks(net, self._marks), empty_gauge(net)
        marks, gauge = self._marks, self._gauge
        if self._difference is None:
            self._difference = entry_of(difference, float(now_s), net, marks, gauge)
        self._difference(float(now_s), net, marks, gauge)
        # The gauge is filled again at the next turn.
        facts, by_slot, core_s = gauge.facts.copy(), gauge.slots.copy(), gauge.core_s.copy()
        if self._left:
            for host, used in self._left.items():
                core_s[host] += used
            self._left.clear()
        rate_noise: Iterable[float] = repeat(1.0)
        time_noise, own_noise = rate_noise, 1.0
        if self._settings.measurement_noise > 0 and span > 0:
            rate_noise, time_noise, own_noise = self._noise(now_s)
        read = Once(_readings, span, facts, self._names, rate_noise, time_noise)
        noisy = None if isinstance(rate_noise, repeat) else rate_noise
        rates = Once(_rates, span, facts, self._names, noisy) if span > 0 else None
        offered, shed = float(net.whole[at.IN]), float(net.whole[at.SHED])
        if shed > self._shed and span > 0:
            share = (shed - self._shed) / (offered - self._offered)
            with_shed = self._with_shed(read(), share, (shed - self._shed) / span)
            read, rates = Once(lambda: with_shed), None
        self._offered, self._shed = offered, shed
        latest = None
        if self._row is not None and span > 0:
            with_latest, latest = self._with_latest(read(), rate_noise)
            read = Once(lambda: with_latest)
        mean_s, p50_s, p95_s, p99_s = gauge.latency.tolist()
        return Readings(
            now_s,
            span,
            read,
            rates,
            NO_LATENCY
            if math.isnan(mean_s)
            else Latency(
                mean_s * own_noise, p50_s * own_noise, p95_s * own_noise, p99_s * own_noise
            ),
            None if self._settings.trigger_interval_s is None else self._batch(read),
            core_s.tolist,
            own_noise,
            by_slot.tolist,
            latest,
            Once(_queues, facts, self._names),
        )

    def _noise(self, now_s: float) -> tuple[list[float], list[float], float]:
        """Factors of the rates and of the times by operator, and of all other measurements."""
        rng, operators = stream(self._seed, NOISE, round(now_s * 1000)), len(self._names)
        drawn = rng.normal(0, self._settings.measurement_noise, 2 * operators + 1)
        noise: list[float] = np.exp(drawn).tolist()
        return noise[0:-1:2], noise[1::2], noise[-1]

    def _with_shed(
        self, readings: tuple[OperatorReading, ...], share: float, shed_per_s: float
    ) -> tuple[OperatorReading, ...]:
        """Readings with what was shed before it reached the entries: offered, but not processed.

        share: shed items as a share of all that came; shed_per_s: the same as a rate.
        """
        found = list(readings)
        for o, (from_sources, ratio) in enumerate(self._shares):
            came = readings[o].arrival_rate_per_s
            if from_sources and came is not None:
                lost = ratio * shed_per_s
                if share < 1:
                    lost = came * from_sources * share / (1 - share)
                found[o] = readings[o].changed(
                    arrival_rate_per_s=came + lost,
                    dropped_per_s=(readings[o].dropped_per_s or 0.0) + lost,
                    shed_per_s=lost,
                )
        return tuple(found)

    def _with_latest(
        self, readings: tuple[OperatorReading, ...], noise: Iterable[float]
    ) -> tuple[tuple[OperatorReading, ...], tuple[float, list[float]]]:
        """Readings with the rates of the last row, and what one instance processed in it."""
        assert self._row is not None
        (row, shed), every_s = self._row, self._settings.monitoring_s
        found, each = [], []
        each_operator = zip(readings, self._shares, noise, strict=False)  # noise may be endless
        for o, (reading, (from_sources, _), more) in enumerate(each_operator):
            column = at.ROW_OPERATORS + at.ROW_PER_OPERATOR * o
            came, done, instances = (
                float(row[column + item])
                for item in (at.OP_ARRIVED, at.OP_PROCESSED, at.OP_INSTANCES)
            )
            if shed < 1:
                came += came * from_sources * shed / (1 - shed)
            found.append(
                reading.changed(
                    latest_arrival_per_s=came / every_s * more,
                    latest_processed_per_s=done / every_s * more,
                )
            )
            each.append(done / every_s / max(1.0, instances))
        return tuple(found), (float(row[at.ROW_TIME]) - every_s, each)

    def _batch(self, read: Once[tuple[OperatorReading, ...]]) -> BatchReading | None:
        """The batches that micro-batch processing would have: the busiest operator's work."""
        trigger = self._settings.trigger_interval_s or 0.0
        counts = self._hosts.requested.counts
        work = [
            r.arrival_rate_per_s * r.service_time_s / max(1, counts[r.operator])
            for r in read()
            if r.arrival_rate_per_s is not None and r.service_time_s is not None
        ]
        if work:
            self._batches.append(trigger * max(work))
        return BatchReading(trigger, tuple(self._batches)) if self._batches else None

    # --- assembling ---------------------------------------------------------------------------

    def _list_hosts(self) -> None:
        """Note the hosts and instances, and what snapshots have in common until they change."""
        hosts = self._hosts
        self._roster, self._listed = Roster(hosts, self._demands), hosts.changes
        self._common: dict[str, Any] = {
            "topology": hosts.topology,
            "offer": hosts.offer,
            "interval_s": self._settings.decision_s,
            # Already known, so a snapshot need not compute it. All instances here are requested.
            "requested": hosts.requested,
            "unrequested": (),
            "capacities": self._roster.capacities,
            "batched": (),
            "delayed": (),
            # Until something is measured.
            "operators_later": self._nothing,
            "latency": NO_LATENCY,
            "batches": None,
        }

    def _assemble(self, now_s: float, seen: Readings | None) -> Snapshot:
        hosts = self._hosts
        hosts.forget_gone(now_s)
        if hosts.changes != self._listed:
            self._list_hosts()
        roster = self._roster
        known = self._common.copy()
        known["time_s"] = now_s
        known["hosts_later"] = Once(roster.hosts, now_s, seen)
        known["instances_later"] = Once(roster.instances, now_s, seen)
        known["loads_later"] = Once(roster.loads, now_s, seen)
        known["utilisations_later"] = Once(roster.utilisations, now_s, seen)
        known["leased_so_far"], known["ended"] = hosts.leased_so_far, hosts.ended
        if roster.up_s <= now_s:
            known["running"] = hosts.requested
        else:
            known["hosts_running"] = roster.hosts_running(now_s)
        if seen:
            known["operators_later"], known["queues_later"] = seen.operators, seen.queues
            known["latency"], known["batches"] = seen.latency, seen.batches
            if seen.rates is not None:
                known["rates_later"] = seen.rates
        return _made(Snapshot, known)


def _made(kind: type[T], values: dict[str, Any]) -> T:
    """What ``kind.unchecked(**values)`` makes, with this dictionary itself in place of a copy."""
    made = object.__new__(kind)
    object.__setattr__(made, "__dict__", values)
    return made


def _source_shares(topology: Topology) -> list[tuple[float, float]]:
    """By operator: the part of its items that comes from sources, and items a source item makes.

    Both at the declared rates of the sources, which count alike where none is declared.
    """
    rates = {source.name: source.rate_per_s or 0.0 for source in topology.sources}
    if not sum(rates.values()):
        rates = dict.fromkeys(rates, 1.0)
    if not rates:
        return [(0.0, 0.0)] * len(topology.operators)
    total, arrivals = sum(rates.values()), topology.arrival_rates(rates)
    shares = []
    for name in topology.by_name:
        direct = sum(
            edge.ratio * rates[edge.origin]
            for edge in topology.edges
            if edge.target == name and edge.origin in rates
        )
        shares.append((direct / arrivals[name] if arrivals[name] else 0.0, direct / total))
    return shares


def _rates(
    span: float, facts: Floats, names: Sequence[str], noise: Iterable[float] | None
) -> Rates:
    """The rates that the readings have, without these. facts: by operator, see `difference`."""
    # Plain numbers: NumPy's are slow one by one.
    came, done = facts.T[: at.PROCESSED + 1].tolist()
    arrived: dict[str, float | None] = {}
    processed: dict[str, float | None] = {}
    each = zip(names, came, done, noise or repeat(1.0), strict=False)  # noise may be endless
    for name, arrivals, departures, more in each:
        arrived[name], processed[name] = arrivals / span * more, departures / span * more
    return Rates(arrived, processed)


def _queues(facts: Floats, names: Sequence[str]) -> dict[str, float]:
    """Waiting items by operator."""
    return dict(zip(names, facts[:, WAITING].tolist(), strict=True))


def _readings(
    span: float,
    facts: Floats,
    names: Sequence[str],
    rate_noise: Iterable[float],
    time_noise: Iterable[float],
) -> tuple[OperatorReading, ...]:
    """The readings of all operators."""
    return tuple(map(_reading, repeat(span), facts.tolist(), names, rate_noise, time_noise))


def _reading(
    span: float,
    delta: list[float],
    name: str,
    rate_noise: float,
    time_noise: float,
) -> OperatorReading:
    """The reading of one operator. delta: its facts, see `difference`."""
    waiting = delta[WAITING]
    if span <= 0:
        return OperatorReading(name, queue_length=waiting)
    # All values are finite and not negative, so none is checked.
    known = int(delta[SAMPLED])
    recent = tuple(delta[DURATIONS : DURATIONS + known]) if known else None
    service = service_scv = arrival_scv = None
    samples, gaps = delta[at.SAMPLES], delta[at.GAPS]
    if samples > 0:
        mean = delta[at.SERVICE_S] / samples
        service = mean * time_noise
        if mean > 0 and samples > 1:
            service_scv = delta[at.SERVICE_SQUARE] / samples / mean**2 - 1
            service_scv = service_scv if service_scv > 0.0 else 0.0
    if gaps > 1 and delta[at.GAP_S] > 0:
        mean = delta[at.GAP_S] / gaps
        arrival_scv = delta[at.GAP_SQUARE] / gaps / mean**2 - 1
        arrival_scv = arrival_scv if arrival_scv > 0.0 else 0.0
    reading = _NO_READING.copy()
    reading["operator"] = name
    reading["arrival_rate_per_s"] = delta[at.ARRIVED] / span * rate_noise
    reading["processed_per_s"] = delta[at.PROCESSED] / span * rate_noise
    reading["dropped_per_s"] = delta[at.DROPPED] / span
    reading["service_time_s"] = service
    reading["arrival_scv"], reading["service_scv"] = arrival_scv, service_scv
    reading["queue_length"], reading["recent_durations_s"] = waiting, recent
    reading["pending_tasks"], reading["running_tasks"] = int(waiting), int(delta[WORKING])
    return _made(OperatorReading, reading)
