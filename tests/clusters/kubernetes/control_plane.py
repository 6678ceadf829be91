"""The control plane: etcd and an API server with RBAC and an audit log, on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from tests.clusters.kubernetes.api import Api
from tests.clusters.kubernetes.programs import api_server, etcd
from tidegate.errors import BackendError
from tidegate.lifecycle import Service
from tidegate.spark.local.processes import LOOPBACK, Process

__all__ = ["ControlPlane"]

START_S = 300.0
"""It takes some 20 s on an idle machine."""

AUDIT = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
"""


class ControlPlane(Service):
    """etcd and an API server, whose objects outlive a restart of the API server.

    folder: for their data, keys and logs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._store_port, self._peer_port = _free_ports(3)
        self.url = f"https://{LOOPBACK}:{self.port}"
        self.ca = folder / "certificates" / "apiserver.crt"
        self._admin_token = secrets.token_urlsafe(24)
        self._processes: dict[str, Process] = {}

    @property
    def admin(self) -> Api:
        """The API as a user who may do everything."""
        return self.api(self._admin_token)

    def api(self, token: str) -> Api:
        """The API as the user of a token."""
        return Api(self.url, self.ca, token)

    def start(self) -> Self:
        """Start both; return when the API server is ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        key = self.folder / "service-accounts.key"
        made = ["openssl", "genrsa", "-out", str(key), "2048"]
        subprocess.run(made, check=True, capture_output=True)
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f'{self._admin_token},admin,admin,"system:masters"\n', encoding="ascii")
        (self.folder / "audit.yaml").write_text(AUDIT, encoding="ascii")
        store, peer = (f"http://{LOOPBACK}:{p}" for p in (self._store_port, self._peer_port))
        self._processes["etcd"] = Process(
            [
                *(str(etcd()), "--data-dir", str(self.folder / "etcd")),
                *("--listen-client-urls", store, "--advertise-client-urls", store),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", f"default={peer}"),
            ],
            self.folder / "etcd.log",
            os.environ,
        )
        self.start_api_server()
        return self

    def start_api_server(self) -> None:
        """Start the API server, or start it again with the same objects; wait until it is ready."""
        key = str(self.folder / "service-accounts.key")
        flags = {
            "etcd-servers": f"http://{LOOPBACK}:{self._store_port}",
            "bind-address": LOOPBACK,
            "advertise-address": LOOPBACK,
            "secure-port": str(self.port),
            "cert-dir": str(self.ca.parent),
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-signing-key-file": key,
            "service-account-key-file": key,
            "service-cluster-ip-range": "10.0.0.0/24",
            "token-auth-file": str(self.folder / "tokens.csv"),
            "authorization-mode": "RBAC",
            "audit-policy-file": str(self.folder / "audit.yaml"),
            "audit-log-path": str(self.folder / "audit.log"),
            "endpoint-reconciler-type": "none",  # loopback is no valid address of an endpoint
        }
        command = [str(api_server()), *(f"--{name}={value}" for name, value in flags.items())]
        process = Process(command, self.folder / "kube-apiserver.log", os.environ)
        self._processes["kube-apiserver"] = process
        end_s = time.monotonic() + START_S
        while not (self.ca.exists() and self.admin.ready()):
            if not process.running or time.monotonic() > end_s:
                why = "it ended" if not process.running else f"not ready in {START_S:g} s"
                raise BackendError(f"the API server did not start: {why}; see {process.log}")
            time.sleep(0.2)

    def stop_api_server(self) -> None:
        """Stop the API server; its objects stay in etcd."""
        self._processes.pop("kube-apiserver").stop()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """While the block runs, the API server accepts connections and answers nothing."""
        pid = self._processes["kube-apiserver"].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def requests(self) -> list[dict[str, Any]]:
        """All requests so far, as the audit log has them."""
        lines = (self.folder / "audit.log").read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def stop(self) -> None:
        """Stop both."""
        for process in reversed(self._processes.values()):
            process.stop()
        self._processes.clear()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server((LOOPBACK, 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in taken]
