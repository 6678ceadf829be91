"""Jars by name: kept as a whole if they are the expected ones, otherwise not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tidegate.errors import BackendError
from tidegate.spark.local import maven
from tidegate.spark.local.maven import cache_folder, fetch_jars

WANTED = {"some->master": (("org.example", "one", "1.0"),)}
CONTENT = b"what Maven Central delivers"
DIGESTS = {"one-1.0.jar": hashlib.sha256(CONTENT).hexdigest()}


class Ivy:
    """Stands for the program that downloads. jars: what it delivers; none: it fails."""

    def __init__(self, *jars: str) -> None:
        self.jars = jars
        self.modules: list[str] = []

    def run(self, command: Sequence[str], timeout_s: float) -> tuple[bool, list[str]]:
        self.modules.append(Path(command[command.index("-ivy") + 1]).read_text(encoding="utf-8"))
        for name in self.jars:
            jar = Path(command[-1].partition("[conf]")[0], "some", name)
            jar.parent.mkdir(parents=True, exist_ok=True)
            jar.write_bytes(CONTENT)
        return bool(self.jars), ["downloading …", ":: org.example#one;1.0: not found", "bye"]


def with_ivy(monkeypatch: pytest.MonkeyPatch, *jars: str) -> Ivy:
    ivy = Ivy(*jars)
    monkeypatch.setattr(maven, "run_to_end", ivy.run)
    return ivy


def test_jars_are_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ivy = with_ivy(monkeypatch, "one-1.0.jar")
    for _ in range(2):
        folder = fetch_jars("the jars", tmp_path / "kept", WANTED, DIGESTS)
    assert [jar.name for jar in (folder / "some").iterdir()] == ["one-1.0.jar"]
    (module,) = ivy.modules
    assert '<conf name="some"/>' in module
    assert '<dependency org="org.example" name="one" rev="1.0" conf="some->master"/>' in module
    assert list(tmp_path.iterdir()) == [folder], "nothing else is left"


@pytest.mark.parametrize(
    ("jars", "digests", "named"),
    [
        (["one-1.0.jar"], {"one-1.0.jar": "0" * 64}, "one-1.0.jar"),
        (["one-1.0.jar", "two-2.0.jar"], DIGESTS, "two-2.0.jar"),
        (["one-1.0.jar"], {**DIGESTS, "two-2.0.jar": "0" * 64}, "two-2.0.jar"),
    ],
)
def test_jars_that_nobody_expects_are_not_kept(
    jars: list[str],
    digests: dict[str, str],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_ivy(monkeypatch, *jars)
    with pytest.raises(BackendError, match=f"the jars are not kept: {named} is missing or"):
        fetch_jars("the jars", tmp_path / "kept", WANTED, digests)
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_ivy(monkeypatch)
    with pytest.raises(BackendError, match=r"could not be downloaded .*one;1.0: not found"):
        fetch_jars("the jars", tmp_path / "kept", WANTED, DIGESTS)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_that_of_the_variable_or_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SOME_JARS", raising=False)
    assert cache_folder("SOME_JARS", "some-1") == tmp_path / "tidegate" / "some-1"
    monkeypatch.setenv("SOME_JARS", "elsewhere")
    assert cache_folder("SOME_JARS", "some-1") == Path("elsewhere")
