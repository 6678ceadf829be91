"""``tidegate traces``: build rate traces from event logs of any size, and describe them."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer
from rich.markup import escape
from rich.progress import Progress

from tidegate.cli.output import bar, console, print_json, progress_bar, say, styled, table
from tidegate.errors import InputError
from tidegate.outputs import check_output, write_output
from tidegate.report.page import standalone
from tidegate.report.trace import rate_picture, trace_figures, trace_page
from tidegate.units import duration_s, finite
from tidegate.workloads import describe, sparkline
from tidegate.workloads.built import REJECTED, BuiltTrace, built_files, read_built

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.lab.traces.read import Log

__all__ = ["traces"]

traces = typer.Typer(
    name="traces", help="Rate traces from event logs of any size.", no_args_is_help=True
)
_TASK_BYTES = 32 << 20
"""Input per task: small enough for steady progress and an even load of the cores."""
_SMALL_BYTES = 8 << 20
"""Input size below which the JVM's optimising compiler does not pay off."""


@traces.command()
def build(
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="CSV, JSON lines or Parquet, also .gz: a file, folder or 'pattern'.",
        ),
    ],
    time: Annotated[str, typer.Option(help="Timestamp column.", metavar="COLUMN")],
    out: Annotated[Path, typer.Option(help="Folder to write; it appears when it is complete.")],
    key: Annotated[str | None, typer.Option(help="Key column.", metavar="COLUMN")] = None,
    step: Annotated[str, typer.Option(help="Length of a step of the trace.")] = "1s",
    count: Annotated[
        str | None,
        typer.Option(help="Column with the event count of each row; default: 1.", metavar="COLUMN"),
    ] = None,
    unit: Annotated[
        str, typer.Option(help="Unit of the time: s, ms, us, ns or min; iso for text; or auto.")
    ] = "auto",
    time_zone: Annotated[str, typer.Option(help="Time zone of times without an offset.")] = "UTC",
    start: Annotated[
        str | None, typer.Option("--from", help="Start of the trace: ISO 8601 or seconds.")
    ] = None,
    end: Annotated[str | None, typer.Option("--until", help="End of the trace, excluded.")] = None,
    format: Annotated[
        str | None, typer.Option(help="csv, json or parquet; default: by file extension.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Column names, for CSV without a header line.", metavar="A,B,…"),
    ] = None,
    tables: Annotated[
        str, typer.Option("--table", help="Format of the trace and the keys: csv or parquet.")
    ] = "csv",
    max_keys: Annotated[
        int, typer.Option(help="Most keys with statistics, the largest first.")
    ] = 100_000,
    master: Annotated[str, typer.Option(help="Spark master.", metavar="URL")] = "local[*]",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier build in the folder.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count a log's events by step and key, for a trace and statistics of the keys.

    [bold]tidegate traces build 'logs/*.csv.gz' --time ts --key symbol --step 1s --out day[/bold]

    Unusable rows are counted by reason and written to OUT/rejected.
    """
    from tidegate.lab.traces.build import build_trace, refuse_to_replace
    from tidegate.lab.traces.read import UNITS, find_log
    from tidegate.spark.local.session import check_java

    step_s = duration_s(step, "--step")
    if unit not in (allowed := ("auto", "iso", *UNITS)):
        raise InputError("--unit", unit, "one of " + ", ".join(allowed))
    if tables not in ("csv", "parquet"):
        raise InputError("--table", tables, "csv or parquet")
    finite(max_keys, "--max-keys", low=1, high=5_000_000)
    zone = _zone(time_zone)
    log = find_log(
        source,
        format,
        time,
        key=key,
        count=count,
        unit=unit,
        columns=tuple(name.strip() for name in columns.split(",")) if columns else (),
        start_us=_moment_us(start, "--from", zone),
        end_us=_moment_us(end, "--until", zone),
    )
    refuse_to_replace(out, overwrite)
    check_java()
    with _terminable(), _spark(master, log) as spark, _watched(spark, as_json):
        built = build_trace(
            spark,
            log,
            step_s,
            out,
            time_zone=time_zone,
            overwrite=overwrite,
            table=tables,
            most_keys=max_keys,
            given=source,
        )
    if as_json:
        print_json(built.provenance)
        return
    _show(built)
    known, screen = built.provenance, console()
    rejected = sum(known["rejected"].values())
    reasons = ", ".join(f"{n:,} {reason}" for reason, n in known["rejected"].items())
    screen.print(
        f"\n{known['rows']:,} rows in {known['seconds']:.0f} s, times read as {known['unit']}"
    )
    if rejected:
        where = f"; see {out / REJECTED}"
        screen.print(f"[bold]{rejected:,} rows rejected[/bold]: {reasons}{escape(where)}")
    say(f"next: tidegate traces describe {out}\n      tidegate backtest {built.file} --slo 2s")


@traces.command("describe")
def describe_command(
    trace: Annotated[
        Path, typer.Argument(help="Folder written by `traces build`, or a trace file.")
    ],
    report: Annotated[Path, typer.Option(help="HTML report to write; .svg: only the rate.")] = Path(
        "out/trace.html"
    ),
    top: Annotated[int, typer.Option(help="Number of keys to list.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; write no report.")] = False,
) -> None:
    """Describe a trace: rate, peak to mean, burstiness at several scales, and largest keys."""
    if not as_json:
        check_output(report, "--report", inputs=(trace, *built_files(trace)))
    built = read_built(trace)
    if as_json:
        from tidegate.codec import to_plain

        print_json({"whole": to_plain(describe(built.trace)), "provenance": dict(built.provenance)})
        return
    _show(built, int(finite(top, "--top", low=0)))
    if report.suffix == ".svg":
        write_output(report, standalone(rate_picture(built)), "--report")
    else:
        trace_page(trace.stem, built).write(report, "--report")
    say(f"\nreport: {report}\nnext: tidegate backtest {built.file} --slo 2s")


def _show(built: BuiltTrace, top: int = 5) -> None:
    screen = console()
    screen.print(sparkline(built.trace.rate_per_s, min(100, screen.width)))
    rows = table("", "")
    rows.show_header = False
    for name, value in trace_figures(describe(built.trace)):
        rows.add_row(name, styled(value, "bold"))
    screen.print(rows)
    if not built.keys or not top:
        return
    skew = built.provenance["skew"]
    screen.print(f"\n{skew['keys']:,} keys, Gini {skew['gini']:.2f}; the largest:")
    keys = table(
        "key", "events", "share", "", "peak/mean", "CV", "dispersion", "Hurst", numbers=" rr rrrr"
    )
    names = ("key", "events", "share", "peak_to_mean", "cv", "dispersion", "hurst")
    for name, events, share, *rest in zip(*(built.keys[n][:top] for n in names), strict=True):
        figures = ["–" if value != value else f"{value:.3g}" for value in rest]  # noqa: PLR0124
        keys.add_row(name, f"{events:,.0f}", f"{share:.1%}", bar(share), *figures)
    screen.print(keys)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        remedy = "write it as Europe/Berlin or UTC"
        raise InputError("--time-zone", name, "the name of a time zone", remedy) from None


def _moment_us(text: str | None, option: str, zone: ZoneInfo) -> int | None:
    if text is None:
        return None
    try:
        return round(float(text) * 1e6)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        remedy = "write 2026-07-01T09:00:00, or seconds"
        raise InputError(option, text, "a time", remedy) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp() * 1e6)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM end the block as Ctrl-C does, so that temporary files are removed."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _spark(master: str, log: Log) -> Iterator[SparkSession]:
    """A Spark session with shuffle partitions for the size of the input."""
    from tidegate.spark.local.session import session_on

    folder = Path(tempfile.mkdtemp(prefix="tidegate-traces-"))
    size = _TASK_BYTES * 400 if log.size_bytes is None else log.size_bytes
    settings = {
        "spark.sql.files.maxPartitionBytes": str(_TASK_BYTES),
        "spark.sql.shuffle.partitions": str(max(4, min(2000, size // (2 * _TASK_BYTES)))),
    }
    if size < _SMALL_BYTES:
        settings["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    try:
        with session_on(master, folder / "spark.log", settings, "tidegate traces") as spark:
            yield spark
    finally:
        rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _watched(spark: SparkSession, quiet: bool) -> Iterator[None]:
    """Show the tasks of the active stages while the block runs."""
    over = threading.Event()
    with progress_bar(quiet) as progress:
        watcher = threading.Thread(target=_watch, args=(spark, progress, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join(5)


def _watch(spark: SparkSession, progress: Progress, over: threading.Event) -> None:
    task = progress.add_task("inspecting the log", total=None)
    tracker = spark.sparkContext.statusTracker()
    with contextlib.suppress(Exception):  # the session may stop during the call
        while not over.wait(0.3):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            if known:
                done = sum(stage.numCompletedTasks for stage in known)
                total = sum(stage.numTasks for stage in known)
                what = (
                    "reading the log"
                    if min(s.stageId for s in known) < 4
                    else "counting keys and steps"
                )
                progress.update(task, description=what, completed=done, total=total)
