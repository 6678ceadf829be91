"""The reference of the agent has all that its sources have, and nothing else."""

from __future__ import annotations

import re

from tests.docs.blocks import ROOT

SOURCES = ROOT / "agent" / "java" / "io" / "tidegate" / "spark"
PAGE = (ROOT / "docs" / "reference" / "agent.md").read_text(encoding="utf-8")


def source(name: str) -> str:
    return (SOURCES / f"{name}.java").read_text(encoding="utf-8")


def test_each_setting_is_in_the_table() -> None:
    used = {
        f"spark.tidegate.{key}" for key in re.findall(r'PREFIX \+ "([\w.]+)"', source("Settings"))
    }
    assert len(used) >= 7
    described = set(re.findall(r"^\| `(spark\.tidegate\.[\w.]+)` \|", PAGE, re.MULTILINE))
    assert described == used


def test_each_variable_of_the_environment_is_named() -> None:
    every = "".join(path.read_text(encoding="utf-8") for path in sorted(SOURCES.glob("*.java")))
    used = set(re.findall(r'"(TIDEGATE_\w+)"', every))
    assert used and used == set(re.findall(r"`(TIDEGATE_\w+)`", PAGE))


def test_each_request_is_in_the_table() -> None:
    agent = source("Agent")
    answered = {f"GET {path}" for path in re.findall(r'\bread\("(/v1/[^"]+)"', agent)}
    answered |= {f"POST {path}" for path in re.findall(r'\bchange\("(/v1/[^"]+)"', agent)}
    answered |= set(re.findall(r'"((?:GET|POST|DELETE) /v1/[^"]+)"', agent))
    assert len(answered) > 15
    described = re.findall(r"^\| `((?:GET|POST|DELETE) /v1/[\w/-]+)[?`]", PAGE, re.MULTILINE)
    assert sorted(described) == sorted(answered)


def test_the_default_port_of_a_controller_is_the_one_on_the_page() -> None:
    from tidegate.spark.autoscaler.agent import DEFAULT_URL

    port = DEFAULT_URL.rpartition(":")[2]
    assert f"looks at {port} by default" in PAGE
