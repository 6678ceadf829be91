"""Adaptive provisioning: the number of engines follows measured rates (Cerviño et al.)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tidegate.codec import Value
from tidegate.model import Plan, Prediction, Snapshot
from tidegate.packing import Packing
from tidegate.packing.sizing import set_engines
from tidegate.policies.base import Policy, Style, setting

__all__ = ["AdaptiveProvisioning", "AdaptiveProvisioningMemory", "engines_needed"]


def engines_needed(
    total_rate_per_s: float,
    engine_rates_per_s: Sequence[float],
    max_rate_per_s: float | None,
    tolerance: float = 0.0,
    shed_per_s: float = 0.0,
) -> tuple[int, float | None]:
    """The paper's Algorithm 1, with its floors and ceilings: (engines, capacity of one).

    Args:
        total_rate_per_s: Tuples per second that arrive, shed ones included.
        engine_rates_per_s: Tuples per second that each running engine processes.
        max_rate_per_s: Tuples per second that one engine processed when last overloaded.
        tolerance: Share of the total that may be missing without counting as overload.
        shed_per_s: Tuples per second that were shed on request before they reached an engine.

    Returns:
        The number of engines and the tuples per second that one can process, None if unknown.

    Two engines get 30,000 tuples/s and process 10,000 each; the missing 10,000 are one engine's
    work, and 10,000 is what an engine can do:

    >>> engines_needed(30_000, [10_000, 10_000], None)
    (3, 10000)

    The rate falls to 12,000, which three engines carry with ease; two are enough:

    >>> engines_needed(12_000, [4_500, 4_500, 4_500], 10_000)
    (2, 10000)

    What the paper leaves open: with no overload seen yet, the capacity is unknown and nothing is
    released; where no engine has processed anything there is no rate to divide by, so one engine
    is tried; exactly balanced means no change.

    >>> engines_needed(12_000, [4_500, 4_500, 4_500], None)
    (3, None)
    >>> engines_needed(500, [0.0], None)
    (2, None)
    >>> engines_needed(20_000, [10_000, 10_000], 10_000)
    (2, 10000)

    What was shed on request is not missing at the engines: that they process what they get says
    nothing about what they could do, and the remembered capacity counts.

    >>> engines_needed(30_000, [6_000, 6_000, 6_000], 10_000, shed_per_s=12_000)
    (3, 10000)

    As printed, a single tuple that was under way when the rates were read is an overload, and what
    the idle engine did is taken for all that it can do; a tolerance forgives that:

    >>> engines_needed(750, [749.97], None), engines_needed(750, [749.97], None, tolerance=0.01)
    ((2, 749), (1, None))
    """
    engines = len(engine_rates_per_s)
    if engines == 0:
        return 1, max_rate_per_s
    expected = math.floor(total_rate_per_s / engines)
    missing = sum(expected - rate for rate in engine_rates_per_s)
    average = math.floor(sum(engine_rates_per_s) / engines)
    if missing - shed_per_s > tolerance * total_rate_per_s:
        if average == 0:
            return engines + 1, max_rate_per_s
        return engines + math.ceil(missing / average), average
    if (missing < 0 or tolerance > 0 or shed_per_s > 0) and max_rate_per_s:
        return max(1, math.ceil(total_rate_per_s / max_rate_per_s)), max_rate_per_s
    return engines, max_rate_per_s


@dataclass(frozen=True, slots=True)
class AdaptiveProvisioningMemory(Value):
    """max_rate_per_s: tuples per second that one engine processed when it was last overloaded."""

    max_rate_per_s: float | None = None


@dataclass(frozen=True)
class AdaptiveProvisioning(Policy):
    """As many engines as the input rate needs, given the capacity of an engine under overload.

    The input is partitioned equally over identical engines. Under overload, engines process less
    than their share, because the rest is shed or queued. Between overloads, the remembered capacity
    determines how few engines are enough.

    Two measured rates never agree to the last digit. The paper's rule would take each difference
    for an overload and grow forever, so differences up to `tolerance` are ignored.

    Where the rates of the last second are measured, they are compared, as in the paper; a mean over
    the whole period would mix the rates before and after a rise. Otherwise the means are used.

    With `shed`, the plan also contains the share of the input that the running engines cannot
    process, if it exceeds `tolerance`.

    >>> from tidegate.testing import engine_snapshot
    >>> policy = AdaptiveProvisioning(shed=True)
    >>> busy = engine_snapshot(arrival_rate_per_s=30_000, processed_per_s=[10_000, 10_000])
    >>> plan, memory = policy.decide(busy, policy.initial_memory())
    >>> plan.bounded_target, memory.max_rate_per_s, round(plan.shed_fraction, 3)
    (3, 10000.0, 0.333)

    J. Cerviño et al., *Adaptive Provisioning of Stream Processing Systems in the Cloud*,
    ICDE Workshops 2012.
    """

    name: ClassVar[str] = "adaptive-provisioning"
    paper: ClassVar[str] = "Cerviño et al. 2012, Algorithm 1"
    style: ClassVar[Style] = "engines"
    needs: ClassVar[tuple[str, ...]] = ("operator.arrival_rate_per_s", "instance.processed_per_s")
    memory_type: ClassVar[type] = AdaptiveProvisioningMemory

    tolerance: float = setting(
        0.01, "missing share of the input that counts as noise; 0 as in the paper", low=0, high=1
    )
    shed: bool = setting(False, "drop the share of the input that the engines cannot carry")
    last_second: bool = setting(
        True, "compare the rates of the last second where they are measured, else means of the turn"
    )

    def decide(
        self, snapshot: Snapshot, memory: AdaptiveProvisioningMemory
    ) -> tuple[Plan, AdaptiveProvisioningMemory]:
        """Compare the arrival rate with the rate that the engines process."""
        packing = Packing(snapshot)
        seen = _rates(snapshot, self.last_second)
        if seen is None:
            return packing.plan(), memory
        total, shed, rates = seen
        engines, capacity = engines_needed(
            total, list(rates.values()), memory.max_rate_per_s, self.tolerance, shed
        )
        before = packing.host_count
        set_engines(packing, engines)
        carried = sum(rates.values())
        if packing.host_count != before:
            code = "overload" if packing.host_count > before else "underload"
            process = "1 engine processes" if len(rates) == 1 else f"{len(rates)} engines process"
            text = (
                f"{total:.5g}/s arrive and {process} {carried:.5g}/s: "
                f"{before} → {packing.host_count} engines"
            )
            packing.because(code, text)
        known = None if capacity is None else capacity * packing.host_count
        plan = packing.plan(Prediction(capacity_per_s=known))
        if self.shed and total > 0:
            running = min(len(rates), packing.host_count)  # new ones take time to start
            share = 0.0 if capacity is None else max(0.0, 1 - capacity * running / total)
            if share > self.tolerance:
                plan = replace(plan, shed_fraction=share)
        return plan, AdaptiveProvisioningMemory(None if capacity is None else float(capacity))


def _rates(snapshot: Snapshot, last_second: bool) -> tuple[float, float, dict[str, float]] | None:
    """Tuples per second: offered, shed, and processed by engine; None while a rate is missing."""
    entries = [snapshot.reading[name] for name in snapshot.topology.entries]
    running = [
        i
        for i in snapshot.instances
        if i.operator in snapshot.topology.entries and i.status == "running"
    ]
    latest = (
        last_second
        and all(r.latest_arrival_per_s is not None for r in entries)
        and all(i.latest_processed_per_s is not None for i in running)
    )
    rates: dict[str, float] = {}
    for instance in running:
        rate = instance.latest_processed_per_s if latest else instance.processed_per_s
        if rate is None:
            return None
        rates[instance.host] = rates.get(instance.host, 0.0) + rate
    arriving = [r.latest_arrival_per_s if latest else r.arrival_rate_per_s for r in entries]
    total = sum(rate for rate in arriving if rate is not None)
    if None in arriving or not rates:
        return None
    usual = sum(reading.arrival_rate_per_s or 0.0 for reading in entries)
    shed = sum(reading.shed_per_s or 0.0 for reading in entries)
    return total, shed * total / usual if usual else 0.0, rates
