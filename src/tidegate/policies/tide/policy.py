"""Tide: a latency and a share of the items within it, for the least money."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from tidegate.codec import Value
from tidegate.model import Host, Plan, Prediction, Snapshot, Unmet
from tidegate.packing import Packing
from tidegate.packing.sizing import set_counts
from tidegate.policies.base import Policy, Situation, Style, setting
from tidegate.policies.tide.forecast import Ensemble, Forecast
from tidegate.policies.tide.need import Need, read_need
from tidegate.policies.tide.promise import MOST_TURNS, Promise, late_now, longest_s
from tidegate.units import show_duration, show_share
from tidegate.values import derived

__all__ = ["Tide", "TideMemory"]

FIRST_PART, LEAST_PART, MOST_PART = 0.2, 0.05, 0.4
"""Part of the items that are late while a host is missing: until it was measured, at least, and at
most, because not all late items are due to a missing host."""
FEW = 3.0
"""Missing hosts times busy hosts, summed over turns, with which `FIRST_PART` is weighed."""
FADE = 0.998
"""Weight of earlier shortages at each turn."""
LONGEST_HOLD_S = 300.0
"""Time for which a host was not needed after which it is released, if its paid unit is longer."""
LEAST_BUSY = 0.1
"""Smallest number of busy hosts that a missing host is weighed with."""
SPIKE = 1.5
"""A rate above the forecast at the largest care times this overtakes the forecasts."""
SHARE_ALONE, LARGEST_MARGIN = 0.8, 10.0
"""Share up to which no more than the forecast is provided for, and the largest multiple of a rate.
In between it is the square root of how many times fewer items may be late: 2 with 95 %, 4.5 with
99 %."""
MOST_MORE = 1000
"""Hosts that one decision adds at most, unless there are more already: then as many again."""
IDLE = 1.5
"""Hosts over those that the present rate needs from which further ones make no item faster."""

Needs = tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True)
class TideMemory(Value):
    """What the policy remembers between turns.

    Attributes:
        promise: How the promised share was kept.
        ensemble: What the forecasters remember.
        needs: (time, hosts) of the needs within the last billing unit that no later one reaches.
        per_host: Items per second that keep a host busy, as last measured.
        overtaken: Whether a rate was beyond what the largest care expected, and the forecasts have
            not caught up since.
        late_work: Busy hosts times the share of late items, summed over turns that fade.
        missing: Busy hosts times the hosts that were missing, summed in the same way.
        idle_since_s: Time since which hosts have been idle at every turn, None if they are not.
    """

    promise: Promise = field(default_factory=Promise)
    ensemble: Ensemble = field(default_factory=Ensemble)
    needs: Needs = ()
    per_host: float | None = None
    overtaken: bool = False
    late_work: float = 0.0
    missing: float = 0.0
    idle_since_s: float | None = None

    @property
    def part_late(self) -> float:
        """Part of the items of all hosts that are late while one is missing, as measured."""
        part = (self.late_work + FEW * FIRST_PART) / (self.missing + FEW)
        return min(MOST_PART, max(LEAST_PART, part))


@dataclass(frozen=True)
class Tide(Policy):
    """Keep a share of the items within a latency, for the least money.

    **What will come**: an ensemble of simple forecasters, with weights that follow their scores,
    forecasts the largest rate from when a host leased now runs until its successor would.

    **How sure to be**: while a host is missing, items are late, which costs `late_price` for each;
    a host that nobody needs costs its price. The newsvendor's quantile weighs the two. If fewer
    items than `share` are in time, the price of a late item is raised step by step, at most to
    `most` times what it is (adaptive conformal inference), and lowered again when more are. If that
    is not enough, more than the forecast is provided for: step by step from the present rate to the
    largest one that a forecaster names, such as the peak of the last hour, and while items are late
    to `margin` times the rate. Both limits follow from the share, since a stricter promise is worth
    more.

    **What it takes**: the models of `drs`, for queues and for micro-batches, say how many hosts the
    forecast rate needs. Waiting items add spare hosts, as far as they are worth their price.

    **When to let go**: a host is released when its paid unit ends before the next decision, and
    only if it was not needed for a whole unit: keeping it that long costs as much as leasing it
    again.

    Many more late items than those of a usual turn, and items that are late while hosts are idle,
    are counted as out of reach, and change no price. Until the forecasts have caught up with a rate
    that not even the largest care expected, it is the least that is expected: what was learned in a
    silence says nothing about its end.

    10 items/s keep half a host busy. At first the margin is 20 %:

    >>> from tidegate.testing import station_snapshot
    >>> now = station_snapshot({"work": (10, 5)}, allocation=(4,), cores_per_host=4)
    >>> policy = Tide(slo_s=1.0)
    >>> plan, memory = policy.decide(now, policy.initial_memory())
    >>> plan.reasons[0].text
    '12/s at most in 0 s (50.0 % sure, mostly by last): 1 host; a missing one costs 1 times its
    price; promised: 95 % in time'

    I. Gibbs and E. Candès, *Adaptive conformal inference under distribution shift*, NeurIPS 2021;
    K. Rzadca et al., *Autopilot: workload autoscaling at Google*, EuroSys 2020.
    """

    name: ClassVar[str] = "tide"
    paper: ClassVar[str] = "Tidegate: conformal forecasts (Gibbs, Candès 2021), newsvendor's rule"
    style: ClassVar[Style] = "instances"
    needs: ClassVar[tuple[str, ...]] = ("operator.arrival_rate_per_s", "operator.service_time_s")
    memory_type: ClassVar[type] = TideMemory
    picks_its_moment: ClassVar[bool] = True
    forecasts: ClassVar[bool] = True

    slo_s: float = setting(1.0, "latency target, s", low=1e-6)
    share: float = setting(0.95, "share of the items to keep within it", low=0.5, high=0.9999)
    late_price: float = setting(
        10.0, "price of a late item, in prices of processing one on a busy host", low=0.01
    )
    most: float | None = setting(
        None,
        "largest multiple of that price that is paid to keep the promise; none: by the share",
        low=1,
    )
    margin: float | None = setting(
        None,
        "largest multiple of the present rate to provide for if that is not enough and items are "
        "late; none: by the share",
        low=1,
    )
    step: float = setting(
        0.1, "rise of the multiples' logarithm after a turn in which all items are late", low=1e-6
    )
    stabilise_s: float = setting(
        0.0, "time for which a host was not needed before it is released, at least, s", low=0
    )

    @classmethod
    def suggested(cls, situation: Situation) -> dict[str, Any]:
        """The latency target as it is: the share says how much of it has to be kept."""
        names = ("slo_s", "late_price", "stabilise_s")
        known = {name: getattr(situation, name) for name in names}
        if known["late_price"] is not None:  # a penalty may be next to nothing
            (low,) = (one.low for one in cls.parameters() if one.name == "late_price")
            known["late_price"] = max(low or 0.0, known["late_price"])
        return {name: value for name, value in known.items() if value is not None}

    def decide(self, snapshot: Snapshot, memory: TideMemory) -> tuple[Plan, TideMemory]:
        """Account for what came, forecast what comes, and lease or release."""
        packing = Packing(snapshot)
        rate = _arriving(snapshot)
        need = None if rate is None else read_need(snapshot, self.slo_s)
        if rate is None or need is None:
            packing.because("missing", "an arrival rate or service time is unknown: no change")
            return packing.plan(), memory
        before, memory = memory.promise, self._accounted(snapshot, memory, rate, need)
        lead_s = snapshot.offer.startup_s + (snapshot.interval_s or 0.0)
        price = self._price(memory, need, memory.promise.care)
        sure, surest = _sure(price), _sure(self._price(memory, need, math.inf))
        forecast, ensemble = memory.ensemble.forecast(lead_s, sure, surest)
        now = ensemble.rate_per_s
        raised = self._raised(snapshot, memory.promise.care, now, forecast.top_per_s)
        # What was learned, in silence for example, does not apply to a rate beyond all forecasts.
        overtaken = memory.overtaken and max(raised, forecast.rate_per_s) < now
        provided = forecast
        most = max(forecast.rate_per_s, raised, now if overtaken else 0.0)
        if most > forecast.rate_per_s:
            provided = replace(forecast, rate_per_s=most)
        hosts, unmet = self._hosts(packing, need, provided, rate, memory)
        spare = self._spare(snapshot, need, price / memory.part_late, packing.host_count, rate)
        hosts = self._limited(packing, max(hosts, need.busy + spare if spare else 0.0))
        needs = _remembered(snapshot, memory.needs, hosts, max(lead_s, self.stabilise_s))
        memory = _with_plan(memory, ensemble, overtaken, needs)
        said = _sentence(forecast, provided, lead_s, hosts, price, spare)
        packing.because("forecast", f"{said}; {self._promised(memory.promise)}")
        if overtaken:
            packing.because("overtaken", "the rate is beyond all forecasts and counts as it is")
        elif raised > forecast.rate_per_s:
            packing.because("margin", f"{raised / now:.3g} times the present rate is provided for")
        if forecast.demoted:
            packing.because("demoted", f"hardly counted: {', '.join(forecast.demoted)}")
        for sentence in need.ceilings:
            packing.because("ceiling", sentence)
        self._say_what_is_out_of_reach(packing, before, memory)
        packing.unmet.extend(unmet)
        if hosts > packing.host_count:
            set_counts(packing, need.counts(hosts), hosts)
        else:
            self._release(packing, need, provided, rate, memory.needs)
            if packing.host_count == len(snapshot.requested.hosts):
                _divide_again(packing, need, max(1.0, provided.rate_per_s / rate) if rate else 1.0)
        can = None if memory.per_host is None else memory.per_host * packing.host_count
        return packing.plan(Prediction(capacity_per_s=can, hosts_needed=hosts)), memory

    # --- the past -----------------------------------------------------------------------------

    def _accounted(
        self, snapshot: Snapshot, memory: TideMemory, rate: float, need: Need
    ) -> TideMemory:
        """The memory after what was measured since the last turn."""
        now_s, promise = snapshot.time_s, memory.promise
        due = memory.ensemble.due_at(now_s)
        expected = max([d.reach_per_s for d in due], default=math.inf)
        done = late_now(snapshot, self.slo_s)
        if done is not None and now_s != memory.ensemble.seen_s:
            items, late = done
            helps = True
            if rate > 0:
                memory, helps = self._blamed(snapshot, memory, need, late)
            most, counted = self._most_care(snapshot), late if helps else 0.0
            promise = promise.after(
                items, counted, self.share, self.step, most, _most_turns(snapshot)
            )
            promise = promise.blame_nobody((late - counted) * items)
        ensemble = memory.ensemble.observe(now_s, rate, snapshot.interval_s or 0.0)
        # In full, since `replace` takes several times as long, and this runs at every turn.
        return TideMemory(
            promise=promise,
            ensemble=ensemble,
            needs=memory.needs,
            per_host=rate / need.busy if need.busy > 0 and rate > 0 else memory.per_host,
            overtaken=memory.overtaken or ensemble.rate_per_s > SPIKE * expected,
            late_work=memory.late_work,
            missing=memory.missing,
            idle_since_s=memory.idle_since_s,
        )

    def _blamed(
        self, snapshot: Snapshot, memory: TideMemory, need: Need, late: float
    ) -> tuple[TideMemory, bool]:
        """The memory with what missing hosts made late, and whether more hosts could have helped.

        They could not if no number of hosts reaches the target, or if there were many more than the
        rate needs and little waited all the time since the late items came: such items take long by
        themselves, and care buys nothing. Hosts that became idle later do not count: these items
        waited for them.
        """
        now_s, (hosts, unmet) = snapshot.time_s, need.hosts(1.0, self.share)
        missing = max(0, hosts - snapshot.hosts_running)
        waits = _waiting(snapshot) > self.slo_s * (_arriving(snapshot) or 0.0)
        idle = snapshot.hosts_running >= IDLE * hosts and not waits
        since_s = memory.idle_since_s if memory.idle_since_s is not None else now_s
        since_s = min(since_s, now_s)  # the clock may have been set back
        came_s = now_s - (snapshot.interval_s or 0.0) - longest_s(snapshot)
        memory = TideMemory(
            memory.promise,
            memory.ensemble,
            memory.needs,
            memory.per_host,
            memory.overtaken,
            FADE * memory.late_work + late * need.busy,
            FADE * memory.missing + missing * need.busy,
            since_s if idle else None,
        )
        return memory, not unmet and not (idle and since_s <= came_s)

    def _promised(self, promise: Promise) -> str:
        """The promised share, and what was kept of it so far."""
        kept = "" if promise.in_time is None else f", so far {show_share(promise.in_time)}"
        return f"promised: {show_share(self.share)} in time{kept}"

    def _say_what_is_out_of_reach(
        self, packing: Packing, before: Promise, memory: TideMemory
    ) -> None:
        """A reason while the promise costs more than is allowed, and for items counted apart.

        before: the promise before this turn.
        """
        promise, in_time = memory.promise, memory.promise.in_time
        most, margin = self._most_care(packing.snapshot), self._most_margin(packing.snapshot)
        if most and in_time is not None and promise.care >= most:
            limit = f"more than {self._most_price:.3g} times the price of a late item"
            if margin > 1:
                limit = f"hosts for more than {margin:.3g} times the present rate"
            kept = f"{in_time:.1%} in time so far, {self.share:.1%} promised"
            packing.because("out-of-reach", f"{kept}: to keep the promise would take {limit}")
            return
        apart = promise.out_of_reach - before.out_of_reach
        if apart >= 1:
            why = f"a turn counts for at most {_most_turns(packing.snapshot):g} usual ones"
            if memory.idle_since_s is not None:
                why = "hosts are idle"
            packing.because("out-of-reach", f"{apart:.0f} late items are counted apart: {why}")

    # --- what it takes ------------------------------------------------------------------------

    @derived
    def _most_price(self) -> float:
        """The largest multiple of the price of a late item.

        By the share, it is the one with which a single busy host is joined by another unless that
        is needed with a probability of less than 1 - share.
        """
        if self.most is not None:
            return self.most
        return max(1.0, self.share / (1 - self.share) / (MOST_PART * self.late_price))

    def _most_margin(self, snapshot: Snapshot) -> float:
        """The largest multiple of the present rate to provide for.

        It follows every change of the rate, so a host that is leased for it and paid for an hour
        would cost many times what it is used for.
        """
        if _paid_s(snapshot) > LONGEST_HOLD_S:
            return 1.0
        if self.margin is not None:
            return self.margin
        return min(LARGEST_MARGIN, max(1.0, math.sqrt((1 - SHARE_ALONE) / (1 - self.share))))

    def _most_care(self, snapshot: Snapshot) -> float:
        """The largest care: that of the largest price and the largest margin."""
        return math.log(self._most_price * self._most_margin(snapshot))

    def _raised(self, snapshot: Snapshot, care: float, now: float, top: float) -> float:
        """The rate to provide for by care beyond the largest price, 0 without any.

        Between the present rate and the largest one that is expected. While too many items are late
        at the present rate, it is a multiple of that rate at least: then it needs more hosts than
        the model says. now, top: the present and the largest expected rate, items per second.
        """
        beyond, most = care - math.log(self._most_price), math.log(self._most_margin(snapshot))
        if beyond <= 0 or most <= 0 or now <= 0:
            return 0.0
        beyond = min(beyond, most)
        raised = now * (top / now) ** (beyond / most)
        done = late_now(snapshot, self.slo_s)
        if done is not None and done[1] > 1 - self.share:
            raised = max(raised, now * math.exp(beyond))
        return float(raised)

    def _limited(self, packing: Packing, wanted: float) -> int:
        """Hosts that are wanted, whole ones, as far as there are any and packing them takes."""
        limit = packing.host_count + max(MOST_MORE, packing.host_count)
        if wanted > limit:
            packing.because("limit", f"a decision adds {limit - packing.host_count} hosts at most")
        most = packing.snapshot.offer.max_hosts
        return math.ceil(min(wanted, limit if most is None else min(limit, most)))

    def _price(self, memory: TideMemory, need: Need, care: float) -> float:
        """What a missing host costs in late items, in prices of a host.

        The queue grows meanwhile, so that items of all hosts are late, not only its own. How many
        of them is measured: where the SLO leaves time to catch up, hardly any.
        """
        busy = max(need.busy, LEAST_BUSY)
        multiple = math.exp(min(care, math.log(self._most_price)))
        return memory.part_late * self.late_price * multiple * busy

    def _hosts(
        self, packing: Packing, need: Need, forecast: Forecast, rate: float, memory: TideMemory
    ) -> tuple[int, list[Unmet]]:
        """Hosts for the forecast, and demand that no number of hosts meets."""
        if rate > 0 and forecast.rate_per_s > 0:
            return need.hosts(forecast.rate_per_s / rate, forecast.quantile)
        if memory.per_host is None:  # nothing has ever arrived
            return 1, []
        return max(1, math.ceil(forecast.rate_per_s / memory.per_host)), []

    def _spare(
        self, snapshot: Snapshot, need: Need, price: float, hosts: int, rate: float
    ) -> float:
        """Spare hosts that are worth their price while too many items wait, a real number.

        With x spare hosts, b host-seconds of waiting work are done after b/x seconds, in which all
        items are late. A second of that costs `price`, and a host is paid for a unit of U seconds:
        x·U + price·b/x is least at x = √(price·b/U).
        """
        if rate <= 0:
            return 0.0
        work_s = (_waiting(snapshot) / rate - self.slo_s) * need.busy
        # What the hosts that are there do until further ones run.
        left_s = work_s - max(0.0, hosts - need.busy) * snapshot.offer.startup_s
        if left_s <= 0:
            return 0.0
        unit_s = max(snapshot.offer.billing_unit_s, snapshot.interval_s or 0.0)
        return min(need.admitted, math.sqrt(price * left_s / unit_s))

    # --- letting go ---------------------------------------------------------------------------

    def _release(
        self, packing: Packing, need: Need, forecast: Forecast, rate: float, needs: Needs
    ) -> None:
        """Release hosts whose paid unit ends and that were not needed for a unit."""
        now, snapshot = packing.host_count, packing.snapshot
        keep = max(count for _, count in needs)
        if keep >= now:
            return
        if need.held:
            packing.because("held", f"{need.held}: nothing is released")
            return
        if rate > 0 and forecast.rate_per_s > 0:
            keep = max(keep, need.safe_hosts(forecast.rate_per_s / rate, forecast.quantile))
        ending = [h for h in snapshot.hosts if packing.has(h.id) and _ends(snapshot, h)]
        released = ending[::-1][: max(0, now - keep)]
        for host in released:
            packing.because("spare", f"the paid unit of {host.id} ends, and it is not needed")
            if not packing.evacuate(host.id):
                packing.release(host.id)
        if released:
            set_counts(packing, need.counts(packing.host_count))


def _divide_again(packing: Packing, need: Need, factor: float) -> None:
    """Give an operator that falls behind instances of others, on the hosts that there are.

    Its cost was unknown when the hosts came, or its input has grown since and that of others not.
    factor: multiple of the present rate that the hosts are for.
    """
    wanted = need.relieved(factor)
    if wanted is not None:
        more = [name for name, count in wanted.items() if count > packing.count(name)]
        text = f"{', '.join(more)}: more slots on the same hosts, since a queue grows without end"
        packing.because("divided", text)
        set_counts(packing, wanted, packing.host_count)


def _with_plan(memory: TideMemory, ensemble: Ensemble, overtaken: bool, needs: Needs) -> TideMemory:
    """The memory after a decision; `replace` takes several times as long."""
    return TideMemory(
        memory.promise,
        ensemble,
        needs,
        memory.per_host,
        overtaken,
        memory.late_work,
        memory.missing,
        memory.idle_since_s,
    )


def _arriving(snapshot: Snapshot) -> float | None:
    """Items per second from outside, of the entries whose rate is known; None if none is."""
    outside = snapshot.external_rates()
    if outside is not None:
        return math.fsum(outside.values())
    rates = (snapshot.reading[name].arrival_rate_per_s for name in snapshot.topology.entries)
    known = [rate for rate in rates if rate is not None]
    return math.fsum(known) if known else None


def _waiting(snapshot: Snapshot) -> float:
    """Items that wait at the entries, as far as it is known."""
    return math.fsum(snapshot.backlog(name) or 0.0 for name in snapshot.topology.entries)


def _sure(price: float) -> float:
    """The newsvendor's quantile: a missing host costs `price` times as much as an idle one."""
    return price / (1 + price)


def _ends(snapshot: Snapshot, host: Host) -> bool:
    """Whether the paid unit of a host ends before the next decision; always if it is free."""
    if host.lease is None or host.lease.price_per_unit_usd == 0:
        return True
    return host.lease.time_left_s(snapshot.time_s) <= (snapshot.interval_s or 0.0) + 1e-9


def _paid_s(snapshot: Snapshot) -> float:
    """Seconds for which a host is paid at once, 0 if it is free."""
    offer = snapshot.offer
    return offer.billing_unit_s if offer.price_per_unit_usd > 0 else 0.0


def _most_turns(snapshot: Snapshot) -> float:
    """Usual turns for which one counts at most: care for a spike is paid for a unit at least."""
    return MOST_TURNS if _paid_s(snapshot) <= LONGEST_HOLD_S else 1.0


def _remembered(snapshot: Snapshot, needs: Needs, hosts: int, least_s: float) -> Needs:
    """The needs that no later one reaches, of the time for which a host is kept without need.

    That is the last unit, because to keep a host for a unit costs as much as to lease it again. Of
    a long unit, the last minutes say more about the next one than its largest need. least_s: time
    that is remembered at least, in seconds.
    """
    now_s = snapshot.time_s
    since_s = now_s - max(min(_paid_s(snapshot), LONGEST_HOLD_S), least_s)
    return (*(n for n in needs if since_s < n[0] < now_s and n[1] > hosts), (now_s, hosts))


def _sentence(
    forecast: Forecast, provided: Forecast, lead_s: float, hosts: int, price: float, spare: float
) -> str:
    """The forecast, how sure it is, the need and the price of being wrong."""
    sure = f"{100 * forecast.quantile:.1f} % sure, mostly by {forecast.best}"
    more = ""
    if provided.rate_per_s > forecast.rate_per_s:
        more = f", {provided.rate_per_s:.4g}/s provided for"
    backlog = f", {min(spare, hosts):.1f} of them for the backlog" if spare else ""
    return (
        f"{forecast.rate_per_s:.4g}/s at most in {show_duration(lead_s)} ({sure}){more}: "
        f"{hosts} host{'s' * (hosts != 1)}{backlog}; a missing one costs {price:.3g} times its "
        "price"
    )
