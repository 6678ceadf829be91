"""``tidegate sweep``: a grid of simulations on a Spark cluster, and its report."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tidegate.cli.backtest import WithoutGuard
from tidegate.cli.output import console, print_json, say, table
from tidegate.config import read_yaml
from tidegate.errors import BackendError, InputError, TidegateError
from tidegate.lab.backtest import check_guards, guards_text
from tidegate.lifecycle import from_handler, on_signals
from tidegate.outputs import check_output, write_output
from tidegate.units import finite, show_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.lab.sweep.figures import SweepFigures
    from tidegate.lab.sweep.grid import SweepGrid
    from tidegate.lab.sweep.spark_run import SweepState

__all__ = ["sweep"]

INTERRUPTED = 130
LINE_S = 10.0
"""Seconds between two lines of progress if there is no terminal."""


class _RunByDefault(TyperGroup):
    """``sweep grid.yaml`` means ``sweep run grid.yaml``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


sweep = typer.Typer(
    name="sweep",
    cls=_RunByDefault,
    help="Run a grid of simulations on Spark: tidegate sweep grid.yaml --out DIR.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Master = Annotated[
    str, typer.Option(help="local[*], spark://host:port, yarn or k8s://…", metavar="URL")
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", help="A Spark setting.", metavar="KEY=VALUE")
]


@sweep.command()
def run(
    grid: Annotated[Path, typer.Argument(help="Policies, traces, seeds and prices, in YAML.")],
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("out/sweep"),
    master: Master = "local[*]",
    conf: Conf = None,
    chunk: Annotated[
        int | None, typer.Option(help="Cells per Spark task; default: about a second of work.")
    ] = None,
    retry_failed: Annotated[bool, typer.Option(help="Run failed cells again.")] = False,
    any_code: Annotated[
        bool, typer.Option(help="Keep results of other versions of the code.")
    ] = False,
    without_guard: WithoutGuard = None,
    dry_run: Annotated[bool, typer.Option(help="Only print what would run.")] = False,
) -> None:
    """Run a grid of simulations on Spark; the same command resumes an interrupted sweep.

    [bold]tidegate sweep grid.yaml --master spark://host:7077 --out results[/bold]
    """
    from tidegate.lab.sweep.grid import load_grid
    from tidegate.lab.sweep.spark_run import jvm_settings, sweep_state

    if chunk is not None:
        finite(chunk, "--chunk", low=1)
    read = load_grid(grid)
    if without_guard:
        names = (*read.without_guards, *check_guards(without_guard, "--without-guard"))
        read = replace(read, without_guards=tuple(dict.fromkeys(names)))
    state = sweep_state(read, out, any_code, retry_failed)
    _introduce(read, state)
    if state.todo and not dry_run:
        settings = jvm_settings(master) | _settings(conf)
        for trace in read.traces:
            trace.read()  # report a bad file now, not on the executors
        try:
            out.mkdir(parents=True, exist_ok=True)
            write_output(out / "grid.yaml", _effective(grid, read), "--out")
        except OSError as error:
            remedy = error.strerror or "choose another folder"
            raise InputError("--out", str(out), "a folder that can be written", remedy) from None
        log = out / "driver.log"
        console().print(f"starting Spark on {master}; its log is {log}", style="dim", markup=False)
        complete = _run(read, state, out, chunk, _session(master, log, settings))
        state = sweep_state(read, out, any_code)
        if not complete:
            console().print(
                f"stopped: {state.finished} cells are done, {len(state.todo)} are left; run the "
                "same command to continue"
            )
            raise typer.Exit(INTERRUPTED)
    if not dry_run:
        _show_failed(out, state)
        say(f"next: tidegate sweep report {out}")


def _settings(conf: Sequence[str] | None) -> dict[str, str]:
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    for given in conf or ():
        key, equals, value = given.partition("=")
        if not equals:
            raise InputError("--conf", given, "KEY=VALUE")
        settings[key] = value
    return settings


def _effective(path: Path, grid: SweepGrid) -> str:
    """The file of a grid, with the guards that the command line switched off."""
    import yaml

    plain = read_yaml(path)
    if list(grid.without_guards) == list(plain.get("without_guards") or []):
        return path.read_text(encoding="utf-8")
    plain["without_guards"] = list(grid.without_guards)
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)


def _introduce(grid: SweepGrid, state: SweepState) -> None:
    done = f", {state.finished} of them done" if state.finished else ""
    out = console()
    out.print(
        f"{len(state.todo) + state.finished} cells{done}: "
        f"{sum(len(policy.settings()) for policy in grid.policies)} settings of "
        f"{len(grid.policies)} policies, {len(grid.traces)} traces, {len(grid.seeds)} seeds, "
        f"{len(grid.prices)} prices; {grid.mode} mode"
    )
    stacks = [policy.stack(grid.without_guards, grid.max_hosts) for policy in grid.policies]
    out.print(f"guards: {guards_text(stacks)}")
    if state.outdated:
        out.print(
            f"{state.outdated} of the remaining cells have results of other code; --any-code keeps "
            "them"
        )


@contextlib.contextmanager
def _session(master: str, log: Path, settings: dict[str, str]) -> Iterator[SparkSession]:
    """A Spark session; a failure to start becomes a BackendError."""
    from tidegate.spark.local.processes import spark_home
    from tidegate.spark.local.session import check_java, session_on

    spark_home()
    check_java()
    opened = False
    try:
        with session_on(master, log, settings, "tidegate sweep") as spark:
            opened = True
            yield spark
    except TidegateError:
        raise
    except Exception as error:
        if opened:
            raise
        raise BackendError(f"Spark did not start on {master}; see {log}") from error


def _run(
    grid: SweepGrid,
    state: SweepState,
    out: Path,
    chunk: int | None,
    session: contextlib.AbstractContextManager[SparkSession],
) -> bool:
    """Run the remaining cells; False if it was interrupted."""
    from py4j.protocol import Py4JError

    from tidegate.lab.sweep.spark_run import Sweep

    stopped = threading.Event()
    progress = _Progress(len(state.todo))
    try:
        with session as spark, _signals(stopped, spark), progress:
            Sweep(spark, grid, out, chunk=chunk).run(state, progress.update)
    except KeyboardInterrupt:
        return False
    except Py4JError as error:
        if stopped.is_set():
            return False
        raise BackendError(f"the Spark job failed: {str(error)[:300]}; see its log") from error
    return not stopped.is_set()


@contextlib.contextmanager
def _signals(stopped: threading.Event, spark: SparkSession) -> Iterator[None]:
    """Cancel the job on Ctrl-C and SIGTERM; finished cells are already written."""

    def end() -> None:
        from_handler(stopped.set)
        from_handler(spark.sparkContext.cancelAllJobs)

    with on_signals(end):
        yield


class _Progress:
    """Cells done, their rate and the remaining time: a progress bar, or lines in a log."""

    def __init__(self, total: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._total, self._console = total, console()
        self._line_s = 0.0
        self._first: tuple[float, int] | None = None  # time and number of the first cells
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        self._bar = Progress(
            *columns, console=self._console, transient=True, disable=not self._console.is_terminal
        )

    def __enter__(self) -> _Progress:
        self._bar.start()
        self._task = self._bar.add_task("waiting for the first cells", total=self._total)
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def update(self, done: int, failed: int) -> None:
        """Show the number of cells that are done, and how many of them failed."""
        now_s = time.monotonic()
        # Measured from the first cells on, so that Spark's start-up does not count.
        since_s, before = self._first = self._first or (now_s, done)
        what = ""
        if done > before and now_s > since_s:
            rate = (done - before) / (now_s - since_s)
            what = f", {rate:.1f} cells/s"
            if done < self._total:
                what += f", {show_duration((self._total - done) / rate, 2)} left"
        if failed:
            what += f", {failed} failed"
        self._bar.update(self._task, completed=done, description=what.removeprefix(", "))
        if self._console.is_terminal:
            return
        if now_s - self._line_s >= LINE_S or done == self._total:
            self._line_s = now_s
            self._console.print(f"{done} of {self._total} cells{what}")


def _show_failed(out: Path, state: SweepState) -> None:
    from tidegate.lab.sweep.spark_run import failed_cells

    if not state.failed:
        return
    shown = table("policy", "setting", "trace", "seed", "error", numbers="   r ")
    failed = failed_cells(out, state.code)
    for row in failed[:20]:
        shown.add_row(*(str(row[key]) for key in ("policy", "setting", "trace", "seed", "error")))
    here = console()
    here.print(f"\n{state.failed} cells failed; --retry-failed runs them again:")
    here.print(shown)
    if len(failed) > 20:
        here.print(f"… and {len(failed) - 20} more; all errors are in {out / 'cells'}")


@sweep.command("report")
def report_command(
    folder: Annotated[Path, typer.Argument(help="Folder written by `tidegate sweep --out`.")],
    page: Annotated[
        Path | None,
        typer.Option(
            "--page",
            help="HTML page to write, default: in the folder; .svg: only the Pareto front.",
        ),
    ] = None,
    heat: Annotated[
        list[str] | None,
        typer.Option(
            help="Heat map of two parameters; default: each policy with two varied ones.",
            metavar="POLICY:X,Y",
        ),
    ] = None,
    master: Master = "local[*]",
    conf: Conf = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; write no page.")] = False,
) -> None:
    """Show the results of a sweep: leaderboards with intervals, Pareto fronts and heat maps."""
    from tidegate.lab.sweep.figures import parse_heat, sweep_figures
    from tidegate.lab.sweep.page import front_picture, sweep_page
    from tidegate.report.page import standalone

    cells = list((folder / "cells").glob("*.parquet"))
    if not cells:
        remedy = "run `tidegate sweep grid.yaml --out DIR` first"
        raise InputError("folder", str(folder), "a folder with results of a sweep", remedy)
    asked = [parse_heat(text) for text in heat or ()]
    page = page or folder / "report.html"
    if not as_json:
        check_output(page, "--page", inputs=cells)
    settings = {"spark.sql.shuffle.partitions": "4"} | _settings(conf)
    with _session(master, folder / "report.log", settings) as spark:
        figures = sweep_figures(spark, folder / "cells", asked)
    if as_json:
        print_json(figures.plain())
        return
    _leaderboard(figures)
    if page.suffix == ".svg" and figures.overall:
        write_output(page, standalone(front_picture(figures.overall)), "--page")
    else:
        sweep_page(figures).write(page, "--page")
    say(f"\nreport: {page}")


def _leaderboard(figures: SweepFigures) -> None:
    out = console()
    shown = table(
        "policy", "setting", "cost $", "behind the best", "hosts $", "in time", "p95", "seeds",
        numbers="  rrrrrr",
    )  # fmt: skip
    for row in figures.overall[:25]:
        shown.add_row(
            row.policy + (" *" if row.on_front else ""),
            row.setting or "defaults",
            row.cost.text(2),
            "–" if row.behind is None else row.behind.text(2),
            f"{row.resource.mean:.2f}",
            f"{row.in_time.mean:.2%}",
            "–" if row.p95_s is None else show_duration(row.p95_s),
            str(row.seeds),
        )
    out.print(shown)
    if len(figures.overall) > 25:
        out.print(f"… and {len(figures.overall) - 25} more on the page", style="dim")
    out.print(figures.legend(), style="dim")
    if figures.failed:
        out.print(f"{figures.failed} cells failed; the page lists them", style="dim")
