"""Trace every program that live tests of secrets start, and look for secrets in their words.

    python -m tests.cli.traced [TEST …]

`nobody_tells` looks at command lines now and then, and at what Python processes start. This shows
the rest, such as short programs that a JVM or a shell starts: ``strace`` writes down each call of
``execve`` with words and environment. A secret is the value of a variable with a name such as
``…_TOKEN`` in the environment of any of them, so those that Tidegate and Spark make themselves
count, too. It needs ``strace`` and some minutes, and is no part of ``make test``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

TESTS = ("tests/cli/test_secrets_live.py", "tests/cli/test_demo.py", "tests/apps/test_run.py")
"""Those that run commands with secrets in their environment."""
STRACE = ("strace", "-f", "--seccomp-bpf", "-v", "-s", "1000000")
CALLS = ("-e", "trace=execve,execveat,prctl")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD", re.IGNORECASE)
SHORTEST = 8
"""Shorter values are settings, not secrets."""
NAME_LENGTH = 15
"""Characters of the name that a process or thread can give itself."""


@dataclass
class Traced:
    """What a trace shows.

    programs: how often each program was started. secrets: variables by value. words: the words of
    each call. names: names that processes and threads gave themselves.
    """

    programs: Counter[str] = field(default_factory=Counter)
    secrets: dict[str, set[str]] = field(default_factory=dict)
    words: list[list[str]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def told(self) -> list[str]:
        """Where a secret is seen, without the secret."""
        found = []
        for secret, variables in self.secrets.items():
            who = ", ".join(sorted(variables))
            for words in self.words:
                found += [f"{who}: {words[0]}" for word in words if secret in word]
            found += [f"{who}: a name" for name in self.names if secret[:NAME_LENGTH] in name]
        return found


def _lists(line: str) -> Iterator[list[str]]:
    """The lists of strings in a line, in order: the words, then the environment."""
    at = line.find("[")
    while at >= 0:
        found, at = [], at + 1
        while at < len(line) and line[at] != "]":
            string = STRING.match(line, at)
            if string:
                found.append(string[1])
            at = string.end() if string else at + 1
        yield found
        at = line.find("[", at)


def read(lines: Iterable[str]) -> Traced:
    """Read the output of strace.

    >>> line = '7 execve("/bin/echo", ["echo", "hush-4711"], ["A_TOKEN=hush-4711", "HOME=/"]) = 0'
    >>> found = read([line, '7 prctl(PR_SET_NAME, "echo") = 0', "7 +++ exited with 0 +++"])
    >>> found.programs, found.told()
    (Counter({'echo': 1}), ['A_TOKEN: echo'])
    """
    found = Traced()
    for line in lines:
        if re.match(r"\d+ +execve(at)?\(", line):
            lists = list(_lists(line))
            words = lists[0] if lists else []
            found.words.append([*words, *STRING.findall(line.partition("[")[0])])
            if line.rstrip().endswith(("= 0", "<unfinished ...>")) and words:
                found.programs[words[0].rpartition("/")[2]] += 1
            for variable in lists[1] if len(lists) > 1 else []:
                name, _, value = variable.partition("=")
                if SECRET_NAME.search(name) and len(value) >= SHORTEST and "/" not in value:
                    found.secrets.setdefault(value, set()).add(name)
        elif "prctl(PR_SET_NAME" in line or "prctl(PR_SET_MM" in line:
            found.names.append(line)
    return found


def main() -> int:
    """Trace tests; return 1 if they fail, if a secret was seen, or if nothing was traced."""
    tests = sys.argv[1:] or list(TESTS)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace")
        python = [sys.executable, "-m", "pytest", "-m", "java", *tests]
        env = {k: v for k, v in os.environ.items() if not SECRET_NAME.search(k)}  # those of others
        command = [*STRACE, *CALLS, "-o", str(trace), *python]
        code = subprocess.run(command, env=env, check=False).returncode
        with trace.open(encoding="utf-8", errors="replace") as lines:
            found = read(lines)
    told = found.told()
    many = ", ".join(f"{count} {name}" for name, count in found.programs.most_common())
    print(f"{len(found.words)} calls of execve; started: {many}")
    for value, variables in found.secrets.items():
        print(f"a secret of {len(value)} characters: {', '.join(sorted(variables))}")
    print(f"{len(found.names)} names; seen in words or names: {told or 'none'}")
    return 1 if code or told or not found.secrets else 0


if __name__ == "__main__":
    sys.exit(main())
