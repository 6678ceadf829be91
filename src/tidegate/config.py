"""Read and write YAML files: settings and topologies."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegate.codec import from_plain, to_plain
from tidegate.errors import InputError, TopologyError
from tidegate.model.topology import Operator, Topology
from tidegate.outputs import write_output
from tidegate.units import finite

__all__ = ["load_topology", "read_yaml", "save_topology"]

MOST_BYTES = 10_000_000
"""Size of a YAML file, at most."""
DEEPEST = 200
"""Brackets in brackets of a YAML file, at most."""


def load_topology(path: str | os.PathLike[str]) -> Topology:
    """A topology from a YAML file with operators, sources and edges, named as in the model.

    An operator may give ``service_rate_per_s`` in place of ``service_time_s``.
    """
    plain = read_yaml(path)
    operators = plain.get("operators")
    if not isinstance(operators, list) or not all(isinstance(o, dict) for o in operators):
        remedy = "write `operators:` with one `- name: …` for each"
        raise TopologyError("operators", operators, "a list of operators", remedy)
    for operator in operators:
        if "service_rate_per_s" in operator:
            key = f"operator {operator.get('name')}: service_rate_per_s"
            rate = finite(operator.pop("service_rate_per_s"), key, above=0, error=TopologyError)
            operator["service_time_s"] = 1 / rate
    return from_plain(Topology, plain)


def save_topology(topology: Topology, path: str | os.PathLike[str], heading: str = "") -> None:
    """Write a topology in the form that `load_topology` reads, without defaults.

    heading: a comment for the first line.
    """
    import yaml

    usual = to_plain(Operator("usual"))
    plain = {
        "operators": [_unusual(to_plain(o), usual) for o in topology.operators],
        "sources": [_unusual(to_plain(s), {"rate_per_s": None}) for s in topology.sources],
        "edges": [_unusual(to_plain(e), {"ratio": 1.0, "counted": False}) for e in topology.edges],
    }
    text = yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, allow_unicode=True)
    write_output(path, f"# {heading}\n{text}" if heading else text, "file")


def _depth(text: str) -> int:
    """Brackets that are open at the same time, at most, in a text."""
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest


def _unusual(plain: dict[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in plain.items() if key not in usual or usual[key] != value}


def read_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The mapping in a YAML file; an error with one sentence otherwise."""
    import yaml

    try:
        with Path(path).open("rb") as file:  # it may be a device that never ends
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise InputError("file", str(path), f"at most {MOST_BYTES / 1e6:g} MB")
        text = data.decode("utf-8")
        if _depth(text) > DEEPEST:  # the parser takes seconds to find out
            raise RecursionError
        read = yaml.safe_load(text)
    except InputError:
        raise
    except OSError as error:
        raise InputError("file", str(path), "readable", error.strerror or "") from None
    except RecursionError:
        raise InputError("file", str(path), "valid YAML", "it is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:  # a date that is none is a ValueError
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        problem = getattr(error, "problem", None) or str(error) or "it is not YAML"
        raise InputError("file", f"{path}{where}", "valid YAML", str(problem)) from None
    if not isinstance(read, dict):
        raise InputError("file", str(path), "a YAML mapping", "write keys with values in it")
    return read
