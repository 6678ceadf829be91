"""The end of a manager's process, while hosts go on or hang."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 300.0
"""Nothing takes so long on an idle machine; it is there for one that is very busy."""
MANAGER = """
import gc, sys, threading
from pyspark.sql.connect.proto import ExecutePlanRequest
from tidegate.fleet.connect import connect

gc.disable()
session = connect(f"sc://localhost:{sys.argv[1]}/;token=any", sys.argv[2])
call = session.client._stub.ExecutePlan(ExecutePlanRequest())
threading.Thread(target=lambda _: threading.Event().wait(), args=(call,), daemon=True).start()
session.itself = session
del session, call  # Python collects the session when it ends
print("the end", flush=True)
"""
"""A session with a call under way, which nobody needs any more."""


@pytest.fixture
def silent_host() -> Iterator[int]:
    """The port of a server that lets clients in and then never answers."""
    grpc = pytest.importorskip("grpc")
    proto = pytest.importorskip("pyspark.sql.connect.proto")
    over = threading.Event()

    class Silent(grpc.GenericRpcHandler):  # type: ignore[misc, name-defined]
        def service(self, details: Any) -> Any:
            if details.method.endswith("/Config"):
                empty = proto.ConfigResponse().SerializeToString()
                return grpc.unary_unary_rpc_method_handler(lambda *_: empty)
            return grpc.unary_stream_rpc_method_handler(lambda *_: iter(over.wait, True))

    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, handlers=(Silent(),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield port
        over.set()
        server.stop(0)


def test_a_process_ends_while_a_host_hangs(silent_host: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MANAGER, str(silent_host), "00112233-4455-6677-8899-aabbccddeeff"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0 and done.stdout == "the end\n", done.stderr
