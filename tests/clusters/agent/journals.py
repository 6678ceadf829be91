"""What two journals of the same load have in common, turn by turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from tidegate.codec import to_json, to_plain
from tidegate.loop.journal import Turn
from tidegate.model import Snapshot

FIGURES = {"arrival_rate_per_s": 0.35, "service_time_s": 0.5}
"""Measured figures of an operator, and the share by which they may differ between two runs.

The throughput is not among them: it is that of a batch while it runs, which follows the machine.
"""


@dataclass(frozen=True)
class Facts:
    """What a turn has apart from times, names and measured figures.

    Args:
        topology: The queries and their properties, as JSON, without the slots that a batch can use,
            which follow from the stage that took longest.
        offer: The executors that can be requested, as JSON, without the measured time to start one.
        known: Readings that have a value, by their path in the snapshot.
        hosts: Status of each host.
        raw: Hosts that the policy planned.
        target: Hosts after all guards.
        bindings: Guards that changed the plan, with the hosts before and after.
        steps: Hosts that were requested or released.
    """

    topology: str
    offer: str
    known: frozenset[str]
    hosts: tuple[str, ...]
    raw: int
    target: int
    bindings: tuple[tuple[str, int, int], ...]
    steps: tuple[str, ...]


def facts(turn: Turn) -> Facts:
    """The facts of a complete turn."""
    assert turn.snapshot is not None
    assert turn.plan is not None
    assert turn.outcome is not None
    topology = turn.snapshot.topology
    operators = (replace(operator, max_instances=None) for operator in topology.operators)
    return Facts(
        topology=to_json(replace(topology, operators=tuple(operators))),
        offer=to_json(replace(turn.snapshot.offer, startup_s=0.0)),
        known=frozenset(_known(to_plain(turn.snapshot) | {"topology": None})),
        hosts=tuple(sorted(host.status for host in turn.snapshot.hosts)),
        raw=turn.plan.raw_target,
        target=turn.plan.bounded_target,
        bindings=tuple((b.guard, b.before, b.after) for b in turn.plan.bindings),
        steps=tuple(step.kind for step in turn.outcome.steps if step.kind in ("lease", "release")),
    )


def differing_figures(ones: list[Turn], others: list[Turn]) -> list[str]:
    """Measured figures that differ by more than they may, in the mean over turns, in sentences."""
    return [
        f"{name} is {x:g} and {y:g}"
        for name, share in FIGURES.items()
        for x, y in ((_mean(ones, name), _mean(others, name)),)
        if abs(x - y) > share * max(x, y)
    ]


def _mean(turns: list[Turn], name: str) -> float:
    """The mean of a figure that all turns have, of the one query that runs."""
    readings = [turn.snapshot.operators[0] for turn in turns if turn.snapshot is not None]
    return fmean(getattr(reading, name) for reading in readings)


def settled(snapshot: Snapshot, hosts: int, per_s: float) -> bool:
    """Whether so many hosts run, none comes or goes, and the load is measured."""
    arriving = snapshot.operators[0].arrival_rate_per_s if snapshot.operators else None
    here = [host.status for host in snapshot.hosts] == ["running"] * hosts
    return here and arriving is not None and abs(arriving - per_s) <= 0.2 * per_s


def seen_idle(turns: list[Turn]) -> bool:
    """Whether the last turn has seen a query without input, so that its first batch is measured."""
    snapshot = turns[-1].snapshot if turns else None
    rates = [one.arrival_rate_per_s for one in snapshot.operators] if snapshot is not None else []
    return rates == [0.0]


def _known(value: Any, path: str = "") -> Iterator[str]:
    """Paths of the values that are there; the items of a list have one path."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _known(one, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _known(one, f"{path}[]")
    elif value is not None:
        yield path
