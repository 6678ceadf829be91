"""``tidegate fleet``: run many continuous queries on an elastic set of Spark hosts."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.cli.dashboard import Dashboard, attached
from tidegate.cli.logs import LogFormatOption
from tidegate.cli.output import bar, console, print_json, say, table
from tidegate.errors import InputError
from tidegate.lifecycle import from_handler, on_signals
from tidegate.listening import shown_place
from tidegate.logs import log_format as chosen_format
from tidegate.logs import log_formatter
from tidegate.units import duration_s, show_duration

__all__ = ["fleet"]

fleet = typer.Typer(
    name="fleet",
    help="Run many continuous queries on an elastic set of Spark hosts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Folder = Annotated[Path, typer.Option(help="The fleet's folder.", metavar="FOLDER")]
DEFAULT_FOLDER = Path("out/fleet")
_TOKEN = re.compile(r"token\s*[=:]", re.IGNORECASE)
"""A token in an address, however it is separated from the rest."""


@fleet.command()
def run(
    queries: Annotated[Path, typer.Argument(help="A Python file with @continuous_query in it.")],
    min_hosts: Annotated[int, typer.Option(help="Smallest number of hosts.")] = 1,
    max_hosts: Annotated[int, typer.Option(help="Largest number of hosts.")] = 4,
    policy: Annotated[
        str, typer.Option(help="A placement policy; see tidegate policies.", metavar="NAME")
    ] = "sarsa",
    target: Annotated[float, typer.Option(help="Target utilisation of a host.")] = 0.6,
    lower: Annotated[float, typer.Option(help="A host below this is underloaded.")] = 0.3,
    upper: Annotated[float, typer.Option(help="A host above this is overloaded.")] = 0.8,
    folder: Folder = DEFAULT_FOLDER,
    interval: Annotated[str, typer.Option(help="Time between two decisions.")] = "5s",
    silence: Annotated[
        str | None,
        typer.Option(
            help="Time without an answer after which a host is lost (60s if its process is busy); "
            "by default two intervals."
        ),
    ] = None,
    cores: Annotated[int, typer.Option(help="Task slots of a host.")] = 2,
    memory_mb: Annotated[int, typer.Option(help="Heap of a host, MB.")] = 640,
    queries_mb: Annotated[
        float | None,
        typer.Option(help="Memory that the queries of a host may need, MB; by default no limit."),
    ] = None,
    network_mbps: Annotated[
        float | None,
        typer.Option(help="Network of a host for its queries, Mbit/s; by default no limit."),
    ] = None,
    spares: Annotated[int, typer.Option(help="Number of spare hosts that are kept warm.")] = 0,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            help="An existing Connect server to use instead of starting servers; repeatable.",
            metavar="sc://HOST:PORT/;token_file=…;use_ssl=true",
        ),
    ] = None,
    moves_at_once: Annotated[int, typer.Option(help="Largest number of concurrent moves.")] = 2,
    move_limit: Annotated[
        str, typer.Option(help="Timeout for stopping and for starting a query in a move.")
    ] = "60s",
    lease: Annotated[
        str,
        typer.Option(
            help="Time after which the queries of an endpoint that does not answer start elsewhere."
        ),
    ] = "30s",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A parameter of the policy.", metavar="KEY=VALUE"),
    ] = None,
    dashboard: Dashboard = False,
    log_format: LogFormatOption = None,
) -> None:
    """Place queries on hosts and keep them running until Ctrl-C or `tidegate fleet stop`."""
    from tidegate.fleet.channel import Channel
    from tidegate.fleet.connect import TOKEN_VARIABLE
    from tidegate.fleet.manager import FleetFolder, FleetManager, fleet_policy
    from tidegate.fleet.providers import EmbeddedProvider, StaticProvider
    from tidegate.fleet.queries import load_queries
    from tidegate.fleet.world import FleetWorld
    from tidegate.model.topology import Resources

    form = chosen_format(log_format)
    for text in endpoint or ():
        if _TOKEN.search(text):
            remedy = "write it into a file and give ;token_file=…, or set " + TOKEN_VARIABLE
            key = f"--endpoint {shown_place(text.partition('/;')[0])}: token"
            raise InputError(key, "…", "left out", remedy)
    pairs = dict(_pair(word) for word in settings or [])
    chosen = fleet_policy(
        policy,
        target=target,
        lower=lower,
        upper=upper,
        min_hosts=min_hosts,
        max_hosts=max_hosts,
        parameters=pairs,
    )
    found = load_queries(queries)
    home = FleetFolder(folder)
    for file in home.files:
        found = {**load_queries(file), **found}
    home.lock()
    handler = logging.StreamHandler()
    handler.setFormatter(log_formatter(form, "%(asctime)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # PySpark warns at every attempt to reach a host that is gone; the fleet warns once.
    logging.getLogger("pyspark.sql.connect.logging").setLevel(logging.ERROR)
    provider: EmbeddedProvider | StaticProvider
    if endpoint:
        capacity = Resources(cores, memory_mb, 10_000)
        provider = StaticProvider(
            home.id, endpoint, capacity, queries_mb=queries_mb, network_mbps=network_mbps
        )
    else:
        provider = EmbeddedProvider(
            home.id,
            home.path.resolve() / "hosts",
            cores=cores,
            memory_mb=memory_mb,
            queries_mb=queries_mb,
            network_mbps=network_mbps,
            max_hosts=max_hosts,
            spares=spares,
        )
    world = FleetWorld(
        provider,
        home.path,
        interval_s=duration_s(interval, "--interval"),
        silence_s=None if silence is None else duration_s(silence, "--silence"),
        moves_at_once=moves_at_once,
        move_limit_s=duration_s(move_limit, "--move-limit"),
        lease_s=duration_s(lease, "--lease"),
    )
    world.add(query for name, query in found.items() if name not in home.removed)
    world.recover()
    manager = FleetManager(world, chosen, home, home.path / "journal.jsonl")
    channel = Channel(home.path, manager.ask)
    many = f"{len(world.queries)} quer{'y' if len(world.queries) == 1 else 'ies'}"
    say(f"{many}, {chosen.describe()}; see tidegate fleet status")
    with on_signals(lambda: from_handler(manager.stop)):
        try:
            with attached(dashboard, [home.path / "journal.jsonl"]):
                manager.run()
        finally:
            channel.close()
            provider.close()


@fleet.command()
def status(
    folder: Folder = DEFAULT_FOLDER,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show all hosts and queries, with placement and utilisation."""
    answer = _send(folder, {"do": "status"})
    if as_json:
        print_json(answer)
    else:
        _show(answer)


@fleet.command()
def moves(
    folder: Folder = DEFAULT_FOLDER,
    last: Annotated[int, typer.Option(help="Number of moves to show.", min=1)] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the last moves, and their pauses by the size of the state."""
    from dataclasses import asdict

    from tidegate.fleet.moves import pauses_by_state, read_moves

    every = read_moves(folder / "moves.jsonl")
    if as_json:
        print_json([asdict(record) for record in every[-last:]])
        return
    if not every:
        say(f"no moves are recorded in {folder}")
        return
    out = console()
    columns = ["time", "query", "from", "to", "outcome", "state", "rows", "pause"]
    shown = table(*columns, numbers="     rrr")
    for record in every[-last:]:
        shown.add_row(
            time.strftime("%H:%M:%S", time.localtime(record.time_s)),
            record.query,
            record.origin,
            record.host,
            "rolled back" if record.outcome == "back" else record.outcome,
            _size(record.state_mb),
            _number(record.state_rows, "{:.0f}"),
            _number(record.pause_s, "{:.2f} s"),
        )
    out.print(shown)
    out.print()
    sizes = table("state", "moves", "mean pause", "longest", numbers=" rrr")
    for size, count, mean_s, most_s in pauses_by_state(every):
        sizes.add_row(size, str(count), f"{mean_s:.2f} s", f"{most_s:.2f} s")
    out.print(sizes)


@fleet.command()
def move(
    query: Annotated[str, typer.Argument(help="Name of the query.")],
    host: Annotated[str, typer.Argument(help="Name of the new host.")],
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Move a query to another host, with its state."""
    _run(folder, {"do": "move", "query": query, "host": host})


@fleet.command()
def drain(
    host: Annotated[str, typer.Argument(help="Name of the host.")], folder: Folder = DEFAULT_FOLDER
) -> None:
    """Move all queries off a host and release it."""
    _run(folder, {"do": "drain", "host": host})


@fleet.command()
def add(
    queries: Annotated[Path, typer.Argument(help="A Python file with @continuous_query in it.")],
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Add the queries of a file that are new to the fleet."""
    _run(folder, {"do": "add", "file": str(queries.resolve())})


@fleet.command()
def remove(
    queries: Annotated[list[str], typer.Argument(help="Names of the queries.")],
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Stop queries permanently; their checkpoints are kept."""
    _run(folder, {"do": "remove", "queries": queries})


@fleet.command()
def unpark(
    query: Annotated[str, typer.Argument(help="Name of the query.")],
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Restart a query that was parked after repeated failures."""
    _run(folder, {"do": "unpark", "query": query})


@fleet.command()
def stop(
    folder: Folder = DEFAULT_FOLDER,
    leave_queries: Annotated[
        bool, typer.Option(help="Leave the queries running, if their hosts outlive the manager.")
    ] = False,
) -> None:
    """Stop the queries between batches, release the hosts and end the manager."""
    _run(folder, {"do": "stop", "leave_queries": leave_queries})


def _pair(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        raise InputError("--set", word, "a pair", "write it as parameter=value")
    return key, value


def _send(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    from tidegate.fleet.channel import send

    return send(folder, request)


def _run(folder: Path, request: dict[str, Any]) -> None:
    say(_send(folder, request)["done"])


def _show(answer: dict[str, Any]) -> None:
    out = console()
    columns = ["host", "status", "busy", "memory", "reads", "writes", "queries", "age"]
    hosts = table(*columns, numbers="   rrrrr")
    for host in answer["hosts"]:
        busy = host["utilisation"]
        hosts.add_row(
            host["host"],
            host["status"],
            "–" if busy is None else f"{bar(busy)} {busy:4.0%}",
            _number(host["memory_mb"], "{:.0f} MB"),
            _rate(host["read_mbps"]),
            _rate(host["written_mbps"]),
            str(host["queries"]),
            show_duration(host["age_s"]),
        )
    out.print(hosts)
    out.print()
    columns = [
        "query",
        "host",
        "status",
        "cores",
        "rows/s",
        "reads",
        "writes",
        "state",
        "moves",
        "pause",
    ]
    queries = table(*columns, numbers="   rrrrrrr")
    for query in answer["queries"]:
        goes = query["wanted"] and query["wanted"] != query["host"]
        queries.add_row(
            query["query"],
            f"{query['host'] or '–'} → {query['wanted']}" if goes else query["host"] or "–",
            query["status"],
            _number(query["cpu_cores"], "{:.2f}"),
            _number(query["rows_per_s"], "{:.0f}"),
            _rate(query["read_mbps"]),
            _rate(query["written_mbps"]),
            _size(query["state_mb"]),
            str(query["moves"]),
            _number(query["last_pause_s"], "{:.1f} s"),
        )
    out.print(queries)
    for query in answer["queries"]:
        if query["error"]:
            out.print(f"{query['query']}: {query['error']}", soft_wrap=True, markup=False)
    out.print()
    turn = f"turn {answer['turn']}, {answer['policy']}, {_moves(answer)}"
    out.print(turn, soft_wrap=True, markup=False)
    if busy := [host for host in answer["hosts"] if host["utilisation"]]:
        total = sum(host["utilisation"] for host in busy)
        rest, split = (sum(h[key] for h in busy) / total for key in ("unattributed", "shared"))
        text = f"queries account for {1 - rest:.0%} of the CPU time of their hosts"
        out.print(f"{text}; {split:.0%} of it was divided by time in batches", soft_wrap=True)
    for reason in answer["reasons"]:
        out.print(f"  {reason}", soft_wrap=True, markup=False)
    if answer["error"]:
        out.print(f"  the last turn failed: {answer['error']}", soft_wrap=True, markup=False)


def _moves(answer: dict[str, Any]) -> str:
    count = f"{answer['moves']} move{'' if answer['moves'] == 1 else 's'}"
    pause_s = answer["mean_pause_s"]
    return count if pause_s is None else f"{count} with a pause of {pause_s:.1f} s on average"


def _rate(mbps: float | None) -> str:
    """Megabits per second, in bytes per second with a unit."""
    if mbps is None:
        return "–"
    kilobytes = mbps * 125
    return f"{kilobytes:.0f} kB/s" if kilobytes < 1000 else f"{kilobytes / 1000:.1f} MB/s"


def _size(megabytes: float | None) -> str:
    if megabytes is None:
        return "–"
    return f"{megabytes * 1000:.0f} kB" if megabytes < 1 else f"{megabytes:.1f} MB"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)
