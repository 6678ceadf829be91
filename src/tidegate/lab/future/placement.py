"""Other placement algorithms than first fit, up to the optimum."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import optimize, sparse

from tidegate.lab.future.questions import Finding, Question, Size, Table, change_text
from tidegate.lab.papers.claims import Progress
from tidegate.lab.papers.fugu.world import SECTORS, FuguWorld
from tidegate.lab.papers.statistics import interval, mean
from tidegate.theory.placement import select_to_move

__all__ = ["ALGORITHMS", "QUESTION", "fewest_hosts", "fewest_moves", "hosts_at_least", "pack"]

FILL = 0.8
"""Share of a host that is filled, as in FUGU's experiments."""
MINUTES = 10
"""Minutes of the exchange day between two decisions."""
TURNS = 20
FACTORS = (1, 4)
"""Multiples of the operators' loads: large ones are harder to pack."""
NODES = 10
"""Most nodes of the search for one integer program; its best result so far counts then. A limit on
the time would make the results depend on the machine."""

Loads = Mapping[str, float]
Hosts = list[list[str]]


def _next_fit(free: Sequence[float], size: float) -> int | None:
    return len(free) - 1 if free and size <= free[-1] + 1e-9 else None


def _first_fit(free: Sequence[float], size: float) -> int | None:
    return next((j for j, room in enumerate(free) if size <= room + 1e-9), None)


def _best_fit(free: Sequence[float], size: float) -> int | None:
    fitting = [(room, j) for j, room in enumerate(free) if size <= room + 1e-9]
    return min(fitting)[1] if fitting else None


def _worst_fit(free: Sequence[float], size: float) -> int | None:
    fitting = [(-room, j) for j, room in enumerate(free) if size <= room + 1e-9]
    return min(fitting)[1] if fitting else None


Rule = Callable[[Sequence[float], float], int | None]
"""Selects a host by the room on each and the size of an operator; None if none has room."""

ALGORITHMS: dict[str, tuple[Rule, bool]] = {
    "next fit": (_next_fit, False),
    "first fit": (_first_fit, False),
    "best fit": (_best_fit, False),
    "worst fit": (_worst_fit, False),
    "first fit decreasing": (_first_fit, True),
    "best fit decreasing": (_best_fit, True),
    "worst fit decreasing": (_worst_fit, True),
}
"""The rule of each algorithm, and whether it places the largest operators first."""


def pack(
    loads: Loads,
    algorithm: str,
    hosts: Sequence[Sequence[str]] = (),
    new: Sequence[str] | None = None,
) -> Hosts:
    """Place operators on as many hosts as the algorithm takes.

    loads: load of every operator, as a share of a host's usable part; hosts: what is placed
    already; new: the operators to place, None for all of them.

    >>> pack({"a": 0.6, "b": 0.5, "c": 0.4}, "first fit")
    [['a', 'c'], ['b']]
    """
    rule, largest_first = ALGORITHMS[algorithm]
    placed = [list(names) for names in hosts]
    free = [1 - math.fsum(loads[name] for name in names) for names in placed]
    waiting = list(loads if new is None else new)
    if largest_first:
        waiting.sort(key=lambda name: -loads[name])
    for name in waiting:
        at = rule(free, loads[name])
        if at is None:
            at = len(free)
            placed.append([])
            free.append(1.0)
        placed[at].append(name)
        free[at] -= loads[name]
    return placed


# --- the optimum ----------------------------------------------------------------------------------


def fewest_hosts(loads: Loads) -> tuple[int, bool]:
    """The fewest hosts that hold all operators, and whether that is proven.

    First fit decreasing is optimal where it meets the lower bound. Otherwise HiGHS solves the
    integer program with as many hosts as first fit decreasing takes less one.

    >>> fewest_hosts({"a": 0.5, "b": 0.5, "c": 0.5, "d": 0.5})
    (2, True)
    """
    found = len(pack(loads, "first fit decreasing"))
    least, proven = hosts_at_least(loads), True
    while found > least:
        status = _solve(loads, found - 1, {}, 0.0)[0]
        if status == 0:
            found -= 1
            continue
        proven = status == 2  # infeasible, not out of nodes
        break
    return found, proven


def hosts_at_least(loads: Loads) -> int:
    """A lower bound on the hosts (Martello and Toth's L2).

    For each size k, operators above 1 − k share a host with none of at least k. Those between a
    half and 1 − k take a host each, and what they leave can hold some of the smaller ones.

    >>> hosts_at_least({"a": 0.7, "b": 0.6, "c": 0.4, "d": 0.35})
    3
    """
    sizes = sorted(loads.values())
    best = math.ceil(math.fsum(sizes) - 1e-9)
    for k in (0.0, *(size for size in sizes if size <= 0.5)):
        alone = sum(size > 1 - k + 1e-9 for size in sizes)
        halves = [size for size in sizes if 0.5 + 1e-9 < size <= 1 - k + 1e-9]
        small = math.fsum(size for size in sizes if k <= size <= 0.5 + 1e-9)
        room = len(halves) - math.fsum(halves)
        best = max(best, alone + len(halves) + max(0, math.ceil(small - room - 1e-9)))
    return best


def fewest_moves(loads: Loads, before: Sequence[Sequence[str]], hosts: int) -> Hosts | None:
    """The placement on that many hosts with the fewest moves; None if none was found.

    before: where the operators are; the hosts with names are kept in this order, and new ones
    follow.
    """
    most = max(hosts, len(before))
    home = {name: j for j, names in enumerate(before) for name in names}
    _, places = _solve(loads, most, home, hosts)
    if places is None:
        return None
    placed: Hosts = [[] for _ in range(most)]
    for name, j in places.items():
        placed[j].append(name)
    return [names for names in placed if names]


def _solve(
    loads: Loads, bins: int, home: Mapping[str, int], most: float
) -> tuple[int, dict[str, int] | None]:
    """Place all operators in bins; with homes, on `most` bins at most and with the fewest moves.

    Returns the status of the solver (0 optimal, 1 out of nodes, 2 infeasible) and the bin of each
    operator, None if there is no solution.
    """
    names = list(loads)
    n, count = len(names), len(names) * bins
    cost = np.zeros(count + bins)
    for i, name in enumerate(names):
        for j in range(bins):
            cost[i * bins + j] = float(bool(home) and home.get(name) != j)
    once = sparse.lil_array((n, count + bins))
    room = sparse.lil_array((bins, count + bins))
    for i, name in enumerate(names):
        for j in range(bins):
            once[i, i * bins + j] = 1.0
            room[j, i * bins + j] = loads[name]
    for j in range(bins):
        room[j, count + j] = -1.0
    constraints = [
        optimize.LinearConstraint(once.tocsr(), 1, 1),
        optimize.LinearConstraint(room.tocsr(), -np.inf, 1e-9),
    ]
    if home:
        used = np.concatenate([np.zeros(count), np.ones(bins)])
        constraints.append(optimize.LinearConstraint(used[None, :], 0, most))
    solved = optimize.milp(
        cost,
        constraints=constraints,
        bounds=optimize.Bounds(0, 1),
        integrality=np.ones(count + bins),
        options={"node_limit": NODES},
    )
    if solved.x is None:
        return int(solved.status), None
    chosen = solved.x[:count].reshape(n, bins).argmax(axis=1)
    return int(solved.status), {name: int(j) for name, j in zip(names, chosen, strict=True)}


# --- a day ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """A day with one algorithm: hosts over the optimum, in percent, and moves of each turn."""

    over: float
    moves: float


def loads_of_day(seed: int, turns: int, factor: float = 1.0) -> list[dict[str, float]]:
    """Load of FUGU's 35 queries every ten minutes of Day 1, as shares of a host's usable part.

    factor: multiple of their loads; none is larger than a host.
    """
    world = FuguWorld(seed)
    day = world.day(1)
    share = dict(zip(SECTORS, day.shares, strict=True))
    found = []
    for turn in range(turns):
        at = slice(MINUTES * turn, MINUTES * turn + MINUTES)
        every = float(day.minutes[at].mean())
        rates = {sector: float((day.minutes[at] * row[at]).mean()) for sector, row in share.items()}
        cores = {
            q.name: every * q.filter_s + rates[q.sector] * q.aggregate_s for q in world.queries
        }
        found.append({name: min(1.0, factor * load / FILL) for name, load in cores.items()})
    return found


def relieved(loads: Loads, hosts: Hosts, algorithm: str) -> tuple[Hosts, int]:
    """FUGU's turn: operators leave hosts that are too full, and a host that fits elsewhere goes.

    Returns the placement and the number of moves.
    """
    leaving: list[str] = []
    kept = [list(names) for names in hosts]
    for names in kept:
        excess = math.fsum(loads[name] for name in names) - 1
        out = select_to_move({name: loads[name] for name in names}, excess)
        if len(out) < len(names):
            leaving += out
            names[:] = [name for name in names if name not in out]
    moves = len(leaving)
    if leaving:
        kept = pack(loads, algorithm, kept, leaving)
    emptiest = min(kept, key=lambda names: math.fsum(loads[name] for name in names))
    others = [names for names in kept if names is not emptiest]
    tried = pack(loads, algorithm, others, emptiest)
    if others and len(tried) == len(others):
        return tried, moves + len(emptiest)
    return kept, moves


def _moved(before: Hosts, after: Hosts) -> int:
    """Fewest moves between two placements whose hosts have no names."""
    pairs = np.array([[-len(set(old) & set(new)) for new in after] for old in before])
    rows, columns = optimize.linear_sum_assignment(pairs)
    return sum(map(len, after)) + int(pairs[rows, columns].sum())


@dataclass
class Packed:
    """What the algorithms did with operators of one size; figures by algorithm and seed.

    fresh: hosts over the optimum when everything is packed again, in percent; again: moves of a
    turn then; day: the same turn by turn; unproven: optima that the solver did not prove.
    """

    fresh: dict[str, list[float]]
    again: dict[str, list[float]]
    day: dict[str, list[Kept]]
    unproven: int = 0


def run(size: Size, progress: Progress) -> Finding:
    """Pack the queries of a day: once each turn, from turn to turn, and optimally."""
    turns = max(2, round(TURNS * size.length))
    found: dict[int, Packed] = {}
    for m, factor in enumerate(FACTORS):
        found[factor] = one = Packed(
            {name: [] for name in ALGORITHMS},
            {name: [] for name in ALGORITHMS},
            {name: [] for name in (*ALGORITHMS, "optimum")},
        )
        for n, seed in enumerate(size.numbers):
            progress((m + n / size.seeds) / len(FACTORS), f"seed {seed}, {factor} times the load")
            loads = loads_of_day(seed, turns, factor)
            best = [fewest_hosts(now) for now in loads]
            one.unproven += sum(not proven for _, proven in best)
            for name in ALGORITHMS:
                fresh = [pack(now, name) for now in loads]
                one.fresh[name].append(_over([len(hosts) for hosts in fresh], best))
                moves = [float(_moved(a, b)) for a, b in pairwise(fresh)]
                one.again[name].append(mean(moves))
                one.day[name].append(_day(loads, best, name))
            one.day["optimum"].append(_optimal_day(loads, best))
    return _finding(found, turns)


def _over(hosts: Sequence[int], best: Sequence[tuple[int, bool]]) -> float:
    return 100 * (sum(hosts) / sum(count for count, _ in best) - 1)


def _day(loads: Sequence[Loads], best: Sequence[tuple[int, bool]], algorithm: str) -> Kept:
    hosts = pack(loads[0], algorithm)
    used, moves = [len(hosts)], []
    for now in loads[1:]:
        hosts, moved = relieved(now, hosts, algorithm)
        used.append(len(hosts))
        moves.append(float(moved))
    return Kept(_over(used, best), mean(moves))


def _optimal_day(loads: Sequence[Loads], best: Sequence[tuple[int, bool]]) -> Kept:
    """The fewest hosts at every turn, reached with the fewest moves that were found."""
    hosts = pack(loads[0], "first fit decreasing")
    used, moves = [len(hosts)], []
    for now, (count, _) in zip(loads[1:], best[1:], strict=True):
        after = fewest_moves(now, hosts, count) or pack(now, "first fit decreasing")
        moves.append(float(_moved(hosts, after)))
        hosts = after
        used.append(len(hosts))
    return Kept(_over(used, best), mean(moves))


def _finding(found: Mapping[int, Packed], turns: int) -> Finding:
    head = (
        "algorithm",
        "hosts over the optimum, packed again, %",
        "moves a turn, packed again",
        "hosts over the optimum, turn by turn, %",
        "moves a turn",
    )
    tables = []
    for factor, one in found.items():
        rows = tuple(
            (
                name,
                interval(one.fresh[name], 1) if name in one.fresh else "0",
                interval(one.again[name], 1) if name in one.again else "–",
                interval([kept.over for kept in one.day[name]], 1),
                interval([kept.moves for kept in one.day[name]], 1),
            )
            for name in one.day
        )
        what = "Operators as in FUGU's world" if factor == 1 else f"{factor} times their load"
        tables.append(
            Table(f"{what}, means over {turns} turns of a day and all seeds:", head, rows)
        )
    unproven = sum(one.unproven for one in found.values())
    proven = "All optima are proven." if not unproven else f"{unproven} optima are not proven."
    return Finding(
        " ".join(_sentence(factor, one) for factor, one in found.items()),
        tuple(tables),
        (
            f"{proven} The solver is HiGHS with {NODES} nodes for each program; the moves of the "
            "optimum are the fewest that were found.",
            "Turn by turn, operators leave a host that is too full by subset sum, and the emptiest "
            "host is released if its operators fit on the others. Moves between two fresh packings "
            "are counted with the best matching of their hosts.",
        ),
    )


def _sentence(factor: int, one: Packed) -> str:
    usual = "first fit decreasing"
    moves = {name: [kept.moves for kept in day] for name, day in one.day.items()}
    over = {name: mean([kept.over for kept in day]) for name, day in one.day.items()}
    best = min(ALGORITHMS, key=lambda name: over[name])
    size = (
        "With FUGU's small operators" if factor == 1 else f"With operators {factor} times as large"
    )
    return (
        f"{size}, first fit decreasing needs {mean(one.fresh[usual]):.1f} % more hosts than the "
        f"optimum when everything is packed again, and {over[usual]:.1f} % more turn by turn, with "
        f"{mean(moves[usual]):.1f} moves a turn; the best heuristic turn by turn ({best}) needs "
        f"{over[best]:.1f} % more, and the optimum moves {mean(moves['optimum']):.1f} operators a "
        f"turn ({change_text(moves['optimum'], moves[usual])})."
    )


QUESTION = Question(
    "placement",
    "How far is first fit from the optimal placement?",
    "FUGU (Heinze et al. 2014), section II, which places by first fit",
    "The 35 queries of FUGU's world have the loads of every tenth minute of Day 1, and a host "
    "takes up to 0.8. Seven heuristics are compared with the fewest hosts by integer programming: "
    "packing everything again at every turn, and changing only what must change.",
    run,
)
