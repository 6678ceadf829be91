"""``tidegate submit``: spark-submit, with an autoscaler attached to the application."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from tidegate.cli.autoscaler_options import with_autoscaler_options
from tidegate.cli.logs import LogFormatOption
from tidegate.logs import VARIABLE
from tidegate.logs import log_format as chosen_format

if TYPE_CHECKING:
    from tidegate.spark.autoscaler.attachment import Attachment

__all__ = ["SubmitCommand", "submit"]

SPARK = "tidegate.spark"


class SubmitCommand(TyperCommand):
    """A command that accepts spark-submit's options and the application with its arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Store the options of spark-submit in the context, and parse the others."""
        from tidegate.spark.autoscaler.submit import split_arguments

        options: list[Any] = [p for p in self.get_params(ctx) if p.param_type_name == "option"]
        names: dict[bool, list[str]] = {True: [], False: []}
        for option in options:
            names[option.is_flag] += option.opts
        arguments = split_arguments(args, own_options=names[False], own_switches=names[True])
        ctx.meta[SPARK] = arguments
        return super().parse_args(ctx, [*arguments.own, "--", *arguments.app])


@with_autoscaler_options
def submit(
    ctx: typer.Context,
    attachment: Attachment,
    app: Annotated[
        list[str] | None,
        typer.Argument(
            help="The application, a Python file or a jar, and its arguments.",
            metavar="APP [ARGS]...",
            show_default=False,
        ),
    ] = None,
    controller_python: Annotated[
        str | None,
        typer.Option(
            help="For a jar or cluster mode: the Python with Tidegate where the driver runs. "
            "Default: this one; on the cluster python3.",
            metavar="PROGRAM",
        ),
    ] = None,
    agent_jar: Annotated[
        str | None,
        typer.Option(
            help="For a jar or cluster mode: the agent's jar, such as local:///opt/agent.jar in "
            "an image. Default: the one of this installation.",
            metavar="URL",
        ),
    ] = None,
    log_format: LogFormatOption = None,
) -> None:
    """Run a Spark application with spark-submit and scale its executors with the load.

    [bold]tidegate submit --slo 5s --max-executors 8 --master spark://… app.py args…[/bold]

    Options of spark-submit (--master, --conf, --packages and so on) are passed on. The application
    needs no change. The autoscaler is attached to the first session of a Python application in
    client mode. A jar, or a driver on the cluster, gets Tidegate's agent, which starts the
    autoscaler next to the driver.
    """
    from tidegate.spark.autoscaler.submit import environment, spark_submit

    form = chosen_format(log_format)
    arguments = ctx.meta[SPARK]
    command = spark_submit(arguments, attachment, controller_python, agent_jar, form)
    sys.stdout.flush()
    # This process becomes spark-submit, with its exit code, its output and its Ctrl-C.
    os.execve(command[0], command, environment(arguments.spark) | {VARIABLE: form})
