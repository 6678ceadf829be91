"""``tidegate attach``: scale an application that already runs, through its agent."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from tidegate.cli.autoscaler_options import with_autoscaler_options
from tidegate.cli.logs import LogFormatOption
from tidegate.errors import BackendError
from tidegate.units import duration_s

if TYPE_CHECKING:
    from tidegate.spark.autoscaler.attachment import Attachment

__all__ = ["AgentCaFile", "AgentTokenFile", "AttachCommand", "attach"]

FAILED = 1

AgentTokenFile = Annotated[
    Path | None,
    typer.Option(
        help="File with the agent's token. Default: the variable TIDEGATE_AGENT_TOKEN.",
        metavar="FILE",
    ),
]
AgentCaFile = Annotated[
    Path | None, typer.Option(help="Certificates to check the agent's with.", metavar="FILE")
]


class AttachCommand(TyperCommand):
    """A command that takes its settings from options, or all of them from the agent."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take ``--attachment JSON`` out of the words, which an agent passes to its controller."""
        from tidegate.spark.autoscaler.submit import CONTROLLER

        if CONTROLLER in args[:-1]:
            at = args.index(CONTROLLER)
            ctx.meta[CONTROLLER] = args[at + 1]
            args = [*args[:at], *args[at + 2 :], "--slo", "1s"]
        return super().parse_args(ctx, args)


@with_autoscaler_options
def attach(
    ctx: typer.Context,
    attachment: Attachment,
    agent: Annotated[
        str | None,
        typer.Argument(
            help="Address of the agent, or the file in which it announced itself. Default: the "
            "variable TIDEGATE_AGENT_URL, else http://127.0.0.1:8271.",
            metavar="URL|FILE",
            show_default=False,
        ),
    ] = None,
    token_file: AgentTokenFile = None,
    ca_file: AgentCaFile = None,
    application: Annotated[
        str,
        typer.Option(
            help="Id or name of the application; another one at the address is left alone.",
            metavar="ID|NAME",
            show_default=False,
        ),
    ] = "",
    wait: Annotated[str, typer.Option(help="Longest time to wait for the agent.")] = "60s",
    follow: Annotated[
        bool,
        typer.Option("--follow", help="After the application, wait for the next at the address."),
    ] = False,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Wait while another controller is at work."),
    ] = False,
    log_format: LogFormatOption = None,
) -> None:
    """Scale an application that runs with Tidegate's agent, until it ends or Ctrl-C.

    [bold]tidegate attach --slo 5s --max-executors 8 http://127.0.0.1:8271[/bold]

    The driver may be in any language and on any cluster. It needs the agent's jar and
    --conf spark.plugins=io.tidegate.spark.TidegatePlugin. When this command ends, the executors
    stay as they are, and another controller may attach.
    """
    from tidegate.spark.autoscaler.agent import DEFAULT_URL, NotThere, agent_token, announced
    from tidegate.spark.autoscaler.attach import Place, run_controller
    from tidegate.spark.autoscaler.attachment import read_attachment
    from tidegate.spark.autoscaler.submit import CONTROLLER

    if CONTROLLER in ctx.meta:
        attachment = read_attachment(ctx.meta[CONTROLLER])
        standby = True  # another controller may be at work
    else:
        attachment.metrics.listening()  # raises an error before anything is scaled
    where = agent or os.environ.get("TIDEGATE_AGENT_URL") or DEFAULT_URL
    wait_s = duration_s(wait, "--wait")

    def place() -> Place:
        if "://" in where:
            # An agent with TLS passes its certificate to the controller that it starts.
            own = "" if agent else os.environ.get("TIDEGATE_AGENT_CERTIFICATE", "")
            return Place(where, agent_token(token_file), ca_file, certificate=own)
        if not Path(where).exists():
            raise NotThere(f"no agent has announced itself in {where}")
        url, token = announced(where)
        if token and token_file is None:
            return Place(url, token, ca_file, announced=True)
        return Place(url, agent_token(token_file), ca_file)

    try:
        code = run_controller(place, attachment, wait_s, follow, standby, log_format, application)
    except BackendError as error:
        # Not the code of wrong settings: what failed may succeed at the next attempt.
        print(f"tidegate: {error}", file=sys.stderr)
        code = FAILED
    sys.exit(code)
