"""A live view of a run: lines that stay in place in a terminal, one line per turn in a log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidegate.cli.output import bar, console, plain
from tidegate.errors import JournalError
from tidegate.lifecycle import Service
from tidegate.loop.journal import Turn
from tidegate.model import Snapshot
from tidegate.report.queries import (
    delay_of,
    independent,
    items_per_s,
    judged,
    judged_of,
    limit_of,
    queries_of,
)
from tidegate.report.summary import capacity_of, decisions_of, lag_of, rate_of, summarise
from tidegate.units import show_duration
from tidegate.workloads import sparkline

__all__ = ["LiveView", "turn_line", "view"]

WIDTH = 40
DECISIONS = 4
NAME = 24
"""Characters of a query's name at most."""
QUERIES = 8
"""Queries in the view at most, the worst first; the rest are counted."""
BLOCKS = {"running": "■", "starting": "◔", "draining": "▽"}


class LiveView(Service):
    """Shows turns as they happen.

    slo_s: latency target, in seconds. out: where to print; by default the terminal or a log.
    """

    def __init__(self, slo_s: float, out: Console | None = None) -> None:
        self.slo_s = slo_s
        self.turns: list[Turn] = []
        self.out = out or console()
        self.phase = ""
        self._live = (
            Live(console=self.out, auto_refresh=False, vertical_overflow="crop")
            if self.out.is_terminal
            else None
        )

    def say(self, phase: str) -> None:
        """Show the current phase."""
        self.phase = phase
        if self._live is None:
            self.out.print(phase, highlight=False)
        else:
            self._refresh()

    def turn(self, turn: Turn) -> None:
        """Show a turn."""
        self.turns.append(turn)
        if self._live is None:
            self.out.print(turn_line(turn, self.turns[0], self.slo_s), soft_wrap=True)
        else:
            self._refresh()

    def start(self) -> Self:
        """Take over the lines of the terminal."""
        if self._live is not None:
            self._live.start()
        return self

    def stop(self) -> None:
        """Leave the terminal as it is."""
        if self._live is not None:
            self._live.stop()

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(view(self.turns, self.slo_s, self.phase), refresh=True)


def turn_line(turn: Turn, first: Turn, slo_s: float) -> str:
    """A turn as one line of a log. first: the turn at time 0."""
    now = turn.snapshot
    if now is None:
        return f"  turn {turn.number} failed: {turn.error}"
    since_s = now.time_s - (first.snapshot.time_s if first.snapshot else now.time_s)
    p95_s = now.latency.p95_s
    late = " !" if p95_s is not None and p95_s > slo_s else "  "
    latency = f"p95 {_time(p95_s, now.latency.at_least):>7}{late}"
    if independent(now) and (queries := judged(now, slo_s)):
        # Each has its own SLO: only the one nearest to it, or furthest beyond it, is in the line.
        worst, beyond = queries[0], sum(query.late for query in queries)
        latency = (
            f"{worst.name} p95 {_time(worst.p95_s, worst.at_least)} of {_time(worst.slo_s)}"
            f"{' !' if worst.late else '  '} {beyond}/{len(queries)} late "
        )
    text = (
        f"{since_s:5.0f} s  {_number(rate_of(now)):>5}/s  lag {_number(lag_of(now)):>5}  "
        f"{latency} {_blocks(now):8}"
    )
    if _shed(turn):
        text += f" sheds {_shed(turn):.0%}"
    made = decisions_of([turn])
    if made:
        text += f" {made[0].before} → {made[0].after}: {made[0].reason or made[0].guard}"
        if made[0].refused:
            text += f" (refused: {made[0].refused})"
    if turn.error is not None:
        text += f" failed: {turn.error}"
    return text.rstrip()


def view(turns: Sequence[Turn], slo_s: float, phase: str = "") -> RenderableType:
    """The current state of a run at a glance, from the turns so far.

    slo_s: latency target, in seconds. phase: shown in the first line.
    """
    seen = [turn.snapshot for turn in turns if turn.snapshot is not None]
    head = Text("tidegate", style="bold")
    head.append(f"  {phase}", style="dim")
    if not seen:
        return head
    now = seen[-1]
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim")
    rows.add_column(justify="right")
    rows.add_column()
    capacity = capacity_of(now)
    room = "" if capacity is None else f"  of {capacity:.0f}/s capacity"
    if _shed(turns[-1]):
        room += f", [red]{_shed(turns[-1]):.0%} is shed[/red]"
    rows.add_row("rate", f"{_number(rate_of(now))}/s", _spark([rate_of(s) for s in seen]) + room)
    rows.add_row("lag", _number(lag_of(now)), _spark([lag_of(s) for s in seen]))
    several = independent(now) and bool(queries_of(now))
    if not several:
        p95_s = now.latency.p95_s
        late = p95_s is not None and p95_s > slo_s
        gauge = bar((p95_s or 0.0) / slo_s, 20)
        rows.add_row(
            "latency p95",
            Text(_time(p95_s, now.latency.at_least), style="bold red" if late else "bold green"),
            f"{gauge} of {show_duration(slo_s)}" + ("  [red]late[/red]" if late else ""),
        )
    if now.event_age.p95_s is not None:
        rows.add_row("event age p95", _time(now.event_age.p95_s), "[dim]not judged[/dim]")
    most = now.offer.max_hosts
    rows.add_row(
        "executors",
        f"{len(now.running_hosts)}" + ("" if most is None else f"/{most}"),
        f"{_blocks(now)}  [dim]■ running  ◔ starting  ▽ draining[/dim]",
    )
    rows.add_row("cost so far", f"${_cost(turns):.3f}", _age(seen))
    parts: list[RenderableType] = [head, rows]
    if several:
        parts += _queries(now, slo_s)
    for made in reversed(decisions_of(turns)[-DECISIONS:]):
        why = made.reason or made.guard
        if made.refused:
            why += f" (refused: {made.refused})"
        ago = f"{made.time_s - seen[0].time_s:5.0f} s"
        text = Text(f"{ago}  {made.before} → {made.after}  {plain(why, 300)}", overflow="ellipsis")
        text.no_wrap = True
        parts.append(text)
    if turns[-1].error is not None:
        parts.append(
            Text(f"turn {turns[-1].number} failed: {plain(turns[-1].error, 300)}", style="red")
        )
    return Group(*parts)


def _queries(now: Snapshot, slo_s: float) -> list[RenderableType]:
    """A line for each query: its delay against its own SLO, event age, backlog and what limits it.

    slo_s: of queries without their own, in seconds.
    """
    order = {query.name: place for place, query in enumerate(judged(now, slo_s))}
    names = sorted(queries_of(now), key=lambda name: order.get(name, len(order)))
    rows = Table.grid(padding=(0, 2))
    for side in ("left", "right", "left", "right", "right", "right"):
        rows.add_column(justify="right" if side == "right" else "left", no_wrap=True)
    heads = ("query", "delay p95", "of its SLO", "event age", "backlog", "rows/s")
    rows.add_row(*(Text(head, style="dim") for head in heads))
    for name in names[:QUERIES]:
        reading, own_s = now.reading[name], now.operator(name).slo_s
        limit_s = slo_s if own_s is None else own_s
        delay, judge = delay_of(now, name), judged_of(now, name)
        late = judge.p95_s is not None and judge.p95_s > limit_s
        style = "bold red" if late else "green" if judge.p95_s is not None else "dim"
        rows.add_row(
            Text(plain(name, NAME)),
            Text(_time(delay.p95_s, delay.at_least), style=style),
            f"{bar((judge.p95_s or 0.0) / limit_s)} {show_duration(limit_s)}",
            _time(reading.event_age.p95_s, reading.event_age.at_least),
            _time(reading.backlog_s),
            _number(items_per_s(reading)),
        )
    parts: list[RenderableType] = [rows]
    for name in names[:QUERIES]:
        if limit := limit_of(now.reading[name]):
            text = Text(plain(f"{name}: {limit}", 300), "dim", overflow="ellipsis")
            text.no_wrap = True
            parts.append(text)
    if len(names) > QUERIES:
        parts.append(Text(f"and {len(names) - QUERIES} queries further from their SLO", "dim"))
    return parts


def _shed(turn: Turn) -> float:
    """Share of the input that is shed from this turn on."""
    return turn.plan.shed_fraction if turn.plan is not None else 0.0


def _blocks(snapshot: Snapshot) -> str:
    return "".join(BLOCKS[host.status] for host in snapshot.hosts)


def _spark(values: Sequence[float | None]) -> str:
    return sparkline([math.nan if v is None else v for v in values][-WIDTH:], WIDTH)


def _cost(turns: Sequence[Turn]) -> float:
    try:
        return summarise(turns).cost_usd
    except JournalError:
        return 0.0


def _age(seen: Sequence[Snapshot]) -> str:
    return f"[dim]in {show_duration(max(1.0, seen[-1].time_s - seen[0].time_s))}[/dim]"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _time(seconds: float | None, at_least: bool = False) -> str:
    if seconds is None:
        return "–"
    return ("≥ " if at_least else "") + show_duration(seconds, 2)
