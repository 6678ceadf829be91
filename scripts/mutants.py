"""Mutation testing: change one place of the code, and see whether a test fails.

The packages in which a mistake loses data, money or control are mutated: the loop, the journal, the
guards, moves, security and billing. A mutant is one small change, such as ``<`` in place of ``<=``,
a statement that is left out, or a condition that is negated.

    python scripts/mutants.py                       # 50 of each package; also: make mutants
    python scripts/mutants.py --sample 0            # all
    python scripts/mutants.py --only loop/journal.py --seed 2
    python scripts/mutants.py --only moves,billing --sample 0
    python scripts/mutants.py --survivors           # those that lived, again

A first run of the mirrored tests, with a call inserted before each statement, finds which tests
execute which line, and a mutant is tried with these tests only, the fastest first. The changed
file is in a copy of ``src``; the tests run in a forked process. Everything is kept in
``out/mutants``: a run that was interrupted continues, and a mutant is not tried twice unless its
file has changed.

A survivor that no test can kill, because the program behaves the same, goes to the table ``same``
of ``scripts/mutants.toml`` with the reason, and no longer counts. One that is left alive for
another reason goes to ``left``, and counts.
"""

from __future__ import annotations

import argparse
import builtins
import compileall
import contextlib
import hashlib
import importlib
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mutant_changes import Mutant, mutants_of
from mutant_probes import Probes
from mutant_report import accepted, replace_between, summary

ROOT = Path(__file__).parents[1]
GROUPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "loop": (
        (
            "loop/controller.py",
            "loop/controls.py",
            "loop/stack.py",
            "loop/replay.py",
            "loop/clock.py",
        ),
        (
            "loop/test_clock.py",
            "loop/test_controller.py",
            "loop/test_controls.py",
            "loop/test_stack.py",
            "loop/test_journal.py",
            "loop/test_records.py",
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
    "guards": (("guards",), ("guards", "loop/test_stack.py", "loop/test_controls.py")),
    "moves": (("fleet/moves.py", "fleet/holds.py", "fleet/fence.py"), ("fleet",)),
    "security": (
        ("dashboard/security.py", "dashboard/limits.py", "credentials.py", "listening.py"),
        ("dashboard", "test_credentials.py", "test_listening.py"),
    ),
    "billing": (("loop/billing.py", "model/leases.py"), ("loop/test_billing.py", "model")),
}
"""What is mutated, in src/tidegate, and the tests that may notice it, in tests."""
MARKERS = "not (java or browser or kubernetes or agent or trust or yarn)"
PRELOADED = (
    *("numpy", "pydantic", "hypothesis", "httpx", "fastapi", "uvicorn", "typer", "yaml", "numba"),
    *("scipy.optimize", "scipy.stats", "prometheus_client"),
)
"""What many test processes need, imported once. Nothing of Tidegate is among it."""
SLOWEST = 5.0
"""A mutant may take this factor of the time of its tests, and a minute; then it does not end."""
BUSIEST = 2.0
"""The same for processor time, and five seconds: other work on the machine does not count."""
LEAST = 90.0
"""Share of the mutants of each package that must be killed, in percent."""

# --- which tests execute which line ---------------------------------------------------------------


@dataclass
class Coverage:
    """What a run of tests executed.

    lines: tests by file and line. seconds, work_s: elapsed and processor time of each test. failed:
    tests that fail as it is. imported: lines by file that ran when the tests were imported.
    """

    lines: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    work_s: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    imported: dict[str, list[str]] = field(default_factory=dict)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that execute a mutant, the fastest first.

        A line that runs at import has all tests: those of a default execute no line of the file,
        nor do those of a function that only runs then.
        """
        of_file = self.lines.get(mutant.file, {})
        last = mutant.line + mutant.old.count("\n")
        lines = [str(line) for line in range(mutant.line, last + 1)]
        names = {test for line in lines for test in of_file.get(line, ())}
        imported = set(self.imported.get(mutant.file, ()))
        if mutant.at_import or (not names and not imported.isdisjoint(lines)):
            names = set(self.seconds)
        return sorted(names - set(self.failed), key=lambda test: (self.seconds[test], test))


class Tracer:
    """A pytest plugin that notes which lines of the mutated files each test executes."""

    def __init__(self, probes: Probes) -> None:
        self.coverage = Coverage()
        self._probes = probes
        vars(builtins)["__seen__"] = probes.seen.add

    def pytest_collection_finish(self) -> None:
        """Note what ran when the tests were imported."""
        for file, line in sorted(self._probes.lines()):
            self.coverage.imported.setdefault(file, []).append(str(line))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Trace one test, with its fixtures."""
        self._probes.seen.clear()
        began_s, worked_s = time.monotonic(), time.process_time()
        try:
            return (yield)
        finally:
            self.coverage.seconds[item.nodeid] = time.monotonic() - began_s
            self.coverage.work_s[item.nodeid] = time.process_time() - worked_s
            for file, line in sorted(self._probes.lines()):
                lines = self.coverage.lines.setdefault(file, {})
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
            root / "src", self.source, ignore=shutil.ignore_patterns("*.pyc", "*.egg-info")
        )
        for compiled in (self.package, root / "tests"):  # the processes write none
            compileall.compile_dir(str(compiled), quiet=1)
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
            probes = Probes()
            changed = [probes.inserted(s, f) for s, f in zip(sources, files, strict=False)]
            with self._changed(dict(zip(files, changed, strict=True))):
                code = self._forked(lambda: self._trace(probes, tests, kept), 3600.0, kept)
            if not kept.exists():
                sys.exit(f"the tests of {group} did not run (code {code}): see {kept}.log")
        return Coverage(**json.loads(kept.read_text(encoding="utf-8")))

    def _tests(self, group: str) -> list[Path]:
        return [self.root / "tests" / name for name in self.groups[group][1]]

    @contextlib.contextmanager
    def _changed(self, sources: dict[str, str]) -> Iterator[None]:
        """Other source texts of some files, in the copy."""
        before = {file: (self.package / file).read_text(encoding="utf-8") for file in sources}
        try:
            for file, source in sources.items():
                _forget_compiled(self.package / file)
                (self.package / file).write_text(source, encoding="utf-8")
            yield
        finally:
            for file, source in before.items():
                (self.package / file).write_text(source, encoding="utf-8")

    def _trace(self, probes: Probes, tests: list[Path], result: Path) -> int:
        tracer = Tracer(probes)
        self._pytest([str(test) for test in tests], tracer)
        text = json.dumps(vars(tracer.coverage))
        hidden = result.with_suffix(".part")
        hidden.write_text(text, encoding="utf-8")
        hidden.replace(result)
        return 0

    def _pytest(self, arguments: list[str], plugin: object) -> int:
        # Rewritten assertions would explain a failure, and take most of the time of a quick test.
        fixed = ["-q", "--assert=plain", "--tb=line", "-p", "no:cacheprovider", "-p", "no:doctest"]
        fixed += ["-p", "no:schemathesis", "-m", MARKERS]
        fixed += [f"--rootdir={self.root}", "-o", "addopts="]
        return int(pytest.main([*fixed, *arguments], plugins=[plugin]))

    def try_out(self, mutant: Mutant, tests: list[str], coverage: Coverage) -> str:
        """``killed``, ``survived`` or ``endless``."""
        path = self.package / mutant.file
        changed = mutant.applied(path.read_text(encoding="utf-8"))
        try:
            compile(changed, str(path), "exec")
        except SyntaxError:
            return "killed"
        limit_s = 60.0 + SLOWEST * sum(coverage.seconds[test] for test in tests)
        work_s = 5 + math.ceil(BUSIEST * sum(coverage.work_s[test] for test in tests))

        def run() -> int:
            used_s = math.ceil(time.process_time())
            resource.setrlimit(resource.RLIMIT_CPU, (used_s + work_s, used_s + work_s))
            return self._first_failure(tests)

        with self._changed({mutant.file: changed}):
            code = self._forked(run, limit_s, self.folder / "last")
        if code is None or code in (-signal.SIGXCPU, -signal.SIGKILL):
            return "endless"
        return "survived" if code == 0 else "killed"

    def _first_failure(self, tests: list[str]) -> int:
        """Run tests file by file, so that files behind the first failure are not even imported."""
        chosen = Chosen(tests)
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        return next((code for f in files if (code := self._pytest(["-x", f], chosen))), 0)

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


def sampled(
    found: list[tuple[str, Mutant, str]], sample: int, seed: int
) -> list[tuple[str, Mutant, str]]:
    """At most `sample` mutants of each package, 0 for all.

    Every package has as many, so that a small one has an interval of its own. A larger sample
    begins with the smaller one of the same seed.
    """
    chosen: list[tuple[str, Mutant, str]] = []
    for group in dict.fromkeys(group for group, _, _ in found):
        mine = [one for one in found if one[0] == group]
        random.Random(f"{seed} {group}").shuffle(mine)
        chosen += mine[: sample or None]
    return sorted(chosen, key=lambda one: one[0])


def is_meant(name: str, group: str, file: str) -> bool:
    """Whether a name given with ``--only`` is the package, or a part of the file's name."""
    return name == group or (name not in GROUPS and name in file)


def main() -> None:
    """Try the mutants that have no verdict yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sample", type=int, default=50, help="mutants a package; 0 for all")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the sample")
    parser.add_argument("--only", default="", help="packages or parts of files' names, with commas")
    parser.add_argument("--survivors", action="store_true", help="try survivors again")
    parser.add_argument("--page", type=Path, help="write the result to this page")
    parser.add_argument("--mark", default="mutants", help="after this comment of the page")
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
        if any(is_meant(name, group, file) for name in options.only.split(",")):
            found += [(group, one, one.key(source)) for one in mutants_of(source, file)]
    chosen = sampled(found, options.sample, options.seed)
    results = Results(options.folder / "results.jsonl")
    judged = []
    for n, (group, mutant, key) in enumerate(chosen, 1):
        verdict = results.verdicts.get(key)
        if verdict is None or (options.survivors and verdict == "survived"):
            verdict = _judged(laboratory, group, mutant)
            results.add(key, mutant, verdict)
            say(f"{n} of {len(chosen)}: {verdict:8} {mutant.describe()}")
        judged.append((group, mutant, verdict))
    totals = dict(Counter(group for group, _, _ in found))
    text, score = summary(judged, totals, accepted(options.project / "scripts/mutants.toml"))
    say(text)
    if options.page is not None:
        replace_between(options.page, options.mark, _run(options) + text)
    if score < LEAST:
        sys.exit(f"{score:.1f} % of a package's mutants were killed, less than {LEAST:g} %")


def _run(options: argparse.Namespace) -> str:
    """The command and the commit, in a line."""
    git = ["git", "-C", str(options.project), "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    only = f" ONLY={options.only}" if options.only else ""
    command = f"make mutants SAMPLE={options.sample} SEED={options.seed}{only}"
    return f"`{command}` at commit {commit}:\n\n"


def _judged(laboratory: Laboratory, group: str, mutant: Mutant) -> str:
    coverage = laboratory.coverage(group)
    tests = coverage.tests_of(mutant)
    if not tests:
        return "survived"
    return laboratory.try_out(mutant, tests, coverage)


if __name__ == "__main__":
    main()
