"""The simulated cloud: the world that policies are tried in before they are trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import BackendError, InputError
from tidegate.loop.backend import Outcome
from tidegate.model import Deployment, HostOffer, Plan, Snapshot
from tidegate.model.topology import Topology
from tidegate.packing import Packing
from tidegate.simulation.hosts import Fleet
from tidegate.simulation.kernels.random import stream
from tidegate.simulation.kernels.series import BoundedSeries
from tidegate.simulation.kernels.sketch import LatencySketch
from tidegate.simulation.kernels.state import DURATION_S, PROCESSED, SOJOURN_S
from tidegate.simulation.meter import Meter
from tidegate.simulation.network import Engine, ItemEngine
from tidegate.simulation.report import RunReport, make_report
from tidegate.simulation.settings import Arrivals, CloudSettings, SeededArrivals
from tidegate.units import finite

__all__ = ["SimulatedCloud"]

Floats = NDArray[np.float64]
ARRIVALS = 31


class SimulatedCloud:
    """A cloud and a streaming topology in it, item by item, as a backend.

    It is observed and given plans like any world; in between, `advance` lets time pass.

    topology: what runs; each operator needs a service time. offer: what can be leased.
    workload: when items come, see `Arrivals` and `SeededArrivals`. seed: of everything that is
    drawn by lot. initial: what runs at the beginning, None: one instance of each operator, packed
    tightly. settings: the physics. engine: what moves the items.

    >>> from tidegate.simulation import CloudSettings, Poisson, SimulatedCloud
    >>> from tidegate.model import HostOffer
    >>> from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
    >>> work = Operator("work", Resources(1), service_time_s=0.1, slo_s=0.5)
    >>> topology = Topology((work,), (Source("input"),), (Edge("input", "work"),))
    >>> world = SimulatedCloud(topology, HostOffer(Resources(4)), Poisson({"input": 5.0}), seed=1)
    >>> world.advance(3600)
    >>> report = world.report()
    >>> report.items_in == report.items_out + report.items_queued + report.items_dropped
    True
    >>> round(report.latency_mean_s, 2)  # M/M/1 at half load: 0.2
    0.2
    """

    def __init__(
        self,
        topology: Topology,
        offer: HostOffer,
        workload: Arrivals | SeededArrivals,
        *,
        seed: int,
        initial: Deployment | None = None,
        settings: CloudSettings | None = None,
        engine: Callable[[Topology, CloudSettings, int], Engine] = ItemEngine,
    ) -> None:
        self.topology = topology
        self.offer = offer
        self.settings = settings or CloudSettings()
        self.time_s = 0.0
        self._workload: Any = workload
        self._seeded = len(signature(workload.arrivals).parameters) > 2
        self._seed = seed
        self._sources = {source.name: i for i, source in enumerate(topology.sources)}
        self._engine = engine(topology, self.settings, seed)
        self._fleet = Fleet(topology, offer, self._engine, self.settings, seed)
        if initial is None:
            packing = Packing(Snapshot(0.0, topology, offer))
            if packing.unmet:
                why = f"{packing.unmet[0].operator}: {packing.unmet[0].why}"
                raise BackendError(f"the first instances do not fit the offer: {why}")
            initial = packing.deployment
        self._fleet.begin(initial)
        self._meter = Meter(topology, offer, self.settings, self._engine, self._fleet, seed)
        self._fleet.before_move = self._meter.settle
        self._series = BoundedSeries(len(topology.operators), self.settings.series_rows)
        self._shed_fraction = 0.0
        self._chunk = -1
        self._coming: dict[int, Floats] = {}
        self._snapshot: Snapshot | None = None

    # --- the backend protocol -----------------------------------------------------------------

    def observe(self) -> Snapshot:
        """What can be measured now; the same until time passes or a plan is applied."""
        if self._snapshot is None:
            self._snapshot = self._meter.snapshot(self.time_s)
        return self._snapshot

    def apply(self, plan: Plan) -> Outcome:
        """Begin what leads to the plan; applying it again changes nothing."""
        finite(plan.shed_fraction, "shed_fraction", low=0, high=1)
        self._shed_fraction = plan.shed_fraction
        outcome = self._fleet.apply(plan, self.time_s)
        for step in outcome.steps:
            if step.kind == "start" and step.instance in self._fleet.instances:
                instance = self._fleet.instances[step.instance]
                self._meter.forget(instance.number, instance.slot)
        self._snapshot = None
        return outcome

    # --- time ---------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let time pass, usually until the next decision."""
        end = self.time_s + finite(seconds, "seconds", low=0)
        while self.time_s < end:
            chunk_s = self.settings.arrival_chunk_s
            chunk_end = (self._chunk + 1) * chunk_s
            if self.time_s >= chunk_end:
                self._draw_arrivals()
                chunk_end = (self._chunk + 1) * chunk_s
            stop = min(end, chunk_end, max(self._fleet.next_event_s, self.time_s))
            if stop > self.time_s:
                self._series.append(
                    self._engine.run(self._take_until(stop), stop, self._shed_fraction)
                )
                self.time_s = stop
            self._fleet.happen(self.time_s)
        self._snapshot = None

    def _draw_arrivals(self) -> None:
        """The items of the next stretch of time, from a generator that nothing else draws from."""
        self._chunk += 1
        chunk_s = self.settings.arrival_chunk_s
        start, end = self._chunk * chunk_s, (self._chunk + 1) * chunk_s
        self._coming = {}
        for name, values in self._drawn(start, end).items():
            source = self._source_number(name)
            times = np.ascontiguousarray(values, np.float64)
            if len(times):
                inside = times[0] >= start and times[-1] < end
                if not inside or bool(np.any(times[1:] < times[:-1])):
                    allowed = f"sorted and within [{start:g}, {end:g})"
                    raise InputError(f"arrivals of {name}", "…", allowed)
                self._coming[source] = times

    def _drawn(self, start: float, end: float) -> Mapping[str, Floats]:
        drawn: Mapping[str, Floats]
        if self._seeded:
            lots = stream(self._seed, ARRIVALS, self._chunk)
            drawn = self._workload.arrivals(start, end, lots)
        else:
            drawn = self._workload.arrivals(start, end)
        return drawn

    def _source_number(self, name: str) -> int:
        if name not in self._sources:
            known = "a source of the topology: " + ", ".join(self._sources)
            raise InputError("arrivals of", name, known)
        return self._sources[name]

    def _take_until(self, stop: float) -> dict[int, Floats]:
        taken = {}
        for source, times in self._coming.items():
            if len(times) == 0 or times[-1] < stop:
                taken[source], self._coming[source] = times, times[:0]
            else:
                cut = int(np.searchsorted(times, stop))
                taken[source], self._coming[source] = times[:cut], times[cut:]
        return taken

    # --- results ------------------------------------------------------------------------------

    def report(self) -> RunReport:
        """What the run comes to so far."""
        self._fleet.forget_gone(self.time_s)
        return make_report(
            self.time_s,
            self.topology,
            self.settings,
            self._engine.net,
            self._fleet,
            self._series.rows,
        )

    def latencies(self) -> LatencySketch:
        """End-to-end latencies so far, ready to be merged with those of other runs."""
        net = self._engine.net
        operators = len(self.topology.operators)
        counts = net.sketch[operators] + net.sketch[operators + 1]
        return LatencySketch(counts, float(net.whole[SOJOURN_S]))

    def durations(self) -> dict[str, tuple[int, float]]:
        """Items processed so far and the seconds that they took, waiting included, by operator.

        The difference between two moments gives each operator's mean latency in between.
        """
        tally = self._engine.net.tally
        return {
            name: (int(tally[o, PROCESSED]), float(tally[o, DURATION_S]))
            for o, name in enumerate(self.topology.by_name)
        }
