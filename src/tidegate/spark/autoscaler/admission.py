"""How many rows a query's sources admit in a batch. Pure.

A source may limit what a batch reads (``maxOffsetsPerTrigger``, ``maxFilesPerTrigger``,
``maxBytesPerTrigger``). Such a limit also bounds the throughput, however many executors there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["LimitKind", "SourceLimit", "admission"]

LimitKind = Literal["rows", "files", "bytes"]
"""What a limit counts."""


@dataclass(frozen=True, slots=True)
class SourceLimit:
    """A limit of one source.

    kind: what is limited; amount: how much of it a batch may read; source: the source's description
    (``KafkaV2[Subscribe[ticks]]``, for example).
    """

    kind: LimitKind
    amount: float
    source: str = ""

    def __str__(self) -> str:
        option = {"files": "maxFilesPerTrigger", "bytes": "maxBytesPerTrigger"}.get(self.kind)
        if option is None:
            option = "maxOffsetsPerTrigger" if "Kafka" in self.source else "maxRowsPerTrigger"
        return f"{option}={self.amount:.0f}"


def admission(
    sources: Sequence[Sequence[SourceLimit]] | None,
    rows_per_file: float | None = None,
    rows_per_byte: float | None = None,
) -> tuple[float | None, str]:
    """Most rows in a batch, None for no known limit, and the options that set it.

    sources: the limits of each source, none for a source that admits everything; None when they
    could not be read. rows_per_file, rows_per_byte: as measured, None while unknown.

    >>> kafka = SourceLimit("rows", 5000, "KafkaV2[Subscribe[ticks]]")
    >>> admission([[kafka]])
    (5000.0, 'maxOffsetsPerTrigger=5000')
    >>> admission([[SourceLimit("files", 20)]], rows_per_file=50)
    (1000.0, 'maxFilesPerTrigger=20')
    >>> admission([[kafka], []]), admission(None)
    ((None, ''), (None, ''))
    """
    rates = {"rows": 1.0, "files": rows_per_file, "bytes": rows_per_byte}
    total, words = 0.0, []
    for limits in sources or ():
        known = [
            (limit.amount * rate, str(limit))
            for limit in limits
            if (rate := rates[limit.kind]) is not None and math.isfinite(rate)
        ]
        if not known:
            return None, ""
        rows, word = min(known)
        total += rows
        words.append(word)
    return (total, ", ".join(words)) if words else (None, "")
