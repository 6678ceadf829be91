"""Run the tests of `make test` as two processes side by side.

Tests that start a JVM or a browser spend much of their time waiting for events, and the others need
only one core. The output of the live tests is shown as it comes; that of the others follows when
they have ended.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

# A -m replaces that of pyproject.toml, so what only runs with a command of its own is named again.
LIVE = "(java or browser) and not (agent or kubernetes or trust or yarn)"
OTHERS = "not java and not browser and not kubernetes"

# What pytest returns for "no tests ran" counts as a failure too: a marker is misspelt then.
PYTEST = [sys.executable, "-m", "pytest", "--durations=10"]


def main() -> int:
    """Run both; the exit code is 0 if both passed."""
    with tempfile.TemporaryFile("w+") as said:
        others = subprocess.Popen(
            ["nice", "-n", "10", *PYTEST, "-m", OTHERS], stdout=said, stderr=subprocess.STDOUT
        )
        try:
            live = subprocess.run([*PYTEST, "-m", LIVE], check=False).returncode
            code = others.wait()
        finally:
            others.terminate()
            others.wait()
        said.seek(0)
        print("\n=== tests without Java and browser ===", flush=True)
        sys.stdout.write(said.read())
    return 1 if live or code else 0


if __name__ == "__main__":
    sys.exit(main())
