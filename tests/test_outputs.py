"""Files that commands write are checked first, and are whole or not there at all."""

from __future__ import annotations

import os
import resource
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tidegate.errors import InputError
from tidegate.outputs import check_output, write_output


def test_a_file_is_written_with_its_folder_and_keeps_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "new" / "folder" / "report.html"
    assert check_output(file, "--out") == file
    assert list(file.parent.iterdir()) == [], "the check leaves nothing"
    assert write_output(file, "first\n", "--out") == file
    file.chmod(0o640)
    write_output(file, "second ü\n", "--out")
    assert file.read_text(encoding="utf-8") == "second ü\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in file.parent.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    "name", ["€" * 83, "x" * 255, "ü" * 127, b"\xff".decode(errors="surrogateescape")]
)
def test_every_name_that_the_disk_takes_is_a_name(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    check_output(file, "--out")
    assert write_output(file, "text", "--out").read_text() == "text"
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_output(tmp_path / "link", "new", "--out")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


@pytest.mark.parametrize("name", ["", "plain/report.html", "x" * 300, "nul\0nul"])
def test_what_cannot_be_a_file_is_one_sentence_before_and_after_the_work(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "plain").touch()
    path = f"{tmp_path}/{name}"
    said = r"^--out is .*; it must be a file that can be written"
    with pytest.raises(InputError, match=said):
        check_output(path, "--out")
    with pytest.raises(InputError, match=said):
        write_output(path, "", "--out")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["plain"]


def test_devices_are_written_to_and_not_replaced(tmp_path: Path) -> None:
    assert check_output("/dev/null", "--out") == Path("/dev/null")
    write_output("/dev/null", "text", "--out")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(InputError, match="No space left on device"):
        check_output("/dev/full", "--out")
    with pytest.raises(InputError, match="No space left on device"):
        write_output("/dev/full", "text", "--out")


def test_the_reader_of_a_pipe_does_not_notice_the_check(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert check_output(pipe, "--out") == pipe, "nobody reads yet, and the check does not wait"
    with ThreadPoolExecutor() as other:
        read = other.submit(pipe.read_text)
        check_output(pipe, "--out")
        write_output(pipe, "text", "--out")
        assert read.result(10) == "text"


def test_a_full_disk_is_found_before_the_work(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # the kernel writes no more
    try:
        with pytest.raises(InputError, match="File too large"):
            check_output(tmp_path / "report.html", "--out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []
    assert check_output(tmp_path / "report.html", "--out").name == "report.html"
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "report.html"
    file.write_text("before")

    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("tidegate.outputs.os.fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        write_output(file, "after", "--out")
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_an_output_that_is_an_input_is_refused_also_through_links(tmp_path: Path) -> None:
    read = tmp_path / "read.csv"
    read.write_text("rows")
    (tmp_path / "soft").symlink_to(read)
    (tmp_path / "hard").hardlink_to(read)
    inputs = [None, tmp_path / "missing", read]
    for name in ("read.csv", "soft", "hard", "../" + tmp_path.name + "/read.csv"):
        with pytest.raises(InputError, match="a file other than the input"):
            check_output(tmp_path / name, "--out", inputs)
    check_output(tmp_path / "missing", "--out", inputs)
    check_output("/dev/null", "--out", [Path("/dev/null")])
    assert read.read_text() == "rows"
