"""What a person may change while a loop runs: pause it, make it a dry run, change its policy.

A wish (`Control`) is one line in a file beside the journal, which only the owner can write. The
loop looks there before each turn, heeds what is new and writes it, heeded or refused, into the
journal with that turn. So it does not matter whether a dashboard lives in the loop's process or in
another one.

What is set lasts until the loop ends: a new run starts as it was configured.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from tidegate.codec import Value, from_json, to_json, to_plain
from tidegate.errors import BackendError, InputError, TidegateError
from tidegate.guards import DryRun, Guard, GuardMemory, Pause
from tidegate.loop.tail import Tail
from tidegate.model import Plan, Snapshot
from tidegate.policies import policy_class
from tidegate.policies.base import NoMemory, Policy

__all__ = [
    "Control",
    "ControlFile",
    "Listening",
    "Steering",
    "heed_all",
    "innermost",
    "listening",
    "submit",
]

LONGEST_LINE = 10_000


@dataclass(frozen=True, slots=True)
class Control(Value):
    """A wish of a person.

    do: ``pause`` with the value ``no``, ``in`` (nothing is released) or ``both``; ``dry-run`` with
    ``on`` or ``off``; ``policy`` with a policy's name and the parameters that are to change.
    asked_s: when, Unix seconds. refused: why it was not heeded, empty when it was.
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

    def describe(self) -> str:
        """The wish in words.

        >>> Control("policy", "drs", {"t_max_s": "2s"}).describe()
        'decide by drs with t_max_s = 2s'
        """
        if self.do == "policy":
            pairs = ", ".join(f"{key} = {value}" for key, value in self.parameters.items())
            return f"decide by {self.value}" + (f" with {pairs}" if pairs else "")
        words = {
            ("pause", "no"): "scale again",
            ("pause", "in"): "release nothing",
            ("pause", "both"): "pause scaling",
            ("dry-run", "on"): "decide without acting",
            ("dry-run", "off"): "act on decisions",
        }
        return words[self.do, self.value]


@dataclass(frozen=True, slots=True)
class Steering(Value):
    """What is set: which direction is paused (``no``, ``in``, ``both``), and whether it is dry."""

    paused: str = "no"
    dry_run: bool = False

    def heed(self, control: Control, policy: Policy, memory: Any) -> tuple[Steering, Policy, Any]:
        """What is set after a wish, and the policy with its memory; InputError when it cannot be.

        A change of parameters keeps what the policy has learnt; another policy starts afresh. The
        guards stay as they are.
        """
        if control.do == "pause":
            return replace(self, paused=control.value), policy, memory
        if control.do == "dry-run":
            return replace(self, dry_run=control.value == "on"), policy, memory
        return self, *_changed(policy, memory, control)

    def decide(self, policy: Policy, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        """Let a policy decide, within what is set."""
        if self.paused != "no":
            policy = _paused(policy, self.paused)
        if self.dry_run:
            policy = _Passing(inner=DryRun(inner=policy))
        return policy.decide(snapshot, memory)


@dataclass(frozen=True)
class _Passing(Guard):
    """Around a guard that remembers nothing: what goes in and out is what that guards remembers."""

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        plan, after = self.inner.decide(snapshot, GuardMemory(NoMemory(), memory))
        return plan, after.inner

    def limit(self, snapshot: Snapshot, plan: Plan, own: Any) -> Any:
        raise NotImplementedError  # `decide` is all that is called


def _paused(policy: Policy, direction: str) -> Policy:
    """A pause inside the guards that must hold in any case."""
    if isinstance(policy, Guard) and policy.has_last_word:
        return replace(policy, inner=_paused(policy.inner, direction))
    return _Passing(inner=Pause.around(policy, {"direction": direction}))


def innermost(policy: Policy) -> Policy:
    """The policy inside all guards."""
    return innermost(policy.inner) if isinstance(policy, Guard) else policy


def _changed(policy: Policy, memory: Any, control: Control) -> tuple[Policy, Any]:
    if isinstance(policy, Guard):
        inner, inner_memory = _changed(policy.inner, memory.inner, control)
        return replace(policy, inner=inner), GuardMemory(memory.own, inner_memory)
    kind = policy_class(control.value)
    if kind.style != policy.style:
        allowed = f"one that decides on {policy.style}, as {policy.name} does"
        raise InputError("policy", control.value, allowed, "start the run anew with that policy")
    settings = kind.read_settings(dict(control.parameters))
    if isinstance(policy, kind):
        return replace(policy, **settings), memory
    new = kind(**settings)
    return new, new.initial_memory()


# --- the file -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listening(Value):
    """The first line of the file: who listens. policy: its name; parameters: as they are."""

    policy: str
    parameters: Mapping[str, Any]
    pid: int = 0


def _beside(journal: str | os.PathLike[str]) -> Path:
    path = Path(journal)
    return path.with_name(path.name + ".controls")


class ControlFile:
    """The loop's end: holds a lock on the file while it listens, and reads what is new.

    journal: the file beside which it lies. policy: what the loop decides by, for who looks.
    """

    def __init__(self, journal: str | os.PathLike[str], policy: Policy) -> None:
        self.path = _beside(journal)
        inner = innermost(policy)
        names = [f.name for f in fields(inner) if f.metadata]
        parameters = {name: to_plain(getattr(inner, name)) for name in names}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)  # the wishes of an earlier run are not for this one
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(handle, "r+b", buffering=0)
        fcntl.flock(self._file, fcntl.LOCK_SH)
        first = to_json(Listening(inner.name, parameters, os.getpid())) + "\n"
        self._file.write(first.encode())
        self._tail = Tail(self.path)
        list(self._tail.lines())

    def take(self) -> list[Control]:
        """The wishes since the last look; what is no wish is refused, not obeyed."""
        found = []
        for line in self._tail.lines():
            try:
                found.append(from_json(Control, line))
            except InputError as error:
                found.append(Control("pause", "no", refused=f"it cannot be read: {error}"))
        return found

    def close(self) -> None:
        """Listen no longer."""
        self.path.unlink(missing_ok=True)
        self._file.close()


def listening(journal: str | os.PathLike[str]) -> Listening | None:
    """Who listens to wishes about a journal's loop, None when nobody does."""
    try:
        with _beside(journal).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return from_json(Listening, file.readline())
    except (OSError, InputError):
        return None
    return None  # left behind by a loop that was killed


def submit(journal: str | os.PathLike[str], control: Control) -> None:
    """Leave a wish for a journal's loop; BackendError when nobody listens."""
    line = to_json(control) + "\n"
    if len(line) > LONGEST_LINE:
        raise InputError("parameters", "…", f"shorter than {LONGEST_LINE} characters")
    if listening(journal) is None:
        raise BackendError("no loop listens: the run has ended, or it was started without controls")
    try:
        with _beside(journal).open("ab", buffering=0) as file:
            file.write(line.encode())
    except OSError as error:
        raise BackendError(f"the wish could not be left: {error.strerror}") from None


def heed_all(
    found: list[Control], steering: Steering, policy: Policy, memory: Any
) -> tuple[tuple[Control, ...], Steering, Policy, Any]:
    """Heed wishes one after the other; those that cannot be are marked as refused."""
    noted = []
    for control in found:
        refused = control.refused
        if not refused:
            try:
                steering, policy, memory = steering.heed(control, policy, memory)
            except TidegateError as error:
                refused = str(error)
        noted.append(replace(control, refused=refused))
    return tuple(noted), steering, policy, memory
