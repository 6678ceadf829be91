"""Compile Tidegate's agent for Spark drivers and pack it into a jar, with the JDK and nothing else.

    python scripts/build_agent.py

The jar is compiled against the jars of the installed PySpark. It has the same bytes for the same
sources and the same compiler.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tidegate.errors import TidegateError
from tidegate.spark.agent import JAR
from tidegate.spark.local.processes import spark_home

SOURCES = Path(__file__).parents[1] / "agent" / "java"
LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The time stamp of all files in the jar; the first that the format knows."""


def build(jar: Path = JAR) -> Path:
    """Compile the sources and replace the jar."""
    javac = shutil.which("javac")
    if javac is None:
        raise SystemExit("there is no javac: install a JDK (Debian: openjdk-17-jdk-headless)")
    with tempfile.TemporaryDirectory() as folder:
        classes = Path(folder)
        files = sorted(map(str, SOURCES.rglob("*.java")))
        # Spark's jars name other jars that PySpark does not contain; exceptions are not serialised.
        options = ["-Xlint:all,-path,-serial", "-Werror", "-proc:none", "--release", "11"]
        jars = str(spark_home() / "jars" / "*")
        subprocess.run([javac, *options, "-cp", jars, "-d", folder, *files], check=True)
        made = classes / "agent.jar"
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            manifest = "Manifest-Version: 1.0\r\nImplementation-Title: tidegate-agent\r\n\r\n"
            archive.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", LONG_AGO), manifest)
            for path in sorted(classes.rglob("*.class")):
                entry = zipfile.ZipInfo(path.relative_to(classes).as_posix(), LONG_AGO)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, path.read_bytes())
        jar.parent.mkdir(parents=True, exist_ok=True)
        part = jar.with_suffix(".part")
        shutil.copyfile(made, part)
        part.replace(jar)
    return jar


if __name__ == "__main__":
    try:
        made = build()
    except (TidegateError, subprocess.CalledProcessError) as error:
        sys.exit(f"the agent was not built: {error}")
    print(f"{made.name}: {made.stat().st_size / 1000:.0f} kB")
