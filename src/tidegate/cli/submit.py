"""``tidegate submit``: spark-submit, with an autoscaler attached to the application."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from tidegate.config import read_yaml
from tidegate.errors import InputError
from tidegate.loop.stack import policy_from

__all__ = ["SubmitCommand", "chosen_policy", "submit"]

SPARK = "tidegate.spark"


class SubmitCommand(TyperCommand):
    """A command that sorts out spark-submit's options and the application before its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Leave the options of spark-submit in the context, and read ours."""
        from tidegate.spark.autoscaler.command import split_words

        options: list[Any] = [p for p in self.get_params(ctx) if p.param_type_name == "option"]
        names: dict[bool, list[str]] = {True: [], False: []}
        for option in options:
            names[option.is_flag] += option.opts
        words = split_words(args, own_options=names[False], own_switches=names[True])
        ctx.meta[SPARK] = words
        return super().parse_args(ctx, [*words.own, "--", *words.app])


def submit(
    ctx: typer.Context,
    slo: Annotated[
        str, typer.Option(help="Within this an item should be processed.", metavar="TIME")
    ],
    app: Annotated[
        list[str] | None,
        typer.Argument(
            help="The application, a Python file, and its own arguments.",
            metavar="APP.PY [ARGS]...",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="See tidegate policies; default: drs.", metavar="NAME"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A parameter of it, as often as needed.", metavar="KEY=VALUE"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="A file with policy, parameters and guards instead.", metavar="FILE"),
    ] = None,
    min_executors: Annotated[int, typer.Option(help="Never fewer.")] = 1,
    max_executors: Annotated[int | None, typer.Option(help="Never more.")] = None,
    interval: Annotated[str, typer.Option(help="Time between two decisions.")] = "10s",
    stabilise: Annotated[
        str, typer.Option(help="An executor goes only after it was superfluous for so long.")
    ] = "60s",
    journal: Annotated[
        Path, typer.Option(help="One line a turn; continued if it is there.")
    ] = Path("tidegate.jsonl"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Decide, touch nothing, and add up in the end.")
    ] = False,
    price_per_hour: Annotated[float, typer.Option(help="Of an executor, in $.")] = 0.0,
    billing_unit: Annotated[str, typer.Option(help="By which it is paid.")] = "1h",
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve Prometheus metrics there, on 127.0.0.1; 0: any port.")
    ] = None,
) -> None:
    """Run a Spark application with spark-submit and let its executors follow the load.

    [bold]tidegate submit --slo 5s --max-executors 8 --master spark://… app.py args…[/bold]

    Options of spark-submit (--master, --conf, --packages and so on) go to spark-submit. The
    application needs no change: the autoscaler is attached to its first session.
    """
    from tidegate.codec import to_json
    from tidegate.spark.autoscaler.attach import Attachment
    from tidegate.spark.autoscaler.command import environment, spark_submit

    chosen = chosen_policy(policy, settings or [], config)
    attachment = Attachment(
        slo=slo,
        **chosen,
        min_executors=min_executors,
        max_executors=max_executors,
        interval=interval,
        stabilise=stabilise,
        journal=str(journal),
        dry_run=dry_run,
        price_per_hour=price_per_hour,
        billing_unit=billing_unit,
        metrics_port=metrics_port,
    )
    attachment.check()
    words = ctx.meta[SPARK]
    command = spark_submit(words, to_json(attachment))
    sys.stdout.flush()
    # This process becomes spark-submit: its exit code, its output and Ctrl-C are its own.
    os.execve(command[0], command, environment(words.spark))


def chosen_policy(name: str | None, settings: list[str], config: Path | None) -> dict[str, Any]:
    """Policy, parameters and guards, by name with ``--set`` pairs or from a file."""
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
    policy_from(read)  # the same complaints as everywhere
    return {key: value for key, value in read.items() if value is not None}
