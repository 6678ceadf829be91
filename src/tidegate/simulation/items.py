"""The item-level world: every item is simulated on its way through queues and instances."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import BackendError, InputError
from tidegate.loop.backend import Outcome
from tidegate.model import Deployment, HostOffer, Plan, Snapshot
from tidegate.model.topology import Topology
from tidegate.packing import Packing
from tidegate.simulation.arrivals import ArrivalChunks, Arrivals, SeededArrivals
from tidegate.simulation.hosts import SimulatedHosts
from tidegate.simulation.kernels import state as at
from tidegate.simulation.kernels.sketch import LatencySketch
from tidegate.simulation.meter import LATEST_S, Meter
from tidegate.simulation.network import Coming, ItemEngine
from tidegate.simulation.report import BoundedSeries, RunReport, make_report
from tidegate.simulation.settings import CloudSettings
from tidegate.simulation.world import SimulatedWorld

__all__ = ["SimulatedCloud"]

Floats = NDArray[np.float64]


class SimulatedCloud(SimulatedWorld):
    """A cloud that runs a streaming topology, item by item.

    Args:
        topology: What runs; each operator needs a service time.
        offer: What can be leased.
        workload: When items arrive, see `Arrivals` and `SeededArrivals`.
        seed: Random seed of the whole world.
        initial: What runs at the beginning; None for one instance of each operator, packed
            tightly.
        settings: How the cloud behaves.
        engine: What moves the items, None for the default of the class.

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

    default_engine: type[ItemEngine] = ItemEngine

    def __init__(
        self,
        topology: Topology,
        offer: HostOffer,
        workload: Arrivals | SeededArrivals,
        *,
        seed: int,
        initial: Deployment | None = None,
        settings: CloudSettings | None = None,
        engine: type[ItemEngine] | None = None,
    ) -> None:
        self.settings = settings or CloudSettings()
        self._engine = (engine or self.default_engine)(topology, self.settings, seed)
        super().__init__(SimulatedHosts(topology, offer, self._engine, self.settings, seed))
        if initial is None:
            packing = Packing(Snapshot(0.0, topology, offer))
            if packing.unmet:
                why = f"{packing.unmet[0].operator}: {packing.unmet[0].why}"
                raise BackendError(f"the first instances do not fit the offer: {why}")
            initial = packing.deployment
        self._hosts.begin(initial)
        self._meter = Meter(self.settings, self._engine, self._hosts, seed)
        self._hosts.before_move = self._meter.settle
        self._series = BoundedSeries(len(topology.operators), self.settings.series_rows)
        self._chunks = ArrivalChunks(workload, topology, seed, self.settings.arrival_chunk_s)
        self._coming = Coming.of({}, len(topology.sources))

    def _measure(self) -> Snapshot:
        return self._meter.snapshot(self.time_s)

    def apply(self, plan: Plan) -> Outcome:
        """Start the steps that lead to the plan; applying it again changes nothing."""
        outcome = super().apply(plan)
        for step in outcome.steps:
            if step.kind == "start" and step.instance in self._hosts.instances:
                instance = self._hosts.instances[step.instance]
                self._meter.forget(instance.number, instance.slot)
        return outcome

    # --- time ---------------------------------------------------------------------------------

    def _next_stop_s(self) -> float:
        if self.time_s >= self._chunks.end_s:
            self._chunks.number += 1
            self._draw_arrivals()
        return self._chunks.end_s

    def _run_until(self, stop_s: float) -> None:
        rows = self._engine.run(self._coming, stop_s, self._shed_fraction)
        self._series.append(rows)
        if len(rows) and self.settings.monitoring_s <= LATEST_S:
            self._meter.note_row(rows[-1], self._shed_fraction)

    def _draw_arrivals(self) -> None:
        chunks = self._chunks
        start, end = chunks.number * chunks.chunk_s, chunks.end_s
        drawn = chunks.draw()
        found = {chunks.source_number(name): np.asarray(v, np.float64) for name, v in drawn.items()}
        coming = self._coming = Coming.of(found, len(self.topology.sources))
        if not coming.in_order(start, end):
            allowed = f"sorted and within [{start:g}, {end:g})"
            for name, values in drawn.items():
                if not Coming.of({0: np.asarray(values, np.float64)}, 1).in_order(start, end):
                    raise InputError(f"arrivals of {name}", "…", allowed)

    # --- results ------------------------------------------------------------------------------

    def report(self) -> RunReport:
        """The results of the run so far."""
        net, rows = self._engine.net, self._series.rows
        return make_report(self.time_s, self.topology, self.settings, net, self._hosts, rows)

    def latencies(self) -> LatencySketch:
        """End-to-end latencies so far, ready to be merged with those of other runs."""
        net = self._engine.net
        operators = len(self.topology.operators)
        counts = net.sketch[operators] + net.sketch[operators + 1]
        return LatencySketch(counts, float(net.whole[at.SOJOURN_S]))

    def durations(self) -> dict[str, tuple[int, float]]:
        """Items processed so far and their total time in seconds, waiting included, by operator.

        The difference between two moments gives each operator's mean latency in between.
        """
        tally = self._engine.net.tally
        return {
            name: (int(tally[o, at.PROCESSED]), float(tally[o, at.DURATION_S]))
            for o, name in enumerate(self.topology.by_name)
        }
