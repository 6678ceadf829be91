"""Columns of a CSV or Parquet file, with the line number of each value."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import InputError, TraceError
from tidegate.workloads.protocol import FloatArray

__all__ = ["Table", "read_table"]

_PARQUET = (".parquet", ".pq")
_GZIP = b"\x1f\x8b"


class Table:
    """The columns of a file, each loaded on first use.

    path: for error messages. names: of the columns. lines: the line (in Parquet: the row) of each
    value, from 1. load: loads a column, as a list of text or (from Parquet) as a NumPy array.
    """

    def __init__(
        self, path: str, names: Sequence[str], lines: Sequence[int], load: Callable[[str], Any]
    ) -> None:
        self.path, self.names, self.lines = path, tuple(names), lines
        self._load = load
        self._columns: dict[str, Any] = {}

    def column(self, name: str) -> Any:
        """The cells of a column."""
        if name not in self._columns:
            self._columns[name] = self._load(name)
        return self._columns[name]

    def in_order(self, order: NDArray[np.int64]) -> Table:
        """The same rows in another order, each with its line."""

        def load(name: str) -> Any:
            cells = self.column(name)
            return cells[order] if isinstance(cells, np.ndarray) else [cells[i] for i in order]

        return Table(self.path, self.names, [self.lines[i] for i in order], load)

    def error(self, row: int | None, column: str, value: Any, allowed: str, remedy: str) -> Any:
        """The error for a row, given by its position among the values."""
        line = None if row is None else int(self.lines[row])
        return TraceError(self.path, line, column, value, allowed, remedy)

    def refuse(self, bad: Any, column: str, allowed: str, remedy: str) -> None:
        """Raise an error for the first bad row, if any."""
        if bad.any():
            row = int(bad.argmax())
            value = self.column(column)[row]
            value = value.item() if isinstance(value, np.generic) else value
            raise self.error(row, column, value, allowed, remedy)

    def numbers(self, column: str) -> FloatArray:
        """A column of numbers, which may contain NaN."""
        cells = self.column(column)
        if isinstance(cells, np.ndarray):
            if cells.dtype.kind in "fiub":
                return cells.astype(np.float64)
            cells = ["" if cell is None else str(cell) for cell in cells]
        return self._converted(column, cells, float, "a number", "write digits and a point")

    def times(self, column: str, unit_s: float) -> FloatArray:
        """A column of times as seconds, from numbers in units of `unit_s` or from ISO 8601.

        ISO times are relative to the whole second of the earliest, so that no digit is lost. Times
        without an offset are UTC.
        """
        cells = self.column(column)
        if isinstance(cells, np.ndarray) and cells.dtype.kind == "M":
            self.refuse(np.isnat(cells), column, "a time", "remove the row or write its time")
            ticks = cells.astype("datetime64[us]").astype(np.int64)
            return np.asarray((ticks - ticks.min() // 1_000_000 * 1_000_000) / 1e6)
        if isinstance(cells, np.ndarray) or is_number(cells[0]):
            return np.asarray(self.numbers(column) * unit_s)
        allowed, remedy = "a time", "write seconds, or ISO 8601 such as 2026-07-01T09:00:00Z"
        moments = self._list(column, cells, _moment, allowed, remedy)
        start = min(moments).replace(microsecond=0)
        return np.array([(moment - start).total_seconds() for moment in moments])

    def _converted(
        self, column: str, cells: Sequence[str], convert: Callable[[str], float], *why: str
    ) -> FloatArray:
        return np.array(self._list(column, cells, convert, *why), dtype=np.float64)

    def _list(
        self,
        column: str,
        cells: Sequence[str],
        convert: Callable[[str], Any],
        allowed: str,
        remedy: str,
    ) -> list[Any]:
        try:
            return [convert(cell) for cell in cells]
        except ValueError:
            for row, cell in enumerate(cells):  # slow path, to name the row
                try:
                    convert(cell)
                except ValueError:
                    raise self.error(row, column, cell, allowed, remedy) from None
            raise


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text.strip())
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def is_number(cell: str) -> bool:
    """Whether a cell reads as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_value(cell: str) -> bool:
    """Whether a cell is a number or a time, and so no column name."""
    return is_number(cell) or bool(re.match(r"\s*\d{4}-\d\d-\d\d", cell)) or not cell.strip()


def read_table(path: str | Path) -> Table:
    """All columns of a file, CSV (also .gz) or Parquet, by name."""
    path = Path(path)
    if not path.is_file():
        raise TraceError(str(path), None, "file", path.name, "there", "check the path")
    return _read_parquet(path) if path.suffix.lower() in _PARQUET else _read_csv(path)


def _read_csv(path: Path) -> Table:
    try:
        return _parsed(path)
    except csv.Error as error:  # such as a cell of more than 131,072 characters
        remedy = "write it as plain or gzipped UTF-8 text"
        raise TraceError(str(path), None, "file", str(error), "readable", remedy) from None


def _parsed(path: Path) -> Table:
    name = str(path)
    remedy = "write it as plain or gzipped UTF-8 text"
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data.startswith(_GZIP) else data).decode("utf-8-sig")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise TraceError(name, None, "file", str(error), "readable", remedy) from None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    numbers = [n for n, line in enumerate(lines, 1) if line and line[0] != "#" and line.strip()]
    lines = [lines[n - 1] for n in numbers]
    if not lines:
        raise TraceError(name, None, "file", "", "more than nothing", "it is empty: record again")
    delimiter = max(",;\t|", key=lines[0].count)
    header = next(csv.reader(lines[:1], delimiter=delimiter))
    if all(_is_value(cell) for cell in header):
        if len(header) > 2:
            remedy = "name the columns in the first line, such as t_s,rate"
            raise TraceError(name, numbers[0], "first line", lines[0], "column names", remedy)
        header = ["t_s", "rate"][: len(header)]
    else:
        header = [cell.strip() for cell in header]
        del lines[0], numbers[0]
    if not lines:
        remedy = "only its header is there: record again"
        raise TraceError(name, None, "file", ",".join(header), "followed by rows", remedy)
    quoted = '"' in text

    # One pass for each requested column keeps few of them in memory.
    def rows() -> Iterable[list[str]]:
        if quoted:
            return csv.reader(lines, delimiter=delimiter)
        return (line.split(delimiter) for line in lines)

    if quoted:  # a quoted cell may hold delimiters and line ends
        reader = csv.reader(lines, delimiter=delimiter)
        found = [(len(row), numbers[reader.line_num - 1]) for row in reader]
        widths, numbers = [width for width, _ in found], [number for _, number in found]
    else:
        widths = [line.count(delimiter) + 1 for line in lines]
    width = len(header)
    if widths.count(width) < len(widths):
        row = next(i for i, cells in enumerate(widths) if cells != width)
        allowed = f"that of the header, {width}"
        remedy = "complete the row or remove it"
        raise TraceError(name, numbers[row], "number of cells", widths[row], allowed, remedy)

    def load(column: str) -> list[str]:
        i = header.index(column)
        return [row[i] for row in rows()]

    return Table(name, header, numbers, load)


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        remedy = "pip install pyarrow, or write CSV"
        raise InputError("format", path.suffix, "CSV when pyarrow is absent", remedy) from None
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        message = str(error).splitlines()[0]
        remedy = "write it again, or as CSV"
        raise TraceError(str(path), None, "file", message, "readable as Parquet", remedy) from None
    if table.num_rows == 0:
        remedy = "it is empty: record again"
        raise TraceError(str(path), None, "rows", 0, "at least one", remedy)

    def load(name: str) -> Any:
        column = table.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
        return column.to_numpy()

    return Table(str(path), table.column_names, range(1, table.num_rows + 1), load)
