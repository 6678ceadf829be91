"""Pages of the documentation that are made from the code; MkDocs runs this as a hook.

A policy, guard, parameter, command, option or metric without a word about it ends the build: what
is not documented does not exist for a user. So does Markdown that comes out as it went in. The
design notes become pages as well.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tidegate.cli import app
from tidegate.cli.policies import describe_default, describe_range
from tidegate.loop.stack import GUARDS
from tidegate.policies import available, policy_class
from tidegate.report.metrics import METRICS

ROOT = Path(__file__).parent.parent
PYTHON = {
    "tidegate.model": "what is measured and what is wanted",
    "tidegate.policies.base": "what a policy is",
    "tidegate.loop.controller": "the loop",
    "tidegate.loop.journal": "one line a turn",
    "tidegate.loop.replay": "another policy over a journal",
    "tidegate.loop.stack": "files that people write",
    "tidegate.testing": "for authors of policies",
    "tidegate.report.metrics": "for Prometheus",
    "tidegate.spark.autoscaler.autoscaler": "a running Spark application",
    "tidegate.spark.local.cluster": "a cluster on this machine",
    "tidegate.spark.streams.topology": "operators joined by topics",
    "tidegate.apps.application": "streaming applications, each with its reference",
    "tidegate.fleet.queries": "continuous queries",
}
"""The modules of the Python reference, with the reason to open them."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the site."""
    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    for note in sorted((ROOT / "designs").glob("*.md")):
        text = note.read_text(encoding="utf-8")
        files.append(File.generated(config, f"background/designs/{note.name}", content=text))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """End the build when a page shows Markdown that was not understood."""
    text = re.sub(r"(?s)<(pre|code)\b.*?</\1>|<[^>]+>", "", html)
    raw = re.search(r".*(?:\]\(|\*\*).*", text)
    if raw is not None:
        raise PluginError(f"{page.file.src_uri} shows Markdown as it is written: {raw[0].strip()}")
    return html


def policies() -> str:
    """Every policy with its parameters."""
    parts = [
        "# Policies\n\nMade from the code. `tidegate policies NAME` prints the same. Parameters are"
        " given as `parameters:` in a settings file, `parameters={…}` in Python and `--set` on the"
        " command line where a command has it; durations may be written `500ms`, `30s`, `5m`.\n"
    ]
    for name in available():
        policy = policy_class(name)
        needs = ", ".join(f"`{need}`" for need in policy.needs) or "nothing"
        parts += [
            f"## `{name}`\n\n*{policy.paper}.* {_idea(policy, name)}\n",
            f"Style: {policy.style}. Does not scale in without: {needs}.\n",
            _parameters(name, policy.parameters()),
        ]
    return "\n".join(parts)


def guards() -> str:
    """Every guard with its settings."""
    parts = [
        "# Guards\n\nMade from the code. A guard wraps a policy and has one concern; when it binds,"
        " the plan shows the raw target, the bounded target and why. In this order, from the"
        " innermost to the outermost:\n"
    ]
    for name, guard in GUARDS.items():
        parts += [f"## `{name}`\n\n{_idea(guard, name)}\n", _parameters(name, guard.parameters())]
    return "\n".join(parts)


def commands() -> str:
    """The whole command line."""
    parts = ["# Command line\n\nMade from the code; every command has `--help`.\n"]
    for path, command in _commands(typer.main.get_command(app), ("tidegate",)):
        words = " ".join(path)
        if not command.help:
            raise PluginError(f"{words} has no help")
        parts.append(f"## `{words}`\n\n{_paragraphs(command.help)}\n")
        rows = [_option(words, parameter) for parameter in command.params if not _usual(parameter)]
        if rows:
            parts.append("| option | default | |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def metrics() -> str:
    """Every metric."""
    rows = []
    for name, (kind, text, labels) in METRICS.items():
        if not text:
            raise PluginError(f"metric {name} has no help")
        rows.append(f"| `{name}` | {kind} | {', '.join(labels) or '–'} | {text} |")
    return (
        "# Metrics\n\nMade from the code. What was not measured is absent, never zero. "
        "`deploy/grafana/tidegate.json` is a dashboard over them, `deploy/prometheus/alerts.yaml` "
        "has examples of alerts. Spark's own metrics are Spark's to export: set "
        "`spark.ui.prometheus.enabled=true`.\n\n"
        "| metric | kind | labels | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def python() -> str:
    """The public names of the modules that users import."""
    parts = ["# Python\n\nMade from the code: the names that users import.\n"]
    for module_name, why in PYTHON.items():
        module = importlib.import_module(module_name)
        parts.append(f"## `{module_name}` — {why}\n")
        for name in module.__all__:
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                continue
            if not value.__doc__:
                raise PluginError(f"{module_name}.{name} has no docstring")
            parts.append(f"### `{name}`\n\n```text\n{inspect.cleandoc(value.__doc__)}\n```\n")
    return "\n".join(parts)


PAGES: dict[str, Callable[[], str]] = {
    "reference/policies.md": policies,
    "reference/guards.md": guards,
    "reference/commands.md": commands,
    "reference/metrics.md": metrics,
    "reference/python.md": python,
}


def _idea(documented: Any, name: str) -> str:
    doc = inspect.cleandoc(documented.__doc__ or "")
    if not doc:
        raise PluginError(f"{name} has no docstring")
    return doc.partition("\n\n")[0].replace("\n", " ")


def _parameters(owner: str, parameters: Any) -> str:
    rows = []
    for parameter in parameters:
        if not parameter.doc:
            raise PluginError(f"{owner}: {parameter.name} is not documented")
        rows.append(
            f"| `{parameter.name}` | {describe_default(parameter.default)} "
            f"| {describe_range(parameter).replace('|', 'or')} | {parameter.doc} |"
        )
    if not rows:
        return "It has no settings.\n"
    return "| setting | default | range | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            if not hasattr(child, "commands"):
                yield (*path, name), child
            yield from _commands(child, (*path, name))


def _option(words: str, parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    names = parameter.opts if is_option else [parameter.name.upper()]
    text = getattr(parameter, "help", None)
    if not text:
        raise PluginError(f"{words}: {names[0]} has no help")
    default = parameter.default
    shown = "" if default in (None, False, ()) or callable(default) else f"`{default}`"
    cell = re.sub(r"\s+", " ", text).replace("|", "or")
    return f"| {', '.join(f'`{name}`' for name in names)} | {shown} | {cell} |"


def _usual(parameter: Any) -> bool:
    return parameter.name in ("help", "version") or getattr(parameter, "hidden", False)


def _paragraphs(text: str) -> str:
    """Help as Markdown: Rich's own marks and the line breaks of a terminal are left out."""
    return re.sub(r"\[/?[a-z ]+\]", "", text.replace("\b", "")).strip()
