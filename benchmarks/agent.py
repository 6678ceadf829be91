"""What the agent costs the driver of a large application: CPU time and memory.

    python benchmarks/agent.py                 # three runs, then docs/measured/agent.md
    python benchmarks/agent.py --runs 1        # at most one more run, for a try
    python benchmarks/agent.py --report        # only the table, from what has run

A driver runs with the agent and 20 streaming queries, and its status store lists 200 executors of
four cores. Executors and most jobs are a fake: their events are posted to the driver's listener
bus (benchmarks/java/AgentLoad.java), so that Spark's own store holds what it would hold with real
ones. Every ten seconds, each query has a batch of two jobs with 1,200 tasks. The history is full:
1,000 jobs, 1,000 stages and 100,000 tasks, Spark's limits.

A controller attaches through HTTP and takes its turns at the default interval. The CPU time is that
of the agent's threads and of its listener in Spark's thread. The share of the garbage collector's
time that corresponds to the agent's allocations is added.

The memory is the difference in used heap, after garbage collection, when the agent is ended and
what its classes hold is dropped. Before that, its log of events is filled to its limit.

The figures of a run are written to OUT/results.json when it ends. --again forgets earlier ones.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from live import half_width, write

from tidegate.model import HostOffer
from tidegate.model.topology import Resources
from tidegate.spark.agent import PLUGIN, agent_jar
from tidegate.spark.autoscaler.agent import AgentGateway, announced
from tidegate.spark.autoscaler.executors import executor_manager
from tidegate.spark.autoscaler.world import SparkWorld
from tidegate.spark.local.cluster import LocalCluster
from tidegate.spark.local.processes import spark_home
from tidegate.spark.local.session import session

PAGE = Path("docs/measured/agent.md")
LOAD = Path(__file__).parent / "java" / "AgentLoad.java"
EXECUTORS = 200
CORES = 4
QUERIES = 20
INTERVAL_S = 10.0
"""Time between two turns of the controller, and between two batches of a query, in seconds."""
CPU_BUDGET = 0.005
HEAP_BUDGET_MB = 20.0
FIRST_TURNS = 3
"""Turns right after the controller has attached, when the JVM has not compiled the agent yet."""
WARM_UP_S, WARM_UP_PAUSE_S = 30.0, 0.5
LATER_TURNS = 6
EVENTS_HEARD = 200
"""Events with which the listener is measured."""
OF_THE_AGENT = ("tidegate-", "HTTP-Dispatcher", "idle-timeout-task", "req-rsp-timeout-task")
"""Names of threads. The JDK's HTTP server, which nobody else uses here, has some of them."""
OF_THE_COLLECTOR = ("GC Thread", "G1 ", "VM Thread")
STEADY_BYTES = 100_000
"""The heap is settled when two garbage collections in a row differ by less."""


# --- the driver -----------------------------------------------------------------------------------


def compiled(folder: Path) -> Path:
    """The class folder of the fake."""
    jars = str(spark_home() / "jars" / "*")
    javac = shutil.which("javac") or sys.exit("there is no javac: install a JDK")
    subprocess.run([javac, "-cp", jars, "-d", str(folder), str(LOAD)], check=True)
    return folder


@contextlib.contextmanager
def driver(folder: Path) -> Iterator[Any]:
    """A session with the agent, on a cluster of one small executor."""
    classes = compiled(folder)
    jars = f"{agent_jar()}{os.pathsep}{classes}"
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-class-path {jars} pyspark-shell"
    settings = {
        "spark.plugins": PLUGIN,
        "spark.jars": str(agent_jar()),
        "spark.tidegate.agent.announce": str(folder / "agent.json"),
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "1",
        "spark.scheduler.mode": "FAIR",
        "spark.network.timeout": "3600s",  # the fake ones send no heartbeats
        "spark.scheduler.listenerbus.eventqueue.capacity": "100000",
    }
    with (
        LocalCluster(cores=2, memory_mb=512, max_hosts=1).start(hosts=1) as cluster,
        session(cluster, folder / "driver.log", settings) as spark,
    ):
        yield spark


def started(spark: Any, folder: Path) -> list[Any]:
    """The queries: each has state, and half of them read files with a limit."""
    source = folder / "files"
    spark.range(0, 1000, 1, 1).write.json(str(source))
    queries = []
    for number in range(QUERIES):
        if number % 2:
            rows = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", 10).json(
                str(source)
            )  # fmt: skip
        else:
            rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
            rows = rows.withColumnRenamed("value", "id")
        counted = rows.groupBy((rows.id % 10).alias("key")).count()
        queries.append(
            counted.writeStream.format("noop")
            .outputMode("update")
            .queryName(f"query-{number}")
            .option("checkpointLocation", str(folder / f"checkpoint-{number}"))
            .trigger(processingTime=f"{INTERVAL_S:g} seconds")
            .start()
        )
    return queries


# --- one run --------------------------------------------------------------------------------------


class Meter:
    """CPU time and allocations in the driver's JVM, added up look by look.

    spark: the session. Threads may end, so look often.
    """

    def __init__(self, spark: Any) -> None:
        self._load = spark.sparkContext._jvm.AgentLoad
        self._pid = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
        self._before: dict[str, tuple[str, float, float]] = {}
        self.sum: defaultdict[str, float] = defaultdict(float)
        self.restart()

    def restart(self) -> None:
        """Begin again at zero."""
        self.look()
        self.sum.clear()

    def look(self) -> None:
        """Add the CPU seconds and allocated bytes since the last look."""
        seen = self._threads()
        for key, (name, cpu_s, allocated) in seen.items():
            _, cpu_before_s, allocated_before = self._before.get(key, ("", 0.0, 0.0))
            who = "other"
            if name.startswith(OF_THE_AGENT):
                who = "agent"
            elif name.startswith(OF_THE_COLLECTOR):
                who = "collector"
            self.sum[f"{who} s"] += cpu_s - cpu_before_s
            self.sum[f"{who} bytes"] += allocated - allocated_before
        self._before = seen

    def _threads(self) -> dict[str, tuple[str, float, float]]:
        """Name, CPU seconds and allocated bytes by a thread's id."""
        found = {}
        for line in self._load.threads().splitlines():
            id, name, nanos, allocated = line.split("\t")
            found[id] = (name, max(0.0, float(nanos)) / 1e9, max(0.0, float(allocated)))
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        for task in Path(f"/proc/{self._pid}/task").iterdir():  # Java does not list the collector
            with contextlib.suppress(OSError):  # it has just ended
                name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
                if name.startswith(OF_THE_COLLECTOR):
                    fields = rest.split()
                    cpu_s = (int(fields[11]) + int(fields[12])) * tick_s
                    found[f"task {task.name}"] = (name, cpu_s, 0.0)
        return found


class Controller:
    """A controller that is in charge: it observes, and requests the total again each time.

    gateway, world: as in an autoscaler. meter: looks after each turn.
    """

    def __init__(self, gateway: AgentGateway, meter: Meter) -> None:
        self.gateway, self.meter = gateway, meter
        manager = executor_manager(gateway, time.time)
        self.world = SparkWorld(gateway, manager, HostOffer(Resources(float(CORES))))
        self.world.start()
        self.world.observe()

    def turns(self, number: int, pause_s: float) -> None:
        """Take turns."""
        for _ in range(number):
            next_s = time.monotonic() + pause_s
            self.world.observe()
            self.gateway.request_total(EXECUTORS)
            time.sleep(max(0.0, next_s - time.monotonic()))
            self.meter.look()

    def measured(self, number: int) -> Period:
        """Take turns at the interval and measure them."""
        self.meter.restart()
        began_s, jobs, events = time.monotonic(), self.world._queries._last_job, self._events()
        self.turns(number, INTERVAL_S)
        self.meter.look()
        took_s = time.monotonic() - began_s
        new_jobs = self.world._queries._last_job - jobs
        return Period(took_s, self._events() - events, new_jobs, self.meter.sum.copy())

    def _events(self) -> int:
        return int(self.gateway._calls.get("/v1/application")["lastEvent"])


class Period(NamedTuple):
    """What was measured over some turns: its length, events of queries, new jobs, and `Meter`."""

    seconds: float
    events: int
    jobs: int
    seen: Mapping[str, float]


def costs(period: Period, heard_s: float) -> dict[str, float]:
    """Shares of a core, allocations in MB, jobs and events for each turn.

    heard_s: CPU time of the agent's listener for an event, in seconds.
    """
    seen, seconds = period.seen, period.seconds
    allocated = sum(value for key, value in seen.items() if key.endswith(" bytes"))
    # What the listener allocates is in the other thread, and little.
    share = seen["agent bytes"] / max(1.0, allocated)
    threads, collector = seen["agent s"] / seconds, seen["collector s"] * share / seconds
    listener = heard_s * period.events / seconds
    in_turns = seconds / INTERVAL_S
    return {
        "threads": threads,
        "listener": listener,
        "collector": collector,
        "cpu": threads + listener + collector,
        "allocated_mb": seen["agent bytes"] / 1e6 / in_turns,
        "events": period.events / in_turns,
        "jobs": period.jobs / in_turns,
    }


def settled_heap(load: Any) -> float:
    """Used heap in bytes, when Spark has cleaned up what is no longer used, which takes a while."""
    last = float("inf")
    for _ in range(30):
        now = float(load.heap())
        if last - now < STEADY_BYTES:
            return now
        last = now
        time.sleep(1.0)
    return last


def run(folder: Path) -> dict[str, Any]:
    """One run; returns its figures."""
    with driver(folder) as spark:
        fake, context = spark.sparkContext._jvm.AgentLoad, spark.sparkContext._jsc.sc()
        load = fake(context, EXECUTORS, CORES)
        load.addExecutors()
        queries = started(spark, folder)
        names, runs = [q.name for q in queries], [str(q.runId) for q in queries]
        load.history(100, 1000, runs[0], names[0])
        load.history(900, 1, runs[0], names[0])
        load.start(runs, names, INTERVAL_S)
        print("the driver runs; the controller attaches", flush=True)
        meter = Meter(spark)
        controller = Controller(AgentGateway(*announced(folder / "agent.json")), meter)
        first = controller.measured(FIRST_TURNS)
        controller.turns(round(WARM_UP_S / WARM_UP_PAUSE_S), WARM_UP_PAUSE_S)
        later = controller.measured(LATER_TURNS)
        figures: dict[str, Any] = {
            "executors": len(controller.gateway.executors()),
            "queries": len(controller.gateway.active_queries()),
        }
        if figures["executors"] <= EXECUTORS or figures["queries"] < QUERIES:
            raise SystemExit(f"the fake is too small: {figures}")
        java, progress = spark._jsparkSession, queries[0]._jsq.lastProgress()
        heard_s = fake.hear(java, progress, EVENTS_HEARD) / 1e9 / EVENTS_HEARD
        figures |= {"first": costs(first, heard_s), "later": costs(later, heard_s)}
        print("measured; now the heap", flush=True)
        load.stop()
        for query in queries:
            query.stop()
        fake.hear(java, progress, 12_000)  # more than its log keeps
        held = settled_heap(fake)
        controller.world.close()
        load.dropAgent(java)
        figures["heap_mb"] = (held - settled_heap(fake)) / 1e6
    return figures


# --- the report -----------------------------------------------------------------------------------


def figure(values: Sequence[float], form: str) -> str:
    """The mean and half the width of its 95 % interval."""
    return f"{format(statistics.fmean(values), form)} ± {format(half_width(values), form)}"


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """The result as a page shows it."""
    lines = ["| part | first 30 s | later | budget |", "|---|---:|---:|---:|"]
    rows = (
        ("threads", "threads of the agent"),
        ("listener", "its listener, in Spark's thread"),
        ("collector", "its share of garbage collection"),
        ("cpu", "**CPU, share of a core**"),
    )
    for key, what in rows:
        cells = [
            figure([100 * r[when][key] for r in records], ".2f") + " %"
            for when in ("first", "later")
        ]
        limit = f"{100 * CPU_BUDGET:g} %" if key == "cpu" else ""
        lines.append(f"| {what} | {cells[0]} | {cells[1]} | {limit} |")
    cells = [
        figure([r[when]["allocated_mb"] for r in records], ".1f") + " MB"
        for when in ("first", "later")
    ]
    lines.append(f"| allocated in a turn | {cells[0]} | {cells[1]} | |")
    heap = [r["heap_mb"] for r in records]
    lines.append(f"| **heap that it holds** | | {figure(heap, '.1f')} MB | {HEAP_BUDGET_MB:g} MB |")
    return "\n".join(lines) + "\n\n" + verdict(records)


def verdict(records: Sequence[Mapping[str, Any]]) -> str:
    """Whether the budget is kept, by the upper ends of the intervals."""
    cpu, first = ([r[when]["cpu"] for r in records] for when in ("later", "first"))
    heap = [r["heap_mb"] for r in records]
    most, most_mb = (statistics.fmean(v) + half_width(v) for v in (cpu, heap))
    kept = most < CPU_BUDGET and most_mb < HEAP_BUDGET_MB
    size = f"{records[0]['executors']} executors and {records[0]['queries']} queries"
    jobs = statistics.fmean(r["later"]["jobs"] for r in records)
    events = statistics.fmean(r["later"]["events"] for r in records)
    return (
        f"{len(records)} runs with {size}; in a turn there are {jobs:.0f} new jobs and "
        f"{events:.0f} events of queries. Later, the upper ends of the intervals are "
        f"{100 * most:.2f} % of a core and {most_mb:.1f} MB: the budget is "
        f"{'kept' if kept else 'exceeded'}. In the first 30 s, when the JVM has not compiled the "
        f"agent yet, it takes {100 * statistics.fmean(first):.2f} % of a core."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=3, help="in all")
    parser.add_argument("--again", action="store_true", help="forget earlier runs")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--out", type=Path, default=Path("out/agent"))
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    logging.getLogger("tidegate").setLevel(logging.ERROR)
    kept = options.out / "results.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    records = json.loads(kept.read_text()) if kept.exists() and not options.again else []
    while not options.report and len(records) < options.runs:
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as made:
            records.append(run(Path(made)))
        kept.write_text(json.dumps(records, indent=1))
        print(json.dumps(records[-1], indent=1), flush=True)
    if len(records) < 2:
        raise SystemExit("fewer than two runs: nothing to report")
    text = table(records)
    print(text)
    if len(records) >= 3:
        write(options.page, "agent", text)
        print(f"written to {options.page}")


if __name__ == "__main__":
    main()
