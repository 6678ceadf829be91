"""The state of a network of queues as flat arrays, which is what compiled code reads and writes.

Everything is here and nowhere else, so that the two kernels (staged for graphs without loops,
event by event for the others) and the Python around them see one truth. Words used below:

- a **lane** is a row of items in order of time: first one lane for each operator's queue, then
  one for each edge into an operator that several edges feed;
- a **slot** is the place of one instance: the item that it works on and when it will be free;
- a **root** is an item from a source; what came of it is counted until nothing is left;
- an **origin** is an operator or, numbered after them, a source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidegate.simulation.lots import streams
from tidegate.simulation.settings import CloudSettings, ServiceTime
from tidegate.simulation.sketch import BUCKETS
from tidegate.topology import Edge, Topology

__all__ = ["Network", "build_network", "grown", "with_more_hosts", "with_more_slots"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Shorts = NDArray[np.int32]
Words = NDArray[np.uint64]

# What a slot can be.
NO_SERVER, SERVING, LEAVING = 0, 1, 2

# Columns of `tally`, one row an operator.
(
    ARRIVED,
    PROCESSED,
    DROPPED,
    LATE_1,
    LATE_2,
    LATE_5,
    DURATION_S,
    GAPS,
    GAP_S,
    GAP_SQUARE,
    SAMPLES,
    SERVICE_S,
    SERVICE_SQUARE,
    ADAPTED,
    ADAPT_S,
    LATE_SINCE_S,
    LAST_LATE_S,
    LAST_ARRIVAL_S,
    BUSY_S,
    EPISODE_S,
) = range(20)

# Columns of `total`, a single row for the whole network.
IN, OUT, SHED, SPOILT, SOJOURN_S, LATE, PROCESSED_ALL, LATE_ALL, SOJOURN_MAX_S = range(9)

# Columns of `clock`.
NOW, NEXT_MONITOR, LAST_MONITOR, NEXT_CONTENTION, LAST_CONTENTION = range(5)

# Columns of a row of the time series; then five for each operator.
(
    ROW_TIME,
    ROW_IN,
    ROW_OUT,
    ROW_DROPPED,
    ROW_SOJOURN_S,
    ROW_P95_S,
    ROW_LATE,
    ROW_PROCESSED,
    ROW_LATE_ITEMS,
    ROW_HOSTS,
    ROW_RUNNING,
    ROW_LOAD_MIN,
    ROW_LOAD_MEAN,
    ROW_LOAD_MAX,
) = range(14)
ROW_OPERATORS = 14
ROW_PER_OPERATOR = 5
OP_QUEUE, OP_ARRIVED, OP_PROCESSED, OP_LATE, OP_INSTANCES = range(5)

RECENT = 16
"""Sampled durations that are kept of each operator."""
CHUNK = 4096
"""Source items that are taken through the network together; small enough for the cache."""

EXPONENTIAL, DETERMINISTIC, LOGNORMAL, EMPIRICAL = range(4)
_KINDS = {"exponential": 0, "deterministic": 1, "lognormal": 2, "empirical": 3}

SERVICE_LOTS, ROUTING_LOTS, SHEDDING_LOTS = 1, 2, 3


class Network(NamedTuple):
    """All arrays of a network; see the head of this file for the words."""

    # The graph.
    order: Ints  # operators, upstream first; empty when there is a loop
    edge_start: Ints  # edges of an origin are edge_start[origin] : edge_start[origin + 1]
    edge_target: Ints
    edge_lane: Ints
    edge_whole: Ints  # copies that are always sent …
    edge_part: Floats  # … and the chance of one more
    in_start: Ints  # lanes that are merged into an operator's queue
    in_lane: Ints
    # The operators.
    kind: Ints
    mean_s: Floats
    log_mean: Floats
    log_sigma: Floats
    samples: Floats
    sample_start: Ints
    slo_s: Floats
    cores: Floats
    mbps: Floats
    queue_limit: Ints  # 0: none
    # Items that wait or are on their way.
    lane_time: Floats
    lane_root: Shorts
    lane_head: Ints
    lane_tail: Ints
    lane_seen: Ints
    admitted: Ints
    accepted: Ints
    begun: Ints
    begun_s: Floats
    # Instances.
    slot_free: Floats
    slot_arrived: Floats
    slot_started: Floats
    slot_busy: Floats
    slot_mark: Floats
    slot_mark_monitor: Floats
    slot_done: Ints
    slot_root: Shorts
    slot_host: Shorts
    slot_alive: Shorts
    line_time: Floats
    line_slot: Shorts
    line_head: Ints
    line_count: Ints
    # Roots.
    root_birth: Floats
    root_last: Floats
    root_live: Shorts
    root_spoilt: Shorts
    root_free: Shorts
    root_count: Ints
    # Hosts.
    host_slow: Floats
    host_cores: Floats
    host_mbps: Floats
    host_from: Floats
    host_until: Floats
    # Lots and books.
    lots: Words
    tally: Floats
    total: Floats
    clock: Floats
    recent: Floats
    sketch: Ints  # one row an operator, then the whole network, then its current interval
    load_books: Floats  # minimum, sum, maximum, count of host loads
    knobs: Floats  # see KNOB_*


KNOB_SAMPLE_EVERY, KNOB_QUANTISE, KNOB_MONITOR_S, KNOB_CONTENTION_S, KNOB_E2E_SLO_S = range(5)


def build_network(topology: Topology, settings: CloudSettings, seed: int) -> Network:
    """An empty network for a topology.

    settings: service times, queue limits, how it is measured; seed: of all lots drawn in it.
    """
    operators = topology.operators
    n, sources = len(operators), len(topology.sources)
    graph = _graph(topology)
    services = [settings.service_of(operator) for operator in operators]
    limits = [settings.queue_limit_of(operator.name) or 0 for operator in operators]
    lanes = n + int(graph["in_start"][-1])
    room, slots, roots, hosts = 2 * CHUNK, 8, 2 * CHUNK, 8
    tally = np.zeros((n, 20))
    tally[:, LATE_SINCE_S] = tally[:, LAST_LATE_S] = -1.0
    lots = np.concatenate(
        [
            streams(seed, SERVICE_LOTS, n),
            streams(seed, ROUTING_LOTS, n + sources),
            streams(seed, SHEDDING_LOTS, 1),
        ]
    )
    clock = np.zeros(5)
    clock[NEXT_MONITOR] = settings.monitoring_s
    clock[NEXT_CONTENTION] = np.inf
    slo = [np.inf if o.slo_s is None else o.slo_s for o in operators]
    e2e = settings.end_to_end_slo_s
    return Network(
        **graph,
        **_service_arrays(services),
        slo_s=np.array(slo),
        cores=np.array([o.demand.cpu_cores for o in operators], np.float64),
        mbps=np.array([o.demand.network_mbps for o in operators], np.float64),
        queue_limit=np.array(limits, np.int64),
        lane_time=np.empty((lanes, room)),
        lane_root=np.empty((lanes, room), np.int32),
        lane_head=np.zeros(lanes, np.int64),
        lane_tail=np.zeros(lanes, np.int64),
        lane_seen=np.zeros(n, np.int64),
        admitted=np.zeros(n, np.int64),
        accepted=np.zeros(n, np.int64),
        begun=np.zeros(n, np.int64),
        begun_s=np.zeros((n, max([*limits, 1]))),
        **_slot_arrays(n, slots),
        root_birth=np.empty(roots),
        root_last=np.empty(roots),
        root_live=np.zeros(roots, np.int32),
        root_spoilt=np.zeros(roots, np.int32),
        root_free=np.arange(roots, dtype=np.int32)[::-1].copy(),
        root_count=np.array([roots], np.int64),
        **_host_arrays(hosts),
        lots=lots,
        tally=tally,
        total=np.zeros(9),
        clock=clock,
        recent=np.zeros((n, RECENT)),
        sketch=np.zeros((n + 2, BUCKETS), np.int64),
        load_books=np.array([np.inf, 0.0, 0.0, 0.0]),
        knobs=np.array(
            [
                settings.sample_every,
                float(settings.quantise_timestamps),
                settings.monitoring_s,
                settings.contention_s,
                np.inf if e2e is None else e2e,
            ],
            np.float64,
        ),
    )


def _graph(topology: Topology) -> dict[str, Any]:
    """Edges by origin, with the lane that each writes into."""
    names = [*topology.by_name, *(source.name for source in topology.sources)]
    index = {name: i for i, name in enumerate(names)}
    n = len(topology.operators)
    by_origin: list[list[Edge]] = [[] for _ in names]
    inputs = [0] * n
    for edge in topology.edges:
        if edge.ratio > 0:
            by_origin[index[edge.origin]].append(edge)
            inputs[index[edge.target]] += 1
    order = topology._downstream_order
    in_lanes: list[list[int]] = [[] for _ in range(n)]
    targets, lanes, wholes, parts, starts = [], [], [], [], [0]
    spare = n
    for edges in by_origin:
        for edge in edges:
            target = index[edge.target]
            targets.append(target)
            wholes.append(int(edge.ratio))
            parts.append(edge.ratio - int(edge.ratio))
            # With a single way in, items go straight to the queue. In a loop, too: there each
            # item is sent at its own time, so that the queue stays in order by itself.
            if inputs[target] == 1 or order is None:
                lanes.append(target)
            else:
                lanes.append(spare)
                in_lanes[target].append(spare)
                spare += 1
        starts.append(len(targets))
    in_start = np.cumsum([0, *(len(lane) for lane in in_lanes)])
    return {
        "order": _ints([] if order is None else [index[name] for name in order]),
        "edge_start": _ints(starts),
        "edge_target": _ints(targets),
        "edge_lane": _ints(lanes),
        "edge_whole": _ints(wholes),
        "edge_part": np.array(parts, np.float64),
        "in_start": _ints(in_start),
        "in_lane": _ints([lane for lanes in in_lanes for lane in lanes]),
    }


def _service_arrays(services: Sequence[ServiceTime]) -> dict[str, Any]:
    sigma_square = np.log1p([service.scv for service in services])
    means = np.array([service.mean_s for service in services])
    samples = [service.samples_s for service in services]
    return {
        "kind": _ints([_KINDS[service.kind] for service in services]),
        "mean_s": means,
        "log_mean": np.log(means) - sigma_square / 2,
        "log_sigma": np.sqrt(sigma_square),
        "samples": np.array([value for values in samples for value in values], np.float64),
        "sample_start": _ints(np.cumsum([0, *(len(values) for values in samples)])),
    }


def _ints(values: Sequence[int] | Ints) -> Ints:
    return np.array(values, np.int64)


_SLOT_FLOATS = ("free", "arrived", "started", "busy", "mark", "mark_monitor")


def _slot_arrays(operators: int, slots: int) -> dict[str, Any]:
    """Empty slots; `slots` is a power of two because the lines are rings."""
    shape = (operators, slots)
    return {
        **{f"slot_{name}": np.zeros(shape) for name in _SLOT_FLOATS},
        "slot_done": np.zeros(shape, np.int64),
        "slot_root": np.full(shape, -1, np.int32),
        "slot_host": np.zeros(shape, np.int32),
        "slot_alive": np.zeros(shape, np.int32),
        "line_time": np.zeros(shape),
        "line_slot": np.zeros(shape, np.int32),
        "line_head": np.zeros(operators, np.int64),
        "line_count": np.zeros(operators, np.int64),
    }


def _host_arrays(hosts: int) -> dict[str, Any]:
    return {
        "host_slow": np.ones(hosts),
        "host_cores": np.ones(hosts),
        "host_mbps": np.zeros(hosts),
        "host_from": np.full(hosts, np.inf),
        "host_until": np.full(hosts, -np.inf),
    }


def _widened(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The old contents at the beginning of the new, larger arrays."""
    for name, values in new.items():
        before = old[name]
        values[tuple(slice(0, size) for size in before.shape)] = before
    return new


def with_more_slots(net: Network) -> Network:
    """The same network with twice the slots."""
    operators, slots = net.slot_free.shape
    return net._replace(**_widened(net._asdict(), _slot_arrays(operators, 2 * slots)))


def with_more_hosts(net: Network) -> Network:
    """The same network with room for twice the hosts."""
    return net._replace(**_widened(net._asdict(), _host_arrays(2 * len(net.host_slow))))


def grown(net: Network, room: int, roots: int) -> Network:
    """The same network with lanes of at least `room` items and at least `roots` roots in all."""
    changes: dict[str, Any] = {}
    lanes, old_room = net.lane_time.shape
    if room > old_room:
        wide = max(room, 2 * old_room)
        new = {
            "lane_time": np.empty((lanes, wide)),
            "lane_root": np.empty((lanes, wide), np.int32),
        }
        changes |= _widened(net._asdict(), new)
    old = len(net.root_birth)
    if roots > old:
        more = max(roots, 2 * old)
        free = int(net.root_count[0])
        new = {
            "root_birth": np.empty(more),
            "root_last": np.empty(more),
            "root_live": np.zeros(more, np.int32),
            "root_spoilt": np.zeros(more, np.int32),
            "root_free": np.empty(more, np.int32),
        }
        changes |= _widened(net._asdict(), new)
        changes["root_free"][free : free + more - old] = np.arange(old, more)
        net.root_count[0] = free + more - old
    return net._replace(**changes)
