"""DRS: as many processors for each operator as a queueing network requires."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from tidegate.model import Plan, Prediction, Snapshot, Unmet
from tidegate.packing import Packing
from tidegate.packing.packing import most_hosts
from tidegate.packing.sizing import consolidate, set_counts
from tidegate.policies.base import NoMemory, Policy, Situation, Style, setting
from tidegate.policies.drs.batches import BatchJob, read_job
from tidegate.policies.drs.networks import (
    JacksonNetwork,
    assigned,
    fewest_hosts,
    read_network,
    slots_of_host,
)
from tidegate.theory import microbatch
from tidegate.units import show_duration

__all__ = ["Drs"]


@dataclass(frozen=True)
class Drs(Policy):
    """The fewest processors that keep the mean latency within `t_max_s`, where they help most.

    Each operator is an M/M/k queue, and all operators form a Jackson network. The fewest processors
    that meet the bound are rounded up to whole hosts, and all processors of these hosts are
    assigned (a processor is one instance). If the measured latency exceeds the estimate, the
    estimate is raised by the same factor. A backlog counts as arrivals over `catch_up_s`. With an
    unchanged number of hosts, instances change only when the estimate falls by `min_gain`. Hosts
    are released only when the bound holds with that margin.

    If operators have measured micro-batches, `tidegate.theory.microbatch` replaces the queues. The
    bound is then on the latency of the *oldest* item of a batch, so that nearly all items are
    within it. `t_max_s` is for the queries with the largest SLO; the bounds of the others are lower
    in proportion to their SLO. Items that usually arrive in a period are not a backlog. Hosts are
    released down to where `headroom` more input would still meet the bounds, so that noise in the
    measurements changes nothing. While the batches do not separate fixed work from the work on
    rows, a plan is right in both cases, and a turn at most doubles the hosts.

    An operator without items needs no more than one instance. An operator with items whose service
    time is unknown keeps its instances, and the others are planned for.

    The paper's Fig. 10, ExpA: 17 processors on four machines of five (three reserved) exceed
    500 ms; a fifth machine and 10:11:1 meet it.

    >>> from tidegate.testing import station_snapshot
    >>> policy = Drs(t_max_s=0.5, reserved=3)
    >>> rates = {"extract": (40, 5.714), "match": (40, 5.333), "aggregate": (40, 400)}
    >>> now = station_snapshot(rates, allocation=(8, 8, 1), cores_per_host=5, reserved=3)
    >>> plan, _ = policy.decide(now, NoMemory())
    >>> dict(plan.deployment.counts), plan.bounded_target
    ({'aggregate': 1, 'extract': 10, 'match': 11}, 5)

    T. Z. J. Fu et al., *DRS: Dynamic Resource Scheduling for Real-Time Analytics over Fast
    Streams*, ICDCS 2015.
    """

    name: ClassVar[str] = "drs"
    paper: ClassVar[str] = "DRS (Fu et al. 2015)"
    style: ClassVar[Style] = "instances"
    needs: ClassVar[tuple[str, ...]] = ("operator.arrival_rate_per_s", "operator.service_time_s")

    t_max_s: float = setting(
        1.0, "bound on the mean end-to-end latency (micro-batches: the oldest item's), s", low=1e-6
    )
    model: Literal["mmk", "ggk"] = setting(
        "mmk", "mmk: exponential; ggk: measured variability (Allen–Cunneen)", choices=("mmk", "ggk")
    )
    min_gain: float = setting(
        0.05, "smallest fall of latency for which instances change, share", low=0, high=1
    )
    max_correction: float = setting(
        3.0, "largest correction by measured over estimated latency, ratio", low=1
    )
    catch_up_s: float = setting(
        60.0,
        "time in which to process a backlog, s; 0: ignore it, as in the paper",
        low=0,
    )
    reserved: int = setting(0, "processors that other programs use, over all hosts", low=0)

    headroom: float = setting(
        0.2,
        "micro-batches: additional input to plan for when scaling out and in, share",
        low=0,
    )

    @classmethod
    def suggested(cls, situation: Situation) -> dict[str, Any]:
        """A bound that keeps nearly all items within the latency target.

        In micro-batches the bound is on the oldest item, so a part of the target is enough of a
        margin. Otherwise it is on the mean, and half of the target leaves room for the tail.
        """
        if situation.slo_s is None or situation.micro_batches:
            return super().suggested(situation)
        return {"t_max_s": max(situation.slo_s / 2, 1.2 * (situation.floor_s or 0.0))}

    def decide(self, snapshot: Snapshot, memory: NoMemory) -> tuple[Plan, NoMemory]:
        """Estimate, correct, and allocate where the gain is large enough."""
        packing = Packing(snapshot)
        job = read_job(
            snapshot, t_max_s=self.t_max_s, catch_up_s=self.catch_up_s, reserved=self.reserved
        )
        if job is not None:
            return self._decide_batches(packing, job), memory
        network = read_network(
            snapshot,
            t_max_s=self.t_max_s,
            catch_up_s=self.catch_up_s,
            general=self.model == "ggk",
        )
        if network is None:
            packing.because("missing", "an arrival rate or service time is unknown: no change")
            return packing.plan(), memory
        return self._decide_queues(packing, network), memory

    # --- micro-batches ------------------------------------------------------------------------

    def _decide_batches(self, packing: Packing, job: BatchJob) -> Plan:
        if self.reserved:
            _set_aside(packing, self.reserved, slots_of_host(packing.snapshot))
        hosts_now = packing.host_count
        hosts, unmet = self._hosts_for_batches(packing, job, hosts_now)
        packing.unmet.extend(unmet)
        for sentence in job.ceilings:
            packing.because("ceiling", sentence)

        query, now_s, bound_s = job.tightest(hosts_now)
        _, then_s, _ = job.tightest(hosts)
        counts = packing.counts
        if hosts == hosts_now and not self._worth(job, counts, now_s, then_s):
            return packing.plan(Prediction(sojourn_s=_known(now_s)))
        wanted = job.counts(hosts)
        target = dict.fromkeys(packing.snapshot.topology.by_name, 1)
        target |= {q.name: k for q, k in zip(job.queries, wanted, strict=True)}
        target |= {name: max(1, counts[name]) for name in job.unknown}
        if hosts > hosts_now or target != {name: counts[name] for name in target}:
            text = query + self._why(now_s, then_s, wanted, hosts, bound_s)
            packing.because("latency" if hosts >= hosts_now else "spare", text)
            if hosts > hosts_now and (rounds := job.rounds(hosts)):
                packing.because("rounds", rounds)
        set_counts(packing, target, hosts)
        consolidate(packing, at_least=hosts)
        return packing.plan(Prediction(sojourn_s=_known(then_s)))

    def _hosts_for_batches(
        self, packing: Packing, job: BatchJob, hosts_now: int
    ) -> tuple[int, list[Unmet]]:
        """Number of hosts for all bounds, and unmet demand."""
        # Noise of the overhead moves nothing: it must be missed for sure, or kept for sure.
        need = job.need(doubt=-1)
        unmet = list(need.unmet)
        if need.hosts > hosts_now:
            need = job.need(headroom=self.headroom)
            if not job.identified and need.hosts > 2 * hosts_now:
                why = "batches of one size do not show what rows cost: the hosts at most double"
                packing.because("careful", why)
                need = replace(need, hosts=2 * hosts_now)
        elif job.unknown:
            if need.hosts < hosts_now:
                names = ", ".join(job.unknown)
                packing.because("missing", f"no cost of {names} is known yet: nothing is released")
            need = replace(need, hosts=hosts_now)
        elif job.late:
            if need.hosts < hosts_now:
                names = ", ".join(job.late)
                packing.because("late", f"{names}: beyond the SLO already, so nothing is released")
            need = replace(need, hosts=hosts_now)
        else:
            safe = job.need(headroom=self.headroom, margin=self.min_gain, doubt=1).hosts
            if safe >= hosts_now and job.may_try(hosts_now - 1, self.headroom, self.min_gain):
                packing.because("careful", "batches with one host less will show what rows cost")
                safe = hosts_now - 1
            need = replace(need, hosts=min(safe, hosts_now))
            if need.hosts < hosts_now and not math.isfinite(job.tightest(need.hosts)[1]):
                why = "more arrives than can be processed, so nothing is released"
                packing.because("late", why)
                need = replace(need, hosts=hosts_now)
        most = most_hosts(packing.snapshot)
        if need.hosts > most:
            unmet.append(Unmet("", need.hosts - most, f"at most {most} hosts are available"))
        hosts = min(need.hosts, most)
        # Hosts that the maximum leaves of a larger need may save no round of tasks. A job that
        # falls behind gets them all the same: its tasks are never quite equal.
        if math.isfinite(job.tightest(hosts)[1]):
            while hosts > hosts_now and job.queries and job.slots(hosts - 1) == job.slots(hosts):
                hosts -= 1
        return hosts, unmet

    def _worth(self, job: BatchJob, counts: Mapping[str, int], now_s: float, then_s: float) -> bool:
        """Whether to change the instances on the hosts there are.

        Only queries that are parts of a chain have dedicated slots.
        """
        if not any(job.whole):
            return False
        have = [max(1, counts[query.name]) for query in job.queries]
        now_s = microbatch.oldest_s([q.admitted() for q in job.queries], have)
        return not math.isfinite(now_s) or then_s <= now_s * (1 - self.min_gain)

    # --- queues -------------------------------------------------------------------------------

    def _decide_queues(self, packing: Packing, network: JacksonNetwork) -> Plan:
        snapshot, slots = packing.snapshot, slots_of_host(packing.snapshot)
        if self.reserved:
            _set_aside(packing, self.reserved, slots)
        taken = self.reserved + sum(network.kept.values())
        counts, running = packing.counts, snapshot.running.counts
        now_s = network.sojourn_s([counts[name] for name in network.names])
        estimated_s = network.sojourn_s([running[name] for name in network.names])
        correction = self._correction(snapshot.latency.mean_s, estimated_s)
        hosts, unmet = fewest_hosts(snapshot, network, self.t_max_s, slots, taken, correction)
        hosts_now = packing.host_count
        packing.unmet.extend(unmet)

        if hosts < hosts_now:  # hosts that are not safe to release are used as well as possible
            then_s = network.sojourn_s(assigned(network, hosts * slots - taken))
            if correction * then_s > self.t_max_s * (1 - self.min_gain):
                hosts = hosts_now
        wanted = assigned(network, hosts * slots - taken)
        then_s = network.sojourn_s(wanted)
        worth = then_s <= now_s * (1 - self.min_gain) if math.isfinite(now_s) else True
        if hosts == hosts_now and not worth:
            return packing.plan(Prediction(sojourn_s=_known(correction * now_s)))

        target = {**network.kept, **dict(zip(network.names, wanted, strict=True))}
        if target != {name: counts[name] for name in target}:
            text = self._why(correction * now_s, correction * then_s, wanted, hosts)
            packing.because("latency" if hosts >= hosts_now else "spare", text)
            set_counts(packing, target)
        consolidate(packing, at_least=hosts)
        return packing.plan(Prediction(sojourn_s=_known(correction * then_s)))

    def _why(
        self,
        now_s: float,
        then_s: float,
        wanted: Sequence[int],
        hosts: int,
        bound_s: float | None = None,
    ) -> str:
        """The change in a sentence. now_s, then_s: estimates without and with it."""
        shape = f"{':'.join(map(str, wanted))} instances on {hosts} host{'s' * (hosts != 1)}"
        bound = show_duration(self.t_max_s if bound_s is None else bound_s)
        now = f"estimated {show_duration(now_s)} against a bound of {bound}"
        if not wanted:
            return f"there is no input: {hosts} host{'s' * (hosts != 1)}"
        if not math.isfinite(now_s):
            now = "more arrives than can be processed, and queues grow"
        if not math.isfinite(then_s):
            return f"{now}: {shape} are the maximum, and still not enough"
        return f"{now}: {shape} give {show_duration(then_s)}"

    def _correction(self, measured_s: float | None, estimated_s: float) -> float:
        """Measured over estimated mean latency, at least 1: an estimate is never lowered."""
        if measured_s is None or not math.isfinite(estimated_s) or estimated_s <= 0:
            return 1.0
        return min(self.max_correction, max(1.0, measured_s / estimated_s))


def _set_aside(packing: Packing, reserved: int, slots: int) -> None:
    """Reserve processors for other programs, on the oldest hosts with room."""
    slot = packing.snapshot.offer.capacity.cpu_cores / slots
    for left in packing.free.values():
        taken = min(reserved, math.floor(left[0] / slot + 1e-9))
        if taken > 0:
            left[0] -= taken * slot
            reserved -= taken


def _known(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None
