"""The three algorithms of the VISP paper as pure functions, its misprints corrected.

C. Hochreiner et al., *Cost-efficient enactment of stream processing topologies*, PeerJ Computer
Science 3:e141, 2017. Corrected: line 7 of Algorithm 1 subtracts the mean duration (the paper
multiplies by it); durations are in time order (the paper numbers the newest first and would
predict the past); a *negative* value of Algorithm 2 means that the host can **not** run the
operator (the text has it reversed); a short duration makes the delay of Algorithm 3 less than 1
(the text says a long one does).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.model.topology import Resources

__all__ = ["host_rank", "predicted_duration_s", "release_utility", "should_scale_up"]


def predicted_duration_s(durations_s: Sequence[float]) -> float | None:
    """The next duration by least squares over those given, oldest first; None for fewer than two.

    >>> predicted_duration_s([0.2, 0.4, 0.6, 0.8, 1.0])
    1.2
    """
    n = len(durations_s)
    if n < 2:
        return None
    x_mean = (n + 1) / 2
    y_mean = sum(durations_s) / n
    spread = sum((x - x_mean) ** 2 for x in range(1, n + 1))
    slope = sum((x - x_mean) * (y - y_mean) for x, y in enumerate(durations_s, 1)) / spread
    return round(y_mean + slope * (n + 1 - x_mean), 12)


def predicted_through_origin_s(durations_s: Sequence[float]) -> float | None:
    """What the authors' code computes: no intercept, x = 0 … n−1, predicted at n+1.

    A constant duration of 1 s is predicted to become 2 s, so the trend fires near half the SLO:

    >>> predicted_through_origin_s([1.0] * 5)
    2.0
    """
    n = len(durations_s)
    if n < 2:
        return None
    slope = sum(x * y for x, y in enumerate(durations_s)) / sum(x * x for x in range(n))
    return slope * (n + 1)


def should_scale_up(
    durations_s: Sequence[float],
    slo_s: float,
    queue_length: float,
    scaling_threshold: float = 50.0,
    through_origin: bool = False,
) -> bool:
    """Algorithm 1: the duration is, or is about to be, above the SLO, and items really wait.

    durations_s: the last N durations, oldest first; slo_s: the longest acceptable one.

    With the paper's scaling threshold of 50 items, a rising trend alone is not enough:

    >>> rising = [0.9, 1.0, 1.1, 1.2, 1.3]
    >>> should_scale_up(rising, slo_s=1.35, queue_length=51)
    True
    >>> should_scale_up(rising, slo_s=1.35, queue_length=50)
    False
    """
    if not durations_s or queue_length <= scaling_threshold:
        return False
    predict = predicted_through_origin_s if through_origin else predicted_duration_s
    predicted = predict(durations_s)
    return durations_s[-1] > slo_s or (predicted is not None and predicted > slo_s)


def host_rank(
    free: Resources,
    capacity: Resources,
    demand: Resources,
    cached: bool,
    cache_factor: float = 0.01,
    cpu_only: bool = False,
) -> float:
    """Algorithm 2: how well an instance suits a host; the lowest is best, negative is no room.

    Low is a host whose CPU and memory would run out together, with much room, and (times
    `cache_factor`) the image at hand.

    free, capacity: of the host; demand: of the instance; cached: its image is on the host;
    cpu_only: as in the authors' code, where an integer division makes memory vanish.

    >>> half = Resources(2, 3584)
    >>> host_rank(half, Resources(4, 7168), Resources(1, 1792), cached=False)
    0.0
    >>> round(host_rank(half, Resources(4, 7168), Resources(1, 512), cached=True), 6)
    0.000893
    >>> host_rank(half, Resources(4, 7168), Resources(3, 512), cached=True)
    -1.0
    """
    room = float("inf")
    if demand.cpu_cores > 0:
        room = free.cpu_cores / demand.cpu_cores
    if demand.memory_mb > 0:
        room = min(room, free.memory_mb / demand.memory_mb)
    if demand.network_mbps > 0:
        room = min(room, free.network_mbps / demand.network_mbps)
    if room < 1 - 1e-9:
        return -1.0
    cpu = (free.cpu_cores - demand.cpu_cores) / capacity.cpu_cores
    memory = (free.memory_mb - demand.memory_mb) / capacity.memory_mb if capacity.memory_mb else cpu
    if cpu_only:
        return max(0.0, cpu) / room
    return abs(cpu - memory) / room * (cache_factor if cached else 1.0)


def release_utility(
    count: int,
    counts: Sequence[int],
    duration_s: float,
    slo_s: float | None,
    scalings: int,
    all_scalings: int,
    queue_length: float,
    weights: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0),
    penalty: float = 0.0001,
    queue_load: float = 100.0,
    least_count: int | None = None,
) -> float:
    """Algorithm 3: how well an operator can spare an instance; negative means not at all.

    count: its instances; counts: those of all operators; duration_s: its current duration;
    scalings, all_scalings: scaling operations so far, its own and all; queue_length: items waiting.
    weights: W1 instances, W2 queue load, W3 delay, W4 scalings. penalty: P, cost of a late item.
    queue_load: QL, the bonus for an empty queue. least_count: in place of the smallest count.

    >>> release_utility(3, [1, 3, 5], 0.5, 1.0, scalings=2, all_scalings=8, queue_length=7)
    0.74995
    >>> release_utility(3, [1, 3, 5], 0.5, 1.0, scalings=2, all_scalings=8, queue_length=0)
    100.74995
    """
    if count < 2:
        return -1.0
    low = min(counts) if least_count is None else least_count
    high = max(counts)
    instances = (count - low) / (high - low) if high > low else 0.0
    delay = duration_s / slo_s * (1 + penalty) if slo_s else 0.0
    share = scalings / all_scalings if all_scalings else 0.0
    idle = queue_load if queue_length < 1 else 0.0
    w1, w2, w3, w4 = weights
    return round(1 + w1 * instances + w2 * idle - w3 * delay - w4 * share, 12)
