"""What happens in a run with a server that is cut off: the query, its rows, the fault.

The seed determines all of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.fleet.cut_off import FAULTS
from tidegate.fleet.fence import epoch_of
from tidegate.fleet.queries import ContinuousQuery

__all__ = [
    "SCHEMA",
    "SINKS",
    "TOPIC",
    "Checkpoint",
    "Scenario",
    "Source",
    "make_query",
    "result_of",
    "side_by_side",
]

SCHEMA = "id long, word string, value double"
TOPIC = "partitions"
SINKS = ("files", "batches", "kafka")
ROWS = 12
"""Rows of a file. A batch takes up to two files, and every new row takes `SLOW_MS`."""
SLOW_MS = 30


@dataclass(frozen=True)
class Scenario:
    """What a seed stands for.

    sink: ``files``, ``batches`` or ``kafka``. fault: a name in `FAULTS`. lasts_s: its length in
    seconds. after_s: it begins so many seconds after a batch has begun. restart: whether another
    manager takes over while it lasts. lease_s: lease of the query, in seconds.
    """

    seed: int
    sink: str
    fault: str
    lasts_s: float
    after_s: float
    restart: bool
    lease_s: float

    @classmethod
    def of(cls, seed: int) -> Scenario:
        """Draw a scenario. One in ten lasts for minutes, with the default lease."""
        rng = random.Random(seed)
        sink = rng.choices(SINKS, (4, 4, 2))[0]
        fault = rng.choice(list(FAULTS))
        kind = rng.choices(("moment", "seconds", "minutes"), (2, 7, 1))[0]
        low, high = {"moment": (0.2, 1.5), "seconds": (3.0, 10.0), "minutes": (60.0, 120.0)}[kind]
        lease_s = 30.0 if kind == "minutes" else 2.0
        lasts_s, after_s = round(rng.uniform(low, high), 1), round(rng.uniform(0.0, 0.8), 2)
        restart = kind != "moment" and rng.random() < 0.15
        return cls(seed, sink, fault, lasts_s, after_s, restart, lease_s)


class Source:
    """A folder of JSON files. A fifth of the rows have occurred before, so that state matters."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.rng = random.Random(seed)
        self.files = self.last = 0
        folder.mkdir(parents=True)

    def write(self, files: int) -> None:
        for _ in range(files):
            self.files += 1
            text = "".join(json.dumps(self._row()) + "\n" for _ in range(ROWS))
            hidden = self.folder / f".{self.files}"
            hidden.write_text(text, encoding="utf-8")
            hidden.rename(self.folder / f"{self.files:04}.json")

    def _row(self) -> dict[str, Any]:
        if self.last and self.rng.random() < 0.2:
            number = self.rng.randint(1, self.last)
        else:
            self.last = number = self.last + 1
        value = random.Random(f"{self.seed}-{number}").randrange(1000)
        return {"id": number, "word": f"r{self.seed}", "value": float(value)}


def result_of(frame: Any) -> Any:
    """What the query computes, of a stream or a batch."""
    return frame.dropDuplicates(["id"]).selectExpr("id", "word", "value * 2 + id as value")


def make_query(name: str, folder: Path, sink: str, bootstrap: str) -> ContinuousQuery:
    """A query from the files in ``source`` to a sink in ``sink``, or to Kafka."""
    source, target, tries, workers = (
        str(folder / part) for part in ("source", "sink", "tries", "workers")
    )

    def define(session: Any, checkpoint: str) -> Any:
        rows = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2).json(source)
        slow = f"reflect('java.lang.Thread', 'sleep', {SLOW_MS}L) is not null"
        writer = result_of(rows).where(slow)
        epoch = epoch_of(checkpoint)

        def put(frame: Any, batch: int) -> None:
            text = "\n".join(sorted(json.dumps(row.asDict()) for row in frame.collect()))
            Path(workers, str(os.getpid())).touch()
            once = f"{batch}-{epoch}-{os.getpid()}-{time.time_ns()}"
            Path(tries, once).write_text(text, encoding="utf-8")
            time.sleep(0.2)
            part = Path(target, f".{once}")
            part.write_text(text, encoding="utf-8")
            part.rename(Path(target, f"{batch}.json"))

        if sink == "kafka":
            rows = writer.selectExpr("to_json(struct(*)) as value")
            kafka = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
            stream = kafka.option("topic", TOPIC)
        elif sink == "batches":
            stream = writer.writeStream.foreachBatch(put)
        else:
            stream = writer.writeStream.format("json").option("path", target)
        return stream.trigger(processingTime="300 milliseconds")

    if sink == "batches":
        for made in (target, tries, workers):
            Path(made).mkdir()
    return ContinuousQuery(name, define)


def side_by_side(tries: Iterable[str]) -> bool:
    """Whether a copy of a query called its function again after its successor had.

    tries: ``batch-epoch-process-time`` of each call.

    >>> side_by_side(["1-1-70-10", "2-1-70-20", "2-2-80-30", "3-2-80-40"])
    False
    >>> side_by_side(["1-1-70-10", "2-1-70-20", "2-2-80-30", "2-1-70-40"])
    True
    """
    called = sorted((int(words[3]), words[2]) for words in (name.split("-") for name in tries))
    turns = [process for process, _ in groupby(process for _, process in called)]
    return len(turns) > len(set(turns))


class Checkpoint:
    """What can be read in a checkpoint, without Spark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def numbers(self, part: str) -> set[int]:
        with contextlib.suppress(FileNotFoundError):
            return {int(f.name) for f in (self.folder / part).iterdir() if f.name.isdecimal()}
        return set()

    @property
    def in_flight(self) -> bool:
        """Whether a batch has begun and has not ended, after at least one that has."""
        done = self.numbers("commits")
        return bool(done) and max(self.numbers("offsets")) > max(done)

    def batches(self) -> dict[str, int]:
        """The batch of each file that one has begun to read, by its name.

        The source numbers what it has listed, and a batch reads up to such a number. When a copy
        ends between the two, the next one lists more, and its batch reads both.
        """
        listed: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError):
            for file in (self.folder / "sources" / "0").iterdir():
                if file.name.partition(".")[0].isdecimal():
                    for line in file.read_text(encoding="utf-8").splitlines()[1:]:
                        plain = json.loads(line)
                        listed[plain["path"].rpartition("/")[2]] = plain["batchId"]
        ends = {batch: self._read_up_to(batch) for batch in sorted(self.numbers("offsets"))}
        found = {}
        for name, number in listed.items():
            batch = next((batch for batch, end in ends.items() if number <= end), None)
            if batch is not None:
                found[name] = batch
        return found

    def _read_up_to(self, batch: int) -> int:
        """The last number of the source that a batch reads."""
        last = (self.folder / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()[-1]
        number: int = json.loads(last)["logOffset"]
        return number

    def has_all(self, files: int) -> bool:
        """Whether so many files have been read, and their batches committed."""
        read = self.batches()
        return len(read) == files and max(read.values(), default=-1) in self.numbers("commits")
