"""Demand and offer in equal time slots, with all rounding in the policy's favour.

The slots divide the demand's periods so that a billing unit is a whole number of slots. Work is
counted in *host-slots*, the work of one host in one slot. A *window* holds the items of one stream
in one period, and the slots in which those in time can be processed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tidegate.errors import InputError
from tidegate.lab.bound.demand import Demand
from tidegate.model import HostOffer
from tidegate.units import finite

__all__ = ["BilledFrom", "SlotGrid", "Starts", "Window", "slot_grid"]

Starts = Literal["any", "slot"]
BilledFrom = Literal["request", "running"]

_MOST_SLOTS_PER_PERIOD = 12


@dataclass(frozen=True, slots=True)
class Window:
    """Items of one period, and the slots in which those in time are processed.

    Args:
        stream: Number of the stream.
        period: Number of the period.
        items: Items that arrive in the period.
        size: Host-slots per item.
        release: Slot in which processing can start.
        due: Slot in which the items become late; None: after the run, so they never count as late.
        due_part: Share of slot `due` before they become late.
    """

    stream: int
    period: int
    items: float
    size: float
    release: int
    due: int | None
    due_part: float


@dataclass(frozen=True)
class SlotGrid:
    """The input of the optimisation programs, in slots.

    Args:
        slot_s: Length of a slot, in seconds.
        slots: Number of slots.
        unit: Slots of a billing unit.
        price_usd: Price of a unit, in dollars.
        whole: Whether units are bought whole. False if a unit is shorter than a slot; then
            `price_usd` buys one slot, or a fraction of it.
        starts: When leases may start.
        max_hosts: Most hosts.
        lost: Whole slots that a new host is paid for and cannot work.
        closed: Whole slots at the start in which only `initial` hosts can run.
        initial: Hosts at the start.
        windows: Items and the slots in which they can be processed.
        after: For each stream, the streams that feed it with their ratios.
    """

    slot_s: float
    slots: int
    unit: int
    price_usd: float
    whole: bool
    starts: Starts
    max_hosts: float
    lost: int
    closed: int
    initial: float
    windows: tuple[Window, ...]
    after: tuple[tuple[tuple[int, float], ...], ...]


def slot_grid(
    demand: Demand,
    offer: HostOffer,
    slo_s: float,
    *,
    run_s: float | None,
    starts: Starts,
    billed_from: BilledFrom,
    initial_hosts: int | None,
) -> SlotGrid:
    """The slots of a demand and an offer.

    Args:
        demand: What arrives.
        offer: Hosts that can be leased.
        slo_s: Latency target, in seconds.
        run_s: End of the run, as in `hindsight_bound`, like the parameters below.
        starts: When leases may start.
        billed_from: When billing starts.
        initial_hosts: Hosts that run at time zero.
    """
    finite(slo_s, "slo_s", above=0)
    if starts not in ("any", "slot"):
        raise InputError("starts", starts, "any or slot")
    if billed_from not in ("request", "running"):
        raise InputError("billed_from", billed_from, "request or running")
    if initial_hosts is not None:
        finite(initial_hosts, "initial_hosts", low=0)
    index = {stream.name: i for i, stream in enumerate(demand.streams)}
    parts, unit, price, whole, exact = _slots_of_unit(demand.period_s, offer)
    slot_s = demand.period_s / parts
    longest = max(stream.slo_s or slo_s for stream in demand.streams)
    end_s = demand.periods * demand.period_s
    run = end_s + longest if run_s is None else finite(run_s, "run_s", low=end_s)
    startup = _down(offer.startup_s / slot_s)
    paid_startup = billed_from == "request" and exact
    limit = math.inf if offer.max_hosts is None else float(offer.max_hosts)
    return SlotGrid(
        slot_s=slot_s,
        slots=_up(run / slot_s),
        unit=unit,
        price_usd=price,
        whole=whole,
        starts=starts,
        max_hosts=limit,
        lost=startup if paid_startup else 0,
        closed=startup,
        initial=math.inf if initial_hosts is None else float(initial_hosts),
        windows=tuple(_windows(demand, slo_s, parts, slot_s * offer.capacity.cpu_cores, run)),
        after=tuple(
            tuple((index[name], ratio) for name, ratio in stream.after) for stream in demand.streams
        ),
    )


def _windows(
    demand: Demand, slo_s: float, parts: int, host_slot_core_s: float, run_s: float
) -> list[Window]:
    slot_s = demand.period_s / parts
    found = []
    for i, stream in enumerate(demand.streams):
        later = (stream.slo_s or slo_s) / slot_s
        for n, (items, work) in enumerate(zip(stream.items, stream.work_core_s, strict=True)):
            if items <= 0:
                continue
            due = (n + 1) * parts + _down(later)
            part = max(0.0, later - _down(later))
            seen = (due + part) * slot_s <= run_s * (1 + 1e-12)
            size = work / items / host_slot_core_s
            found.append(Window(i, n, items, size, n * parts, due if seen else None, part))
    return found


def _slots_of_unit(period_s: float, offer: HostOffer) -> tuple[int, int, float, bool, bool]:
    """Slots per period, slots per unit, price of a unit, whether it is whole, whether it is exact.

    If no division fits, the policy gets a longer unit at the same price. If units are very short,
    it gets fractions of slots at the same price per second.
    """
    ratio = offer.billing_unit_s / period_s
    for parts in range(1, _MOST_SLOTS_PER_PERIOD + 1):
        unit = ratio * parts
        if unit >= 1 - 1e-9 and abs(unit - round(unit)) < 1e-9 * parts:
            return parts, round(unit), offer.price_per_unit_usd, True, True
    if ratio < 1:
        return 1, 1, offer.price_per_unit_usd / ratio, False, False
    return 1, _up(ratio), offer.price_per_unit_usd, True, False


def _up(slots: float) -> int:
    return math.ceil(slots - 1e-9 * max(1.0, slots))


def _down(slots: float) -> int:
    return math.floor(slots + 1e-9 * max(1.0, slots))
