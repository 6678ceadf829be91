"""What kept a job from scaling, turn by turn, from its journal.

Sentences of the journal that differ in numbers and names of hosts only are counted together; the
last of them is shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tidegate.errors import JournalError
from tidegate.loop.journal import Turn, read_journal
from tidegate.loop.records import LOST
from tidegate.model import Binding
from tidegate.report.summary import MOST_INTERVALS
from tidegate.spark.scalability.findings import Diagnosis, Finding, NotChecked, Severity
from tidegate.spark.scalability.register import worst_first
from tidegate.units import show_duration

__all__ = ["diagnose_journal", "diagnose_turns"]

FAILED_AT_THE_END = 3
"""After this many failed turns in a row the autoscaler only watches."""
SLOW_START_S = 120.0
"""An executor that takes longer than this to start has no place, as a rule."""

_GROWTH: dict[str, tuple[Severity, str]] = {
    "bounds": ("limits", "raise --max-executors if the cost is acceptable"),
    "useful-hosts": ("limits", "give the query more partitions, or repartition its input"),
    "effect": (
        "limits",
        "look for what executors do not speed up: a sink at its limit, a skewed key, one partition",
    ),
    "budget": ("limits", "raise the budget if the cost is acceptable"),
    "missing-metrics": ("limits", "see which measurement is missing, and why"),
    "when-blind": ("limits", "see which measurement is missing, and why"),
    "excluded-periods": ("limits", "shorten the excluded periods"),
    "cool-down": ("note", "shorten the cool-down (up_s) if loads rise faster than that"),
    "step-limit": ("note", "raise the step limit (up) if loads rise faster than that"),
}
"""How much a guard matters that keeps a job from growing, and what to do."""
_RELEASES: dict[str, str] = {
    "stabilisation": "shorten --stabilise to release sooner",
    "cool-down": "shorten the cool-down (down_s) to release sooner",
    "release-limit": "switch it off to release more at once: --without-guard release-limit",
    "step-limit": "raise the step limit (down) to release more at once",
    "first-look": "nothing is to be done: it ends by itself",
    "change-cost": "nothing is to be done: the change would have cost more than it saved",
    "missing-metrics": "see which measurement is missing, and why",
    "when-blind": "see which measurement is missing, and why",
    "scheduled-minimum": "lower the scheduled minimum",
    "bounds": "lower --min-executors",
    "excluded-periods": "shorten the excluded periods",
}


@dataclass
class _Group:
    """Sentences of one kind. turns: numbers of the turns; last: the last sentence."""

    turns: list[int]
    last: str

    def count(self, of: int) -> str:
        """In how many turns it was said."""
        turn = f"turn {self.turns[-1]}"
        number = len(set(self.turns))
        return f"{number} of {of} turns, last in {turn}" if number > 1 else f"{turn} of {of}"


def diagnose_journal(path: str | os.PathLike[str]) -> Diagnosis:
    """What kept a job from scaling, by its journal. Raises JournalError for no journal."""
    not_read: list[str] = []
    turns = list(read_journal(path, not_read))
    if not turns:
        raise JournalError("journal", os.fspath(path), "a journal with a turn", "run the job first")
    found = diagnose_turns(turns, os.fspath(path))
    skipped = tuple(NotChecked("these turns", sentence, "journal") for sentence in not_read)
    return Diagnosis(found.subject, found.findings, found.not_checked + skipped, found.passed)


def diagnose_turns(turns: Sequence[Turn], subject: str = "") -> Diagnosis:
    """What kept a job from scaling in these turns.

    turns: at least one. subject: what was looked at.
    """
    findings: list[Finding] = []
    passed: list[str] = []
    for name, look in _LOOKS.items():
        before = len(findings)
        for finding in look(turns):
            findings.append(
                Finding(
                    finding.severity, finding.key, finding.value, finding.why, finding.remedy,
                    check=name,
                )
            )  # fmt: skip
        if len(findings) == before:
            passed.append(name)
    last = turns[-1]
    shown = f"{subject}: {len(turns)} turns to turn {last.number}, {last.policy}"
    settings = NotChecked(
        "the settings of Spark, the cluster and the code",
        "a journal does not have them (run tidegate doctor on the command line or the running job)",
        "settings",
    )
    return Diagnosis(shown, tuple(worst_first(findings)), (settings,), tuple(passed))


# --- what is looked for -------------------------------------------------------------------------


def _failed(turns: Sequence[Turn]) -> Iterator[Finding]:
    """Turns that failed."""
    at_the_end = [bool(turn.error) for turn in turns[-FAILED_AT_THE_END:]]
    still = all(at_the_end)
    for group in _grouped((t.number, t.error) for t in turns if t.error):
        why, remedy = _split(group.last, "see the log of the driver for the cause")
        ends_now = still and group.turns[-1] == turns[-1].number
        yield Finding(
            "blocks" if ends_now else "limits", "failed turns", group.count(len(turns)), why, remedy
        )


def _refused(turns: Sequence[Turn]) -> Iterator[Finding]:
    """What the cluster manager or the world refused."""
    said = ((t.number, s) for t in turns if t.outcome for s in t.outcome.refused)
    for group in _grouped(said):
        released = "not released" in group.last
        why, remedy = _split(
            group.last,
            "check that the cluster manager has room and lets the application change executors",
            "not released",
        )
        if "no pause between the batches" in group.last:
            remedy = "nothing is to be done unless it stays so: a trigger with an interval leaves "
            remedy += "pauses"
        yield Finding("note" if released else "limits", "refused", group.count(len(turns)), why,
                      remedy)  # fmt: skip


def _held(turns: Sequence[Turn]) -> Iterator[Finding]:
    """Guards that kept the job from growing, or from releasing."""
    grow: dict[str, list[tuple[int, Binding]]] = {}
    keep: dict[str, list[tuple[int, Binding]]] = {}
    for turn in turns:
        if turn.plan is None or turn.snapshot is None:
            continue
        now = len(turn.snapshot.requested.hosts)
        for binding in turn.plan.bindings:
            if binding.after < binding.before and binding.before > now:
                grow.setdefault(binding.guard, []).append((turn.number, binding))
            elif binding.after > binding.before and binding.before < now:
                keep.setdefault(binding.guard, []).append((turn.number, binding))
    for guard in ("pause", "dry-run"):  # they hold in both directions
        both = grow.pop(guard, []) + keep.pop(guard, [])
        if both:
            yield _by_hand(guard, sorted(both, key=lambda one: one[0]), turns)
    for guard, found in grow.items():
        severity, remedy = _GROWTH.get(guard, ("note", f"see the guard {guard}"))
        yield _binding(severity, f"guard {guard} (growth)", found, turns, remedy)
    for guard, found in keep.items():
        remedy = _RELEASES.get(guard, f"see the guard {guard}")
        yield _binding("note", f"guard {guard} (releases)", found, turns, remedy)


def _by_hand(guard: str, found: list[tuple[int, Binding]], turns: Sequence[Turn]) -> Finding:
    if guard == "dry-run":
        return _binding("note", "guard dry-run", found, turns, "leave out --dry-run to scale")
    now = found[-1][0] == turns[-1].number
    one_way = "scaling in" in found[-1][1].why or "scaling out" in found[-1][1].why
    severity: Severity = "note" if not now else "limits" if one_way else "blocks"
    remedy = "resume scaling in the dashboard" if now else "nothing is to be done: it has ended"
    return _binding(severity, "guard pause", found, turns, remedy)


def _binding(
    severity: Severity,
    key: str,
    found: list[tuple[int, Binding]],
    turns: Sequence[Turn],
    remedy: str,
) -> Finding:
    last = found[-1][1]
    group = _Group([number for number, _ in found], last.why)
    executors = f"{last.before} executors were wanted and {last.after} allowed"
    return Finding(severity, key, group.count(len(turns)), f"{executors}: {last.why}", remedy)


def _ceilings(turns: Sequence[Turn]) -> Iterator[Finding]:
    """Sources that admitted fewer rows than arrived."""
    said = (
        (t.number, r.text) for t in turns if t.plan for r in t.plan.reasons if r.code == "ceiling"
    )
    for group in _grouped(said):
        yield Finding(
            "limits",
            "limit of a source",
            group.count(len(turns)),
            group.last,
            "raise the limit (maxOffsetsPerTrigger, maxFilesPerTrigger), or leave it out",
        )


def _blind(turns: Sequence[Turn]) -> Iterator[Finding]:
    """Turns in which the policy lacked measurements."""
    said = (
        (t.number, r.text) for t in turns if t.plan for r in t.plan.reasons if r.code == "missing"
    )
    for group in _grouped(said):
        always = len(set(group.turns)) > len(turns) / 2
        yield Finding(
            "limits" if always else "note",
            "missing measurements",
            group.count(len(turns)),
            group.last,
            "look at the first batches of each query: one that never ends a batch, or whose jobs "
            "cannot be attributed, has no known cost"
            if always
            else "nothing is to be done: the first batches of a query are not known yet",
        )


def _unmet(turns: Sequence[Turn]) -> Iterator[Finding]:
    """Demand that no plan could meet."""
    said = ((t.number, u.why) for t in turns if t.plan for u in t.plan.unmet)
    for group in _grouped(said):
        why, remedy = _split(group.last, "raise --max-executors, or lower the load or the target")
        yield Finding("limits", "unmet demand", group.count(len(turns)), why, remedy)


def _costly(turns: Sequence[Turn]) -> Iterator[Finding]:
    """Releases that cost a running batch something."""
    said = ((t.number, n) for t in turns if t.outcome for n in t.outcome.notes)
    for group in _grouped(said):
        killed = "spark.decommission.enabled" in group.last
        yield Finding(
            "limits" if killed else "note",
            "spark.decommission.enabled" if killed else "releases",
            group.count(len(turns)),
            group.last,
            "start the application with --conf spark.decommission.enabled=true"
            if killed
            else "give the trigger an interval, so that there is a pause between batches",
        )


def _slow(turns: Sequence[Turn]) -> Iterator[Finding]:
    """Executors that were requested and did not start in time."""
    since_s: dict[str, float] = {}
    worst: dict[str, tuple[float, int]] = {}
    for turn in turns:
        if turn.snapshot is None:
            continue
        starting = {host.id for host in turn.snapshot.hosts if host.status == "starting"}
        for gone in since_s.keys() - starting:
            del since_s[gone]
        for host in starting:
            began_s = since_s.setdefault(host, turn.snapshot.time_s)
            waited_s = turn.snapshot.time_s - began_s
            if waited_s > SLOW_START_S:
                worst[host] = (waited_s, turn.number)
    if worst:
        longest_s = max(waited_s for waited_s, _ in worst.values())
        last = max(number for _, number in worst.values())
        yield Finding(
            "limits",
            "executors that did not start",
            f"{len(worst)}, last in turn {last} of {len(turns)}",
            f"they were requested and did not run after {show_duration(longest_s)}",
            "look for the room in the cluster: a full queue of YARN, pending pods, spark.cores.max",
        )


def _lost(turns: Sequence[Turn]) -> Iterator[Finding]:
    """Turns that are missing in the journal."""
    for group in _grouped((t.number, n) for t in turns for n in t.notes if LOST in n):
        yield Finding(
            "note", "journal", group.count(len(turns)), group.last, "make room on the disk"
        )
    gaps = []
    for before, after in pairwise(turn.snapshot for turn in turns):
        if before is None or after is None:  # a turn that failed was there all the same
            continue
        usual_s = before.interval_s
        if usual_s and after.time_s - before.time_s > MOST_INTERVALS * usual_s:
            gaps.append(after.time_s - before.time_s)
    if gaps:
        yield Finding(
            "note",
            "not watched",
            f"{len(gaps)} times, {show_duration(sum(gaps))} in all",
            "nobody decided in this time: the driver was down, or a turn took very long",
            "see the log of the driver for that time",
        )


_LOOKS = {
    "failed-turns": _failed,
    "refused": _refused,
    "guards": _held,
    "ceilings": _ceilings,
    "missing-measurements": _blind,
    "unmet-demand": _unmet,
    "costly-releases": _costly,
    "slow-starts": _slow,
    "lost-turns": _lost,
}


def _grouped(said: Iterator[tuple[int, str]]) -> list[_Group]:
    """Sentences that differ in numbers only, the most frequent first."""
    groups: dict[str, _Group] = {}
    for turn, text in said:
        kind = re.sub(r"\d[\d.,]*", "#", text)
        group = groups.setdefault(kind, _Group([], text))
        group.turns.append(turn)
        group.last = text
    return sorted(groups.values(), key=lambda group: -len(group.turns))


def _split(text: str, otherwise: str, *not_at: str) -> tuple[str, str]:
    """A sentence in its cause and its remedy, which stand before and after the last colon."""
    why, colon, remedy = text.rpartition(": ")
    if colon and " " in remedy and not any(word in why for word in not_at):
        return why, remedy
    return text, otherwise
