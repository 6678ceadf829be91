"""``tidegate allocate``: the processors of each operator, by the queueing model of DRS."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from tidegate.cli.output import bar, console, print_json, table
from tidegate.errors import InputError, NotEnoughProcessors, TopologyError
from tidegate.model.topology import Topology
from tidegate.theory.queueing import (
    Station,
    assign_processors,
    fewest_processors,
    machines_for,
    sojourn_s,
    waiting_items,
)
from tidegate.units import duration_s, finite, show_duration

__all__ = ["allocate"]


def allocate(
    operators: Annotated[
        list[str] | None,
        typer.Argument(
            help="Operators as [bold]name:arrival:service[/bold], rates per second; the service "
            "rate is that of one processor. A fourth number is the squared coefficient of "
            "variation of the service time (for --model ggk).",
            show_default=False,
        ),
    ] = None,
    topology: Annotated[
        Path | None,
        typer.Option(help="Operators, sources and edges in YAML instead.", metavar="FILE"),
    ] = None,
    processors: Annotated[
        int | None, typer.Option(help="Distribute this number of processors.", metavar="K")
    ] = None,
    t_max: Annotated[
        str | None,
        typer.Option(help="Find the fewest for this mean latency, such as 500ms.", metavar="TIME"),
    ] = None,
    external: Annotated[
        float | None,
        typer.Option(
            help="Input rate, items per second; default: the first operator's arrival rate, or "
            "that of the file. The rates of the file are scaled to it.",
            metavar="RATE",
        ),
    ] = None,
    per_machine: Annotated[
        int | None,
        typer.Option(help="Processors per machine; rounds up to whole machines.", metavar="N"),
    ] = None,
    reserved: Annotated[
        int, typer.Option(help="Processors of all machines that are used otherwise.")
    ] = 0,
    model: Annotated[
        str, typer.Option(help="mmk: exponential times; ggk: general variability (Allen–Cunneen).")
    ] = "mmk",
    arrival_scv: Annotated[
        float, typer.Option(help="Variability of arrivals for --model ggk; 1: Poisson.")
    ] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compute the processors that each operator needs, by the queueing model of the DRS paper.

    [bold]tidegate allocate extract:13:5 match:13:4.407 aggregate:13:1300 --processors 22[/bold]

    Use --processors to distribute a number of processors for the lowest latency, or --t-max to
    find the fewest processors that keep the mean latency within a limit.
    """
    stations, outside = _read_input(operators or [], topology, external, model, arrival_scv)
    if (processors is None) == (t_max is None):
        given = "neither" if processors is None else "both"
        remedy = "distribute a number of processors, or find the fewest for a latency"
        raise InputError("--processors or --t-max", given, "exactly one of the two", remedy)
    if per_machine is not None:
        finite(per_machine, "--per-machine", low=1)
    finite(reserved, "--reserved", low=0)

    fewest = machines = None
    if t_max is not None:
        bound_s = duration_s(t_max, "--t-max")
        found = fewest_processors(stations, bound_s, outside)
        fewest = processors = sum(found)
        if per_machine is not None:
            machines = machines_for(fewest, per_machine, reserved)
            processors = machines * per_machine - reserved
    assert processors is not None
    finite(processors, "--processors", low=1)
    if per_machine is not None and machines is None:
        machines = machines_for(processors, per_machine, reserved)
    allocation = assign_processors(stations, processors)
    expected_s = sojourn_s(stations, allocation, outside)

    if as_json:
        answer = {
            "allocation": {s.name: k for s, k in zip(stations, allocation, strict=True)},
            "expected_sojourn_s": expected_s,
            "processors": sum(allocation),
            "external_rate_per_s": outside,
        }
        if fewest is not None:
            answer["fewest_processors"] = fewest
        if machines is not None:
            answer["machines"] = machines
        print_json(answer)
        return
    _show(stations, allocation, outside, fewest, machines)


def _read_input(
    words: list[str],
    file: Path | None,
    external: float | None,
    model: str,
    arrival_scv: float,
) -> tuple[tuple[Station, ...], float]:
    """Stations and the input rate, from the arguments or the file."""
    if model not in ("mmk", "ggk"):
        raise InputError("--model", model, "mmk or ggk")
    if bool(words) == (file is not None):
        given = "both" if words else "neither"
        raise InputError("operators or --topology", given, "exactly one of the two")
    finite(arrival_scv, "--arrival-scv", low=0)
    if file is not None:
        from tidegate.config import load_topology

        wanted = load_topology(file)
        if external is not None:
            wanted = _with_rate(wanted, finite(external, "--external", above=0))
        stations = _stations(wanted)
        outside = wanted.external_rate_per_s
    else:
        stations = tuple(_station(word) for word in words)
        names = [station.name for station in stations]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError("operator", twice, "named once", "rename one of the two")
        outside = external if external is not None else stations[0].arrival_rate_per_s
    rate = finite(outside or 0.0, "--external", above=0, remedy="give the input rate")
    scv = arrival_scv
    if model == "mmk":
        return tuple(replace(s, arrival_scv=1.0, service_scv=1.0) for s in stations), rate
    return tuple(replace(s, arrival_scv=scv) for s in stations), rate


def _station(word: str) -> Station:
    parts = word.split(":")
    if len(parts) not in (3, 4) or not parts[0]:
        remedy = "for example extract:13:5, rates per second"
        raise InputError("operator", word, "name:arrival rate:service rate", remedy)
    name = parts[0]
    arrival = finite(parts[1], f"{name}: arrival rate", low=0, remedy="items per second")
    service = finite(
        parts[2], f"{name}: service rate", above=0, remedy="items per second of one processor"
    )
    scv = finite(parts[3], f"{name}: service scv", low=0) if len(parts) == 4 else 1.0
    return Station(name, arrival, service, service_scv=scv)


def _with_rate(topology: Topology, rate_per_s: float) -> Topology:
    """The topology with that input rate, divided over its sources in the same proportions."""
    declared = [source.rate_per_s or 0.0 for source in topology.sources]
    if not sum(declared):
        declared = [1.0] * len(declared)
    factor = rate_per_s / sum(declared)
    pairs = zip(topology.sources, declared, strict=True)
    return replace(topology, sources=tuple(replace(s, rate_per_s=factor * r) for s, r in pairs))


def _stations(topology: Topology) -> tuple[Station, ...]:
    rates = topology.arrival_rates()
    stations = []
    for operator in topology.operators:
        if operator.service_time_s is None:
            key = f"operator {operator.name}: service_time_s"
            remedy = "write the seconds for one item on one processor, or service_rate_per_s"
            raise TopologyError(key, None, "given", remedy)
        stations.append(
            Station(
                operator.name,
                rates[operator.name],
                1 / operator.service_time_s,
                service_scv=operator.service_scv,
                max_processors=operator.max_instances,
            )
        )
    return tuple(stations)


Side = Literal[-1, 1]


def _show(
    stations: tuple[Station, ...],
    allocation: tuple[int, ...],
    outside: float,
    fewest: int | None,
    machines: int | None,
) -> None:
    out = console()
    shown = table(
        "operator", "arrivals/s", "service/s", "processors", "busy", "", "waiting", "sojourn",
        numbers=" rrr rrr",
    )  # fmt: skip
    for station, count in zip(stations, allocation, strict=True):
        busy = station.load / count
        waiting = waiting_items(count, station)
        inside = station.load + waiting
        rate = station.arrival_rate_per_s
        shown.add_row(
            station.name,
            f"{rate:g}",
            f"{station.service_rate_per_s:g}",
            str(count),
            bar(busy),
            f"{busy:.0%}",
            f"{waiting:.3g}",
            show_duration(inside / rate) if rate else "–",
        )
    out.print(shown)
    total = sum(allocation)
    shape = ":".join(str(count) for count in allocation)
    out.print()
    out.print(f"[bold]{shape}[/bold] — {total} processors", end="")
    if machines is not None:
        out.print(f" on {machines} machines", end="")
    out.print(f", mean latency {show_duration(sojourn_s(stations, allocation, outside), 4)}")
    if fewest is not None and fewest != total:
        out.print(f"{fewest} processors are enough; the machines have {total}")
    out.print(
        f"one processor fewer: {_neighbour(stations, total, outside, -1)}; "
        f"one more: {_neighbour(stations, total, outside, 1)}",
        style="dim",
    )


def _neighbour(stations: tuple[Station, ...], total: int, outside: float, side: Side) -> str:
    try:
        counts = assign_processors(stations, total + side)
    except NotEnoughProcessors:
        return "unbounded queues"
    if sum(counts) != total + side:
        return "no effect"
    latency_s = sojourn_s(stations, counts, outside)
    return show_duration(latency_s, 4) if math.isfinite(latency_s) else "unbounded queues"
