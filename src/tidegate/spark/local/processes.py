"""Child processes: each leads a separate process group, and none outlives its owner."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidegate.errors import BackendError

__all__ = [
    "JVM_OVERHEAD_MB",
    "LOOPBACK",
    "Process",
    "check_host_limit",
    "check_memory",
    "java_program",
    "memory_available_mb",
    "run_to_end",
    "spark_environment",
    "spark_home",
]

LOOPBACK = "127.0.0.1"
JVM_OVERHEAD_MB = 350
"""Measured memory of a host's processes outside the executor's heap, in MB."""

_alive: weakref.WeakSet[Process] = weakref.WeakSet()


class Process:
    """A child process with its output in a file.

    It leads a separate process group, so that Ctrl-C in the terminal reaches only the owner, which
    then stops its children in order. If the owner is killed, a watchdog kills the child.

    command, env: as for `subprocess`; log: the file for standard output and standard error.
    """

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(env),
                start_new_session=True,
            )
        self.pid = self._popen.pid
        _alive.add(self)
        _watchdog.send(f"+{self.pid}")

    @property
    def running(self) -> bool:
        """Whether it is still running."""
        return self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it is running."""
        return self._popen.poll()

    def wait_for(self, pattern: str, timeout_s: float) -> re.Match[str]:
        """Wait for a pattern in its output and return the first match.

        timeout_s: in seconds. Raises BackendError when it expires or the process ends before.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            ended = not self.running
            text = self.log.read_text(encoding="utf-8", errors="replace")
            found = re.search(pattern, text)
            if found:
                return found
            if ended or time.monotonic() > end_s:
                why = "it ended" if ended else f"timeout of {timeout_s:g} s"
                last = text.strip().splitlines()[-1:] or ["none"]
                raise BackendError(f"{self.log.stem} did not start: {why}; last output: {last[0]}")
            time.sleep(0.05)

    def stop(self, timeout_s: float = 10.0) -> None:
        """Terminate its process group, and kill what is left after `timeout_s` seconds."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """Kill its process group at once."""
        self._signal(signal.SIGKILL)
        self._popen.wait()
        if self in _alive:
            _alive.discard(self)
            _watchdog.send(f"-{self.pid}")

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            os.killpg(self.pid, number)


_WATCHDOG = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""
"""Reads which process groups run. When its input ends, the owner is gone and it kills them.

It is in Python, because shells differ in how their ``kill`` treats a process group.
"""


class _Watchdog:
    """Kills the child processes if this process is killed itself (kill -9, for example)."""

    def __init__(self) -> None:
        self._popen: subprocess.Popen[str] | None = None

    def send(self, line: str) -> None:
        """Send ``+pid`` for a group that runs, and ``-pid`` for one that has ended."""
        if self._popen is None:
            self._popen = subprocess.Popen(
                [sys.executable, "-ISc", _WATCHDOG],
                stdin=subprocess.PIPE,
                start_new_session=True,
                text=True,
            )
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.write(line + "\n")
            self._popen.stdin.flush()


_watchdog = _Watchdog()


@atexit.register
def _end_all() -> None:
    for process in list(_alive):
        process.kill()


def java_program() -> str:
    """The Java program: that of ``JAVA_HOME``, else the first on the path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def run_to_end(command: Sequence[str], timeout_s: float) -> tuple[bool, list[str]]:
    """Run a short program; return whether it succeeded, and the lines of its output."""
    try:
        done = subprocess.run(
            list(command), capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, [str(error)]
    return done.returncode == 0, (done.stdout + done.stderr).strip().splitlines() or ["no output"]


def spark_home() -> Path:
    """The folder of Spark in the installed `pyspark` package."""
    try:
        import pyspark
    except ImportError:
        remedy = "install it with: pip install 'tidegate[spark]'"
        raise BackendError(f"PySpark is not installed: {remedy}") from None
    return Path(pyspark.__file__).parent


def memory_available_mb() -> float | None:
    """Memory available to new processes in MB, None where the system does not report it."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"MemAvailable:\s+(\d+) kB", text)
    return int(found.group(1)) / 1024 if found else None


def check_host_limit(name: str, running: int, max_hosts: int | None) -> None:
    """Raise BackendError when one more host would exceed the limit.

    name: the new host; running: hosts that run now; max_hosts: None for no limit.
    """
    if max_hosts is not None and running >= max_hosts:
        raise BackendError(
            f"{name} is refused: {running} hosts are running and max_hosts is {max_hosts}; "
            "raise max_hosts, or release a host first"
        )


def check_memory(name: str, heap_mb: float) -> None:
    """Raise BackendError when this machine has too little free memory for another host."""
    needed, free = heap_mb + JVM_OVERHEAD_MB, memory_available_mb()
    if free is not None and free < needed:
        raise BackendError(
            f"{name} is refused: a host needs {needed:.0f} MB and this machine has {free:.0f} MB "
            "free; stop another process, or reduce memory_mb"
        )


def spark_environment(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a Spark process that listens on loopback only.

    folder: for scratch files; more: further variables.
    """
    return {
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": LOOPBACK,  # web pages listen on this address too
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        **more,
    }
