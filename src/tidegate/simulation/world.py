"""What all simulated worlds share: a clock, simulated hosts and the backend protocol."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from tidegate.loop.backend import Outcome
from tidegate.model import Plan, Snapshot
from tidegate.simulation.hosts import SimulatedHosts
from tidegate.units import finite

__all__ = ["SimulatedWorld"]


class SimulatedWorld(ABC):
    """A simulated world as a `Backend`: observe it, apply plans, and let time pass.

    A subclass says how items are processed until a moment (`_run_until`) and what can be measured
    (`_measure`). Hosts and instances, which start, move, fail and cost money by themselves, are
    the same in all worlds.

    hosts: the hosts and instances, with their topology and offer.
    """

    def __init__(self, hosts: SimulatedHosts) -> None:
        self.topology, self.offer = hosts.topology, hosts.offer
        self.time_s = 0.0
        self._hosts = hosts
        self._shed_fraction = 0.0
        self._snapshot: Snapshot | None = None

    def observe(self) -> Snapshot:
        """What can be measured now; the same until time passes or a plan is applied."""
        if self._snapshot is None:
            self._snapshot = self._measure()
        return self._snapshot

    def apply(self, plan: Plan) -> Outcome:
        """Start the steps that lead to the plan; applying it again changes nothing."""
        self._shed_fraction = finite(plan.shed_fraction, "shed_fraction", low=0, high=1)
        self._snapshot = None
        return self._hosts.apply(plan, self.time_s)

    def advance(self, seconds: float) -> None:
        """Let time pass, usually until the next decision."""
        now_s, hosts = self.time_s, self._hosts
        end_s = now_s + finite(seconds, "seconds", low=0)
        while now_s < end_s:
            stop_s = min(end_s, self._next_stop_s(), max(hosts.next_event_s, now_s))
            if stop_s > now_s:
                self._run_until(stop_s)
                self.time_s = now_s = stop_s
            self._process_events()
        self._snapshot = None

    @abstractmethod
    def _measure(self) -> Snapshot:
        """A fresh snapshot."""

    @abstractmethod
    def _run_until(self, stop_s: float) -> None:
        """Process items until then; hosts and instances stay as they are meanwhile."""

    def _next_stop_s(self) -> float:
        """A time that this world must not run beyond in one go."""
        return math.inf

    def _process_events(self) -> None:
        """Carry out what is due now."""
        self._hosts.process_events(self.time_s)
