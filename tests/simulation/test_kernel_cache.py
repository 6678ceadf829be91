"""Numba's cache on disk: any change of a kernel's sources leads to new code."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numba
import pytest

import tidegate
from tidegate.lifecycle import usable_cores
from tidegate.simulation import kernels
from tidegate.theory import _first_fit, _greedy
from tidegate.theory.compiled import PREFIX, STALE_S, cache_folder

CALLER = """
import numpy as np
from tidegate.simulation.kernels.random import streams
from tidegate.simulation.kernels.stations import _draw
draws = np.zeros(3)
_draw(streams(1, 1, 1), 0, 1.0, 3, draws)
print(draws.tolist(), sum(_draw.stats.cache_hits.values()))
"""


def draw(package: Path, processes: int = 1) -> list[tuple[list[float], int]]:
    """What a kernel draws in separate processes, and how often the cache had it."""
    environment = os.environ | {"PYTHONPATH": str(package.parent)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", CALLER], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(processes)
    ]
    found = []
    for process in started:
        values, hits = process.communicate()[0].rsplit(" ", 1)
        found.append(([float(value) for value in values.strip("[]").split(",")], int(hits)))
    return found


def test_a_changed_helper_is_compiled_into_its_callers(tmp_path: Path) -> None:
    package = tmp_path / "tidegate"
    ignored = shutil.ignore_patterns("__pycache__", "static")
    shutil.copytree(Path(tidegate.__file__).parent, package, ignore=ignored)
    (before, _), other = draw(package, processes=2)  # both compile and write at the same time
    assert other[0] == before
    assert draw(package) == [(before, 1)]
    helper = package / "simulation" / "kernels" / "random.py"
    source = helper.read_text()
    changed = source.replace(
        "            return value, state\n", "            return 2.0 * value, state\n"
    )
    assert changed != source
    helper.write_text(changed)
    assert draw(package) == [([2.0 * value for value in before], 0)]


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of sources, with a user's cache next to it."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "kernel.py").write_text("step = 1\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    return folder


def fresh_folder(sources: Path) -> Path | None:
    cache_folder.cache_clear()
    return cache_folder(sources)


def test_the_folder_follows_from_the_contents_of_all_files(sources: Path) -> None:
    first = fresh_folder(sources)
    assert first is not None and first.parent == sources / "__pycache__"
    os.utime(sources / "kernel.py", (0, 0))
    assert fresh_folder(sources) == first
    (sources / "helper.py").write_text("")
    assert fresh_folder(sources) not in (first, None)
    copy = sources.with_name("copy")
    shutil.copytree(sources, copy)
    assert (fresh_folder(copy) or copy).name == (fresh_folder(sources) or sources).name


def test_caches_that_nobody_used_for_a_day_are_removed(sources: Path) -> None:
    used, (old, fresh) = (
        fresh_folder(sources),
        (sources / "__pycache__" / f"{PREFIX}{name}" for name in ("old", "fresh")),
    )
    for folder in (old, fresh):
        folder.mkdir()
        (folder / "kernel.nbi").write_text("")
    then = time.time() - STALE_S - 60
    os.utime(old, (then, then))
    assert fresh_folder(sources) == used
    assert set((sources / "__pycache__").iterdir()) == {used, fresh}


def test_a_package_that_cannot_be_written_uses_the_cache_of_the_user(sources: Path) -> None:
    (sources / "__pycache__").write_text("not a folder")
    folder, user = fresh_folder(sources), sources.with_name("cache")
    assert folder is not None and folder.is_relative_to(user / "tidegate")
    shutil.rmtree(user)
    user.write_text("not a folder either")
    assert fresh_folder(sources) is None  # each process compiles for itself


def compiled_functions() -> list[Any]:
    names = [module.name for module in pkgutil.iter_modules(kernels.__path__)]
    modules = [importlib.import_module(f"{kernels.__name__}.{name}") for name in names]
    found = [f for m in (*modules, _first_fit, _greedy) for f in vars(m).values()]
    return [function for function in found if hasattr(function, "py_func")]


def test_kernels_use_only_what_their_digest_covers() -> None:
    functions = compiled_functions()
    assert len(functions) > 20
    for function in functions:
        code, names = function.py_func.__code__, function.py_func.__globals__
        folder = Path(code.co_filename).parent
        assert function._cache.cache_path == str(cache_folder(folder))
        for used in (names.get(name) for name in code.co_names):
            if hasattr(used, "py_func"):
                assert Path(used.py_func.__code__.co_filename).parent == folder


AHEAD_MODULE = "tidegate.simulation.kernels.ahead"
AHEAD_CALL = f"from {AHEAD_MODULE} import compile_items; compile_items()"
AHEAD_COMMAND = f"import runpy; runpy.run_module({AHEAD_MODULE!r}, run_name='__main__')"
AHEAD = """
from tidegate.simulation.kernels import accounting, staged
from tidegate.simulation.kernels.ahead import _jobs, compile_items
compile_items()
here, beside, later = _jobs()
for function, types in (*here, *beside, *later):
    function.compile(types)
count = lambda functions: sum(sum(f.stats.cache_misses.values()) for f, _ in functions)
print(count(here), count(beside), count(later))
"""


def test_two_processes_compile_each_function_once(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", AHEAD]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    ours, others, later = map(int, done.stdout.split())
    assert ours == 12  # the copy has compiled the rest, where there is a core for it
    assert (others, later) == ((0, 0) if usable_cores() > 1 else (4, 1))
    again = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    assert again.stdout.split() == ["0", "0", "0"]


def test_after_the_command_of_make_setup_a_simulation_compiles_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}

    def files() -> set[Path]:
        return set(tmp_path.rglob("*.nb?"))

    subprocess.run([sys.executable, "-m", AHEAD_MODULE], env=environment, check=True)
    before = files()
    assert any(file.name.startswith("staged.run_staged-") for file in before)
    trace = tmp_path / "trace.csv"
    trace.write_text("t_s,rate\n0,5\n60,20\n120,5\n", encoding="utf-8")
    command = [sys.executable, "-m", "tidegate", "backtest", str(trace), "--policies", "drs"]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    assert files() == before


@pytest.mark.parametrize("code", [AHEAD_CALL, AHEAD_COMMAND])
def test_without_numba_nothing_is_compiled(tmp_path: Path, code: str) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert not list(tmp_path.rglob("*.nbi"))
