"""Mutation testing: change one place of the code, and see whether a test fails.

The packages in which a mistake loses data, money or control are mutated: the loop, the journal, the
guards, moves, security and billing. A mutant is one small change, such as ``<`` in place of ``<=``,
a statement that is left out, or a condition that is negated. Texts, log messages below warnings and
named constants, whose values are a choice, are left alone.

    python scripts/mutants.py                       # a sample of 200; also: make mutants
    python scripts/mutants.py --sample 0            # all
    python scripts/mutants.py --only loop/journal.py --seed 2
    python scripts/mutants.py --survivors           # those that lived, again

A first run of the mirrored tests, with a trace, finds which tests execute which line, and a mutant
is tried with these tests only, the fastest first. The changed file is in a copy of ``src``; the
tests run in a forked process. Everything is kept in ``out/mutants``: a run that was interrupted
continues, and a mutant is not tried twice unless its file has changed.

A survivor that no test can kill, because the program behaves the same, goes to
``scripts/mutants.toml`` with the reason, and no longer counts.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import hashlib
import importlib
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
GROUPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "loop": (
        ("loop/controller.py", "loop/controls.py", "loop/stack.py", "loop/replay.py"),
        (
            "loop/test_controller.py",
            "loop/test_controls.py",
            "loop/test_stack.py",
            "loop/test_journal.py",
        ),
    ),
    "journal": (
        (
            "loop/journal.py",
            "loop/lines.py",
            "loop/changes.py",
            "loop/tail.py",
            "loop/lock.py",
            "loop/records.py",
        ),
        (
            "loop/test_journal.py",
            "loop/test_changes.py",
            "loop/test_records.py",
            "loop/test_rotation.py",
        ),
    ),
    "guards": (("guards",), ("guards", "loop/test_stack.py")),
    "moves": (("fleet/moves.py", "fleet/holds.py", "fleet/fence.py"), ("fleet",)),
    "security": (
        ("dashboard/security.py", "dashboard/limits.py", "credentials.py", "listening.py"),
        ("dashboard", "test_credentials.py", "test_listening.py"),
    ),
    "billing": (("loop/billing.py", "model/leases.py"), ("loop/test_billing.py", "model")),
}
"""What is mutated, in src/tidegate, and the tests that may notice it, in tests."""
MARKERS = "not (java or browser or kubernetes or agent or trust or yarn)"
PRELOADED = ("numpy", "pydantic", "hypothesis", "httpx", "fastapi", "uvicorn", "typer", "yaml")
"""What every test process needs, imported once. Nothing of Tidegate is among it."""
SLOWEST = 5.0
"""A mutant may take this factor of the time of its tests, and a minute; then it does not end."""
LEAST = 90.0
"""Share of the mutants that must be killed, in percent."""

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    file: in src/tidegate. line: its first line. start, end: what is replaced, in characters. old,
    new: the code before and after. at_import: whether it runs when the file is imported, and not in
    a function.
    """

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str
    at_import: bool = False

    def key(self, source: str) -> str:
        """A name that changes with the file."""
        text = f"{self.file}\0{self.start}\0{self.end}\0{self.new}\0{source}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def describe(self) -> str:
        """Where and what, in a line."""
        return f"{self.file}:{self.line}  {_short(self.old)}  →  {_short(self.new)}"

    def applied(self, source: str) -> str:
        """The source with the change."""
        return source[: self.start] + self.new + source[self.end :]


def _short(code: str) -> str:
    text = " ".join(code.split())
    return text if len(text) <= 80 else text[:79] + "…"


# --- making mutants -------------------------------------------------------------------------------


def mutants_of(source: str, file: str) -> list[Mutant]:
    """All mutants of a source text, in the order of the text. file: its name in the mutants."""
    tree = ast.parse(source)
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    lines = source.splitlines()

    def position(line: int, column: int) -> int:
        # Columns count bytes.
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    found: dict[tuple[int, int, str], Mutant] = {}
    for node, new, at_import in _changes(tree):
        start = position(node.lineno, node.col_offset)
        end = position(node.end_lineno or node.lineno, node.end_col_offset or 0)
        old = source[start:end]
        if old != new:
            found[start, end, new] = Mutant(file, node.lineno, start, end, old, new, at_import)
    return sorted(found.values(), key=lambda mutant: (mutant.start, -mutant.end, mutant.new))


def _changes(tree: ast.AST) -> Iterator[tuple[Any, str, bool]]:
    """Nodes, the code to replace each with, and whether it runs at import."""
    pending: list[tuple[ast.AST, bool]] = [(tree, True)]
    while pending:
        node, at_import = pending.pop()
        yield from ((where, new, at_import) for where, new in _of_node(node))
        if isinstance(node, ast.JoinedStr):
            continue  # its parts have no position in the file in Python 3.11
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for name, value in ast.iter_fields(node):
            if name in ("decorator_list", "annotation", "returns"):
                continue
            later = function and name == "body"
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _is_no_code(child):
                    pending.append((child, at_import and not later))


def _is_no_code(node: ast.AST) -> bool:
    """Whether a node is the list of public names, a constant or a message nobody relies on."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        return name in ("__all__", "log") or name.isupper()
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) in ("log.debug", "log.info")
    return isinstance(node, ast.Import | ast.ImportFrom)


def _of_node(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, ast.Compare):
        for n, operator in enumerate(node.ops):
            swapped = SWAPS[type(operator)]()
            ops = [*node.ops[:n], swapped, *node.ops[n + 1 :]]
            yield node, _code(ast.Compare(node.left, ops, node.comparators))  # type: ignore[arg-type]
    elif isinstance(node, ast.BoolOp):
        yield node, _code(ast.BoolOp(SWAPS[type(node.op)](), node.values))  # type: ignore[arg-type]
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        swapped = SWAPS[type(node.op)]()
        yield node, _code(ast.BinOp(node.left, swapped, node.right))  # type: ignore[arg-type]
    elif isinstance(node, ast.AugAssign) and type(node.op) in SWAPS:
        swapped = SWAPS[type(node.op)]()
        yield node, _code(ast.AugAssign(node.target, swapped, node.value))  # type: ignore[arg-type]
        yield node, "pass"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, _code(node.operand)
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        if not isinstance(node.test, ast.Compare | ast.UnaryOp):  # those have mutants already
            yield node.test, f"(not {ast.unparse(node.test)})"
    elif isinstance(node, ast.Constant):
        yield from ((node, text) for text in _of_constant(node.value))
    elif isinstance(node, ast.Return):
        if node.value is not None and ast.unparse(node.value) != "None":
            yield node, "return None"
    elif isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Call):
            yield node, "pass"
    elif isinstance(node, ast.Assign):
        if all(isinstance(target, ast.Attribute) for target in node.targets):
            yield node, "pass"
    elif isinstance(node, ast.Raise):
        yield node, "pass"
    elif isinstance(node, ast.Break | ast.Continue):
        yield node, "continue" if isinstance(node, ast.Break) else "break"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMES:
        yield node.func, NAMES[node.func.id]


def _of_constant(value: object) -> Iterator[str]:
    if isinstance(value, bool):
        yield str(not value)
    elif isinstance(value, int):
        yield str(value + 1)
    elif isinstance(value, float):
        yield repr(2 * value + 1)


def _code(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if isinstance(node, ast.stmt) else f"({text})"


# --- which tests execute which line ---------------------------------------------------------------


@dataclass
class Coverage:
    """What a run of tests executed.

    lines: tests by file and line. seconds: of each test. failed: tests that fail as it is.
    """

    lines: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that execute a mutant, the fastest first.

        A line that runs at import has all tests of the file.
        """
        of_file = self.lines.get(mutant.file, {})
        last = mutant.line + mutant.old.count("\n")
        lines = [str(line) for line in range(mutant.line, last + 1)]
        if mutant.at_import:
            lines = list(of_file)
        names = {test for line in lines for test in of_file.get(line, ())}
        return sorted(names - set(self.failed), key=lambda test: (self.seconds[test], test))


class Tracer:
    """A pytest plugin that notes which lines of the mutated files each test executes."""

    def __init__(self, folder: Path, files: list[str]) -> None:
        self.coverage = Coverage()
        self._names = {str(folder / file): file for file in files}
        self._seen: set[tuple[str, int]] = set()
        self._known: dict[CodeType, bool] = {}

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        wanted = self._known.get(code)
        if wanted is None:
            wanted = self._known[code] = code.co_filename in self._names
        if not wanted:
            return None
        self._seen.add((code.co_filename, frame.f_lineno))
        return self._line

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        self._seen.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Trace one test, with its fixtures."""
        self._seen = set()
        began_s = time.monotonic()
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self.coverage.seconds[item.nodeid] = time.monotonic() - began_s
            for path, line in self._seen:
                lines = self.coverage.lines.setdefault(self._names[path], {})
                lines.setdefault(str(line), []).append(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the tests that fail without any mutant."""
        if report.failed:
            self.coverage.failed.append(report.nodeid)


class Chosen:
    """A pytest plugin that runs the chosen tests only, in their order."""

    def __init__(self, tests: list[str]) -> None:
        self._order = {test: n for n, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the others out."""
        kept = [item for item in items if item.nodeid in self._order]
        items[:] = sorted(kept, key=lambda item: self._order[item.nodeid])


# --- running --------------------------------------------------------------------------------------


class Laboratory:
    """A copy of the code in which mutants are tried.

    root: the project. groups: as `GROUPS`. folder: where everything is kept.
    """

    def __init__(self, root: Path, groups: dict[str, Any], folder: Path) -> None:
        self.root, self.groups, self.folder = root, groups, folder
        self.source = folder / "src"
        self._coverage: dict[str, Coverage] = {}
        self.package = self.source / "tidegate"
        shutil.rmtree(self.source, ignore_errors=True)
        shutil.copytree(
            root / "src", self.source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
        compileall.compile_dir(str(self.package), quiet=1)
        self.files = {
            file.relative_to(root / "src/tidegate").as_posix(): group
            for group, (paths, _) in groups.items()
            for path in paths
            for file in _python_files(root / "src/tidegate" / path)
        }

    def coverage(self, group: str) -> Coverage:
        """Which tests execute which line, from an earlier run if nothing has changed."""
        if group not in self._coverage:
            self._coverage[group] = self._find_coverage(group)
        return self._coverage[group]

    def _find_coverage(self, group: str) -> Coverage:
        files = [file for file, owner in self.files.items() if owner == group]
        sources = [(self.package / file).read_text(encoding="utf-8") for file in files]
        tests = self._tests(group)
        sources += [t.read_text(encoding="utf-8") for test in tests for t in _python_files(test)]
        digest = hashlib.sha256("\0".join(sources).encode()).hexdigest()[:16]
        kept = self.folder / f"{group}-{digest}.json"
        if not kept.exists():
            say(f"{group}: finding the tests of each line")
            code = self._forked(lambda: self._trace(files, tests, kept), 3600.0, kept)
            if not kept.exists():
                sys.exit(f"the tests of {group} did not run (code {code}): see {kept}.log")
        return Coverage(**json.loads(kept.read_text(encoding="utf-8")))

    def _tests(self, group: str) -> list[Path]:
        return [self.root / "tests" / name for name in self.groups[group][1]]

    def _trace(self, files: list[str], tests: list[Path], result: Path) -> int:
        tracer = Tracer(self.package, files)
        self._pytest([str(test) for test in tests], tracer)
        text = json.dumps(vars(tracer.coverage))
        hidden = result.with_suffix(".part")
        hidden.write_text(text, encoding="utf-8")
        hidden.replace(result)
        return 0

    def _pytest(self, arguments: list[str], plugin: object) -> int:
        fixed = ["-q", "-p", "no:cacheprovider", "-p", "no:doctest", "-m", MARKERS]
        fixed += [f"--rootdir={self.root}", "-o", "addopts="]
        return int(pytest.main([*fixed, *arguments], plugins=[plugin]))

    def try_out(self, mutant: Mutant, tests: list[str], seconds: float) -> str:
        """``killed``, ``survived`` or ``endless``."""
        path = self.package / mutant.file
        source = path.read_text(encoding="utf-8")
        changed = mutant.applied(source)
        try:
            compile(changed, str(path), "exec")
        except SyntaxError:
            return "killed"
        files = sorted({str(self.root / test.partition("::")[0]) for test in tests})
        _forget_compiled(path)
        path.write_text(changed, encoding="utf-8")
        try:
            code = self._forked(
                lambda: self._pytest(["-x", *files], Chosen(tests)),
                60.0 + SLOWEST * seconds,
                self.folder / "last",
            )
        finally:
            path.write_text(source, encoding="utf-8")
        if code is None:
            return "endless"
        return "survived" if code == 0 else "killed"

    def _forked(self, do: Callable[[], int], limit_s: float, log: Path) -> int | None:
        """The exit code of `do` in another process, with which its children end; None if slow."""
        pid = os.fork()
        if pid == 0:
            os.setsid()
            self._become_child(Path(f"{log}.log"))
            failed = 70
            with contextlib.suppress(BaseException):
                failed = do()
            sys.stdout.flush()
            os._exit(failed)
        end_s = time.monotonic() + limit_s
        code: int | None = None
        try:
            while code is None and time.monotonic() < end_s:
                done, status = os.waitpid(pid, os.WNOHANG)
                code = os.waitstatus_to_exitcode(status) if done else None
                time.sleep(0.0 if done else 0.02)
        finally:  # also when this program is interrupted
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # what the tests started, too
            if code is None:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        return code

    def _become_child(self, log: Path) -> None:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in (1, 2):
            os.dup2(output, number)
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        os.environ["PYTHONPATH"] = os.pathsep.join([str(self.source), str(self.root)])
        os.chdir(self.root)
        sys.path[:0] = [str(self.source), str(self.root)]


def _python_files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _forget_compiled(path: Path) -> None:
    for file in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        file.unlink()


def say(text: str) -> None:
    """A line of progress."""
    print(text, flush=True)


# --- results --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Accepted:
    """A survivor that behaves like the original. file, old, new: as in `Mutant`."""

    file: str
    old: str
    new: str
    reason: str


def accepted(path: Path) -> list[Accepted]:
    """The survivors that do not count."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        found = tomllib.load(file).get("same", [])
    return [Accepted(**one) for one in found]


class Results:
    """Verdicts by key, kept in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.verdicts: dict[str, str] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError):  # the last one may be torn
                    one = json.loads(line)
                    self.verdicts[one["key"]] = one["verdict"]

    def add(self, key: str, mutant: Mutant, verdict: str) -> None:
        """Keep a verdict."""
        self.verdicts[key] = verdict
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "verdict": verdict} | vars(mutant)) + "\n")


def summary(judged: list[tuple[str, Mutant, str]], known: list[Accepted]) -> tuple[str, float]:
    """The table and the survivors in Markdown, and the share killed in percent.

    judged: group, mutant and verdict of each.
    """
    same = {(one.file, one.old, one.new) for one in known}
    rows = ["| package | mutants | killed | not ending | survived | the same | score |"]
    rows.append("|---|---:|---:|---:|---:|---:|---:|")
    lived: list[Mutant] = []
    total = dead = 0
    for group in [*dict.fromkeys(group for group, _, _ in judged), "all"]:
        mine = [one for one in judged if group in (one[0], "all")]
        alike = [m for _, m, v in mine if v == "survived" and (m.file, m.old, m.new) in same]
        counts = {v: sum(one[2] == v for one in mine) for v in ("killed", "endless", "survived")}
        lived = [m for _, m, v in mine if v == "survived" and m not in alike]
        dead, total = counts["killed"] + counts["endless"], len(mine) - len(alike)
        rows.append(
            f"| {group} | {len(mine)} | {counts['killed']} | {counts['endless']} | {len(lived)} "
            f"| {len(alike)} | {100 * dead / max(1, total):.1f} % |"
        )
    if lived:
        rows += ["", "Survivors:", ""]
        rows += [f"- `{mutant.describe()}`" for mutant in lived]
    return "\n".join(rows) + "\n", 100 * dead / max(1, total)


def main() -> None:
    """Try the mutants that have no verdict yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sample", type=int, default=200, help="number of mutants; 0 for all")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the sample")
    parser.add_argument("--only", default="", help="a package, or a part of a file's name")
    parser.add_argument("--survivors", action="store_true", help="try survivors again")
    parser.add_argument("--folder", type=Path, default=ROOT / "out/mutants")
    parser.add_argument("--project", type=Path, default=ROOT, help="where src and tests are")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # still cleans up
    options.folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads do not survive a fork
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    laboratory = Laboratory(options.project, GROUPS, options.folder.resolve())
    found: list[tuple[str, Mutant, str]] = []
    for file, group in laboratory.files.items():
        source = (laboratory.package / file).read_text(encoding="utf-8")
        if options.only in group or options.only in file:
            found += [(group, one, one.key(source)) for one in mutants_of(source, file)]
    if options.sample:
        chosen = random.Random(options.seed)
        found = chosen.sample(found, min(options.sample, len(found)))
    results = Results(options.folder / "results.jsonl")
    judged = []
    for n, (group, mutant, key) in enumerate(sorted(found, key=lambda one: one[0]), 1):
        verdict = results.verdicts.get(key)
        if verdict is None or (options.survivors and verdict == "survived"):
            verdict = _judged(laboratory, group, mutant)
            results.add(key, mutant, verdict)
            say(f"{n} of {len(found)}: {verdict:8} {mutant.describe()}")
        judged.append((group, mutant, verdict))
    text, score = summary(judged, accepted(options.project / "scripts/mutants.toml"))
    (options.folder / "table.md").write_text(text, encoding="utf-8")
    say(text)
    if score < LEAST:
        sys.exit(f"{score:.1f} % of the mutants were killed, which is less than {LEAST:g} %")


def _judged(laboratory: Laboratory, group: str, mutant: Mutant) -> str:
    coverage = laboratory.coverage(group)
    tests = coverage.tests_of(mutant)
    if not tests:
        return "survived"
    return laboratory.try_out(mutant, tests, sum(coverage.seconds[test] for test in tests))


if __name__ == "__main__":
    main()
