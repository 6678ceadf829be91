"""Jars from Maven Central, by name, version and SHA-256, kept in the user's cache.

Ivy downloads them. It is part of the `pyspark` package, so nothing else has to be installed.
Mirrors and proxies are configured for Java (``-Dhttps.proxyHost`` in ``JAVA_TOOL_OPTIONS``).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidegate.errors import BackendError
from tidegate.spark.local.processes import java_program, run_to_end, spark_home

__all__ = ["Artifact", "cache_folder", "fetch_jars"]

FETCH_S = 600.0

Artifact = tuple[str, str, str]
"""A jar by its group, its name and its version."""


def cache_folder(variable: str, name: str) -> Path:
    """A folder for jars: that in an environment variable, or one in the user's cache.

    variable: the environment variable. name: the folder in the cache.
    """
    given = os.environ.get(variable)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else cache / "tidegate" / name


def fetch_jars(
    title: str,
    folder: Path,
    wanted: Mapping[str, Sequence[Artifact]],
    digests: Mapping[str, str],
) -> Path:
    """Download jars if their folder does not exist; return the folder.

    Raises BackendError when Maven Central cannot be reached, or when a jar is not the one that is
    expected. The folder is created as a whole or not at all.

    title: what the jars are, for messages. folder: where they are kept. wanted: jars by subfolder;
    ``name->master`` leaves out what a jar depends on, ``name->default`` includes it. digests:
    SHA-256 by file name, one for each jar.
    """
    if folder.exists():
        return folder
    ivy = next(iter((spark_home() / "jars").glob("ivy-*.jar")), None)
    if ivy is None:
        raise BackendError(f"PySpark contains no Ivy: put {title} into {folder} by hand")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        module, jars = Path(scratch, "ivy.xml"), Path(scratch, "jars")
        module.write_text(_module(wanted), encoding="utf-8")
        pattern = f"{jars}/[conf]/[artifact]-[revision].[ext]"
        command = [java_program(), "-jar", ivy, "-cache", f"{scratch}/cache", "-ivy", module]
        succeeded, output = run_to_end([*map(str, command), "-retrieve", pattern], FETCH_S)
        if not succeeded:
            why = [line.strip() for line in output if "not found" in line] or output[-1:]
            raise BackendError(
                f"{title} could not be downloaded from Maven Central ({why[0]}): check the "
                "network; a proxy is set with JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=…"
            )
        _check(title, jars, digests)
        if not folder.exists():  # another process may have been faster
            shutil.move(jars, folder)
    return folder


def _check(title: str, folder: Path, digests: Mapping[str, str]) -> None:
    """Raise BackendError unless the folder has exactly the expected jars."""
    found = {
        jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.rglob("*.jar")
    }
    wrong = sorted(name for name in {*found, *digests} if found.get(name) != digests.get(name))
    if wrong:
        raise BackendError(
            f"{title} are not kept: {', '.join(wrong)} is missing or has another SHA-256 than "
            "expected; check what the mirror of Maven Central delivers"
        )


def _module(wanted: Mapping[str, Sequence[Artifact]]) -> str:
    """The wanted jars as an Ivy file."""
    parts = "".join(f'<conf name="{conf.partition("->")[0]}"/>' for conf in wanted)
    jars = "".join(
        f'<dependency org="{org}" name="{name}" rev="{version}" conf="{conf}"/>'
        for conf, artifacts in wanted.items()
        for org, name, version in artifacts
    )
    return (
        '<ivy-module version="2.0"><info organisation="tidegate" module="jars"/>'
        f"<configurations>{parts}</configurations><dependencies>{jars}</dependencies></ivy-module>"
    )
