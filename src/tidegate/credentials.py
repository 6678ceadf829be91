"""Passwords and tokens come from a file or the environment, never from a command line.

A command line is visible to every user of the machine and ends up in logs. No error shows the value
of a credential.
"""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path

from tidegate.errors import InputError

__all__ = ["secret_from"]

LONGEST = 65_536
"""More characters than this are no password but another file."""


def secret_from(file: str | PathLike[str] | None, variable: str, option: str) -> str | None:
    """The secret in a file, else that in an environment variable, else None.

    file: it may end with a newline, which is no part of the secret. variable: name of the
    environment variable. option: how the file was given, for errors.

    >>> os.environ["TIDEGATE_DOCTEST"] = "open sesame"
    >>> secret_from(None, "TIDEGATE_DOCTEST", "--token-file")
    'open sesame'
    >>> del os.environ["TIDEGATE_DOCTEST"]
    """
    if file is None or not os.fspath(file):
        found = os.environ.get(variable)
        return found or None  # an empty variable is the usual way to unset one
    try:
        with Path(file).open(encoding="utf-8") as opened:
            text = opened.read(LONGEST + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise InputError(option, str(file), "a readable file", why) from None
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret or "\n" in secret or len(text) > LONGEST:
        remedy = "write only the secret into it"
        raise InputError(option, str(file), "a file with one line", remedy)
    return secret
