"""Scheduler and kubelet of one node: pods run as processes of this machine.

The kubelet reads the pods every quarter of a second. It binds a pod to the node, starts its
containers, reports their state, and ends them when the pod is deleted, as a kubelet does: first the
``preStop`` hook (Spark's decommissions the executor), then SIGTERM, after the grace period SIGKILL.
Each pod has an address of its own in 127.0.0.0/8. While the API server is away, pods keep running.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from tests.clusters.kubernetes.api import Api, ApiError
from tests.clusters.kubernetes.containers import (
    ContainerFiles,
    command_of,
    environment_of,
    of_this_machine,
)
from tidegate.lifecycle import Service
from tidegate.spark.local.processes import LOOPBACK, Process

__all__ = ["Kubelet", "RunningPod"]

log = logging.getLogger(__name__)

NODE = "this-machine"
LOOK_S = 0.25
"""Time between two looks at the pods, in seconds."""
DECOMMISSION = getattr(signal, "SIGPWR", signal.SIGTERM)
"""What the ``preStop`` hook of an executor sends: Spark's ``decom.sh`` does the same."""


@dataclass
class RunningPod:
    """A pod on this machine.

    pod: as the API has it; address: its IP; sidecars: containers that do not keep the pod alive;
    reason: why it has failed, if that was not its containers; ended_s: when its end began.
    """

    pod: dict[str, Any]
    address: str
    main: dict[str, Process] = field(default_factory=dict)
    sidecars: dict[str, Process] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)
    reported: str = ""
    reason: str = ""
    ended_s: float | None = None
    signals: int = 0
    cleared: bool = False

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def running(self) -> bool:
        return any(process.running for process in self.main.values())

    def clear(self) -> None:
        """End what still runs, once: the ids of processes are used again later."""
        if not self.cleared:
            self.cleared = True
            for process in (*self.main.values(), *self.sidecars.values()):
                process.stop(5.0)


class Kubelet(Service):
    """Runs the pods of one namespace.

    api: with the rights of an administrator; namespace: whose pods it runs; folder: for their files
    and logs. executors: most executor pods that fit on the node, None for any number. Set it to
    have pods that stay pending.
    """

    def __init__(self, api: Api, namespace: str, folder: Path) -> None:
        self.api, self.namespace, self.folder = api, namespace, folder
        self.executors: int | None = None
        self.pods: dict[str, RunningPod] = {}
        self._root = f"/api/v1/namespaces/{namespace}"
        self._addresses = 0
        self._evicting: dict[str, str] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name="kubelet", daemon=True)

    def start(self) -> Self:
        """Register the node and begin."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_hosts([])
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        with contextlib.suppress(ApiError):  # it is there from an earlier start
            self.api.create("/api/v1/nodes", node)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End all pods."""
        self._end.set()
        self._thread.join()
        for pod in self.pods.values():
            pod.clear()
        self.pods.clear()

    def evict(self, name: str, why: str) -> None:
        """Evict a pod as a node does that runs out of memory: kill it and say so in its status."""
        self._evicting[name] = why

    @contextlib.contextmanager
    def frozen(self, pods: list[str]) -> Iterator[Callable[[set[str]], None]]:
        """While the block runs, the processes of pods stand still. Yields what lets some go on."""
        groups = {
            running.name: [process.pid for process in running.main.values()]
            for running in self.pods.values()
            if running.name in pods
        }

        def send(number: int, names: set[str]) -> None:
            for pid in (pid for name in names & groups.keys() for pid in groups[name]):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number)

        send(signal.SIGSTOP, set(pods))
        try:
            yield lambda names: send(signal.SIGCONT, names)
        finally:
            send(signal.SIGCONT, set(pods))

    def kill(self, pod: str, container: str) -> None:
        """Kill a container, as a kernel does that runs out of memory."""
        for running in list(self.pods.values()):
            if running.name == pod:
                os.kill(running.main[container].pid, signal.SIGKILL)

    def volume(self, pod: str, name: str) -> Path:
        """The folder that is a volume of a pod."""
        return self.folder / pod / "volumes" / name

    # --- the loop -----------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._end.wait(LOOK_S):
            try:
                self._look()
            except ApiError as error:
                log.debug("the kubelet waits for the API server: %s", error)
            except Exception:
                log.exception("the kubelet failed at a look and goes on")

    def _look(self) -> None:
        listed = self.api.get(f"{self._root}/pods")["items"]
        here = {pod["metadata"]["uid"]: pod for pod in listed}
        for uid in list(self.pods):
            if uid not in here:  # deleted by force
                self.pods.pop(uid).clear()
        self._write_hosts(self.api.get(f"{self._root}/services")["items"])
        for uid, pod in here.items():
            if uid in self.pods:
                self.pods[uid].pod = pod
                self._attend(uid)
            elif "deletionTimestamp" in pod["metadata"]:
                self._remove(pod)
            elif pod["status"]["phase"] == "Pending":
                self._schedule(pod)

    def _schedule(self, pod: dict[str, Any]) -> None:
        role = pod["metadata"].get("labels", {}).get("spark-role")
        running = sum(
            p.running and p.pod["metadata"].get("labels", {}).get("spark-role") == "executor"
            for p in self.pods.values()
        )
        path = f"{self._root}/pods/{pod['metadata']['name']}"
        if role == "executor" and self.executors is not None and running >= self.executors:
            text = f"0/1 nodes are available: 1 Too many pods ({running} executors run)."
            condition = _condition("PodScheduled", False, "Unschedulable", text)
            if pod["status"].get("conditions", [{}])[0].get("message") != text:
                self.api.patch(f"{path}/status", {"status": {"conditions": [condition]}})
            return
        if "nodeName" not in pod["spec"]:
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod["metadata"]["name"]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
            }
            self.api.create(f"{path}/binding", binding)
        self._begin(self.api.get(path))

    def _begin(self, pod: dict[str, Any]) -> None:
        """Start the containers of a pod, or try it again at the next look."""
        self._addresses += 1
        address = f"127.1.{self._addresses // 250}.{self._addresses % 250 + 1}"
        pod["status"]["podIP"] = address
        running = RunningPod(pod, address)
        self.pods[pod["metadata"]["uid"]] = running
        self._write_hosts(self.api.get(f"{self._root}/services")["items"])
        try:
            self._start_containers(running)
        except ApiError as error:  # Spark creates a pod before its config map
            log.info("%s waits: %s", running.name, error)
            del self.pods[pod["metadata"]["uid"]]
            return
        self._report(running)

    def _start_containers(self, running: RunningPod, only: str = "") -> None:
        pod = running.pod
        folder = self.folder / running.name
        files = ContainerFiles(folder, pod, self.api)
        files.make()
        common = of_this_machine() | {
            "SPARK_LOCAL_IP": running.address,
            # The cluster's names of services, for Java.
            "JAVA_TOOL_OPTIONS": f"-Djdk.net.hosts.file={self.folder / 'hosts'}",
        }
        ready = []
        for processes, kind in ((running.sidecars, "initContainers"), (running.main, "containers")):
            for container in pod["spec"].get(kind, ()):
                if only in ("", container["name"]):
                    env = environment_of(container, files)
                    ready.append(
                        (processes, container["name"], command_of(container, env, files), env)
                    )
        for processes, name, command, env in ready:  # all of them or none
            processes[name] = Process(
                ["env", f"--chdir={folder}", *command], folder / f"{name}.log", common | env
            )

    def _attend(self, uid: str) -> None:
        """Report a pod's state; end it when it was deleted or evicted; restart its sidecars."""
        running = self.pods[uid]
        why = self._evicting.pop(running.name, "")
        if why and running.running:
            running.reason = why
            for process in running.main.values():
                process.kill()
        meta = running.pod["metadata"]
        if "deletionTimestamp" in meta and running.running:
            self._terminate(running)
        if running.ended_s is None and not running.reason:
            self._restart(running)
        if not running.running:
            running.clear()
        self._report(running)
        if "deletionTimestamp" in meta and not running.running:
            self._remove(running.pod)

    def _restart(self, running: RunningPod) -> None:
        """Start containers again that have ended, as the pod asks for it."""
        policy = running.pod["spec"].get("restartPolicy", "Always")
        ended = {name: p for name, p in running.main.items() if not p.running}
        if policy != "Always":
            ended = {n: p for n, p in ended.items() if policy == "OnFailure" and p.exit_code}
        if running.running or ended:
            ended |= {name: p for name, p in running.sidecars.items() if not p.running}
        for name, process in ended.items():
            process.kill()  # what it has left behind ends with the container
            running.restarts[name] = running.restarts.get(name, 0) + 1
            self._start_containers(running, only=name)

    def _terminate(self, running: RunningPod) -> None:
        """One step of the orderly end of a pod that was deleted."""
        now_s = time.monotonic()
        if running.ended_s is None:
            running.ended_s = now_s
        passed_s = now_s - running.ended_s
        grace_s = running.pod["metadata"].get("deletionGracePeriodSeconds", 30)
        hook = any("preStop" in c.get("lifecycle", {}) for c in running.pod["spec"]["containers"])
        if running.signals == 0 and hook:
            number = DECOMMISSION
        elif running.signals == 0 or (running.signals == 1 and hook and passed_s > grace_s):
            number = signal.SIGTERM
        elif passed_s > grace_s + 2:
            number = signal.SIGKILL
        else:
            return
        running.signals += 1
        for process in running.main.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def _report(self, running: RunningPod) -> None:
        codes = {name: process.exit_code for name, process in running.main.items()}
        phase = "Running"
        if running.reason or (codes and all(code is not None for code in codes.values())):
            failed = running.reason or any(codes.values())
            phase = "Failed" if failed else "Succeeded"
        state = f"{phase} {codes} {running.restarts}"
        if state == running.reported:
            return
        up = phase == "Running"
        reason = {"reason": "Evicted", "message": running.reason} if running.reason else {}
        spec = running.pod["spec"]
        status = {
            "phase": phase,
            "hostIP": LOOPBACK,
            "podIP": running.address,
            "podIPs": [{"ip": running.address}],
            "startTime": _now(),
            "conditions": [_condition("PodScheduled", True), _condition("Ready", up)],
            "containerStatuses": [
                _container(c, codes.get(c["name"]), running.restarts.get(c["name"], 0), up)
                for c in spec["containers"]
            ],
            "initContainerStatuses": [
                _container(c, None if up else 0, running.restarts.get(c["name"], 0), up)
                for c in spec.get("initContainers", ())
            ],
            **reason,
        }
        path = f"{self._root}/pods/{running.name}/status"
        try:
            self.api.patch(path, {"status": status})
        except ApiError as error:
            if error.status != 404:
                raise
        running.reported = state

    def _remove(self, pod: dict[str, Any]) -> None:
        """Confirm to the API server that a deleted pod has ended."""
        meta = pod["metadata"]
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        with contextlib.suppress(ApiError):
            self.api.delete(f"{self._root}/pods/{meta['name']}", body)
        self.pods.pop(meta["uid"], None)

    def _write_hosts(self, services: list[dict[str, Any]]) -> None:
        """The cluster's DNS: names of services with the addresses of their pods, for Java."""
        lines = [f"{LOOPBACK} localhost {socket.gethostname()}"]
        for service in services:
            selector = service["spec"].get("selector")
            if not selector:
                continue
            name = f"{service['metadata']['name']}.{self.namespace}.svc"
            for pod in self.pods.values():
                labels = pod.pod["metadata"].get("labels", {})
                if selector.items() <= labels.items():
                    lines.append(f"{pod.address} {name} {name}.cluster.local")
        text = "\n".join(lines) + "\n"
        file = self.folder / "hosts"
        if not file.exists() or file.read_text(encoding="ascii") != text:
            made = file.with_suffix(".new")
            made.write_text(text, encoding="ascii")
            made.replace(file)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _condition(kind: str, true: bool, reason: str = "", message: str = "") -> dict[str, str]:
    return {
        "type": kind,
        "status": str(true),
        "reason": reason,
        "message": message,
        "lastTransitionTime": _now(),
    }


def _container(given: dict[str, Any], code: int | None, restarts: int, up: bool) -> dict[str, Any]:
    if code is None and up:
        state: dict[str, Any] = {"running": {"startedAt": _now()}}
    else:
        code = 137 if code is None else code if code >= 0 else 128 - code
        state = {"terminated": {"exitCode": code, "finishedAt": _now()}}
    return {
        "name": given["name"],
        "image": given["image"],
        "imageID": given["image"],
        "ready": up,
        "started": up,
        "restartCount": restarts,
        "state": state,
    }
