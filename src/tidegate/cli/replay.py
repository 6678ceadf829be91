"""``tidegate replay``: where another policy would have decided differently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import track

from tidegate.cli.autoscaler_options import chosen_policy
from tidegate.cli.backtest import WithoutGuard
from tidegate.cli.output import console, print_json, shown, table
from tidegate.codec import to_plain
from tidegate.errors import InputError
from tidegate.guards import EveryQueryRuns
from tidegate.lab.backtest import check_guards
from tidegate.loop.journal import Turn, read_journal
from tidegate.loop.replay import Comparison
from tidegate.loop.replay import replay as compare
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.policies import create
from tidegate.policies.base import Policy, Situation

__all__ = ["replay"]


def _stack(choice: dict[str, Any], journal: Path, without: list[str]) -> Policy:
    """The policy with its guards, as it would run live with the journal's latency target."""
    options = StackOptions(choice.get("parameters") or {}, choice.get("guards") or {}, without)
    create(choice["policy"], **(choice.get("parameters") or {}))  # settings before files
    turn = next((turn for turn in read_journal(journal) if turn.snapshot is not None), None)
    readings = turn.snapshot.operators if turn is not None and turn.snapshot is not None else ()
    batches = any(reading.batches is not None for reading in readings)
    operators = turn.snapshot.topology.operators if turn is not None and turn.snapshot else ()
    targets = [operator.slo_s for operator in operators if operator.slo_s is not None]
    largest_s = max(targets, default=None if turn is None else turn.slo_s)
    situation = Situation(largest_s, micro_batches=batches)
    fleet = turn is not None and EveryQueryRuns.name in turn.policy
    return build_stack(
        choice["policy"], situation, options, kind="fleet" if fleet else "application"
    )


def replay(
    journal: Annotated[Path, typer.Argument(help="A journal that Tidegate wrote.")],
    policy: Annotated[
        str | None, typer.Option(help="Policy to decide with.", metavar="NAME")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Parameter of the policy; repeatable.", metavar="KEY=VALUE"),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="File with policy, parameters and guards.", metavar="FILE")
    ] = None,
    without_guard: WithoutGuard = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Decide the snapshots of a journal again, and print where another policy differs.

    The snapshots were taken while the recorded policy decided, so this shows where the two
    policies disagree, not what the outcome would have been.
    """
    if policy is None and config is None:
        raise InputError("--policy or --config", "neither", "one of the two")
    choice = chosen_policy(policy, settings or [], config)
    without = check_guards(without_guard or (), "--without-guard")
    other = _stack(choice, journal, list(without))
    turns = _with_progress(read_journal(journal), quiet=as_json)
    rows = list(compare(turns, other, seed))
    if not rows:
        remedy = "run a controller with a journal first"
        raise InputError("journal", str(journal), "a journal with decisions", remedy)
    if as_json:
        print_json(_summary(rows, other) | {"turns": [_plain(row) for row in rows]})
    else:
        _show(rows, other)


def _with_progress(turns: Iterable[Turn], quiet: bool) -> Iterator[Turn]:
    out = console()
    if quiet or not out.is_terminal:
        return iter(turns)
    return iter(track(turns, "replaying", console=out, transient=True))


def _summary(rows: list[Comparison], other: Policy) -> dict[str, object]:
    return {
        "policy": other.describe(),
        "decisions": len(rows),
        "different": sum(not row.agrees for row in rows),
        "mean_hosts_recorded": sum(r.recorded.bounded_target for r in rows) / len(rows),
        "mean_hosts_other": sum(r.other.bounded_target for r in rows) / len(rows),
    }


def _plain(row: Comparison) -> dict[str, object]:
    return {
        "number": row.number,
        "time_s": row.time_s,
        "agrees": row.agrees,
        "hosts_recorded": row.recorded.bounded_target,
        "hosts_other": row.other.bounded_target,
        "steps": [str(step) for step in row.steps],
        "reasons": [to_plain(reason) for reason in row.other.reasons],
        "bindings": [to_plain(binding) for binding in row.other.bindings],
    }


def _show(rows: list[Comparison], other: Policy) -> None:
    out = console()
    different = [row for row in rows if not row.agrees]
    if different:
        listed = table("turn", "time", "hosts", "other", "instances", "why", numbers="rrrr ")
        for row in different:
            why = row.other.bindings[-1].why if row.other.bindings else ""
            reasons = "; ".join(reason.text for reason in row.other.reasons)
            listed.add_row(
                str(row.number),
                f"{row.time_s:g} s",
                str(row.recorded.bounded_target),
                str(row.other.bounded_target),
                _instances(row),
                reasons or why or "no reason given",
            )
        out.print(listed)
        out.print()
    summary = _summary(rows, other)
    out.print(
        f"[bold]{shown(other.describe(), 1000)}[/bold] would have decided differently in "
        f"{len(different)} of {len(rows)} turns; mean hosts: "
        f"{summary['mean_hosts_recorded']:.2f} recorded, {summary['mean_hosts_other']:.2f} replayed"
    )


def _instances(row: Comparison) -> str:
    """Return the operators whose number of instances differs."""
    was, would = row.recorded.deployment.counts, row.other.deployment.counts
    names = sorted({*was, *would})
    return ", ".join(f"{n} {was[n]}→{would[n]}" for n in names if was[n] != would[n]) or "–"
