"""The questions, their answers at a small size, and the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.helpers import tidegate
from tidegate.lab.future import QUESTIONS, load_question
from tidegate.lab.future.questions import (
    Finding,
    Question,
    Size,
    Table,
    change_text,
    direction,
    future_page,
)

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "measured" / "future.md"


def test_every_file_with_a_question_is_listed() -> None:
    folder = ROOT / "src" / "tidegate" / "lab" / "future"
    asking = {path.stem for path in folder.glob("*.py") if "\nQUESTION = " in path.read_text()}
    assert asking == set(QUESTIONS)
    assert [load_question(name).name for name in QUESTIONS] == list(QUESTIONS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_answered_at_a_small_size(name: str) -> None:
    shares: list[float] = []
    found = load_question(name).run(
        Size(seeds=1, length=0.08), lambda share, _: shares.append(share)
    )
    assert shares and shares == sorted(shares) and shares[0] >= 0 and shares[-1] <= 1
    assert found.answer.endswith(".") and "nan" not in found.answer
    for table in found.tables:
        assert table.rows and all(len(row) == len(table.head) for row in table.rows)
        assert all(cell for row in table.rows for cell in row)


def test_chance_explains_a_difference_whose_interval_contains_zero() -> None:
    assert direction([0.1, 0.2, 0.15, 0.12]) == 1
    assert direction([-0.1, -0.2, -0.15, -0.12]) == -1
    assert direction([0.1, -0.2, 0.15, -0.12]) == 0
    assert change_text([1.0, 2.0], [4.0, 5.0]) == "67 % less"
    assert change_text([8.0, 8.1], [2.0, 2.1]) == "3.9 times as much"


def _question(name: str) -> tuple[Question, Finding]:
    asked = Question(name, f"What of {name}?", "a paper", "By trying.", lambda *_: finding)
    finding = Finding(
        "It helps.", (Table("Figures:", ("a", "b"), (("x | y", "1"),)),), ("A note.",)
    )
    return asked, finding


def test_the_page_renews_only_the_sections_that_ran() -> None:
    names = ["one", "two"]
    page = future_page(dict([_question("two")]), "first", {}, names)
    page = future_page(dict([_question("one")]), "second", {}, names, page)
    assert page.index("What of one?") < page.index("What of two?")
    assert "Run with `first`" in page and "Run with `second`" in page
    assert "| x \\| y | 1 |" in page and "- A note." in page
    again = future_page(dict([_question("two")]), "third", {}, names, page)
    assert again == page.replace("Run with `first`", "Run with `third`")


def test_the_page_in_the_documentation_has_every_question() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in QUESTIONS:
        asked = load_question(name)
        assert f"<!-- question {name} -->\n## {asked.asks}\n" in text
        assert asked.method in text
    for line in text.splitlines():
        if line.startswith("!["):
            assert (PAGE.parent / line.rpartition("(")[2].rstrip(")")).exists()


def test_the_command_answers_one_question_and_writes_its_page(tmp_path: Path) -> None:
    page, report = tmp_path / "answers.md", tmp_path / "answers.html"
    words = ("reproduce", "future", "--only", "bursts", "--seeds", "1")
    done = tidegate(*words, "--page", page, "--report", report)
    assert done.returncode == 0, done.stderr
    asked = load_question("bursts").asks
    assert asked in page.read_text() and "(answers-bursts.svg)" in page.read_text()
    assert (tmp_path / "answers-bursts.svg").read_text().startswith("<svg ")
    assert asked in report.read_text() and "<svg" in report.read_text()
    assert "`tidegate reproduce future --seeds 1`" in page.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("future", "--only", "nothing"), "--only is 'nothing'; it must be one of reward, moves"),
        (("future", "--days", "day.csv"), "--days is 'day.csv'; it must be used with papers"),
        (("drs", "--only", "moves"), "--only is 'moves'; it must be used with future"),
        (("future", "--traces", "none"), "--traces is 'none'; it must be a folder"),
    ],
)
def test_options_that_do_not_fit_are_refused(words: tuple[str, ...], said: str) -> None:
    done = tidegate("reproduce", *words)
    assert done.returncode == 2 and said in done.stderr


def test_recorded_days_replace_generated_ones(tmp_path: Path) -> None:
    from tidegate.errors import InputError
    from tidegate.lab.future.days import exchange_days

    (tmp_path / "xetra").mkdir()
    for day in (1, 2, 3):
        file = tmp_path / "xetra" / f"xetra_2018-02-0{day}_rate.csv"
        file.write_text(f"t_s,rate\n0,{day}\n60,{day}\n120,{day}\n")
    found = list(exchange_days(Size(seeds=2, traces=tmp_path)))
    assert [(seed, workload.rate(30.0)) for seed, workload in found] == [(11, 2.0), (12, 3.0)]
    with pytest.raises(InputError, match="a folder with 4 days"):
        list(exchange_days(Size(seeds=4, traces=tmp_path)))
