"""A cluster of one node: control plane, kubelet, namespace, and the roles of deploy/kubernetes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import yaml

from tests.clusters.kubernetes.api import Api, ApiError, collection
from tests.clusters.kubernetes.containers import ACCOUNT_FOLDER
from tests.clusters.kubernetes.control_plane import ControlPlane
from tests.clusters.kubernetes.kubelet import Kubelet
from tidegate.lifecycle import Service

__all__ = ["ACCOUNT", "DEPLOY", "NAMESPACE", "KubernetesCluster", "documents", "role"]

NAMESPACE = "jobs"
ACCOUNT = "spark-driver"
DEPLOY = Path(__file__).parents[3] / "deploy" / "kubernetes"


def documents(file: Path) -> Iterator[dict[str, Any]]:
    """The objects of a YAML file."""
    with file.open(encoding="utf-8") as stream:
        yield from (thing for thing in yaml.safe_load_all(stream) if thing)


def role(without: str = "") -> dict[str, Any]:
    """The role of the driver, without a verb on pods."""
    found = next(d for d in documents(DEPLOY / "rbac.yaml") if d["kind"] == "Role")
    for rule in found["rules"]:
        if "pods" in rule["resources"]:
            rule["verbs"] = [verb for verb in rule["verbs"] if verb != without]
    return found


class KubernetesCluster(Service):
    """Real Kubernetes, except that pods are processes of this machine.

    folder: for data, keys, logs and the files of pods.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plane = ControlPlane(folder / "control-plane")
        self.kubelet: Kubelet | None = None

    @property
    def admin(self) -> Api:
        """The API as a user who may do everything."""
        return self.plane.admin

    @property
    def node(self) -> Kubelet:
        """The kubelet of a cluster that was started."""
        assert self.kubelet is not None
        return self.kubelet

    def start(self) -> Self:
        """Start it with a namespace and an account that has the rights of a driver."""
        try:
            self.plane.start()
            self._prepare()
            self.kubelet = Kubelet(self.admin, NAMESPACE, self.folder / "pods").start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all pods and the control plane."""
        if self.kubelet is not None:
            self.kubelet.stop()
        self.plane.stop()

    def apply(self, *things: dict[str, Any]) -> None:
        """Create objects, or replace those that exist."""
        for thing in things:
            path = collection(thing, NAMESPACE)
            try:
                self.admin.create(path, thing)
            except ApiError as error:
                if error.status != 409:
                    raise
                self.admin.update(f"{path}/{thing['metadata']['name']}", thing)

    def await_kinds(self, *plurals: str) -> None:
        """Wait until custom resources that were defined can be created."""
        missing = set(plurals)
        while missing:
            groups = self.admin.get("/apis")["groups"]
            paths = [version["groupVersion"] for group in groups for version in group["versions"]]
            for path in (path for path in paths if "k8s.io/" not in path or "operator" in path):
                missing -= {r["name"] for r in self.admin.get(f"/apis/{path}")["resources"]}
            time.sleep(0.1)

    def token(self, account: str = ACCOUNT) -> str:
        """A token of a service account, as the API server signs it for a pod."""
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        wanted = {"spec": {"expirationSeconds": 24 * 3600}}
        return str(self.admin.create(path, wanted)["status"]["token"])

    def pods(self, role: str = "executor", **phase: str) -> list[dict[str, Any]]:
        """The pods of Spark. role: ``executor`` or ``driver``; phase: only those in that phase."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        found = self.admin.get(path, labelSelector=f"spark-role={role}")["items"]
        return [
            p for p in found if p["status"]["phase"] == phase.get("phase", p["status"]["phase"])
        ]

    def conf(self, token: str, image: str = "this-machine") -> dict[str, str]:
        """Spark's settings for a driver on this machine that uses the cluster."""
        secret = self.folder / "driver.token"
        secret.touch(mode=0o600)
        secret.write_text(token, encoding="ascii")
        return {
            "spark.kubernetes.namespace": NAMESPACE,
            "spark.kubernetes.container.image": image,
            "spark.kubernetes.authenticate.oauthTokenFile": str(secret),
            "spark.kubernetes.authenticate.caCertFile": str(self.plane.ca),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }

    def conf_in_cluster(self, account: str = ACCOUNT) -> dict[str, str]:
        """Spark's settings for a driver in a pod.

        In a whole cluster, Spark's defaults are these paths and ``kubernetes.default.svc``.
        """
        secret = self.folder / "admin.token"
        secret.touch(mode=0o600)
        secret.write_text(self.admin.token, encoding="ascii")
        of = "spark.kubernetes.authenticate"
        return {
            "spark.kubernetes.namespace": NAMESPACE,
            "spark.kubernetes.container.image": "this-machine",
            f"{of}.submission.oauthTokenFile": str(secret),
            f"{of}.submission.caCertFile": str(self.plane.ca),
            f"{of}.driver.serviceAccountName": account,
            f"{of}.driver.mounted.oauthTokenFile": f"{ACCOUNT_FOLDER}/token",
            f"{of}.driver.mounted.caCertFile": f"{ACCOUNT_FOLDER}/ca.crt",
            "spark.kubernetes.driver.master": self.plane.url,
            "spark.pyspark.python": sys.executable,
        }

    @property
    def master(self) -> str:
        """The value of ``--master``."""
        return f"k8s://{self.plane.url}"

    def _prepare(self) -> None:
        """What the controller manager of a whole cluster creates in a namespace, and the roles."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        ca = {"ca.crt": self.plane.ca.read_text(encoding="ascii")}
        for kind, name, more in (
            ("ServiceAccount", "default", {}),
            ("ConfigMap", "kube-root-ca.crt", {"data": ca}),
        ):
            self.apply({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **more})
        self.apply(*documents(DEPLOY / "rbac.yaml"))
