"""The network of queues behind the item-level world: servers start, stop, move and fail."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidegate.model.topology import Resources, Topology
from tidegate.simulation.kernels import state as at
from tidegate.simulation.kernels.events import run_events
from tidegate.simulation.kernels.staged import run_staged
from tidegate.simulation.kernels.state import build_network, grown, with_more_hosts, with_more_slots
from tidegate.simulation.settings import CloudSettings

__all__ = ["Coming", "ItemEngine"]

Floats = NDArray[np.float64]


class Coming(NamedTuple):
    """The arrivals of a chunk of time, as the kernels take them.

    times: arrival times of all sources in seconds, source after source, each in order.
    position: where the next arrival of each source is in `times`; a kernel moves it on.
    until: where the arrivals of each source end in `times`.
    """

    times: Floats
    position: NDArray[np.int64]
    until: NDArray[np.int64]

    @classmethod
    def of(cls, arrivals: Mapping[int, Floats], sources: int) -> Coming:
        """From the arrival times by the number of the source. sources: number of sources."""
        nothing = np.empty(0)
        parts = [arrivals.get(source, nothing) for source in range(sources)]
        ends = [0, *accumulate(map(len, parts))]
        times = np.ascontiguousarray(
            parts[0] if len(parts) == 1 else np.concatenate(parts or [nothing])
        )
        return cls(times, np.array(ends[:-1], np.int64), np.array(ends[1:], np.int64))

    def in_order(self, start_s: float, end_s: float) -> bool:
        """Whether the arrivals of each source are sorted and within [start_s, end_s)."""
        times = self.times
        if not len(times):
            return True
        rises = times[1:] >= times[:-1]
        firsts = self.position[1:]  # where a source begins, times may fall
        rises[firsts[(firsts > 0) & (firsts < len(times))] - 1] = True
        return bool(rises.all() and times.min() >= start_s and times.max() < end_s)


class ItemEngine:
    """Item by item, exact for any topology."""

    def __init__(self, topology: Topology, settings: CloudSettings, seed: int) -> None:
        self.net = build_network(topology, settings, seed)
        self._sources = len(topology.sources)
        self._settings = settings
        self._kernel: Any = run_staged if len(self.net.order) else run_events
        self._free_hosts = list(range(len(self.net.hosts)))[::-1]
        self._closing: list[tuple[float, int]] = []
        self._free_slots: list[list[int]] = [
            list(range(self.net.slot_f.shape[2]))[::-1] for _ in topology.operators
        ]
        # Cores and Mbit/s that a busy server of each operator needs, the total on each host and the
        # capacity of each host. Plain numbers, because NumPy's are slow one by one.
        self._demand: list[list[float]] = self.net.ops_f[:, [at.CORES, at.MBPS]].tolist()
        self._wanted: dict[int, tuple[float, float]] = {}
        self._limits: dict[int, tuple[float, float]] = {}
        self._overfull: set[int] = set()
        """Hosts whose instances can demand more than they have."""
        self._contended = False

    # --- hosts --------------------------------------------------------------------------------

    def open_host(self, capacity: Resources, ready_s: float) -> int:
        """Add a host that runs from `ready_s`; returns its number."""
        self._reuse_hosts()
        if not self._free_hosts:
            have = len(self.net.hosts)
            self.net = with_more_hosts(self.net)
            self._free_hosts = list(range(have, 2 * have))[::-1]
        host = self._free_hosts.pop()
        net = self.net
        net.hosts[host, at.SLOW] = 1.0
        net.hosts[host, at.HOST_CORES] = capacity.cpu_cores
        net.hosts[host, at.HOST_MBPS] = capacity.network_mbps
        net.hosts[host, at.FROM_S] = ready_s
        net.hosts[host, at.UNTIL_S] = np.inf
        self._wanted[host] = (0.0, 0.0)
        self._limits[host] = (capacity.cpu_cores, capacity.network_mbps)
        self._overfull.discard(host)
        return host

    def close_host(self, host: int, until_s: float) -> None:
        """Remove a host at `until_s`."""
        self.net.hosts[host, at.UNTIL_S] = until_s
        self._closing.append((until_s, host))

    def _reuse_hosts(self) -> None:
        """Free the numbers of hosts that are gone, once their last interval has been counted."""
        past = self.net.whole[at.NOW] - self._settings.monitoring_s
        self._free_hosts += [host for until, host in self._closing if until < past]
        self._closing = [entry for entry in self._closing if entry[0] >= past]

    def _want(self, operator: int, host: int, sign: int) -> None:
        cores, mbps = self._wanted[host]
        more_cores, more_mbps = self._demand[operator]
        self._wanted[host] = cores, mbps = cores + sign * more_cores, mbps + sign * more_mbps
        most_cores, most_mbps = self._limits[host]
        if cores > most_cores + 1e-9 or (most_mbps > 0 and mbps > most_mbps + 1e-9):
            self._overfull.add(host)
        elif self._overfull:
            self._overfull.discard(host)

    def _watch_contention(self) -> None:
        """Compute contention only if the instances of a host can demand more than it has."""
        contended = bool(self._overfull)
        if contended == self._contended:
            return
        net, self._contended = self.net, contended
        if contended:
            net.whole[at.NEXT_CONTENTION] = net.whole[at.NOW] + self._settings.contention_s
        else:
            net.whole[at.NEXT_CONTENTION] = np.inf
            net.hosts[:, at.SLOW] = 1.0
            net.slot_f[:, at.PACE] = 1.0

    # --- servers ------------------------------------------------------------------------------

    def start(self, operator: int, host: int, ready_s: float) -> int:
        """Add a server of an operator that works from `ready_s`; returns its slot."""
        slot = self._new_slot(operator)
        net = self.net
        net.slot_f[operator, at.FREE_S, slot] = ready_s
        net.slot_i[operator, at.ROOT, slot] = -1
        net.slot_i[operator, at.HOST, slot] = host
        net.slot_i[operator, at.ALIVE, slot] = at.SERVING
        net.slot_f[operator, at.PACE, slot] = net.hosts[host, at.SLOW]
        self._want(operator, host, 1)
        return slot

    def _new_slot(self, operator: int) -> int:
        free = self._free_slots[operator]
        if not free:
            # Servers that finished their last item have left their slots.
            alive = self.net.slot_i[operator, at.ALIVE]
            free += [int(slot) for slot in np.flatnonzero(alive == at.NO_SERVER)[::-1]]
        if len(free) == 0:
            have = self.net.slot_f.shape[2]
            self.net = with_more_slots(self.net)
            for slots in self._free_slots:
                slots[:0] = list(range(have, 2 * have))[::-1]
        slot = free.pop()
        net = self.net
        net.slot_f[operator, at.BUSY_S :, slot] = 0.0
        net.slot_i[operator, at.DONE, slot] = 0
        net.slot_i[operator, at.TURN, slot] = 0
        return slot

    def stop(self, operator: int, slot: int, now_s: float) -> float:
        """Remove a server; returns when the item that it works on is done."""
        net = self.net
        self._want(operator, int(net.slot_i[operator, at.HOST, slot]), -1)
        if net.slot_i[operator, at.ROOT, slot] < 0:
            net.slot_i[operator, at.ALIVE, slot] = at.NO_SERVER
            self._free_slots[operator].append(slot)
            return now_s
        net.slot_i[operator, at.ALIVE, slot] = at.LEAVING
        return float(net.slot_f[operator, at.FREE_S, slot])

    def move(self, operator: int, slot: int, host: int, pause_s: float, now_s: float) -> float:
        """Pause a server and continue on another host; returns when it works again.

        It finishes its current item first; the others wait in the queue.
        """
        net = self.net
        root = int(net.slot_i[operator, at.ROOT, slot])
        resumes = now_s + pause_s
        self._want(operator, int(net.slot_i[operator, at.HOST, slot]), -1)
        self._want(operator, host, 1)
        if root >= 0:
            resumes = float(net.slot_f[operator, at.FREE_S, slot]) + pause_s
            rest = self._new_slot(operator)
            net = self.net
            net.slot_f[operator, :, rest] = net.slot_f[operator, :, slot]
            net.slot_i[operator, :, rest] = net.slot_i[operator, :, slot]
            net.slot_i[operator, at.ALIVE, rest] = at.LEAVING
            # This server only has to finish its current item.
            ahead = max(0.0, float(net.slot_f[operator, at.FREE_S, slot]) - now_s)
            net.slot_f[operator, at.BUSY_S :, rest] -= net.slot_f[operator, at.BUSY_S, slot] - ahead
        net.slot_i[operator, at.ROOT, slot] = -1
        net.slot_f[operator, at.FREE_S, slot] = resumes
        net.slot_i[operator, at.HOST, slot] = host
        net.slot_f[operator, at.PACE, slot] = net.hosts[host, at.SLOW]
        net.slot_f[operator, at.BUSY_S :, slot] = 0.0
        return resumes

    def fail(self, operator: int, slot: int, now_s: float) -> None:
        """Lose a server; the item that it worked on returns to the head of the queue."""
        net = self.net
        self._want(operator, int(net.slot_i[operator, at.HOST, slot]), -1)
        self._lose(operator, slot, now_s)
        self._free_slots[operator].append(slot)

    def idle_from(self, host: int, now_s: float) -> float:
        """When the last item on a host is done, now if there is none."""
        net = self.net
        leaving = (net.slot_i[:, at.ALIVE] == at.LEAVING) & (net.slot_i[:, at.HOST] == host)
        return float(max(now_s, *net.slot_f[:, at.FREE_S][leaving].tolist(), now_s))

    def fail_host(self, host: int, now_s: float) -> None:
        """Lose a host, with the servers that were about to leave it."""
        net = self.net
        lost = (net.slot_i[:, at.ALIVE] == at.LEAVING) & (net.slot_i[:, at.HOST] == host)
        for operator, slot in zip(*np.nonzero(lost), strict=True):
            self._lose(int(operator), int(slot), now_s)
            self._free_slots[operator].append(int(slot))

    def _lose(self, operator: int, slot: int, now_s: float) -> None:
        net = self.net
        net.slot_i[operator, at.ALIVE, slot] = at.NO_SERVER
        root = int(net.slot_i[operator, at.ROOT, slot])
        if root < 0:
            return
        came = float(net.slot_f[operator, at.ARRIVED_S, slot])
        net.slot_i[operator, at.ROOT, slot] = -1
        self._put_back(operator, root, came)
        # An idle server can take the item only from now on.
        idle = (net.slot_i[operator, at.ALIVE] != at.NO_SERVER) & (
            net.slot_i[operator, at.ROOT] < 0
        )
        free = net.slot_f[operator, at.FREE_S]
        free[idle] = np.maximum(free[idle], now_s)

    def _put_back(self, operator: int, root: int, came: float) -> None:
        """Put an item back into the queue by its time of arrival."""
        if self.net.ends[operator, at.TAIL] + 1 > self.net.buffer_time.shape[1]:
            self.net = grown(self.net, 2 * self.net.buffer_time.shape[1], 0)
        net = self.net
        head, tail = int(net.ends[operator, at.HEAD]), int(net.ends[operator, at.TAIL])
        times, roots = net.buffer_time[operator], net.buffer_root[operator]
        place = head + int(np.searchsorted(times[head:tail], came))
        times[place + 1 : tail + 1] = times[place:tail].copy()
        roots[place + 1 : tail + 1] = roots[place:tail].copy()
        times[place], roots[place] = came, root
        net.ends[operator, at.TAIL] += 1
        net.ops_i[operator, at.SEEN] += 1
        net.ops_i[operator, at.ADMITTED] += 1
        net.ops_i[operator, at.BEGUN] = max(0, net.ops_i[operator, at.BEGUN] - 1)

    # --- time ---------------------------------------------------------------------------------

    def run(self, coming: Coming, end_s: float, shed_fraction: float) -> Floats:
        """Simulate until `end_s`; returns the rows of the time series.

        coming: arrivals that have not been simulated; those from `end_s` on stay in it.
        """
        self._watch_contention()
        rows = self._empty_rows(end_s)
        filled = 0
        while True:
            more, room, roots = self._kernel(self.net, *coming, end_s, shed_fraction, rows[filled:])
            filled += more
            if room == roots == 0:
                return rows[:filled]
            self.net = grown(self.net, room, roots)

    def _empty_rows(self, end_s: float) -> Floats:
        span = end_s - float(self.net.whole[at.NOW])
        return np.empty((int(span / self._settings.monitoring_s) + 2, len(self.net.before)))
