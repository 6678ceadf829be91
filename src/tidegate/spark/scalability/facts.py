"""What is known of a job, wherever it was looked up: in a configuration or in a running driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tidegate.model import SloByQuery
from tidegate.spark.autoscaler.admission import SourceLimit
from tidegate.spark.autoscaler.sightings import ExecutorInfo
from tidegate.spark.scalability.settings import (
    DEFAULTS,
    NotKnown,
    flag,
    megabytes,
    number,
    seconds,
)

__all__ = ["JobFacts", "JobRate", "PodRights", "QueryFacts", "QueueRoom"]


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """A streaming query. None stands for what is not known.

    Args:
        name: Its name; empty for a query without one, None when that is not known.
        place: Where it was seen, such as a line of a file; empty for a running query.
        trigger: Spark's name of its trigger's class, such as ``ProcessingTimeTrigger``.
        trigger_s: Seconds between two batches, 0 for no pause.
        limits: Limits of all its sources; empty without any.
        tasks: Tasks of its widest stage, of all recent batches.
        batch_s: Duration of a usual batch in seconds.
        watermark: Whether it has a watermark.
        stateful: Whether it keeps state.
        state_partitions: Partitions of its state, which its checkpoint fixes.
        state_mb: Memory of its state in MB.
        checkpoint: Path of its checkpoint.
    """

    name: str | None = ""
    place: str = ""
    trigger: str | None = None
    trigger_s: float | None = None
    limits: tuple[SourceLimit, ...] | None = None
    tasks: int | None = None
    batch_s: float | None = None
    watermark: bool | None = None
    stateful: bool | None = None
    state_partitions: int | None = None
    state_mb: float | None = None
    checkpoint: str | None = None

    @property
    def shown(self) -> str:
        """Its name for a sentence."""
        if self.name:
            return f"query {self.name}"
        return f"the query in {self.place}" if self.place else "a query without a name"


@dataclass(frozen=True, slots=True)
class PodRights:
    """What a Kubernetes API server allows the driver.

    subject: who was asked about. namespace: where. denied: verbs and resources that are not
    allowed, such as ``create pods``, with the server's reason.
    """

    subject: str
    namespace: str
    denied: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueRoom:
    """A queue of YARN.

    name: its name. most_mb: memory that all its applications may have together, in MB. free_mb:
    memory that is free now. state: ``RUNNING``, or ``STOPPED`` for one that takes no applications.
    """

    name: str
    most_mb: float
    free_mb: float
    state: str = "RUNNING"


@dataclass(frozen=True, slots=True)
class JobRate:
    """Spark jobs and stages that end per second."""

    jobs: float
    stages: float


@dataclass(frozen=True)
class JobFacts:
    """All that is known of a job. None stands for what is not known, and `unknown` says why.

    Args:
        settings: Settings of Spark that are set; one that is missing has Spark's default.
        set_in_code: Where the application sets a setting itself, such as a line of a file, by key.
        in_advance: Whether this is a configuration, whose application may set more by itself.
        dry_run: Whether the autoscaler only watches.
        version: Version of Spark.
        tested_versions: Beginnings of the versions that Tidegate was tested with.
        slo: Latency targets.
        slo_by: What they are about: ``delay`` or ``event-age``.
        interval_s: Seconds between two decisions.
        min_executors: Smallest number of executors.
        max_executors: Largest number of executors, None for no limit.
        executors: Executors that run.
        queries: Streaming queries.
        agent: Whether the driver has Tidegate's agent.
        needs_agent: Why the job needs the agent, as a clause; empty if it does not.
        controller: The Python that runs the controller next to the driver.
        pod_rights: What Kubernetes allows the driver.
        queue: The queue of YARN.
        rate: Jobs and stages that end.
        unknown: Why a fact is not known, as a clause, by the name of the fact.
    """

    settings: Mapping[str, str] | None = None
    set_in_code: Mapping[str, str] = field(default_factory=dict)
    in_advance: bool = False
    dry_run: bool = False
    version: str | None = None
    tested_versions: tuple[str, ...] = ()
    slo: SloByQuery | None = None
    slo_by: Literal["delay", "event-age"] = "delay"
    interval_s: float = 10.0
    min_executors: int = 1
    max_executors: int | None = None
    executors: tuple[ExecutorInfo, ...] | None = None
    queries: tuple[QueryFacts, ...] | None = None
    agent: bool | None = None
    needs_agent: str = ""
    controller: str | None = None
    pod_rights: PodRights | None = None
    queue: QueueRoom | None = None
    rate: JobRate | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)

    def need(self, fact: str) -> Any:
        """A fact by its name; NotKnown with the reason when it is None."""
        value = getattr(self, fact)
        if value is None:
            raise NotKnown(self.unknown.get(fact, f"the {fact} of the job are not known"))
        return value

    # --- settings of Spark ----------------------------------------------------------------------

    def given(self, key: str) -> str | None:
        """A setting that is set, None otherwise."""
        assert key in DEFAULTS, key
        found: str | None = self.need("settings").get(key)
        return found

    def setting(self, key: str) -> str | None:
        """A setting, or Spark's default; None where there is neither."""
        found = self.given(key)
        return DEFAULTS[key] if found is None else found

    def flag(self, key: str) -> bool:
        """A setting that is true or false; false where it is not set and has no default."""
        return flag(key, self.setting(key) or "false")

    def number(self, key: str) -> float | None:
        """A setting that is a number, None when it is not set."""
        text = self.setting(key)
        return None if text is None else number(key, text)

    def seconds(self, key: str, unit: str = "ms") -> float | None:
        """A duration in seconds, None when it is not set. unit: that of a number without one."""
        text = self.setting(key)
        return None if text is None else seconds(key, text, unit)

    def megabytes(self, key: str) -> float | None:
        """A size in MB, None when it is not set."""
        text = self.setting(key)
        return None if text is None else megabytes(key, text)

    # --- what follows from them -----------------------------------------------------------------

    @property
    def cluster(self) -> str:
        """The scheme of ``spark.master``: ``local``, ``spark``, ``yarn``, ``k8s`` or another."""
        master = self.given("spark.master")
        if master is None:
            raise NotKnown(
                "spark.master is given neither on the command line nor in the file of defaults (if "
                "the application does not set it either, Spark runs it as local[*], which cannot "
                "be scaled)"
            )
        scheme = master.partition(":")[0].partition("[")[0]
        return "local" if scheme.startswith("local") else scheme

    @property
    def on_one_machine(self) -> bool:
        """Whether the cluster is this machine, as in tests."""
        master = self.given("spark.master") or ""
        return master.startswith(("spark://127.", "spark://localhost"))

    @property
    def slots(self) -> int:
        """Task slots of an executor."""
        cores = self.number("spark.executor.cores")
        if cores is None and self.executors:
            return max(1, self.executors[0].cores)  # these are slots already
        if cores is None and self.cluster == "spark":
            raise NotKnown(
                "spark.executor.cores is not set, so that the slots of an executor depend on the "
                "workers"
            )
        return max(1, int(cores or 1) // max(1, int(self.number("spark.task.cpus") or 1)))

    @property
    def executor_mb(self) -> float:
        """Memory that an executor takes from its cluster, in MB."""
        heap_mb = self.megabytes("spark.executor.memory") or 1024.0
        overhead_mb = self.megabytes("spark.executor.memoryOverhead")
        factor = self.number("spark.executor.memoryOverheadFactor") or 0.1
        return heap_mb + (max(384.0, heap_mb * factor) if overhead_mb is None else overhead_mb)
