"""The programs of the control plane: the API server, built once from source, and etcd.

The API server is built with Go from the module in ``apiserver/``, whose ``go.sum`` pins the digest
of every source. etcd is the one on the path, else Debian's package, which is unpacked into the same
folder and not installed, so that no service starts. Run ``make kubernetes``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tidegate.errors import BackendError

__all__ = ["VERSION", "api_server", "etcd", "fetch", "program_folder"]

VERSION = "1.31.4"
"""The version of Kubernetes; `apiserver/go.mod` names the same."""
SOURCE = Path(__file__).parent / "apiserver"


def program_folder() -> Path:
    """The folder of the programs: ``TIDEGATE_KUBERNETES``, or a folder in the user's cache."""
    given = os.environ.get("TIDEGATE_KUBERNETES")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else cache / "tidegate" / f"kubernetes-{VERSION}"


def api_server() -> Path:
    """The API server; BackendError if it is not built yet."""
    return _present(program_folder() / "kube-apiserver")


def etcd() -> Path:
    """The store of the API server; BackendError if there is none."""
    found = shutil.which("etcd")
    return Path(found) if found else _present(program_folder() / "etcd")


def _present(program: Path) -> Path:
    if not program.is_file():
        raise BackendError(f"{program.name} is not in {program.parent}: run make kubernetes")
    return program


def fetch() -> Path:
    """Build and unpack what is missing; return the folder. BackendError says what is needed."""
    folder = program_folder()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "kube-apiserver").is_file():
        _build(folder)
    if shutil.which("etcd") is None and not (folder / "etcd").is_file():
        _unpack_etcd(folder)
    return folder


def _build(folder: Path) -> None:
    if shutil.which("go") is None:
        raise BackendError(
            "Go is missing, and the API server is built with it: install Go 1.22 or later"
        )
    print(f"building kube-apiserver {VERSION} into {folder}: five minutes of CPU, once", flush=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch, "kube-apiserver")
        version = f"-X k8s.io/component-base/version.gitVersion=v{VERSION}"
        _run(
            ["go", "build", "-trimpath", "-ldflags", f"-s -w {version}", "-o", str(made), "."],
            SOURCE,
            "kube-apiserver could not be built",
            {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"},
        )
        made.replace(folder / made.name)  # another process may have been faster


def _unpack_etcd(folder: Path) -> None:
    remedy = "install etcd 3.4 or later, so that it is on the path"
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise BackendError(f"etcd is missing: {remedy}")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        failed = f"etcd could not be downloaded; {remedy}"
        _run(["apt-get", "download", "-qq", "etcd-server"], Path(scratch), failed)
        package = next(Path(scratch).glob("*.deb"))
        _run(["dpkg-deb", "-x", str(package), scratch], folder, failed)
        Path(scratch, "usr", "bin", "etcd").replace(folder / "etcd")


def _run(command: list[str], folder: Path, failed: str, more: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(more or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        raise BackendError(f"{failed}: {last[0]}")


if __name__ == "__main__":
    try:
        print(f"Kubernetes is in {fetch()}")
    except BackendError as problem:
        sys.exit(str(problem))
