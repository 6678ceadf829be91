"""A job that was submitted with ``tidegate submit``: its input, its journal and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.clusters import job
from tidegate.lifecycle import Closing
from tidegate.loop.backend import Outcome
from tidegate.loop.controls import Control, submit
from tidegate.loop.journal import Turn, read_journal
from tidegate.spark.local.processes import _watchdog

TIDEGATE = "import sys; from tidegate.cli import main; sys.argv[0] = 'tidegate'; main()"
LIMIT_S = 300.0
"""Nothing takes so long on an idle machine; it is there for one that is very busy."""
FILE_S = 0.5


class Feed(Closing):
    """Writes rows into a folder at a rate that can be changed at any time.

    folder: where the job reads. `per_s`: rows a second, at first none: rows that wait for the start
    of the job would be one long batch.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.per_s = 0.0
        self._end = threading.Event()
        folder.mkdir(parents=True)
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._end.wait(FILE_S):
            if self.per_s:
                number += 1
                new = self.folder / f".{number}"
                new.write_text("row\n" * round(self.per_s * FILE_S), encoding="ascii")
                new.rename(self.folder / f"{number}.txt")

    def close(self) -> None:
        """Stop writing."""
        self._end.set()
        self._thread.join()


class Command(Closing):
    """A command that runs in a folder, in its own session, with its output in a file.

    words: the command. folder: where it runs. name: of the file with its output, without ``.log``.
    env: its environment.
    """

    def __init__(
        self, words: Sequence[str], folder: Path, name: str, env: Mapping[str, str]
    ) -> None:
        self.folder = folder
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(env),
                cwd=folder,
                start_new_session=True,
            )
        _watchdog.send(f"+{self.process.pid}")  # it must not outlive a test run that is killed

    def output(self) -> str:
        """What it has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def says(self, text: str) -> bool:
        """Whether its output has a text."""
        return text in self.output()

    def until(self, what: str, true: Callable[[], object], limit_s: float = LIMIT_S) -> None:
        """Wait until something is true while the command runs."""
        end_s = time.monotonic() + limit_s
        while not true():
            code = self.process.poll()
            assert code is None, f"{self.log.stem} ended with code {code}: {self._tail()}"
            assert time.monotonic() < end_s, f"not in {limit_s:g} s: {what}: {self._tail()}"
            time.sleep(0.2)

    def close(self) -> None:
        """Kill it, and what it has started in its session, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        _watchdog.send(f"-{self.process.pid}")

    def _tail(self) -> str:
        return "\n".join(self.output().splitlines()[-30:])


class Submitted(Command):
    """A running job with its feed and journal in a folder.

    Args:
        folder: For all of it. The job gets it as its argument.
        words: Options for ``tidegate submit``.
        env: The environment.
        app: The application. Default: `job.py`.
        program: The command before the options. Default: ``tidegate submit`` with the journal.
    """

    def __init__(
        self,
        folder: Path,
        words: Sequence[str],
        env: Mapping[str, str],
        app: Sequence[str] = (str(Path(job.__file__)),),
        program: Sequence[str] = (),
    ) -> None:
        self.journal = folder / "tidegate.jsonl"
        self.feed = Feed(folder / "in")
        submit = (sys.executable, "-c", TIDEGATE, "submit", "--journal", str(self.journal))
        command = [*(program or submit), *words, *app, str(folder)]
        super().__init__(command, folder, "submit", env)

    @property
    def application(self) -> str:
        """The id of the application; wait for it."""
        made = self.folder / "application"
        self.until("the query runs", made.exists)
        return made.read_text(encoding="ascii")

    def turns(self) -> list[Turn]:
        """The complete turns of its journal."""
        if not self.journal.exists():
            return []
        return [turn for turn in read_journal(self.journal) if turn.snapshot is not None]

    def hosts(self, status: str = "running") -> int:
        """Executors with a status in the last turn's snapshot."""
        turns = self.turns()
        snapshot = turns[-1].snapshot if turns else None
        return 0 if snapshot is None else sum(h.status == status for h in snapshot.hosts)

    def addresses(self) -> set[str | None]:
        """Addresses of the executors in the last turn's snapshot, None for those that start."""
        turns = self.turns()
        snapshot = turns[-1].snapshot if turns else None
        return set() if snapshot is None else {host.address for host in snapshot.hosts}

    def notes(self) -> str:
        """The notes of the last turn."""
        outcome = self._outcome()
        return "" if outcome is None else "\n".join(outcome.notes)

    def _outcome(self) -> Outcome | None:
        turns = self.turns()
        return turns[-1].outcome if turns else None

    def errors(self) -> list[str]:
        """Turns that failed, in sentences."""
        return [turn.error for turn in read_journal(self.journal) if turn.error]

    def decide(self, policy: str, **parameters: Any) -> None:
        """Change its policy or the parameters of it, as a person does on the dashboard."""
        asked_s = time.time()
        submit(self.journal, Control("policy", policy, parameters, asked_s))

        def answers() -> list[Control]:
            controls = [control for turn in self.turns() for control in turn.controls]
            return [control for control in controls if control.asked_s == asked_s]

        self.until("the request is in the journal", answers)
        assert [control.refused for control in answers()] == [""]

    def end(self) -> int:
        """Let it end by itself; return its exit code."""
        self.feed.close()
        (self.folder / "stop").touch()
        return self.process.wait(LIMIT_S)

    def close(self) -> None:
        """Stop the feed, and kill the job if it still runs."""
        self.feed.close()
        super().close()
