"""What the code of a Python application shows of its session and its queries.

The code is parsed and never run. Only literal values are read, in chains of calls such as
``df.writeStream.queryName("ticks").trigger(processingTime="10 seconds").start()``. What is
computed, or comes from another module, is not known. Settings inside an ``if`` are passed over,
since they may not apply.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tidegate.errors import InputError
from tidegate.spark.autoscaler.admission import SourceLimit
from tidegate.spark.scalability.facts import QueryFacts

__all__ = ["CodeFacts", "read_code"]

_LIMITS: dict[str, tuple[Literal["rows", "files", "bytes"], str]] = {
    "maxoffsetspertrigger": ("rows", "Kafka"),
    "maxrowspertrigger": ("rows", ""),
    "maxrecordspertrigger": ("rows", ""),
    "maxfilespertrigger": ("files", ""),
    "maxbytespertrigger": ("bytes", ""),
}
_TRIGGERS = {
    "processingTime": "ProcessingTimeTrigger",
    "continuous": "ContinuousTrigger",
    "realTime": "RealTimeTrigger",
    "once": "OneTimeTrigger",
    "availableNow": "AvailableNowTrigger",
}
_STATEFUL = {
    "applyInPandasWithState",
    "dropDuplicatesWithinWatermark",
    "transformWithState",
    "transformWithStateInPandas",
}
_STATEFUL_ON_STREAMS = {"dropDuplicates", "drop_duplicates", "distinct", "groupBy", "groupby"}
"""They keep state on a stream, and none on a table."""
_SECONDS = {
    "millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0,
    "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CodeFacts:
    """What code shows.

    settings: settings of Spark that it sets. places: where it sets each. queries: queries that it
    starts.
    """

    settings: Mapping[str, str]
    places: Mapping[str, str]
    queries: tuple[QueryFacts, ...]


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of a chain, with its literal arguments; None for one that is computed."""

    name: str
    arguments: tuple[object, ...]
    options: Mapping[str, object]
    line: int


def read_code(path: Path) -> CodeFacts:
    """What the code of an application shows.

    path: a Python file. Raises InputError if it cannot be read or parsed.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError("application", str(path), "readable", error.strerror or "") from None
    except (SyntaxError, ValueError) as error:
        raise InputError("application", str(path), "Python code", str(error)) from None
    settings: dict[str, str] = {}
    places: dict[str, str] = {}
    queries: list[QueryFacts] = []
    limits: list[SourceLimit] = []
    names: set[str] = set()
    perhaps = _conditional_lines(tree)
    for chain in _chains(tree):
        called = {call.name for call in chain}
        names |= called
        for key, value, line in _settings(chain, called):
            if line not in perhaps:
                settings[key], places[key] = value, f"{path.name}, line {line}"
        if "readStream" in called:
            limits += _limits(chain)
        if "writeStream" in called or "trigger" in called:
            queries.append(_query(chain, path.name, called))
    if len(queries) == 1:  # with several, it is open which one reads a source
        queries[0] = replace(
            queries[0],
            limits=tuple(limits) if "readStream" in names else None,
            watermark="withWatermark" in names,
            stateful=True if queries[0].stateful or names & _STATEFUL else None,
        )
    return CodeFacts(settings, places, tuple(queries))


def _conditional_lines(tree: ast.AST) -> set[int]:
    """Lines that may not be executed, except those of ``if __name__ == "__main__"``."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "__name__" not in ast.dump(node.test):
            for part in (*node.body, *node.orelse):
                lines |= set(range(part.lineno, (part.end_lineno or part.lineno) + 1))
    return lines


def _chains(tree: ast.AST) -> Iterator[list[_Call]]:
    """Chains of calls and attributes, each from its first link to its last."""
    inner: set[ast.AST] = set()
    for node in ast.walk(tree):  # an outer link comes before the inner ones
        if not isinstance(node, ast.Call | ast.Attribute) or node in inner:
            continue
        links: list[_Call] = []
        link: ast.AST = node
        while True:
            if isinstance(link, ast.Call) and isinstance(link.func, ast.Attribute):
                inner |= {link, link.func}
                links.append(_call(link, link.func))
                link = link.func.value
            elif isinstance(link, ast.Attribute):
                inner.add(link)
                links.append(_Call(link.attr, (), {}, link.lineno))
                link = link.value
            else:
                break
        base = link.func if isinstance(link, ast.Call) else link
        if isinstance(base, ast.Name):  # a variable, or a call such as SparkConf()
            links.append(_Call(base.id, (), {}, base.lineno))
        if links:
            yield links[::-1]


def _call(call: ast.Call, function: ast.Attribute) -> _Call:
    options = {word.arg: _literal(word.value) for word in call.keywords if word.arg}
    # The line of the name: a chain over many lines begins elsewhere.
    line = function.end_lineno or call.lineno
    return _Call(function.attr, tuple(map(_literal, call.args)), options, line)


def _literal(node: ast.AST) -> object:
    try:
        value: object = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None
    return value


def _settings(chain: list[_Call], called: set[str]) -> Iterator[tuple[str, str, int]]:
    """Settings of the session: ``.config(…)``, ``.master(…)``, ``spark.conf.set(…)``, SparkConf."""
    of_conf = any(name.lower().endswith("conf") for name in called)
    for call in chain:
        given = (*call.arguments, None, None)
        pairs: list[tuple[object, object]] = []
        if call.name == "config" or (call.name == "set" and of_conf):
            pairs.append((call.options.get("key", given[0]), call.options.get("value", given[1])))
            several = call.options.get("map")
            pairs += several.items() if isinstance(several, dict) else ()
        elif call.name == "setAll" and of_conf and isinstance(given[0], list | tuple):
            pairs += [pair for pair in given[0] if isinstance(pair, tuple) and len(pair) == 2]
        elif call.name == "setMaster" or (call.name == "master" and "builder" in called):
            pairs.append(("spark.master", given[0]))
        for key, value in pairs:
            if isinstance(key, str) and key.startswith("spark.") and value is not None:
                yield key, str(value).lower() if isinstance(value, bool) else str(value), call.line


def _options(chain: list[_Call]) -> Iterator[tuple[str, object]]:
    """Options of a reader or writer, by their name in lower case as Spark compares them."""
    for call in chain:
        if call.name == "option" and len(call.arguments) == 2:
            yield str(call.arguments[0]).lower(), call.arguments[1]
        elif call.name == "options":
            yield from ((name.lower(), value) for name, value in call.options.items())


def _limits(chain: list[_Call]) -> Iterator[SourceLimit]:
    for name, value in _options(chain):
        if name in _LIMITS:
            kind, source = _LIMITS[name]
            with suppress(ValueError):  # a value that is computed
                yield SourceLimit(kind, float(str(value)), source)


def _query(chain: list[_Call], file: str, called: set[str]) -> QueryFacts:
    """A query as its chain of calls shows it."""
    whole = "writeStream" in called and bool(called & {"start", "toTable"})
    # Without a name or trigger in a whole chain, the query has none; otherwise it may come later.
    found = QueryFacts("" if whole else None)
    if whole:
        found = replace(found, trigger="ProcessingTimeTrigger", trigger_s=0.0)
    for call in chain:
        first = call.arguments[0] if call.arguments else None
        if call.name == "queryName":
            found = replace(found, name=first if isinstance(first, str) else None)
        elif call.name == "trigger":
            found = replace(found, trigger=None, trigger_s=None)
            for word, value in call.options.items():
                if word in _TRIGGERS and value is not False:
                    pause_s = 0.0 if word in ("once", "availableNow") else None
                    interval_s = _interval_s(value) if word == "processingTime" else pause_s
                    found = replace(found, trigger=_TRIGGERS[word], trigger_s=interval_s)
    checkpoint = dict(_options(chain)).get("checkpointlocation")
    streams = "writeStream" in called  # what comes before it in the chain is a stream too
    return replace(
        found,
        stateful=True if streams and called & {*_STATEFUL, *_STATEFUL_ON_STREAMS} else None,
        place=f"{file}, line {chain[-1].line}",
        checkpoint=checkpoint if isinstance(checkpoint, str) else None,
    )


def _interval_s(value: object) -> float | None:
    """Seconds of an interval as Spark writes it: ``10 seconds``."""
    found = re.fullmatch(r"\s*(?:interval\s+)?(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s*", str(value).lower())
    if found is None:
        return None
    unit = _SECONDS.get(found[2], _SECONDS.get(f"{found[2]}s"))
    return None if unit is None else float(found[1]) * unit
