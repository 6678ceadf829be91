"""Files as people have them, and the sentences that they get for broken ones."""

import gzip
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegate.errors import InputError, TidegateError, TraceError
from tidegate.workloads import EventLog, RateTrace, read_trace


def write(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def rates_of(path: Path, **settings: Any) -> tuple[list[float], list[float], float]:
    trace = read_trace(path, **settings)
    assert isinstance(trace, RateTrace)
    return trace.t_s.tolist(), trace.rate_per_s.tolist(), trace.duration_s


def events_of(path: Path, **settings: Any) -> list[float]:
    log = read_trace(path, **settings)
    assert isinstance(log, EventLog)
    times: list[float] = log.times_s.tolist()
    return times


@pytest.mark.parametrize(
    "text",
    [
        "t_s,rate\n0,10\n60,20.5\n120,0\n",
        "t_s;rate\r\n0;10\r\n60;20.5\r\n120;0\r\n",
        "\ufeff# recorded by hand\n Time \tRPS\n\n0\t10\n60\t20.5\n\n120\t0",
        "0,10\n60,20.5\n120,0\n",
        "minute,throughput\n0,10\n1,20.5\n2,0\n",
        "timestamp_ms,region,qps\n5000,eu,10\n65000,eu,20.5\n125000,eu,0\n",
        '"datetime","note","value"\n2026-07-01T09:00:00Z,"a, b",10\n'
        "2026-07-01 09:01:00,c,20.5\n2026-07-01T11:02:00+02:00,d,0\n",
    ],
)
def test_rate_tables(tmp_path: Path, text: str) -> None:
    assert rates_of(write(tmp_path, text)) == ([0, 60, 120], [10, 20.5, 0], 180)


def test_gzip_whatever_its_name(tmp_path: Path) -> None:
    for name in ("a.csv.gz", "b.csv"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(b"t_s,rate\n0,1\n1,2\n"))
        assert rates_of(path) == ([0, 1], [1, 2], 2)


def test_linear(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "t_s,rate\n0,10\n10,30\n"), interpolation="linear")
    assert (trace.rate(5), trace.duration_s) == (20, 10)


def test_counts_are_added_up_by_time(tmp_path: Path) -> None:
    text = "minute,symbol,trades\n3,SAP,30\n3,DBK,90\n4,SAP,60\n7,DBK,6\n"
    path = write(tmp_path, text)
    times = [0, 60, 120, 180, 240]
    assert rates_of(path) == (times, [2, 1, 0, 0, 0.1], 300)
    assert rates_of(path, gaps="hold") == (times, [2, 1, 1, 1, 0.1], 300)
    with pytest.raises(TraceError, match=r"line 5: minute is '7'.*not 180 s.*fill the gap"):
        read_trace(path, gaps="error")


def test_events(tmp_path: Path) -> None:
    log = read_trace(write(tmp_path, "t_ms,symbol,price\n12,BAC,13.8\n15,SPY,167\n15,SPY,167\n"))
    assert isinstance(log, EventLog)
    assert log.times_s.tolist() == pytest.approx([0.012, 0.015, 0.015])
    assert log.keys_between(0, 1).tolist() == ["BAC", "SPY", "SPY"]
    iso = "ts,user\n2026-07-01T09:00:00.250Z,ann\n2026-07-01T09:01:00.000001Z,bob\n"
    assert events_of(write(tmp_path, iso)) == [0.25, 60.000001]
    assert events_of(write(tmp_path, "1700000000.5\n1700000002\n")) == [0.5, 2]
    assert events_of(write(tmp_path, "when,rate\n0,7\n3,8\n"), time="when", kind="events") == [0, 3]


def test_own_column_names(tmp_path: Path) -> None:
    path = write(tmp_path, "wann,was,wer\n0,5,x\n500,6,y\n")
    settings: dict[str, Any] = {"time": "wann", "time_unit": "ms"}
    assert rates_of(path, value="was", kind="rate", **settings) == ([0, 0.5], [5, 6], 1)
    assert events_of(path, key="wer", kind="events", **settings) == [0, 0.5]
    with pytest.raises(TraceError, match="a key column 'nobody'"):
        read_trace(path, key="nobody", kind="events", **settings)


def test_gaps(tmp_path: Path) -> None:
    path = write(tmp_path, "t_s,rate\n0,10\n60,20\n120,30\n300,40\n360,50\n")
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert (caught.value.line, caught.value.column) == (5, "t_s")
    assert str(caught.value).endswith(
        "trace.csv, line 5: t_s is '300'; it must be about 60 s after the line above it, not 180 "
        "s: fill the gap, or set gaps to hold or zero"
    )
    assert rates_of(path, gaps="hold")[:2] == ([0, 60, 120, 300, 360], [10, 20, 30, 40, 50])
    zero = ([0, 60, 120, 180, 300, 360], [10, 20, 30, 0, 40, 50], 420)
    assert rates_of(path, gaps="zero") == zero


def test_jitter_is_no_gap(tmp_path: Path) -> None:
    path = write(tmp_path, "t_s,rate\n0,1\n14.8,2\n30.1,3\n45,4\n")
    assert rates_of(path)[2] == pytest.approx(59.9)  # the last row lasts the median step


def test_sorting_moves_lines_along(tmp_path: Path) -> None:
    path = write(tmp_path, "t_s,rate\n120,3\n0,1\n60,2\n")
    with pytest.raises(TraceError, match=r"line 3: t_s is '0'.*sort the file"):
        read_trace(path)
    assert rates_of(path, sort=True) == ([0, 60, 120], [1, 2, 3], 180)
    iso = write(tmp_path, "ts\n2026-07-01T09:00:02Z\n2026-07-01T09:00:00.5Z\n")
    assert events_of(iso, sort=True) == [0.5, 2]
    bad = write(tmp_path, "t_s,rate\n120,-3\n0,1\n60,2\n")
    with pytest.raises(TraceError, match="line 2: rate is '-3'"):
        read_trace(bad, sort=True)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "empty"),
        ("\n\n  \n", None, "empty"),
        ("t_s,rate\n", None, "only its header"),
        ("t_s,rate\n0,1\n", None, "add rows"),
        ("when,what\n0,1\n", None, "columns is 'when, what'.*call the column t_s"),
        ("1,2,3\n4,5,6\n", 1, "name the columns"),
        ("t_s,rate\n0,1\n1,nan\n2,3\n", 3, "rate is 'nan'.*hold or zero"),
        ("t_s,rate\n0,1\n1,inf\n2,3\n", 3, "rate is 'inf'"),
        ("t_s,rate\n0,1\n1,-0.5\n2,3\n", 3, "rate is '-0.5'.*at least 0"),
        ("t_s,rate\n0,1\n1,many\n2,3\n", 3, "rate is 'many'.*a number"),
        ("t_s,rate\n0,1\n1,\n2,3\n", 3, "rate is ''"),
        ("t_s;rate\n0;1\n1;2,5\n2;3\n", 3, "rate is '2,5'.*digits and a point"),
        ("t_s,rate\n0,1\n1\n2,3\n", 3, "number of cells is 1"),
        ("t_s,rate\n0,1\n1,2,3\n2,3\n", 3, "number of cells is 3"),
        ("t_s,rate\n\n# note\n0,1\nlate,2\n", 5, "t_s is 'late'"),
        ("t_s,rate\n0,1\nnan,2\n2,3\n", 3, "t_s is 'nan'.*finite"),
        ("t_s,rate\n-5,1\n0,2\n5,3\n", 2, "t_s is '-5'"),
        ("t_s,rate\n0,1\n2,2\n1,3\n", 4, "t_s is '1'.*sort the file"),
        ("t_s,rate\n0,1\n2,2\n2,3\n", 4, "t_s is '2'.*kind='counts'"),
        ("ts\n2026-07-01T09:00:00\n2026-07-01T25:00:00\n", 3, "ISO 8601"),
        ("ts\n2026-07-01T09:00:01\n2026-07-01T09:00:00\n", 3, "sort the file"),
        ("t_s,trades\n0,1\n1,-4\n2,3\n", 3, "trades is '-4'"),
        ('t_s,note,rate\n0,"a,b",1\n1,"c\nd",x\n2,e,3\n', 4, "rate is 'x'"),
    ],
)
def test_broken_files(tmp_path: Path, text: str, line: int | None, words: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(TraceError, match=words) as caught:
        read_trace(path)
    error = caught.value
    assert error.line == line
    assert error.path == str(path)
    assert str(path) in str(error)
    assert "\n" not in str(error)
    twin = pickle.loads(pickle.dumps(error))
    assert (str(twin), twin.line) == (str(error), line)


def test_unreadable(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"nowhere\.csv.*check the path"):
        read_trace(tmp_path / "nowhere.csv")
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress(b"t_s,rate\n0,1\n1,2\n")[:-12])
    with pytest.raises(TraceError, match="readable"):
        read_trace(cut)
    latin = tmp_path / "latin.csv"
    latin.write_bytes("t_s,rate,größe\n".encode("latin-1"))
    with pytest.raises(TraceError, match="UTF-8"):
        read_trace(latin)


def test_settings_are_checked(tmp_path: Path) -> None:
    path = write(tmp_path, "t_s,rate\n0,1\n1,2\n")
    wrong: list[dict[str, Any]] = [{"kind": "rates"}, {"gaps": "fill"}, {"time_unit": "h"}]
    for settings in wrong:
        with pytest.raises(InputError, match="one of"):
            read_trace(path, **settings)


def test_it_is_a_value_error_and_ours() -> None:
    assert issubclass(TraceError, InputError)
    assert issubclass(TraceError, TidegateError)
    assert issubclass(TraceError, ValueError)


class TestParquet:
    """The same through Parquet, where values have types."""

    @pytest.fixture(autouse=True)
    def arrow(self) -> None:
        pytest.importorskip("pyarrow")

    def write(self, folder: Path, **columns: Any) -> Path:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = folder / "trace.parquet"
        pq.write_table(pa.table(columns), path)
        return path

    def test_rates(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, t_s=[0, 30, 60], rate=[1.5, 2.5, 3.5])
        assert rates_of(path) == ([0, 30, 60], [1.5, 2.5, 3.5], 90)

    def test_timestamps_and_keys(self, tmp_path: Path) -> None:
        moments = np.array(["2026-07-01T09:00:00.5", "2026-07-01T09:00:02"], "datetime64[ns]")
        log = read_trace(self.write(tmp_path, timestamp=moments, key=["a", "b"]))
        assert isinstance(log, EventLog)
        assert log.times_s.tolist() == [0.5, 2.0]
        assert log.keys_between(1, 3).tolist() == ["b"]

    @pytest.mark.parametrize(
        ("columns", "row", "words"),
        [
            ({"t_s": [0, 1, 2], "rate": [1.0, None, 3.0]}, 2, "rate is nan"),
            ({"t_s": [0, 1, 2], "rate": [1.0, 2.0, -3.0]}, 3, "rate is -3"),
            ({"t_s": [0, 2, 1], "rate": [1.0, 2.0, 3.0]}, 3, "t_s is 1.*sort"),
            ({"t_s": [0, 1, 2], "rate": ["1", "x", "3"]}, 2, "rate is 'x'"),
        ],
    )
    def test_broken(self, tmp_path: Path, columns: Any, row: int, words: str) -> None:
        with pytest.raises(TraceError, match=words) as caught:
            read_trace(self.write(tmp_path, **columns))
        assert caught.value.line == row

    def test_not_parquet(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="readable as Parquet"):
            read_trace(write(tmp_path, "t_s,rate\n0,1\n", "fake.parquet"))
