"""VISP: predictive downscaling, priorities along critical paths, and the weights W1 to W4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.lab.future.questions import Finding, Question, Size, Table, change_text, direction
from tidegate.lab.papers.claims import Progress
from tidegate.lab.papers.statistics import interval, mean
from tidegate.lab.papers.visp.runs import PUBLISHED_WAY, TableCell, mean_cell, summarise
from tidegate.lab.papers.visp.world import CONFIGURATIONS, MINUTES, Configuration, Variant, drive
from tidegate.model import Snapshot
from tidegate.model.topology import Topology
from tidegate.packing import Packing
from tidegate.policies.base import Policy
from tidegate.policies.btu import Btu, BtuMemory, BtuTurn
from tidegate.workloads.papers import Pattern

__all__ = ["QUESTION", "CriticalBtu", "PredictiveBtu", "critical_order"]

BTU10 = CONFIGURATIONS[0]
PATTERNS: tuple[Pattern, ...] = ("random_walk_1", "random_walk_2")
"""Patterns whose volume rises and falls; the queues are not calibrated on them."""
WEIGHTS = ("w_instances", "w_queue", "w_delay", "w_scalings")
LARGE = 5.0


class PredictiveTurn(BtuTurn):
    """A turn that keeps what a rising volume will need."""

    def is_needed(self, host: str) -> bool:
        """Whether an operator on the host gets slower, so that its release would not last."""
        rising = False
        for instance in self.packing.hosts[host].values():
            durations, slo_s = self.durations(instance.operator), self.target_s(instance.operator)
            predicted = self.predict(durations) if durations else None
            if predicted is not None and slo_s is not None:
                rising |= predicted > slo_s
        return rising or super().is_needed(host)

    def utility(self, packing: Packing, operator: str) -> float:
        """Algorithm 3 with the predicted duration in place of the last; late ones spare nothing."""
        durations, slo_s = self.durations(operator), self.target_s(operator)
        predicted = self.predict(durations) if durations else None
        if predicted is not None and slo_s is not None and predicted > slo_s:
            return -1.0
        return super().utility(packing, operator)


@dataclass(frozen=True)
class PredictiveBtu(Btu):
    """The BTU-based policy with a prediction for scaling in as well.

    An operator whose predicted duration is above its SLO spares no instance, and a host on which
    such an operator runs is prolonged.

    >>> PredictiveBtu().name
    'btu'
    """

    def turn(self, snapshot: Snapshot, memory: BtuMemory) -> BtuTurn:
        """A turn that predicts."""
        return PredictiveTurn(self, snapshot, memory)


def critical_order(topology: Topology) -> list[str]:
    """The operators by the longest way from them to an end, the longest first.

    The length of a way is the sum of the SLOs of its operators.

    >>> from tidegate.lab.papers.visp.world import make_topology
    >>> critical_order(make_topology())[:3]
    ['O1', 'O3', 'O4']
    """
    length: dict[str, float] = {}

    def longest(name: str, seen: frozenset[str]) -> float:
        if name not in length:
            targets = [edge.target for edge in topology.edges if edge.origin == name]
            rest = [longest(target, seen | {name}) for target in targets if target not in seen]
            length[name] = (topology.by_name[name].slo_s or 0.0) + max(rest, default=0.0)
        return length[name]

    return sorted(topology.by_name, key=lambda name: -longest(name, frozenset()))


class CriticalTurn(BtuTurn):
    """A turn in which operators on the critical path are first to grow and last to shrink."""

    def in_order(self) -> list[str]:
        """The longest way first."""
        return critical_order(self.snapshot.topology)

    def by_preference(self, spare: Mapping[str, float]) -> list[str]:
        """The shortest way first, then by Algorithm 3."""
        place = {name: n for n, name in enumerate(critical_order(self.snapshot.topology))}
        return sorted(spare, key=lambda name: (-place[name], -spare[name]))


@dataclass(frozen=True)
class CriticalBtu(Btu):
    """The BTU-based policy with priorities along the critical path.

    >>> CriticalBtu().name
    'btu'
    """

    def turn(self, snapshot: Snapshot, memory: BtuMemory) -> BtuTurn:
        """A turn with priorities."""
        return CriticalTurn(self, snapshot, memory)


class _Both(PredictiveTurn, CriticalTurn):
    """Prediction and priorities."""


@dataclass(frozen=True)
class BothBtu(Btu):
    """Prediction and priorities together.

    >>> BothBtu().name
    'btu'
    """

    def turn(self, snapshot: Snapshot, memory: BtuMemory) -> BtuTurn:
        """A turn with both."""
        return _Both(self, snapshot, memory)


@dataclass(frozen=True)
class Given(Variant):
    """The world of the authors' code with a given policy."""

    given: Policy = field(default_factory=Btu)

    def policy(self, configuration: Configuration) -> Policy:
        """The given policy."""
        return self.given


POLICIES: Mapping[str, Policy] = {
    "as published": Btu(),
    "predictive downscaling": PredictiveBtu(),
    "critical paths first": CriticalBtu(),
    "both": BothBtu(),
    **{f"W{n} = 0": Btu.with_settings({name: 0.0}) for n, name in enumerate(WEIGHTS, 1)},
    **{f"W{n} = 5": Btu.with_settings({name: LARGE}) for n, name in enumerate(WEIGHTS, 1)},
}


def run(size: Size, progress: Progress) -> Finding:
    """Every policy on both random walks."""
    minutes = max(12.0, MINUTES * size.length)
    found: dict[str, list[TableCell]] = {name: [] for name in POLICIES}
    steps: dict[str, list[float]] = {name: [] for name in POLICIES}
    for n, seed in enumerate(size.numbers):
        for m, (name, policy) in enumerate(POLICIES.items()):
            progress((n + m / len(POLICIES)) / size.seeds, f"seed {seed}, {name}")
            world = Given(**vars(PUBLISHED_WAY), given=policy)
            summaries = [
                summarise(drive(pattern, BTU10, world, seed, minutes), BTU10, keep_series=False)
                for pattern in PATTERNS
            ]
            found[name].append(mean_cell([one.cells[BTU10.name] for one in summaries]))
            steps[name].append(mean([float(one.operations) for one in summaries]))
    return _finding(found, steps)


def _finding(
    found: Mapping[str, Sequence[TableCell]], steps: Mapping[str, Sequence[float]]
) -> Finding:
    total = {name: [cell.total[0] for cell in cells] for name, cells in found.items()}
    in_time = {name: [cell.in_time[0] for cell in cells] for name, cells in found.items()}
    rows = tuple(
        (
            name,
            interval(in_time[name], 1),
            interval([cell.resource for cell in cells], 1),
            interval(total[name], 1),
            interval([a - b for a, b in zip(total[name], total["as published"], strict=True)], 1,
                     sign=True),
            interval(steps[name], 0),
        )
        for name, cells in found.items()
    )  # fmt: skip
    base = total["as published"]
    late = {name: [100 - share for share in shares] for name, shares in in_time.items()}
    parts = [
        f"{name}: {change_text(total[name], base)} in total cost, "
        f"{change_text(late[name], late['as published'])} in late items"
        for name in ("predictive downscaling", "critical paths first")
    ]
    clear = [
        name
        for name in POLICIES
        if name.startswith("W")
        and direction([a - b for a, b in zip(total[name], base, strict=True)])
    ]
    weights = (
        f"The total cost changes clearly with {', '.join(clear)}"
        if clear
        else "None of the weights changes the total cost clearly between 0 and 5"
    )
    return Finding(
        f"Compared with the policy as published, {'; '.join(parts)}. {weights}.",
        (
            Table(
                "BTU-based policy with a billing unit of 10 min, real-time level:",
                (
                    "policy",
                    "in time, %",
                    "hosts, cost",
                    "total cost",
                    "difference of total cost",
                    "starts, stops and moves",
                ),
                rows,
            ),
        ),
        (
            "Each figure of a seed is the mean of the two random walks. All weights are 1 as "
            "published.",
            "The critical path is by the published durations of the operators: the way from an "
            "operator to the end of the topology that takes longest.",
        ),
    )


QUESTION = Question(
    "visp",
    "Do prediction for downscaling, critical paths and other weights help VISP?",
    "VISP (Hochreiner et al. 2017), section Conclusion",
    "The published algorithms run in the world of the authors' code. Predictive downscaling keeps "
    "the instances and hosts of operators whose trend leads above their SLO. With critical paths "
    "first, operators far from the end of the topology grow first and shrink last. Each weight of "
    "Algorithm 3 is set to 0 and to 5.",
    run,
)
