"""Mutation testing finds the tests of a line, and a mutant that no test notices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import mutants

    return mutants


@pytest.fixture
def report(mutants: ModuleType) -> ModuleType:
    import mutant_report

    return mutant_report


def changes(mutants: ModuleType, source: str) -> list[tuple[str, str]]:
    return [(one.old, one.new) for one in mutants.mutants_of(source, "f.py")]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a = x < y", [("x < y", "(x <= y)")]),
        ("a = 0 < y", [("0 < y", "(0 <= y)"), ("0", "1")]),
        ("a = x and y", [("x and y", "(x or y)")]),
        ("a = not x", [("not x", "(x)")]),
        ("a = x is None", [("x is None", "(x is not None)")]),
        ("a = x + y", [("x + y", "(x - y)")]),
        ("a += 1", [("a += 1", "a -= 1"), ("a += 1", "pass"), ("1", "2")]),
        ("a = max(x, y)", [("max", "min")]),
        ("a = True", [("True", "False")]),
        ("a = 0.5", [("0.5", "2.0")]),
        ("self.a = b", [("self.a = b", "pass")]),
        ("f(x)", [("f(x)", "pass")]),
        ("log.info(x)", []),
        ("log.warning(x)", [("log.warning(x)", "pass")]),
        ("raise x", [("raise x", "pass")]),
        ("if f(x):\n    y", [("f(x)", "(not f(x))")]),
        ("def f(x: int = 1):\n    return x", [("1", "2"), ("return x", "return None")]),
        ("def f():\n    return None", []),
        ("for a in b:\n    break", [("break", "continue")]),
        ('"""A text, 1."""', []),
        ("__all__ = [1]", []),
        ("LONGEST_S = 4 + 1", []),
        ('a = f"{x + 1}"', []),
    ],
)
def test_what_a_mutant_changes(
    source: str, expected: list[tuple[str, str]], mutants: ModuleType
) -> None:
    assert changes(mutants, source) == expected


def test_mutants_of_our_own_code_are_programs(mutants: ModuleType) -> None:
    for file in ("loop/journal.py", "loop/controller.py", "guards/pace.py"):
        source = (ROOT / "src/tidegate" / file).read_text(encoding="utf-8")
        found = mutants.mutants_of(source, file)
        assert len(found) > 20
        for one in found:
            assert source[one.start : one.end] == one.old
            compile(one.applied(source), file, "exec")
        assert len({one.key(source) for one in found}) == len(found)


def test_a_name_outside_of_ascii_does_not_shift_a_mutant(mutants: ModuleType) -> None:
    (one,) = mutants.mutants_of('a = ("µ → Λ", x < y)\n', "f.py")
    assert one.applied('a = ("µ → Λ", x < y)\n') == 'a = ("µ → Λ", (x <= y))\n'


def test_survivors_with_a_reason_do_not_count(mutants: ModuleType, report: ModuleType) -> None:
    same, other = (mutants.Mutant("f.py", n, 0, 1, "a", f"b{n}") for n in (1, 2))
    judged = [("p", same, "survived"), ("p", other, "survived"), ("p", other, "killed")]
    known = [report.Accepted("f.py", "", "a", "b1", "it is never larger")]
    text, score = report.summary(judged, {"p": 3}, known)
    assert score == 50.0
    assert "| p | 3 | 3 | 1 | 0 | 1 | 1 | 50.0 % | all tried |" in text
    alive, alike = text.split("The program behaves the same:")
    assert "f.py:2  a  →  b2`: no reason is given yet" in alive and "f.py:1 " not in alive
    assert "f.py:1  a  →  b1`: it is never larger" in alike
    left = [*known, report.Accepted("f.py", "", "a", "b2", "it takes a day", same=False)]
    text, score = report.summary(judged, {"p": 3}, left)
    assert score == 50.0 and "b2`: it takes a day" in text
    judged += [("q", mutants.Mutant("g.py", n, 0, 1, "a", "b"), "killed") for n in range(9)]
    assert report.summary(judged, {"p": 3, "q": 9}, left)[1] == 50.0, "the lowest of a package"


def test_a_package_counts_by_its_size(report: ModuleType) -> None:
    small, large = report.Score("s", 100, 40, 0, 10, 0), report.Score("l", 900, 50, 0, 0, 0)
    share, low, high = report.together([small, large])
    assert share == pytest.approx(0.1 * 0.8 + 0.9 * 1.0)
    assert 0.9 < low < share < high <= 1.0
    assert report.together([report.Score("s", 50, 40, 0, 10, 0)]) == (0.8, 0.8, 0.8)


def test_a_default_has_all_tests(mutants: ModuleType) -> None:
    """A test that only makes an object with a default executes no statement of a function."""
    coverage = mutants.Coverage(
        {"f.py": {"3": ["a", "b"]}}, {"a": 2.0, "b": 1.0, "c": 0.5}, {}, ["b"]
    )
    at_import = mutants.Mutant("f.py", 1, 0, 1, "1", "2", at_import=True)
    assert coverage.tests_of(at_import) == ["c", "a"]
    assert coverage.tests_of(mutants.Mutant("f.py", 2, 0, 1, "1\n1", "2")) == ["a"]
    unseen = mutants.Mutant("f.py", 2, 0, 1, "1", "2")
    assert coverage.tests_of(unseen) == []
    coverage.imported = {"f.py": ["2", "4"]}
    assert coverage.tests_of(unseen) == ["c", "a"], "it may have run for any of them"


def test_a_package_or_a_part_of_a_file_name_is_chosen(mutants: ModuleType) -> None:
    assert mutants.is_meant("moves", "moves", "fleet/fence.py")
    assert not mutants.is_meant("moves", "loop", "fleet/moves.py"), "it is the package's name"
    assert mutants.is_meant("fence", "moves", "fleet/fence.py") and mutants.is_meant(
        "", "x", "y.py"
    )
    assert not mutants.is_meant("fence", "moves", "fleet/holds.py")


def test_a_sample_is_the_same_for_a_seed(mutants: ModuleType) -> None:
    found = [(f"p{n % 2}", mutants.Mutant("f.py", n, 0, 1, "a", "b"), str(n)) for n in range(60)]
    first, again, other = (mutants.sampled(found, 10, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert [group for group, _, _ in first] == ["p0"] * 10 + ["p1"] * 10
    assert sorted(mutants.sampled(found, 0, 1), key=lambda one: int(one[2])) == found


def test_accepted_survivors_name_code_that_exists(mutants: ModuleType) -> None:
    for one in mutants.accepted(ROOT / "scripts/mutants.toml"):
        source = (ROOT / "src/tidegate" / one.file).read_text(encoding="utf-8")
        found = mutants.mutants_of(source, one.file)
        assert any(one.covers(mutant) for mutant in found), f"{one.file}: {one.text}: {one.old}"
        assert len(one.reason) > 20


CODE = '''"""A sum that is limited."""


def limited(a: int, b: int, most: int = 10) -> int:
    """The sum, limited."""
    if a + b > most:
        return most
    return a + b
'''
TESTS = """from tidegate.loop.sums import limited


def test_a_sum():
    assert limited(1, 2) == 3


def test_a_limit():
    assert limited(9, 9) == 10


def test_that_fails_anyway():
    limited(1, 1)
    assert False
"""


def test_a_mutant_that_does_not_end_is_ended(mutants: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "src/tidegate").mkdir(parents=True)
    laboratory = mutants.Laboratory(tmp_path, {}, tmp_path / "out")
    assert laboratory._forked(threading.Event().wait, 0.1, tmp_path / "log") is None
    assert laboratory._forked(lambda: 3, 600.0, tmp_path / "log") == 3


def test_a_small_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for file in ("tidegate/__init__.py", "tidegate/loop/__init__.py"):
        (project / "src" / file).parent.mkdir(parents=True, exist_ok=True)
        (project / "src" / file).touch()
    (project / "src/tidegate/loop/sums.py").write_text(CODE, encoding="utf-8")
    (project / "tests/loop").mkdir(parents=True)
    (project / "tests/loop/test_sums.py").write_text(TESTS, encoding="utf-8")
    (project / "pyproject.toml").write_text("[tool.pytest.ini_options]\n", encoding="utf-8")
    program = f"""
import sys
sys.path.insert(0, {str(ROOT / "scripts")!r})
import mutants
mutants.GROUPS = {{"loop": (("loop/sums.py",), ("loop",))}}
mutants.main()
"""
    folder = tmp_path / "out"
    command = [sys.executable, "-c", program, "--project", str(project)]
    command += ["--folder", str(folder), "--sample", "0"]
    environment = os.environ | {"PYTHONPATH": ""}
    first = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    lines = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
    verdicts = {(r["old"], r["new"]): r["verdict"] for r in map(json.loads, lines)}
    assert verdicts["a + b > most", "(a + b >= most)"] == "survived", "no test adds up to 10"
    assert verdicts["10", "11"] == "killed", "it runs at import"
    assert verdicts["return most", "return None"] == "killed"
    assert (project / "src/tidegate/loop/sums.py").read_text(encoding="utf-8") == CODE
    assert "sums.py:6  a + b > most  →  (a + b >= most)" in first.stdout
    assert "test_that_fails_anyway" not in str(verdicts)
    again = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert again.stdout.splitlines()[0].startswith("| package"), "nothing is tried twice"
    assert again.stdout in first.stdout
