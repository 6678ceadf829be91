"""The plant that the sensors watch, and the messages that they send.

The state of a machine is a closed formula of the machine and the time. So the displays continue
from one batch of input to the next, and the three sensors agree with each other, however the input
is generated. The day of the factory begins at midnight UTC, and all counts with it.

In ten production reports, a machine has one defect and overheats once. At the rates of Table 1
these are the paper's outgoing ratios of 50:1 for O2 and 100:1 for O6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidegate.apps.factory.display import Display, draw
from tidegate.errors import InputError
from tidegate.units import finite

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BODY_BYTES", "ITEMS_PER_TICK", "SPOILT", "STATUSES", "Plant", "body"]

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
Payload = bytes | str | None

ITEMS_PER_TICK = {"S1": 5, "S2": 1, "S3": 10}
"""Table 1: messages of one machine between two reports of production, its *tick*."""
BODY_BYTES = {"S1": 95, "S3": 90}
"""Table 1: the size of a reading; an image has about 12,500 bytes."""
STATUSES = ("AVAILABLE", "PLANNED", "DEFECT")
DAY_S = 86_400.0
IDEAL_CYCLE_SHARE = 0.04
"""Ideal time for one good as a share of a tick: 25 goods at most between two reports."""
_PERIOD = 10
"""Ticks in which a machine has one defect and overheats once."""


@dataclass(frozen=True)
class Plant:
    """Machines, all alike except for their defects.

    machines: how many (the paper's patterns have up to eight). tick_s: seconds between two
    production reports of a machine. bad_share: share of messages to spoil at random.
    """

    machines: int = 4
    tick_s: float = 0.48
    bad_share: float = 0.0

    def __post_init__(self) -> None:
        finite(self.machines, "machines", low=1, high=99)
        finite(self.tick_s, "tick_s", low=0.001, high=DAY_S / 100)
        finite(self.bad_share, "bad_share", low=0, high=1)

    @property
    def ideal_s(self) -> float:
        """The ideal production time of one good."""
        return IDEAL_CYCLE_SHARE * self.tick_s

    # What the machines do

    def _period(self, machine: Ints, at_s: Floats) -> tuple[Floats, ...]:
        """Whole periods since midnight, ticks since then, and begin and length of the defect.

        A defect begins in the first half of its period, so it never overlaps planned downtime.
        """
        since = (at_s % DAY_S) / self.tick_s
        whole = np.floor(since / _PERIOD)
        begin = ((machine + 1) * 0.7548776662 + whole * 0.5698402910) % 1.0
        return whole, since - whole * _PERIOD, 5 * begin, 0.5 + 0.25 * (machine % 4)

    def displays(self, machine: Ints, at_s: Floats) -> list[Display]:
        """The machines' displays at these moments."""
        whole, ticks, begins, lasts = self._period(machine, at_s)
        defect = whole * lasts + np.clip(ticks - begins, 0, lasts)
        # Every fifth period ends with two ticks of planned downtime.
        planned = 2 * (whole // 5) + (whole % 5 == 4) * np.clip(ticks - 8, 0, 2)
        total = whole * _PERIOD + ticks
        up = total - defect - planned
        worked = (0.82 + 0.03 * (machine % 4)) * up + 0.8 * np.sin(up / 8 + machine)
        made = np.floor(np.maximum(worked, 0) / IDEAL_CYCLE_SHARE)
        bad = np.floor(made * (0.02 + 0.015 * (machine % 3)))
        in_ms = 1000 * self.tick_s
        columns = (
            machine,
            np.floor(1000 * at_s),
            np.floor(total * in_ms),
            np.floor(planned * in_ms),
            np.floor(defect * in_ms),
            made,
            bad,
        )
        return [Display(*row) for row in np.stack(columns, axis=1).astype(np.int64).tolist()]

    def statuses(self, machine: Ints, at_s: Floats) -> list[str]:
        """The machines' statuses at these moments."""
        whole, ticks, begins, lasts = self._period(machine, at_s)
        defect = (ticks >= begins) & (ticks < begins + lasts)
        planned = (whole % 5 == 4) & (ticks >= 8)
        return [STATUSES[code] for code in np.where(defect, 2, planned.astype(int))]

    def temperatures(self, machine: Ints, at_s: Floats, random: np.random.Generator) -> list[float]:
        """Temperatures in degrees Celsius: too hot for about one tick of each period."""
        _, ticks, begins, _ = self._period(machine, at_s)
        hot = 70 + 2.0 * (machine % 4) + 45 * np.exp(-((ticks - begins - 2) ** 2))
        return [round(t, 1) for t in (hot + random.normal(0, 0.3, len(at_s))).tolist()]

    # What the sensors send

    def generate(
        self, source: str, moments: Floats, first_id: int, random: np.random.Generator
    ) -> pa.Table:
        """One message for each moment, from the machines in turn; see `Application.generate`.

        The gateway adds an envelope to each message: its number in the source, its machine, its
        number among the messages of that machine, and the time when it was received.
        """
        if source not in ITEMS_PER_TICK:
            raise InputError("source", source, f"one of {', '.join(ITEMS_PER_TICK)}")
        ids = np.arange(first_id, first_id + len(moments), dtype=np.int64)
        machine = ids % self.machines
        moments = np.asarray(moments, np.float64)
        received = np.floor(1000 * moments).astype(np.int64) + random.integers(5, 50, len(ids))
        payloads = self._payloads(source, machine, moments, random)
        made = self.table(source, ids, machine, ids // self.machines, received, payloads)
        return self.spoil(made, self.bad_share, random) if self.bad_share else made

    def spoil(self, messages: pa.Table, share: float, random: np.random.Generator) -> pa.Table:
        """The messages of a source, with about that share of them spoilt at random."""
        import pyarrow as pa

        *_, column = messages.column_names
        kind, payloads = messages.schema.field(column).type, messages[column].to_pylist()
        if column == "image":
            kinds = SPOILT["S2"]
        else:
            kinds = SPOILT["S1" if any('"sensor":"S1' in text for text in payloads) else "S3"]
        for row in np.flatnonzero(random.random(len(payloads)) < share).tolist():
            spoilt = kinds[sorted(kinds)[random.integers(len(kinds))]]
            machine, at_ms = messages["machine"][row].as_py(), messages["received_ms"][row].as_py()
            payloads[row] = spoilt(self, machine, at_ms / 1000, random)
        return messages.drop_columns([column]).append_column(column, pa.array(payloads, kind))

    def _payloads(
        self, source: str, machine: Ints, at_s: Floats, random: np.random.Generator
    ) -> list[Payload]:
        if source == "S2":
            return self.images(machine, at_s, random)
        at_ms = np.floor(1000 * at_s).astype(np.int64).tolist()
        if source == "S1":
            values = [f'"status":"{status}"' for status in self.statuses(machine, at_s)]
        else:
            values = [f'"celsius":{t}' for t in self.temperatures(machine, at_s, random)]
        return [
            body(source, m, t, value)
            for m, t, value in zip(machine.tolist(), at_ms, values, strict=True)
        ]

    def images(self, machine: Ints, at_s: Floats, random: np.random.Generator) -> list[Payload]:
        """Photographs of the machines' displays at these moments."""
        return [draw(display, random) for display in self.displays(machine, at_s)]

    @staticmethod
    def table(
        source: str,
        ids: Ints,
        machine: Ints,
        numbers: Ints,
        received_ms: Ints,
        payloads: Sequence[Payload],
    ) -> pa.Table:
        """Messages with their envelopes."""
        import pyarrow as pa

        payload = (
            {"image": pa.array(payloads, pa.binary())}
            if source == "S2"
            else {"body": pa.array(payloads, pa.string())}
        )
        return pa.table(
            {
                "id": ids,
                "machine": pa.array(machine, pa.int32()),
                "number": numbers,
                "received_ms": received_ms,
                **payload,
            }
        )


def body(source: str, machine: int, at_ms: int, value: str) -> str:
    """A reading as JSON, of Table 1's size.

    >>> len(body("S3", 2, 1700000000000, '"celsius":71.5'))
    90
    """
    start = f'{{"machine":{machine},"at_ms":{at_ms},{value},"sensor":"{source}-{machine:02d}'
    return start.ljust(BODY_BYTES[source] - 2, ".") + '"}'


# Faults of a message: by source and kind, from plant, machine and moment to a payload.

Spoil = Callable[[Plant, int, float, np.random.Generator], Payload]


def _display(plant: Plant, machine: int, at_s: float) -> Display:
    return plant.displays(np.array([machine]), np.array([at_s]))[0]


def _reading(source: str, value: str, late_s: float = 0.0) -> Spoil:
    return lambda plant, machine, at_s, random: body(
        source, machine, int(1000 * (at_s - late_s)), value
    )


def _readings(source: str, good: str, senseless: str) -> dict[str, Spoil]:
    return {
        "cut": lambda plant, machine, at_s, random: body(source, machine, 0, good)[:40],
        "no JSON": lambda plant, machine, at_s, random: "\x00\xff ]{",
        "senseless": _reading(source, senseless),
        "an hour back": _reading(source, good, late_s=3600),
        "another machine's": lambda plant, machine, at_s, random: body(
            source, machine + 1, int(1000 * at_s), good
        ),
        "nothing": lambda plant, machine, at_s, random: None,
    }


SPOILT: Mapping[str, Mapping[str, Spoil]] = {
    "S1": _readings("S1", '"status":"DEFECT"', '"status":"TIRED"'),
    "S2": {
        "cut": lambda plant, machine, at_s, random: draw(_display(plant, machine, at_s), random)[
            :6000
        ],
        "no image": lambda plant, machine, at_s, random: b"GIF89a, or so it says",
        "smudged": lambda plant, machine, at_s, random: draw(
            _display(plant, machine, at_s), random, smudged=True
        ),
        "an hour back": lambda plant, machine, at_s, random: draw(
            _display(plant, machine, at_s - 3600), random
        ),
        "another machine's": lambda plant, machine, at_s, random: draw(
            _display(plant, machine + 1, at_s), random
        ),
        "nothing": lambda plant, machine, at_s, random: None,
    },
    "S3": _readings("S3", '"celsius":120.5', '"celsius":NaN'),
}
"""Bad messages, to test and to show how they are set aside."""
