"""The fake host keeps the contract of hosts, as real ones do (`tests/fleet/live.py`)."""

from __future__ import annotations

from pathlib import Path

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


class SeesAnything(FakeHost):
    def sees(self, file: Path, text: str, timeout_s: float) -> bool:
        return file.exists()


class SeesNothing(FakeHost):
    def sees(self, file: Path, text: str, timeout_s: float) -> bool:
        return False


def check(kind: type[FakeHost], folder: Path) -> None:
    good, bad = (ContinuousQuery(name, lambda s, c: None) for name in ("good", "bad"))
    host = kind(FakeClock(), {}, refuse={"bad": ValueError("nonsense")})
    check_host(host, good, bad, str(folder / "c"), "nonsense")


def test_the_fake_keeps_the_contract(tmp_path: Path) -> None:
    check(FakeHost, tmp_path)


@pytest.mark.parametrize(
    "broken, rule",
    [
        (KeepsStoppedQueries, "a stopped query is not reported"),
        (StartsTwice, "starting a second copy of a query is an error"),
        (StartsAnything, "a query that cannot start raises its error"),
        (FailsWithoutAReason, "with the words 'nonsense'"),
        (SeesAnything, "a host reads what is in a file"),
        (SeesNothing, "a host on this machine sees its files"),
    ],
)
def test_a_host_that_breaks_one_rule_fails_by_that_rule(
    broken: type[FakeHost], rule: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckFailed, match=rule):
        check(broken, tmp_path)
