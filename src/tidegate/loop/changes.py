"""The difference between two values of the model, as a small JSON document.

`changes` compares two frozen dataclasses of the same kind, and `changed` applies the result to the
JSON of the first, as `codec` writes it without defaults, which becomes the JSON of the second. Five
kinds of entries are enough, applied in this order. A path is the fields, keys and positions that
lead to a value, joined by ``/`` (``~1`` stands for a slash in a key, ``~0`` for a tilde):

- ``rows``: elements of a list that were kept, as ranges of their old positions, and new ones;
- ``columns``: by list, the new values of one field for many elements at once, ``at`` those
  positions (default: all). Equal values that follow each other have ``counts``, those that recur
  are numbered (``which``), and ``like`` names a column with the same values;
- ``set``: a new value;
- ``same``: a new value that is the same as the one at another path;
- ``drop``: a key that is gone.

Dataclasses are compared as they are: their JSON is made only of what has changed. The hosts and
instances of a snapshot are compared field by field, a whole column at a time.

>>> from tidegate.codec import to_plain
>>> from tidegate.model import Deployment
>>> old, new = Deployment(("h1", "h2", "h3")), Deployment(("h2", "h3", "h4"))
>>> changes(old, new)
{'rows': {'hosts': [[1, 3], {'new': ['h4']}]}}
>>> changed(to_plain(old), changes(old, new)) == to_plain(new)
True
"""

from __future__ import annotations

import dataclasses
import marshal
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import compress, islice
from operator import eq, is_not
from typing import Any, NamedTuple, get_args, get_type_hints

from tidegate.codec import to_plain

__all__ = ["Known", "Unsuited", "changed", "changes"]

Path = tuple[str | int, ...]
Reader = Callable[[Sequence[Any]], list[Any]]
"""Reads the same of many rows."""


class Old(NamedTuple):
    """Values of a field in all old rows, and the one dataclass of which all of them are, if any."""

    values: list[Any]
    kind: type | None


Known = dict[tuple[Path, Path], Old]
"""By table and field: the old values."""
NAMES = ("id", "operator", "name")
"""Fields or keys by which the elements of a list are recognised, the first that an element has."""
FEWEST = 3
"""Elements of a list from which on the values of a field are written as a column."""
SAMPLE = 100
"""Rows that show, at most, whether most rows of a list are the same objects."""
LONG = 40
"""Length of a value, in characters, from which on it is not written twice."""
SCALARS = (float, int, str, bool, type(None))
SCALAR_TYPES = frozenset(SCALARS)


class Unsuited(Exception):  # noqa: N818 - no error: the caller writes the whole value
    """The values have elements of another class than their annotation says."""


def changes(old: Any, new: Any, known: Known | None = None) -> dict[str, Any]:
    """What must change in the JSON of `old` to become that of `new`; empty if nothing must.

    known: a dictionary to keep columns of `old` in, for the next call with the same `old`; it
    begins empty.

    Raises Unsuited for values that cannot be compared in this way.
    """
    found = _Found({} if known is None else known)
    _compare(old, new, (), found)
    return found.plain()


class _Found:
    """The differences so far, by path, as plain values. known: columns of the old value."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.rows: dict[Path, list[Any]] = {}
        self.values: dict[Path, Any] = {}
        self.columns: dict[tuple[Path, Path], tuple[list[int], list[Any], int]] = {}
        """By table and field: positions and values that have changed, and the table's length."""
        self.dropped: list[Path] = []

    def put(self, path: Path, value: Any) -> None:
        self.values[path] = _plain(value)

    def counts(self) -> tuple[int, ...]:
        return len(self.values), len(self.dropped), len(self.rows), len(self.columns)

    def summarise(self, before: tuple[int, ...], path: Path, new: Any) -> None:
        """Write an object as a whole if most of it has changed since `before`."""
        if not path or self.counts()[1:] != before[1:]:
            return
        values = list(islice(self.values, before[0], None))
        if len(values) < 2 or 2 * sum(_leaves(self.values[one]) for one in values) <= _leaves(new):
            return
        for gone in values:
            del self.values[gone]
        self.put(path, new)

    def plain(self) -> dict[str, Any]:
        """The document."""
        columns: dict[str, dict[str, Any]] = {}
        written: dict[Any, list[str]] = {}
        for (table, field), (at, values, length) in self.columns.items():
            if len(at) < FEWEST:
                for n, value in zip(at, values, strict=True):
                    self.put((*table, n, *field), value)
                continue
            column, key = _column(values)
            if len(at) < length:
                column["at"] = _ranges(at)
            where = [_text(table), _text(field)]
            if (first := written.setdefault(key, where)) is not where:
                del column["values"]
                column["like"] = first
            columns.setdefault(where[0], {})[where[1]] = column
        known: dict[str, Path] = {}
        same = {path: known[repr(v)] for path, v in self.values.items() if _again(path, v, known)}
        found = {
            "rows": {_text(path): pieces for path, pieces in self.rows.items()},
            "columns": columns,
            "set": {_text(path): v for path, v in self.values.items() if path not in same},
            "same": {_text(path): _text(origin) for path, origin in same.items()},
            "drop": [_text(path) for path in self.dropped],
        }
        return {kind: entries for kind, entries in found.items() if entries}


def _compare(old: Any, new: Any, path: Path, found: _Found, declared: Any = None) -> None:
    """Compare two values. declared: class of the elements, for tuples of dataclasses."""
    if old is new:
        return
    if dataclasses.is_dataclass(new) and type(old) is type(new):
        before, kind = found.counts(), _class_of(new)
        for name, default, inner, _ in _fields(kind):
            was, value = getattr(old, name), getattr(new, name)
            if was is not value:
                if was == default and not isinstance(was, SCALARS):  # it is not in the JSON
                    if value != default:
                        found.put((*path, name), value)
                else:
                    _compare(was, value, (*path, name), found, inner)
        found.summarise(before, path, new)
    elif isinstance(old, dict) and isinstance(new, dict):
        if _same_bytes(old, new):
            return
        if [key for key in old if key in new] != list(new):
            found.put(path, new)  # a reader may depend on the order of the keys
            return
        before = found.counts()
        for key, value in new.items():
            _compare(old[key], value, (*path, key), found)
        found.dropped += [(*path, key) for key in old if key not in new]
        found.summarise(before, path, new)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple):
        _compare_lists(old, new, path, found, declared)
    elif not _same(old, new):
        found.put(path, new)


def _compare_lists(
    old: Sequence[Any], new: Sequence[Any], path: Path, found: _Found, declared: Any
) -> None:
    if declared is None and _same_bytes(old, new):
        return
    at: Sequence[int] = range(len(new))
    olds, news, known = old, new, found.known
    if declared is not None and len(old) == len(new) > FEWEST:
        some = slice(None, None, 1 + len(new) // SAMPLE)
        if 2 * sum(map(is_not, old[some], new[some])) < len(new[some]):
            # Most rows are the same objects.
            at = list(compress(at, map(is_not, old, new)))
            olds, news = [old[n] for n in at], [new[n] for n in at]
            known = {}
    read_names, field = (_names, ()) if declared is None else _name_of(declared)
    if (path, field) not in known:
        _check_rows(olds, declared)
    names = _old(olds, read_names, (path, field), known).values
    _check_rows(news, declared)
    if names != read_names(news):
        names, new_names = read_names(old), read_names(new)
        position = {name: n for n, name in enumerate(names) if name is not None}
        # Each element is used once: two that were one would change together.
        origin = [None if name is None else position.pop(name, None) for name in new_names]
        if origin.count(None) > len(new) / 2:
            found.put(path, new)
            return
        found.rows[path] = _pieces(origin, new)
        at = [n for n, m in enumerate(origin) if m is not None]
        olds, news = [old[m] for m in origin if m is not None], [new[n] for n in at]
        known = {}  # the rows have another order
    if declared is not None and len(new) >= FEWEST:
        _compare_rows(at, olds, news, declared, path, (), len(new), found, known)
        return
    for n, before, value in zip(at, olds, news, strict=True):
        if declared is not None or isinstance(value, dict):  # others are recognised by their value
            _compare(before, value, (*path, n), found)


def _compare_rows(
    at: Sequence[int],
    olds: Sequence[Any],
    news: Sequence[Any],
    kind: Any,
    table: Path,
    field: Path,
    length: int,
    found: _Found,
    known: Known,
) -> None:
    """Compare dataclasses in many rows, one field after the other.

    Args:
        at: Positions in the new list.
        olds: The old values.
        news: The new values, as many.
        kind: Their class.
        table: Path to the list.
        field: Path from an element of the list to the values.
        length: Length of the list.
        found: What is found.
        known: Columns of the old values, where these are all rows in their order.
    """
    _, named = _name_of(kind)  # rows are compared with those of the same name
    for name, default, _, read in _fields(kind):
        where = (*field, name)
        if where == named:
            continue
        before, one = _old(olds, read, (table, where), known)
        after = read(news)
        if one is None or not _all_are(one, after):
            if before == after:
                continue
        # Field by field: to compare 10,000 objects with each other takes longer.
        elif default is None or default is dataclasses.MISSING:
            _compare_rows(at, before, after, one, table, where, length, found, known)
            continue
        elif _same_columns(before, after, one, (table, where), known):
            continue
        if SCALAR_TYPES.issuperset(map(type, after)):
            # As below, for most columns: numbers and texts need no distinction row by row.
            other = [a is not b and a != b for a, b in zip(before, after, strict=True)]
            if True in other:
                changed_at = list(compress(at, other)), list(compress(after, other))
                found.columns[table, where] = (*changed_at, length)
            continue
        positions: list[int] = []
        values: list[Any] = []
        inner: dict[type, list[tuple[int, Any, Any]]] = {}
        for n, was, value in zip(at, before, after, strict=True):
            if was is value:
                continue
            if isinstance(value, SCALARS):
                if was != value:
                    positions.append(n)
                    values.append(value)
            elif (
                type(was) is type(value)
                and hasattr(value, "__dataclass_fields__")
                and (default is None or was != default)
            ):
                inner.setdefault(type(value), []).append((n, was, value))
            elif was != value:
                positions.append(n)
                values.append(_plain(value))
        if positions:
            found.columns[table, where] = (positions, values, length)
        for one, rows in inner.items():
            numbers, were, are = zip(*rows, strict=True)
            _compare_rows(numbers, were, are, one, table, where, length, found, {})


def _same_columns(
    olds: list[Any], news: list[Any], kind: type, place: tuple[Path, Path], known: Known
) -> bool:
    """Whether values of a dataclass are equal one by one. place: table and field of the values."""
    table, field = place
    return all(
        _old(olds, read, (table, (*field, name)), known).values == read(news)
        for name, _, _, read in _fields(kind)
    )


def _old(rows: Sequence[Any], read: Reader, place: tuple[Path, Path], known: Known) -> Old:
    """The values of a field in all old rows. place: table and field."""
    if (found := known.get(place)) is None:
        values = read(rows)
        found = known[place] = Old(values, _common_class(values))
    return found


def _common_class(values: list[Any]) -> type | None:
    """The one dataclass of which all values are, None if there are others."""
    if not values or not hasattr(values[0], "__dataclass_fields__"):
        return None
    (kind, *others) = {*map(type, values)}
    return None if others else kind


def _class_of(value: Any) -> Any:
    return type(value)


@cache
def _fields(kind: Any) -> list[tuple[str, Any, Any, Reader]]:
    """Name and default of each field, the class of its elements if it is a tuple, and its reader.

    Python remembers at each place of the code where an attribute of a class is. Code for one field
    of one class therefore takes less than half of the time of `attrgetter`.
    """
    hints = get_type_hints(kind)
    fields = []
    for field in dataclasses.fields(kind):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        (inner, *_) = get_args(hints[field.name]) or (None,)
        read: Reader = eval(f"lambda rows: [row.{field.name} for row in rows]")
        of = inner if dataclasses.is_dataclass(inner) else None
        fields.append((field.name, default, of, read))
    return fields


def _check_rows(rows: Sequence[Any], declared: Any) -> None:
    if declared is not None and not _all_are(declared, rows):
        raise Unsuited


def _all_are(kind: type, values: Sequence[Any]) -> bool:
    return [*map(type, values)].count(kind) == len(values)


@cache
def _name_of(kind: Any) -> tuple[Reader, Path]:
    """What reads the names of rows, and the path to it in a row; empty for rows without one."""
    known = {name: read for name, _, _, read in _fields(kind)}
    for name in NAMES:
        if name in known:
            return known[name], (name,)
    return lambda rows: [None] * len(rows), ()


def _names(rows: Sequence[Any]) -> list[Any]:
    return list(map(_name, rows))


def _name(value: Any) -> Any:
    """What an element is recognised by; None for elements that only have a position."""
    if isinstance(value, dict):
        return next((value[name] for name in NAMES if isinstance(value.get(name), str)), None)
    # Values of different types differ, as do 0.0 and -0.0.
    return repr(value)


def _same_bytes(old: Any, new: Any) -> bool:
    """Whether plain values are the same in every bit; False also if they are not plain.

    This takes a tenth of the time of going through them. Version 2 writes nothing but contents.
    """
    try:
        return marshal.dumps(old, 2) == marshal.dumps(new, 2)
    except ValueError:
        return False


def _same(old: Any, new: Any) -> bool:
    return type(old) is type(new) and (old == new if old else repr(old) == repr(new))


def _plain(value: Any) -> Any:
    if isinstance(value, SCALARS):
        return value
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(value)
    return to_plain(value, defaults=False)


def _again(path: Path, value: Any, known: dict[str, Path]) -> bool:
    """Whether a long value is written already; otherwise note it and the values in it."""
    if len(text := repr(value)) < LONG:
        return False
    if text in known:
        return True
    known[text] = path
    if isinstance(value, dict):
        for key, inner in value.items():
            _again((*path, key), inner, known)
    return False


def _leaves(value: Any) -> float:
    """Numbers and texts in a value; infinitely many in a table, which is not written again."""
    if isinstance(value, SCALARS):
        return 1
    if isinstance(value, dict):
        return sum(map(_leaves, value.values()))
    if isinstance(value, list | tuple | frozenset):
        table = any(isinstance(one, dict) or dataclasses.is_dataclass(one) for one in value)
        return math.inf if table else len(value)
    kind = _class_of(value)
    fields = [(getattr(value, name), default) for name, default, *_ in _fields(kind)]
    return sum(_leaves(one) for one, default in fields if one is not default)


def _pieces(origin: list[int | None], new: Sequence[Any]) -> list[Any]:
    pieces: list[Any] = []
    for n, value in zip(origin, new, strict=True):
        last = pieces[-1] if pieces else None
        if n is None:
            if isinstance(last, dict):
                last["new"].append(_plain(value))
            else:
                pieces.append({"new": [_plain(value)]})
        elif isinstance(last, list) and last[1] == n:
            last[1] += 1
        else:
            pieces.append([n, n + 1])
    return pieces


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    ranges: list[list[int]] = []
    for n in numbers:
        if ranges and ranges[-1][1] == n:
            ranges[-1][1] += 1
        else:
            ranges.append([n, n + 1])
    return ranges


def _column(values: list[Any]) -> tuple[dict[str, Any], Any]:
    """A column, in which equal values that follow each other, or recur, are written once.

    Also returns what it can be recognised by.
    """
    try:
        different = set(values)
    except TypeError:  # lists and objects
        return {"values": values}, repr(values)
    again = [False, *map(eq, values, values[1:])]
    column: dict[str, Any] = {"values": values}
    if 2 * again.count(False) <= len(values):
        first = [n for n, repeated in enumerate(again) if not repeated]
        counts = [end - n for n, end in zip(first, [*first[1:], len(values)], strict=True)]
        column = {"values": [values[n] for n in first], "counts": counts}
    elif 4 * len(different) <= len(values):
        number = {value: n for n, value in enumerate(dict.fromkeys(values))}
        column = {"values": list(number), "which": [number[value] for value in values]}
    return column, tuple(column["values"])


def _text(path: Path) -> str:
    return "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in path)


# --- applying -------------------------------------------------------------------------------------


def changed(old: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """The JSON of the newer value, from that of the older one, which is changed.

    Raises LookupError, TypeError or ValueError if the changes do not fit.
    """
    for path, pieces in found.get("rows", {}).items():
        before = _value_at(old, _path(path))
        rows: list[Any] = []
        for piece in pieces:
            rows += piece["new"] if isinstance(piece, dict) else _slice(before, *piece)
        before[:] = rows
    columns = found.get("columns", {})
    for path, fields in columns.items():
        rows = _value_at(old, _path(path))
        for field, column in fields.items():
            at = [n for a, b in column.get("at", [[0, len(rows)]]) for n in range(a, b)]
            where = _path(field)
            for n, value in zip(at, _expanded(column, columns), strict=True):
                _put(rows, (n, *where), value)
    for path, value in found.get("set", {}).items():
        _put(old, _path(path), value)
    for path, origin in found.get("same", {}).items():
        _put(old, _path(path), _value_at(old, _path(origin)))
    for path in found.get("drop", []):
        *outer, key = _path(path)
        del _value_at(old, outer)[key]
    return old


def _expanded(column: dict[str, Any], columns: dict[str, Any]) -> list[Any]:
    values: list[Any] = column.get("values", [])
    if "like" in column:
        table, field = column["like"]
        values = columns[table][field]["values"]
    if "counts" in column:
        pairs = zip(values, column["counts"], strict=True)
        return [value for value, count in pairs for _ in range(count)]
    if "which" in column:
        return [values[n] for n in column["which"]]
    return values


def _path(text: str) -> tuple[str, ...]:
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text.split("/"))


def _slice(rows: list[Any], first: int, end: int) -> list[Any]:
    if not 0 <= first < end <= len(rows):
        raise IndexError(f"the list has {len(rows)} elements, not {end}")
    return rows[first:end]


def _value_at(document: Any, path: Iterable[str | int]) -> Any:
    for part in path:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _put(document: Any, path: tuple[str | int, ...], value: Any) -> None:
    *outer, key = path
    inside = _value_at(document, outer)
    if isinstance(inside, list):
        inside[int(key)] = value
    else:
        inside[key] = value
