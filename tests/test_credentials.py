from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.credentials import LONGEST, secret_from
from tidegate.errors import InputError

VARIABLE = "TIDEGATE_TEST_SECRET"


def test_a_file_comes_first_then_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert secret_from(None, VARIABLE, "--token-file") is None
    assert secret_from("", VARIABLE, "--token-file") is None
    monkeypatch.setenv(VARIABLE, "")
    assert secret_from(None, VARIABLE, "--token-file") is None
    monkeypatch.setenv(VARIABLE, "of the environment")
    assert secret_from(None, VARIABLE, "--token-file") == "of the environment"
    file = tmp_path / "token"
    for written in ("of the file", "of the file\n", "of the file\r\n"):
        file.write_bytes(written.encode())
        assert secret_from(file, VARIABLE, "--token-file") == "of the file"
    file.write_text("  blanks are kept \n")
    assert secret_from(file, VARIABLE, "--token-file") == "  blanks are kept "


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"hush\nhush\n", b"hush" * LONGEST, b"\xff\xfehush"]
)
def test_a_file_that_has_no_secret_is_named_and_its_content_is_not(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "of the environment")
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"--token-file is .*token") as raised:
        secret_from(file, VARIABLE, "--token-file")
    assert "hush" not in str(raised.value)


def test_a_file_that_cannot_be_read_does_not_fall_back_to_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "of the environment")
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match="a readable file"):
            secret_from(path, VARIABLE, "--token-file")
