"""``tidegate attach``: when a controller that an agent has started ends."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.cli.helpers import COMMAND
from tidegate.codec import to_json
from tidegate.spark.autoscaler.attachment import Attachment

SILENT = "http://127.0.0.1:9"
"""An address at which nobody listens."""


def test_a_controller_that_an_agent_has_started_ends_with_the_driver() -> None:
    variables = {
        "TIDEGATE_AGENT_URL": SILENT,
        "TIDEGATE_AGENT_TOKEN": "a-long-random-word",
        "TIDEGATE_CONTROLLER_ID": "one",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    words = ["attach", "--wait", "1h", "--attachment", to_json(Attachment("5s"))]
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | variables,
    ) as process:
        try:
            assert process.stderr is not None
            assert "waiting for the agent" in process.stderr.readline()
            assert process.stdin is not None
            process.stdin.close()  # as the kernel does when the driver dies
            assert process.wait(60) == 0
        finally:
            process.kill()
