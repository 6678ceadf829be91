"""What `benchmarks/speed.py` keeps, resumes and writes; nothing is timed here."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("speed", "rows", "loglog", "decisions", "peers", "simulation", "sweep")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that imports a benchmark as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module
    for name in NAMES:
        sys.modules.pop(name, None)


def rows_of(
    bench: Any, asked: list[str], *keys: str, fails: BaseException | None = None
) -> list[Any]:
    """Rows that note in `asked` when they are measured; the last one fails with `fails`."""
    rows = bench("rows")

    def do(key: str) -> Any:
        asked.append(key)
        if fails is not None and key == keys[-1]:
            raise fails
        return rows.Measured(f"{key} took a while", reached=key == "a")

    return [rows.Row(key, f"work {key}", "1 s", lambda key=key: do(key)) for key in keys]


def test_a_run_that_was_interrupted_goes_on_where_it_was(bench: Any, tmp_path: Path) -> None:
    asked: list[str] = []
    stopped = rows_of(bench, asked, "a", "b", fails=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        bench("rows").measure(stopped, tmp_path, "code", say=asked.append)
    asked.clear()
    said: list[str] = []
    found = bench("rows").measure(
        rows_of(bench, asked, "a", "b", "c"), tmp_path, "code", say=said.append
    )
    assert asked == ["b", "c"]
    assert list(found) == ["a", "b", "c"]
    assert found["a"].reached and not found["b"].reached
    assert said[0] == "░░░░░░░░░░░░ [1/3] work a: a took a while (kept)"
    assert said[1] == "████░░░░░░░░ [2/3] work b"


def test_rows_of_other_code_and_torn_files_are_measured_again(bench: Any, tmp_path: Path) -> None:
    asked: list[str] = []
    rows = rows_of(bench, asked, "a", "b")
    measure = bench("rows").measure
    measure(rows, tmp_path, "code", say=str)
    measure(rows, tmp_path, "other code", say=str)
    assert asked == ["a", "b", "a", "b"]
    (tmp_path / "b.json").write_text('{"shown": "b to')
    measure(rows, tmp_path, "other code", say=str)
    assert asked[4:] == ["b"]
    measure(rows, tmp_path, "other code", again=True, say=str)
    assert asked[5:] == ["a", "b"]


def test_a_row_that_cannot_be_measured_says_why_and_is_tried_again(
    bench: Any, tmp_path: Path
) -> None:
    asked: list[str] = []
    error = bench("rows").NotMeasurableError("Java is not installed")
    rows = rows_of(bench, asked, "a", "b", fails=error)
    found = bench("rows").measure(rows, tmp_path, "code", say=str)
    assert found["b"].shown == "not measured: Java is not installed"
    assert found["b"].reached is None
    bench("rows").measure(rows, tmp_path, "code", say=str)
    assert asked == ["a", "b", "b"]


def test_only_the_tables_of_the_page_are_replaced(bench: Any, tmp_path: Path) -> None:
    page = tmp_path / "speed.md"
    real = (ROOT / "docs" / "measured" / "speed.md").read_text()
    page.write_text(real)
    bench("rows").replace_between(page, "speed", "| a table |")
    bench("rows").replace_between(page, "speed", "| another table |")
    before, after = real.split("<!-- speed -->\n")[0], real.split("<!-- end -->")[1]
    written = f"{before}<!-- speed -->\n| another table |\n<!-- end -->{after}"
    assert page.read_text() == written
    page.write_text("# Speed\n")
    with pytest.raises(ValueError, match="no place"):
        bench("rows").replace_between(page, "speed", "| a table |")
    assert page.read_text() == "# Speed\n"


def test_the_tables_have_every_row_that_was_measured(bench: Any) -> None:
    speed = bench("speed")
    every = [*speed.ROWS, *speed.GROWTH_ROWS]
    assert len({row.key for row in every}) == len(every)
    shown = {row.key: speed.Measured("7 ms", reached=False) for row in speed.ROWS}
    grown = speed.grown("items", lambda size: size**2 / 1e6, (1, 10, 100))
    shown |= {row.key: grown for row in speed.GROWTH_ROWS}
    lines = speed.table(shown).splitlines()
    assert f"| {speed.ROWS[0].work} | 99–113 ms | 7 ms | 40 ms | no |" in lines
    assert lines[-1].endswith("1 items: 0.001 ms, 10 items: 0.1 ms, 100 items: 10 ms | 2.00 |")
    assert len(lines) == len(every) + 5
    del shown["visp"]
    assert len(speed.table(shown).splitlines()) == len(every) + 4
    assert speed.BEFORE.keys() <= {row.key for row in speed.ROWS}


def test_the_picture_has_a_line_and_a_name_for_each_growth(bench: Any) -> None:
    speed = bench("speed")
    grown = speed.grown("items", lambda size: size / 1e3, (1, 10, 100))
    svg = speed.picture({row.key: grown for row in speed.GROWTH_ROWS})
    paths = re.findall(r'<path class="line c(\d)" d="M([^"]+)"', svg)
    assert [number for number, _ in paths] == ["0", "1", "2", "3"]
    places = [[float(part) for part in point.split(",")] for point in paths[0][1].split("L")]
    (x0, y0), (x1, y1), (x2, y2) = places
    assert x1 - x0 == pytest.approx(x2 - x1) and y0 - y1 == pytest.approx(y1 - y2)  # log-log
    assert x0 < x1 and y0 > y1
    names = [work.partition(",")[0] for _, work, *_ in speed.GROWTH]
    assert all(f">{name}</text>" in svg for name in names)


def test_the_page_says_what_else_ran(bench: Any) -> None:
    speed = bench("speed")
    quiet = {"a": speed.Measured("7 ms", load=0.9)}
    busy = quiet | {"b": speed.Measured("7 ms", load=speed.CORES + 4.5)}
    assert "longer than on a quiet machine" not in speed.circumstances(quiet)
    assert f"0.9 to {speed.CORES + 4.5:g} processes" in speed.circumstances(busy)
    assert "longer than on a quiet machine" in speed.circumstances(busy)


def test_a_part_of_the_rows_is_not_written_into_the_page(
    bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    speed = bench("speed")
    for words, said in (
        (["--only", "visp", "--write"], "--write needs all rows"),
        (["--only", "vips"], "no row vips; the rows are visp,"),
    ):
        monkeypatch.setattr(sys, "argv", ["speed.py", *words])
        with pytest.raises(SystemExit) as ended:
            speed.main()
        assert ended.value.code == 2
        assert said in " ".join(capsys.readouterr().err.split())
