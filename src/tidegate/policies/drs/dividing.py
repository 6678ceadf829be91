"""The slots of a chain of queries, divided again although no host comes or goes.

Hosts may all be there when the cost of a query becomes known, or when its input grows and that of
others falls. Most other divisions that a model finds better are better by the noise of one turn.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tidegate.policies.drs.batches import BatchJob
from tidegate.theory.microbatch import BatchQuery

__all__ = ["relieved"]

CLEARLY = 0.2
"""A change of less than this share is within the noise of the rates of a turn."""


def relieved(
    job: BatchJob, have: Mapping[str, int], late: Collection[str], headroom: float = 0.0
) -> tuple[int, ...] | None:
    """Instances of each query that help one that falls behind; None if nobody is helped.

    The items of such a query are late, and its input keeps more instances busy than it has, so that
    its queue grows without end. It is helped if the fullest query is then clearly less full. No
    query may fall behind for that and no path leave its limit; one that is beyond it already may
    become a little slower.

    A query that is not late needs no more than it has, whatever its cost seems to be: by a first
    batch of one item, items may seem to take a hundred times too much.

    have: instances by operator, of queries with dedicated slots. late: queries whose items
    are late, as measured. headroom: additional input to divide the slots for, as a share.
    """
    if not any(job.whole):
        return None
    now = [max(1, have[query.name]) for query in job.queries]
    pairs = zip(job.queries, now, strict=True)
    job = replace(job, queries=tuple(q if q.name in late else _in_time(q, k) for q, k in pairs))
    # More slots than tasks help nobody.
    limits = (math.inf if q.max_processors is None else q.max_processors for q in job.queries)
    helped = [i for i, (k, most) in enumerate(zip(now, limits, strict=True)) if k + 1 <= most]
    if _fullest(job.queries, now, helped) < 1:
        return None
    more = replace(job, queries=tuple(_with_more(query, headroom) for query in job.queries))
    then = more.counts(job.present)
    fullest = _fullest(more.queries, now, helped)
    if _fullest(more.queries, then, helped) > (1 - CLEARLY) * fullest:
        return None
    harmless = all(_keep_up(each, now, then) and _harmless(each, now, then) for each in (job, more))
    return then if harmless else None


def _harmless(job: BatchJob, now: Sequence[int], then: Sequence[int]) -> bool:
    """Whether no path leaves its limit, or becomes clearly slower beyond it."""
    paths = zip(job.bounds, job.latencies_s(now), job.latencies_s(then), strict=True)
    return all(
        after_s <= max(bound.limit_s or bound.bound_s, (1 + CLEARLY) * before_s)
        for bound, before_s, after_s in paths
    )


def _keep_up(job: BatchJob, now: Sequence[int], then: Sequence[int]) -> bool:
    """Whether each query that keeps up does so afterwards."""
    each = zip(job.queries, now, then, strict=True)
    return all(q.load < after or q.load >= before for q, before, after in each)


def _in_time(query: BatchQuery, slots: int) -> BatchQuery:
    """The query with a cost with which it keeps up on its slots."""
    if query.load < slots:
        return query
    return replace(query, service_time_s=(1 - CLEARLY) * slots / query.arrival_rate_per_s)


def _with_more(query: BatchQuery, headroom: float) -> BatchQuery:
    return replace(query, arrival_rate_per_s=query.arrival_rate_per_s * (1 + headroom))


def _fullest(queries: Sequence[BatchQuery], counts: Sequence[int], some: Sequence[int]) -> float:
    """The largest load of an instance of some queries, 1 for one that is always busy."""
    return max((queries[i].admitted().load / counts[i] for i in some), default=0.0)
