"""What a batch in a topic consists of: the small file that moves with its data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from tidegate.errors import BackendError, InputError
from tidegate.spark.streams.live_settings import Counts

__all__ = ["Manifest", "not_upwards", "refuse_another_query", "rows_written"]


@dataclass(frozen=True)
class Manifest:
    """What a batch in a topic consists of.

    files: rows by file. counts: of this batch; totals: of the producer up to and with this batch.
    parallelism: tasks it was computed in, None when not decided by the dials.
    shed_fraction: share that was to be dropped. written_at_s: Unix time.
    query: Spark's id of the query, the same through restarts from one checkpoint.
    """

    producer: str
    batch_id: int
    files: Mapping[str, int] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    totals: Counts = field(default_factory=Counts)
    parallelism: int | None = None
    shed_fraction: float = 0.0
    written_at_s: float = 0.0
    query: str = ""

    @property
    def name(self) -> str:
        """The batch's folder."""
        return f"{self.producer}-{self.batch_id:012d}"

    def json(self) -> str:
        """As it is kept beside the files."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """The manifest that `json` wrote."""
        fields = json.loads(text)
        counts, totals = Counts(**fields.pop("counts")), Counts(**fields.pop("totals"))
        return cls(**fields, counts=counts, totals=totals)


def rows_written(manifests: Iterable[Manifest]) -> int:
    """Rows of all batches ever, from those that are left: each producer's newest has its totals.

    manifests: of a topic, each producer's in order.
    """
    newest = {manifest.producer: manifest for manifest in manifests}
    return sum(manifest.totals.written for manifest in newest.values())


def refuse_another_query(topic: str, newest: Manifest | None, wanted: Manifest) -> None:
    """BackendError when the producer's batches in the topic are those of another query."""
    if newest is not None and newest.query != wanted.query:
        raise BackendError(
            f"topic {topic} holds batches of {newest.query or 'no query'}, not of "
            f"{wanted.query or 'no query'}: the checkpoint of {wanted.producer} was removed and "
            "its output kept, so that old batches would hide new ones; remove both or neither"
        )


def not_upwards(producer: str, batch_id: int | None) -> InputError:
    """What is wrong with the number of a batch that is neither new nor there any more."""
    return InputError(
        "batch_id",
        batch_id,
        f"above that of the newest batch of {producer}, or that of a batch still there",
        "number batches upwards; this one was left out, or has been trimmed",
    )
