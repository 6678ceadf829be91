"""What a container of a pod is on this machine: a command with an environment and some files.

There is no image: a container runs the programs of this machine. One without a command runs the
entry point of deploy/kubernetes, which starts a driver or an executor. A volume is a folder. There
are no mounts, so the paths of volumes are replaced by these folders in arguments, environment and
configuration files. So is the address of the API server, and 0.0.0.0 is the pod's own address.
"""

from __future__ import annotations

import base64
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clusters.kubernetes.api import Api
from tidegate.spark.agent import JAR
from tidegate.spark.local.processes import spark_home

__all__ = ["ACCOUNT_FOLDER", "ContainerFiles", "command_of", "environment_of", "of_this_machine"]

ROOT = Path(__file__).parents[3]
ENTRY_POINT = ROOT / "deploy" / "kubernetes" / "entrypoint.sh"
API_SERVER = "https://kubernetes.default.svc"
"""The name of the API server in every pod of a cluster."""
ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where every pod has its token."""


@dataclass
class ContainerFiles:
    """The volumes of a pod as folders.

    folder: where they are made; pod: as the API has it; api: for what is in them.
    """

    folder: Path
    pod: Mapping[str, Any]
    api: Api
    volumes: dict[str, Path] = field(default_factory=dict)

    def make(self) -> None:
        """Make the folders with what config maps, secrets and the API server put into them."""
        for volume in self.pod["spec"].get("volumes", ()):
            place = self.folder / "volumes" / volume["name"]
            place.mkdir(parents=True, exist_ok=True)
            self.volumes[volume["name"]] = place
            for kind in ("configMap", "secret", "downwardAPI"):
                if kind in volume:
                    self._fill(kind, volume[kind], place)
            for source in volume.get("projected", {}).get("sources", ()):
                for kind, given in source.items():
                    self._fill(kind, given, place)
        for volume in self.pod["spec"].get("volumes", ()):
            if "configMap" in volume:  # only these are about paths
                for file in self.volumes[volume["name"]].iterdir():
                    text = file.read_text(encoding="utf-8")
                    file.write_text(self.local(text), encoding="utf-8")

    def _fill(self, kind: str, given: Mapping[str, Any], place: Path) -> None:
        meta, api = self.pod["metadata"], self.api
        root = f"/api/v1/namespaces/{meta['namespace']}"
        found: dict[str, bytes] = {}
        if kind == "configMap":
            data = api.get(f"{root}/configmaps/{given['name']}").get("data", {})
            found = {name: text.encode() for name, text in data.items()}
        elif kind == "secret":
            data = api.get(f"{root}/secrets/{given.get('secretName') or given['name']}")["data"]
            found = {name: base64.b64decode(text) for name, text in data.items()}
        elif kind == "downwardAPI":
            found = {
                item["path"]: field_of(self.pod, item["fieldRef"]["fieldPath"]).encode()
                for item in given["items"]
            }
        elif kind == "serviceAccountToken":
            account = f"{root}/serviceaccounts/{self.pod['spec']['serviceAccountName']}"
            wanted = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {
                    "expirationSeconds": given.get("expirationSeconds", 3600),
                    "boundObjectRef": {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "name": meta["name"],
                        "uid": meta["uid"],
                    },
                },
            }
            token = api.create(f"{account}/token", wanted)["status"]["token"]
            found = {given["path"]: token.encode()}
        if kind in ("configMap", "secret") and "items" in given:
            found = {item["path"]: found[item["key"]] for item in given["items"]}
        for name, content in found.items():
            (place / name).write_bytes(content)
            (place / name).chmod(0o600)

    def local(self, text: str) -> str:
        """A text with the paths of all mounts replaced by folders of this machine."""
        mounts = {
            mount["mountPath"].rstrip("/"): self.volumes[mount["name"]] / mount.get("subPath", "")
            for kind in ("initContainers", "containers")
            for container in self.pod["spec"].get(kind, ())
            for mount in container.get("volumeMounts", ())
        }
        for path in sorted(mounts, key=len, reverse=True):
            text = re.sub(rf"(?<![\w/.-]){re.escape(path)}(?![\w.-])", str(mounts[path]), text)
        text = text.replace(f"{API_SERVER}:443", API_SERVER).replace(API_SERVER, self.api.url)
        return text.replace("0.0.0.0:", f"{self.pod['status']['podIP']}:")


def field_of(pod: Mapping[str, Any], path: str) -> str:
    """A field of a pod by its path in the downward API.

    >>> field_of({"metadata": {"name": "a", "labels": {"x/y": "1"}}}, "metadata.labels['x/y']")
    '1'
    """
    key = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    if key:
        return str(pod["metadata"].get(key[1], {}).get(key[2], ""))
    found: Any = pod
    for name in path.split("."):
        found = found.get(name, {})
    return str(found or "")


def environment_of(container: Mapping[str, Any], files: ContainerFiles) -> dict[str, str]:
    """The environment that a container adds to that of this machine."""
    pod, api = files.pod, files.api
    root = f"/api/v1/namespaces/{pod['metadata']['namespace']}"
    found: dict[str, str] = {}
    for mount in container.get("volumeMounts", ()):
        if (
            mount["mountPath"] == ACCOUNT_FOLDER
        ):  # Spark's client looks there, unless it is told otherwise
            place = files.volumes[mount["name"]]
            found["KUBERNETES_AUTH_SERVICEACCOUNT_TOKEN"] = str(place / "token")
            found["KUBERNETES_CERTS_CA_FILE"] = str(place / "ca.crt")
    for entry in container.get("env", ()):
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            value = field_of(pod, source["fieldRef"]["fieldPath"])
        elif "secretKeyRef" in source:
            given = source["secretKeyRef"]
            data = api.get(f"{root}/secrets/{given['name']}")["data"]
            value = base64.b64decode(data[given["key"]]).decode()
        elif "configMapKeyRef" in source:
            given = source["configMapKeyRef"]
            value = api.get(f"{root}/configmaps/{given['name']}")["data"][given["key"]]
        else:
            value = _expanded(entry.get("value", ""), found)
        found[entry["name"]] = files.local(value)
    return found


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """A text with ``$(NAME)`` replaced, as Kubernetes does.

    >>> _expanded("a$(B)$(C)", {"B": "1"})
    'a1$(C)'
    """
    return re.sub(r"\$\((\w+)\)", lambda m: environment.get(m[1], m[0]), text)


def of_this_machine() -> dict[str, str]:
    """The environment of programs on this machine: its own, without anybody's cluster.

    Spark is the one of PySpark, and the class path has the jar of the agent, as in the image.
    """
    hidden = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HADOOP_CONF_DIR", "SPARK_CONF_DIR")
    found = {name: value for name, value in os.environ.items() if name not in hidden}
    return found | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(spark_home()),
        "SPARK_DIST_CLASSPATH": str(JAR),
    }


def command_of(
    container: Mapping[str, Any], environment: Mapping[str, str], files: ContainerFiles
) -> list[str]:
    """The command that a container runs here."""
    words = [*container.get("command", ()), *container.get("args", ())]
    words = [files.local(_expanded(word, environment)) for word in words]
    if container.get("command"):
        beside = Path(sys.executable).with_name(words[0])
        return [str(beside), *words[1:]] if beside.is_file() else words
    return ["bash", str(ENTRY_POINT), *words]
