"""The checker itself: every rule has a policy that breaks it, and is named when it does."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from time import perf_counter as stopwatch
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.random import normal as bell

from tidegate.codec import Value
from tidegate.errors import CheckFailed
from tidegate.guards import MissingMetrics
from tidegate.model import Deployment, Instance, Plan, Reason, Snapshot
from tidegate.packing import Packing
from tidegate.packing.sizing import set_counts, set_engines
from tidegate.policies import create
from tidegate.policies.base import NoMemory, Policy, Style
from tidegate.testing import check_policy


@dataclass(frozen=True)
class Quiet(Policy):
    """A policy with nothing wrong: it keeps what there is. The others break one rule each."""

    name: ClassVar[str] = "quiet"
    paper: ClassVar[str] = "test"
    style: ClassVar[Style] = "instances"
    needs: ClassVar[tuple[str, ...]] = ()

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        return Packing(snapshot).plan(), memory


class ReadsTheClock(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        time.time()
        return super().decide(snapshot, memory)


class WaitsByTheOtherClock(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        time.monotonic()
        return super().decide(snapshot, memory)


class DrawsGlobally(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        random.random()
        return super().decide(snapshot, memory)


class DrawsGaussGlobally(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        random.gauss(0, 1)
        return super().decide(snapshot, memory)


class AsksForTheDate(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        datetime.now()
        return super().decide(snapshot, memory)


class AsksForTheDateInGreenwich(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        datetime.now(UTC)
        return super().decide(snapshot, memory)


class AsksForTheDateAsLongAgo(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        datetime.utcnow()
        return super().decide(snapshot, memory)


class AsksForTheDay(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        date.today()
        return super().decide(snapshot, memory)


class StopsTheTime(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        stopwatch()
        return super().decide(snapshot, memory)


class ReadsTheClockAndHidesIt(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        with suppress(Exception):
            time.time()
        return super().decide(snapshot, memory)


class DrawsFromNumpy(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        np.random.random()
        return super().decide(snapshot, memory)


class DrawsNormalFromNumpy(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        bell(size=2)
        return super().decide(snapshot, memory)


class DrawsFromTheSystem(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        np.random.default_rng().random()
        return super().decide(snapshot, memory)


class KnowsTheCalendar(Quiet):
    """Nothing wrong: dates come from the snapshot, and random numbers from a seed."""

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        datetime.fromtimestamp(snapshot.time_s, UTC).weekday()
        np.random.default_rng(7).random()
        random.Random(7).random()
        return super().decide(snapshot, memory)


@dataclass
class TurnMemory(Value):
    turns: list[int] = field(default_factory=list)


class ScribblesInItsMemory(Quiet):
    memory_type: ClassVar[type] = TurnMemory

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        memory.turns.append(1)
        return super().decide(snapshot, memory)


class ChangesTheSnapshot(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        object.__setattr__(snapshot, "time_s", snapshot.time_s + 1)
        return super().decide(snapshot, memory)


class CountsInSecret(Quiet):
    calls: ClassVar[Counter[str]] = Counter()

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        self.calls["decide"] += 1
        plan, memory = super().decide(snapshot, memory)
        return replace(plan, shed_fraction=(self.calls["decide"] % 2) / 10), memory


class ForgetsToLease(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        plan, memory = super().decide(snapshot, memory)
        first = plan.deployment.instances[0]
        lost = Instance("ghost-1", first.operator, "nowhere")
        wanted = Deployment(plan.deployment.hosts, (*plan.deployment.instances, lost))
        return replace(plan, deployment=wanted, reasons=(Reason("x", "y"),)), memory


class DropsAnOperator(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        plan, memory = super().decide(snapshot, memory)
        gone = plan.deployment.instances[0].operator
        kept = tuple(i for i in plan.deployment.instances if i.operator != gone)
        wanted = Deployment(plan.deployment.hosts, kept)
        return replace(plan, deployment=wanted, reasons=(Reason("x", "y"),)), memory


class CrowdsOneHost(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        packing = Packing(snapshot)
        host = next(iter(packing.hosts))
        for operator in snapshot.topology.operators:
            while operator.max_instances is None and len(packing.hosts[host]) < 40:
                packing.start(operator.name, host)
        packing.because("x", "y")
        return packing.plan(), memory


class GrowsWithoutAWord(Quiet):
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        packing = Packing(snapshot)
        set_engines(packing, len(packing.hosts) + 1)
        return replace(packing.plan(), reasons=()), memory


@dataclass(frozen=True)
class Pair:
    left: int = 0
    right: int = 0


class LosesHalfOfItsMemory(Quiet):
    memory_type: ClassVar[type] = Pair

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        plan, _ = super().decide(snapshot, memory)
        return plan, Pair(memory.left + 1, memory.right + 1)

    def save_memory(self, memory: Any) -> Any:
        return {"left": memory.left}

    def load_memory(self, plain: Any) -> Any:
        return Pair(plain["left"])


@dataclass(frozen=True)
class Blurred:
    """Equal to any other, yet decided by: what a careless __eq__ does."""

    value: int = field(default=0, compare=False)


class DecidesByWhatIsNotSaved(Quiet):
    memory_type: ClassVar[type] = Blurred

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        plan, _ = super().decide(snapshot, memory)
        return replace(plan, shed_fraction=min(1.0, memory.value / 10)), Blurred(memory.value + 1)

    def save_memory(self, memory: Any) -> Any:
        return {}

    def load_memory(self, plain: Any) -> Any:
        return Blurred()


class ReleasesWhatItCannotSee(Quiet):
    style: ClassVar[Style] = "engines"
    needs: ClassVar[tuple[str, ...]] = ("operator.queue_length",)

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        packing = Packing(snapshot)
        waiting = sum(reading.queue_length or 0.0 for reading in snapshot.reading.values())
        if waiting == 0:
            set_engines(packing, len(packing.hosts) - 1)
            packing.because("idle", "nothing waits")
        return packing.plan(), memory


class StopsWhatItCannotSee(Quiet):
    needs: ClassVar[tuple[str, ...]] = ("operator.queue_length",)

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        packing = Packing(snapshot)
        if all(not reading.queue_length for reading in snapshot.reading.values()):
            set_counts(packing, dict.fromkeys(packing.counts, 1))
            packing.because("idle", "nothing waits")
        return packing.plan(), memory


BROKEN: list[tuple[type[Policy], str, str]] = [
    (ReadsTheClock, "pure", "time.time"),
    (WaitsByTheOtherClock, "pure", "time.monotonic"),
    (DrawsGlobally, "pure", "global generator of random;"),
    (DrawsGaussGlobally, "pure", "global generator of random;"),
    (AsksForTheDate, "pure", "datetime.now"),
    (AsksForTheDateInGreenwich, "pure", "datetime.now"),
    (AsksForTheDateAsLongAgo, "pure", "datetime.utcnow"),
    (AsksForTheDay, "pure", "date.today"),
    (StopsTheTime, "pure", "time.perf_counter"),
    (ReadsTheClockAndHidesIt, "pure", "time.time"),
    (DrawsFromNumpy, "pure", "global generator of numpy.random;"),
    (DrawsNormalFromNumpy, "pure", "global generator of numpy.random;"),
    (DrawsFromTheSystem, "pure", "os.urandom"),
    (ScribblesInItsMemory, "pure", "changed the memory"),
    (ChangesTheSnapshot, "pure", "changed the snapshot"),
    (CountsInSecret, "deterministic", "two different answers"),
    (ForgetsToLease, "feasible", "nowhere, which is not"),
    (DropsAnOperator, "feasible", "without any instance"),
    (CrowdsOneHost, "feasible", "more than its capacity"),
    (GrowsWithoutAWord, "explained", "gives no reason"),
    (LosesHalfOfItsMemory, "round-trip", "when it is saved and loaded"),
    (DecidesByWhatIsNotSaved, "round-trip", "give another decision"),
    (ReleasesWhatItCannotSee, "careful", "hosts are released"),
    (StopsWhatItCannotSee, "careful", "shrinks although nothing was measured"),
]


def test_a_policy_with_nothing_wrong_passes() -> None:
    check_policy(Quiet())
    check_policy(KnowsTheCalendar())


@pytest.mark.parametrize(("broken", "rule", "words"), BROKEN)
def test_a_policy_that_breaks_one_rule_fails_by_the_name_of_that_rule(
    broken: type[Policy], rule: str, words: str
) -> None:
    with pytest.raises(CheckFailed) as caught:
        check_policy(broken(), seed=1)
    assert str(caught.value).startswith(f"not {rule} (quiet, world ")
    assert words in str(caught.value)


def test_a_failed_check_is_an_assertion_error_that_pytest_shows() -> None:
    with pytest.raises(AssertionError):
        check_policy(ReadsTheClock())


def test_nobody_watches_after_a_failed_check() -> None:
    before = sys.getprofile()
    with pytest.raises(CheckFailed):
        check_policy(ReadsTheClock())
    assert sys.getprofile() is before


@pytest.mark.parametrize("blind", [ReleasesWhatItCannotSee, StopsWhatItCannotSee])
def test_the_missing_metrics_guard_makes_a_careless_policy_careful(blind: type[Policy]) -> None:
    check_policy(MissingMetrics(blind()), seed=1)


def test_memory_and_plan_of_a_quiet_policy_stay_the_same() -> None:
    policy = Quiet()
    assert policy.initial_memory() == NoMemory()


def test_a_collector_of_garbage_that_looks_at_a_clock_is_no_fault_of_the_policy() -> None:
    def look(phase: str, info: dict[str, int]) -> None:
        time.perf_counter()

    before = gc.get_threshold()
    gc.callbacks.append(look)
    gc.set_threshold(1)  # a collection at nearly every step
    try:
        check_policy(create("static"), worlds=1)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(look)
    assert gc.isenabled()
