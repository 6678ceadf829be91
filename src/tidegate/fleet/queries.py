"""Continuous queries: named Python functions that define a streaming query on a session."""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, overload

from tidegate.errors import InputError
from tidegate.model.topology import Edge, Operator, Resources, Topology

__all__ = ["ContinuousQuery", "continuous_query", "load_queries", "template", "topology_of"]

Definition = Callable[..., Any]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class ContinuousQuery:
    """A query that runs until it is removed, on any host of the fleet.

    name: unique in the fleet, and the name of its stream.
    define: a function that takes a session, or a session and a checkpoint folder. It returns a
        stream writer, or a started query with that name and checkpoint.
    checkpoint: folder for offsets and state, which every host can reach; None means a folder of
        the fleet.
    near: queries that it exchanges rows with; the fleet prefers to place them on one host.
    demand: the resources that it uses, until they have been measured.
    """

    name: str
    define: Definition
    checkpoint: str | None = None
    near: tuple[str, ...] = ()
    demand: Resources = field(default_factory=lambda: Resources(0.25))

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            remedy = "use letters, digits, underscores, dots and dashes"
            raise InputError("query name", self.name, "a word", remedy)

    def start(self, session: Any, checkpoint: str) -> Any:
        """Start the streaming query; InputError if the function returns something else.

        session: a session of its host. checkpoint: the folder to resume from.
        """
        given = (session, checkpoint) if _takes_checkpoint(self.define) else (session,)
        made = self.define(*given)
        if hasattr(made, "queryName"):
            made = made.queryName(self.name).option("checkpointLocation", checkpoint).start()
        if not hasattr(made, "runId"):
            allowed = "a streaming query or a stream writer"
            remedy = "return frame.writeStream…; the fleet starts it"
            raise InputError(
                f"what query {self.name} returns", type(made).__name__, allowed, remedy
            )
        if made.name != self.name:
            made.stop()
            remedy = "call .queryName(…) with it, or return the writer and let the fleet start it"
            raise InputError(
                f"stream of query {self.name}", made.name, "the name of the query", remedy
            )
        return made


def _takes_checkpoint(define: Definition) -> bool:
    """Whether a function takes a second positional argument."""
    kinds = [p.kind for p in inspect.signature(define).parameters.values()]
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(kind in places for kind in kinds) > 1 or inspect.Parameter.VAR_POSITIONAL in kinds


@overload
def continuous_query(name: Definition, /) -> ContinuousQuery: ...


@overload
def continuous_query(
    name: str | None = None,
    *,
    checkpoint: str | None = None,
    near: Iterable[str] = (),
    cpu_cores: float = 0.25,
    memory_mb: float = 0.0,
) -> Callable[[Definition], ContinuousQuery]: ...


def continuous_query(
    name: str | Definition | None = None,
    *,
    checkpoint: str | None = None,
    near: Iterable[str] = (),
    cpu_cores: float = 0.25,
    memory_mb: float = 0.0,
) -> Callable[[Definition], ContinuousQuery] | ContinuousQuery:
    """Turn a function ``(session) -> writer`` or ``(session, checkpoint) -> writer`` into a query.

    name: by default the name of the function. checkpoint, near: as in `ContinuousQuery`.
    cpu_cores, memory_mb: the resources that it uses, until they have been measured.

    >>> @continuous_query
    ... def parse(session): ...
    >>> @continuous_query(near=["parse"])
    ... def enrich(session, checkpoint): ...
    >>> parse.name, enrich.name, enrich.near
    ('parse', 'enrich', ('parse',))
    """

    def made(define: Definition) -> ContinuousQuery:
        demand = Resources(cpu_cores, memory_mb)
        own = name if isinstance(name, str) else str(getattr(define, "__name__", ""))
        return ContinuousQuery(own, define, checkpoint, tuple(near), demand)

    return made(name) if callable(name) else made


def template(
    name: str,
    parameters: Iterable[Mapping[str, Any]],
    *,
    checkpoint: str | None = None,
    near: Iterable[str] = (),
    cpu_cores: float = 0.25,
    memory_mb: float = 0.0,
) -> Callable[[Definition], tuple[ContinuousQuery, ...]]:
    """Turn a function with parameters into many queries, one for each set of values.

    Args:
        name: Name of a query; ``{parameter}`` stands for the value of a parameter.
        parameters: The sets of values.
        checkpoint: As in `ContinuousQuery`, with ``{parameter}`` as in the name.
        near: As in `ContinuousQuery`, with ``{parameter}`` as in the name.
        cpu_cores: CPU demand of a query until it has been measured.
        memory_mb: Memory demand of a query until it has been measured.

    >>> @template("top-{n}", [{"n": 3}, {"n": 10}])
    ... def top(session, checkpoint, n): ...
    >>> [query.name for query in top]
    ['top-3', 'top-10']
    """

    def made(define: Definition) -> tuple[ContinuousQuery, ...]:
        return tuple(
            ContinuousQuery(
                name.format(**values),
                partial(define, **values),
                None if checkpoint is None else checkpoint.format(**values),
                tuple(other.format(**values) for other in near),
                Resources(cpu_cores, memory_mb),
            )
            for values in parameters
        )

    return made


def load_queries(path: str | Path) -> dict[str, ContinuousQuery]:
    """Load the queries that a Python file defines at its top level, by name."""
    file = Path(path)
    if not file.is_file():
        raise InputError("queries", str(path), "a Python file", "give the path of one")
    spec = importlib.util.spec_from_file_location(f"tidegate_queries_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise InputError("queries", str(path), "a Python file", "its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # it must not end the manager
        why = f"{type(error).__name__}: {error}"
        raise InputError("queries", str(path), "a Python file that runs", why) from error
    found: dict[str, ContinuousQuery] = {}
    for value in vars(module).values():
        many = value if isinstance(value, tuple | list) else (value,)
        for query in many:
            if not isinstance(query, ContinuousQuery):
                continue
            if found.setdefault(query.name, query) is not query:
                raise InputError("query name", query.name, "unique", "rename one of the two")
    if not found:
        remedy = "decorate a function with @continuous_query"
        raise InputError("queries", str(path), "a file with queries in it", remedy)
    return found


def topology_of(
    queries: Iterable[ContinuousQuery], loads: Mapping[str, Resources] | None = None
) -> Topology:
    """The queries as operators with one instance each; edges join neighbours.

    loads: measured loads by name, which replace the declared demands.
    """
    every = {query.name: query for query in queries}
    known = loads or {}
    return Topology(
        tuple(
            Operator(q.name, known.get(q.name, q.demand), max_instances=1) for q in every.values()
        ),
        edges=tuple(
            Edge(other, q.name) for q in every.values() for other in q.near if other in every
        ),
    )
