"""Weigh every change by what it costs: batches take longer after it, and it may not last.

A change of the number of hosts disturbs a streaming application: state is loaded on other hosts,
caches are cold, tasks move. The guard measures this: for a while after each change it adds up by
how much the batches take longer than both before the change and after it has settled. It also
measures for how long hosts are not needed before they are needed again.

A release is worth it when the hosts that it saves, times the time for which they will not be
needed, exceed what it costs to release them and to take them back. All of this is in host-seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tidegate.codec import Value
from tidegate.guards.base import Guard, fresh_start, unchanged
from tidegate.guards.limits import ReleaseLimit
from tidegate.guards.overload import MORE, overloaded
from tidegate.model import OperatorReading, Plan, Reason, Snapshot
from tidegate.packing.reshape import Reshaped, without_scale_in, without_scale_out
from tidegate.policies.base import setting
from tidegate.policies.wrapper import WrapperMemory
from tidegate.units import show_duration
from tidegate.values import changed

__all__ = ["ChangeCost", "ChangeCostMemory", "Disturbance", "Episode", "Latest", "Usual", "Watched"]

REMEMBERED = 8
"""Number of disturbances, and of times without need, that are remembered."""
ENOUGH = 3
"""Number of batches that show how long they take when all has settled."""
MOST_BATCHES = 64
"""Number of batches of a query that are remembered after a change."""
LONGEST = 5
"""An episode of changes ends after the time to watch times this, whatever was seen."""
LITTLE_MB = 10.0
"""Size of the state up to which it makes no difference, in MB."""
NOISE = 1.2
"""A batch counts as disturbed when it takes longer than its usual duration times this."""
CALM = 0.5
"""Share of its SLO up to which the latency of a query is in no danger."""


@dataclass(frozen=True, slots=True)
class Usual(Value):
    """The batches of a query as they usually are: median duration, and rows per second."""

    query: str
    duration_s: float
    rate_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Latest(Value):
    """The durations of a query's recent batches in the last turn, in seconds, oldest first."""

    query: str
    durations_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Watched(Value):
    """A query after a change.

    before: its batches before it. durations_s: durations of its batches since then, in seconds, as
    if no more rows arrived than before.
    """

    before: Usual
    durations_s: tuple[float, ...] = ()

    def late_s(self, fewer: float) -> float:
        """By how much its batches took longer than before and than in the end, in total.

        fewer: how many times as many hosts there were before. That many times as long is what
        fewer hosts explain, and what remains at the end is the new normal: neither disturbs.
        """
        base_s = self.before.duration_s * fewer
        if len(self.durations_s) >= ENOUGH:
            base_s = min(base_s, *self.durations_s[-ENOUGH:])
        base_s = max(base_s, self.before.duration_s)
        return sum(taken - base_s for taken in self.durations_s if taken > NOISE * base_s)


@dataclass(frozen=True, slots=True)
class Episode(Value):
    """A change, or several in one direction, whose effect is still being measured.

    began_s: time of the last of them. hosts: running hosts before them. queries: the queries since
    then. state_mb: size of the state before them, None when unknown.
    """

    began_s: float
    hosts: int
    queries: tuple[Watched, ...]
    state_mb: float | None = None


@dataclass(frozen=True, slots=True)
class Disturbance(Value):
    """By how much batches took longer after a change, in seconds, and the size of the state."""

    late_s: float
    state_mb: float | None = None


@dataclass(frozen=True, slots=True)
class ChangeCostMemory(Value):
    """What was measured so far.

    last_s: time of the last turn. hosts: running hosts then. latest: batches then. usual: batches
    when no change was under way. calm: whether it was not overloaded then. rate_per_s: mean of the
    recent total rates. episode: the one under way. disturbances: the last ones. unneeded_s: for how
    long hosts were not needed, the last times. released: (time, number of hosts before) of releases
    after which the hosts were not needed so far. fewer_since_s: since when fewer hosts than there
    are have been planned, None when that is not so. fewer_than: the number of hosts at that time.
    """

    last_s: float | None = None
    hosts: int | None = None
    latest: tuple[Latest, ...] = ()
    usual: tuple[Usual, ...] = ()
    calm: bool = True
    rate_per_s: float | None = None
    episode: Episode | None = None
    disturbances: tuple[Disturbance, ...] = ()
    unneeded_s: tuple[float, ...] = ()
    released: tuple[tuple[float, int], ...] = ()
    requested: int | None = None
    fewer_since_s: float | None = None
    fewer_than: int = 0


@dataclass(frozen=True)
class ChangeCost(Guard):
    """Make a change only when it gains more than the disturbance that it causes.

    A release is held back while the host-seconds that it saves are fewer than those that are lost
    when hosts are released and taken back. A scale-out is held back only if the disturbance was
    measured, no latency is in danger, the load does not rise, and the latency that the policy
    predicts is hardly better. Applications without micro-batches are left alone.
    """

    name: ClassVar[str] = "change-cost"
    own_memory: ClassVar[type] = ChangeCostMemory

    late_s: float = setting(
        5.0, "how much longer batches take after a change, until it was measured, s", low=0
    )
    unneeded_s: float = setting(
        600.0, "time for which hosts are not needed, until it was measured, s", low=0
    )
    watch_s: float = setting(60.0, "time after a change in which batches are compared, s", low=0)

    def forget_later(self, own: ChangeCostMemory, now_s: float) -> ChangeCostMemory:
        """Keep what was measured, but nothing that is under way."""
        if own.last_s is None or own.last_s <= now_s:
            return own
        return ChangeCostMemory(disturbances=own.disturbances, unneeded_s=own.unneeded_s)

    def decide(self, snapshot: Snapshot, memory: WrapperMemory) -> tuple[Plan, WrapperMemory]:
        """Weigh the plan; a release that is worth it has a reason with both figures."""
        plan, after = super().decide(snapshot, memory)
        now, planned = len(snapshot.requested.hosts), len(plan.deployment.hosts)
        if planned < now and _has_batches(snapshot):
            text = self._scale_in(snapshot, after.own, now - _goal(plan)).text
            plan = changed(plan, reasons=(*plan.reasons, Reason(self.name, text)))
        return plan, after

    def limit(
        self, snapshot: Snapshot, plan: Plan, own: ChangeCostMemory
    ) -> tuple[Reshaped, str, ChangeCostMemory]:
        """Forbid a change that costs more than it gains."""
        own = self._after(snapshot, plan, own)
        now, planned = len(snapshot.requested.hosts), len(plan.deployment.hosts)
        if planned == now or not _has_batches(snapshot):
            return unchanged(plan), "", own
        if planned < now:
            weighed = self._scale_in(snapshot, own, now - _goal(plan))
            if weighed.gain > weighed.cost:
                return unchanged(plan), "", own
            kept = without_scale_in(snapshot, plan.deployment, self.measure)
            return Reshaped(kept), weighed.text, own
        why = self._against_scale_out(snapshot, plan, own)
        if not why:
            return unchanged(plan), "", own
        return Reshaped(without_scale_out(snapshot, plan.deployment, self.measure)), why, own

    # --- what is weighed ----------------------------------------------------------------------

    def _scale_in(self, snapshot: Snapshot, own: ChangeCostMemory, released: int) -> _Weighed:
        """The host-seconds that a release saves, and those that it costs."""
        now, startup_s = len(snapshot.requested.hosts), snapshot.offer.startup_s
        late_s = self.expected_late_s(snapshot, own)
        lasts_s = self.expected_unneeded_s(snapshot.time_s, own)
        # Hosts that are needed again are missing until they have started.
        gain, cost = released * max(0.0, lasts_s - startup_s), 2 * late_s * now
        hosts = "1 host" if released == 1 else f"{released} hosts"
        measured = "take" if own.disturbances else "are assumed to take"
        starts = f", less {show_duration(startup_s)} to start again" if startup_s else ""
        text = (
            f"releasing {hosts} saves {gain:,.0f} host-seconds in the {show_duration(lasts_s)} "
            f"until the next change{starts}; releasing and taking back costs {cost:,.0f}: "
            f"batches after a change {measured} {show_duration(late_s)} longer on {now} hosts"
        )
        return _Weighed(gain, cost, text)

    def _against_scale_out(self, snapshot: Snapshot, plan: Plan, own: ChangeCostMemory) -> str:
        """Why a scale-out is not worth it; empty if it is, or if a latency is in danger."""
        then_s, now_s = plan.predicted.sojourn_s, snapshot.latency.mean_s
        if not own.disturbances or then_s is None or now_s is None or plan.unmet:
            return ""
        if _in_danger(snapshot, then_s) or self._rises(snapshot, own):
            return ""
        late_s = self.expected_late_s(snapshot, own)
        lasts_s = self.expected_unneeded_s(snapshot.time_s, own)
        # Items that arrive while batches take longer wait for up to that time.
        gain, cost = max(0.0, now_s - then_s) * lasts_s, late_s**2
        if gain > cost:
            return ""
        return (
            f"more hosts would save {show_duration(max(0.0, now_s - then_s))} of latency until the "
            f"next change in {show_duration(lasts_s)}, and batches after a change take "
            f"{show_duration(late_s)} longer; no latency is in danger"
        )

    def expected_late_s(self, snapshot: Snapshot, own: ChangeCostMemory) -> float:
        """By how much batches will take longer after a change, in seconds.

        This is the median of what was measured, in proportion to the size of the state where that
        is known.
        """
        state_mb = _state_mb(snapshot)
        found = []
        for seen in own.disturbances:
            scale = 1.0
            if state_mb is not None and seen.state_mb is not None:
                ratio = max(LITTLE_MB, state_mb) / max(LITTLE_MB, seen.state_mb)
                scale = min(4.0, max(0.25, ratio))
            found.append(seen.late_s * scale)
        return _median(found, self.late_s)

    def expected_unneeded_s(self, now_s: float, own: ChangeCostMemory) -> float:
        """For how long hosts will not be needed, in seconds.

        This is the median of the last times, or the time for which they have not been needed
        already, whichever is longer.
        """
        usual_s = _median(own.unneeded_s, self.unneeded_s)
        since_s = own.fewer_since_s
        return usual_s if since_s is None else max(usual_s, now_s - since_s)

    # --- what is remembered -------------------------------------------------------------------

    def _after(self, snapshot: Snapshot, plan: Plan, own: ChangeCostMemory) -> ChangeCostMemory:
        """The memory with this turn's measurements."""
        if own.last_s is not None and fresh_start(own.last_s, snapshot, self.watch_s):
            # It is unknown what happened in the meantime.
            own = ChangeCostMemory(disturbances=own.disturbances, unneeded_s=own.unneeded_s)
        own = _need_noted(snapshot, plan, own)
        own = self._measured(snapshot, own)
        rate, mean = _rate(snapshot), own.rate_per_s
        if rate is not None:
            mean = rate if mean is None else 0.7 * mean + 0.3 * rate
        # In full, since `changed` takes longer, and this runs at every turn.
        return ChangeCostMemory(
            last_s=snapshot.time_s,
            hosts=snapshot.hosts_running,
            latest=tuple(
                [
                    Latest(r.operator, r.batches.recent_durations_s[-MOST_BATCHES:])
                    for r in snapshot.batched
                    if r.batches is not None
                ]
            ),
            usual=own.usual,
            calm=not overloaded(snapshot),
            rate_per_s=mean,
            episode=own.episode,
            disturbances=own.disturbances,
            unneeded_s=own.unneeded_s,
            released=own.released,
            requested=len(snapshot.requested.hosts),
            fewer_since_s=own.fewer_since_s,
            fewer_than=own.fewer_than,
        )

    def _measured(self, snapshot: Snapshot, own: ChangeCostMemory) -> ChangeCostMemory:
        """Begin, continue or end an episode."""
        now_s, hosts = snapshot.time_s, snapshot.hosts_running
        last, episode = own.hosts, own.episode
        if last is not None and hosts != last:
            if episode is not None and (hosts > last) != (last > episode.hosts):
                own, episode = _ended(own, episode, last), None  # the direction has changed
            if episode is not None:
                episode = changed(episode, began_s=now_s)
            elif own.usual and own.calm:  # the change itself may overload it
                queries = tuple(map(Watched, own.usual))
                episode = Episode(now_s, last, queries, state_mb=_state_mb(snapshot))
        if episode is not None:
            episode = _continued(episode, snapshot, own.latest)
            if not self._ends(episode, snapshot):
                return changed(own, episode=episode)
            own = _ended(own, episode, hosts)
        usual = tuple(_usual(snapshot)) if snapshot.batched else ()
        return own if usual == own.usual else changed(own, usual=usual)

    def _ends(self, episode: Episode, snapshot: Snapshot) -> bool:
        """Whether the time is over and every query that has rows had enough batches."""
        watched_s = snapshot.time_s - episode.began_s
        if watched_s >= LONGEST * self.watch_s:
            return True
        return watched_s >= self.watch_s and all(
            len(query.durations_s) >= ENOUGH
            or not (reading := snapshot.reading.get(query.before.query))
            or not reading.arrival_rate_per_s
            for query in episode.queries
        )

    def _rises(self, snapshot: Snapshot, own: ChangeCostMemory) -> bool:
        """Whether more arrives than on average of the recent turns, or that is unknown."""
        rate = _rate(snapshot)
        if rate is None or own.rate_per_s is None:
            return True
        return rate > MORE * own.rate_per_s


@dataclass(frozen=True, slots=True)
class _Weighed:
    """What a change gains and costs, in host-seconds, and both in words."""

    gain: float
    cost: float
    text: str


def _median(measured: Sequence[float], assumed: float) -> float:
    """The median of what was measured. A single value counts as much as the assumption."""
    return statistics.median(measured if len(measured) > 1 else (*measured, assumed))


def _goal(plan: Plan) -> int:
    """The hosts at which a release ends; one that is cut into steps counts as a whole."""
    for binding in plan.bindings:
        if binding.guard == ReleaseLimit.name:
            return binding.before
    return len(plan.deployment.hosts)


def _need_noted(snapshot: Snapshot, plan: Plan, own: ChangeCostMemory) -> ChangeCostMemory:
    """The memory with how long hosts were not needed.

    This is the time from a release until more hosts are planned again. Where a release was held
    back, it is the time for which it was planned.
    """
    now_s, now = snapshot.time_s, len(snapshot.requested.hosts)
    planned, since_s = len(plan.deployment.hosts), own.fewer_since_s
    # A policy may keep hosts that it does not need until the time that is paid for ends.
    needed = planned if plan.predicted.hosts_needed is None else plan.predicted.hosts_needed
    lasted: list[float] = []
    released = own.released
    if own.requested is not None and now < own.requested:
        released = (*released, (now_s, own.requested))[-REMEMBERED:]
    if planned > now:
        lasted += [now_s - at for at, before in released if before <= planned]
        released = tuple(seen for seen in released if seen[1] > planned)
    if since_s is not None and needed >= now:
        if now >= own.fewer_than:
            lasted.append(now_s - since_s)
        own = changed(own, fewer_since_s=None, fewer_than=0)
    elif since_s is None and needed < now:
        own = changed(own, fewer_since_s=now_s, fewer_than=now)
    if not lasted and released == own.released:
        return own
    unneeded_s = (*own.unneeded_s, *lasted)[-REMEMBERED:]
    return changed(own, released=released, unneeded_s=unneeded_s)


def _has_batches(snapshot: Snapshot) -> bool:
    batched = snapshot.batched
    return bool(batched) and any(r.batches and r.batches.recent_durations_s for r in batched)


def _usual(snapshot: Snapshot) -> Iterator[Usual]:
    for reading in snapshot.batched:
        if reading.batches is not None and reading.batches.recent_durations_s:
            median_s = statistics.median(reading.batches.recent_durations_s)
            yield Usual(reading.operator, median_s, reading.arrival_rate_per_s)


def _ended(own: ChangeCostMemory, episode: Episode, hosts: int) -> ChangeCostMemory:
    """The memory with what an episode has shown. hosts: running hosts at its end."""
    own = changed(own, episode=None)
    if not any(query.durations_s for query in episode.queries):
        return own
    fewer = max(1.0, episode.hosts / max(1, hosts))
    seen = Disturbance(max(q.late_s(fewer) for q in episode.queries), episode.state_mb)
    return changed(own, disturbances=(*own.disturbances, seen)[-REMEMBERED:])


def _continued(episode: Episode, snapshot: Snapshot, latest: Sequence[Latest]) -> Episode:
    """The episode with the batches that ended since the last turn."""
    before = {seen.query: seen.durations_s for seen in latest}
    queries = []
    for watched in episode.queries:
        reading = snapshot.reading.get(watched.before.query)
        fresh = _fresh(reading, before.get(watched.before.query, ()))
        scale = _more_rows(reading, watched.before)
        known = (*watched.durations_s, *(taken_s / scale for taken_s in fresh))
        first, last = known[: MOST_BATCHES - ENOUGH], known[MOST_BATCHES - ENOUGH :]
        queries.append(changed(watched, durations_s=(*first, *last[-ENOUGH:])))
    return changed(episode, queries=tuple(queries))


def _fresh(reading: OperatorReading | None, before: Sequence[float]) -> tuple[float, ...]:
    """The durations that were not there in the last turn: those after the common part."""
    if reading is None or reading.batches is None:
        return ()
    now = reading.batches.recent_durations_s[-MOST_BATCHES:]
    old = tuple(before)
    for gone in range(len(old) + 1):
        kept = old[gone:]
        if now[: len(kept)] == kept:
            return now[len(kept) :]
    return now


def _more_rows(reading: OperatorReading | None, usual: Usual) -> float:
    """How many times as many rows arrive as usual, at least 1."""
    if reading is None or not reading.arrival_rate_per_s or not usual.rate_per_s:
        return 1.0
    return max(1.0, reading.arrival_rate_per_s / usual.rate_per_s)


def _state_mb(snapshot: Snapshot) -> float | None:
    known = [r.state_mb for r in snapshot.operators if r.state_mb is not None]
    return sum(known) if known else None


def _rate(snapshot: Snapshot) -> float | None:
    """Items per second that arrive from outside, None when a rate is missing."""
    rates = snapshot.external_rates()
    return None if rates is None else sum(rates.values())


def _in_danger(snapshot: Snapshot, predicted_s: float) -> bool:
    """Whether a latency is not known to be well within its SLO, now and by the prediction."""
    if overloaded(snapshot) or snapshot.latency.at_least or snapshot.latency.p95_s is None:
        return True
    for name, reading in snapshot.reading.items():
        slo_s = snapshot.operator(name).slo_s
        if slo_s is None:
            continue
        p95_s = snapshot.latency.p95_s if reading.delay.p95_s is None else reading.delay.p95_s
        waits_s = reading.backlog_s or 0.0
        if reading.delay.at_least or max(p95_s, waits_s, predicted_s) > CALM * slo_s:
            return True
    return False
