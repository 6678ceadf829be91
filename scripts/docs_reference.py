"""Pages of the documentation that are generated from the code.

A policy, guard, parameter, command, option or metric without a description fails the build, and so
does Markdown that is not rendered. The design notes become pages as well.

``scripts/docs_hook.py`` adds these pages to the site that MkDocs builds. For any other site
generator, ``python scripts/docs_reference.py FOLDER`` writes all pages into a folder, generated
ones included (see designs/014).
"""

from __future__ import annotations

import importlib
import inspect
import posixpath
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

from tidegate.cli import app
from tidegate.cli.policies import describe_default, describe_range
from tidegate.loop.stack import WRAPPERS
from tidegate.policies import available, policy_class
from tidegate.report.metrics import METRICS
from tidegate.spark.scalability import CHECKS

ROOT = Path(__file__).parent.parent
PYTHON = {
    "tidegate.model": "snapshots, plans and topologies",
    "tidegate.policies.base": "the base class of policies",
    "tidegate.loop.controller": "the control loop",
    "tidegate.loop.journal": "one line per turn",
    "tidegate.loop.replay": "run another policy on a journal",
    "tidegate.loop.stack": "settings files and the policy stack",
    "tidegate.testing": "checks and fakes for your tests",
    "tidegate.report.metrics": "metrics for Prometheus",
    "tidegate.spark.autoscaler.autoscaler": "scale a running Spark application",
    "tidegate.spark.local.cluster": "a Spark cluster on this machine",
    "tidegate.spark.streams.topology": "operators connected by topics",
    "tidegate.apps.application": "sample applications, each with a reference",
    "tidegate.fleet.queries": "the queries of a fleet",
}
"""The modules of the Python reference, with their subjects."""


class PageError(Exception):
    """Something that users see has no description, or is not shown as intended."""


def generated() -> dict[str, str]:
    """The text of all generated pages, by path: the reference and the design notes."""
    pages = {path: make() for path, make in PAGES.items()}
    for note in sorted((ROOT / "designs").glob("*.md")):
        pages[f"background/designs/{note.name}"] = note.read_text(encoding="utf-8")
    return pages


def with_site_links(path: str, text: str) -> str:
    """A page whose links to design notes lead to their pages in the site.

    In the repository they lead to the folder `designs`, so that they work there as well. path: of
    the page in `docs`.
    """
    notes = posixpath.relpath("background/designs", posixpath.dirname(path))
    return text.replace("](../../designs/", f"]({notes}/")


def write_pages(folder: Path) -> None:
    """Write all pages, with pictures, into a folder that any site generator can build."""
    shutil.copytree(ROOT / "docs", folder, dirs_exist_ok=True)
    for page in folder.rglob("*.md"):
        path = page.relative_to(folder).as_posix()
        page.write_text(with_site_links(path, page.read_text("utf-8")), "utf-8")
    for path, text in generated().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def check_rendered(page: str, html: str) -> None:
    """Fail if a page shows Markdown that was not rendered."""
    text = re.sub(r"(?s)<(pre|code)\b.*?</\1>|<[^>]+>", "", html)
    raw = re.search(r".*(?:\]\(|\*\*).*", text)
    if raw is not None:
        raise PageError(f"{page} shows Markdown as it is written: {raw[0].strip()}")


def policies() -> str:
    """Every policy with its parameters."""
    parts = [
        "# Policies\n\nGenerated from the code. `tidegate policies NAME` prints the same. Set"
        " parameters with `parameters:` in a settings file, `parameters={…}` in Python, or `--set`"
        " on the command line. Write durations as `500ms`, `30s` or `5m`.\n"
    ]
    for name in available():
        policy = policy_class(name)
        needs = ", ".join(f"`{need}`" for need in policy.needs) or "none"
        parts += [
            f"## `{name}`\n\n*{policy.paper}.* {_idea(policy, name)}\n",
            f"Style: {policy.style}. Metrics without which it does not scale in: {needs}.\n",
            _parameters(name, policy.parameters()),
        ]
    return "\n".join(parts)


def guards() -> str:
    """Every observation wrapper and guard with its parameters."""
    parts = [
        "# Guards\n\nGenerated from the code. A guard wraps a policy and limits one thing. When it"
        " changes a plan, the plan shows the target before and after, and the reason. `trend` is an"
        " observation wrapper: it changes what the policy sees and limits nothing. All of them are"
        " set under `guards:` in a settings file. They apply in this order, from the innermost to"
        " the outermost:\n"
    ]
    for name, wrapper in WRAPPERS.items():
        parts.append(f"## `{name}`\n\n{_idea(wrapper, name)}\n")
        parts.append(_parameters(name, wrapper.parameters()))
    return "\n".join(parts)


def commands() -> str:
    """The whole command line."""
    parts = ["# Command line\n\nGenerated from the code. Every command has `--help`.\n"]
    for path, command in _commands(typer.main.get_command(app), ("tidegate",)):
        words = " ".join(path)
        if not command.help:
            raise PageError(f"{words} has no help")
        parts.append(f"## `{words}`\n\n{_paragraphs(command.help)}\n")
        rows = [_option(words, parameter) for parameter in command.params if not _usual(parameter)]
        if rows:
            parts.append("| option | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def metrics() -> str:
    """Every metric."""
    rows = []
    for name, (kind, text, labels) in METRICS.items():
        if not text:
            raise PageError(f"metric {name} has no help")
        rows.append(f"| `{name}` | {kind} | {', '.join(labels) or '–'} | {text} |")
    return (
        "# Metrics\n\nGenerated from the code. A metric that was not measured is absent, never "
        "zero. `deploy/grafana/tidegate.json` is a Grafana dashboard for these metrics, and "
        "`deploy/prometheus/alerts.yaml` contains example alerts. To export Spark's own metrics, "
        "set `spark.ui.prometheus.enabled=true`.\n\n"
        "| metric | kind | labels | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def python() -> str:
    """The public names of the modules that users import."""
    parts = ["# Python\n\nGenerated from the code: the names that users import.\n"]
    for module_name, why in PYTHON.items():
        module = importlib.import_module(module_name)
        parts.append(f"## `{module_name}` — {why}\n")
        for name in module.__all__:
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                continue
            if not value.__doc__:
                raise PageError(f"{module_name}.{name} has no docstring")
            parts.append(f"### `{name}`\n\n```text\n{inspect.cleandoc(value.__doc__)}\n```\n")
    return "\n".join(parts)


def checks() -> str:
    """Every check of the doctor."""
    rows = []
    for name, check in CHECKS.items():
        makers = "`submit`, `attach`, `Autoscaler`" if check.needs == "settings" else "–"
        rows.append(f"| `{name}` | {check.about} | {_idea(check.run, name)} | {makers} |")
    return (
        "# Checks\n\nGenerated from the code: what `tidegate doctor` looks at before a job starts "
        "and while it runs ([guide](../guides/doctor.md)). The commands in the last column refuse "
        "a job for what such a check finds to block.\n\n"
        "| check | looks at | finds | made by |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


PAGES: dict[str, Callable[[], str]] = {
    "reference/policies.md": policies,
    "reference/guards.md": guards,
    "reference/commands.md": commands,
    "reference/checks.md": checks,
    "reference/metrics.md": metrics,
    "reference/python.md": python,
}


def _idea(documented: Any, name: str) -> str:
    doc = inspect.cleandoc(documented.__doc__ or "")
    if not doc:
        raise PageError(f"{name} has no docstring")
    return doc.partition("\n\n")[0].replace("\n", " ")


def _parameters(owner: str, parameters: Any) -> str:
    rows = []
    for parameter in parameters:
        if not parameter.doc:
            raise PageError(f"{owner}: {parameter.name} is not documented")
        rows.append(
            f"| `{parameter.name}` | {describe_default(parameter.default)} "
            f"| {describe_range(parameter).replace('|', 'or')} | {parameter.doc} |"
        )
    if not rows:
        return "It has no parameters.\n"
    return "| parameter | default | range | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


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
        raise PageError(f"{words}: {names[0]} has no help")
    default = parameter.default
    shown = "" if default in (None, False, ()) or callable(default) else f"`{default}`"
    cell = re.sub(r"\s+", " ", text).replace("|", "or")
    return f"| {', '.join(f'`{name}`' for name in names)} | {shown} | {cell} |"


def _usual(parameter: Any) -> bool:
    return parameter.name in ("help", "version") or getattr(parameter, "hidden", False)


def _paragraphs(text: str) -> str:
    """Help as Markdown, without Rich's markup and the line breaks of a terminal."""
    return re.sub(r"\[/?[a-z ]+\]", "", text.replace("\b", "")).strip()


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
