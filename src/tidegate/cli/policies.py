"""``tidegate policies``: the installed policies and their parameters."""

from __future__ import annotations

from inspect import cleandoc
from typing import Annotated, Any

import typer

from tidegate.cli.output import console, print_json, shown, table
from tidegate.codec import to_plain
from tidegate.policies import Parameter, available, policy_class

__all__ = ["describe_default", "describe_range", "policies"]


def policies(
    name: Annotated[
        str | None, typer.Argument(help="Show one policy with its parameters.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the installed policies with their papers, parameters and defaults."""
    names = available() if name is None else (name,)
    described = [_described(each) for each in names]
    if as_json:
        print_json(described)
        return
    out = console()
    if name is None:
        rows = table("policy", "source", "parameters and defaults")
        for policy in described:
            rows.add_row(policy["name"], policy["paper"], _defaults(policy["parameters"]))
        out.print(rows)
        out.print("\n[dim]tidegate policies NAME shows the details of one[/dim]")
        return
    policy = described[0]
    out.print(f"[bold]{shown(policy['name'])}[/bold] — {shown(policy['paper'])}")
    out.print(policy["summary"], markup=False)
    needs = ", ".join(policy["needs"]) or "nothing"
    out.print(f"\nneeds {needs}; style: {policy['style']}\n")
    rows = table("parameter", "default", "range", "meaning")
    for each in policy_class(policy["name"]).parameters():
        rows.add_row(each.name, describe_default(each.default), describe_range(each), each.doc)
    out.print(rows)


def _described(name: str) -> dict[str, Any]:
    policy = policy_class(name)
    doc = cleandoc(policy.__doc__ or "")
    return {
        "name": name,
        "paper": policy.paper,
        "summary": doc.partition("\n\n")[0].replace("\n", " "),
        "style": policy.style,
        "needs": list(policy.needs),
        "parameters": [_plain(parameter) for parameter in policy.parameters()],
    }


def _plain(parameter: Parameter) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(parameter)
    return plain


def describe_default(default: Any) -> str:
    """A default value as text."""
    if default is None:
        return "none"
    return f"{default:g}" if isinstance(default, float) else str(default) or "none"


def _defaults(parameters: list[dict[str, Any]]) -> str:
    return ", ".join(f"{p['name']} {describe_default(p['default'])}" for p in parameters) or "–"


def describe_range(parameter: Parameter) -> str:
    """The allowed values of a parameter as text."""
    if parameter.choices:
        return " | ".join(parameter.choices)
    low, high = parameter.low, parameter.high
    if low is None and high is None:
        return "true | false" if parameter.kind == "bool" else ""
    if high is None:
        return f"≥ {low:g}"
    return f"≤ {high:g}" if low is None else f"{low:g} … {high:g}"
