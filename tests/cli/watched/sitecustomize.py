"""Notes the words of every program that a Python process starts, however short it lives.

A process that has this folder in its ``PYTHONPATH`` imports this file before anything else. The
variable `NOTES` names the folder for the notes; each process writes a file of its own there.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

NOTES = "TIDEGATE_TESTS_STARTED"


def note(event: str, arguments: tuple[Any, ...]) -> None:
    """Write down the words of a program that is about to start, without its environment."""
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn"):
        words = arguments[:2]  # the program and its words; the environment follows
    elif event == "os.spawn":
        words = arguments[1:3]
    elif event == "os.system":
        words = arguments
    else:
        return
    notes = Path(os.environ[NOTES], str(os.getpid()))
    # The test may have ended; the program must start all the same.
    with suppress(FileNotFoundError), notes.open("a", encoding="utf-8") as file:
        file.write(json.dumps(words, default=str) + "\n")


if NOTES in os.environ:
    sys.addaudithook(note)
