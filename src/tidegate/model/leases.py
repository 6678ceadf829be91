"""Leases of hosts, and what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tidegate.codec import Value
from tidegate.model.topology import Resources
from tidegate.units import finite

__all__ = ["HostOffer", "Lease", "LeaseEnd"]


@dataclass(frozen=True, slots=True)
class Lease(Value):
    """A lease of a host, paid per started billing unit.

    billing_unit_s: length of a billing time unit (BTU), in seconds.
    price_per_unit_usd: price of one started unit.
    started_s: start of the first unit on the snapshot's clock, in seconds.

    >>> hourly = Lease(billing_unit_s=3600, price_per_unit_usd=6, started_s=0)
    >>> hourly.time_left_s(now_s=3500), hourly.units_paid(until_s=3700)
    (100, 2)
    """

    billing_unit_s: float
    price_per_unit_usd: float
    started_s: float

    def __post_init__(self) -> None:
        finite(self.billing_unit_s, "billing_unit_s", above=0)
        finite(self.price_per_unit_usd, "price_per_unit_usd", low=0)

    def time_left_s(self, now_s: float) -> float:
        """Seconds until the present billing unit, which is already paid for, ends."""
        return self.billing_unit_s - (now_s - self.started_s) % self.billing_unit_s

    def units_paid(self, until_s: float) -> int:
        """Billing units started by then; a lease that ends with a unit does not start another."""
        return max(1, math.ceil((until_s - self.started_s) / self.billing_unit_s - 1e-9))

    def cost_usd(self, until_s: float) -> float:
        """Price of the billing units started by then."""
        return self.units_paid(until_s) * self.price_per_unit_usd


@dataclass(frozen=True, slots=True)
class LeaseEnd(Value):
    """The moment when a host was given back or lost, in seconds on the snapshot's clock."""

    host: str
    time_s: float


@dataclass(frozen=True, slots=True)
class HostOffer(Value):
    """The hosts that can be leased: one kind at one price.

    capacity: resources of a host.
    billing_unit_s, price_per_unit_usd: as in `Lease`; the price is zero when costs do not matter.
    startup_s: time from the request until the host runs, in seconds.
    max_hosts: largest number of hosts, None for no limit.
    """

    capacity: Resources
    billing_unit_s: float = 3600.0
    price_per_unit_usd: float = 0.0
    startup_s: float = 0.0
    max_hosts: int | None = None

    def __post_init__(self) -> None:
        finite(self.capacity.cpu_cores, "offer: cpu_cores", above=0)
        finite(self.billing_unit_s, "offer: billing_unit_s", above=0)
        finite(self.price_per_unit_usd, "offer: price_per_unit_usd", low=0)
        finite(self.startup_s, "offer: startup_s", low=0)

    @property
    def usd_per_h(self) -> float:
        """Price of one host per hour of continuous use."""
        return self.price_per_unit_usd * 3600 / self.billing_unit_s

    def lease(self, started_s: float) -> Lease:
        """A lease of such a host from a moment on."""
        return Lease(self.billing_unit_s, self.price_per_unit_usd, started_s)
