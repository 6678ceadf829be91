"""The factory: its stream against its reference, and each kind of bad message."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidegate.apps.application import Application, application
from tidegate.apps.factory.display import Display, Unreadable, choose_reader, draw, read
from tidegate.apps.factory.plant import BODY_BYTES, SPOILT, Plant
from tidegate.apps.factory.reference import set_aside
from tidegate.apps.factory.report import write_report
from tidegate.errors import InputError
from tidegate.model.topology import Source, Topology
from tidegate.theory.queueing import Station, assign_processors

START_S = 1_700_000_000.0
SHOWN = Display(3, 1_700_000_000_000, 40_000_000, 2_000, 1_500, 70_123, 61)


def factory(folder: Path, **settings: Any) -> Application:
    return application("factory", reports=folder, reader="own", values_per_report=30, **settings)


def inputs(app: Application, seconds: float, pieces: int) -> dict[str, list[pa.Table]]:
    """Messages at the published rates, each source in `pieces` batches."""
    made = {}
    for seed, (source, rate) in enumerate(app.rates_per_s.items()):
        moments = START_S + np.arange(round(rate * seconds)) / rate
        random, tables, first = np.random.default_rng(seed), [], 0
        for piece in np.array_split(moments, pieces):
            tables.append(app.generate(source, piece, first, random))
            first += len(piece)
        made[source] = tables
    return made


def spoilt(source: str, app: Application) -> pa.Table:
    """A good message and then each kind of bad one, all from machine 9."""
    plant, random = Plant(tick_s=0.48), np.random.default_rng(7)
    kinds = SPOILT[source]
    at_s = START_S + 0.48 * np.arange(1 + len(kinds))
    machine = np.full(len(at_s), 9)
    payloads = plant._payloads(source, machine[:1], at_s[:1], random)
    payloads += [k(plant, 9, t, random) for k, t in zip(kinds.values(), at_s[1:], strict=True)]
    numbers = np.arange(len(at_s))
    received = (1000 * at_s).astype(np.int64)
    return plant.table(source, 10**6 + numbers, machine, numbers, received, payloads)


def test_the_stream_equals_the_reference_and_sets_bad_messages_aside(
    spark: SparkSession, tmp_path: Path
) -> None:
    app = factory(tmp_path / "reports", bad_share=0.02)
    given = inputs(app, seconds=20, pieces=2)
    for source, batches in given.items():
        batches.insert(1, spoilt(source, app))
    # Two messages in the wrong order, a clock that goes back by less than the tolerance, and a
    # message that lost its envelope.
    ready = given["S3"][2]
    given["S3"][2] = ready.take(pa.array([1, 0, *range(2, ready.num_rows)]))
    odd = given["S1"][0].slice(0, 1).to_pylist()[0]
    clock_ms = json.loads(odd["body"])["at_ms"]
    status = '{"machine":%d,"at_ms":%d,"status":"DEFECT"}'
    given["S1"].append(
        pa.Table.from_pylist(
            [
                {**odd, "machine": 8, "number": 0, "body": status % (8, clock_ms)},
                {**odd, "machine": 8, "number": 1, "body": status % (8, clock_ms - 1000)},
                {**odd, "machine": None, "number": None},
            ],
            given["S1"][0].schema,
        )
    )
    found = app.run_through(spark, tmp_path / "run", given)
    assert found.wrong == {name: (Counter(), Counter()) for name in app.results}
    assert found.rejected == set_aside(found.inputs, ideal_s=0.04 * 0.48, span_ms=3600)
    assert set(found.rejected) == {"O1-parse", "O2-filter", "O6-temperature"}
    assert found.rejected["O2-filter"]["clock went backwards"] >= 1
    assert set(found.rejected["O1-parse"]) == {
        "not a PNG image",
        "damaged image",
        "unreadable digits",
        "poison: AttributeError",
        "another machine's message",
        "clock more than 5 s off the gateway's",
    }
    files = {path.name for path in (tmp_path / "reports").iterdir()}
    assert files == set(found.results["O9-report"].column("about").to_pylist())
    assert len(files) >= 3
    assert (found.results["O7-oee"].num_rows, found.results["O2-filter"].num_rows) > (100, 5)
    said = app.tally(found.inputs, found.results)
    assert said[-1].endswith(f"{len(files)} reports written")
    used, seen = found.results["O1-parse"].num_rows, found.inputs["S2"].num_rows
    assert said[0] == f"{used} of {seen} images were read correctly and used"


def test_the_policies_understand_the_topology() -> None:
    app = application("factory", reader="own")
    model = app.topology.model()
    sources = tuple(Source(name, rate) for name, rate in app.rates_per_s.items())
    rates = Topology(model.operators, sources, model.edges).arrival_rates()
    assert rates["O7-oee"] == pytest.approx(3 * 4 / 0.48)  # Table 2: O1 1:3
    assert rates["O8-inform"] == pytest.approx((5 / 50 + 10 / 100 + 1 / 300) * 4 / 0.48)
    stations = [
        Station(
            operator.name,
            rates[operator.name],
            1 / (operator.service_time_s or math.nan),
            max_processors=operator.max_instances,
        )
        for operator in model.operators
    ]
    counts = assign_processors(stations, 20)
    assert counts[0] == max(counts), "most for reading images"
    assert sum(counts) == 20


def test_sizes_are_those_of_table_1() -> None:
    app = application("factory", reader="own")
    random = np.random.default_rng(1)
    moments = START_S + np.arange(40) / 10
    for source, size in BODY_BYTES.items():
        bodies = app.generate(source, moments, 0, random).column("body").to_pylist()
        assert {len(body) for body in bodies} == {size}
    images = app.generate("S2", moments, 0, random).column("image").to_pylist()
    assert abs(np.mean([len(image) for image in images]) - 12_500) < 500


def test_chunks_make_one_history() -> None:
    app = application("factory", reader="own")
    moments = START_S + np.arange(24) / 8
    whole = app.generate("S2", moments, 0, np.random.default_rng(1)).column("image").to_pylist()
    later = app.generate("S2", moments[9:], 9, np.random.default_rng(2)).column("image").to_pylist()
    assert [read(image) for image in whole[9:]] == [read(image) for image in later]


def test_a_day_of_a_machine_adds_up() -> None:
    """Counts only grow, and downtime is what the availability sensor says."""
    plant = Plant(machines=4)
    at_s = np.arange(0, 400, 0.02) + 86_400 * 19_000
    for number in range(4):
        machine = np.full(len(at_s), number)
        shown = np.array(plant.displays(machine, at_s))
        assert (np.diff(shown[:, 1:], axis=0) >= 0).all()
        says = Counter(plant.statuses(machine, at_s))
        assert shown[-1, 3] == pytest.approx(20 * says["PLANNED"], rel=0.03)
        assert shown[-1, 4] == pytest.approx(20 * says["DEFECT"], rel=0.03)
    midnight = plant.displays(np.zeros(1, int), np.array([86_400.0 * 19_001]))[0]
    assert midnight[2:] == (0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (b"", "not a PNG image"),
        (draw(SHOWN, np.random.default_rng(1))[:-20], "damaged image"),
        (draw(SHOWN, np.random.default_rng(1)).replace(b"truth", b"trut!"), "damaged image"),
        (draw(SHOWN, np.random.default_rng(1), smudged=True), "unreadable digits"),
    ],
)
def test_what_cannot_be_read_says_why(image: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        read(image)


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed")
def test_tesseract_reads_the_same() -> None:
    assert choose_reader("auto") == "tesseract"
    assert read(draw(SHOWN, np.random.default_rng(1)), "tesseract") == SHOWN
    with pytest.raises(Unreadable):
        read(draw(SHOWN, np.random.default_rng(1), smudged=True), "tesseract")


def test_without_tesseract_our_own_reader_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "read by own" in application("factory").summary
    with pytest.raises(InputError, match="apt install tesseract-ocr"):
        application("factory", reader="tesseract")
    with pytest.raises(InputError, match="auto, tesseract or own"):
        application("factory", reader="eyes")


def test_a_report_written_twice_is_the_same(tmp_path: Path) -> None:
    values = [(m, 1_700_000_000_000 + 480 * n, 0.5 + m / 10) for m in range(3) for n in range(9)]
    first = write_report(tmp_path, 1_700_000_000_000, 1_700_000_005_000, values).read_bytes()
    again = write_report(tmp_path, 1_700_000_000_000, 1_700_000_005_000, reversed(values))
    assert first == again.read_bytes()
    assert first.startswith(b"%PDF")
    assert [path.name for path in tmp_path.iterdir()] == ["oee-20231114T221320Z.pdf"]
