"""What a policy is: a frozen set of parameters with one pure function, `decide`.

A policy holds no client, clock, logger or global random state. Everything that it learns is in its
*memory*, a frozen value that `decide` takes and returns. The memory can be saved as JSON.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Literal, get_type_hints

from tidegate.codec import Value, from_plain, to_plain
from tidegate.errors import SettingError
from tidegate.model import Plan, Snapshot
from tidegate.packing import Measure, Style
from tidegate.units import finite
from tidegate.values import derived

__all__ = ["AIM", "NoMemory", "Parameter", "Policy", "Situation", "Style", "setting"]

AIM = 0.7
"""Share of the latency target that a policy aims at; the rest absorbs noise and start-up times."""


@dataclass(frozen=True, slots=True)
class NoMemory(Value):
    """The memory of a policy that remembers nothing."""


@dataclass(frozen=True, slots=True)
class Parameter(Value):
    """A parameter as a user sees it.

    Attributes:
        name: Its name.
        kind: Its type, such as ``float | None``, or ``word``.
        default: Its default, None when it is off or derived.
        doc: Its meaning, with the unit.
        low: Smallest allowed value.
        high: Largest allowed value.
        choices: The allowed words.
    """

    name: str
    kind: str
    default: Any
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()


def setting(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A parameter of a policy or guard: its default, its meaning with the unit, its range.

    low, high: the bounds, both allowed; choices: the allowed words.
    """
    return field(
        default=default, metadata={"doc": doc, "low": low, "high": high, "choices": choices}
    )


@dataclass(frozen=True, slots=True)
class Situation(Value):
    """What is known about an application before the first turn.

    A policy suggests parameters for it (`Policy.suggested`). What is unknown is None.

    Attributes:
        slo_s: The latency target, in seconds; None without one.
        micro_batches: Whether an instance is a task slot of a query that works in micro-batches.
        floor_s: Time that an item is in service on its way through all operators, in seconds.
        peak_instances: Instances of the busiest operator that the peak load keeps busy.
        instances_per_host: Instances of each operator that a host has room for.
        host_rate_per_s: Items per second that a full host can process.
        late_price: Price of a late item, in prices of processing one on a busy host.
        stabilise_s: A host is to be released only after it was not needed for this time, in
            seconds.
    """

    slo_s: float | None = None
    micro_batches: bool = True
    floor_s: float | None = None
    peak_instances: float | None = None
    instances_per_host: int | None = None
    host_rate_per_s: float | None = None
    late_price: float | None = None
    stabilise_s: float | None = None


@dataclass(frozen=True)
class Policy(ABC):
    """A scaling technique.

    Subclasses are frozen dataclasses whose fields, made with `setting`, are their parameters.

    Attributes:
        name: The name under which users find it.
        paper: Its origin.
        style: ``engines`` (a number of identical hosts), ``instances`` (a number of instances of
            each operator) or ``placement`` (each operator on a host, by measured load).
        needs: Measurements without which it must not scale in, in the form of `Snapshot.missing`.
        memory_type: The type of its memory.
        picks_its_moment: Whether it chooses when to release a host, for example at the end of a
            billing unit. A guard that waits until a plan has lasted would then miss the moment.
        forecasts: Whether it forecasts the load itself, from the measured rates. The wrapper
            `trend`, which shows forecasts in their place, is then left out.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    style: ClassVar[Style]
    needs: ClassVar[tuple[str, ...]]
    memory_type: ClassVar[type] = NoMemory
    picks_its_moment: ClassVar[bool] = False
    forecasts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for parameter in self.parameters():
            _check(f"{self.name}: {parameter.name}", getattr(self, parameter.name), parameter)
        self.check()

    def check(self) -> None:  # noqa: B027 - most policies have nothing to check
        """Raise SettingError for parameters that do not go together."""

    @derived
    def measure(self) -> Measure:
        """Size of an instance: its measured load for placement policies, else its demand."""
        return "load" if self.style == "placement" else "demand"

    @abstractmethod
    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        """The plan for this turn, and the memory for the next."""

    def initial_memory(self, seed: int = 0) -> Any:
        """The memory before the first turn. seed: random seed, for policies that need one."""
        return self.memory_type()

    def save_memory(self, memory: Any) -> Any:
        """The memory as plain JSON values."""
        return to_plain(memory)

    def load_memory(self, plain: Any) -> Any:
        """The inverse of `save_memory`."""
        return from_plain(self.memory_type, plain)

    def describe(self) -> str:
        """The policy and its wrappers in one line."""
        return self.name

    @classmethod
    def suggested(cls, situation: Situation) -> dict[str, Any]:
        """Parameters that suit a situation; those that are left out keep their defaults.

        A policy with a latency bound `t_max_s` aims at `AIM` of the latency target.
        """
        bounded = "t_max_s" in {parameter.name for parameter in cls.parameters()}
        return {"t_max_s": AIM * situation.slo_s} if bounded and situation.slo_s else {}

    @classmethod
    @cache  # reading annotations takes longer than creating a policy
    def parameters(cls) -> tuple[Parameter, ...]:
        """All parameters, in order."""
        hints = get_type_hints(cls)
        return tuple(
            Parameter(
                name=f.name,
                kind=_kind(hints[f.name]),
                default=None if f.default is MISSING else f.default,
                **f.metadata,
            )
            for f in fields(cls)
            if f.metadata
        )

    @classmethod
    def with_settings(cls, settings: dict[str, Any]) -> Policy:
        """A policy from settings. Text is parsed according to the type of the parameter."""
        return cls(**cls.read_settings(settings))

    @classmethod
    def read_settings(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """The settings as values of the parameters' types; unknown ones are refused."""
        known = {parameter.name: parameter for parameter in cls.parameters()}
        for key, value in settings.items():
            if key not in known:
                remedy = "it takes " + (", ".join(known) or "no parameters")
                raise SettingError(
                    f"{cls.name}: {key}", value, "a parameter of this policy", remedy
                )
        read = {k: _read(f"{cls.name}: {k}", v, known[k]) for k, v in settings.items()}
        for key, value in read.items():
            _check(f"{cls.name}: {key}", value, known[key])
        return read


def _kind(hint: Any) -> str:
    """The name of a type; ``word`` for a choice of words."""
    if getattr(hint, "__origin__", None) is Literal:
        return "word"
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _read(key: str, value: Any, parameter: Parameter) -> Any:
    """Parse text from a command line or YAML file."""
    optional = parameter.kind.endswith("None")
    if optional and (value is None or str(value).lower() in ("none", "null", "")):
        return None
    if parameter.kind.startswith("str") and _is_int(value):
        return str(value)
    if not isinstance(value, str):
        whole = parameter.kind.startswith("float") and _is_int(value)
        return finite(value, key, error=SettingError) if whole else value
    if parameter.kind.startswith("bool"):
        if value.lower() in ("true", "yes", "on", "1"):
            return True
        if value.lower() in ("false", "no", "off", "0"):
            return False
        raise SettingError(key, value, "true or false")
    if parameter.kind.startswith("int"):
        number = finite(value, key, error=SettingError)
        return int(number) if number == int(number) else number
    if parameter.kind.startswith("float"):
        if parameter.name.endswith("_s"):
            from tidegate.units import duration_s

            return duration_s(value, key) if value.strip("0.") else 0.0
        return finite(value, key, error=SettingError)
    return value


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check(key: str, value: Any, parameter: Parameter) -> None:
    """Refuse a value of the wrong type or out of range."""
    if value is None and parameter.kind.endswith("None"):
        return
    if parameter.choices:
        if value not in parameter.choices:
            raise SettingError(key, value, "one of " + ", ".join(parameter.choices), parameter.doc)
    elif parameter.kind.startswith("str"):
        if not isinstance(value, str):
            raise SettingError(key, value, "text", parameter.doc)
    elif parameter.kind.startswith("bool"):
        if not isinstance(value, bool):
            raise SettingError(key, value, "true or false", parameter.doc)
    elif parameter.kind.startswith(("int", "float")):
        low = float("-inf") if parameter.low is None else parameter.low
        high = float("inf") if parameter.high is None else parameter.high
        if isinstance(value, bool) or not isinstance(value, int | float):
            value = str(value)
        finite(value, key, low=low, high=high, remedy=parameter.doc, error=SettingError)
        if parameter.kind.startswith("int") and not isinstance(value, int):
            raise SettingError(key, value, "a whole number", parameter.doc)
