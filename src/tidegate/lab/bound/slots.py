"""A demand and an offer laid on a grid of equal slots, every rounding in the policy's favour.

The slots divide the demand's periods so that a billing unit is a whole number of them. Work is
counted in *host-slots*: what one host does in one slot. A *window* is a period's items of one
stream with the slots in which the work of those in time can have been done.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tidegate.errors import InputError
from tidegate.lab.bound.demand import Demand
from tidegate.model import HostOffer
from tidegate.units import finite

__all__ = ["BilledFrom", "Grid", "Starts", "Window", "lay"]

Starts = Literal["any", "slot"]
BilledFrom = Literal["request", "running"]

_MOST_SLOTS_PER_PERIOD = 12


@dataclass(frozen=True, slots=True)
class Window:
    """Items of one period whose work, if they are in time, falls into certain slots.

    size: host-slots per item. The work is done from the start of slot `release` until the
    fraction `due_part` of slot `due`; due None: only after the run, nobody sees them late.
    """

    stream: int
    period: int
    items: float
    size: float
    release: int
    due: int | None
    due_part: float


@dataclass(frozen=True)
class Grid:
    """All that the programs need, in slots.

    unit: slots of a billing unit; price_usd: of one unit.
    whole: units are counted whole; False where a unit is shorter than a slot, so that `price_usd`
    buys a slot and fractions of it.
    lost: whole slots that a new host pays for and cannot use.
    closed: whole slots at the start in which only `initial` hosts can run.
    after: by stream, the streams that feed it, each with its ratio.
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


def lay(
    demand: Demand,
    offer: HostOffer,
    slo_s: float,
    *,
    run_s: float | None,
    starts: Starts,
    billed_from: BilledFrom,
    initial_hosts: int | None,
) -> Grid:
    """The grid for a demand and an offer; parameters as in `hindsight_bound`."""
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
    return Grid(
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
    """Slots per period, slots per unit, price of such a unit, whether it is whole, and exact.

    Where no division fits, a longer unit at the same price, or for very short units slots sold
    by the fraction at the same price per second, is the policy's gain.
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
