"""Controls: what a person may change while a loop runs.

A person can pause the loop, turn it into a dry run, or change its policy. A request (`Control`) is
one line in a file next to the journal that only the owner can write. The loop reads the file before
each turn, applies new requests and records them, applied or refused, in the journal with that turn.
A dashboard therefore works in the loop's process and in another one.

Changes last until the loop ends: a new run starts as configured.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from tidegate.codec import Value, from_json, to_json, to_plain
from tidegate.errors import BackendError, InputError, TidegateError
from tidegate.guards import DryRun, Guard, Pause
from tidegate.loop.lock import try_lock
from tidegate.loop.tail import Tail
from tidegate.model import Plan, Snapshot
from tidegate.policies import policy_class
from tidegate.policies.base import NoMemory, Policy, Situation
from tidegate.policies.wrapper import PolicyWrapper, WrapperMemory, innermost

__all__ = [
    "Control",
    "ControlFile",
    "ControlListener",
    "ControlState",
    "apply_controls",
    "listener_of",
    "submit",
]

LONGEST_LINE = 10_000
REQUESTED: dict[str, Any] = {"do": None, "value": None, "parameters": {}}
"""What a request may say, and what it says if it does not."""


@dataclass(frozen=True, slots=True)
class Control(Value):
    """A request of a person.

    do: ``pause`` with the value ``no``, ``in`` (nothing is released) or ``both``; ``dry-run`` with
    ``on`` or ``off``; ``policy`` with a policy's name and the parameters to change.
    asked_s: time of the request, Unix seconds. refused: why it was not applied, empty when it was.
    """

    do: Literal["pause", "dry-run", "policy"]
    value: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    asked_s: float = 0.0
    refused: str = ""

    def __post_init__(self) -> None:
        allowed = {"pause": ("no", "in", "both"), "dry-run": ("on", "off")}.get(self.do)
        if allowed is not None and self.value not in allowed:
            raise InputError(self.do, self.value, "one of " + ", ".join(allowed))

    @classmethod
    def requested(cls, plain: Mapping[str, Any], now_s: float) -> Control:
        """The control that plain values describe; InputError if they are not exactly that.

        >>> Control.requested({"do": "pause", "value": "in", "until": "noon"}, now_s=0.0)
        Traceback (most recent call last):
        tidegate.errors.InputError: a key of the control is 'until'; it must be do, value or
        parameters
        """
        for key in plain:
            if key not in REQUESTED:
                raise InputError("a key of the control", key, "do, value or parameters")
        do, value, parameters = (plain.get(key, other) for key, other in REQUESTED.items())
        if do not in ("pause", "dry-run", "policy"):
            raise InputError("do", do, "pause, dry-run or policy")
        if not isinstance(value, str):
            raise InputError("value", value, "a text")
        if not isinstance(parameters, Mapping):
            raise InputError("parameters", parameters, "an object with names and values")
        control = cls(do, value, parameters, asked_s=now_s)
        control.check()
        return control

    def check(self) -> None:
        """Raise InputError for parameters of what has none; a journal may have such a control."""
        if self.do != "policy":
            for name in self.parameters:
                remedy = "only a policy has parameters"
                raise InputError(f"a parameter of {self.do}", name, "left out", remedy)

    def describe(self) -> str:
        """The request in words.

        >>> Control("policy", "drs", {"t_max_s": "2s"}).describe()
        'decide by drs with t_max_s = 2s'
        """
        if self.do == "policy":
            pairs = ", ".join(f"{key} = {value}" for key, value in self.parameters.items())
            return f"decide by {self.value}" + (f" with {pairs}" if pairs else "")
        words = {
            ("pause", "no"): "resume scaling",
            ("pause", "in"): "pause scaling in",
            ("pause", "both"): "pause scaling",
            ("dry-run", "on"): "decide without acting",
            ("dry-run", "off"): "act on decisions",
        }
        return words[self.do, self.value]


@dataclass(frozen=True, slots=True)
class ControlState(Value):
    """What is in force: the paused direction (``no``, ``in``, ``both``), and whether it is dry."""

    paused: str = "no"
    dry_run: bool = False

    def after(
        self, control: Control, policy: Policy, memory: Any, slo_s: float | None = None
    ) -> tuple[ControlState, Policy, Any]:
        """The state, the policy and its memory after a request; InputError if it cannot be applied.

        A change of parameters keeps what the policy has learnt. Another policy starts afresh, with
        the parameters that it suggests for the latency target `slo_s`. The wrappers stay as they
        are.
        """
        control.check()
        if control.do == "pause":
            return replace(self, paused=control.value), policy, memory
        if control.do == "dry-run":
            return replace(self, dry_run=control.value == "on"), policy, memory
        return self, *_changed(policy, memory, control, slo_s)

    def decide(self, policy: Policy, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        """Let a policy decide, within what is in force."""
        if self.paused != "no":
            policy = _paused(policy, self.paused)
        if self.dry_run:
            policy = _Transparent(inner=DryRun(inner=policy))
        return policy.decide(snapshot, memory)


@dataclass(frozen=True)
class _Transparent(PolicyWrapper):
    """Around a guard without memory: takes and returns the memory of the policy that it guards."""

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        plan, after = self.inner.decide(snapshot, WrapperMemory(NoMemory(), memory))
        return plan, after.inner


def _paused(policy: Policy, direction: str) -> Policy:
    """A pause inside the guards that always apply."""
    if isinstance(policy, Guard) and policy.has_last_word:
        return replace(policy, inner=_paused(policy.inner, direction))
    return _Transparent(inner=Pause.around(policy, {"direction": direction}))


def _changed(
    policy: Policy, memory: Any, control: Control, slo_s: float | None
) -> tuple[Policy, Any]:
    if isinstance(policy, PolicyWrapper):
        inner, inner_memory = _changed(policy.inner, memory.inner, control, slo_s)
        return replace(policy, inner=inner), WrapperMemory(memory.own, inner_memory)
    kind = policy_class(control.value)
    if kind.style != policy.style:
        allowed = f"one that decides on {policy.style}, as {policy.name} does"
        raise InputError("policy", control.value, allowed, "start a new run with that policy")
    settings = kind.read_settings(dict(control.parameters))
    if isinstance(policy, kind):
        return replace(policy, **settings), memory
    suggested = kind.suggested(Situation(slo_s)) if slo_s is not None else {}
    new = kind(**{**suggested, **settings})
    return new, new.initial_memory()


# --- the file -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ControlListener(Value):
    """The first line of the file: the policy of the loop that reads it, and its process."""

    policy: str
    parameters: Mapping[str, Any]
    pid: int = 0


def _controls_path(journal: str | os.PathLike[str]) -> Path:
    path = Path(journal)
    return path.with_name(path.name + ".controls")


class ControlFile:
    """The loop's side of the file. It holds a lock on the file while the loop runs.

    Raises BackendError if another loop listens there.

    journal: the file next to which it is. policy: the policy of the loop, shown to users.
    """

    def __init__(self, journal: str | os.PathLike[str], policy: Policy) -> None:
        self.path = _controls_path(journal)
        inner = innermost(policy)
        names = [f.name for f in fields(inner) if f.metadata]
        parameters = {name: to_plain(getattr(inner, name)) for name in names}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if listener_of(journal) is not None:
            raise BackendError(f"another loop listens to {self.path}")
        self.path.unlink(missing_ok=True)  # requests to an earlier run do not apply to this one
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(handle, "r+b", buffering=0)
        try_lock(self._file, shared=True)
        first = to_json(ControlListener(inner.name, parameters, os.getpid())) + "\n"
        self._file.write(first.encode())
        self._tail = Tail(self.path)
        list(self._tail.lines())

    def take(self) -> list[Control]:
        """The requests since the last call. A line that cannot be read is refused."""
        found = []
        for line in self._tail.lines():
            try:
                if len(line) > LONGEST_LINE:
                    raise _too_long()
                found.append(from_json(Control, line))
            except InputError as error:
                found.append(Control("pause", "no", refused=f"it cannot be read: {error}"))
        return found

    def close(self) -> None:
        """Stop listening and remove the file."""
        with suppress(OSError):
            self.path.unlink()
        self._file.close()


def _too_long() -> InputError:
    return InputError("parameters", "…", f"shorter than {LONGEST_LINE} characters")


def listener_of(journal: str | os.PathLike[str]) -> ControlListener | None:
    """The loop that accepts requests about a journal, None when there is none."""
    try:
        with _controls_path(journal).open("rb") as file:
            if not try_lock(file):
                return from_json(ControlListener, file.readline(LONGEST_LINE))
    except (OSError, InputError):
        return None
    return None  # a loop that was killed left the file behind


def submit(journal: str | os.PathLike[str], control: Control) -> None:
    """Send a request to a journal's loop; BackendError when no loop is listening."""
    line = to_json(control) + "\n"
    if len(line) > LONGEST_LINE:
        raise _too_long()
    if listener_of(journal) is None:
        raise BackendError(
            "no loop is listening: the run has ended, or it was started without controls"
        )
    try:
        with _controls_path(journal).open("ab", buffering=0) as file:
            file.write(line.encode())
    except OSError as error:
        raise BackendError(f"the request could not be written: {error.strerror}") from None


def apply_controls(
    found: list[Control],
    state: ControlState,
    policy: Policy,
    memory: Any,
    slo_s: float | None = None,
) -> tuple[tuple[Control, ...], ControlState, Policy, Any]:
    """Apply requests one after the other; those that cannot be applied are marked as refused.

    A policy may fail in any way on parameters that it did not expect, which must not end the loop.
    """
    noted = []
    for control in found:
        refused = control.refused
        if not refused:
            try:
                state, policy, memory = state.after(control, policy, memory, slo_s)
            except TidegateError as error:
                refused = str(error)
            except Exception as error:
                refused = f"{type(error).__name__}: {error}"
        noted.append(replace(control, refused=refused))
    return tuple(noted), state, policy, memory
