"""The jar of the agent: a plugin for Spark drivers that answers a controller elsewhere.

Its sources are in ``agent/java``; ``make agent`` compiles them, and wheels contain the jar.
"""

from __future__ import annotations

from pathlib import Path

from tidegate.errors import BackendError

__all__ = ["JAR", "PLUGIN", "agent_jar"]

JAR = Path(__file__).with_name("tidegate-agent.jar")
PLUGIN = "io.tidegate.spark.TidegatePlugin"
"""The value of ``spark.plugins`` that switches the agent on."""


def agent_jar() -> Path:
    """The jar; BackendError when this installation has none."""
    if not JAR.is_file():
        raise BackendError(
            f"{JAR.name} is missing: run make agent in the source tree, or install the wheel"
        )
    return JAR
