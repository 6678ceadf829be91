"""The factory of the VISP paper: nine operators between three sensors and a supervisor.

C. Hochreiner et al., *Cost-efficient enactment of stream processing topologies*, PeerJ Computer
Science 3:e141, 2017, "Motivational scenario" and Tables 1 and 2.

::

    S1 status ───────► O2 filter ──────────────────────────┐
    S2 image ─► O1 parse ─┬► O3 performance ──┐            │
                          ├► O4 availability ─┼► O7 OEE ─► O9 report ─┐
                          └► O5 quality ──────┘            │          │
    S3 temperature ──► O6 monitor ─────────────────────────┴──────────┴► O8 inform

Table 1 gives rates "per minute"; the authors' data provider sent a minute's messages every 480 ms,
which is the default here. O2 warns of *new* defects, as the paper says, one in fifty readings; the
authors' code passed on 98 % of them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tidegate.apps.application import Application
from tidegate.apps.factory import steps
from tidegate.apps.factory.plant import ITEMS_PER_TICK, Plant
from tidegate.apps.factory.reader import ReaderName, choose_reader
from tidegate.apps.factory.reference import as_read, reference, tally
from tidegate.spark.streams.topology import StreamOperator, StreamTopology
from tidegate.units import finite

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["application"]

_STATE = "spark.sql.streaming.stateStore"
SETTINGS = {
    f"{_STATE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.shuffle.partitions": "2",
    # Commit what has changed instead of a snapshot of everything.
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
}


def application(
    *,
    machines: int = 4,
    tick_s: float = 0.48,
    values_per_report: int = 300,
    reports: Path | str = "out/factory",
    reader: str = "auto",
    bad_share: float = 0.0,
    state_partitions: int = 2,
) -> Application:
    """The factory as a streaming application.

    machines: that report (the paper's patterns have two to eight, four on average).
    tick_s: seconds between two reports of a machine's production; 60 is Table 1 to the letter.
    values_per_report: OEE values that a PDF report covers when all come (Table 2: 300).
    reports: folder for the reports, made when absent and shared by all executors.
    reader: of images: "tesseract", "own", or "auto" for tesseract where it is installed.
    bad_share: share of messages that are spoilt. state_partitions: of each stateful operator.
    """
    plant = Plant(machines, tick_s, bad_share)
    finite(values_per_report, "values_per_report", low=machines)
    chosen = choose_reader(reader)
    span_ms = round(1000 * values_per_report * tick_s / machines)
    topology = StreamTopology(
        sources={"S1": steps.READINGS, "S2": steps.IMAGES, "S3": steps.READINGS},
        operators=_operators(plant, Path(reports).resolve(), span_ms, chosen, state_partitions),
    )
    return Application(
        name="factory",
        summary=f"OEE of {machines} machines from images of their displays, read by {chosen}; "
        "warnings of defects and heat; reports as PDF",
        paper="VISP (Hochreiner et al. 2017)",
        topology=topology,
        rates_per_s={source: machines * n / tick_s for source, n in ITEMS_PER_TICK.items()},
        generate=plant.generate,
        results=tuple(operator.name for operator in topology.operators),
        reference=partial(reference, ideal_s=plant.ideal_s, span_ms=span_ms),
        closing=partial(_closing, plant, span_ms),
        usable=as_read if chosen == "tesseract" else lambda inputs, results: inputs,
        tally=tally,
        spoil=plant.spoil,
        settings=SETTINGS,
    )


def _operators(
    plant: Plant, reports: Path, span_ms: int, reader: ReaderName, state_partitions: int
) -> tuple[StreamOperator, ...]:
    """Service times are what the authors' code sleeps, where it does; O1, O7, O8, O9: a guess.

    Outgoing ratios are those of Table 2. Each of O3, O4 and O5 reads all that O1 sends, which makes
    its 1:3.
    """
    parts = ("O3-performance", "O4-availability", "O5-quality")
    kept = state_partitions
    return (
        StreamOperator(
            "O1-parse", ("S2",), partial(steps.parse_images, reader=reader), service_time_s=0.4
        ),
        StreamOperator(
            "O2-filter",
            ("S1",),
            steps.filter_availability,
            state_partitions=kept,
            output_mode="update",
            ratio=1 / 50,
            service_time_s=0.02,
        ),
        StreamOperator(
            "O3-performance",
            ("O1-parse",),
            partial(steps.calculate_performance, ideal_s=plant.ideal_s),
            state_partitions=kept,
            output_mode="update",
            service_time_s=0.05,
        ),
        StreamOperator(
            "O4-availability", ("O1-parse",), steps.calculate_availability, service_time_s=0.05
        ),
        StreamOperator("O5-quality", ("O1-parse",), steps.calculate_quality, service_time_s=0.05),
        StreamOperator(
            "O6-temperature",
            ("S3",),
            steps.monitor_temperature,
            state_partitions=kept,
            output_mode="update",
            ratio=1 / 100,
            service_time_s=0.02,
        ),
        StreamOperator(
            "O7-oee",
            parts,
            steps.calculate_oee,
            state_partitions=kept,
            output_mode="update",
            ratio=1 / 3,
            service_time_s=0.005,
        ),
        StreamOperator(
            "O9-report",
            ("O7-oee",),
            partial(steps.generate_report, folder=reports, span_ms=span_ms),
            state_partitions=1,
            ratio=1000 * plant.tick_s / plant.machines / span_ms,
            service_time_s=0.005,
        ),
        StreamOperator(
            "O8-inform",
            ("O2-filter", "O6-temperature", "O9-report"),
            steps.inform_user,
            ratio=0,
            service_time_s=0.005,
        ),
    )


def _closing(plant: Plant, span_ms: int, at_s: float) -> dict[str, pa.Table]:
    """Two last reports of machine 0, far enough ahead that every span before `at_s` is over."""
    moments = at_s + (3 * span_ms / 1000 + plant.tick_s * np.arange(2))
    number = int(1000 * at_s)  # above all others
    machine = np.zeros(2, np.int64)
    numbers = np.arange(number, number + 2, dtype=np.int64)
    images = plant.images(machine, moments, np.random.default_rng(number))
    received = np.floor(1000 * moments).astype(np.int64)
    return {"S2": plant.table("S2", numbers, machine, numbers, received, images)}
