"""Sends the driver's copy of Tidegate to the executors of a cluster, with compiled kernels.

The package is sent as one zip file that each executor unpacks once. Numba uses a compiled kernel
only if the modification time of its source is unchanged, to the nanosecond. So the times are sent
too, and executors with the same kind of processor have nothing to compile. The dependencies of
`tidegate` (NumPy, Numba, Pydantic and so on) must be installed on the executors.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import tidegate
from tidegate.policies import GROUP

__all__ = ["ZIP", "code_finder", "write_zip"]

ZIP = "tidegate-code.zip"
TIMES = "tidegate-times.json"


def write_zip(folder: Path) -> Path:
    """Write the package with its policy entry points to a zip file in a folder."""
    home = Path(tidegate.__file__).parent
    target = folder / ZIP
    times = {}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(home.rglob("*")):
            if file.is_file() and not file.name.endswith(".pyc"):
                name = file.relative_to(home.parent).as_posix()
                archive.write(file, name)
                times[name] = file.stat().st_mtime_ns
        archive.writestr(TIMES, json.dumps(times))
        info = f"tidegate-{tidegate.__version__}.dist-info"
        head = f"Metadata-Version: 2.1\nName: tidegate\nVersion: {tidegate.__version__}\n"
        archive.writestr(f"{info}/METADATA", head)
        ours = [p for p in entry_points(group=GROUP) if p.value.startswith("tidegate.")]
        lines = [f"[{GROUP}]", *(f"{point.name} = {point.value}" for point in ours), ""]
        archive.writestr(f"{info}/entry_points.txt", "\n".join(lines))
    return target


def code_finder(local: bool) -> Callable[[], None]:
    """A function for executors that makes ``import tidegate`` find the driver's code.

    local: the executors run on this machine and read its files.

    The function refers to nothing outside itself, because it runs before `tidegate` can be imported
    on the executor.
    """
    here = str(Path(tidegate.__file__).parents[1]) if local else None
    zip_name, times_name = ZIP, TIMES

    def find_code() -> None:
        import json
        import os
        import shutil
        import sys
        import tempfile
        import zipfile
        from pathlib import Path

        root = here
        if root is None:
            from pyspark import SparkFiles

            base = Path(SparkFiles.getRootDirectory())
            root = str(base / "tidegate-code")
            if not Path(root).is_dir():
                scratch = Path(tempfile.mkdtemp(dir=base))
                with zipfile.ZipFile(base / zip_name) as archive:
                    archive.extractall(scratch)
                times = json.loads((scratch / times_name).read_text())
                for name, stamp in times.items():
                    os.utime(scratch / name, ns=(stamp, stamp))
                try:
                    scratch.rename(root)
                except OSError:  # another process of this executor was first
                    shutil.rmtree(scratch, ignore_errors=True)
        if root not in sys.path:
            sys.path.insert(0, root)

    return find_code
