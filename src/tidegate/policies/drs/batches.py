"""DRS where operators are queries that work in micro-batches.

Every query is bounded by its own SLO. Along a chain the latencies add up; queries that do not feed
each other share the slots of the hosts and nothing else. A query without items needs no slots.

What the batches do not separate is taken at its worst: as long as they are all alike, the work of
a batch may depend on its rows or not, and a plan must be right in both cases.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tidegate.errors import LatencyUnreachable, NotEnoughProcessors, TopologyError
from tidegate.model import BatchCost, BatchReading, Estimate, OperatorReading, Snapshot, Unmet
from tidegate.model.topology import Operator, Topology
from tidegate.policies.base import AIM
from tidegate.theory import microbatch
from tidegate.theory.microbatch import BatchQuery, PathBound, Sizing
from tidegate.units import show_duration

__all__ = ["BatchJob", "Need", "read_job"]

MOST_PATHS = 64
"""Number of paths to an operator that are distinguished; with more, all count as a chain."""


@dataclass(frozen=True)
class Need:
    """The hosts that a job needs, and the demand that no number of hosts meets."""

    hosts: int
    unmet: tuple[Unmet, ...] = ()


@dataclass(frozen=True)
class BatchJob:
    """The queries of an application, as a snapshot describes them.

    Attributes:
        queries: The queries with items. Work that could be fixed or on rows is on rows.
        light: The same queries; work that could be fixed or on rows is fixed.
        bounds: The bound of each path of queries.
        whole: For each query, whether it needs dedicated whole slots (it is part of a chain).
        demands: For each query, the cores of a host that one of its instances reserves.
        shares: For each query, the share of the slots that its batches hold, where that was
            measured; None otherwise, and for queries with dedicated slots.
        tasks: For each query, the tasks of a batch if they run in rounds on slots that no other
            query fills; None otherwise.
        unsure_s: For each query, half the width of the interval of its overhead, in seconds.
        floor_cores: Cores that one instance of every operator reserves.
        other_cores: Cores that the instances of the other operators reserve: one for an idle
            operator, those that it has for one whose cost is unknown.
        host_cores: Cores of a further host.
        present: Number of hosts that are there or requested.
        present_cores: Their cores in total; hosts may differ in size.
        reserved: Cores that other programs use, over all hosts.
        unknown: Operators with items, or perhaps with items, of which no cost is known.
        late: Operators whose items are known to be beyond their SLO already, while it is unknown by
            how much.
        ceilings: Sentences on sources that admit fewer items than arrive.
    """

    queries: tuple[BatchQuery, ...]
    light: tuple[BatchQuery, ...]
    bounds: tuple[PathBound, ...]
    whole: tuple[bool, ...]
    demands: tuple[float, ...]
    shares: tuple[float | None, ...]
    tasks: tuple[int | None, ...]
    unsure_s: tuple[float, ...]
    floor_cores: float
    other_cores: float
    host_cores: float
    present: int
    present_cores: float
    reserved: int = 0
    unknown: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    ceilings: tuple[str, ...] = ()

    @property
    def identified(self) -> bool:
        """Whether the batches separate fixed work from the work on rows."""
        return self.queries == self.light

    def need(self, headroom: float = 0.0, margin: float = 0.0, doubt: int = 0) -> Need:
        """The fewest hosts that meet every bound, whatever the batches do not separate.

        headroom: additional input, as a share. margin: part of each bound to stay below, as a
        share. doubt: -1 for the lowest overhead that the batches allow, 1 for the highest.
        """
        bounds = [replace(b, bound_s=b.bound_s * (1 - margin)) for b in self.bounds]
        needs = [
            self._need(self._doubted(queries, doubt), bounds, headroom)
            for queries in (self.queries, self.light)
        ]
        return max(needs, key=lambda need: need.hosts)

    def _doubted(self, queries: Sequence[BatchQuery], doubt: int) -> Sequence[BatchQuery]:
        if not doubt:
            return queries
        return [
            replace(q, overhead_s=max(0.0, q.overhead_s + doubt * unsure_s))
            for q, unsure_s in zip(queries, self.unsure_s, strict=True)
        ]

    def may_try(self, hosts: int, headroom: float, margin: float) -> bool:
        """Whether it is safe to find out what rows cost, with fewer hosts.

        At a constant rate and with the same slots, batches never show it. Fewer hosts make batches
        of another size. That is safe where the hosts are enough if the unknown work is fixed, and
        still within the limits themselves if it is on rows.
        """
        if self.identified or hosts < 1:
            return False
        bounds = [replace(b, bound_s=b.bound_s * (1 - margin)) for b in self.bounds]
        limits = [replace(b, bound_s=b.limit_s or b.bound_s) for b in self.bounds]
        return (
            self._need(self.light, bounds, headroom).hosts <= hosts
            and self._need(self.queries, limits, headroom).hosts <= hosts
        )

    def _need(
        self, queries: Sequence[BatchQuery], bounds: Sequence[PathBound], headroom: float
    ) -> Need:
        more = [
            replace(q, arrival_rate_per_s=q.arrival_rate_per_s * (1 + headroom)).admitted()
            for q in queries
        ]
        sizing = microbatch.fewest(more, bounds, self.whole)
        unmet = [
            Unmet("", 0, f"{self._label(bound)}{LatencyUnreachable(bound.bound_s, floor_s)}")
            for bound, floor_s in sizing.floors
        ]
        for index in sizing.short:
            query = more[index]
            needed, available = query.least_processors, math.floor(query.max_processors or 0)
            why = str(NotEnoughProcessors(needed, available, query.name))
            unmet.append(Unmet("", needed - available, why))
        return Need(self._hosts(sizing), tuple(unmet))

    def _hosts(self, sizing: Sizing) -> int:
        # An instance of a query that shares its slots is a share of them, whatever it reserves.
        cores = math.fsum(
            k * (demand if own else 1.0)
            for k, demand, own in zip(sizing.slots, self.demands, self.whole, strict=True)
        )
        cores = max(cores, self.floor_cores, *self._held(sizing)) + self.reserved
        if cores > self.present_cores or not self.present:
            more = (cores - self.present_cores) / self.host_cores
            return max(1, self.present + math.ceil(more - 1e-9))
        return max(1, math.ceil(cores * self.present / self.present_cores - 1e-9))

    def _held(self, sizing: Sizing) -> Iterator[float]:
        """The slots with which each query holds as many as it needs.

        Batches that hold a third of the slots need three times as many, at most one for each task.
        A share far below an equal one is not due to the other queries, and more slots would not
        raise what is held.
        """
        equal = 1 / max(1, len(self.queries))
        for query, slots, share, tasks in zip(
            self.queries, sizing.slots, self.shares, self.tasks, strict=True
        ):
            needed = slots if share is None else slots / max(share, equal / 2)
            if tasks is not None:
                yield microbatch.slots_for_rounds(needed, tasks)
            elif share is not None:
                yield min(needed, query.max_processors or math.inf)

    def _cores(self, hosts: int) -> float:
        """Cores of a number of hosts: of those that are there, and of further ones."""
        if hosts >= self.present:
            return self.present_cores + (hosts - self.present) * self.host_cores
        return hosts * self.present_cores / self.present

    def slots(self, hosts: int) -> tuple[float, ...]:
        """The slots that each query has on a number of hosts.

        Whole slots where they are given to queries, otherwise the share that batches hold; where
        that is unknown, in proportion to what the queries need.
        """
        room = max(0.0, self._cores(hosts) - self.reserved)
        wanted = microbatch.fewest([q.admitted() for q in self.queries], self.bounds, self.whole)
        if any(self.whole):
            return tuple(float(k) for k in self.counts(hosts))
        total = math.fsum(wanted.slots)
        found = []
        for query, slots, share, tasks in zip(
            self.queries, wanted.slots, self.shares, self.tasks, strict=True
        ):
            most = math.inf if query.max_processors is None else query.max_processors
            part = share
            if part is None:
                part = slots / total if total else 1.0
            usable = room if tasks is None else microbatch.in_rounds(room, tasks)
            found.append(min(usable * part, most))
        return tuple(found)

    def counts(self, hosts: int) -> tuple[int, ...]:
        """Instances of each query on a number of hosts: all that there is room for."""
        queries = [q.admitted() for q in self.queries]
        room = self._cores(hosts) - self.reserved - self.other_cores
        instances = math.floor(room / max(self.demands, default=1.0) + 1e-9)
        if any(self.whole):
            return self._assigned(queries, instances)
        needs = microbatch.fewest(queries, self.bounds, self.whole).slots
        return _in_proportion(needs, [q.max_processors for q in queries], instances)

    def _assigned(self, queries: Sequence[BatchQuery], instances: int) -> tuple[int, ...]:
        """Whole slots for each query, with the lowest latency in proportion to the bounds.

        Queries that fall behind with all slots that they can use get those that the others do not
        need for their bounds. Where the slots are too few for the others to keep up, all fall
        behind as little as possible.
        """
        limits = [q.max_processors for q in queries]
        sizing = microbatch.fewest(queries, self.bounds, self.whole)
        short = sizing.short
        others = [i for i in range(len(queries)) if i not in short]
        needed = sum(math.ceil(sizing.slots[i] - 1e-9) for i in others)
        usable = sum(math.ceil(limits[i] or 1.0) for i in short)
        room = max(instances - usable, min(needed, instances - len(short)))
        bounds_s = [self._bound_of(i) for i in range(len(queries))]
        try:
            some = microbatch.assign(
                [queries[i] for i in others], room, [bounds_s[i] for i in others]
            )
        except NotEnoughProcessors:
            needs = [q.load + q.fixed_work_s / b for q, b in zip(queries, bounds_s, strict=True)]
            return _in_proportion(needs, limits, instances)
        loads = [queries[i].load for i in short]
        rest = _in_proportion(loads, [limits[i] for i in short], instances - room)
        found = dict(zip([*others, *short], [*some, *rest], strict=True))
        return tuple(found[i] for i in range(len(queries)))

    def _bound_of(self, index: int) -> float:
        return min((b.bound_s for b in self.bounds if index in b.path), default=1.0)

    def tightest(self, hosts: int) -> tuple[str, float, float]:
        """The path that is closest to its bound: its name, latency and bound in seconds."""
        latencies = self.latencies_s(self.slots(hosts))
        found = [
            (self._label(bound), latency_s, bound.bound_s)
            for bound, latency_s in zip(self.bounds, latencies, strict=True)
        ]
        return max(found, key=lambda path: path[1] / path[2], default=("", 0.0, math.inf))

    def latencies_s(self, slots: Sequence[float]) -> list[float]:
        """The latency of the oldest items on each path in seconds. slots: of each query."""
        queries = [q.admitted() for q in self.queries]
        return [
            math.fsum(queries[i].oldest_s(slots[i]) for i in bound.path) for bound in self.bounds
        ]

    def rounds(self, hosts: int) -> str:
        """Why `hosts` and not one less, if the tasks run in rounds; empty otherwise."""
        for tasks in self.tasks:
            if tasks is None or hosts < 3:
                continue
            worth = [microbatch.in_rounds(self._cores(n), tasks) for n in range(1, hosts + 1)]
            low = worth.index(worth[-2]) + 1
            if worth[-1] > worth[-2] and low < hosts - 1:
                many, few = (round(tasks / k) for k in (worth[-2], worth[-1]))
                return (
                    f"{tasks} tasks take {many} rounds on {low} to {hosts - 1} hosts, "
                    f"and {few} on {hosts}"
                )
        return ""

    def _label(self, bound: PathBound) -> str:
        """The query that a bound is on, as the beginning of a sentence; empty with one query."""
        chain = len({b.path[-1] for b in self.bounds}) == 1
        return "" if chain else f"{self.queries[bound.path[-1]].name}: "


def _blocks_s(snapshot: Snapshot, name: str) -> float:
    """Seconds between two blocks of items from the queries before this one, 0 for no blocks.

    A query with a longer trigger interval sends what it commits in blocks. One with the same or a
    shorter interval counts as if its items came one by one.
    """
    reading = snapshot.reading[name].batches
    own_s = 0.0 if reading is None else reading.trigger_interval_s
    longest_s, todo, seen = 0.0, [name], {name}
    while todo:
        target = todo.pop()
        for edge in snapshot.topology.edges:
            if edge.target == target and edge.origin in snapshot.topology.by_name:
                before = snapshot.reading[edge.origin].batches
                longest_s = max(longest_s, 0.0 if before is None else before.trigger_interval_s)
                if edge.origin not in seen:
                    seen.add(edge.origin)
                    todo.append(edge.origin)
    return longest_s if longest_s > own_s else 0.0


def _flows(snapshot: Snapshot, costs: Mapping[str, BatchCost | None]) -> dict[str, float]:
    """Items per second that come to the queries that others feed, by the rates of the entries.

    A query passes on what it commits as a block, so that between two turns its follower gets all
    items of a long batch or none, and looks overloaded or idle. What flows from the sources along
    the edges has no blocks, and contains what still waits before an earlier query.

    Left out are queries after one that drops items or whose source admits too few, after an edge
    with a ratio that was only declared, those that sources feed as well and all after them; and
    those to which nothing flows at present, as items from before a pause may still be on their way.
    Empty while the rate of an entry is missing, or where ratios make a loop amplify.
    """
    topology = snapshot.topology
    outside = snapshot.external_rates()
    if outside is None:
        return {}
    try:
        rates = topology.propagate(outside)
    except TopologyError:
        return {}
    edges = [edge for edge in topology.edges if edge.origin in rates]
    held = [name for name, rate in rates.items() if _holds_back(snapshot, name, rate, costs[name])]
    unsure = {edge.target for edge in edges if not edge.counted} | topology.after(held)
    unsure |= {edge.target for edge in topology.edges_to_entries}
    unsure |= topology.after(unsure)
    return {e.target: rates[e.target] for e in edges if e.target not in unsure and rates[e.target]}


def _holds_back(snapshot: Snapshot, name: str, rate: float, cost: BatchCost | None) -> bool:
    """Whether a query drops items, or may read fewer than come. rate: of those, per second."""
    reading = snapshot.reading[name]
    if reading.dropped_per_s:
        return True
    if reading.batches is None or reading.batches.max_rows is None:
        return False
    return cost is None or _query(snapshot, name, rate, cost, reading.batches).admitted_per_s < rate


def _query(
    snapshot: Snapshot, name: str, rate_per_s: float, cost: BatchCost, batches: BatchReading
) -> BatchQuery:
    """A query as the model has it."""
    return BatchQuery(
        name,
        rate_per_s,
        cost.per_row.value,
        cost.overhead.value,
        batches.trigger_interval_s,
        _useful_slots(snapshot.operator(name).max_instances, cost, batches),
        cost.fixed_work.value,
        batches.max_rows,
        _blocks_s(snapshot, name),
    )


def read_job(
    snapshot: Snapshot, *, t_max_s: float, catch_up_s: float, reserved: int
) -> BatchJob | None:
    """The queries that a snapshot describes, None when no operator has measured micro-batches.

    t_max_s: bound on the latency of the oldest item for the operators with the largest SLO, in
    seconds; the bounds of others are lower in proportion to their SLO. catch_up_s: time in which to
    process a backlog, in seconds; 0 to ignore it. reserved: cores that other programs use.
    """
    if not snapshot.batched:
        return None
    topology = snapshot.topology
    costs = {name: _cost(snapshot, name) for name in topology.by_name}
    if not any(costs.values()):
        return None
    flows = _flows(snapshot, costs)
    names, heavy, light, unknown = [], [], [], []
    ceilings: list[str] = []
    for operator in topology.operators:
        reading, cost = snapshot.reading[operator.name], costs[operator.name]
        # Before its first batch, a query may never get an item.
        if operator.name in flows and cost is not None:
            reading = replace(reading, arrival_rate_per_s=flows[operator.name])
        if reading.arrival_rate_per_s == 0 and not reading.queue_length:
            continue  # idle: it was measured, and it needs no slot
        if reading.arrival_rate_per_s is None or cost is None or reading.batches is None:
            unknown.append(operator.name)
            continue
        rate = _rate(reading, reading.batches, t_max_s, catch_up_s)
        query = _query(snapshot, operator.name, rate, cost, reading.batches)
        names.append(operator.name)
        ceilings += _ceiling(query, reading.batches)
        if cost.fixed_work.identified or cost.per_row.identified:
            heavy.append(query)
            light.append(query)
        else:
            heavy.append(_with_work(query, cost.fixed_work.low, cost.per_row.high))
            light.append(_with_work(query, cost.fixed_work.high, cost.per_row.low))
    chained = {
        name
        for edge in topology.edges
        for name in (edge.origin, edge.target)
        if edge.origin in topology.by_name
    }
    bounds = tuple(_bounds(topology, names, t_max_s))
    whole = tuple(name in chained for name in names)
    tasks = tuple(_equal_tasks(snapshot, heavy, whole, unknown))
    present_cores = math.fsum(snapshot.capacities[h].cpu_cores for h in snapshot.requested.hosts)
    room = max(1.0, present_cores - reserved)
    others = {o.name: 1 for o in topology.operators if o.name not in names}
    others |= {name: max(1, snapshot.requested.counts[name]) for name in unknown}
    return BatchJob(
        tuple(heavy),
        tuple(light),
        bounds,
        whole,
        tuple(snapshot.operator(name).demand.cpu_cores or 1.0 for name in names),
        tuple(
            None if own else _share(costs[name], snapshot.operator(name), room, rounds is not None)
            for name, own, rounds in zip(names, whole, tasks, strict=True)
        ),
        tasks,
        tuple(
            0.0 if cost is None else (cost.overhead.high - cost.overhead.low) / 2
            for cost in (costs[name] for name in names)
        ),
        math.fsum(o.demand.cpu_cores for o in topology.operators),
        math.fsum(n * snapshot.operator(name).demand.cpu_cores for name, n in others.items()),
        snapshot.offer.capacity.cpu_cores,
        len(snapshot.requested.hosts),
        present_cores,
        reserved,
        tuple(unknown),
        tuple(_late(snapshot)),
        tuple(ceilings),
    )


def _cost(snapshot: Snapshot, name: str) -> BatchCost | None:
    """The measured cost of a batch, or one from its overhead and the time of an item."""
    batches, service_s = snapshot.reading[name].batches, snapshot.service_time_s(name)
    if batches is None or batches.cost is not None:
        return batches.cost if batches is not None else None
    if batches.overhead_s is None or not service_s:
        return None
    overhead, fixed, per_row = (Estimate(v, v, v) for v in (batches.overhead_s, 0.0, service_s))
    return BatchCost(overhead, fixed, per_row)


def _with_work(query: BatchQuery, fixed_work_s: float, service_time_s: float) -> BatchQuery:
    return replace(query, fixed_work_s=fixed_work_s, service_time_s=service_time_s)


def _useful_slots(tasks: int | None, cost: BatchCost, batches: BatchReading) -> float | None:
    """The most slots that shorten a batch: its tasks, or fewer if one of them is far longer."""
    useful = cost.useful_slots
    if useful is None or cost.skew_s is None:
        return tasks
    took_s = statistics.median(batches.recent_durations_s or (math.inf,))
    skewed = useful < tasks / 2 if tasks is not None else cost.skew_s > took_s / 4
    return max(1.0, useful) if skewed else tasks


def _share(
    cost: BatchCost | None, operator: Operator, room: float, in_rounds: bool
) -> float | None:
    """The share of `room` slots that the batches of a query hold, None when it is unknown.

    It is measured against the slots that its rounds of tasks can fill. Where the rounds are not
    part of the model (`in_rounds` is false), what they leave empty is not held either.
    """
    share = None if cost is None else cost.held_share
    tasks = operator.max_instances
    if share is None or in_rounds or tasks is None:
        return share
    return share * microbatch.in_rounds(room, tasks) / min(room, tasks)


def _equal_tasks(
    snapshot: Snapshot,
    queries: Sequence[BatchQuery],
    whole: Sequence[bool],
    unknown: Sequence[str],
) -> Iterator[int | None]:
    """The tasks of each query that run in rounds: those of an only query, unless one is far longer.

    Where queries share the slots, the tasks of one may fill what those of another leave. The
    model does not predict that; the share of the slots that batches hold shows it.
    """
    for query, own in zip(queries, whole, strict=True):
        tasks = snapshot.operator(query.name).max_instances
        alone = len(queries) == 1 and not own and not unknown
        yield tasks if alone and query.max_processors == tasks else None


def _rate(
    reading: OperatorReading, batches: BatchReading, t_max_s: float, catch_up_s: float
) -> float:
    """Items per second to plan for: those that arrive, and the backlog over `catch_up_s`.

    Items that arrive in a period wait until its end, so they are no backlog. A period never exceeds
    the bound.
    """
    rate = reading.arrival_rate_per_s or 0.0
    if not catch_up_s or not reading.queue_length:
        return rate
    took_s = statistics.median(batches.recent_durations_s or (0.0,))
    usual = rate * min(max(batches.trigger_interval_s, took_s), t_max_s)
    return rate + max(0.0, reading.queue_length - usual) / catch_up_s


def _ceiling(query: BatchQuery, batches: BatchReading) -> Iterator[str]:
    """A sentence if the source admits fewer items than are to be processed."""
    if query.admitted() is query:
        return
    trigger_s = query.trigger_interval_s
    setting = f" ({batches.admission})" if batches.admission else ""
    pace = f"every {show_duration(trigger_s)}" if trigger_s else "in a batch"
    why = "" if trigger_s else ", and batches cannot be much shorter than their overhead"
    yield (
        f"the source of {query.name} admits at most {query.max_rows:,.0f} rows {pace}{setting}, "
        f"and {query.arrival_rate_per_s:,.0f}/s would have to be read{why}: "
        f"more executors do not help{'' if trigger_s else ' beyond that'}"
    )


def _late(snapshot: Snapshot) -> Iterator[str]:
    """Operators whose items are beyond their SLO, by a lower bound of their delay.

    Such a bound comes from a batch that has not ended or from a backlog, when the other readings
    are of the time before. A source that admits too little is late whatever is done.
    """
    for name, reading in snapshot.reading.items():
        slo_s, seen_s = snapshot.operator(name).slo_s, reading.delay.p95_s or reading.delay.p50_s
        batches = reading.batches
        limited = batches is not None and batches.max_rows is not None
        if slo_s is None or seen_s is None or limited:
            continue
        if reading.delay.at_least and seen_s > slo_s:
            yield name


def _bounds(topology: Topology, names: Sequence[str], t_max_s: float) -> Iterator[PathBound]:
    """The bound of each path from an entry to a query, by the SLO of that query."""
    index = {name: n for n, name in enumerate(names)}
    largest_s = max((o.slo_s for o in topology.operators if o.slo_s is not None), default=None)
    before: dict[str, list[str]] = {name: [] for name in topology.by_name}
    after: dict[str, list[str]] = {name: [] for name in topology.by_name}
    for edge in topology.edges:
        if edge.origin in before:
            before[edge.target].append(edge.origin)
            after[edge.origin].append(edge.target)
    covered: set[int] = set()
    # Exits first: a query that feeds one with the same bound, or a lower one, needs none itself.
    for name in sorted(names, key=lambda name: (len(after[name]) > 0, index[name])):
        slo_s = topology.by_name[name].slo_s
        share = slo_s / largest_s if slo_s is not None and largest_s is not None else 1.0
        if index[name] in covered and share == 1.0:
            continue
        for path in _paths(name, before):
            known = tuple(index[n] for n in path if n in index)
            bound_s = t_max_s * share
            if slo_s is not None and bound_s > slo_s:  # the query with the largest SLO is not there
                bound_s = AIM * slo_s
            covered.update(known)
            yield PathBound(known, bound_s, None if slo_s is None else max(slo_s, bound_s))


def _paths(name: str, before: dict[str, list[str]]) -> list[tuple[str, ...]]:
    """The paths that end at an operator, each operator at most once on a path."""
    found: list[tuple[str, ...]] = []
    unfinished: list[tuple[str, ...]] = [(name,)]
    while unfinished:
        path = unfinished.pop()
        origins = [origin for origin in before[path[0]] if origin not in path]
        if not origins:
            found.append(path)
        unfinished += [(origin, *path) for origin in origins]
        if len(found) + len(unfinished) > MOST_PATHS:
            return [(*(n for n in before if n != name), name)]
    return found


def _in_proportion(
    needs: Sequence[float], limits: Sequence[float | None], instances: int
) -> tuple[int, ...]:
    """One instance for each query, and the others in proportion to the needs."""
    counts = [1] * len(needs)
    for _ in range(instances - len(needs)):
        open_ = [i for i, limit in enumerate(limits) if limit is None or counts[i] < limit]
        if not open_:
            break
        neediest = max(open_, key=lambda i: needs[i] / counts[i])
        counts[neediest] += 1
    return tuple(counts)
