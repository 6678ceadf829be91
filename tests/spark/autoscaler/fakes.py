"""An autoscaler without Spark: a gateway and a world that only count."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tidegate.loop.backend import Outcome
from tidegate.model import Plan, Snapshot
from tidegate.model.topology import Resources
from tidegate.testing import steady_snapshot

MODULE = "tidegate.spark.autoscaler.autoscaler"


class FakeGateway:
    """An application with one query."""

    stopped = False
    application = "app-1"

    def __init__(self, spark: object, watch_only: bool = False) -> None:
        pass

    def clock(self) -> float:
        return time.time()

    def active_queries(self) -> dict[str, str]:
        return {"id": "query"}

    def setting(self, name: str) -> str:
        return "spark://nowhere"


class FakeHosts:
    scalable = True

    def capacity(self) -> Resources:
        return Resources(4)


class FakeWorld:
    """A world with one host. turns: set when the world was changed three times."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.time_s = 0.0
        self.applied: list[Plan] = []
        self.turned = threading.Event()
        self.closed = False

    def start(self) -> None:
        pass

    def observe(self) -> Snapshot:
        self.time_s += 10.0
        return steady_snapshot(time_s=self.time_s)

    def apply(self, plan: Plan) -> Outcome:
        self.applied.append(plan)
        if len(self.applied) >= 3:
            self.turned.set()
        return Outcome()

    def close(self) -> None:
        self.closed = True


@contextmanager
def without_spark(world: FakeWorld) -> Iterator[None]:
    """Autoscalers that are created in this block scale `world`."""
    with (
        mock.patch(f"{MODULE}.InProcessGateway", FakeGateway),
        mock.patch(f"{MODULE}.executor_manager", lambda gateway, clock: FakeHosts()),
        mock.patch(f"{MODULE}.SparkWorld", lambda *_, **__: world),
    ):
        yield
