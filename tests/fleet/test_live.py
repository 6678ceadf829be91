"""Two real hosts, a real move, a real kill -9: the sinks equal a batch computation exactly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.java
def test_two_real_hosts_a_move_and_a_death(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "tests.fleet.live", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["moved_to"][0] and facts["pause_s"] > 0
    assert facts["equal"] == [True, True] and all(rows > 10 for rows in facts["rows"])
    assert facts["hang_lost"]
    assert facts["ended"]

    # Endpoints: with token and TLS the contract holds; without them, the error shows no token.
    said = facts["refusals"]
    token = said.pop("token").removeprefix("token=")
    assert "requires a token" in said["no token"] and "TLS handshake failed" in said["certificate"]
    assert "rejects our token" in said["wrong token"]
    assert "rejects our token" in said["wrong token, TLS"]
    assert token and all(token not in text and "wrong" not in text for text in said.values())

    # As docs/guides/fleet.md states, the loads of the queries add up to that of their host.
    cpu = facts["sums"]["cpu"]
    assert all(busy == pytest.approx(parts, abs=1e-6) for busy, parts, _ in cpu)
    assert all(busy > 0 and 0 <= split <= busy + 1e-6 for busy, _, split in cpu)
    assert all(v is not None and v >= 0 for row in facts["sums"]["traffic"] for v in row)
