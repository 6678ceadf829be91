"""Convert values of the model to JSON and back without loss.

The values are plain frozen dataclasses. Pydantic reads their annotations, so no second description
of their form is needed. Unknown keys, wrong types, NaN and infinities are refused, with the path to
the value; `from_newer_json` passes over unknown keys. Pydantic is imported on first use, so that
`import tidegate` is instant.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tidegate.errors import InputError
from tidegate.values import Value

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

__all__ = [
    "Sorted",
    "Value",
    "from_json",
    "from_newer_json",
    "from_newer_plain",
    "from_plain",
    "to_json",
    "to_plain",
]

UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")

T = TypeVar("T")


class Sorted:
    """Marks the annotation of a set whose members are sorted in JSON."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        schema = handler(source)
        schema["serialization"] = core_schema.plain_serializer_function_ser_schema(sorted)
        return schema


_adapters: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _adapters:
        from pydantic import TypeAdapter

        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def to_json(value: Any, defaults: bool = True) -> str:
    """One line of JSON.

    defaults: also write fields that have their default value; a reader does not need them.

    >>> from tidegate.model.topology import Edge
    >>> to_json(Edge("a", "b"))
    '{"origin":"a","target":"b","ratio":1.0,"counted":false}'
    >>> to_json(Edge("a", "b"), defaults=False)
    '{"origin":"a","target":"b"}'
    """
    return _adapter(type(value)).dump_json(value, exclude_defaults=not defaults).decode()


def from_json(kind: type[T], text: str | bytes) -> T:
    """The value of `kind` that `to_json` wrote.

    >>> from tidegate.model.topology import Edge
    >>> from_json(Edge, '{"origin":"a","target":"b","ratio":"much"}')
    Traceback (most recent call last):
    tidegate.errors.InputError: Edge.ratio is 'much'; it must be a valid number: unable to parse
    string as a number
    """
    from pydantic import ValidationError

    try:
        return cast(T, _adapter(kind).validate_json(text))
    except ValidationError as error:
        raise _input_error(kind, error) from None


def from_newer_json(kind: type[T], text: str | bytes) -> tuple[T, tuple[str, ...]]:
    """The value of `kind` that this or a newer version wrote, and the unknown keys passed over.

    >>> from tidegate.model.topology import Edge
    >>> from_newer_json(Edge, '{"origin":"a","target":"b","colour":"red"}')
    (Edge(origin='a', target='b', ratio=1.0, counted=False), ('colour',))
    """
    from pydantic import ValidationError

    try:
        return cast(T, _adapter(kind).validate_json(text)), ()
    except ValidationError as error:
        return _without_unknown(kind, error, lambda: json.loads(text))


def from_newer_plain(kind: type[T], plain: Any) -> tuple[T, tuple[str, ...]]:
    """The same from plain values, which may be changed."""
    from pydantic import ValidationError

    try:
        return cast(T, _adapter(kind).validate_python(plain)), ()
    except ValidationError as error:
        return _without_unknown(kind, error, lambda: plain)


def _without_unknown(
    kind: type[T], error: ValidationError, plain: Callable[[], Any]
) -> tuple[T, tuple[str, ...]]:
    unknown = [one["loc"] for one in error.errors() if one["type"] in UNKNOWN_KEY]
    if not unknown:
        raise _input_error(kind, error) from None
    try:
        known = _without(plain(), unknown)
    except (LookupError, TypeError, ValueError, RecursionError):
        raise _input_error(kind, error) from None
    return from_plain(kind, known), tuple(sorted({_named(path) for path in unknown}))


def to_plain(value: Any, defaults: bool = True) -> Any:
    """Dictionaries, lists, strings and numbers, ready for YAML or a larger JSON document.

    defaults: also include fields that have their default value.
    """
    return _adapter(type(value)).dump_python(value, mode="json", exclude_defaults=not defaults)


def from_plain(kind: type[T], plain: Any) -> T:
    """The value of `kind` from the result of `to_plain`."""
    from pydantic import ValidationError

    try:
        return cast(T, _adapter(kind).validate_python(plain))
    except ValidationError as error:
        raise _input_error(kind, error) from None


def _without(plain: Any, paths: Iterable[tuple[int | str, ...]]) -> Any:
    for path in paths:
        *outer, key = path
        inside = plain
        for part in outer:
            inside = inside[part]
        del inside[key]
    return plain


def _named(path: tuple[int | str, ...]) -> str:
    """A path without the positions in lists: the same key of every host is one key."""
    return ".".join(part for part in path if isinstance(part, str))


def _input_error(kind: type, error: ValidationError) -> InputError:
    """The first error of Pydantic, as one sentence."""
    first = error.errors()[0]
    context = first.get("ctx", {}).get("error")
    if isinstance(context, InputError):  # raised by a value's own checks
        return context
    path = ".".join(str(part) for part in first["loc"] if not str(part).startswith("function-"))
    key = f"{kind.__name__}.{path}" if path else kind.__name__
    if first["type"] in UNKNOWN_KEY:
        return InputError(key, first["input"], "left out", "no such key is known")
    if first["type"] in ("missing", "missing_argument"):
        return InputError(key, None, "given", "the key is missing")
    if first["type"] == "json_invalid":
        return InputError(key, "…", "valid JSON", str(first["msg"]))
    message = str(first["msg"])
    for start in ("Input should be ", "Value error, "):
        message = message.removeprefix(start)
    allowed, _, remedy = message.partition(", ")
    return InputError(key, first["input"], allowed, remedy)
