"""``tidegate submit``: spark-submit, with an autoscaler attached to the application."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from tidegate.cli.listening import (
    MetricsAddress,
    MetricsCertificate,
    MetricsKey,
    MetricsPort,
    MetricsTokenFile,
    served_metrics,
)
from tidegate.cli.logs import LogFormatOption
from tidegate.config import read_yaml
from tidegate.errors import InputError
from tidegate.logs import VARIABLE
from tidegate.logs import log_format as chosen_format
from tidegate.loop.stack import check_guards, policy_from

__all__ = ["SubmitCommand", "WithoutGuard", "chosen_policy", "submit"]

SPARK = "tidegate.spark"
WithoutGuard = Annotated[
    list[str] | None,
    typer.Option(
        "--without-guard",
        help="Switch off a default guard (all: every one); repeatable.",
        metavar="NAME",
    ),
]


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


def submit(
    ctx: typer.Context,
    slo: Annotated[
        str,
        typer.Option(
            help="Latency target, from arrival to result: 5s, or by query: alerts=2s,30s.",
            metavar="TIME",
        ),
    ],
    app: Annotated[
        list[str] | None,
        typer.Argument(
            help="The application, a Python file, and its arguments.",
            metavar="APP.PY [ARGS]...",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Name of a policy, see tidegate policies; default: drs.", metavar="NAME"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A parameter of the policy; repeatable.", metavar="KEY=VALUE"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="A YAML file with policy, parameters and guards.", metavar="FILE"),
    ] = None,
    min_executors: Annotated[int, typer.Option(help="Lower limit of executors.")] = 1,
    max_executors: Annotated[int | None, typer.Option(help="Upper limit of executors.")] = None,
    interval: Annotated[str, typer.Option(help="Time between two decisions.")] = "10s",
    stabilise: Annotated[
        str, typer.Option(help="Release an executor only after it was not needed for this time.")
    ] = "60s",
    when_blind: Annotated[
        str,
        typer.Option(
            help="When measurements are missing: hold, maximum, or a number of executors.",
            metavar="WHAT",
        ),
    ] = "hold",
    blind_after: Annotated[
        str, typer.Option(help="How long measurements must be missing before that.")
    ] = "60s",
    initial_executors: Annotated[
        int | None, typer.Option(help="Executors to ask for until the first measurements.")
    ] = None,
    scheduled_minimum: Annotated[
        str,
        typer.Option(
            help="Minimum by the time of day: 'weekdays 08:00-18:00: 4, sat 10:00-12:00: 2'.",
            metavar="PERIODS",
            show_default=False,
        ),
    ] = "",
    time_zone: Annotated[
        str, typer.Option(help="Time zone of the scheduled minimum.", metavar="NAME")
    ] = "UTC",
    without_guard: WithoutGuard = None,
    journal: Annotated[
        Path, typer.Option(help="Journal, one line a turn; an existing file is continued.")
    ] = Path("tidegate.jsonl"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Decide, change nothing, and report at the end.")
    ] = False,
    price_per_hour: Annotated[float, typer.Option(help="Price of an executor, in $.")] = 0.0,
    billing_unit: Annotated[str, typer.Option(help="Time unit of the price.")] = "1h",
    metrics_port: MetricsPort = None,
    metrics_address: MetricsAddress = None,
    metrics_token_file: MetricsTokenFile = None,
    metrics_certificate: MetricsCertificate = None,
    metrics_key: MetricsKey = None,
    log_format: LogFormatOption = None,
) -> None:
    """Run a Spark application with spark-submit and scale its executors with the load.

    [bold]tidegate submit --slo 5s --max-executors 8 --master spark://… app.py args…[/bold]

    Options of spark-submit (--master, --conf, --packages and so on) are passed on. The application
    needs no change: the autoscaler is attached to its first session.
    """
    from tidegate.codec import to_json
    from tidegate.spark.autoscaler.submit import Attachment, environment, spark_submit

    chosen = chosen_policy(policy, settings or [], config)
    attachment = Attachment(
        slo=slo,
        **chosen,
        min_executors=min_executors,
        max_executors=max_executors,
        interval=interval,
        stabilise=stabilise,
        when_blind=when_blind,
        blind_after=blind_after,
        initial_executors=initial_executors,
        scheduled_minimum=scheduled_minimum,
        time_zone=time_zone,
        without_guards=tuple(check_guards(without_guard or (), "--without-guard")),
        journal=str(journal),
        dry_run=dry_run,
        price_per_hour=price_per_hour,
        billing_unit=billing_unit,
        metrics=served_metrics(
            metrics_port, metrics_address, metrics_token_file, metrics_certificate, metrics_key
        ),
    )
    attachment.check()
    form = chosen_format(log_format)
    arguments = ctx.meta[SPARK]
    command = spark_submit(arguments, to_json(attachment))
    sys.stdout.flush()
    # This process becomes spark-submit, with its exit code, its output and its Ctrl-C.
    os.execve(command[0], command, environment(arguments.spark) | {VARIABLE: form})


def chosen_policy(name: str | None, settings: list[str], config: Path | None) -> dict[str, Any]:
    """Policy, parameters and guards, from a name and ``--set`` pairs or from a file."""
    if config is None:
        pairs = {}
        for word in settings:
            key, equals, value = word.partition("=")
            if not equals:
                raise InputError("--set", word, "a pair", "write it as parameter=value")
            pairs[key] = value
        return {"policy": name or "drs", "parameters": pairs}
    if name is not None or settings:
        key, value = ("--policy", name) if name is not None else ("--set", settings[0])
        raise InputError(key, value, "left out with --config", "write it into the file")
    read = read_yaml(config)
    policy_from(read)  # raises the same errors as elsewhere
    return {key: value for key, value in read.items() if value is not None}
