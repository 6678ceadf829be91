"""A small disk that can be full: a tmpfs, or a limit on the size of files where none can be had."""

from __future__ import annotations

import contextlib
import resource
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidegate.lifecycle import Closing


class Disk(Closing):
    """A small disk. folder: where it is, which must not exist. size_mb: its size in MB."""

    def __init__(self, folder: Path, size_mb: int = 2) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(folder)]
        self.mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0

    @contextlib.contextmanager
    def full(self, file: Path, writers: Sequence[int]) -> Iterator[None]:
        """No room while the block runs. file: what grows there. writers: processes that write."""
        filler = self.folder / "filler"
        if self.mounted:
            for size in (1 << 16, 1 << 10):
                with filler.open("ab", buffering=0) as more, contextlib.suppress(OSError):
                    while True:
                        more.write(bytes(size))
        else:
            limit = (file.stat().st_size, resource.RLIM_INFINITY)
            for pid in writers:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)
        try:
            yield
        finally:
            filler.unlink(missing_ok=True)
            for pid in writers if not self.mounted else ():
                unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)

    def fill(self, file: Path, writers: Sequence[int], full_s: float) -> None:
        """Leave no room for some seconds. file, writers: see `full`.

        They count from when the file does not grow any more: a disk is full in whole pages, and the
        last page of the file may take some lines.
        """
        with self.full(file, writers):
            size, since_s = file.stat().st_size, time.monotonic()
            while time.monotonic() - since_s < full_s:
                time.sleep(0.1)
                if file.stat().st_size > size:
                    size, since_s = file.stat().st_size, time.monotonic()

    def close(self) -> None:
        """Unmount it."""
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=False)
            self.mounted = False
