"""Locks between processes: one writer for each journal, one loop behind each control file.

Locks belong to an open file and end with its process, however that ends. Where the operating system
or the file system has no such locks, everybody gets one.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

from tidegate.lifecycle import Closing

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["WriterLock", "try_lock"]

ATTEMPTS = 10
"""Times that a lock file is opened until it is taken as it is."""


def try_lock(file: IO[Any], shared: bool = False) -> bool:
    """Lock an open file without waiting; return False if another process or object has the lock."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


class WriterLock(Closing):
    """The right to write to a file, held by a lock on ``FILE.lock`` while this object is open.

    The lock is on a separate file, since a journal that is rotated changes its name. Raises
    BlockingIOError if another process has it, another OSError if the lock file cannot be created.

    path: the file to be written to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + ".lock")
        for attempt in range(ATTEMPTS):
            file = self.path.open("ab")
            if not try_lock(file):
                file.close()
                raise BlockingIOError(errno.EWOULDBLOCK, "another process writes to it", str(path))
            # Its owner may have removed it between the two lines: lock the one that is there. Some
            # network file systems show another inode at each look: there the lock is good enough.
            if _is_at(file, self.path) or attempt == ATTEMPTS - 1:
                self._file = file
                _held.add(self)
                return
            file.close()

    def close(self) -> None:
        """Give up the lock and remove its file."""
        if not self._file.closed:
            # While it is locked, so that nobody can hold a lock on a file that is then removed.
            with suppress(OSError):
                self.path.unlink()
            self._file.close()


_held: WeakSet[WriterLock] = WeakSet()


def _let_go() -> None:
    """In a process that was forked: an orphan would hold the lock after the death of its parent."""
    for lock in _held:
        lock._file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def _is_at(file: IO[Any], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False
