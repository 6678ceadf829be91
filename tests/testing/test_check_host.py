"""The fake host keeps the contract of hosts, as real ones do (`tests/fleet/live.py`)."""

from __future__ import annotations

import pytest

from tidegate.errors import CheckFailed
from tidegate.fleet import ContinuousQuery
from tidegate.testing import FakeClock, FakeHost, check_host


class KeepsStoppedQueries(FakeHost):
    def stop(self, name: str, timeout_s: float) -> None:
        self._check()


class StartsTwice(FakeHost):
    def start(self, query: ContinuousQuery, checkpoint: str, timeout_s: float) -> None:
        self.copies.pop(query.name, None)
        super().start(query, checkpoint, timeout_s)


class StartsAnything(FakeHost):
    def start(self, query: ContinuousQuery, checkpoint: str, timeout_s: float) -> None:
        self.refuse.clear()
        super().start(query, checkpoint, timeout_s)


class FailsWithoutAReason(FakeHost):
    def start(self, query: ContinuousQuery, checkpoint: str, timeout_s: float) -> None:
        if query.name in self.refuse:
            raise ValueError
        super().start(query, checkpoint, timeout_s)


def check(kind: type[FakeHost]) -> None:
    good, bad = (ContinuousQuery(name, lambda s, c: None) for name in ("good", "bad"))
    host = kind(FakeClock(), {}, refuse={"bad": ValueError("nonsense")})
    check_host(host, good, bad, "c", "nonsense")


def test_the_fake_keeps_the_contract() -> None:
    check(FakeHost)


@pytest.mark.parametrize(
    "broken, rule",
    [
        (KeepsStoppedQueries, "a stopped query is not reported"),
        (StartsTwice, "starting a second copy of a query is an error"),
        (StartsAnything, "a query that cannot start raises its error"),
        (FailsWithoutAReason, "with the words 'nonsense'"),
    ],
)
def test_a_host_that_breaks_one_rule_fails_by_that_rule(broken: type[FakeHost], rule: str) -> None:
    with pytest.raises(CheckFailed, match=rule):
        check(broken)
