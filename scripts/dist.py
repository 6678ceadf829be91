"""Build the wheel and the source archive, check them, and use the wheel as a newcomer would.

The wheel goes into a clean environment without development tools. The README's quick start and the
tutorial are run there, block by block, on a real cluster. Run it with ``make dist``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from shutil import rmtree

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
PAGES = ("README.md", "docs/tutorial.md")
NEEDED = (
    "tidegate/py.typed",
    "tidegate/dashboard/static/index.html",
    "tidegate/spark/autoscaler/driver.py",
)
"""Files that no import needs and a careless build would leave out."""
DEVELOPMENT = ("pytest", "mypy", "ruff", "hypothesis")


def run(*words: str | Path, **more: str) -> None:
    """Run a command in the repository; the script ends when it fails."""
    print("$", *words, flush=True)
    subprocess.run([str(word) for word in words], cwd=ROOT, env={**os.environ, **more}, check=True)


def check(condition: bool, complaint: str) -> None:
    """End with a sentence unless a condition holds."""
    if not condition:
        sys.exit(f"dist: {complaint}")


def build() -> Path:
    """Build both archives and check what is in them; the wheel."""
    rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST)
    (wheel,), (archive,) = list(DIST.glob("*.whl")), list(DIST.glob("*.tar.gz"))
    with zipfile.ZipFile(wheel) as file:
        inside = file.namelist()
        for name in NEEDED:
            check(name in inside, f"the wheel lacks {name}")
        strangers = {name.split("/")[0] for name in inside} - {"tidegate"}
        check(all(".dist-info" in name for name in strangers), f"the wheel has {strangers}")
        sources = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src").rglob("*.py")}
        check(sources <= set(inside), f"the wheel lacks {sorted(sources - set(inside))[:3]}")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
        for name in ("README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "tests/conftest.py"):
            check(name in names, f"the source archive lacks {name}")
        check(not any(name.startswith((".venv", "out/")) for name in names), "it has leftovers")
    return wheel


def main() -> None:
    """Build, check, install, follow the pages."""
    wheel = build()
    home = ROOT / "out" / "dist"
    rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    quiet = ("--quiet", "--disable-pip-version-check")
    run(python, "-m", "pip", "install", *quiet, "-c", "constraints.txt",
        f"{wheel}[spark,dashboard,learn]")  # fmt: skip
    tools = f"import importlib.util as u; print([t for t in {DEVELOPMENT} if u.find_spec(t)])"
    found = subprocess.check_output([python, "-c", tools], text=True).strip()
    check(found == "[]", f"the clean environment has development tools: {found}")
    for page in PAGES:
        run(python, "-m", "tests.docs.blocks", page, PYTHONPATH="")
    print(f"dist: {wheel.name} and its source archive are in {DIST.relative_to(ROOT)}/")


if __name__ == "__main__":
    main()
