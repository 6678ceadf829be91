"""Journals that version 0.1.0 wrote can be read, billed, shown, replayed and calibrated from.

``live`` is a run of the demo on a Spark cluster and ``live-fleet`` one of two real hosts; the
others were simulated, and their costs are those that the simulator reported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tidegate.codec import from_json, to_json, to_plain
from tidegate.dashboard.journals import WatchedJournal
from tidegate.errors import JournalError
from tidegate.loop.journal import Turn, read_journal
from tidegate.loop.replay import replay
from tidegate.loop.stack import wrapped
from tidegate.policies import create
from tidegate.policies.base import Policy
from tidegate.report.live import figures, live_page
from tidegate.report.summary import summarise
from tidegate.simulation.calibrate import calibrate

FOLDER = Path(__file__).parents[1] / "fixtures" / "journals-0.1.0"


class Pinned(NamedTuple):
    """Figures of a journal. agrees: turns in which its policy alone decides the same again."""

    turns: int
    duration_s: float
    items: float
    executor_s: float
    peak: int
    cost_usd: float
    slo_s: float | None
    compliance: float | None
    p95_s: float | None
    rescales: int
    changes: int
    agrees: int


PINNED = {
    "adaptive-provisioning": Pinned(30, 595, 19040, 1190, 2, 0.3333, 2, 0.2292, 186.07, 0, 0, 17),
    "batches": Pinned(25, 450, 70819, 2070, 5, 0.37, 2.8, 0.9276, 5.252, 2, 2, 6),
    "btu": Pinned(30, 600, 25718, 800, 3, 0.2333, 1.5385, 0.6194, 18.87, 4, 9, 30),
    "drs-guards": Pinned(24, 600, 25616, 2175, 6, 0.6667, 2, 0.408, 29.125, 4, 4, 10),
    "fleet": Pinned(25, 200, 211200, 272, 2, 0.1, 2, None, None, 2, 2, 25),
    "live": Pinned(29, 143.02, 45288.5, 418.9, 3, 0.15, 10, 0.5517, 16.42, 1, 1, 26),
    "live-fleet": Pinned(38, 81.68, 1493.28, 143.42, 2, 0, None, None, 94789943.67, 0, 2, 36),
    "sarsa": Pinned(11, 550, 24052, 1150, 3, 0.3333, 2, 0.1959, 86.5, 1, 3, 11),
}
GUARDS: dict[str, dict[str, dict[str, Any]]] = {
    "adaptive-provisioning": {"missing-metrics": {}, "bounds": {"max_hosts": 7}, "dry-run": {}},
    "batches": {"stabilisation": {"down_s": 60}, "pause": {"direction": "in"}},
    "drs-guards": {
        "trend": {},
        "missing-metrics": {},
        "stabilisation": {"down_s": 60},
        "cool-down": {"up_s": 10, "down_s": 60},
        "step-limit": {"up": 2, "down": 1},
        "budget": {"soft_usd_per_h": 4, "hard_usd_per_h": 6, "slo_s": 2},
        "useful-hosts": {},
        "effect": {},
        "bounds": {"max_hosts": 6},
        "excluded-periods": {"periods": "00:05-00:06"},
    },
    "live": {
        "trend": {},
        "missing-metrics": {},
        "stabilisation": {"down_s": 20},
        "useful-hosts": {},
        "effect": {},
        "bounds": {"max_hosts": 3},
    },
    "fleet": {"missing-metrics": {}, "bounds": {"max_hosts": 3}},
}


def journal(name: str) -> list[Turn]:
    return list(read_journal(FOLDER / f"{name}.jsonl"))


def holds(new: Any, old: Any) -> bool:
    """Whether a value of today has all that an older version wrote; it may have more fields."""
    if isinstance(old, dict):
        return all(key in new and holds(new[key], value) for key, value in old.items())
    if isinstance(old, list):
        return len(new) == len(old) and all(map(holds, new, old))
    return bool(new == old)


def policy_of(turns: list[Turn]) -> Policy:
    return create(turns[0].policy.split(" ")[0])


def kept(new: Any, old: Any) -> bool:
    """Whether a newer form has all that an older one has, and possibly more fields."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(
            name in new and kept(new[name], value) for name, value in old.items()
        )
    if isinstance(old, list):
        return isinstance(new, list) and len(new) == len(old) and all(map(kept, new, old))
    return bool(new == old)


def test_every_fixture_is_pinned() -> None:
    assert sorted(PINNED) == sorted(path.stem for path in FOLDER.glob("*.jsonl"))


@pytest.mark.parametrize("name", PINNED)
def test_every_line_is_a_turn_and_nothing_of_it_is_lost(name: str) -> None:
    lines = (FOLDER / f"{name}.jsonl").read_text().splitlines()
    turns = journal(name)
    assert len(turns) == len(lines) == PINNED[name].turns
    for line, turn in zip(lines, turns, strict=True):
        assert holds(to_plain(turn), json.loads(line))
        assert from_json(Turn, to_json(turn, defaults=False)) == turn


@pytest.mark.parametrize("name", PINNED)
def test_the_summary_has_the_pinned_figures(name: str) -> None:
    turns, pinned = journal(name), PINNED[name]
    found = summarise(turns)
    assert found.turns == pinned.turns and found.failed_turns == 0
    assert found.duration_s == pytest.approx(pinned.duration_s, abs=0.01)
    assert found.items == pytest.approx(pinned.items, abs=0.1)
    assert found.executor_s == pytest.approx(pinned.executor_s, abs=0.1)
    assert found.peak_executors == pinned.peak
    assert found.cost_usd == pytest.approx(pinned.cost_usd, abs=1e-4)
    assert found.slo_s == pytest.approx(pinned.slo_s, abs=1e-4)
    assert found.slo_compliance == pytest.approx(pinned.compliance, abs=1e-4)
    assert found.p95_s == pytest.approx(pinned.p95_s, abs=0.01)
    assert found.rescales == pinned.rescales
    html = live_page(name, turns, found).html()
    assert html.count("<svg") >= 3
    assert all(value in html for _, value in figures(found) if "<" not in value)


@pytest.mark.parametrize("name", PINNED)
def test_the_dashboard_shows_every_turn(name: str) -> None:
    shown, pinned = WatchedJournal(FOLDER / f"{name}.jsonl", name), PINNED[name]
    while shown.refresh():
        pass
    rows = shown.rows
    assert [row.error for row in rows] == [None] * pinned.turns
    assert sum(row.change is not None for row in rows) == pinned.changes
    assert rows[-1].cost_usd == pytest.approx(pinned.cost_usd, abs=1e-4)
    for index in range(pinned.turns):
        turn = shown.turn(index)
        assert turn["text"] and turn["index"] == index


@pytest.mark.parametrize("name", PINNED)
def test_its_policy_decides_it_anew(name: str) -> None:
    turns = journal(name)
    compared = list(replay(turns, policy_of(turns)))
    assert len(compared) == PINNED[name].turns
    assert sum(row.agrees for row in compared) == PINNED[name].agrees


@pytest.mark.parametrize("name", GUARDS)
def test_a_stack_continues_from_its_memory(name: str) -> None:
    turns = journal(name)
    stack = wrapped(policy_of(turns), GUARDS[name])
    assert stack.describe() == turns[0].policy
    for turn in turns:
        assert_holds(stack.save_memory(stack.load_memory(turn.memory)), turn.memory)


def assert_holds(saved: Any, old: Any) -> None:
    """What an older version remembered is there; fields that came later may stand beside it."""
    if isinstance(old, dict):
        for key, value in old.items():
            assert_holds(saved[key], value)
    else:
        assert saved == old


def test_controls_and_learning_are_shown() -> None:
    controls = [control for turn in journal("fleet") for control in turn.controls]
    assert [(c.do, c.value, bool(c.refused)) for c in controls] == [
        ("pause", "both", False),
        ("pause", "no", False),
        ("policy", "nonsense", True),
    ]
    shown = WatchedJournal(FOLDER / "sarsa.jsonl", "sarsa")
    while shown.refresh():
        pass
    assert shown.rows[-1].lower == pytest.approx(0.3833, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "slot_s", "overhead_s", "startup_s", "peak_per_s"),
    [("batches", 0.01994, 0.6033, 27.0, 252.78), ("live", 0.008385, 3.3545, 7.419, 441.19)],
)
def test_the_simulator_is_calibrated_from_it(
    name: str, slot_s: float, overhead_s: float, startup_s: float, peak_per_s: float
) -> None:
    fits = [fit.value for fit in calibrate(journal(name), name).fits]
    for value in (slot_s, overhead_s, startup_s, peak_per_s):
        assert any(fit == pytest.approx(value, rel=1e-3) for fit in fits), (value, fits)


@pytest.mark.parametrize("name", ["sarsa", "btu", "fleet"])
def test_a_journal_without_batches_of_a_whole_query_is_refused(name: str) -> None:
    with pytest.raises(JournalError):
        calibrate(journal(name), name)
