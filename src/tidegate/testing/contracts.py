"""The two statements that contract checks consist of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.errors import CheckFailed

__all__ = ["expect", "expect_error"]


def expect(holds: bool, rule: str, seen: object = None) -> None:
    """Raise CheckFailed with the rule unless it holds. seen: what was found in its place."""
    if not holds:
        raise CheckFailed(rule if seen is None else f"{rule}; found: {seen}")


@contextmanager
def expect_error(kind: type[Exception], rule: str, words: str = "") -> Iterator[None]:
    """Raise CheckFailed unless the body raises an error of this kind that contains the words."""
    try:
        yield
    except kind as error:
        expect(words in str(error), f"{rule}, with the words {words!r}", error)
        return
    raise CheckFailed(f"{rule}; found: no error")
