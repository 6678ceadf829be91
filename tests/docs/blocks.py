"""Code blocks of Markdown pages, run as a reader would: in order, each page in a folder of its own.

::

    ```python                 runs (as a doctest where it has prompts)
    ```python title="app.py"  is saved under that name, for the commands after it; so is yaml
    ```console                `$ command` lines run; output below them is compared, `…` is anything
    ```yaml  ```json          must be readable

A comment before a block says what else is true of it: ``<!-- not run: why -->`` for what no test
can run, ``<!-- live -->`` for what needs a Spark cluster.
"""

from __future__ import annotations

import contextlib
import doctest
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"(?:^<!-- (?P<note>(?:not run|live)[^\n]*?) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w+)(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
UNRUN = ("text", "toml", "ini", "javascript", "promql", "dockerfile")
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
LIMIT_S = 300


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file it is to be saved as, and the comment before it."""

    language: str
    title: str | None
    note: str
    body: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        indent = len(found["indent"])
        body = "".join(line[indent:] for line in found["body"].splitlines(keepends=True))
        title = re.search(r'title="([^"]+)"', found["info"])
        line = text[: found.start("body")].count("\n") + 1
        name = title.group(1) if title else None
        yield Block(found["language"], name, found["note"] or "", body, line)


class Reader:
    """Somebody who follows a page to the letter. folder: where; live: with a Spark cluster."""

    def __init__(self, page: Path, folder: Path, live: bool = False) -> None:
        self.page, self.folder, self.live = page, folder, live
        self.names: dict[str, Any] = {"__name__": "__main__"}
        (folder / "examples").symlink_to(ROOT / "examples")

    def follow(self) -> int:
        """Do all that the page says; the number of blocks that ran."""
        return sum(self._do(block) for block in blocks(self.page))

    def _do(self, block: Block) -> bool:
        where = f"{self.page.name}:{block.line}"
        if block.note.startswith("not run"):
            assert re.fullmatch(r"not run: .{5,}", block.note), f"{where}: say why it is not run"
            return False
        if block.language in UNRUN or (block.note == "live" and not self.live):
            return False
        if block.title:
            self._save(block.title, block.body, where)
        elif block.language == "python":
            with contextlib.chdir(self.folder):
                self._python(block, where)
        elif block.language == "console":
            for command, expected in commands(block.body):
                self._command(command, expected, where)
        elif block.language in ("yaml", "json"):
            (yaml.safe_load if block.language == "yaml" else json.loads)(block.body)
        else:
            raise AssertionError(f"{where}: nobody knows how to run {block.language!r}")
        return True

    def _save(self, title: str, body: str, where: str) -> None:
        if title.endswith(".py"):
            compile(body, f"{where} {title}", "exec")
        (self.folder / title).write_text(body, encoding="utf-8")

    def _python(self, block: Block, where: str) -> None:
        if ">>>" not in block.body:
            exec(compile(block.body, where, "exec"), self.names)
            return
        test = doctest.DocTestParser().get_doctest(
            block.body, self.names, where, str(self.page), block.line
        )
        said: list[str] = []
        doctest.DocTestRunner(verbose=False, optionflags=OPTIONS).run(
            test, out=said.append, clear_globs=False
        )
        self.names = test.globs
        assert not said, "".join(said)

    def _command(self, command: str, expected: str, where: str) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"}
        done = subprocess.run(
            command, shell=True, cwd=self.folder, env=env, capture_output=True, text=True,
            timeout=LIMIT_S, check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
        wrong = expected.startswith("tidegate: ")  # the page shows what a mistake looks like
        assert done.returncode == (2 if wrong else 0), f"{where}: $ {command}\n{said}"
        if expected:
            wanted, got = expected.replace("…", "..."), said.replace("…", "...")
            same = doctest.OutputChecker().check_output(wanted, got, OPTIONS)
            assert same, f"{where}: $ {command}\nexpected:\n{expected}\ngot:\n{said}"


def commands(body: str) -> Iterator[tuple[str, str]]:
    r"""Commands of a console block with the output that is shown.

    >>> list(commands("$ ls \\\n  -a\nfile\n$ pwd  # where\n"))
    [('ls \\\n  -a', 'file\n'), ('pwd  # where', '')]
    """
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        found = re.match(r"((?:[^\n]*\\\n)*[^\n]*)\n?(.*)", part, re.DOTALL)
        assert found is not None
        yield found.group(1), found.group(2)


if __name__ == "__main__":  # ``python -m tests.docs.blocks PAGE…``: follow pages, live blocks too
    from tempfile import TemporaryDirectory

    for name in sys.argv[1:]:
        with TemporaryDirectory() as folder:
            ran = Reader(ROOT / name, Path(folder), live=True).follow()
        print(f"{name}: {ran} blocks ran")
