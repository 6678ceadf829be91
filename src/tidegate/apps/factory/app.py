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
which is the default here. O2 warns of *new* defects, one in fifty readings, as the paper says; the
authors' code forwarded 98 % of the readings.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tidegate.apps.application import Application
from tidegate.apps.factory import imitated, steps
from tidegate.apps.factory.display import ReaderName, choose_reader
from tidegate.apps.factory.plant import ITEMS_PER_TICK, Plant
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
    # Commit changes instead of full snapshots.
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
    imitate: bool = False,
    trigger_s: float = 5.0,
) -> Application:
    """The factory as a streaming application.

    Args:
        machines: Number of machines (the paper's patterns have two to eight, four on average).
        tick_s: Seconds between two production reports of a machine; 60 is literally Table 1.
        values_per_report: OEE values that a complete PDF report covers (Table 2: 300).
        reports: Folder for the reports, created if missing and shared by all executors.
        reader: Of images: "tesseract", "own", or "auto" for tesseract where it is installed.
        bad_share: Share of spoilt messages.
        state_partitions: Of each stateful operator.
        imitate: Operators wait for the times of the authors' code, forward what it forwards, and
            compute nothing; see `imitated`.
        trigger_s: With `imitate`, seconds between two batches of the operators that read a sensor.
    """
    if imitate:
        finite(trigger_s, "trigger_s", above=0)
        return Application(
            name="factory",
            summary="waits as long as the operators of the factory work in the paper",
            paper="VISP (Hochreiner et al. 2017)",
            topology=imitated.topology(trigger_s),
            rates_per_s={source: machines * n / tick_s for source, n in ITEMS_PER_TICK.items()},
            generate=imitated.messages,
            results=imitated.RESULTS,
            reference=imitated.reference,
            slo="30s",
        )
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
    """The nine operators.

    Service times are the sleeps in the authors' code where it sleeps, and a guess for O1, O7, O8
    and O9. Outgoing ratios are those of Table 2. Each of O3, O4 and O5 reads everything that O1
    sends, which is its ratio of 1:3.
    """
    updates = partial(StreamOperator, state_partitions=state_partitions, output_mode="update")
    read = partial(steps.parse_images, reader=reader)
    performance = partial(steps.calculate_performance, ideal_s=plant.ideal_s)
    report = partial(steps.generate_report, folder=reports, span_ms=span_ms)
    parts = ("O3-performance", "O4-availability", "O5-quality")
    warnings = ("O2-filter", "O6-temperature", "O9-report")
    per_span = 1000 * plant.tick_s / plant.machines / span_ms
    hot, defects = steps.monitor_temperature, steps.filter_availability
    up, quality = steps.calculate_availability, steps.calculate_quality
    return (
        StreamOperator("O1-parse", ("S2",), read, service_time_s=0.4),
        updates("O2-filter", ("S1",), defects, ratio=1 / 50, service_time_s=0.02),
        updates("O3-performance", ("O1-parse",), performance, service_time_s=0.05),
        StreamOperator("O4-availability", ("O1-parse",), up, service_time_s=0.05),
        StreamOperator("O5-quality", ("O1-parse",), quality, service_time_s=0.05),
        updates("O6-temperature", ("S3",), hot, ratio=1 / 100, service_time_s=0.02),
        updates("O7-oee", parts, steps.calculate_oee, ratio=1 / 3, service_time_s=0.005),
        StreamOperator(
            "O9-report", ("O7-oee",), report, state_partitions=1, ratio=per_span,
            service_time_s=0.005,
        ),
        StreamOperator("O8-inform", warnings, steps.inform_user, ratio=0, service_time_s=0.005),
    )  # fmt: skip


def _closing(plant: Plant, span_ms: int, at_s: float) -> dict[str, pa.Table]:
    """Two last reports of machine 0, late enough to close every span before `at_s`."""
    moments = at_s + (3 * span_ms / 1000 + plant.tick_s * np.arange(2))
    number = int(1000 * at_s)  # higher than all others
    machine = np.zeros(2, np.int64)
    numbers = np.arange(number, number + 2, dtype=np.int64)
    images = plant.images(machine, moments, np.random.default_rng(number))
    received = np.floor(1000 * moments).astype(np.int64)
    return {"S2": plant.table("S2", numbers, machine, numbers, received, images)}
