"""The state of a network of queues as flat arrays, which is what compiled code reads and writes.

The two kernels (staged for graphs without loops, event by event for the others) and the Python
code around them share this state. Terms:

- a **buffer** is a row of items in order of time: first one buffer for each operator's queue, then
  one for each edge into an operator that several edges feed;
- a **slot** is the place of one instance: the item that it works on and when it will be free;
- a **root** is an item from a source; the items derived from it are counted until none is left;
- an **origin** is an operator or, numbered after them, a source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegate.model.topology import Edge, Topology
from tidegate.simulation.kernels.random import streams
from tidegate.simulation.kernels.sketch import BUCKETS
from tidegate.simulation.settings import CloudSettings, ServiceTime
from tidegate.theory.arrays import Structure

__all__ = ["Network", "build_network", "grown", "with_more_hosts", "with_more_slots"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

# How many, as an argument: Numba compiles a function again for each number that stands in a call.
NONE, ONE, ALL = range(3)

# States of a slot.
NO_SERVER, SERVING, LEAVING = 0, 1, 2

EXPONENTIAL, DETERMINISTIC, LOGNORMAL, EMPIRICAL = range(4)
_KINDS = {"exponential": 0, "deterministic": 1, "lognormal": 2, "empirical": 3}

# Columns of `ops_f` and `ops_i`, one row an operator.
MEAN_S, LOG_MEAN, LOG_SIGMA, SLO_S, CORES, MBPS = range(6)
(
    KIND,
    LIMIT,  # items that may wait, 0: any number
    SAMPLE_FROM,
    SAMPLE_TO,
    IN_FROM,  # buffers that are merged into the queue: in_buffer[IN_FROM : IN_TO]
    IN_TO,
    SEEN,  # tail of the queue when arrivals were last counted
    ADMITTED,  # queue places below this have been decided on (finite queues)
    ACCEPTED,
    BEGUN,
    LINE_FIRST,
    LINE_COUNT,
    LOST,  # items dropped in this window
    TAKEN,  # items begun so far
) = range(14)

# Columns of `edges`, `ends` (of buffers) and `root_s`.
TARGET, BUFFER, WHOLE = range(3)
HEAD, TAIL = range(2)
BIRTH, LAST = range(2)
LIVE, SPOILED = range(2)

# Middle index of `slot_f` and `slot_i`; PACE is how many times slower than normal it works.
FREE_S, ARRIVED_S, STARTED_S, PACE, BUSY_S, MARK_S, MONITOR_MARK_S = range(7)
ROOT, HOST, ALIVE, DONE, TURN = range(5)

# Leading index of `out_f`.
OUT_LEFT_S, OUT_ARRIVED_S, OUT_STARTED_S = range(3)

# Columns of `hosts`.
SLOW, HOST_CORES, HOST_MBPS, FROM_S, UNTIL_S = range(5)

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
    EPISODE_S,
    LATE_SINCE_S,
    LAST_LATE_S,
    LAST_ARRIVAL_S,
) = range(19)

# Entries of `whole`: totals of the network, its clock, and how it is measured.
(
    IN,
    OUT,
    SHED,
    SPOILT,
    SOJOURN_S,
    SOJOURN_MAX_S,
    LATE,
    LOAD_MIN,
    LOAD_SUM,
    LOAD_MAX,
    LOAD_COUNT,
    NOW,
    NEXT_MONITOR,
    LAST_MONITOR,
    NEXT_CONTENTION,
    LAST_CONTENTION,
    SAMPLE_EVERY,
    QUANTISE,
    MONITOR_S,
    CONTENTION_S,
    E2E_SLO_S,
) = range(21)

# Columns of a row of the time series; then five for each operator.
(
    ROW_TIME,
    ROW_IN,
    ROW_OUT,
    ROW_DROPPED,
    ROW_SOJOURN_S,
    ROW_LATE,
    ROW_PROCESSED,
    ROW_LATE_ITEMS,
    ROW_P95_S,
    ROW_HOSTS,
    ROW_RUNNING,
    ROW_LOAD_MIN,
    ROW_LOAD_MEAN,
    ROW_LOAD_MAX,
) = range(14)
ROW_OPERATORS = 14
ROW_PER_OPERATOR = 5
OP_ARRIVED, OP_PROCESSED, OP_LATE, OP_QUEUE, OP_INSTANCES = range(5)

RECENT = 16
"""Sampled durations to keep for each operator."""
CHUNK = 4096
"""Source items that pass through the network together; few enough for the CPU cache."""
AHEAD = 256
"""Service times that are drawn ahead at most."""

SERVICE_STREAMS, ROUTING_STREAMS, SHEDDING_STREAMS = 1, 2, 3


@dataclass(frozen=True, eq=False)
class Network(Structure):
    """All arrays of a network; the names of their columns stand above."""

    order: Ints  # operators, upstream first; empty when there is a loop
    edge_start: Ints  # edges of an origin are edge_start[origin] : edge_start[origin + 1]
    edges: Ints
    edge_part: Floats  # chance of one copy more than WHOLE
    in_buffer: Ints
    ops_f: Floats
    ops_i: Ints
    samples: Floats
    buffer_time: Floats
    buffer_root: Ints
    ends: Ints
    out_f: Floats  # items that leave an operator in this window: see OUT_*
    out_root: Ints
    lost_root: Ints
    takes: Floats  # service times drawn ahead
    begun_s: Floats  # when the last items began (finite queues), as a ring
    slot_f: Floats
    slot_i: Ints
    line_time: Floats  # servers by the time when they are free, as a ring
    line_slot: Ints
    root_s: Floats
    root_n: Ints
    root_free: Ints  # numbers that are free, the last entry says how many
    hosts: Floats
    host_load: Floats  # what a kernel adds up for each host, by resource
    needs: Ints  # items that may leave each origin, and come to each operator, in this window
    rng: Words  # of the operators' service, then of the edges, then of the sources' shedding
    tally: Floats
    whole: Floats
    recent: Floats
    sketch: Ints  # one row an operator, then the whole network, then its current interval
    before: Floats  # cumulative counts at the start of the current interval, like a row of a series


def build_network(topology: Topology, settings: CloudSettings, seed: int) -> Network:
    """An empty network for a topology.

    settings: service times, queue limits, how it is measured; seed: random seed.
    """
    operators = topology.operators
    n, sources = len(operators), len(topology.sources)
    ops_i = np.zeros((n, 14), np.int64)
    ops_f = np.zeros((n, 6))
    graph = _graph(topology, ops_i)
    samples = _services([settings.service_of(o) for o in operators], ops_f, ops_i)
    ops_i[:, LIMIT] = [settings.queue_limit_of(o.name) or 0 for o in operators]
    ops_f[:, SLO_S] = [np.inf if o.slo_s is None else o.slo_s for o in operators]
    ops_f[:, CORES] = [o.demand.cpu_cores for o in operators]
    ops_f[:, MBPS] = [o.demand.network_mbps for o in operators]
    buffers = n + int(ops_i[-1, IN_TO])
    tally = np.zeros((n, 19))
    tally[:, LATE_SINCE_S] = -1.0
    whole = np.zeros(21)
    whole[LOAD_MIN] = whole[NEXT_CONTENTION] = np.inf
    whole[NEXT_MONITOR] = whole[MONITOR_S] = settings.monitoring_s
    whole[SAMPLE_EVERY], whole[QUANTISE] = settings.sample_every, settings.quantise_timestamps
    whole[CONTENTION_S] = settings.contention_s
    whole[E2E_SLO_S] = settings.end_to_end_slo_s or np.inf
    rng = (
        streams(seed, SERVICE_STREAMS, n),
        streams(seed, ROUTING_STREAMS, len(graph["edges"])),
        streams(seed, SHEDDING_STREAMS, sources),
    )
    return Network(
        **graph,
        ops_f=ops_f,
        ops_i=ops_i,
        samples=samples,
        **_buffer_arrays(buffers, 2 * CHUNK),
        ends=np.zeros((buffers, 2), np.int64),
        takes=np.empty(AHEAD),
        begun_s=np.zeros((n, max(1, int(ops_i[:, LIMIT].max())))),
        **_slot_arrays(n, 8),
        **_root_arrays(2 * CHUNK),
        **_host_arrays(8),
        needs=np.zeros((2, n + sources), np.int64),
        rng=np.concatenate(rng),
        tally=tally,
        whole=whole,
        recent=np.zeros((n, RECENT)),
        sketch=np.zeros((n + 2, BUCKETS), np.int64),
        before=np.zeros(ROW_OPERATORS + ROW_PER_OPERATOR * n),
    )


def _graph(topology: Topology, ops_i: Ints) -> dict[str, Any]:
    """Edges by origin, with the buffer that each writes into."""
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
    in_buffers: list[list[int]] = [[] for _ in range(n)]
    edges: list[tuple[int, int, int]] = []
    starts = [0]
    spare = n
    for leaving in by_origin:
        for edge in leaving:
            target = buffer = index[edge.target]
            # With a single way in, items go straight to the queue; in a loop, too, for there
            # each item is sent at its own time and the queue stays in order by itself.
            if inputs[target] > 1 and order is not None:
                buffer = spare
                in_buffers[target].append(buffer)
                spare += 1
            edges.append((target, buffer, int(edge.ratio)))
        starts.append(len(edges))
    ops_i[:, IN_TO] = np.cumsum([len(buffers) for buffers in in_buffers])
    ops_i[1:, IN_FROM] = ops_i[:-1, IN_TO]
    return {
        "order": np.array([] if order is None else [index[name] for name in order], np.int64),
        "edge_start": np.array(starts, np.int64),
        "edges": np.array(edges, np.int64).reshape(-1, 3),
        "edge_part": np.array([e.ratio % 1 for leaving in by_origin for e in leaving], np.float64),
        "in_buffer": np.array([buffer for buffers in in_buffers for buffer in buffers], np.int64),
    }


def _services(services: Sequence[ServiceTime], ops_f: Floats, ops_i: Ints) -> Floats:
    """Fill in the service times; returns the samples of the empirical ones."""
    sigma_square = np.log1p([service.scv for service in services])
    ops_f[:, MEAN_S] = [service.mean_s for service in services]
    ops_f[:, LOG_MEAN] = np.log(ops_f[:, MEAN_S]) - sigma_square / 2
    ops_f[:, LOG_SIGMA] = np.sqrt(sigma_square)
    ops_i[:, KIND] = [_KINDS[service.kind] for service in services]
    ops_i[:, SAMPLE_TO] = np.cumsum([len(service.samples_s) for service in services])
    ops_i[1:, SAMPLE_FROM] = ops_i[:-1, SAMPLE_TO]
    return np.array([value for service in services for value in service.samples_s], np.float64)


def _buffer_arrays(buffers: int, room: int) -> dict[str, Any]:
    # Not filled: the pages of a long buffer cost nothing until a backlog needs them.
    return {
        "buffer_time": np.empty((buffers, room)),
        "buffer_root": np.empty((buffers, room), np.int64),
        "out_f": np.empty((3, room)),
        "out_root": np.empty(room, np.int64),
        "lost_root": np.empty(room, np.int64),
    }


def _slot_arrays(operators: int, slots: int) -> dict[str, Any]:
    """Empty slots; `slots` is a power of two because the lines are rings."""
    return {
        "slot_f": np.zeros((operators, 7, slots)),
        "slot_i": np.zeros((operators, 5, slots), np.int64),
        "line_time": np.zeros((operators, slots)),
        "line_slot": np.zeros((operators, slots), np.int64),
    }


def _root_arrays(roots: int) -> dict[str, Any]:
    free = np.arange(roots, -1, -1, dtype=np.int64) - 1
    free[-1] = roots
    return {
        "root_s": np.zeros((roots, 2)),
        "root_n": np.zeros((roots, 2), np.int64),
        "root_free": free,
    }


def _host_arrays(hosts: int) -> dict[str, Any]:
    array = np.zeros((hosts, 5))
    array[:, SLOW] = array[:, HOST_CORES] = 1.0
    array[:, FROM_S], array[:, UNTIL_S] = np.inf, -np.inf
    return {"hosts": array, "host_load": np.zeros((2, hosts))}


def _widened(net: Network, new: dict[str, Any]) -> Network:
    """The old contents at the beginning of the new, larger arrays."""
    for name, values in new.items():
        before = getattr(net, name)
        values[tuple(slice(0, size) for size in before.shape)] = before
    return replace(net, **new)


def with_more_slots(net: Network) -> Network:
    """The same network with twice the slots."""
    operators, _, slots = net.slot_f.shape
    return _widened(net, _slot_arrays(operators, 2 * slots))


def with_more_hosts(net: Network) -> Network:
    """The same network with room for twice the hosts."""
    return _widened(net, _host_arrays(2 * len(net.hosts)))


def grown(net: Network, room: int, roots: int) -> Network:
    """The same network with buffers of at least `room` items and a total of `roots` roots."""
    buffers, old_room = net.buffer_time.shape
    if room > old_room:
        # Between two windows there is nothing but what waits, which may be little of the buffers.
        new = _buffer_arrays(buffers, max(room, 2 * old_room))
        for buffer, (head, tail) in enumerate(net.ends.tolist()):
            for name in ("buffer_time", "buffer_root"):
                new[name][buffer, head:tail] = getattr(net, name)[buffer, head:tail]
        net = replace(net, **new)
    old = len(net.root_s)
    if roots > old:
        more = max(roots, 2 * old)
        free = net.root_free[: net.root_free[-1]]
        new = _root_arrays(more)
        del new["root_free"]
        count = len(free) + more - old
        unused = np.zeros(more + 1 - count, np.int64)
        unused[-1] = count
        roots_free = np.concatenate([np.arange(old, more), free, unused])
        net = replace(_widened(net, new), root_free=roots_free)
    return net
