"""Files of a trace that was built from a log: rates, statistics of keys and provenance.

::

    DIR/
      trace.csv        t_s,rate        input of `read_trace` and backtests
      keys.csv         one row for each key, largest first (optionally keys.parquet)
      provenance.json  version, input, rows, rejected rows by reason, span, step, skew
      rejected/        JSON lines with reason, file, row and number of occurrences
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.errors import InputError, TidegateError
from tidegate.workloads.protocol import FloatArray
from tidegate.workloads.rates import RateTrace
from tidegate.workloads.read import read_trace
from tidegate.workloads.table import read_table

__all__ = [
    "KEYS",
    "PROVENANCE",
    "REJECTED",
    "BuiltTrace",
    "built_files",
    "read_built",
    "write_built",
]

PROVENANCE, REJECTED = "provenance.json", "rejected"
KEYS = ("key", "events", "rate_per_s", "share", "peak_to_mean", "cv", "dispersion", "hurst")
_FORMATS = ("csv", "parquet")


@dataclass(frozen=True, slots=True)
class BuiltTrace:
    """A trace that was built from a log.

    trace: the rates, as a workload. keys: columns by name as in `KEYS`, the largest key first,
    empty without a key column. provenance: contents of provenance.json, empty for other traces.
    file: the file with the rates, None before it is written.
    """

    trace: RateTrace
    keys: Mapping[str, Sequence[Any]]
    provenance: Mapping[str, Any]
    file: Path | None = None


def write_built(built: BuiltTrace, folder: Path, format: str = "csv") -> None:
    """Write trace, keys and provenance into an existing folder. format: csv or parquet."""
    if format not in _FORMATS:
        raise InputError("--table", format, "one of " + ", ".join(_FORMATS))
    times: FloatArray = np.round(built.trace.t_s, 6)  # whole microseconds
    _write({"t_s": times, "rate": built.trace.rate_per_s}, folder / f"trace.{format}")
    if built.keys:
        _write(built.keys, folder / f"keys.{format}")
    text = json.dumps(built.provenance, indent=2, ensure_ascii=False)
    (folder / PROVENANCE).write_text(text + "\n", encoding="utf-8")


def _write(columns: Mapping[str, Sequence[Any] | FloatArray], path: Path) -> None:
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), path)
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*map(_cells, columns.values()), strict=True))


def _cells(values: Sequence[Any] | FloatArray) -> list[Any]:
    """Numbers with 12 significant digits, and empty cells for NaN."""
    if len(values) and isinstance(values[0], float):
        return ["" if math.isnan(v) else f"{v:.12g}" for v in values]
    return list(values)


def built_files(folder: Path) -> list[Path]:
    """The files that `read_built` may read in a folder, whether or not they are there."""
    tables = [folder / f"{name}.{form}" for name in ("trace", "keys") for form in _FORMATS]
    return [folder / PROVENANCE, *tables]


def read_built(path: str | Path) -> BuiltTrace:
    """Read a folder that ``tidegate traces build`` has written, or a single trace file."""
    path = Path(path)
    if not path.is_dir():
        found = read_trace(path)
        if isinstance(found, RateTrace):
            return BuiltTrace(found, {}, {}, path)
        remedy = "make one of it with tidegate traces build"
        raise InputError("trace", str(path), "rates or counts by step, not single events", remedy)
    files = [f for form in _FORMATS if (f := path / f"trace.{form}").is_file()]
    if not files or not (path / PROVENANCE).is_file():
        remedy = "give a folder that tidegate traces build has written, or a trace file"
        raise InputError("trace", str(path), f"a folder with a trace and {PROVENANCE}", remedy)
    trace = read_trace(files[0], "rate")
    assert isinstance(trace, RateTrace)
    keys: dict[str, Sequence[Any]] = {}
    try:
        known = json.loads((path / PROVENANCE).read_bytes())
        if not isinstance(known, dict):
            raise ValueError("it is no object")
        if (table_path := path / f"keys{files[0].suffix}").is_file():
            table = read_table(table_path)
            keys = {name: _numbers(table.column(name)) for name in KEYS[2:]}
            keys |= {"key": [str(cell) for cell in table.column("key")]}
            keys |= {"events": [int(cell) for cell in table.column("events")]}
            _check_skew(known["skew"])
    except TidegateError:
        raise
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        remedy = f"a file in it is damaged ({error}): build the trace again"
        allowed = "a folder that tidegate traces build has written"
        raise InputError("trace", str(path), allowed, remedy) from None
    return BuiltTrace(trace, keys, known, files[0])


def _check_skew(skew: Mapping[str, Any]) -> None:
    """Raise ValueError, LookupError or TypeError unless the figures about the keys are there."""
    numbers = [skew["keys"], skew["gini"], *skew["lorenz"]]
    if len(skew["lorenz"]) < 2 or not all(isinstance(one, int | float) for one in numbers):
        raise ValueError(f"{PROVENANCE} lacks figures about the keys")


def _numbers(cells: Sequence[Any]) -> list[float]:
    return [math.nan if cell in ("", None) else float(cell) for cell in cells]
