"""Files that commands write: checked before the work begins, and whole or not there at all.

A quarter of an hour of work must not be lost because its result goes to a folder, and a reader must
never see half a file. A text is written to a hidden file next to the target, which then takes its
name.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from os import PathLike
from pathlib import Path
from secrets import token_hex

from tidegate.errors import InputError

__all__ = ["check_output", "write_output"]

ROOM_BYTES = 4096
"""There must be room for as many bytes before the work begins."""


def check_output(
    path: str | PathLike[str], option: str, inputs: Iterable[Path | None] = ()
) -> Path:
    """Raise InputError if a file cannot be written, or is an input; return it. Its folder is made.

    Call it before the work whose result goes there. option: how the file was given, for errors.
    inputs: the files that the command reads; None: one that was not given.
    """
    target = Path(path)
    try:
        if _is_special(target):
            _try_device(target)
        else:
            _refuse_inputs(target, option, inputs)
            _make_folder(target)
            hidden = _hidden(target)
            try:
                with hidden.open("xb") as file:  # an empty file has room on a full disk, too
                    file.write(bytes(ROOM_BYTES))
            finally:
                hidden.unlink(missing_ok=True)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise _unwritable(target, option, error) from None
    return target


def write_output(path: str | PathLike[str], text: str, option: str) -> Path:
    """Write a text to a file as a whole, in UTF-8; return the file.

    An existing file keeps its permissions. Raises InputError, and leaves what was there before, if
    it cannot be written. option: how the file was given, for errors.
    """
    target = Path(path)
    try:
        if _is_special(target):
            with target.open("w", encoding="utf-8") as special:
                special.write(text)
            return target
        _make_folder(target)
        _replace(target.resolve(), text)
    except (OSError, ValueError) as error:
        raise _unwritable(target, option, error) from None
    return target


def _replace(target: Path, text: str) -> None:
    hidden = _hidden(target)
    try:
        with hidden.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            hidden.chmod(stat.S_IMODE(target.stat().st_mode))
        hidden.replace(target)
    except BaseException:
        with suppress(OSError):
            hidden.unlink()
        raise


def _is_special(target: Path) -> bool:
    """Whether it is a device or a pipe, such as /dev/stdout, which cannot be replaced."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(21, "it is a folder")
    return not stat.S_ISREG(mode)


def _refuse_inputs(target: Path, option: str, inputs: Iterable[Path | None]) -> None:
    """Raise InputError if the target is one of the inputs, also by another name or a link."""
    for one in inputs:
        with suppress(FileNotFoundError):
            if one is not None and target.samefile(one):
                remedy = "the command would overwrite what it reads"
                raise InputError(option, str(target), "a file other than the input", remedy)


def _try_device(target: Path) -> None:
    """Write nothing to a device, which a full one refuses; a pipe's reader would see its end."""
    if stat.S_ISCHR(target.stat().st_mode):
        device = os.open(target, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            os.write(device, b"")
        finally:
            os.close(device)


def _make_folder(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)


def _hidden(target: Path) -> Path:
    whole = target.resolve()
    name = os.fsencode(whole.name)[:100].decode(errors="ignore")  # names have 255 bytes at most
    return whole.with_name(f".{name}.{token_hex(4)}")


def _unwritable(target: Path, option: str, error: OSError | ValueError) -> InputError:
    why = getattr(error, "strerror", None) or str(error)
    return InputError(option, str(target), "a file that can be written", why)
