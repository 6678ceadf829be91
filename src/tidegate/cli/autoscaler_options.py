"""The settings of an autoscaler as options, the same for all commands that run one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer

from tidegate.cli.listening import (
    MetricsAddress,
    MetricsCertificate,
    MetricsKey,
    MetricsPort,
    MetricsTokenFile,
    served_metrics,
)
from tidegate.config import read_yaml
from tidegate.errors import InputError
from tidegate.loop.stack import check_guards, policy_from, with_share
from tidegate.policies import DEFAULT_POLICY

if TYPE_CHECKING:
    from tidegate.spark.autoscaler.attachment import Attachment
    from tidegate.spark.autoscaler.world import SloBy

__all__ = ["Share", "WithoutGuard", "attachment_from", "chosen_policy", "with_autoscaler_options"]

WithoutGuard = Annotated[
    list[str] | None,
    typer.Option(
        "--without-guard",
        help="Switch off a default guard (all: every one); repeatable.",
        metavar="NAME",
    ),
]

Share = Annotated[
    str | None,
    typer.Option(
        "--share",
        help="Share of the items to keep within the target, such as 99%; for policies that promise "
        "one, such as tide. Default: the policy's own.",
        metavar="SHARE",
        show_default=False,
    ),
]


def attachment_from(
    slo: Annotated[
        str,
        typer.Option(
            help="Latency target, from arrival to result: 5s, or by query: alerts=2s,30s.",
            metavar="TIME",
        ),
    ],
    slo_by: Annotated[
        str,
        typer.Option(
            help="What the target is about: delay (since a row could be read) or event-age.",
            metavar="WHAT",
        ),
    ] = "delay",
    share: Share = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Name of a policy, see tidegate policies; default: tide.", metavar="NAME"
        ),
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
) -> Attachment:
    """The settings of an autoscaler from options; InputError when one of them is wrong."""
    from tidegate.spark.autoscaler.attachment import Attachment

    chosen = chosen_policy(policy, settings or [], config, share)
    attachment = Attachment(
        slo=slo,
        slo_by=cast("SloBy", slo_by),
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
    return attachment


def with_autoscaler_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of an autoscaler, in place of its parameter `attachment`.

    command: a function with a parameter `attachment`, which it gets from the options.
    """
    own, options = inspect.signature(command), inspect.signature(attachment_from)

    @wraps(command)
    def wrapped(**given: Any) -> None:
        settings = {name: given.pop(name) for name in options.parameters}
        command(attachment=attachment_from(**settings), **given)

    parameters = [*options.parameters.values()]
    parameters += [p for p in own.parameters.values() if p.name != "attachment"]
    # Those without a default come first, as in any signature.
    parameters.sort(key=lambda p: p.default is not inspect.Parameter.empty)
    keyword = inspect.Parameter.KEYWORD_ONLY
    hints = _hints(attachment_from) | _hints(command)
    wrapped.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=keyword, annotation=hints[p.name]) for p in parameters]
    )
    wrapped.__annotations__ = {p.name: hints[p.name] for p in parameters}
    return wrapped


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Annotations of a function's parameters as objects."""
    inside = dict.fromkeys(("Attachment",), Any)  # imported for type checks only
    return get_type_hints(function, localns=inside, include_extras=True)


def chosen_policy(
    name: str | None, settings: list[str], config: Path | None, share: str | None = None
) -> dict[str, Any]:
    """Policy, parameters and guards, from a name and ``--set`` pairs or from a file.

    share: that the policy has to keep within the latency target; with either of them.
    """
    if config is None:
        pairs = {}
        for word in settings:
            key, equals, value = word.partition("=")
            if not equals:
                raise InputError("--set", word, "a pair", "write it as parameter=value")
            pairs[key] = value
        policy = name or DEFAULT_POLICY
        return {"policy": policy, "parameters": with_share(policy, pairs, share, "--share")}
    if name is not None or settings:
        key, value = ("--policy", name) if name is not None else ("--set", settings[0])
        raise InputError(key, value, "left out with --config", "write it into the file")
    read = read_yaml(config)
    policy_from(read)  # raises the same errors as elsewhere
    chosen = {key: value for key, value in read.items() if value is not None}
    if share is not None:
        policy, own = str(read["policy"]), chosen.get("parameters")
        chosen["parameters"] = with_share(policy, own, share, "--share")
    return chosen
