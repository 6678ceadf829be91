from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidegate.credentials import LONGEST, kept_secret, secret_from
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
    file.touch(mode=0o600)
    for written in ("of the file", "of the file\n", "of the file\r\n"):
        file.write_bytes(written.encode())
        assert secret_from(file, VARIABLE, "--token-file") == "of the file"
    file.write_text("  blanks are kept \n")
    assert secret_from(file, VARIABLE, "--token-file") == "  blanks are kept "


def test_the_longest_secret_is_read_and_a_longer_one_is_another_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text("x" * LONGEST)
    assert secret_from(file, VARIABLE, "--token-file") == "x" * LONGEST
    file.write_text("x" * (LONGEST + 1))
    with pytest.raises(InputError, match="a file with one line"):
        secret_from(file, VARIABLE, "--token-file")


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"hush\nhush\n", b"hush" * LONGEST, b"\xff\xfehush"]
)
def test_a_file_that_has_no_secret_is_named_and_its_content_is_not(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "of the environment")
    file = tmp_path / "token"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(InputError, match=r"--token-file is .*token") as raised:
        secret_from(file, VARIABLE, "--token-file")
    assert "hush" not in str(raised.value)


def test_a_file_that_cannot_be_read_does_not_fall_back_to_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "of the environment")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, why in (("none", "No such file"), ("", "a directory"), ("binary", "it is not text")):
        with pytest.raises(InputError, match=f"a readable file: .*{why}"):
            secret_from(tmp_path / name, VARIABLE, "--token-file")


@pytest.mark.parametrize(
    ("mode", "accepted"),
    [(0o600, True), (0o400, True), (0o440, True), (0o640, True), (0o644, False), (0o602, False),
     (0o660, False), (0o666, False)],
)  # fmt: skip
def test_a_file_that_others_can_read_or_write_is_refused(
    mode: int, accepted: bool, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("hush-hush-hush")
    file.chmod(mode)
    if accepted:
        assert secret_from(file, VARIABLE, "--token-file") == "hush-hush-hush"
        return
    with pytest.raises(InputError, match=r"other users cannot read: run chmod 600 .*token") as said:
        secret_from(file, VARIABLE, "--token-file")
    assert "hush" not in str(said.value)


def test_a_secret_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    file = tmp_path / "state" / "token"
    secret, new = kept_secret(file, "token")
    assert new and len(secret) >= 32
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert kept_secret(file, "token") == (secret, False)
    assert kept_secret(tmp_path / "other", "token")[0] != secret
    file.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        kept_secret(file, "token")
    (tmp_path / "plain").touch()
    with pytest.raises(InputError, match=r"token is .*a readable file"):
        kept_secret(tmp_path / "plain" / "token", "token")
    assert kept_secret(tmp_path / "new" / "folders" / "token", "token")[1]
    with pytest.raises(InputError, match="a file that can be made: File name too long"):
        kept_secret(tmp_path / ("x" * 300), "token")


def test_a_secret_that_was_not_written_to_its_end_leaves_no_file_or_can_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"

    def full(descriptor: int, mode: str) -> None:
        os.close(descriptor)
        raise OSError(28, "No space left on device")

    def full_and_removed(descriptor: int, mode: str) -> None:
        file.unlink()  # by another process
        full(descriptor, mode)

    for fail in (full, full_and_removed):
        with monkeypatch.context() as context:
            context.setattr(os, "fdopen", fail)
            with pytest.raises(InputError, match="No space left on device"):
                kept_secret(file, "token")
        assert not file.exists()

    def interrupted(descriptor: int, mode: str) -> None:
        os.close(descriptor)
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(os, "fdopen", interrupted)
        with pytest.raises(KeyboardInterrupt):
            kept_secret(file, "token")
    assert not file.exists()
    file.touch(mode=0o600)  # as a process leaves it that is killed before it has written
    with pytest.raises(InputError, match=r"token is .*: remove it, and a new one is made"):
        kept_secret(file, "token")
    file.unlink()
    assert kept_secret(file, "token")[1]
