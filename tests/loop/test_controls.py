"""What people may change while a loop runs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tidegate.codec import to_json
from tidegate.errors import BackendError, InputError
from tidegate.fleet.manager import fleet_policy
from tidegate.loop.controller import Controller
from tidegate.loop.controls import (
    Control,
    ControlFile,
    ControlState,
    apply_controls,
    listener_of,
    submit,
)
from tidegate.loop.journal import Journal, read_journal
from tidegate.loop.stack import wrapped
from tidegate.policies import create
from tidegate.policies.wrapper import innermost
from tidegate.testing import engine_snapshot, station_snapshot
from tidegate.testing.worlds import RecordedWorld

BUSY = engine_snapshot(30_000, [10_000, 10_000])
RATES = {"extract": (40.0, 5.714), "match": (40.0, 5.333), "aggregate": (40.0, 400.0)}


def decided(steering: ControlState, policy_name: str = "adaptive-provisioning") -> tuple[int, int]:
    policy = create(policy_name)
    plan, _ = steering.decide(policy, BUSY, policy.initial_memory())
    return plan.raw_target, plan.bounded_target


def test_a_pause_and_a_dry_run_hold_what_runs_and_keep_the_wish() -> None:
    assert decided(ControlState()) == (3, 3)
    assert decided(ControlState(paused="both")) == (3, 2)
    assert decided(ControlState(dry_run=True)) == (3, 2)
    assert decided(ControlState(paused="in")) == (3, 3)


def test_a_control_changes_what_it_names_and_nothing_else() -> None:
    policy = create("static")
    state, memory = ControlState(), policy.initial_memory()
    for do, value, paused, dry_run in (
        ("dry-run", "on", "no", True),
        ("pause", "in", "in", True),
        ("dry-run", "off", "in", False),
        ("pause", "no", "no", False),
    ):
        noted, state, same, after = apply_controls([Control(do, value)], state, policy, memory)  # type: ignore[arg-type]
        assert (state.paused, state.dry_run) == (paused, dry_run)
        assert same is policy and after is memory
        assert [control.refused for control in noted] == [""]


@pytest.mark.parametrize(
    ("control", "words"),
    [
        (Control("pause", "no"), "resume scaling"),
        (Control("pause", "in"), "pause scaling in"),
        (Control("pause", "both"), "pause scaling"),
        (Control("dry-run", "on"), "decide without acting"),
        (Control("dry-run", "off"), "act on decisions"),
        (Control("policy", "drs"), "decide by drs"),
        (Control("policy", "drs", {"a": 1, "b": 2}), "decide by drs with a = 1, b = 2"),
    ],
)
def test_a_control_in_words(control: Control, words: str) -> None:
    assert control.describe() == words


def test_controls_of_a_journal_whose_folder_is_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "monday" / "j.jsonl"
    assert listener_of(path) is None
    before = len(list(Path("/proc/self/fd").iterdir()))
    file = ControlFile(path, create("static"))
    heard = listener_of(path)
    assert heard is not None and heard.pid == os.getpid()
    file.close()
    assert listener_of(path) is None
    assert len(list(Path("/proc/self/fd").iterdir())) == before, "nothing is left open"


def test_a_pause_leaves_the_memory_as_the_policy_returned_it() -> None:
    policy = wrapped(create("adaptive-provisioning"), {"stabilisation": {}, "bounds": {}})
    before = policy.initial_memory()
    _, free = ControlState().decide(policy, BUSY, before)
    _, paused = ControlState(paused="both", dry_run=True).decide(policy, BUSY, before)
    assert paused == free


def test_bounds_hold_in_a_pause_but_a_dry_run_touches_nothing() -> None:
    policy = wrapped(create("adaptive-provisioning"), {"bounds": {"min_hosts": 3}})
    memory = policy.initial_memory()
    plan, _ = ControlState(paused="both").decide(policy, BUSY, memory)
    assert plan.bounded_target == 3
    plan, _ = ControlState(dry_run=True).decide(policy, BUSY, memory)
    assert plan.bounded_target == 2


def test_parameters_change_and_what_was_learnt_stays() -> None:
    policy = fleet_policy("sarsa", max_hosts=4)
    memory = policy.initial_memory()
    wish = Control("policy", "sarsa", {"target": "0.5"})
    _, changed, after = ControlState().after(wish, policy, memory)
    inner = innermost(changed)
    assert getattr(inner, "target", None) == 0.5
    assert changed.describe() == policy.describe()
    assert after == memory


def test_another_policy_of_the_same_style_takes_over_inside_the_guards() -> None:
    policy = wrapped(create("drs", t_max_s=0.5), {"bounds": {"max_hosts": 9}})
    now = station_snapshot(RATES, (8, 8, 1), cores_per_host=5)
    _, changed, memory = ControlState().after(
        Control("policy", "ds2"), policy, policy.initial_memory()
    )
    assert changed.describe() == "ds2 → bounds(max_hosts=9)"
    changed.decide(now, memory)


def test_a_policy_of_another_style_is_refused() -> None:
    policy = create("drs")
    with pytest.raises(InputError, match="one that decides on instances"):
        ControlState().after(Control("policy", "sarsa"), policy, policy.initial_memory())


def test_a_loop_hears_and_journals_what_was_asked(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    policy = create("adaptive-provisioning")
    file = ControlFile(path, policy)
    try:
        assert file.path.stat().st_mode & 0o777 == 0o600
        with Journal(path) as journal:
            loop = Controller(RecordedWorld([BUSY] * 4), policy, journal, controls=file)
            loop.step()
            submit(path, Control("pause", "both", asked_s=1.0))
            submit(path, Control("policy", "sarsa"))
            loop.step()
            submit(path, Control("pause", "no"))
            loop.step()
        heard = listener_of(path)
        assert heard is not None
        assert heard.policy == "adaptive-provisioning"
        assert heard.parameters["tolerance"] == 0.01
    finally:
        file.close()
    turns = list(read_journal(path))
    targets = [turn.plan.bounded_target for turn in turns if turn.plan]
    assert targets == [3, 2, 3]
    pause, refused = turns[1].controls
    assert (pause.do, pause.refused) == ("pause", "")
    assert "engines" in refused.refused
    assert turns[0].controls == ()
    with pytest.raises(BackendError, match="no loop is listening"):
        submit(path, Control("pause", "no"))


def test_what_is_no_wish_is_refused_and_half_a_line_waits(tmp_path: Path) -> None:
    file = ControlFile(tmp_path / "j.jsonl", create("static"))
    try:
        with file.path.open("ab") as other:
            other.write(b'{"do":"explode","value":"now"}\n{"do":"pause",')
            other.flush()
            (bad,) = file.take()
            assert "cannot be read" in bad.refused
            other.write(b'"value":"in"}\n')
            other.flush()
            assert file.take() == [Control("pause", "in")]
    finally:
        file.close()


def test_a_request_that_is_too_long_is_refused_on_both_sides(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    longest = Control("policy", "drs", {"t_max_s": "1" * 9_800})
    too_long = Control("policy", "drs", {"t_max_s": "1" * 10_000})
    file = ControlFile(path, create("drs"))
    try:
        submit(path, longest)
        assert file.take() == [longest]
        with pytest.raises(InputError, match="shorter than 10000 characters"):
            submit(path, too_long)
        assert file.take() == []
        with file.path.open("a") as other:
            other.write(to_json(too_long) + "\n")
        (heard,) = file.take()
        assert "shorter than 10000 characters" in heard.refused and heard.parameters == {}
    finally:
        file.close()


def test_the_longest_request_is_heard_and_one_character_more_is_not(tmp_path: Path) -> None:
    def asked(characters: int) -> Control:
        empty = len(to_json(Control("policy", "drs", {"t_max_s": ""})))
        return Control("policy", "drs", {"t_max_s": "1" * (characters - empty)})

    path = tmp_path / "j.jsonl"
    file = ControlFile(path, create("drs"))
    submit(path, asked(9_999))  # the end of the line is a character, too
    with pytest.raises(InputError, match="shorter than 10000 characters"):
        submit(path, asked(10_000))
    with file.path.open("a") as other:
        other.write(to_json(asked(10_000)) + "\n" + to_json(asked(10_001)) + "\n")
    first, second, third = file.take()
    file.close()
    assert (first, second) == (asked(9_999), asked(10_000))
    assert "shorter than 10000 characters" in third.refused


def test_a_request_that_cannot_be_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j.jsonl"
    file = ControlFile(path, create("drs"))
    real = Path.open

    def read_only(self: Path, mode: str = "r", **more: Any) -> Any:
        if "a" in mode:
            raise OSError(30, "Read-only file system")
        return real(self, mode, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", read_only)
        with pytest.raises(BackendError, match="could not be written: Read-only file system"):
            submit(path, Control("pause", "in"))
    assert file.take() == []
    file.close()


def test_a_second_loop_does_not_take_the_file_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    first = ControlFile(path, create("drs"))
    with pytest.raises(BackendError, match="another loop listens"):
        ControlFile(path, create("static"))
    submit(path, Control("pause", "in"))
    assert first.take() == [Control("pause", "in")]
    first.close()
    ControlFile(path, create("static")).close()
    assert list(tmp_path.iterdir()) == []


def test_a_policy_that_fails_on_its_parameters_is_a_refusal() -> None:
    class Picky(type(create("static"))):  # type: ignore[misc]
        @classmethod
        def read_settings(cls, settings: dict[str, Any]) -> dict[str, Any]:
            raise KeyError("surprise")

    policy = Picky()
    state = ControlState()
    with mock.patch("tidegate.loop.controls.policy_class", lambda name: Picky):
        noted, after, same, _ = apply_controls(
            [Control("policy", "static", {"hosts": 2}), Control("pause", "in")],
            state,
            policy,
            policy.initial_memory(),
        )
    assert [control.refused for control in noted] == ["KeyError: 'surprise'", ""]
    assert after.paused == "in" and same is policy


def test_a_file_that_a_killed_loop_left_behind_is_nobody(tmp_path: Path) -> None:
    (tmp_path / "j.jsonl.controls").write_text('{"policy":"drs","parameters":{},"pid":1}\n')
    assert listener_of(tmp_path / "j.jsonl") is None
    file = ControlFile(tmp_path / "j.jsonl", create("static"))
    assert file.take() == [], "requests to the run before do not apply"
    heard = listener_of(tmp_path / "j.jsonl")
    assert heard is not None and heard.policy == "static"
    file.close()


def test_values_are_checked() -> None:
    with pytest.raises(InputError, match="one of no, in, both"):
        Control("pause", "perhaps")
    with pytest.raises(InputError, match="one of on, off"):
        Control("dry-run", "no")


def test_another_policy_gets_the_parameters_that_suit_the_latency_target() -> None:
    policy = create("btu")
    _, changed, _ = ControlState().after(
        Control("policy", "drs", {"headroom": 0.5}), policy, policy.initial_memory(), slo_s=10.0
    )
    assert changed == create("drs", t_max_s=7.0, headroom=0.5)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"do": "pause", "value": "in", "until": "noon"}, "key of the control is 'until'"),
        ({"do": "dry-run", "value": "on", "asked_s": 5}, "key of the control is 'asked_s'"),
        ({"do": "policy", "value": "drs", "": {}}, "key of the control is ''"),
        ({"do": "pause", "value": "in", "refused": "no"}, "key of the control is 'refused'"),
        ({"do": "pause", "value": "in", "parameters": {"for": 1}}, "parameter of pause is 'for'"),
        ({"do": "dry-run", "value": "on", "parameters": {"a": 1}}, "parameter of dry-run is 'a'"),
        ({"do": "policy", "value": "drs", "parameters": [1]}, "parameters is"),
        ({"do": "policy", "value": 1}, "value is 1; it must be a text"),
        ({"do": "policy"}, "value is None; it must be a text"),
        ({"do": ["pause"], "value": "in"}, "do is"),
        ({"value": "in"}, "do is None; it must be pause, dry-run or policy"),
    ],
)
def test_a_request_that_says_more_or_less_than_a_control_is_refused(
    asked: dict[str, Any], why: str
) -> None:
    with pytest.raises(InputError, match=why) as caught:
        Control.requested(asked, now_s=1.0)
    assert len(str(caught.value)) <= 300 and "\n" not in str(caught.value)


def test_a_request_becomes_the_control_that_it_describes() -> None:
    asked = {"do": "policy", "value": "drs", "parameters": {"t_max_s": "2s"}}
    assert Control.requested(asked, 7.0) == Control("policy", "drs", {"t_max_s": "2s"}, 7.0)
    assert Control.requested({"do": "pause", "value": "no"}, 7.0) == Control("pause", "no", {}, 7.0)


def test_a_line_in_the_file_with_a_key_or_a_parameter_too_many_changes_nothing(
    tmp_path: Path,
) -> None:
    policy = create("static")
    file = ControlFile(tmp_path / "j.jsonl", policy)
    with file.path.open("a") as other:
        other.write('{"do":"pause","value":"in","until":"noon"}\n')
        other.write('{"do":"pause","value":"in","parameters":{"until":"noon"}}\n')
        other.write('{"do":"dry-run","value":"on","parameters":{"until":"noon"}}\n')
    noted, state, same, _ = apply_controls(
        file.take(), ControlState(), policy, policy.initial_memory()
    )
    file.close()
    assert all("until" in control.refused for control in noted) and len(noted) == 3
    assert state == ControlState() and same is policy


def test_a_journal_of_an_earlier_version_may_have_a_pause_with_parameters(tmp_path: Path) -> None:
    policy = create("static")
    with Journal(tmp_path / "j.jsonl") as journal:
        Controller(RecordedWorld([BUSY]), policy, journal).step()
    (turn,) = read_journal(tmp_path / "j.jsonl")
    old = replace(turn, controls=(Control("pause", "in", {"until": "noon"}),))
    (tmp_path / "old.jsonl").write_text(to_json(old) + "\n")
    (read,) = read_journal(tmp_path / "old.jsonl")
    assert read.controls == old.controls
