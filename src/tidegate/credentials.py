"""Passwords and tokens come from a file or the environment, never from a command line.

A command line is visible to every user of the machine and ends up in logs. So is a file that others
may read, which is refused. No error shows the value of a credential.
"""

from __future__ import annotations

import os
import secrets
import stat
from os import PathLike
from pathlib import Path

from tidegate.errors import InputError

__all__ = ["kept_secret", "secret_from"]

LONGEST = 65_536
"""More characters than this are no password but another file."""
OTHERS = stat.S_IRWXO | stat.S_IWGRP
"""Rights to a file with a secret that nobody may have. In a pod, its group may have to read it."""


def secret_from(file: str | PathLike[str] | None, variable: str, option: str) -> str | None:
    """The secret in a file, else that in an environment variable, else None.

    file: only its owner, and at most its group, may read it. It may end with a newline, which is no
    part of the secret. variable: name of the environment variable. option: how the file was given,
    for errors.

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
            mode = os.fstat(opened.fileno()).st_mode
            text = opened.read(LONGEST + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise InputError(option, str(file), "a readable file", why) from None
    if stat.S_ISREG(mode) and mode & OTHERS:
        allowed, remedy = "a file that other users cannot read", f"run chmod 600 {file}"
        raise InputError(option, str(file), allowed, remedy)
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret or "\n" in secret or len(text) > LONGEST:
        remedy = "write only the secret into it"
        raise InputError(option, str(file), "a file with one line", remedy)
    return secret


def kept_secret(file: Path, option: str) -> tuple[str, bool]:
    """The secret in a file that only its owner can read, and whether it was made just now.

    Where there is no file, one is made with a random secret. Raises InputError if it cannot be made
    or read. option: what the secret is for, in errors.
    """
    made = secrets.token_urlsafe(24)
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _found(file, option), False
    except OSError as error:
        why = error.strerror or "it cannot be made"
        raise InputError(option, str(file), "a file that can be made", why) from None
    try:
        with os.fdopen(opened, "w") as new:
            new.write(made + "\n")
    except BaseException as error:
        file.unlink(missing_ok=True)
        if isinstance(error, OSError):  # a full disk
            why = error.strerror or "it cannot be written"
            raise InputError(option, str(file), "a file that can be written", why) from None
        raise
    return made, True


def _found(file: Path, option: str) -> str:
    """The secret in a file that is there; an empty one was left by a process that died."""
    found = None
    if not file.is_file() or file.stat().st_size:
        found = secret_from(file, "", option)
    if found is None:
        remedy = "remove it, and a new one is made"
        raise InputError(option, str(file), "a file with one line", remedy)
    return found
