"""The traces of a sweep: files, and generators that make another day of every seed."""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidegate.codec import Value
from tidegate.errors import InputError
from tidegate.simulation.trace_input import read_workload
from tidegate.units import finite
from tidegate.workloads import ConstantRate, ExchangeDay, Scaled, VideoFrames, Workload

__all__ = ["GENERATORS", "Recorded", "Trace"]

GENERATORS: dict[str, Any] = {
    "exchange-day": ExchangeDay,
    "constant": ConstantRate,
    "video": VideoFrames,
}


@dataclass(frozen=True)
class Recorded:
    """A trace that is ready to be played: it travels to the executors.

    base: as it was read, or a generator's name with its options. speed: as in `Trace`.
    """

    base: Workload | str
    options: dict[str, Any]
    speed: float

    def workload(self, seed: int) -> Workload:
        """The items for a seed: another day of a generator, other items at a file's rates."""
        if isinstance(self.base, str):
            made: Workload = GENERATORS[self.base](seed=seed, **self.options)
        else:
            made = replace(self.base, seed=seed) if hasattr(self.base, "seed") else self.base  # type: ignore[type-var]
        if self.speed == 1:
            return made
        return Scaled(made, rate_factor=1 / self.speed, speed=self.speed, seed=seed)


@dataclass(frozen=True)
class Trace(Value):
    """What arrives: a `file` as `tidegate backtest` reads it, or a `workload` that is generated.

    name: in the report; by default the file's or the generator's. gaps: for rate traces, as in
    `tidegate backtest`. options: of the generator. speed: played so many times as fast, at the same
    rates. Every seed is another day of a generator; of a table of rates it draws other items, and
    of a log of events nothing.
    """

    file: str | None = None
    workload: str | None = None
    name: str = ""
    gaps: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    speed: float = 1.0

    def __post_init__(self) -> None:
        if (self.file is None) == (self.workload is None):
            remedy = f"known workloads are {', '.join(GENERATORS)}"
            raise InputError("traces", self.name or "…", "either a file or a workload", remedy)
        finite(self.speed, "traces: speed", above=0)
        if self.workload is not None:
            if self.workload not in GENERATORS:
                known = "one of " + ", ".join(GENERATORS)
                raise InputError("traces: workload", self.workload, known)
            options = set(inspect.signature(GENERATORS[self.workload]).parameters) - {"seed"}
            for key in self.options:
                if key not in options:
                    remedy = f"{self.workload} takes {', '.join(sorted(options))}"
                    raise InputError(f"traces: options: {key}", self.options[key], "known", remedy)
            try:
                GENERATORS[self.workload](seed=1, **self.options)
            except TypeError:
                remedy = f"{self.workload} takes {', '.join(sorted(options))}"
                raise InputError("traces: options", self.options, "complete", remedy) from None
        if not self.name:
            object.__setattr__(self, "name", self.workload or Path(self.file or "").stem)

    def within(self, folder: Path) -> Trace:
        """The same with its file in a folder, unless its path is absolute."""
        return self if self.file is None else replace(self, file=str(folder / self.file))

    @property
    def digest(self) -> str:
        """Of what arrives: the file's bytes, or the generator, with all that changes them."""
        rest = {"options": self.options, "speed": self.speed, "gaps": self.gaps}
        found = hashlib.sha256(json.dumps([self.workload, rest], sort_keys=True).encode())
        if self.file is not None:
            try:
                found.update(Path(self.file).read_bytes())
            except OSError as error:
                why = error.strerror or ""
                raise InputError("traces: file", self.file, "readable", why) from None
        return found.hexdigest()[:16]

    def read(self) -> Recorded:
        """Read the file, if it is one; what is wrong with it is said in one sentence."""
        if self.workload is not None:
            return Recorded(self.workload, self.options, self.speed)
        gaps: Any = self.gaps
        return Recorded(read_workload(self.file or "", gaps), {}, self.speed)
