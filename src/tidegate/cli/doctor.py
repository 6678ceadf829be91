"""``tidegate doctor``: what keeps a job from scaling, in sentences with remedies."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperCommand

from tidegate.cli.attach import AgentCaFile, AgentTokenFile
from tidegate.cli.autoscaler_options import with_autoscaler_options
from tidegate.cli.output import console, print_json
from tidegate.cli.submit import SPARK, SubmitCommand, submit
from tidegate.codec import to_plain
from tidegate.errors import InputError
from tidegate.listening import check_place
from tidegate.model import SloByQuery
from tidegate.units import duration_s

if TYPE_CHECKING:
    from tidegate.spark.autoscaler.attachment import Attachment
    from tidegate.spark.scalability import Diagnosis, JobFacts

__all__ = ["DoctorCommand", "doctor", "show_diagnosis"]

BLOCKED = 1
SUBMIT = "tidegate.submit"
NO_SLO = "tidegate.no-slo"
COLOURS = {"blocks": "bold red", "limits": "yellow", "note": "cyan"}


def _names(params: list[Any]) -> dict[bool, list[str]]:
    """Names of options, by whether they are switches."""
    names: dict[bool, list[str]] = {True: [], False: []}
    for param in params:
        if param.param_type_name == "option":
            names[param.is_flag] += param.opts
    return names


class DoctorCommand(TyperCommand):
    """A command that accepts the command line of ``tidegate submit`` in addition to its options."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        for param in self.params:
            if param.name == "slo":
                param.required = False  # in this command alone

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Sort the words: the command's, those of submit, those of spark-submit, the job."""
        from tidegate.spark.autoscaler.submit import Arguments, split_arguments

        app = typer.Typer(add_completion=False)
        app.command(cls=SubmitCommand)(submit)
        theirs = typer.main.get_command(app)
        mine, submits = _names(self.get_params(ctx)), _names(theirs.params)
        valued = {*mine[False], *submits[False]}
        switches = {*mine[True], *submits[True]}
        arguments = split_arguments(args, own_options=valued, own_switches=switches)
        if arguments.app and not _is_application(arguments.app[0]):
            # An application has arguments, which may look like ours; an address has none.
            first, *rest = arguments.app
            more = split_arguments(rest, own_options=valued, own_switches=switches)
            arguments = Arguments(
                arguments.own + more.own, arguments.spark + more.spark, (first, *more.app)
            )
        own: list[str] = []
        only_submits: list[str] = []
        words = list(arguments.own)
        while words:
            name, equals, _ = words[0].partition("=")
            count = 2 if name in valued and not equals else 1
            (own if name in mine[True] + mine[False] else only_submits).extend(words[:count])
            words = words[count:]
        given = theirs.make_context("submit", ["--slo", "1s", *only_submits], parent=ctx)
        ctx.meta[SUBMIT] = given.params
        ctx.meta[SPARK] = arguments
        ctx.meta[NO_SLO] = not any(word.partition("=")[0] == "--slo" for word in own)
        if ctx.meta[NO_SLO]:
            own = ["--slo", "1s", *own]  # so that the other settings are checked
        return super().parse_args(ctx, [*own, "--", *arguments.app])


@with_autoscaler_options
def doctor(
    ctx: typer.Context,
    attachment: Attachment,
    job: Annotated[
        list[str] | None,
        typer.Argument(
            help="An application with its arguments, an address (http://…), the file in which an "
            "agent announced itself, or a journal.",
            metavar="APP|URL|FILE",
            show_default=False,
        ),
    ] = None,
    application: Annotated[
        str, typer.Option(help="Id of the application, for a history server.", metavar="ID")
    ] = "",
    token_file: AgentTokenFile = None,
    ca_file: AgentCaFile = None,
    wait: Annotated[
        str, typer.Option(help="Longest time to wait for a batch of each running query.")
    ] = "20s",
    resource_manager: Annotated[
        str,
        typer.Option(
            help="Address of YARN's ResourceManager. Default: by HADOOP_CONF_DIR.", metavar="URL"
        ),
    ] = "",
    kubernetes_token_file: Annotated[
        str,
        typer.Option(
            help="Token for the Kubernetes API server. Default: the pod's service account.",
            metavar="FILE",
        ),
    ] = "",
    kubernetes_ca_file: Annotated[
        str,
        typer.Option(help="Certificate of its authority. Default: the pod's.", metavar="FILE"),
    ] = "",
    kubernetes_namespace: Annotated[
        str,
        typer.Option(help="Namespace. Default: spark.kubernetes.namespace.", metavar="NAME"),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what will keep a job from scaling, and what to do about it.

    [bold]tidegate doctor --slo 5s --max-executors 8 --master spark://… app.py[/bold]
    looks at a command line of tidegate submit or spark-submit, with all its options.

    [bold]tidegate doctor http://driver:4040[/bold]
    looks at a running job: by its Spark UI, or through Tidegate's agent.

    [bold]tidegate doctor tidegate.jsonl[/bold]
    looks at what a journal says.

    The exit code is 1 if something keeps the job from being scaled at all, otherwise 0.
    """
    from tidegate.spark.autoscaler.versions import KNOWN_VERSIONS
    from tidegate.spark.doctor.configuration import facts_of_configuration
    from tidegate.spark.doctor.journal import diagnose_journal
    from tidegate.spark.doctor.kubernetes import KubernetesAccess
    from tidegate.spark.doctor.surroundings import with_cluster
    from tidegate.spark.scalability import JobFacts, diagnose

    asked = JobFacts(
        slo=None if ctx.meta[NO_SLO] else SloByQuery.read(attachment.slo, "--slo"),
        slo_by=attachment.slo_by,
        interval_s=duration_s(attachment.interval, "--interval"),
        min_executors=attachment.min_executors,
        max_executors=attachment.max_executors,
        dry_run=attachment.dry_run,
        tested_versions=KNOWN_VERSIONS,
    )
    arguments = ctx.meta[SPARK]
    first, *rest = job or [""]
    if not first and not arguments.spark:
        remedy = "name a command line with an application, an address, or a journal"
        raise InputError("job", None, "given", remedy)
    if first and not _is_application(first) and (rest or arguments.spark):
        extra = (*rest, *arguments.spark)[0]
        raise InputError("argument", extra, "left out", f"{first} is all that is looked at")
    access = KubernetesAccess(kubernetes_token_file, kubernetes_ca_file, kubernetes_namespace)
    if _is_journal(first):
        found = diagnose_journal(first)
    elif first and not _is_application(first):
        facts, subject = _running(first, asked, application, token_file, ca_file, wait)
        found = diagnose(with_cluster(facts, access, resource_manager), subject)
    else:
        _check_application(first)
        given = ctx.meta[SUBMIT]
        facts = facts_of_configuration(
            arguments, asked, given["controller_python"], given["agent_jar"]
        )
        facts = with_cluster(facts, access, resource_manager)
        found = diagnose(facts, first or "the configuration")
    if as_json:
        print_json(to_plain(found) | {"blocked": found.blocked})
    else:
        show_diagnosis(found)
    if found.blocked:
        raise typer.Exit(BLOCKED)


def _running(
    url: str,
    asked: JobFacts,
    application: str,
    token_file: Path | None,
    ca_file: Path | None,
    wait: str,
) -> tuple[JobFacts, str]:
    """The facts of a running job and its name, from its Spark UI or from its agent.

    url: an address, or the file in which an agent announced itself.
    """
    from tidegate.spark.autoscaler.agent import AgentGateway, agent_token, announced
    from tidegate.spark.doctor.driver import facts_of_driver
    from tidegate.spark.doctor.spark_ui import facts_of_ui, is_spark_ui

    wait_s = duration_s(wait, "--wait")
    if _is_address(url):
        check_place(url, "address")
        token = ""
    else:
        url, token = announced(url)
    if not token and is_spark_ui(url):
        return facts_of_ui(url, asked, application)
    if not token or token_file is not None:
        token = agent_token(token_file)
    gateway = AgentGateway(url, token, ca_file, watch_only=True)
    subject = f"{gateway.name} ({gateway.application}) at {url}"
    return facts_of_driver(gateway, asked, wait_s), subject


def _is_address(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def _is_application(name: str) -> bool:
    """Whether a word is no address, no journal and no file in which an agent announced itself."""
    return not (_is_address(name) or _is_journal(name) or _is_announcement(name))


def _is_announcement(name: str) -> bool:
    if name.endswith(".json"):  # no application is, and a damaged one is to be refused
        return True
    try:
        small = Path(name).is_file() and Path(name).stat().st_size < 10_000
        said = json.loads(Path(name).read_bytes()) if small else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(said, dict) and "url" in said


def _is_journal(name: str) -> bool:
    return ".jsonl" in Path(name).name


def _check_application(name: str) -> None:
    """Raise InputError for a Python file that is not there; a jar may be on another machine."""
    if name.endswith(".py") and "://" not in name and not Path(name).is_file():
        remedy = "name the application as tidegate submit does, an address (http://…) or a journal"
        raise InputError("application", name, "an existing Python file", remedy)


def show_diagnosis(found: Diagnosis) -> None:
    """Print a diagnosis: the findings, the worst first, then what could not be checked."""
    from tidegate.spark.scalability.findings import SEVERITIES, sentence

    out = console()
    out.print(f"[dim]{escape(found.subject)}[/dim]", soft_wrap=True)
    for finding in found.findings:
        equals = " = " if finding.key.startswith(("spark.", "--")) else ": "
        value = " is not set" if finding.value is None else f"{equals}{finding.value}"
        colour = COLOURS[finding.severity]
        out.print(
            f"\n[{colour}]{finding.severity:6}[/{colour}]  [bold]{escape(finding.key)}[/bold]"
            f"{escape(value)}",
            soft_wrap=True,
        )
        _paragraph(out, sentence(finding.why))
        _paragraph(out, f"Remedy: {finding.remedy.rstrip('.')}.", "green")
    because: dict[str, list[str]] = {}
    for missing in found.not_checked:
        because.setdefault(missing.because, []).append(missing.what)
    for reason, what in because.items():
        out.print("\n[bold]not checked[/bold]")
        for one in what:
            _paragraph(out, f"- {one}")
        _paragraph(out, f"because {reason}.")
    blocks, limits, notes = (
        sum(finding.severity == severity for finding in found.findings) for severity in SEVERITIES
    )
    out.print(
        f"\n[bold]blocks: {blocks}, limits: {limits}, notes: {notes}[/bold]; "
        f"{len(found.passed)} checks found nothing, {len(found.not_checked)} could not be made."
    )


def _paragraph(out: Console, text: str, style: str = "") -> None:
    """Print indented text without blanks at the ends of its lines."""
    indent = " " * 8
    for line in wrap(text, max(40, out.width - len(indent)), break_long_words=False,
                     break_on_hyphens=False):  # fmt: skip
        out.print(f"{indent}{escape(line)}", style=style or None, soft_wrap=True)
