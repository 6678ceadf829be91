"""The factory's results from the whole input at once, in plain Python.

It reads no pixels: the numbers of an image are in its text chunk, where the generator has planted
them. So it also knows how many images were read correctly.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

from tidegate.apps.factory.report import report_name

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["as_read", "reference", "set_aside", "tally"]

Rows = list[dict[str, Any]]
Tables = Mapping[str, "pa.Table"]
_TOLERANCE_MS, _TOO_HOT = 5000, 100.0
_SHOWN = ("total_ms", "planned_ms", "defect_ms", "made", "bad")
_NOTE = ("machine", "number", "at_ms", "kind", "value", "about")


def reference(inputs: Tables, *, ideal_s: float, span_ms: int) -> dict[str, pa.Table]:
    """The results of every operator. ideal_s: time for one good; span_ms: span of a report."""
    import pyarrow as pa

    schemas = _schemas()
    return {
        name: pa.Table.from_pylist([row for row in rows if row.get("why") is None], schemas[name])
        for name, rows in _everything(inputs, ideal_s, span_ms).items()
    }


def set_aside(inputs: Tables, *, ideal_s: float, span_ms: int) -> dict[str, dict[str, int]]:
    """Rows that must be set aside, by operator and reason."""
    found = {
        name: dict(Counter(row["why"] for row in rows if row.get("why") is not None))
        for name, rows in _everything(inputs, ideal_s, span_ms).items()
    }
    return {name: reasons for name, reasons in found.items() if reasons}


def as_read(inputs: Tables, results: Tables) -> Tables:
    """The input without the images that O1 could not read; the tally counts them.

    For a reader that sometimes fails. Images that it reads wrongly still show as differences.
    """
    import pyarrow as pa

    read = results["O1-parse"].to_pylist()
    known = {(row["machine"], row["number"]) for row in read}
    images = inputs["S2"]
    sent = zip(images["machine"].to_pylist(), images["number"].to_pylist(), strict=True)
    return {**inputs, "S2": images.filter(pa.array([each in known for each in sent]))}


def tally(inputs: Tables, results: Tables) -> list[str]:
    """Sentences about the results of a run."""
    shown = {
        (row["machine"], row["number"]): planted
        for row in inputs["S2"].to_pylist()
        if (planted := _planted(row["image"])) is not None and planted["readable"]
    }
    right = sum(
        row["at_ms"] == planted["clock_ms"] and all(row[name] == planted[name] for name in _SHOWN)
        for row in results["O1-parse"].to_pylist()
        if (planted := shown.get((row["machine"], row["number"]))) is not None
    )
    images = inputs["S2"].num_rows
    by_machine: dict[int, list[float]] = defaultdict(list)
    for row in results["O7-oee"].to_pylist():
        by_machine[row["machine"]].append(row["oee"])
    kinds = Counter(results["O8-inform"].column("kind").to_pylist())
    sentences = [f"{right} of {images} images were read correctly and used"]
    sentences += [
        f"machine {machine}: mean OEE {sum(values) / len(values):.1%} of {len(values)} values"
        for machine, values in sorted(by_machine.items())
    ]
    sentences.append(
        f"{kinds['defect']} warnings of defects, {kinds['temperature']} of heat; "
        f"{kinds['report']} reports written"
    )
    return sentences


def _everything(inputs: Tables, ideal_s: float, span_ms: int) -> dict[str, Rows]:
    displays = [_display(row) for row in inputs["S2"].to_pylist()]
    good = [row for row in displays if row["why"] is None]
    parts = {
        "performance": _performance(good, ideal_s),
        "availability": [
            _part(row, (row["total_ms"] - row["planned_ms"] - row["defect_ms"]) / row["total_ms"])
            for row in good
        ],
        "quality": [
            _part(row, (row["made"] - row["bad"]) / row["made"] if row["made"] else 1.0)
            for row in good
        ],
    }
    for kind, rows in parts.items():
        for row in rows:
            row["kind"] = kind
    values = _oee(parts)
    defects = _warnings(inputs["S1"].to_pylist(), "status", "defect", _status_why)
    heat = _warnings(inputs["S3"].to_pylist(), "celsius", "temperature", _celsius_why)
    reports = _reports(values, span_ms)
    notes = [row for rows in (defects, heat, reports) for row in rows if row["why"] is None]
    return {
        "O1-parse": displays,
        "O2-filter": defects,
        "O3-performance": parts["performance"],
        "O4-availability": parts["availability"],
        "O5-quality": parts["quality"],
        "O6-temperature": heat,
        "O7-oee": values,
        "O9-report": reports,
        "O8-inform": [
            {name: note[name] for name in ("machine", "at_ms", "kind")} | {"text": _text(note)}
            for note in notes
        ],
    }


def _planted(image: bytes | None) -> dict[str, Any] | None:
    """The truth that was planted in an image; None if it is no image or damaged."""
    from PIL import Image

    try:
        picture = Image.open(BytesIO(image or b""), formats=("PNG",))
        picture.load()
        planted = json.loads(picture.info["truth"])
    except (OSError, SyntaxError, KeyError, ValueError):
        return None
    assert isinstance(planted, dict)
    return planted


def _envelope_why(row: Mapping[str, Any], machine: int, at_ms: int) -> str | None:
    if None in (row["machine"], row["number"], row["received_ms"]):
        return "no machine, number or time in the envelope"
    if machine != row["machine"]:
        return "another machine's message"
    if abs(at_ms - row["received_ms"]) > _TOLERANCE_MS:
        return "clock more than 5 s off the gateway's"
    return None


def _display(row: dict[str, Any]) -> dict[str, Any]:
    found = {"machine": row["machine"], "number": row["number"]}
    planted = _planted(row["image"])
    if row["image"] is None:
        why: str | None = "poison: AttributeError"
    elif not row["image"].startswith(b"\x89PNG"):
        why = "not a PNG image"
    elif planted is None:
        why = "damaged image"
    elif not planted["readable"]:
        why = "unreadable digits"
    else:
        why = _envelope_why(row, planted["machine"], planted["clock_ms"])
    if planted is None or why is not None:
        return {**found, "why": why}
    shown = {name: planted[name] for name in _SHOWN}
    return {**found, "at_ms": planted["clock_ms"], **shown, "why": None}


def _part(row: Mapping[str, Any], value: float | None, why: str | None = None) -> dict[str, Any]:
    names = ("machine", "number", "at_ms")
    return {**{name: row[name] for name in names}, "value": value, "why": why}


def _predecessors(rows: Rows, time: str) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    """From a message to the machine's previous message, of the same ten minutes or those before."""

    def span(row: Mapping[str, Any]) -> int:
        return int(row[time]) // 600_000

    numbered = [row for row in rows if None not in (row["machine"], row["number"], row[time])]
    index = {(row["machine"], row["number"], span(row)): row for row in numbered}

    def before(row: dict[str, Any]) -> dict[str, Any] | None:
        key = row["machine"], row["number"] - 1
        return index.get((*key, span(row))) or index.get((*key, span(row) - 1))

    return before


def _performance(rows: Rows, ideal_s: float) -> Rows:
    before_of = _predecessors(rows, "at_ms")
    found = []
    for row in rows:
        before = before_of(row)
        if row["number"] and before is None:
            continue
        if before is not None and row["at_ms"] <= before["at_ms"]:
            found.append(_part(row, None, "clock went backwards"))
            continue
        made, cycle_ms = row["made"], row["total_ms"]
        if before is not None and before["total_ms"] <= row["total_ms"]:
            made, cycle_ms = made - before["made"], row["at_ms"] - before["at_ms"]
        found.append(_part(row, made * ideal_s / (cycle_ms / 1000)))
    return found


def _oee(parts: Mapping[str, Rows]) -> Rows:
    joined: dict[tuple[int, int, int], dict[str, float]] = defaultdict(dict)
    for kind, rows in parts.items():
        for row in rows:
            if row["why"] is None:
                joined[row["machine"], row["number"], row["at_ms"]][kind] = row["value"]
    return [
        {
            **dict(zip(("machine", "number", "at_ms"), key, strict=True)),
            **found,
            "oee": found["availability"] * found["performance"] * found["quality"],
        }
        for key, found in joined.items()
        if len(found) == len(parts)
    ]


def _status_why(status: Any) -> str | None:
    return None if status in ("AVAILABLE", "PLANNED", "DEFECT") else "unknown status"


def _celsius_why(celsius: Any) -> str | None:
    sensible = isinstance(celsius, int | float) and -273.15 <= celsius <= 2000
    return None if sensible else "temperature makes no sense"


def _warnings(rows: Rows, field: str, kind: str, senseless: Any) -> Rows:
    readings, passed = [], []
    for row in rows:
        try:
            said = json.loads(row["body"])
            at_ms, value, why = said["at_ms"], said[field], None
        except (TypeError, KeyError, ValueError):
            at_ms, value, why = None, None, "malformed JSON"
        if why is None:
            why = _envelope_why(row, said["machine"], at_ms) or senseless(value)
        envelope = {name: row[name] for name in ("machine", "number", "received_ms")}
        reading = {**envelope, "at_ms": at_ms, "kind": kind, "about": None}
        readings.append({**reading, "why": why, "own": why, "said": value})
    before_of = _predecessors(readings, "received_ms")
    for reading in readings:
        alone = None in (reading["machine"], reading["number"])
        before = None if alone else before_of(reading)
        if not alone and reading["number"] and before is None:
            continue
        usable = before if before is not None and before["own"] is None else None
        if reading["why"] is None and usable is not None and reading["at_ms"] < usable["at_ms"]:
            reading["why"] = "clock went backwards"
        alarming = reading["own"] is None and _alarming(reading["said"])
        new = alarming and not (usable is not None and _alarming(usable["said"]))
        if reading["why"] is not None or new:
            passed.append(reading)
    for reading in passed:
        reading["value"] = reading["said"] if kind == "temperature" else None
    return passed


def _alarming(said: Any) -> bool:
    return bool(said == "DEFECT" if isinstance(said, str) else said > _TOO_HOT)


def _reports(values: Rows, span_ms: int) -> Rows:
    spans: dict[int, list[float]] = defaultdict(list)
    for row in values:
        spans[row["at_ms"] // span_ms * span_ms].append(row["oee"])
    newest = max(spans, default=0)
    return [
        {
            "machine": None,
            "number": None,
            "at_ms": start_ms,
            "kind": "report",
            "value": sum(oees) / len(oees),
            "about": report_name(start_ms),
            "why": None,
        }
        for start_ms, oees in spans.items()
        if start_ms + 2 * span_ms <= newest
    ]


def _text(note: Mapping[str, Any]) -> str:
    if note["kind"] == "report":
        return f"new report: {note['about']}"
    if note["kind"] == "temperature":
        return f"machine {note['machine']} is too hot: {note['value']} degrees"
    return f"machine {note['machine']} has a defect"


def _schemas() -> dict[str, pa.Schema]:
    import pyarrow as pa

    types = {
        **dict.fromkeys(("machine",), pa.int32()),
        **dict.fromkeys(("kind", "about", "text"), pa.string()),
        **dict.fromkeys(("value", "availability", "performance", "quality", "oee"), pa.float64()),
    }

    def schema(names: Iterable[str]) -> pa.Schema:
        return pa.schema([(name, types.get(name, pa.int64())) for name in names])

    part, note = schema(("machine", "number", "at_ms", "kind", "value")), schema(_NOTE)
    oee = ("machine", "number", "at_ms", "availability", "performance", "quality", "oee")
    return {
        "O1-parse": schema(("machine", "number", "at_ms", *_SHOWN)),
        "O2-filter": note,
        "O3-performance": part,
        "O4-availability": part,
        "O5-quality": part,
        "O6-temperature": note,
        "O7-oee": schema(oee),
        "O9-report": note,
        "O8-inform": schema(("machine", "at_ms", "kind", "text")),
    }
