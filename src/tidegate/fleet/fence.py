"""Fences: only the newest start of a query can use its checkpoint.

Every start of a query has a number, its epoch, and uses the checkpoint through a symbolic link that
belongs to this epoch::

    checkpoints/prices                  the checkpoint, as Spark writes it
    checkpoints/prices~fence/epoch-7    a file: this epoch is over
    checkpoints/prices~fence/epoch-8    a link to ../prices: this epoch may read and write
    checkpoints/prices~fence/epoch-8.lease   how long its host may go on without renewing it

An epoch ends when its link is replaced by a file, which is one atomic rename. From then on, every
access by the old path fails: a copy of the query that still runs can neither begin a batch, since
Spark writes the offsets first, nor commit one. No clock is involved, and there is no moment between
a check and the write that it protects, because the check is the lookup of the path.

A batch that has begun can still write to a sink outside of the checkpoint. The lease limits this: a
host with Tidegate's fence plugin renews it and stops the query if it cannot, and `LeaseWatch` waits
for that before the query starts elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.errors import BackendError

__all__ = ["DRIFT", "GRACE_S", "MOST_LEASE_S", "Fence", "LeaseWatch", "epoch_of"]

DRIFT = 0.01
"""Largest relative difference of the rates of two clocks: one second in a hundred."""
GRACE_S = 1.0
"""Seconds that a host may take to stop a query after its lease is over."""
MOST_LEASE_S = 86_400.0
"""Longest lease, in seconds; a file that grants a longer one is damaged."""
UNKNOWN_S = 30.0
"""Lease of a host that could not read its length, in seconds; the same in `QueryLeases.java`."""
_EPOCH = re.compile(r"epoch-([0-9]+)")
_LOCAL = re.compile(r"(?:file:(?://)?)?(/[^/].*)")


def epoch_of(checkpoint: str) -> int | None:
    """The epoch in the checkpoint path that a query's function receives; None without a fence.

    Later starts of a query have larger numbers, so a sink that remembers the largest number can
    refuse a copy that was replaced.

    >>> epoch_of("/fleet/checkpoints/prices~fence/epoch-8")
    8
    """
    found = _EPOCH.fullmatch(checkpoint.rpartition("/")[2])
    return int(found[1]) if found else None


class Fence:
    """The epochs of a checkpoint in a folder that the manager and all hosts share.

    checkpoint: the folder of the checkpoint. lease_s: seconds that a host may run the query without
    renewing its lease.
    """

    def __init__(self, checkpoint: Path, lease_s: float = 30.0) -> None:
        self.checkpoint = checkpoint
        self.lease_s = lease_s
        self.folder = checkpoint.with_name(f"{checkpoint.name}~fence")
        self._unused = self.folder / "unused"

    @classmethod
    def of(cls, checkpoint: str, lease_s: float = 30.0) -> Fence | None:
        """The fence of a checkpoint; None if it is not in a file system of this machine.

        A relative path has no fence either, since every server has a different current folder.

        >>> Fence.of("hdfs://name/checkpoints/prices") is None
        True
        """
        found = _LOCAL.fullmatch(checkpoint)
        return None if found is None else cls(Path(found[1]), lease_s)

    def latest(self) -> int:
        """The newest epoch, whether it is over or not; 0 if there was none."""
        with _explained(self.checkpoint):
            return max(self._epochs(), default=0)

    def claim(self) -> str:
        """Begin an epoch; return the path through which it uses the checkpoint.

        All earlier epochs are over when this returns. Of two callers at the same time, the one with
        the larger number wins, and the path of the other one is of no use.
        """
        with _explained(self.checkpoint):
            _make_folder(self.checkpoint)
            _make_folder(self.folder)
            number = self.latest() + 1
            while True:
                try:
                    self._path(number).symlink_to(Path("..") / self.checkpoint.name)
                    break
                except FileExistsError:  # another caller had the same idea
                    number = max(number, self.latest()) + 1
            for earlier in {number - 1, *self._open()}:
                if 0 < earlier < number:
                    self._end(earlier)
            lease = {"epoch": number, "lease_s": self.lease_s, "state": "granted", "renewals": 0}
            self._replace(json.dumps(lease), f"epoch-{number}.lease")
            self._unused.unlink(missing_ok=True)
        return str(self._path(number))

    def revoke(self) -> int:
        """End all epochs; return the newest one."""
        with _explained(self.checkpoint):
            number = self.latest()
            for epoch in self._open():
                self._end(epoch)
        return number

    def disuse(self) -> None:
        """Note that the query runs without a fence from now on, until the next `claim`."""
        with _explained(self.checkpoint):
            self.revoke()
            self._replace("", self._unused.name)

    @property
    def in_use(self) -> bool:
        """Whether the last start of the query used the fence."""
        with _explained(self.checkpoint):
            return self.latest() > 0 and not self._unused.exists()

    def holds(self, epoch: int) -> bool:
        """Whether an epoch is not over."""
        return self._path(epoch).is_symlink()

    def lease(self, epoch: int) -> str | None:
        """The lease of an epoch, as its host last wrote it; None if it cannot be read."""
        try:
            return (self.folder / f"epoch-{epoch}.lease").read_text("utf-8")
        except (OSError, ValueError):
            return None

    def probe(self) -> tuple[Path, str]:
        """Write a new text into a file; a host that reads the same text there shares the folder."""
        text = secrets.token_hex(16)
        with _explained(self.checkpoint):
            _make_folder(self.folder)
            self._replace(text, "probe")
        return self.folder / "probe", text

    # --- inside -------------------------------------------------------------------------------

    def _path(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch}"

    def _epochs(self) -> list[int]:
        try:
            names = [file.name for file in self.folder.iterdir()]
        except FileNotFoundError:
            return []
        return [int(found[1]) for found in map(_EPOCH.fullmatch, names) if found]

    def _open(self) -> list[int]:
        return [epoch for epoch in self._epochs() if self.holds(epoch)]

    def _end(self, epoch: int) -> None:
        # The file stays for ever: without it, a copy of this epoch that writes to its path again
        # would create a folder there, and go on with a checkpoint that nobody else sees.
        self._replace("over\n", f"epoch-{epoch}")

    def _replace(self, text: str, name: str) -> None:
        part = self.folder / f".{name}.{secrets.token_hex(4)}"
        try:
            with part.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.folder / name)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@dataclass
class LeaseWatch:
    """Decides when a host that does not answer no longer runs a query.

    Create it after the epoch was revoked. The lease is over when the host has reported that the
    query stopped, or when its time has passed since then. A host that renews its lease all the same
    does not know of the end yet, and the time begins again.

    fence: of the query. epoch: that was revoked. clock: seconds of a monotonic clock. No clock is
    compared with one of another machine; only their rates may differ by at most `DRIFT`.
    """

    fence: Fence
    epoch: int
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._seen = self.fence.lease(self.epoch)
        self._since_s = self.clock()
        # An earlier manager may have granted a longer one.
        granted_s = _lease(self._seen).get("lease_s")
        if not (isinstance(granted_s, int | float) and granted_s <= MOST_LEASE_S):
            granted_s = UNKNOWN_S
        self._length_s = max(self.fence.lease_s, granted_s)

    @property
    def left_s(self) -> float:
        """Seconds until the lease is over, if the host does not renew it."""
        wait_s = self._length_s * (1 + DRIFT) + GRACE_S
        return max(0.0, self._since_s + wait_s - self.clock())

    def over(self) -> bool:
        """Whether the lease is over."""
        text = self.fence.lease(self.epoch)
        if text != self._seen:
            self._seen, self._since_s = text, self.clock()
        return _lease(text).get("state") == "released" or self.left_s <= 0.0


def _lease(text: str | None) -> dict[str, Any]:
    """A lease as plain values; empty if it is damaged."""
    try:
        plain = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return plain if isinstance(plain, dict) else {}


def _make_folder(folder: Path) -> None:
    """Create a folder that the users who can write to its parent can write to, too.

    In a folder with the sticky bit, such as ``/tmp``, users do not share files: there the folder
    has the usual mode.
    """
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return
    with contextlib.suppress(OSError):
        mode = folder.parent.stat().st_mode
        if not mode & stat.S_ISVTX:
            folder.chmod(mode & 0o2777)


@contextlib.contextmanager
def _explained(checkpoint: Path) -> Iterator[None]:
    """Turn an error of the file system into one that names the checkpoint."""
    try:
        yield
    except OSError as error:
        remedy = "the manager must be able to write next to the checkpoint"
        why = error.strerror or str(error)
        raise BackendError(f"the fence of {checkpoint} failed ({why}): {remedy}") from error
