"""Compilation by Numba, with a cache on disk that a change of any kernel invalidates.

Numba's own cache watches only the file of a function. A kernel that uses functions or constants
from other files would go on running old code after a change there. Here the cache of a function is
in a folder whose name is a digest of all Python files next to the function's file. A compiled
function may therefore use compiled functions and constants from its own folder only.

The digest covers the files of this module and of `arrays` too, as they decide what code is made.
It depends on contents alone, so a copy of the package on another machine finds the cache
that was copied with it. Processes with different versions of the code never share files.
"""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, overload

import numba
from numba.core import event
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

__all__ = ["cache_folder", "compiled", "entry_of"]

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
PREFIX = "tidegate-kernels-"
STALE_S = 86_400.0
"""Time without use after which the cache of other code is removed, in seconds."""


@overload
def compiled(function: Kernel) -> Kernel: ...
@overload
def compiled(
    function: None = None, *, inside: bool = False, **options: Any
) -> Callable[[Kernel], Kernel]: ...
def compiled(function: Any = None, *, inside: bool = False, **options: Any) -> Any:
    """Decorator like `numba.njit(cache=True)`, for kernels that are spread over files.

    inside: whether only compiled functions call it. Python cannot call it then, and it takes less
    time to compile: code that unpacks twenty arrays is longer than many a kernel.
    options: as of `numba.njit`. Without a writable folder functions are compiled in each process.

    >>> @compiled(error_model="numpy")
    ... def inverse(x: float) -> float:
    ...     return 1 / x
    >>> inverse(0.0)
    inf
    """

    def compile_later(function: Any) -> Any:
        # Nothing calls kernels from C.
        wrappers: Any = {"no_cfunc_wrapper": True, "no_cpython_wrapper": inside}
        dispatcher: Any = numba.njit(**wrappers, **options)(function)
        jit = hasattr(dispatcher, "enable_caching")  # False with NUMBA_DISABLE_JIT
        if jit and cache_folder(Path(function.__code__.co_filename).parent):
            dispatcher._cache = _KernelCache(function)  # type: ignore[no-untyped-call]
        return dispatcher

    return compile_later if function is None else compile_later(function)


def entry_of(kernel: Any, *arguments: Any) -> Any:
    """The compiled function of a kernel for arguments of these types, called like the kernel.

    A call of a kernel begins with the types of its arguments, which takes 0.3 µs for each
    `Structure`: as much as two seconds of a flow. Without that, nothing checks them, so later
    arguments must have the same types: arrays with as many dimensions and the same elements in
    order. A number may be a float only, since a first one that is whole would cut off those after
    it.

    >>> @compiled
    ... def twice(x: float) -> float:
    ...     return 2 * x
    >>> entry_of(twice, 1.0)(2.5)
    5.0
    """
    if any(type(each) is int for each in arguments):
        raise TypeError(f"an entry of {kernel.__name__} takes floats, and no whole numbers")
    if not hasattr(kernel, "compile"):  # with NUMBA_DISABLE_JIT
        return kernel
    kinds = tuple(numba.typeof(each) for each in arguments)  # type: ignore[no-untyped-call]
    return kernel.compile(kinds)


@cache
def cache_folder(sources: Path) -> Path | None:
    """The folder with the compiled code of a folder of sources; None if none can be written."""
    files = sorted(sources.glob("*.py"))
    if not files:  # such as functions typed in at a prompt
        return None
    files += [Path(__file__), Path(__file__).with_name("arrays.py")]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    name = PREFIX + digest.hexdigest()[:16]
    for parent in _parents(sources):
        folder = parent / name
        try:
            _touch(folder)
        except OSError:
            continue
        _remove_stale(parent, name)
        return folder
    return None


def _parents(sources: Path) -> Iterator[Path]:
    """Where a cache may be: as Numba is configured, next to the sources, or in the user's cache."""
    place = hashlib.sha256(str(sources.resolve()).encode()).hexdigest()[:16]
    if configured := getattr(numba.config, "CACHE_DIR", ""):
        yield Path(configured) / place
    yield sources / "__pycache__"
    with suppress(RuntimeError):  # no home
        user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        yield Path(user) / "tidegate" / place


def _touch(folder: Path) -> None:
    """Make a folder, mark it as used now, and raise OSError if it cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()
    os.utime(folder)


def _remove_stale(parent: Path, current: str) -> None:
    """Remove the caches of other code that nobody used for a day.

    A process that still runs such code compiles again if it misses a file.
    """
    before_s = time.time() - STALE_S
    for folder in parent.glob(PREFIX + "*"):
        try:
            if folder.name != current and folder.stat().st_mtime < before_s:
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # another process was faster
            continue


class _NoCollection(event.Listener):
    """Switches the garbage collector off while Numba compiles, which is a sixth of the time.

    The compiler makes some million objects that live until it is done.
    """

    def __init__(self) -> None:
        self._depth, self._enabled = 0, False

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            self._enabled = gc.isenabled()
            gc.disable()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and self._enabled:
            gc.enable()


event.register("numba:compile", _NoCollection())  # type: ignore[no-untyped-call]


class _Locator(_CacheLocator):
    """Locates the cache of a function for Numba."""

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        self._line, self._folder = function.__code__.co_firstlineno, folder

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator | None:
        folder = cache_folder(Path(py_func.__code__.co_filename).parent)
        return None if folder is None else cls(py_func, folder)

    def ensure_cache_path(self) -> None:
        _touch(self._folder)

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._folder.name

    def get_disambiguator(self) -> str:
        return str(self._line)


class _KernelCacheImpl(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012


class _KernelCache(FunctionCache):
    _impl_class = _KernelCacheImpl
