"""What a journal says about a job that did not scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.errors import JournalError
from tidegate.loop.backend import Outcome
from tidegate.loop.journal import Journal, Turn
from tidegate.loop.records import LOST
from tidegate.model import Binding, Plan, Reason, Unmet
from tidegate.spark.doctor.journal import diagnose_journal, diagnose_turns
from tidegate.spark.scalability.findings import Finding
from tidegate.testing import steady_snapshot

FIXTURES = Path(__file__).parents[2] / "fixtures" / "journals-0.1.0"


def turn(number: int, hosts: int = 2, time_s: float | None = None, **more: object) -> Turn:
    """A turn with a plan; more: fields of the plan or the outcome."""
    now_s = 10.0 * number if time_s is None else time_s
    snapshot = replace(steady_snapshot(hosts, time_s=now_s), interval_s=10.0)
    plan = Plan(snapshot.requested, **{k: v for k, v in more.items() if k in PLAN})  # type: ignore[arg-type]
    outcome = Outcome(**{k: v for k, v in more.items() if k not in PLAN})  # type: ignore[arg-type]
    return Turn(number, "drs", snapshot, plan, outcome)


PLAN = ("reasons", "bindings", "unmet")


def found(turns: Sequence[Turn]) -> list[Finding]:
    return list(diagnose_turns(turns).findings)


def test_a_quiet_journal_has_no_findings() -> None:
    result = diagnose_turns([turn(n) for n in range(1, 5)], "j.jsonl")
    assert result.findings == () and not result.blocked
    assert result.subject == "j.jsonl: 4 turns to turn 4, drs"
    assert [n.check for n in result.not_checked] == ["settings"], "a journal does not have them"
    assert len(result.passed) == 9


def test_turns_that_failed_to_the_end_block() -> None:
    sentence = "query fast has a continuous trigger, which cannot be scaled: use another one"
    bad = [Turn(n, "drs", error=sentence) for n in (2, 3, 4)]
    (finding,) = found([turn(1), *bad])
    assert (finding.severity, finding.value) == ("blocks", "3 of 4 turns, last in turn 4")
    assert finding.why.endswith("cannot be scaled") and finding.remedy == "use another one"
    (finding,) = found([turn(1), *bad, turn(5)])
    assert finding.severity == "limits", "it went on"


def test_refusals_are_counted_together() -> None:
    said = "host-{} is refused: the cluster manager did not acknowledge a total of {}"
    (finding,) = found([turn(n, refused=(said.format(n, n + 3),)) for n in (1, 2, 3)])
    assert (finding.severity, finding.value) == ("limits", "3 of 3 turns, last in turn 3")
    assert "host-3" in finding.why
    late = "host-2 is not released yet: there was no pause between the batches of ticks"
    (finding,) = found([turn(1), turn(2, refused=(late,))])
    assert (finding.severity, finding.value) == ("note", "turn 2 of 2")
    assert "a trigger with an interval" in finding.remedy and finding.why == late


@pytest.mark.parametrize(
    ("binding", "severity", "key", "remedy"),
    [
        (Binding("bounds", 5, 2, "the maximum is 2 hosts"), "limits", "guard bounds (growth)",
         "raise --max-executors"),
        (Binding("useful-hosts", 5, 3, "nothing to do"), "limits", "guard useful-hosts (growth)",
         "more partitions"),
        (Binding("effect", 5, 2, "it did not help"), "limits", "guard effect (growth)", "sink"),
        (Binding("budget", 5, 2, "it pays for 2"), "limits", "guard budget (growth)", "budget"),
        (Binding("cool-down", 3, 2, "grows in 5 s"), "note", "guard cool-down (growth)", "up_s"),
        (Binding("stabilisation", 1, 2, "2 were wanted"), "note",
         "guard stabilisation (releases)", "--stabilise"),
        (Binding("missing-metrics", 1, 2, "rate is missing"), "note",
         "guard missing-metrics (releases)", "which measurement"),
        (Binding("dry-run", 5, 2, "this is a dry run"), "note", "guard dry-run", "--dry-run"),
        (Binding("pause", 5, 2, "scaling is paused"), "blocks", "guard pause", "resume"),
        (Binding("pause", 1, 2, "scaling in is paused"), "limits", "guard pause", "resume"),
        (Binding("of-tomorrow", 5, 2, "so it is"), "note", "guard of-tomorrow (growth)", "see"),
    ],
)  # fmt: skip
def test_guards_that_held(binding: Binding, severity: str, key: str, remedy: str) -> None:
    (finding,) = found([turn(1), turn(2, bindings=(binding,))])
    assert (finding.severity, finding.key) == (severity, key)
    assert binding.why in finding.why and remedy in finding.remedy


def test_a_guard_that_only_limits_a_release_is_no_limit_of_growth() -> None:
    raised = Binding("release-limit", 1, 2, "at least half stays")
    (finding,) = found([turn(1, hosts=4, bindings=(raised,))])
    assert finding.key == "guard release-limit (releases)"


def test_a_pause_that_has_ended_is_a_note() -> None:
    paused = turn(1, bindings=(Binding("pause", 5, 2, "scaling is paused"),))
    (finding,) = found([paused, turn(2)])
    assert finding.severity == "note"


def test_ceilings_missing_measurements_and_unmet_demand() -> None:
    ceiling = Reason("ceiling", "the source of ticks admits at most 500 rows every 10 s")
    missing = Reason("missing", "an arrival rate is unknown: no change")
    unmet = Unmet("ticks", 1, "a latency of 7 s cannot be reached: raise the bound")
    turns = [turn(n, reasons=(ceiling, missing), unmet=(unmet,)) for n in (1, 2)]
    assert {f.key: f.severity for f in found(turns)} == {
        "limit of a source": "limits",
        "missing measurements": "limits",
        "unmet demand": "limits",
    }
    findings = {f.key: f for f in found([*turns, *(turn(n) for n in range(3, 9))])}
    assert findings["missing measurements"].severity == "note", "only at the start"
    assert findings["unmet demand"].remedy == "raise the bound"


def test_releases_that_killed_tasks() -> None:
    (finding,) = found([turn(1, notes=("spark.decommission.enabled is false: tasks ran again",))])
    assert (finding.severity, finding.key) == ("limits", "spark.decommission.enabled")
    (finding,) = found([turn(1, notes=("released during a batch of ticks, after 30 s",))])
    assert (finding.severity, finding.key) == ("note", "releases")


def test_executors_that_never_start() -> None:
    turns = []
    for number in range(1, 20):
        one = turn(number)
        assert one.snapshot is not None
        first, second = one.snapshot.hosts
        hosts = (first, replace(second, status="starting"))
        instances = tuple(i for i in one.snapshot.instances if i.host == first.id)
        snapshot = replace(one.snapshot, hosts=hosts, instances=instances)
        turns.append(replace(one, snapshot=snapshot))
    (finding,) = found(turns)
    assert finding.key == "executors that did not start"
    assert finding.value == "1, last in turn 19 of 19" and "3 min" in finding.why
    assert found(turns[:10]) == [], "it has time to start"


def test_lost_turns_and_times_without_a_watch() -> None:
    lost = replace(turn(2), notes=(f"3 {LOST}: no space left on device",))
    (finding,) = found([turn(1), lost])
    assert finding.key == "journal" and "no space" in finding.why
    (finding,) = found([turn(1), turn(2, time_s=500.0)])
    assert (finding.key, finding.value) == ("not watched", "1 times, 8.17 min in all")


def test_journals_of_older_versions_are_read() -> None:
    for path in sorted(FIXTURES.glob("*.jsonl")):
        assert diagnose_journal(path).subject.startswith(str(path))
    findings = diagnose_journal(FIXTURES / "live.jsonl").findings
    assert findings[0].key == "unmet demand" and "18 of 29 turns" in str(findings[0].value)


def test_no_journal_and_damaged_lines(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path):
        pass
    with pytest.raises(JournalError, match="with a turn"):
        diagnose_journal(path)
    with Journal(path) as journal:
        journal.write(turn(1))
    with path.open("a") as file:
        file.write('{"number": "x"}\n')
    with Journal(path) as journal:
        journal.write(turn(3))
    result = diagnose_journal(path)
    assert [n.check for n in result.not_checked] == ["settings", "journal"]
