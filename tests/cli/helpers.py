"""Run commands, in this process or in another one."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from tidegate.cli import main


class Done(NamedTuple):
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


def tidegate(*words: str | Path) -> Done:
    """Run the command in this process, which is much faster than starting one."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    argv = ["tidegate", *map(str, words)]
    with mock.patch.object(sys, "argv", argv), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Done(code, out.getvalue(), err.getvalue())


COMMAND = "import sys; sys.argv[0] = 'tidegate'; from tidegate.cli import main; main()"


def still_running(mark: str) -> list[str]:
    """Processes that have inherited a variable with this word in it, after some seconds' grace."""
    end_s = time.monotonic() + 10
    while True:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended meanwhile, or is not ours
                if mark.encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_text().replace("\0", " "))
        if not found or time.monotonic() > end_s:
            return found
        time.sleep(0.2)
